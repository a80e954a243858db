"""A running streaming query of a job: progress lines, Prometheus metrics, lag, and a clean stop."""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

from ..cluster.command_line.plural import counted
from .errors import PipelineError, explain

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry, Counter, Gauge
    from pyspark.sql.streaming.query import StreamingQuery

Place = tuple[str, str]
"""A topic and a partition, both as text, as in Spark's progress reports."""
Ends = Mapping[Place, int]

_WAIT_S = 0.5
_AT_ONCE_S = 0.5
"""Signals within this time are one: `timeout` sends two, to the process and to its group."""
STOP_TIMEOUT_S = 30.0
"""How long a stop waits for the running batch."""


class ProgressLog:
    """Prints lines with the seconds since the start, on standard error. Prints nothing with `--json` (`quiet`)."""

    def __init__(self, *, quiet: bool = False, out: TextIO | None = None) -> None:
        self.quiet = quiet
        self._out = out if out is not None else sys.stderr
        self._began = time.monotonic()

    def __call__(self, text: str) -> None:
        if not self.quiet:
            print(f"{time.monotonic() - self._began:7.1f} s  {text}", file=self._out, flush=True)


class Metrics:
    """The metrics of a job for Prometheus. They are served when a port is given."""

    def __init__(self, job: str, port: int | None) -> None:
        from prometheus_client import CollectorRegistry, Counter, Gauge

        self.job = job
        self.registry: CollectorRegistry = CollectorRegistry()
        names = ("job_name",)
        self.rows: Counter = Counter("raftwerk_pipeline_rows", "Records read.", names, registry=self.registry)
        self.batches: Counter = Counter("raftwerk_pipeline_batches", "Batches done.", names, registry=self.registry)
        self.batch_seconds: Gauge = Gauge(
            "raftwerk_pipeline_batch_seconds", "How long the last batch took.", names, registry=self.registry
        )
        self.rows_per_second: Gauge = Gauge(
            "raftwerk_pipeline_rows_per_second", "Speed of the last batch.", names, registry=self.registry
        )
        self.lag: Gauge = Gauge(
            "raftwerk_pipeline_lag_records", "Records not read yet, of all partitions.", names, registry=self.registry
        )
        self.on_batch: list[Callable[[Progress], None]] = []
        """Told of each batch that is done."""
        self.last_batch: Gauge = Gauge(
            "raftwerk_pipeline_last_batch_timestamp_seconds", "When it ended.", names, registry=self.registry
        )
        if port is not None:
            self._serve(port)

    def batch(self, progress: Progress) -> None:
        """Count a batch that is done."""
        self.rows.labels(self.job).inc(progress.rows)
        self.batches.labels(self.job).inc()
        self.batch_seconds.labels(self.job).set(progress.seconds)
        self.rows_per_second.labels(self.job).set(progress.rows_per_second)
        self.last_batch.labels(self.job).set(time.time())
        if progress.lag is not None:
            self.lag.labels(self.job).set(progress.lag)
        for tell in self.on_batch:
            tell(progress)

    def _serve(self, port: int) -> None:
        from prometheus_client import start_http_server

        try:
            start_http_server(port, registry=self.registry)
        except OSError as error:
            raise PipelineError(f"cannot serve metrics on port {port} ({error.strerror}): name another.") from None


