"""What needs no Spark: offsets' translation, progress, explanations, plots, options, and errors of the command line."""

from __future__ import annotations

import io
import re
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar
from unittest.mock import Mock
from uuid import UUID

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from raftwerk.pipeline import topics as topics_of_jobs
from raftwerk.pipeline.cli import JOBS, pipeline
from raftwerk.pipeline.demo import expected_delays
from raftwerk.pipeline.errors import PipelineError, explain
from raftwerk.pipeline.flights import SCHEMA, Flight, data_file, flight_rows, flights, with_progress
from raftwerk.pipeline.jobs.job_command import ReadSettings, shorten_errors
from raftwerk.pipeline.jobs.mirror import MirrorOptions, check_target
from raftwerk.pipeline.jobs.record_copier import CopiedRanges, translate
from raftwerk.pipeline.jobs.windows import RecordCounts, check_readable
from raftwerk.pipeline.jobs.windows_page import date_labels
from raftwerk.pipeline.pages.charts import Axis, bar_chart, line_chart
from raftwerk.pipeline.pages.report_page import Section, render_report
from raftwerk.pipeline.running_query import Metrics, Progress, ProgressLog, RunningQuery
from raftwerk.pipeline.topics import Topics, parse_options


def test_windows_of_records_that_are_no_flights_name_the_columns() -> None:
    with pytest.raises(PipelineError, match=r"none of the 1,200 records of orders is a flight: .*event_time.*carrier"):
        check_readable(RecordCounts(1200, 0, 0, 1200), ["orders"])
    check_readable(RecordCounts(0, 0, 0, 0), ["orders"])
    check_readable(RecordCounts(1200, 1, 0, 1199), ["orders"])


@given(st.lists(st.integers(1, 4), min_size=1, max_size=30), st.integers(0, 5))
def test_an_offset_is_translated_to_the_copy_of_the_next_record(gaps: list[int], base: int) -> None:
    """Against the plain map: the copy of the first record at or after the offset, or the end of the copy."""
    runs, source, copied = CopiedRanges(), -1, {}
    for number, gap in enumerate(gaps):
        source += gap
        copied[source] = base + number
        runs.sent(("t", 0), source, base + number)
    done = runs.done()
    assert sum(run.length for run in done) == len(gaps)
    for offset in range(source + 3):
        later = [at for at in copied if at >= offset]
        assert translate(done, offset) == (copied[min(later)] if later else base + len(gaps))


def test_nothing_copied_is_translated_to_nothing() -> None:
    assert translate([], 5) is None


def test_progress_tells_the_lag_where_the_source_tells_its_end() -> None:
    source = {"endOffset": '{"t":{"0":5,"1":7}}', "latestOffset": '{"t":{"0":9,"1":7,"2":1}}'}
    report = {"batchId": 3, "numInputRows": 10, "durationMs": {"triggerExecution": 500}, "sources": [source]}
    progress = Progress.of(report)
    assert (progress.lag, progress.rows_per_second) == (5, 20.0)
    assert str(progress) == "batch 3   10 rows   20 rows/s   lag 5"
    assert Progress.of({**report, "sources": [{"endOffset": "0", "latestOffset": None}]}).lag is None
    assert Progress.of(report, {("t", "0"): 12, ("t", "1"): 7}).lag == 7
    assert Progress.of(report, {}).lag is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x\nraftwerk.pipeline.errors.PipelineError: the disk is gone.\n\tat y", "the disk is gone."),
        ("Job aborted: [USER_RAISED_EXCEPTION] the record at t-0 offset 1 is bad. SQLSTATE: P0001", "is bad."),
        ("org.apache.kafka.common.errors.UnknownTopicOrPartitionException: no", "create it again"),
        ("Caused by: org.apache.kafka.common.errors.TimeoutException: 60 s", "is it up?"),
        ("exception: Python worker failed to connect back. SQLSTATE: XXKST\n=== Query", "goes on where it was"),
        ("Caused by: org.apache.kafka.common.errors.CorruptRecordException: Record is corrupt", "raftwerk log verify"),
        ("Some data may have been lost ... set failOnDataLoss", "failOnDataLoss=false"),
        ("first\nCaused by: a: b\nCaused by: c: the reason", "c: the reason"),
        ("An error occurred while calling o44.create.\n: java.io.IOException: no room\n\tat x", "IOException: no room"),
        (
            "\n  An exception was thrown from the Python worker. Please see the stack trace below.\n"
            'Traceback (most recent call last):\n  File "worker.py", line 1, in main\n    work()\n'
            '  File "job.py", line 2, in work\n    raise x\ncimpl.KafkaException: KafkaError{code=_TIMED_OUT}\n\n',
            "cimpl.KafkaException: KafkaError{code=_TIMED_OUT}",
        ),
        ("java.lang.NoSuchMethodError: 'Relation Relation.create()'", "for another version of Spark"),
        (
            'terminated with exception: Cannot invoke "scala.collection.IterableOps.map(scala.Function1)" because the '
            'return value of "scala.Option.get()" is null SQLSTATE: XXKST',
            "go on with --source raftwerk",
        ),
        (
            "org.apache.spark.SparkConcurrentModificationException: [CONCURRENT_STREAM_LOG_UPDATE] Concurrent update "
            "to the log. Multiple streaming jobs detected for 3.\nPlease make sure only one streaming job runs.",
            "another job writes to the same output: end one of the two",
        ),
    ],
)
def test_what_spark_wraps_is_told_in_a_sentence(text: str, said: str) -> None:
    assert said in str(explain(RuntimeError(text)))
    assert "\n" not in str(explain(RuntimeError(text)))


