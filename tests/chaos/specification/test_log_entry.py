"""Logs as chains of entries, against lists of entries."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from raftwerk.chaos.specification.log_entry import LogEntry, empty_log, end_for_epoch, is_valid_position, truncated

Entries = list[tuple[int, int]]
"""Epochs and sizes."""
ENTRIES = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 2)), max_size=8)


def chain(root: LogEntry[Any], entries: Entries) -> LogEntry[Any]:
    """A log; each number is by how much the epoch grows from entry to entry."""
    log = root
    for growth, size in entries:
        log = log.follow(log.end_offset + size, max(1, log.epoch + growth), digest=0)
    return log


@given(ENTRIES, ENTRIES)
def test_a_common_prefix_is_the_longest_list_of_equal_entries(mine: Entries, others: Entries) -> None:
    root: LogEntry[Any] = empty_log()
    a, b = chain(root, mine), chain(root, others)
    shared = 0
    while a.since(root)[:shared] == b.since(root)[:shared] and shared < min(len(mine), len(others)):
        if a.since(root)[shared] is not b.since(root)[shared]:
            break
        shared += 1
    assert len(a.common_prefix(b).since(root)) == shared
    assert a.has(a.common_prefix(b))
    assert a.has(b) == (shared == len(others))


@given(ENTRIES, ENTRIES)
def test_rounds_of_truncation_end_at_the_common_prefix(followers: Entries, leaders: Entries) -> None:
    root: LogEntry[Any] = empty_log()
    follower, leader = chain(root, followers), chain(root, [*leaders, (3, 1)])
    shared = follower.common_prefix(leader)
    for _ in range(len(followers) + 1):
        if is_valid_position(leader, follower):
            break
        shorter = truncated(follower, leader)
        assert shorter.end_offset < follower.end_offset
        assert shorter.has(shared)
        follower = shorter
    assert is_valid_position(leader, follower)


def test_the_end_of_an_epoch_is_that_of_the_epoch_before_where_it_is_missing() -> None:
    root: LogEntry[Any] = empty_log()
    log = chain(root, [(1, 2), (0, 1), (2, 1)])
    assert [end_for_epoch(log, epoch).end_offset for epoch in (0, 1, 2, 3)] == [0, 3, 3, 4]
    assert log.at(3) is end_for_epoch(log, 1)
    assert log.at(1) is None
