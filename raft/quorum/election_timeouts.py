"""How long to wait, in milliseconds. Randomness comes from the injected generator, so that a seed repeats a history."""

from __future__ import annotations

import random
from collections.abc import Callable

from .config import RaftConfig


class ElectionTimeouts:
    """Draws the quorum's random delays.

    Voters try in the order of their ids, `election_stagger_ms` apart: the first finishes before the second begins, so
    votes hardly ever split. Rounds that fail nevertheless back off exponentially and at random.
    """

    def __init__(self, config: RaftConfig, rng: random.Random, voter_ids: Callable[[], list[int]]) -> None:
        self._node_id = config.node_id
        self._voter_ids = voter_ids
        self._timing = config.timing
        self._rng = rng
        self._failed_rounds = 0

    def on_round_failed(self) -> None:
        """An election round was lost or led nowhere: the next ones come later."""
        self._failed_rounds += 1

    def on_leader_works(self) -> None:
        """This node leads, or fetched from its leader."""
        self._failed_rounds = 0

    def election_timeout_ms(self) -> int:
        """How long a round may take, or how long a voter waits for whom it voted for: one to two election timeouts."""
        return self._rng.randint(self._timing.election_timeout_ms, 2 * self._timing.election_timeout_ms)

    def first_election_ms(self) -> int:
        """The wait of a voter that knows no leader and owes no vote."""
        return self._timing.first_election_delay_ms + self.stagger_ms(None)

    def stagger_ms(self, dead_leader: int | None) -> int:
        """The wait until it is this voter's turn to try, among the voters without `dead_leader`."""
        distance_ms = self._timing.election_stagger_ms
        place = sum(voter < self._node_id for voter in self._voter_ids() if voter != dead_leader)
        return distance_ms * place + self._rng.randint(0, distance_ms // 2) + self._backoff_ms()

    def fetch_timeout_ms(self, leader_id: int, *, is_voter: bool) -> int:
        """How long an unheard leader is followed; voters give up one after the other."""
        return self._timing.fetch_timeout_ms + (self.stagger_ms(leader_id) if is_voter else 0)

    def successor_ms(self, place: int) -> int:
        """The wait of the voter at `place` among a resigning leader's successors; the first waits for nothing."""
        return self._timing.election_stagger_ms * place

    def yield_ms(self) -> int:
        """How long a voter that granted a pre-vote lets the other one go ahead."""
        return 2 * self._timing.election_stagger_ms

    def _backoff_ms(self) -> int:
        if self._failed_rounds == 0:
            return 0
        doubled_ms = self._timing.retry_backoff_ms << min(self._failed_rounds - 1, 16)
        longest_ms = min(doubled_ms, self._timing.election_backoff_max_ms)
        return self._rng.randint(longest_ms // 2, longest_ms)
