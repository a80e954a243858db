"""The lag of groups over time."""

from __future__ import annotations

from raftwerk.console.lag_history import FORGET_AFTER_MS, POINTS_MAX, LagHistory, lag_of
from raftwerk.wire.types import TopicPartition

A, B = TopicPartition("a", 0), TopicPartition("b", 0)


def test_the_lag_is_that_of_all_partitions_whose_ends_are_known() -> None:
    assert lag_of({A: 3, B: 5}, {A: 10, B: 4}) == 7  # never negative
    assert lag_of({A: 3, B: 5}, {A: 3}) == 0
    assert lag_of({A: 3}, {B: 9}) is None
    assert lag_of({}, {A: 3}) is None


def test_the_last_points_are_kept_and_groups_that_are_gone_forgotten() -> None:
    history = LagHistory()
    for at_ms in range(POINTS_MAX + 2):
        history.note(at_ms, {"g": at_ms, "unknown": None})
    assert history.of("g")[0] == (2, 2) and len(history.of("g")) == POINTS_MAX
    assert history.of("unknown") == []
    history.note(POINTS_MAX + FORGET_AFTER_MS + 2, {"other": 1})
    assert history.of("g") == [] and history.of("other") == [(POINTS_MAX + FORGET_AFTER_MS + 2, 1)]