@dataclass(frozen=True, slots=True)
class Progress:
    """Spark's report on a batch. `lag` is in records, None when the end of the log is not known.

    The state is what the query remembers between batches, such as windows that are open.
    """

    batch: int
    rows: int
    seconds: float
    lag: int | None
    state_rows: int = 0
    state_bytes: int = 0

    @property
    def rows_per_second(self) -> float:
        """The speed of the batch, 0 when its duration is not known."""
        return self.rows / self.seconds if self.seconds else 0.0

    def __str__(self) -> str:
        lag = "" if self.lag is None else f"   lag {self.lag:,}"
        return f"batch {self.batch:,}   {counted(self.rows, 'row')}   {self.rows_per_second:,.0f} rows/s{lag}"

    @staticmethod
    def of(report: Mapping[str, Any], ends: Ends | None = None) -> Progress:
        """From one of Spark's progress reports. `ends` are the logs' ends, for sources that do not report them."""
        sources = report.get("sources") or []
        lags = [_lag(source, ends) for source in sources]
        states = report.get("stateOperators") or []
        return Progress(
            batch=int(report["batchId"]),
            rows=int(report.get("numInputRows") or 0),
            seconds=float((report.get("durationMs") or {}).get("triggerExecution", 0)) / 1000,
            lag=None if not lags or None in lags else sum(lag for lag in lags if lag is not None),
            state_rows=sum(int(state.get("numRowsTotal") or 0) for state in states),
            state_bytes=sum(int(state.get("memoryUsedBytes") or 0) for state in states),
        )


def _lag(source: Mapping[str, Any], ends: Ends | None) -> int | None:
    """Records between the end of a batch and the end of the log. Offsets are `{topic: {partition: n}}`."""
    end = parse_offsets(source.get("endOffset"))
    latest = ends if ends is not None else parse_offsets(source.get("latestOffset"))
    return None if end is None or not latest else unread(end, latest)


def unread(next_offsets: Ends, ends: Ends) -> int:
    """How many offsets are between those that are read next and the ends of the logs."""
    return sum(max(0, end - next_offsets.get(place, 0)) for place, end in ends.items())


def parse_offsets(value: Any) -> dict[Place, int] | None:
    """Offsets as Spark writes them, `{topic: {partition: n}}` or its JSON; None for what is none."""
    try:
        whole = json.loads(value) if isinstance(value, str) else value
        return {(topic, part): int(offset) for topic, parts in whole.items() for part, offset in parts.items()}
    except (AttributeError, TypeError, ValueError):
        return None


