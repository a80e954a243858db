"""The output directory of a job: it goes on with its own, and leaves everything else alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from raftwerk.pipeline.errors import PipelineError
from raftwerk.pipeline.lakehouse.open_table import read_table
from raftwerk.pipeline.output_directory import CHECKPOINT, DELETED, IDENTITY, OutputDirectory

WHAT = {"topics": ["t"], "source": "raftwerk"}


def opened(spark: Any, root: Path, *, written: bool, kind: str = "lake", **other: Any) -> OutputDirectory:
    return OutputDirectory(spark, str(root), kind, {**WHAT, **other}, lambda: written)


def checkpoint(root: Path) -> Path:
    path = root / CHECKPOINT
    for name in ("offsets", "commits"):
        (path / name).mkdir(parents=True, exist_ok=True)
    (path / "metadata").write_text('{"id":"the-query"}')
    (path / "offsets" / "0").write_text('v1\n{}\n{"t":{"0":3}}\n')
    (path / "commits" / "0").touch()
    (path / "commits" / ".0.crc").touch()
    return path


def test_what_the_checkpoint_says(spark: Any, tmp_path: Path) -> None:
    output = opened(spark, tmp_path, written=False)
    assert output.last_batch() == -1
    checkpoint(tmp_path)
    assert (output.query_id(), output.last_batch(), output.offsets_of(0)) == ("the-query", 0, {"t": {"0": 3}})


def test_another_job_and_other_topics_are_refused_once_a_batch_was_written(spark: Any, tmp_path: Path) -> None:
    opened(spark, tmp_path, written=False)
    there = checkpoint(tmp_path)
    deleted = tmp_path / DELETED / "data"
    deleted.mkdir(parents=True)
    (tmp_path / "metadata").mkdir()
    opened(spark, tmp_path, written=False)
    assert deleted.exists(), "deletions alone are remembered before there is a table"
    assert there.exists() and not (tmp_path / "metadata").exists(), "a table without a batch is made anew"
    opened(spark, tmp_path, written=False, topics=["u"])
    assert not there.exists(), "nothing was written yet: begun anew"
    assert not (tmp_path / DELETED).exists(), "what another topic deleted says nothing of these rows"
    checkpoint(tmp_path)
    (tmp_path / "metadata").mkdir()
    opened(spark, tmp_path, written=True, topics=["u"])
    assert (tmp_path / "metadata").exists(), "its rows may have gone, and its earlier versions can be read"
    with pytest.raises(PipelineError, match="was begun with topics u, and this is t: go on with the same"):
        opened(spark, tmp_path, written=True)
    with pytest.raises(PipelineError, match="of kind lake, not windows"):
        opened(spark, tmp_path, written=True, kind="windows")


def test_a_lost_checkpoint_is_no_new_beginning(spark: Any, tmp_path: Path) -> None:
    opened(spark, tmp_path, written=False)
    with pytest.raises(PipelineError, match=r"its checkpoint .* is gone"):
        opened(spark, tmp_path, written=True)


def test_a_directory_that_cannot_be_written_is_named(spark: Any) -> None:
    with pytest.raises(PipelineError, match=r"^cannot write in /proc/nope \(.+\): name another directory"):
        opened(spark, Path("/proc/nope"), written=False)


def test_strangers_files_and_tables_of_earlier_versions_are_left_alone(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("x")
    with pytest.raises(PipelineError, match=r"holds mine\.txt, which this job did not write"):
        opened(spark, tmp_path, written=False)
    with pytest.raises(PipelineError, match="is no table"):
        read_table(spark, str(tmp_path))
    (tmp_path / "_table").mkdir()
    with pytest.raises(PipelineError, match="holds a table of an earlier version"):
        opened(spark, tmp_path, written=False)


def test_a_damaged_note_of_the_job_is_named(spark: Any, tmp_path: Path) -> None:
    opened(spark, tmp_path, written=False)
    (tmp_path / "_job" / ".job.json.crc").unlink(missing_ok=True)
    (tmp_path / IDENTITY).write_text('{"form')
    with pytest.raises(PipelineError, match=r"job\.json is damaged"):
        opened(spark, tmp_path, written=False)
