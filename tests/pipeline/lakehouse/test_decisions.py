"""What is decided without Spark: partition fields, changes of columns, which snapshots stay, and the lock."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftwerk.pipeline.errors import PipelineError, WrongOptionError
from raftwerk.pipeline.jobs.intervals import parse_retention
from raftwerk.pipeline.jobs.lake import LakeOptions
from raftwerk.pipeline.lakehouse.columns import ColumnChanges, column_changes, is_wider
from raftwerk.pipeline.lakehouse.partition_fields import PartitionField, check_fields, of_iceberg, parse_fields
from raftwerk.pipeline.lakehouse.snapshots import Snapshot, expiry_cutoff, snapshots_to_keep
from raftwerk.pipeline.output_directory import locked

NOW = datetime(2026, 1, 31, tzinfo=UTC)


def test_partition_fields_are_columns_and_transforms() -> None:
    fields = parse_fields("topic, day(timestamp) ,bucket(16, key),truncate(4,`a`)")
    assert fields == (
        PartitionField("topic"),
        PartitionField("timestamp", "day"),
        PartitionField("key", "bucket", 16),
        PartitionField("`a`", "truncate", 4),
    )
    assert [field.sql for field in fields[:3]] == ["`topic`", "days(`timestamp`)", "bucket(16, `key`)"]
    assert [str(field) for field in fields[:3]] == ["topic", "day(timestamp)", "bucket(16, key)"]
    assert parse_fields("days(timestamp)") == parse_fields("day(timestamp)")
    assert parse_fields(" ") == ()


@pytest.mark.parametrize("text", ["day(2, timestamp)", "bucket(key)", "bucket(0, key)", "week(timestamp)"])
def test_what_is_no_transform_is_refused(text: str) -> None:
    with pytest.raises(WrongOptionError, match=r"is no transform to partition by: there are year\(column\)"):
        parse_fields(text)


@pytest.mark.parametrize(("transform", "text"), [("identity", "c"), ("day", "day(c)"), ("bucket[16]", "bucket(16, c)")])
def test_icebergs_words_for_a_transform_are_those_of_the_option(transform: str, text: str) -> None:
    assert (of_iceberg("c", transform),) == parse_fields(text)


def test_fields_of_columns_that_are_not_there_or_named_twice() -> None:
    with pytest.raises(WrongOptionError, match="there is no column b to partition by: there are a, c"):
        check_fields(parse_fields("day(b)"), ["a", "c"])
    with pytest.raises(WrongOptionError, match="a is named twice"):
        check_fields(parse_fields("a,a"), ["a"])
    check_fields(parse_fields("a,bucket(2, a)"), ["a"])


@pytest.mark.parametrize("table_format", ["delta", "parquet"])
def test_only_iceberg_has_transforms_and_partitions_of_all_columns(table_format: str) -> None:
    columns = ("topic", "partition", "offset", "timestamp", "date", "key", "value")
    LakeOptions("out", partition_by=columns)
    with pytest.raises(WrongOptionError, match="no column is left for the files"):
        LakeOptions("out", partition_by=columns, table_format=table_format)
    LakeOptions("out", partition_by=("topic", "day(timestamp)"))
    with pytest.raises(WrongOptionError, match=r"by columns only, and day\(timestamp\) is a transform"):
        LakeOptions("out", partition_by=("topic", "day(timestamp)"), table_format=table_format)


def test_columns_are_added_and_types_widened() -> None:
    there = [("n", "int"), ("x", "float"), ("gone", "string"), ("wide", "bigint"), ("d", "decimal(8,2)")]
    wanted = [("N", "bigint"), ("x", "double"), ("wide", "int"), ("new", "date"), ("d", "decimal(9,2)")]
    changes = column_changes(there, wanted)
    assert changes == ColumnChanges((("new", "date"),), (("N", "bigint"), ("x", "double"), ("d", "decimal(9,2)")))
    assert str(changes) == "new date is added, N becomes bigint, x becomes double, d becomes decimal(9,2)"
    assert column_changes(there, there) == ColumnChanges()
    told = r"column n of the table is int, and is string now: a table takes new columns and wider types \(int to bigint"
    with pytest.raises(PipelineError, match=told):
        column_changes(there, [("n", "string")])


@pytest.mark.parametrize(
    ("kind", "than", "wider"),
    [
        ("bigint", "smallint", True),
        ("int", "bigint", False),
        ("double", "int", False),
        ("decimal(9,3)", "decimal(8,2)", False),
        ("decimal(8,2)", "decimal(8,2)", False),
    ],
)
def test_a_wider_type(kind: str, than: str, wider: bool) -> None:
    assert is_wider(kind, than) is wider


ages = st.lists(st.integers(0, 200), max_size=30).map(lambda hours: sorted(hours, reverse=True))


@given(ages, st.integers(0, 200), st.none() | st.integers(1, 20))
def test_snapshots_expire_by_age_and_by_number(hours: list[int], retain: int, at_most: int | None) -> None:
    snapshots = [Snapshot(at, NOW - timedelta(hours=hour), "append") for at, hour in enumerate(hours)]
    cutoff = expiry_cutoff(snapshots, NOW, timedelta(hours=retain), at_most)
    kept = [one for one in snapshots if one.at >= cutoff]
    young = [one for one in snapshots if NOW - one.at <= timedelta(hours=retain)]
    newest = snapshots if at_most is None else snapshots[-at_most:]
    assert set(kept) >= set(young) & set(newest)
    assert all(one in young for one in kept)
    assert all(one.at >= newest[0].at for one in kept)


@given(ages, st.integers(0, 200), st.none() | st.integers(1, 20), st.integers(0, 200))
def test_nothing_expires_that_a_write_may_need(
    hours: list[int], retain: int, at_most: int | None, writing: int
) -> None:
    snapshots = [Snapshot(at, NOW - timedelta(hours=hour), "append") for at, hour in enumerate(hours)]
    since = NOW - timedelta(hours=writing)
    cutoff = expiry_cutoff(snapshots, NOW, timedelta(hours=retain), at_most, since)
    assert cutoff < since
    assert cutoff <= expiry_cutoff(snapshots, NOW, timedelta(hours=retain), at_most)


@given(st.lists(st.booleans(), max_size=20))
def test_the_last_batch_stays_with_all_that_came_after_it(streamed: list[bool]) -> None:
    snapshots = [Snapshot(at, NOW, "append", is_streamed) for at, is_streamed in enumerate(streamed)]
    kept = snapshots[-snapshots_to_keep(snapshots) :]
    assert any(one.is_streamed for one in kept) == any(streamed)
    assert not any(one.is_streamed for one in kept[1:])


def test_one_process_at_a_time_writes_to_a_local_output(tmp_path: Path) -> None:
    out = tmp_path / "lake"
    program = (
        "import sys; from raftwerk.pipeline.output_directory import locked\n"
        "with locked(sys.argv[1], 'local[2]'): print('locked', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", program, str(out)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None and other.stdout.readline() == b"locked\n"
        with pytest.raises(PipelineError, match="another job writes to"), locked(str(out), "local[2]"):
            pass
        with locked(str(out), "spark://host:7077"):
            pass  # a path of the cluster's file system
        other.kill()
        other.wait()
    with locked(f"file://{out}", "local[2]"):
        pass


@pytest.mark.parametrize("text", ["1000000 days", "99999999999999999999 weeks"])
def test_a_retention_for_ever(text: str) -> None:
    """There is no date so many days ago."""
    retain = parse_retention(text)
    assert expiry_cutoff([], NOW, retain, None).year < 1930
    assert parse_retention("36500 days") < retain
