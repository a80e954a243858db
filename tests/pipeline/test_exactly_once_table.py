"""The table: whole batches, once, whatever step a crash interrupts; merging files loses nothing."""

from __future__ import annotations

import posixpath
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from raftwerk.pipeline.errors import PipelineError
from raftwerk.pipeline.exactly_once_table import CHECKPOINT, ParquetTable, read_table
from raftwerk.pipeline.hadoop_files import HadoopFiles

IDENTITY = {"topics": ["t"], "schema": None}


class Crash(Exception):
    """The process dies here."""


def open_table(spark: Any, root: Path, identity: dict[str, Any] = IDENTITY) -> ParquetTable:
    return ParquetTable(spark, str(root), "lake", identity)


def checkpoint_there(root: Path) -> None:
    offsets = root / CHECKPOINT / "offsets"
    offsets.mkdir(parents=True, exist_ok=True)
    (offsets / "0").write_text('v1\n{}\n{"t":{"0":3}}\n')


def batch(spark: Any, number: int) -> Any:
    rows = [(number * 10 + at, f"00{at % 2}", "x" * at) for at in range(6)]
    return spark.createDataFrame(rows, "number BIGINT, name STRING, text STRING").coalesce(1)


def commit(table: ParquetTable, spark: Any, number: int) -> None:
    table.commit(number, batch(spark, number), ("name",), lambda: {"rows": 6})


def numbers(rows: Any) -> list[int]:
    return sorted(row["number"] for row in rows.select("number").collect())


def visible(root: Path) -> int:
    """How many files a reader of the directories alone would see."""
    return sum(not any(part[0] in "._" for part in path.relative_to(root).parts) for path in root.rglob("*.parquet"))


def test_a_batch_counts_once(spark: Any, tmp_path: Path) -> None:
    root = tmp_path / "table"
    table = open_table(spark, root)
    checkpoint_there(root)
    commit(table, spark, 0)
    commit(table, spark, 0)
    again = open_table(spark, root)
    assert again.committed(0) and not again.committed(1)
    commit(again, spark, 0)
    assert numbers(again.read()) == numbers(read_table(spark, str(root))) == list(range(6))
    assert again.state.facts == {"rows": 6}
    assert again.last_offsets() == {"t": {"0": 3}}


def test_a_crash_at_any_step_leaves_all_or_nothing(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every call that changes files is made to fail in turn; then the table is opened anew and the batch repeated."""
    steps = 0
    first = tmp_path / "first"
    commit(open_table(spark, first), spark, 0)
    checkpoint_there(first)
    for crash_at in range(100):
        root = tmp_path / str(crash_at)
        shutil.copytree(first, root)
        table = open_table(spark, root)
        with monkeypatch.context() as patch:
            countdown = [crash_at]
            for name in ("rename", "delete", "write_json"):
                patch.setattr(HadoopFiles, name, _failing(getattr(HadoopFiles, name), countdown))
            try:
                commit(table, spark, 1)
                break
            except Crash:
                steps += 1
        seen_files = visible(root)
        reopened = open_table(spark, root)
        assert seen_files in ((2, 3, 4) if reopened.committed(1) else (2,))
        commit(reopened, spark, 1)
        assert numbers(reopened.read()) == [*range(6), *range(10, 16)]
        assert visible(root) == len(reopened.state.files) == 4
    assert steps >= 5


def _failing(real: Callable[..., Any], countdown: list[int]) -> Callable[..., Any]:
    def step(*args: Any) -> Any:
        countdown[0] -= 1
        if countdown[0] < 0:
            raise Crash
        return real(*args)

    return step


def test_merging_small_files_keeps_every_row_and_every_name(spark: Any, tmp_path: Path) -> None:
    root = tmp_path / "table"
    table = open_table(spark, root)
    checkpoint_there(root)
    for number in range(4):
        commit(table, spark, number)
    before = numbers(table.read())
    assert table.compact(1 << 20) == 8
    assert len(table.state.files) == visible(root) == 2
    assert {posixpath.dirname(path) for path in table.state.files} == {"name=000", "name=001"}
    assert numbers(open_table(spark, root).read()) == before
    assert open_table(spark, root).state == table.state
    commit(table, spark, 4)
    assert len(numbers(read_table(spark, str(root)))) == 30
    assert table.compact(1) == 0


def test_another_job_and_another_schema_are_refused_in_a_sentence(spark: Any, tmp_path: Path) -> None:
    root = tmp_path / "table"
    table = open_table(spark, root)
    open_table(spark, root, {**IDENTITY, "schema": "a INT"})  # Nothing is written yet: begun anew.
    table = open_table(spark, root)
    checkpoint_there(root)
    commit(table, spark, 0)
    with pytest.raises(PipelineError, match="was begun with topics t, and this is u"):
        open_table(spark, root, {**IDENTITY, "topics": ["u"]})
    with pytest.raises(PipelineError, match="of kind lake, not windows"):
        ParquetTable(spark, str(root), "windows", IDENTITY)


def test_a_lost_checkpoint_is_no_new_beginning(spark: Any, tmp_path: Path) -> None:
    root = tmp_path / "table"
    commit(open_table(spark, root), spark, 0)
    with pytest.raises(PipelineError, match=r"its checkpoint .* is gone"):
        open_table(spark, root)


def test_a_directory_that_cannot_be_written_is_named(spark: Any) -> None:
    with pytest.raises(PipelineError, match=r"^cannot write in /proc/nope \(.+\): name another directory"):
        ParquetTable(spark, "/proc/nope", "k", {})


def test_strangers_files_are_left_alone(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("x")
    with pytest.raises(PipelineError, match=r"holds mine\.txt, which this job did not write"):
        open_table(spark, tmp_path)
    with pytest.raises(PipelineError, match="is no table"):
        read_table(spark, str(tmp_path))


def test_a_damaged_log_is_named(spark: Any, tmp_path: Path) -> None:
    root = tmp_path / "table"
    open_table(spark, root)
    (root / "_table" / ".table.json.crc").unlink(missing_ok=True)
    (root / "_table" / "table.json").write_text('{"form')
    with pytest.raises(PipelineError, match=r"table\.json is damaged"):
        open_table(spark, root)
