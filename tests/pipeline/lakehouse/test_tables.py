"""Tables whose columns, partitions and files change, read by Spark, DuckDB and pyiceberg; and the job `maintain`."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from support.pipeline.tables import Stream, by_duckdb, by_pyiceberg, write_batch

from raftwerk.pipeline.errors import PipelineError
from raftwerk.pipeline.jobs.maintain import maintain
from raftwerk.pipeline.lakehouse.duckdb_query import query
from raftwerk.pipeline.lakehouse.open_table import format_of, open_maintained, read_table
from raftwerk.pipeline.lakehouse.partition_fields import PartitionField, parse_fields
from raftwerk.pipeline.lakehouse.table import StreamBatch, TableVersion
from raftwerk.pipeline.lakehouse.table_format import TABLE_FORMATS, TRANSACTIONAL_FORMATS
from raftwerk.pipeline.lakehouse.table_maintenance import MaintenanceSettings, TableMaintenance

SUMS = "SELECT part, count(*), sum(n) FROM {table} GROUP BY part ORDER BY part"


def sums(numbers: list[int]) -> list[tuple[str, int, int]]:
    halves = [(f"00{part}", [n for n in numbers if n % 2 == part]) for part in (0, 1)]
    return [(part, len(half), sum(half)) for part, half in halves]


@pytest.mark.parametrize("table_format", TRANSACTIONAL_FORMATS)
def test_a_table_is_read_at_every_version_by_spark_and_by_others(spark: Any, tmp_path: Path, table_format: str) -> None:
    stream = Stream(spark, tmp_path, table_format)
    first = write_batch(stream.source, 0)
    stream.run()
    between = datetime.now(UTC)
    both = first + write_batch(stream.source, 1)
    stream.run()
    assert format_of(spark, str(stream.out)) == table_format
    table = open_maintained(spark, str(stream.out), table_format)
    snapshots = [one for one in table.snapshots() if one.is_streamed]
    assert [table.read(TableVersion(one.version)).count() for one in snapshots] == [len(first), len(both)]
    then = read_table(spark, str(stream.out), TableVersion(at=between))
    assert sorted(row["n"] for row in then.collect()) == first
    assert table.row_count() == len(both) and table.file_count() == 4
    assert by_duckdb(table_format, stream.out, SUMS) == sums(both)
    if table_format == "iceberg":
        assert sorted(row["n"] for row in by_pyiceberg(stream.out)) == both
        assert sorted(row["n"] for row in by_pyiceberg(stream.out, snapshots[0].version)) == first
        assert query(str(stream.out), SUMS.format(table="lake")) == sums(both)


@pytest.mark.parametrize("table_format", TRANSACTIONAL_FORMATS)
def test_a_table_takes_new_columns_and_keeps_those_that_went(spark: Any, tmp_path: Path, table_format: str) -> None:
    stream = Stream(spark, tmp_path, table_format, "n INT, part STRING")
    write_batch(stream.source, 0)
    assert stream.run() == []
    write_batch(stream.source, 1)
    assert Stream(spark, tmp_path, table_format, "n INT, more DOUBLE").run() == ["more double is added"]
    last = write_batch(stream.source, 2)
    wider = Stream(spark, tmp_path, table_format, "n BIGINT, more DOUBLE, part STRING")
    if table_format == "delta":
        with pytest.raises(PipelineError, match=r"a wider type \(n becomes bigint\).*Iceberg can\."):
            wider.run()
        with pytest.raises(
            PipelineError, match=r"a Delta table takes new columns and no other types; name the old type"
        ):
            Stream(spark, tmp_path, table_format, "n STRING").run()
        return
    assert wider.run() == ["n becomes bigint"]
    rows = [tuple(row) for row in wider.table.read().orderBy("n").select("n", "part", "more").collect()]
    assert rows[0] == (0, "000", None) and rows[6] == (100, None, 50.0) and rows[12] == (last[0], "000", last[0] / 2)
    assert by_duckdb(table_format, stream.out, "SELECT n, part, more FROM {table} ORDER BY n") == rows
    with pytest.raises(PipelineError, match="column more of the table is double, and is string now"):
        Stream(spark, tmp_path, table_format, "n BIGINT, more STRING").run()


def test_an_iceberg_table_is_partitioned_otherwise_without_a_file_being_rewritten(spark: Any, tmp_path: Path) -> None:
    stream = Stream(spark, tmp_path, "iceberg")
    numbers = write_batch(stream.source, 0)
    stream.run(PartitionField("part"))
    before = set(stream.out.rglob("data/**/*.parquet"))
    numbers += write_batch(stream.source, 1)
    fields = parse_fields("bucket(4, n), truncate(2, part)")
    assert stream.run(*fields) == ["new rows are partitioned by bucket(4, n), truncate(2, part)"]
    assert stream.run(*fields) == []
    after = set(stream.out.rglob("data/**/*.parquet"))
    assert before < after and all("n_bucket_4=" in str(path) for path in after - before)
    assert stream.numbers() == numbers and by_duckdb("iceberg", stream.out, SUMS) == sums(numbers)


def test_other_partitions_of_a_delta_table_are_refused(spark: Any, tmp_path: Path) -> None:
    stream = Stream(spark, tmp_path, "delta")
    write_batch(stream.source, 0)
    stream.run(PartitionField("part"))
    with pytest.raises(PipelineError, match="is partitioned by part, which Delta cannot change"):
        stream.run(PartitionField("n"))


@pytest.mark.parametrize("table_format", TRANSACTIONAL_FORMATS)
def test_small_files_are_merged_and_old_snapshots_and_orphans_go(spark: Any, tmp_path: Path, table_format: str) -> None:
    stream = Stream(spark, tmp_path, table_format)
    numbers = [n for number in range(5) for n in write_batch(stream.source, number)]
    stream.run()
    table = open_maintained(spark, str(stream.out), table_format)
    assert table.file_count() == 10
    assert table.compact(0) == 0
    orphan = stream.out / ("data/part=000" if table_format == "iceberg" else "part=000") / "orphan.parquet"
    orphan.write_bytes(b"left by a kill")
    ten_days_ago = datetime.now(UTC).timestamp() - 10 * 86400
    for path in stream.out.rglob("*"):
        os.utime(path, (ten_days_ago, ten_days_ago))
    done = maintain(table, 1 << 20, timedelta(0), orphans=True)
    assert done["merged"] == 10 and done["expired"] > 0
    assert table.file_count() == 2 and stream.numbers() == numbers and not orphan.exists()
    numbers += write_batch(stream.source, 7)
    stream.run()
    table.expire(timedelta(0))
    left = {path.name for path in stream.out.rglob("*.parquet") if "_delta_log" not in path.parts}
    assert len(left) == table.file_count() == 4, left
    assert stream.numbers() == numbers and by_duckdb(table_format, stream.out, SUMS) == sums(numbers)


def test_maintenance_leaves_the_files_of_the_batch_that_runs(spark: Any, tmp_path: Path) -> None:
    """Delta deletes files that no version has, and `--retain` may be shorter than the batch takes."""
    stream = Stream(spark, tmp_path, "delta")
    write_batch(stream.source, 0)
    stream.run()
    began = datetime.now(UTC)
    running = stream.out / "part=000" / "of-the-batch-that-runs.parquet"
    running.write_bytes(b"not committed yet")
    orphan = stream.out / "part=000" / "orphan.parquet"
    orphan.write_bytes(b"left by a kill")
    a_day_ago = began.timestamp() - 86400
    os.utime(orphan, (a_day_ago, a_day_ago))
    table = open_maintained(spark, str(stream.out), "delta")
    told: list[str] = []
    maintenance = TableMaintenance(table, MaintenanceSettings(1, 0, timedelta(0)), told.append)
    maintenance(1, began)
    assert told == [] and running.exists() and not orphan.exists()
    maintenance(1)
    assert told == [] and not running.exists(), "between two batches nothing else is being written"


def test_maintenance_comes_after_so_many_batches_and_its_failure_is_told(spark: Any, tmp_path: Path) -> None:
    stream = Stream(spark, tmp_path, "iceberg")
    for number in range(4):
        write_batch(stream.source, number)
    stream.run()
    told: list[str] = []
    table = open_maintained(spark, str(stream.out), "iceberg")
    maintenance = TableMaintenance(table, MaintenanceSettings(3, snapshots_max=1), told.append)
    maintenance(2)
    assert told == [] and table.file_count() == 8
    maintenance(1)
    assert told == ["8 small files merged"] and table.file_count() == 2
    assert len(table.snapshots()) == 2, "the last batch, and the merge"
    TableMaintenance(table, MaintenanceSettings(0), told.append)(100)
    absent = TableMaintenance(
        open_maintained(spark, str(tmp_path / "none"), "iceberg"), MaintenanceSettings(1), told.append
    )
    absent(1)
    assert len(told) == 2 and told[1].startswith("the table's files are merged later: ") and "\n" not in told[1]


def test_maintenance_of_delta_beside_a_batch_that_commits(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next batch is committed before Delta is asked how many files it has deleted."""
    stream = Stream(spark, tmp_path, "delta")
    write_batch(stream.source, 0)
    stream.run()
    table = open_maintained(spark, str(stream.out), "delta")
    sql = type(spark).sql

    def sql_and_a_batch(session: Any, text: str, *more: Any, **named: Any) -> Any:
        found = sql(session, text, *more, **named)
        if text.startswith("VACUUM"):
            write_batch(stream.source, 1)
            stream.run()
        return found

    monkeypatch.setattr(type(spark), "sql", sql_and_a_batch)
    told: list[str] = []
    TableMaintenance(table, MaintenanceSettings(1), told.append)(1, datetime.now(UTC))
    assert told == [] and len(stream.numbers()) == 12


