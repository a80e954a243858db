"""`raftwerk pipeline status`: what an output tells of its job, without Spark."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from raftwerk.cli.main import cli
from raftwerk.pipeline.errors import PipelineError
from raftwerk.pipeline.output_directory import CHECKPOINT, IDENTITY, LOCK, META, STATUS, locked
from raftwerk.pipeline.running_query import Metrics, Progress, StopRequest
from raftwerk.pipeline.status.job_report import read_report
from raftwerk.pipeline.status.status_file import BATCHES_MAX, reported
from raftwerk.pipeline.status.status_page import render
from raftwerk.pipeline.topics import Topics

NOBODY = "127.0.0.1:1"
TOPICS = Topics(NOBODY, ("t",))


def output(root: Path) -> Path:
    """What a job has made before its first batch."""
    (root / META).mkdir(parents=True)
    identity = {"format": 2, "kind": "lake", "identity": {"topics": ["t"]}}
    (root / IDENTITY).write_text(json.dumps(identity))
    (root / LOCK).touch()
    return root


def committed(root: Path, batch: int, offset: int) -> None:
    for name in ("offsets", "commits"):
        (root / CHECKPOINT / name).mkdir(parents=True, exist_ok=True)
    (root / CHECKPOINT / "offsets" / str(batch)).write_text(f'v1\n{{}}\n{{"t":{{"0":{offset},"1":7}}}}\n')
    (root / CHECKPOINT / "commits" / str(batch)).touch()


def job(root: Path, work: Callable[[Metrics], None], *, page: str | None = None) -> None:
    """A run of a job that does this."""
    metrics = Metrics("lake", None)
    with reported(str(root), "local[2]", TOPICS, metrics) as status:
        status.on_spark(page, StopRequest())
        work(metrics)


def told(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(cli, ["pipeline", "status", *words])
    return result.exit_code, result.output


def test_a_job_tells_of_its_batches_and_the_checkpoint_of_the_offsets(tmp_path: Path) -> None:
    root = output(tmp_path / "lake")
    committed(root, 9, 40)
    committed(root, 10, 50)
    job(root, lambda metrics: metrics.batch(Progress(10, 300, 1.5, 20, 4, 2_000_000)))
    report = read_report(str(root))
    assert report.status is not None and report.status.rows == 300 and report.is_well
    assert report.last_batch == 10 and report.unread({("t", "0"): 60, ("t", "1"): 7, ("t", "2"): 5}) == 15
    code, text = told(str(root))
    assert code == 0
    assert "not running: it has read to the end of its topics" in text
    assert "300 rows in 1.50 s, 200 rows/s" in text and "20 records" in text and "4 rows, 1.9 MiB" in text
    assert f"unknown: no broker answers: {NOBODY} refuses" in text
    (line,) = told(str(root), "--json")[1].splitlines()
    row = json.loads(line)
    assert row["last_batch"]["lag"] == 20 and row["lag_of_brokers"] is None and row["lag_unknown_because"]


def test_the_lock_tells_whether_it_runs(tmp_path: Path) -> None:
    root = output(tmp_path / "lake")
    with (root / LOCK).open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)

        def seen(_: Metrics) -> None:
            code, text = told(str(root))
            assert code == 0 and "running as process " in text and "http://h:4040/StreamingQuery/" in text

        job(root, seen, page="http://h:4040/StreamingQuery/")


def test_a_job_whose_spark_starts_runs_already(tmp_path: Path) -> None:
    """A script that finds that it does not run would start it again."""
    root = output(tmp_path / "lake")
    job(root, lambda metrics: metrics.batch(Progress(10, 300, 1.5, 20, 4, 2_000_000)))
    with locked(str(root), "local[2]"), reported(str(root), "local[2]", TOPICS, Metrics("lake", None)):
        code, text = told(str(root))
        assert code == 0 and f"running as process {os.getpid()} of " in text and "300 rows" not in text
    fresh = tmp_path / "fresh"
    with locked(str(fresh), "local[2]"), reported(str(fresh), "local[2]", TOPICS, Metrics("lake", None)):
        code, text = told(str(fresh))
        assert code == 1 and f"a job that writes to {fresh} is starting: ask again when Spark runs." in text
    assert not fresh.exists(), "it has ended before it began its output"


def test_a_job_starts_while_status_looks_at_the_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It holds the lock with others that look, for a moment; a job that begins then tries again."""
    root = output(tmp_path / "lake")
    with (root / LOCK).open("rb") as looking, (root / LOCK).open("rb") as another:
        fcntl.flock(looking, fcntl.LOCK_SH)
        with monkeypatch.context() as patch:
            patch.setattr("raftwerk.runtime.files.file_lock.time.sleep", lambda _: looking.close())
            with locked(str(root), "local[2]"), pytest.raises(BlockingIOError):
                fcntl.flock(another, fcntl.LOCK_SH | fcntl.LOCK_NB)


