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


def test_a_follower_that_waits_at_the_end_of_the_log_counts_as_caught_up_meanwhile() -> None:
    follower = new_leader().followers[2]
    follower.reset(0, 5, new_leader=False, in_isr=True)
    follower.on_fetch(5, 0, 5, 102, 100)
    follower.was_fetching_until(400)
    assert (follower.last_fetch_ms, follower.last_caught_up_ms) == (400, 400)
    follower.was_fetching_until(300)
    assert (follower.last_fetch_ms, follower.last_caught_up_ms) == (400, 400)


def test_a_follower_that_waits_below_the_end_of_the_log_does_not() -> None:
    follower = new_leader().followers[2]
    follower.reset(0, 5, new_leader=True, in_isr=True)
    follower.on_fetch(4, 0, 5, 102, 100)
    follower.was_fetching_until(400)
    assert (follower.last_fetch_ms, follower.last_caught_up_ms) == (100, 0)


def test_who_led_before_remembers_up_to_where_its_followers_may_have_fetched() -> None:
    follower = new_leader().followers[2]
    follower.reset(0, 5, new_leader=False, in_isr=True)
    assert (follower.last_fetch_leader_end_offset, follower.last_fetch_ms) == (5, 0)
    follower.reset(7, 6, new_leader=False, in_isr=False)
    assert (follower.last_fetch_leader_end_offset, follower.last_fetch_ms) == (6, None)