def test_what_fails_in_a_batch_is_short() -> None:
    """Spark's own search of it overflows the stack of its thread over some thousands of characters."""

    protocol = pytest.importorskip("py4j.protocol")

    def on_batch(_rows: Any, _batch: int) -> None:
        try:
            raise ValueError("\tat org.apache.spark.Trace(Trace.scala:1)\n" * 500)
        except ValueError as error:
            raise protocol.Py4JError(
                "An error occurred while calling o1.parquet.\n" + str(error) + "Caused by: a: b"
            ) from error

    with pytest.raises(PipelineError) as raised:
        shorten_errors(on_batch)(None, 0)  # type: ignore[arg-type]
    text = "".join(traceback.format_exception(raised.value))
    assert len(text) < 3000 and "Caused by" not in text


@given(st.floats(-1e6, 1e6), st.floats(0.001, 1e6))
def test_ticks_are_few_round_and_within(low: float, span: float) -> None:
    axis = Axis(low, low + span, 0, 100)
    ticks = axis.ticks()
    assert len(ticks) <= 12
    assert all(-1 <= axis.at(tick) <= 101 for tick in ticks)


def test_dates_under_a_plot_are_few_and_named_by_how_far_they_are_apart() -> None:
    day = datetime(2013, 1, 1, tzinfo=UTC)
    year = date_labels([day + timedelta(days=n) for n in range(365)])
    assert list(year.values())[:2] == ["Jan 2013", "Feb 2013"] and len(year) == 12
    assert list(date_labels([day + timedelta(days=n) for n in range(24)]).values())[1] == "04 Jan"
    assert list(date_labels([day + timedelta(hours=n) for n in range(24)]).values())[1] == "01 Jan 03:00"
    assert date_labels([]) == {}


def test_a_line_is_broken_where_nothing_was_seen() -> None:
    line = [(0.0, 1.0), (1.0, 1.0), (9.0, 2.0), (20.0, 1.0), (21.0, 1.0)]
    broken = line_chart({"a": line}, {}, unit="u", gap=1.5)
    assert (broken.count("<polyline"), broken.count("<circle")) == (2, 1)
    assert line_chart({"a": line}, {}, unit="u").count("<polyline") == 1


def test_a_single_value_is_a_dot_in_the_middle() -> None:
    assert "<circle cx='524.0' cy='14.0' r='4'" in line_chart({"a": [(7.0, 3.0)]}, {7.0: "now"}, unit="u")


def test_labels_never_touch() -> None:
    text = line_chart({"a": [(0.0, 1.0), (100.0, 2.0)]}, {99.0: "Dec 2013", 100.0: "Jan 2014", 0.0: "x"}, unit="u")
    assert ">Dec 2013<" in text and ">x<" in text and "Jan 2014" not in text