def test_a_job_that_was_killed_says_nothing_more(tmp_path: Path) -> None:
    root = output(tmp_path / "lake")
    seen: list[str] = []

    def killed(_: Metrics) -> None:
        seen.append((root / STATUS).read_text())

    job(root, killed)
    (root / STATUS).write_text(seen[0])
    code, text = told(str(root))
    assert code == 1 and "not running: it was killed; started again, it goes on where it was" in text


def test_a_failure_is_told_with_its_sentence(tmp_path: Path) -> None:
    root = output(tmp_path / "lake")

    def fails(_: Metrics) -> None:
        raise PipelineError("the record at t-0 offset 3 does not fit.")

    with pytest.raises(PipelineError):
        job(root, fails)
    code, text = told(str(root))
    assert code == 1 and "failed: the record at t-0 offset 3 does not fit." in text


def test_old_batches_are_forgotten_and_the_page_draws_the_others(tmp_path: Path) -> None:
    root = output(tmp_path / "lake")

    def many(metrics: Metrics) -> None:
        for number in range(BATCHES_MAX + 5):
            metrics.batch(Progress(number, 10, 0.5, None if number % 2 else number, 3))

    job(root, many)
    report = read_report(str(root))
    assert report.status is not None
    assert [report.status.batches[0].number, len(report.status.batches)] == [5, BATCHES_MAX]
    page = tmp_path / "lake.html"
    assert told(str(root), "--report", str(page))[0] == 0
    text = page.read_text()
    assert "What the query remembers between batches" in text and text.count("<svg") == 4
    assert "unread, by the brokers" in render(report, 12) and "12" in render(report, 12)


def test_what_no_job_has_written_is_refused(tmp_path: Path) -> None:
    code, text = told(str(tmp_path))
    assert code == 1 and "was written by no job: name the --output of lake, changes or windows" in text
    code, text = told(str(tmp_path / "nothing"))
    assert code == 1 and f"there is no directory {tmp_path / 'nothing'} on this machine: name the" in text
    (tmp_path / "file").touch()
    code, text = told(str(tmp_path / "file"))
    assert code == 1 and "file is a file: name the --output of lake, changes or windows" in text
    code, text = told(str(tmp_path), str(tmp_path), "--report", str(tmp_path / "page.html"))
    assert code == 2 and "name one" in text


def test_an_output_that_is_missing_hides_no_other(tmp_path: Path) -> None:
    roots = [str(output(tmp_path / name)) for name in ("first", "last")]
    gone = [str(tmp_path / name) for name in ("gone", "away")]
    result = CliRunner().invoke(cli, ["pipeline", "status", roots[0], *gone, roots[1]])
    assert result.exit_code == 1
    assert [line for line in result.stdout.splitlines() if line.startswith("lake  ")] == [
        f"lake  {one}" for one in roots
    ]
    assert all(f"there is no directory {one} on this machine" in result.stderr for one in gone)
    result = CliRunner().invoke(cli, ["pipeline", "status", *roots, gone[0], "--json"])
    assert [json.loads(line)["output"] for line in result.stdout.splitlines()] == roots


def test_a_status_of_an_earlier_version_is_none(tmp_path: Path) -> None:
    root = output(tmp_path / "lake")
    for text in ("", "{}", "[]", '{"batches": 3}', '{"batches": [{"number": 1}]}'):
        (root / STATUS).write_text(text)
        report = read_report(str(root))
        assert report.status is None and report.state == "not running" and report.is_well
