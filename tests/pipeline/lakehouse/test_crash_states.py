"""A kill of the driver between any two steps of a micro-batch: the next start has each row in the table once.

A kill leaves on the disk the files that were written so far. So each state that it can leave is made: what was there
before a batch, and the first so many of the files that the batch wrote, in the order in which it wrote them. That is
from Spark's offsets for the batch, over data and the table's commit, to Spark's note that the batch is done.
"""

from __future__ import annotations

import os
import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from support.pipeline.tables import Stream, write_batch

from raftwerk.pipeline.jobs.maintain import maintain
from raftwerk.pipeline.lakehouse.open_table import open_maintained
from raftwerk.pipeline.lakehouse.table import StreamBatch
from raftwerk.pipeline.lakehouse.table_format import TABLE_FORMATS, TRANSACTIONAL_FORMATS


def written_since(before: Path, after: Path) -> list[list[Path]]:
    """The files that are new or changed, in the order of their writing, each with the file of its checksum."""
    found: dict[Path, int] = {}
    for path in after.rglob("*"):
        name = path.relative_to(after)
        old = before / name
        if path.is_file() and not (old.exists() and old.stat().st_mtime_ns == path.stat().st_mtime_ns):
            found[name] = path.stat().st_mtime_ns
    ordered = sorted((name for name in found if name.suffix != ".crc" or name.name[0] != "."), key=found.__getitem__)
    return [[name, *(crc for crc in (name.with_name(f".{name.name}.crc"),) if crc in found)] for name in ordered]


def restore(spark: Any, root: Path, state: Path) -> None:
    """Put a state of the disk back, with the times of its files."""
    shutil.rmtree(root)
    shutil.copytree(state, root, copy_function=shutil.copy2)
    spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()


@pytest.mark.parametrize("table_format", TABLE_FORMATS)
def test_a_kill_between_any_two_steps_leaves_each_row_once(spark: Any, tmp_path: Path, table_format: str) -> None:
    stream = Stream(spark, tmp_path, table_format)
    expected = write_batch(stream.source, 0)
    stream.run()
    before, after = tmp_path / "before", tmp_path / "after"
    shutil.copytree(stream.out, before, copy_function=shutil.copy2)
    expected += write_batch(stream.source, 1)
    stream.run()
    shutil.copytree(stream.out, after, copy_function=shutil.copy2)
    steps = written_since(before, after)
    names = [str(step[0]) for step in steps]
    assert names[-1] == "_job/checkpoint/commits/1" and "_job/checkpoint/offsets/1" in names[:2], names
    assert any(name.endswith(".parquet") for name in names), names
    for crash_after in range(len(steps)):
        restore(spark, stream.out, before)
        for step in steps[:crash_after]:
            for name in step:
                (stream.out / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(after / name, stream.out / name)
        again = Stream(spark, tmp_path, table_format)
        again.run()
        assert again.numbers() == expected, f"after {names[:crash_after]}"
        assert again.output.last_batch() == 1


@pytest.mark.parametrize("table_format", TRANSACTIONAL_FORMATS)
def test_a_batch_is_not_repeated_after_files_were_merged_and_snapshots_expired(
    spark: Any, tmp_path: Path, table_format: str
) -> None:
    """The kill comes after the table's commit; before the next start all that may expire does so."""
    stream = Stream(spark, tmp_path, table_format)
    expected = [n for number in range(4) for n in write_batch(stream.source, number)]
    stream.run()
    last = stream.output.last_batch()
    for name in (str(last), f".{last}.crc"):
        os.unlink(f"{stream.output.checkpoint}/commits/{name}")
    table = open_maintained(spark, str(stream.out), table_format)
    done = maintain(table, 1 << 20, timedelta(0), orphans=False)
    assert done["merged"] == 8 and done["expired"] > 0
    table.expire(timedelta(0))
    again = Stream(spark, tmp_path, table_format)
    again.run()
    assert again.numbers() == expected and again.output.last_batch() == last


@pytest.mark.parametrize("table_format", TRANSACTIONAL_FORMATS)
def test_a_batch_is_merged_once(spark: Any, tmp_path: Path, table_format: str) -> None:
    """New values replace those of their keys; a batch of the same query that comes again changes nothing."""
    table = open_maintained(spark, str(tmp_path / "table"), table_format)
    rows = [spark.createDataFrame(values, "k STRING, v INT") for values in ([("a", 1), ("b", 1)], [("b", 2), ("c", 2)])]
    table.prepare(rows[0].schema, [])
    table.merge(rows[0], ["k"], StreamBatch("q", 0))
    table.merge(rows[1], ["k"], StreamBatch("q", 1))
    table.merge(rows[0], ["k"], StreamBatch("q", 0))
    assert sorted(tuple(row) for row in table.read().collect()) == [("a", 1), ("b", 2), ("c", 2)]
    table.merge(rows[0], ["k"], StreamBatch("another", 0))
    assert sorted(tuple(row) for row in table.read().collect()) == [("a", 1), ("b", 1), ("c", 2)]