def test_plots_of_nothing_and_of_hostile_names() -> None:
    assert "Nothing" in line_chart({}, {}, unit="x")
    assert "Nothing" in bar_chart({}, unit="x")
    text = render_report("<t>", "n", [Section("h", bar_chart({"<script>": -1.0, "b": 2.0}, unit="m"))])
    assert "<script>" not in text


class BusyQuery:
    """A query of Spark with one batch, up to offset 7, that asks its source for more all the time."""

    status: ClassVar[dict[str, str]] = {"message": "Getting offsets from raftwerk"}

    def __init__(self) -> None:
        offsets = Mock()
        offsets.hasNext.return_value = True
        offsets.next.return_value.json.return_value = '{"t": {"0": 7}}'
        self._jsq = Mock()
        self._jsq.streamingQuery().committedOffsets().values().iterator.return_value = offsets
        self.recentProgress: list[Any] = []
        self.is_stopped = False

    def report(self, batch: int, offset: int, at: str = "") -> None:
        """A batch of seven rows is done. PySpark's own class takes Spark's report as it does from version 4.1 on."""
        listener = pytest.importorskip("pyspark.sql.streaming.listener")
        source = {
            "description": "raftwerk",
            "startOffset": None,
            "endOffset": {"t": {"0": offset}},
            "latestOffset": None,
            "numInputRows": 7,
            "inputRowsPerSecond": 7.0,
            "processedRowsPerSecond": 7.0,
        }
        name = str(UUID(int=1))
        whole = {"id": name, "runId": name, "name": "lake", "timestamp": at, "batchId": batch, "batchDuration": 500}
        whole |= {"durationMs": {"triggerExecution": 500}, "numInputRows": 7, "stateOperators": []}
        whole |= {"sources": [source], "sink": {"description": "", "numOutputRows": 7}}
        self.recentProgress.append(listener.StreamingQueryProgress.fromJson(whole))

    def awaitTermination(self, _seconds: float) -> bool:  # noqa: N802
        return False

    def stop(self) -> None:
        self.is_stopped = True


def test_a_query_ends_when_its_last_batch_is_reported_though_spark_never_waits() -> None:
    query: Any = BusyQuery()
    running = RunningQuery("lake", query, ProgressLog(quiet=True), Metrics("lake", None), until={("t", "0"): 7})
    assert not running.poll(0) and not query.is_stopped, "the batch is committed, and not reported yet"
    query.report(0, 7)
    assert running.poll(0) and query.is_stopped
    assert running.rows == 7


def test_maintenance_is_told_when_the_last_batch_that_is_done_began() -> None:
    """The next one runs already: it began later, so nothing that it has written is older."""
    query: Any = BusyQuery()
    told: list[tuple[int, datetime]] = []
    running = RunningQuery("lake", query, ProgressLog(quiet=True), Metrics("lake", None))
    running.maintenance = lambda *arguments: told.append(arguments)
    running.poll(0)
    query.report(0, 7, "2026-01-31T12:00:00.000Z")
    query.report(1, 14, "2026-01-31T12:00:05.250Z")
    running.poll(0)
    assert told == [(2, datetime(2026, 1, 31, 12, 0, 5, 250_000, UTC))]


def test_a_batch_has_its_lag_by_the_ends_that_the_brokers_tell() -> None:
    query: Any = BusyQuery()
    told = io.StringIO()
    ends: Iterator[int | Exception] = iter([12, PipelineError("no broker answers."), OSError("no more files"), 30])

    def ends_now() -> dict[tuple[str, str], int]:
        found = next(ends)
        if isinstance(found, Exception):
            raise found
        return {("t", "0"): found}

    metrics = Metrics("lake", None)
    running = RunningQuery("lake", query, ProgressLog(out=told), metrics, ends_now)
    for batch in range(4):
        query.report(batch, 7 * (batch + 1))
        running.poll(0)
    lines = [line.partition("lake: ")[2] for line in told.getvalue().splitlines()]
    rate = "7 rows   14 rows/s"
    assert lines == [f"batch 0   {rate}   lag 5", f"batch 1   {rate}", f"batch 2   {rate}", f"batch 3   {rate}   lag 2"]
    assert metrics.registry.get_sample_value("raftwerk_pipeline_lag_records", {"job_name": "lake"}) == 2


