"""Which offsets a batch reads, and how they are cut: properties of pure functions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyarrow", reason="no pyarrow: the data source is NOT tested")

from raftwerk.pipeline.errors import PipelineError
from raftwerk.pipeline.source.offset_planning import (
    batch_end,
    check_all_named,
    cut_into_ranges,
    move_into_logs,
    offsets_from_json,
    offsets_to_json,
    rate_limit,
)
from raftwerk.pipeline.source.options import OffsetRangeLimit, ReadLimits
from raftwerk.wire.types import TopicPartition

keys = st.builds(TopicPartition, st.sampled_from("ab"), st.integers(0, 3))
spans = st.dictionaries(keys, st.tuples(st.integers(0, 1000), st.integers(0, 300)), min_size=1)
KEY = TopicPartition("a", 0)


@given(spans, st.one_of(st.none(), st.integers(1, 40)), st.one_of(st.none(), st.integers(1, 400)))
def test_ranges_cover_every_offset_once(
    found: dict[TopicPartition, tuple[int, int]], least: int | None, most: int | None
) -> None:
    begin = {key: first for key, (first, _) in found.items()}
    end = {key: first + size for key, (first, size) in found.items()}
    ranges = cut_into_ranges(begin, end, least, most)
    covered = [
        (one.topic, one.partition, offset) for one in ranges for offset in range(one.from_offset, one.until_offset)
    ]
    assert sorted(covered) == sorted((*key, offset) for key in found for offset in range(begin[key], end[key]))
    assert all(one.from_offset < one.until_offset for one in ranges)
    nonempty = sum(size > 0 for _, size in found.values())
    assert most is None or all(one.until_offset - one.from_offset <= most for one in ranges)
    needed = nonempty if most is None else sum(-(-size // most) for _, size in found.values())
    if least is None or needed >= least:
        assert len(ranges) == needed


def test_the_larger_partition_is_cut_into_more() -> None:
    end = {KEY: 90, TopicPartition("a", 1): 10}
    ranges = cut_into_ranges(dict.fromkeys(end, 0), end, 10)
    assert [one.partition for one in ranges] == [0] * 9 + [1]


@given(spans, st.integers(1, 500))
def test_a_limit_is_kept_and_used(found: dict[TopicPartition, tuple[int, int]], limit: int) -> None:
    begin = {key: first for key, (first, _) in found.items()}
    available = {key: first + size for key, (first, size) in found.items()}
    end = rate_limit(begin, available, limit)
    taken = sum(end[key] - begin[key] for key in end)
    assert taken == min(limit, sum(size for _, size in found.values()))
    assert all(begin[key] <= end[key] <= available[key] for key in end)


def test_less_than_the_minimum_waits_until_the_delay_is_over() -> None:
    read_limits = ReadLimits(None, 10, 1000)
    assert batch_end({KEY: 5}, {KEY: 14}, read_limits, 999) == {KEY: 5}
    assert batch_end({KEY: 5}, {KEY: 15}, read_limits, 0) == {KEY: 15}
    assert batch_end({KEY: 5}, {KEY: 14}, read_limits, 1000) == {KEY: 14}


def test_offsets_are_the_connectors_json() -> None:
    offsets = {TopicPartition("a", 10): 3, TopicPartition("a", 2): 1, TopicPartition("b", 0): 7}
    assert offsets_to_json(offsets) == {"a": {"2": 1, "10": 3}, "b": {"0": 7}}
    assert offsets_from_json(offsets_to_json(offsets)) == offsets


def test_every_partition_must_be_named() -> None:
    position = OffsetRangeLimit("startingOffsets", None, {KEY: 1})
    check_all_named(position, [KEY])
    with pytest.raises(PipelineError, match="startingOffsets says nothing of a-1: name every partition"):
        check_all_named(position, [KEY, TopicPartition("a", 1)])
    with pytest.raises(PipelineError, match="startingOffsets names a-0, which this query does not read"):
        check_all_named(position, [])


@pytest.mark.parametrize(("offset", "kept"), [(4, 5), (5, 5), (9, 9), (10, 9)])
def test_an_offset_out_of_the_log(offset: int, kept: int) -> None:
    assert move_into_logs({KEY: offset}, {KEY: 5}, {KEY: 9}, False) == {KEY: kept}
    if offset == kept:
        assert move_into_logs({KEY: offset}, {KEY: 5}, {KEY: 9}, True) == {KEY: kept}
    else:
        with pytest.raises(
            PipelineError, match=f"offset {offset} of a-0 is not in the log, which has 5 to 9: .*failOnD"
        ):
            move_into_logs({KEY: offset}, {KEY: 5}, {KEY: 9}, True)
