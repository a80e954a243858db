"""How long the quorum waits before elections, in milliseconds. A seed of the injected generator repeats all delays."""

from __future__ import annotations

import random
from collections.abc import Callable

from .config import RaftConfig


class ElectionTimeouts:
    """Draws the quorum's random delays.

    Voters stand for election in the order of their ids, `election_stagger_ms` apart. The first one finishes before the
    second one begins, so votes hardly ever split. After failed rounds the delays grow exponentially, and at random.
    """

    def __init__(self, config: RaftConfig, rng: random.Random, voter_ids: Callable[[], list[int]]) -> None:
        self._node_id = config.node_id
        self._voter_ids = voter_ids
        self._timing = config.timing
        self._rng = rng
        self._failed_rounds = 0

    def on_round_failed(self) -> None:
        """A round was lost or came to nothing: the next ones come later."""
        self._failed_rounds += 1

    def on_leader_works(self) -> None:
        """This node leads, or fetched from its leader."""
        self._failed_rounds = 0

    def election_timeout_ms(self) -> int:
        """How long a round takes at most, or a voter waits after its vote: one to two election time-outs."""
        return self._rng.randint(self._timing.election_timeout_ms, 2 * self._timing.election_timeout_ms)

    def first_election_ms(self) -> int:
        """How long a voter that knows no leader and has not voted waits before it stands."""
        return self._timing.first_election_delay_ms + self.stagger_ms(None)

    def stagger_ms(self, dead_leader: int | None) -> int:
        """How long this voter waits for those with lower ids, among the voters without `dead_leader`."""
        distance_ms = self._timing.election_stagger_ms
        place = sum(voter < self._node_id for voter in self._voter_ids() if voter != dead_leader)
        return distance_ms * place + self._rng.randint(0, distance_ms // 2) + self._backoff_ms()

    def fetch_timeout_ms(self, leader_id: int, *, is_voter: bool) -> int:
        """How long a leader is followed without being heard from; voters give it up one after the other."""
        return self._timing.fetch_timeout_ms + (self.stagger_ms(leader_id) if is_voter else 0)

    def successor_delay_ms(self, place: int) -> int:
        """How long the voter at `place` among a resigned leader's successors waits; the first does not wait."""
        return self._timing.election_stagger_ms * place

    def yield_ms(self) -> int:
        """How long a voter that granted a pre-vote does not stand itself."""
        return 2 * self._timing.election_stagger_ms

    def _backoff_ms(self) -> int:
        if self._failed_rounds == 0:
            return 0
        doubled_ms = self._timing.retry_backoff_ms << min(self._failed_rounds - 1, 16)
        longest_ms = min(doubled_ms, self._timing.election_backoff_max_ms)
        return self._rng.randint(longest_ms // 2, longest_ms)