def test_any_failure_of_maintenance_is_told(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = open_maintained(spark, str(tmp_path / "table"), "delta")

    def fail(_small_bytes: int) -> int:
        raise KeyError("numFilesRemoved")

    monkeypatch.setattr(table, "compact", fail)
    told: list[str] = []
    TableMaintenance(table, MaintenanceSettings(1), told.append)(1)
    assert len(told) == 1 and told[0].startswith("the table's files are merged later: ")


@pytest.mark.parametrize("table_format", TRANSACTIONAL_FORMATS)
def test_a_row_whose_key_has_a_null_is_merged_with_its_own(spark: Any, tmp_path: Path, table_format: str) -> None:
    table = open_maintained(spark, str(tmp_path / "table"), table_format)
    rows = [spark.createDataFrame([("x", None, n), ("x", "y", n)], "k STRING, l STRING, v INT") for n in (1, 2)]
    table.prepare(rows[0].schema, [])
    for number, one in enumerate(rows):
        table.merge(one, ["k", "l"], StreamBatch("q", number))
    assert sorted(map(str, table.read().collect())) == ["Row(k='x', l='y', v=2)", "Row(k='x', l=None, v=2)"]


@pytest.mark.parametrize("table_format", TABLE_FORMATS)
def test_fields_within_structs_have_any_names(spark: Any, tmp_path: Path, table_format: str) -> None:
    fields = "STRUCT<`zip-code`: STRING, `a``b`: ARRAY<STRUCT<`c.d`: INT>>>"
    stream = Stream(spark, tmp_path, table_format, f"n BIGINT, part STRING, address {fields}")
    write_batch(stream.source, 0, 1)
    address = {"zip-code": "8001", "a`b": [{"c.d": 1}]}
    (stream.source / "001.json").write_text(json.dumps({"n": 1, "part": "a", "address": address}))
    assert stream.run() == [] and stream.run() == []
    (row,) = stream.table.read().where("n = 1").collect()
    assert row["address"].asDict(recursive=True) == address


@pytest.mark.parametrize("table_format", TRANSACTIONAL_FORMATS)
def test_a_table_is_written_from_its_first_batch_on(spark: Any, tmp_path: Path, table_format: str) -> None:
    """Also when its rows have gone: it has versions with them."""
    table = open_maintained(spark, str(tmp_path / "table"), table_format)
    rows = spark.createDataFrame([(1, "a")], "id INT, name STRING")
    assert not table.is_written()
    table.prepare(rows.select("id").schema, [])
    assert table.prepare(rows.schema, []) == ["name string is added"]
    assert not table.is_written()
    table.merge(rows, ["id"], StreamBatch("q", 0))
    spark.sql(f"DELETE FROM {table.name}")
    assert table.is_written() and table.row_count() == 0