def test_a_batch_is_reported_soon_though_no_broker_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics_of_jobs, "_LAG_TIMEOUT_S", 0.2)
    query: Any = BusyQuery()
    query.report(0, 7)
    told = io.StringIO()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        topics = Topics(f"127.0.0.1:{silent.getsockname()[1]}", ("t",))
        began = time.monotonic()
        ReadSettings().follow("lake", query, topics, ProgressLog(out=told), Metrics("lake", None)).poll(0)
        assert time.monotonic() - began < 5, "the time-out of a request is longer"
    assert told.getvalue().endswith("lake: batch 0   7 rows   14 rows/s\n")


def test_a_query_of_an_empty_topic_ends_after_its_first_batch() -> None:
    query: Any = BusyQuery()
    query._jsq.streamingQuery().committedOffsets().values().iterator.return_value.hasNext.return_value = False
    running = RunningQuery("lake", query, ProgressLog(quiet=True), Metrics("lake", None), until={("t", "0"): 0})
    assert not running.poll(0), "Spark has planned no batch, so the checkpoint knows of no offsets"
    query.status = {"message": "Waiting for data to arrive"}
    assert running.poll(0)


def test_options_are_pairs() -> None:
    assert parse_options(["a=b", "kafka.x=1=2"]) == {"a": "b", "kafka.x": "1=2"}
    with pytest.raises(PipelineError, match="name=value"):
        parse_options(["nonsense"])


def test_flights_are_whole_and_typed() -> None:
    rows = list(flight_rows())
    assert len(rows) == 336_776
    names = re.findall(r"(\w+) [A-Z]+", SCHEMA)
    assert sorted(names) == sorted(rows[0])
    assert rows[0]["event_time"] == "2013-01-01T10:15:00Z"
    assert sum(row["dep_delay"] is None for row in rows) == 8_255
    assert sum(n for n, *_ in expected_delays(rows).values()) == 336_776
    assert len(list(flights(10))) == 10
    assert data_file("airlines.csv").endswith("airlines.csv")


def test_every_job_teaches() -> None:
    for job in JOBS:
        shown = CliRunner().invoke(pipeline, ["run", job, "--help"])
        assert shown.exit_code == 0, shown.output
        assert "Examples:" in shown.output or "Exit codes" in shown.output
    assert all(job in CliRunner().invoke(pipeline, ["run", "--help"]).output for job in JOBS)


def test_a_cluster_that_is_down_is_named() -> None:
    words = ["run", "lake", "-b", "127.0.0.1:1", "-t", "x", "--out", "nowhere"]
    shown = CliRunner().invoke(pipeline, words)
    assert shown.exit_code == 1
    assert "no broker answers: 127.0.0.1:1" in shown.output


def test_a_mirror_whose_target_is_down_names_the_option() -> None:
    source = Topics("127.0.0.1:1", ("orders",))
    with pytest.raises(PipelineError, match=r"127\.0\.0\.1:2 .*--target: .*correct the address \(127\.0\.0\.1:2\)"):
        check_target(source, MirrorOptions("127.0.0.1:2", "state"))


@pytest.mark.parametrize(
    ("module", "words", "told"),
    [
        ("pyspark", ["run", "lake", "-t", "x", "--out", "nowhere"], "the package pyspark is not installed: "),
        (
            "pyspark",
            ["run", "mirror", "-t", "x", "--target", "127.0.0.1:2", "--state", "s"],
            "the package pyspark is not installed: ",
        ),
        ("confluent_kafka", ["feed"], "the package confluent-kafka is not installed: "),
    ],
)
def test_a_missing_package_is_named_before_a_cluster_is_looked_for(module: str, words: list[str], told: str) -> None:
    program = f"import sys; sys.modules[{module!r}] = None; from raftwerk.cli.main import main; main()"
    command = [sys.executable, "-c", program, "pipeline", *words, "-b", "127.0.0.1:1"]
    answer = subprocess.run(command, check=False, capture_output=True, text=True)
    assert answer.returncode == 1
    assert answer.stderr.startswith(f"Error: {told}"), answer.stderr


def test_a_feed_tells_every_five_seconds_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter([0.0, *(float(second) for second in range(12))])
    monkeypatch.setattr("raftwerk.pipeline.flights.time.monotonic", lambda: next(now))
    told: list[int] = []
    records = [Flight(number, b"", b"") for number in range(12)]
    assert list(with_progress(records, told.append)) == records
    assert told == [5, 10]
