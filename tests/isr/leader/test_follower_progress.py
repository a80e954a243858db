"""When a follower counts as one that still fetches."""

from __future__ import annotations

from support.isr.replicas import fetch, new_leader


def test_a_follower_has_fetched_within_a_period_up_to_its_last_millisecond() -> None:
    leader = new_leader()
    follower = leader.followers[2]
    assert not follower.has_fetched_within(500, 0), "not in this leadership"
    fetch(leader, 2, 0, 0, 100)
    assert follower.has_fetched_within(500, 600)
    assert not follower.has_fetched_within(500, 601)