@dataclass
class RunningQuery:
    """A running query of a job.

    `ends` returns the ends of the logs, for sources that do not report them to Spark. A query with `until` stops when
    all records before these offsets are processed. `maintenance` is called, beside the next batch, with the number of
    batches that are newly done and with the time when the last of them began, which is before the next one did.
    """

    job: str
    query: StreamingQuery
    log: ProgressLog
    metrics: Metrics
    ends: Callable[[], Ends] | None = None
    until: Ends | None = None
    maintenance: Callable[[int, datetime], None] | None = None
    last_batch_id: int = -1
    rows: int = 0
    _reported: dict[Place, int] = field(default_factory=dict)
    """Where the batches ended that this run has reported."""

    def follow(self, stopping: Callable[[], bool] = lambda: False) -> None:
        """Wait for the query's end, or for `stopping` and the end of its batch. `PipelineError` if it failed."""
        stop_requested_at: float | None = None
        while True:
            last_batch_id = self.last_batch_id
            if self.poll(_WAIT_S):
                return
            if stopping():
                stop_requested_at = stop_requested_at if stop_requested_at is not None else time.monotonic()
                idle = not self.query.status["isTriggerActive"]
                if idle or self.last_batch_id > last_batch_id or time.monotonic() - stop_requested_at > STOP_TIMEOUT_S:
                    self.stop()
                    return

    def poll(self, wait_s: float) -> bool:
        """Wait, and report new batches. Returns whether the query has ended. `PipelineError` if it failed."""
        ended = self._wait(wait_s)
        batches = self._report()
        if self.maintenance is not None and batches and not ended:
            self.maintenance(len(batches), datetime.fromisoformat(batches[-1]["timestamp"]))
        if not ended and self._has_reached_end():
            self._stop("read to the end")
            return True
        return ended

    def stop(self) -> None:
        """Stop the query. An unfinished batch is repeated at the next start."""
        self._stop("stopped")

    def _stop(self, why: str) -> None:
        self.query.stop()
        self._report()
        self.log(f"{self.job}: {why} after {counted(self.rows, 'row')}")

    def _wait(self, wait_s: float) -> bool:
        try:
            return bool(self.query.awaitTermination(wait_s))  # type: ignore[arg-type]  # a float is taken
        except Exception as error:
            raise explain(error) from error

    def _has_reached_end(self) -> bool:
        """Whether all records before `until` are processed, in this run or an earlier one.

        What Spark says of itself does not tell that: it waits, too, after a batch that an earlier run had planned.
        A batch is reported some time after it is committed. Where this run had none, Spark waits now and then.
        """
        if self.until is None or not self._is_reached(self._committed()):
            return False
        has_reported = bool(self._reported) and self._is_reached(self._reported)
        return has_reported or bool(self.query.status["message"].startswith("Waiting"))

    def _is_reached(self, ends: Ends) -> bool:
        return all(ends.get(place, 0) >= offset for place, offset in (self.until or {}).items())

    def _committed(self) -> Ends:
        """The end of the last batch that Spark has noted in the checkpoint as done; empty before the first."""
        execution = self.query._jsq.streamingQuery()  # PySpark has no name for it
        ends = execution.committedOffsets().values().iterator()
        return (parse_offsets(ends.next().json()) or {}) if ends.hasNext() else {}

    def _ends_now(self) -> Ends | None:
        try:
            return self.ends() if self.ends is not None else None
        except (PipelineError, OSError):
            return {}  # The lag of these batches is unknown, as the cluster does not answer.

    def _is_new(self, report: Mapping[str, Any]) -> bool:
        """Whether the report is of a new batch that ran. Spark also reports that it waits for records."""
        ran = report.get("numInputRows") or report.get("durationMs", {}).get("addBatch")
        return report["batchId"] > self.last_batch_id and bool(ran)

    def _report(self) -> list[dict[str, Any]]:
        """Report the batches that are newly done. Returns Spark's reports on them."""
        # From 4.1 on, PySpark's own fields hold a source's offsets as the text of a dict in Python; JSON is the same in
        # all versions.
        reports = [json.loads(report.json) for report in self.query.recentProgress if self._is_new(report)]
        ends = self._ends_now() if reports else None
        for report in reports:
            progress = Progress.of(report, ends)
            self.last_batch_id = progress.batch
            self.rows += progress.rows
            for source in report.get("sources") or []:
                self._reported |= parse_offsets(source.get("endOffset")) or {}
            self.metrics.batch(progress)
            if progress.rows:
                self.log(f"{self.job}: {progress}")
        return reports


class StopRequest:
    """Says, when it is called, whether SIGINT or SIGTERM asked to stop. Those that come at once count for one.

    A later SIGINT ends the process without clean-up, as a crash does: an exception in the middle of a call to Spark's
    JVM would leave pages of errors, and sometimes hang.
    """

    def __init__(self) -> None:
        self.raises = False
        """Whether SIGINT raises KeyboardInterrupt, for what asks nobody whether it is to stop."""
        self.number: int | None = None
        """The signal that came first."""
        self._asked_at: float | None = None

    def __call__(self) -> bool:
        return self._asked_at is not None

    def end(self) -> NoReturn:
        """End the command as the signal would, by an exception: Ctrl-C is told by click, SIGTERM has its exit code."""
        if self.number == signal.SIGTERM:
            raise SystemExit(128 + signal.SIGTERM)
        raise KeyboardInterrupt

    def install(self) -> None:
        """Handle both signals from now on; Spark's context takes SIGINT when it starts."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, _frame: object) -> None:
        now = time.monotonic()
        if self._asked_at is None:
            self._asked_at, self.number = now, number
            if self.raises and number == signal.SIGINT:
                logging.disable()  # the client of Spark's JVM logs such exceptions
                raise KeyboardInterrupt
        elif number == signal.SIGINT and now - self._asked_at > _AT_ONCE_S:
            os.write(2, b"Interrupted twice: ended at once.\n")
            os._exit(128 + signal.SIGINT)


@contextmanager
def stop_on_signal() -> Iterator[StopRequest]:
    """Let SIGINT and SIGTERM ask to stop for as long as the context lasts."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    request = StopRequest()
    request.install()
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
