"""How long a node waits before elections: bounds of the draws, the order of the voters, the back-off."""

from __future__ import annotations

import random

import pytest

from raftwerk.raft.quorum.config import RaftConfig, RaftTiming
from raftwerk.raft.quorum.election_timeouts import ElectionTimeouts
from raftwerk.raft.voters.voter_set import VoterEndpoint

TIMING = RaftTiming(
    election_timeout_ms=1000,
    fetch_timeout_ms=2000,
    election_backoff_max_ms=1000,
    retry_backoff_ms=50,
    first_election_delay_ms=20,
    election_stagger_ms=30,
)


class Draws(random.Random):
    """Each draw is the least or the greatest value that is allowed."""

    def __init__(self, *, greatest: bool) -> None:
        super().__init__(0)
        self._greatest = greatest

    def randint(self, a: int, b: int) -> int:
        return b if self._greatest else a


def delays(node_id: int, *, greatest: bool = False, voters: tuple[int, ...] = (1, 2, 3)) -> ElectionTimeouts:
    config = RaftConfig(node_id=node_id, cluster_id="c", bootstrap=(VoterEndpoint("n1", 9093),), timing=TIMING)
    return ElectionTimeouts(config, Draws(greatest=greatest), lambda: list(voters))


def test_a_round_takes_one_to_two_election_timeouts() -> None:
    assert delays(1).election_timeout_ms() == 1000
    assert delays(1, greatest=True).election_timeout_ms() == 2000


def test_voters_stand_one_after_the_other_by_their_ids() -> None:
    """What is drawn at random is at most half of the distance, so that the order stays."""
    assert [delays(node_id).stagger_ms(None) for node_id in (1, 2, 3)] == [0, 30, 60]
    assert [delays(node_id, greatest=True).stagger_ms(None) for node_id in (1, 2, 3)] == [15, 45, 75]
    assert [delays(node_id).first_election_ms() for node_id in (1, 2, 3)] == [20, 50, 80]


def test_nobody_waits_for_the_leader_that_is_dead() -> None:
    assert [delays(node_id).stagger_ms(1) for node_id in (2, 3)] == [0, 30]
    assert [delays(node_id).stagger_ms(2) for node_id in (1, 3)] == [0, 30]


def test_voters_give_a_silent_leader_up_one_after_the_other_and_an_observer_at_once() -> None:
    assert [delays(node_id).fetch_timeout_ms(1, is_voter=True) for node_id in (2, 3)] == [2000, 2030]
    assert delays(9).fetch_timeout_ms(1, is_voter=False) == 2000


def test_the_first_successor_of_a_resigned_leader_does_not_wait() -> None:
    assert [delays(3).successor_delay_ms(place) for place in (0, 1, 2)] == [0, 30, 60]


def test_who_granted_a_pre_vote_lets_the_other_one_finish() -> None:
    assert delays(1).yield_ms() == 60


@pytest.mark.parametrize(
    ("rounds", "least", "greatest"),
    [(0, 0, 15), (1, 25, 65), (2, 50, 115), (3, 100, 215), (5, 400, 815), (6, 500, 1015), (40, 500, 1015)],
)
def test_failed_rounds_double_the_wait_up_to_a_bound(rounds: int, least: int, greatest: int) -> None:
    for is_greatest, expected_ms in ((False, least), (True, greatest)):
        timeouts = delays(1, greatest=is_greatest)
        for _ in range(rounds):
            timeouts.on_round_failed()
        assert timeouts.stagger_ms(None) == expected_ms
        timeouts.on_leader_works()
        assert timeouts.stagger_ms(None) == (15 if is_greatest else 0), "a leader that works ends the back-off"
