"""Majority arithmetic against an oracle that counts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from raftwerk.raft.quorum.high_watermark import HighWatermark, next_high_watermark
from raftwerk.raft.quorum.majority import majority_size, majority_value

OFFSETS = st.lists(st.integers(-1, 12), min_size=1, max_size=9)


def is_majority(count: int, voters: int) -> bool:
    return count > voters - count


@given(st.integers(1, 50))
def test_two_majorities_share_a_voter(voters: int) -> None:
    size = majority_size(voters)
    assert 2 * size > voters
    assert 2 * (size - 1) <= voters


@given(OFFSETS)
def test_majority_value_is_the_largest_that_a_majority_reached(values: list[int]) -> None:
    reached = [v for v in range(-1, 13) if is_majority(sum(value >= v for value in values), len(values))]
    assert majority_value(values) == max(reached)


@given(OFFSETS)
def test_majority_value_knows_no_order(values: list[int]) -> None:
    assert majority_value(values) == majority_value(sorted(values)) == majority_value(values[::-1])


@given(st.none() | st.integers(0, 12), OFFSETS, st.integers(0, 12))
def test_high_watermark(current: int | None, offsets: list[int], epoch_start: int) -> None:
    after = next_high_watermark(current, offsets, epoch_start)
    if current is not None:
        assert after is not None and after >= current, "never goes back"
    if after != current:
        assert after is not None and after > epoch_start, "moves only over a record of the own epoch"
        assert is_majority(sum(offset >= after for offset in offsets), len(offsets)), "is on a majority"
    best = max(v for v in range(-1, 13) if is_majority(sum(offset >= v for offset in offsets), len(offsets)))
    if best > epoch_start:
        assert after == max(best, -1 if current is None else current), "lags behind nothing"


def test_a_leader_knows_what_is_committed_once_it_has_committed_a_record_of_its_epoch() -> None:
    high_watermark = HighWatermark(2)
    assert not high_watermark.is_current, "it is the end of a snapshot"
    assert not high_watermark.advance_by_majority([5, 5, 2], 5)
    assert not high_watermark.advance_by_majority([2, 2, 2], 1), "nothing moved"
    assert (high_watermark.offset, high_watermark.is_current) == (2, False)
    assert high_watermark.advance_by_majority([6, 6, 2], 5)
    assert (high_watermark.offset, high_watermark.is_current) == (6, True)


def test_a_follower_never_goes_back_and_a_snapshot_makes_nothing_current() -> None:
    high_watermark = HighWatermark(None)
    high_watermark.advance_to_snapshot(0)
    assert high_watermark.offset == 0
    high_watermark.advance_to_snapshot(5)
    high_watermark.advance_to_snapshot(3)
    assert (high_watermark.offset, high_watermark.is_current) == (5, False)
    high_watermark.advance_as_follower(4, 9)
    assert (high_watermark.offset, high_watermark.is_current) == (5, True)
    high_watermark.advance_as_follower(8, 7)
    assert high_watermark.offset == 7


def test_an_older_epochs_record_is_not_committed_by_count() -> None:
    """Figure 8 of the Raft paper: on a majority, but of an older epoch."""
    assert next_high_watermark(2, [5, 5, 2], epoch_start_offset=5) == 2
    assert next_high_watermark(2, [6, 6, 2], epoch_start_offset=5) == 6
