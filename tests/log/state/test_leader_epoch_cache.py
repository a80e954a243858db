"""The leader epoch cache against a linear search."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from raftwerk.log.state.leader_epoch_cache import EpochEntry, LeaderEpochCache

HISTORY = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4)), max_size=12)


@given(HISTORY, st.integers(-1, 40), st.integers(0, 60), st.integers(0, 60))
def test_end_offsets_are_those_of_a_naive_search(
    steps: list[tuple[int, int]], asked: int, offset: int, cut: int
) -> None:
    """A log is a list of the epoch of each offset."""
    log: list[int] = []
    cache = LeaderEpochCache(lambda: len(log))
    epoch = 0
    for bump, count in steps:
        epoch += bump
        cache.assign(epoch, len(log))
        log += [epoch] * count
    check(cache, log, asked, offset)
    del log[cut:]
    cache.truncate_from_end(len(log))
    check(cache, log, asked, offset)


def check(cache: LeaderEpochCache, log: list[int], asked: int, offset: int) -> None:
    assert cache.entries == [EpochEntry(e, i) for i, e in enumerate(log) if i == 0 or log[i - 1] != e]
    assert cache.latest_epoch() == (log[-1] if log else None)
    assert cache.epoch_for_offset(offset) == (None if not log else log[min(offset, len(log) - 1)])
    assert cache.end_offset_for(asked) == naive_end(log, asked)


def naive_end(log: list[int], asked: int) -> tuple[int, int]:
    if not log or asked < 0 or asked > log[-1]:
        return -1, -1
    end = next((i for i, epoch in enumerate(log) if epoch > asked), len(log))
    return (log[end - 1] if end else asked), end


def test_an_entry_that_contradicts_later_ones_replaces_them() -> None:
    cache = LeaderEpochCache(lambda: 100, [EpochEntry(1, 0), EpochEntry(3, 10), EpochEntry(5, 20)])
    assert not cache.is_dirty
    cache.assign(5, 30)
    assert not cache.is_dirty
    cache.assign(4, 15)
    assert cache.entries == [(1, 0), (3, 10), (4, 15)]
    cache.assign(7, 5)
    assert cache.entries == [(1, 0), (7, 5)]
    assert cache.is_dirty
    cache.clear()
    assert cache.latest == -1
