"""The demo on Spark: a year of flights through three nodes, read by the jobs `windows` and `lake`, with a failover.

Then DuckDB asks the lake, an Iceberg table, for the delays that the page shows of it, and the results are compared with
the CSV: counts and sums by day, carrier and airport, and every single flight.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..cluster.client.admin_client import AdminClient, NewTopic
from ..cluster.client.cluster_client import ClusterClient
from ..cluster.local.layout import ClusterShape, plan_cluster
from ..cluster.local.supervisor import LocalNodeError, Supervisor
from .errors import PipelineError
from .flights import SCHEMA, Flight, feed, flight_rows, flights_by_time
from .jobs.job_command import ReadSettings, starting_spark
from .jobs.lake import JOB as LAKE
from .jobs.lake import Lake, LakeOptions
from .jobs.windows import JOB as WINDOWS
from .jobs.windows import RecordCounts, Windows, WindowsOptions, with_names
from .jobs.windows_page import write_page
from .lakehouse.duckdb_query import check_duckdb, query
from .lakehouse.table_format import TABLE_FORMATS
from .pages.charts import bar_chart
from .pages.report_file import check_report
from .pages.report_page import Section
from .running_query import Metrics, ProgressLog, RunningQuery
from .session import DEFAULT_MASTER, JarSettings, spark_session
from .topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOPIC = "flights"
_OUTAGE_S = 20
"""How long a partition may be without a leader before its flights count as late. A year passes within a minute."""
PARTITIONS = 6
_KILL_AT = 0.3
_RESTART_AT = 0.6
_STALL_TIMEOUT_S = 180.0
"""The demo fails when the jobs read nothing for this long."""
_DELAYS_BY_CARRIER = "SELECT carrier, count(*), avg(arr_delay) AS delay FROM lake GROUP BY carrier ORDER BY delay DESC"
_WAIT_S = 0.2
_TOLD_EVERY_S = 10.0


@dataclass(frozen=True, slots=True)
class DemoVerdict:
    """The result of the comparison with the CSV."""

    sent: int
    in_lake: int
    doubled: int
    missing: int
    seen_by_duckdb: int
    counted: int
    late: int
    unreadable: int
    groups: int
    groups_that_differ: int

    @property
    def clean(self) -> bool:
        """Whether every flight was sent, stored and counted once, and all sums are equal."""
        wrong = self.doubled + self.missing + self.late + self.unreadable + self.groups_that_differ
        return wrong == 0 and self.sent == self.in_lake == self.seen_by_duckdb == self.counted


def run_demo(*, seconds: int, report: str, as_json: bool) -> int:
    """Run the demo. The result is the exit code: 0 for a clean verdict, else 1."""
    check_report(report)
    check_duckdb()
    log = ProgressLog(quiet=as_json)
    jars = JarSettings(table_formats=TABLE_FORMATS[:1])
    log(starting_spark(DEFAULT_MASTER, jars))
    spark = spark_session("raftwerk-demo", master=DEFAULT_MASTER, jars=jars, log_level="OFF")
    directory = tempfile.mkdtemp(prefix="raftwerk-demo-spark-")
    is_kept = True
    try:
        with Supervisor(plan_cluster(directory, ClusterShape(brokers=3, port=0))) as supervisor:
            log(f"three nodes ready in {supervisor.start():.2f} s: {supervisor.plan.bootstrap}")
            verdict = _Demo(spark, supervisor, directory, log).run(seconds, report)
        is_kept = not verdict.clean
    except LocalNodeError as error:
        raise PipelineError(f"{error} (the nodes' logs are in {directory}).") from None
    except KeyboardInterrupt:
        is_kept = False
        raise
    finally:
        spark.stop()
        if not is_kept:
            shutil.rmtree(directory, ignore_errors=True)
    if is_kept:
        log(f"everything is kept in {directory}")
    _print_verdict(verdict, report, log, as_json=as_json)
    return 0 if verdict.clean else 1


class _Demo:
    """One run of the demo."""

    def __init__(self, spark: SparkSession, supervisor: Supervisor, directory: str, log: ProgressLog) -> None:
        self.spark = spark
        self.supervisor = supervisor
        self.directory = directory
        self.log = log
        self.topics = Topics(supervisor.plan.bootstrap, (TOPIC,))
        self._sent = 0
        self._killed_node = -1
        self._ending = False
        self._failure: Exception | None = None

    def run(self, seconds: int, report: str) -> DemoVerdict:
        asyncio.run(self._create_topic())
        rows = list(flight_rows())
        flights = flights_by_time()
        windows = Windows(
            self.spark,
            self.topics,
            WindowsOptions(os.path.join(self.directory, WINDOWS), late=lateness(seconds), to_topic="flight-delays"),
        )
        lake = Lake(
            self.spark,
            self.topics,
            LakeOptions(os.path.join(self.directory, LAKE), "json", SCHEMA, ("carrier",)),
        )
        read_settings = ReadSettings(interval_s=1.0)
        streams = [
            windows.start(read_settings, self.log, Metrics(WINDOWS, None)),
            lake.start(read_settings, self.log, Metrics(LAKE, None)),
        ]
        feeding = threading.Thread(target=self._feed, args=(flights, len(flights) / seconds))
        try:
            self.log("windows and lake begin; their first batches take up to a minute")
            self._await(streams, lambda: all(stream.last_batch_id >= 0 for stream in streams))
            self.log(f"windows and lake are ready: {len(rows):,} flights come in {seconds} s")
            feeding.start()
            self._feed_through_failover(seconds, feeding, streams)
            self._await(streams, lambda: all(stream.rows >= len(rows) for stream in streams))
        finally:
            self._ending = True
            for stream in streams:
                stream.stop()
            if feeding.ident is not None:
                feeding.join()
        self.log("counting the records of windows")
        counted = windows.counted()
        self.log("DuckDB asks the lake for the delays of carriers")
        by_carrier = query(lake.options.out, _DELAYS_BY_CARRIER)
        self.log("writing the page")
        write_page(report, with_names(self.spark, windows.latest()), counted, [_by_duckdb(by_carrier)])
        return self._judge(windows, counted, lake, rows, sum(flights for _, flights, _ in by_carrier))

    async def _create_topic(self) -> None:
        async with ClusterClient(self.topics.bootstrap_servers) as client:
            await AdminClient(client).create_topic(NewTopic(TOPIC, PARTITIONS, 3, {"min.insync.replicas": "2"}))

    def _feed(self, flights: list[Flight], rate: float) -> None:
        def stopping() -> bool:
            return self._ending

        try:
            self._sent = feed(self.topics.bootstrap_servers, TOPIC, flights, rate=rate, stopping=stopping)
        except Exception as error:
            self._failure = error

    def _feed_through_failover(self, seconds: int, feeding: threading.Thread, streams: list[RunningQuery]) -> None:
        began = time.monotonic()
        steps = [(_KILL_AT, self._kill_leader), (_RESTART_AT, self._bring_back)]
        while feeding.is_alive():
            if steps and time.monotonic() - began > steps[0][0] * seconds:
                steps.pop(0)[1]()
            _poll(streams)
        for _, step in steps:
            step()
        if self._failure is not None:
            raise self._failure
        self.log(f"{self._sent:,} flights sent and acked")

    def _kill_leader(self) -> None:
        self._killed_node = asyncio.run(self._leader())
        self.supervisor.kill(self._killed_node, signal.SIGKILL)
        self.log(f"SIGKILL to node {self._killed_node}, leader of {TOPIC}-0")

    def _bring_back(self) -> None:
        self.supervisor.start_node(self._killed_node)
        self.log(f"node {self._killed_node} restarted")

    async def _leader(self) -> int:
        async with ClusterClient(self.topics.bootstrap_servers) as client:
            return (await client.metadata([TOPIC])).topic(TOPIC).partitions[0].leader

    def _await(self, streams: list[RunningQuery], done: Callable[[], bool]) -> None:
        """Poll the queries until `done`. `PipelineError` when they make no progress for long."""
        seen, moved_at = _state(streams), time.monotonic()
        told_at = moved_at
        while not done():
            _poll(streams)
            if time.monotonic() - told_at > _TOLD_EVERY_S:
                told_at = time.monotonic()
                self.log(", ".join(f"{stream.job}: {stream.rows:,} flights read" for stream in streams))
            if _state(streams) != seen:
                seen, moved_at = _state(streams), time.monotonic()
            elif time.monotonic() - moved_at > _STALL_TIMEOUT_S:
                raise PipelineError(
                    f"the jobs have read nothing for {_STALL_TIMEOUT_S:.0f} s: is this machine out of memory?"
                )

    def _judge(
        self,
        windows: Windows,
        counted: RecordCounts,
        lake: Lake,
        rows: list[dict[str, Any]],
        seen_by_duckdb: int,
    ) -> DemoVerdict:
        from pyspark.sql import functions as f

        self.log("comparing each flight of lake with the CSV")
        numbers = lake.table.read().select("number")
        in_lake, distinct = numbers.agg(f.count("number"), f.count_distinct("number")).collect()[0]
        self.log("comparing the sums of windows with the CSV")
        expected = expected_delays(rows)
        found = {
            (row["window_start"].strftime("%Y-%m-%d"), row["carrier"], row["origin"]): (
                row["flights"],
                row["cancelled"],
                row["dep_delay_sum"] or 0.0,
                row["arr_delay_sum"] or 0.0,
            )
            for row in windows.latest().collect()
        }
        differ = sum(expected.get(key) != found.get(key) for key in expected.keys() | found.keys())
        return DemoVerdict(
            sent=self._sent,
            in_lake=in_lake,
            doubled=in_lake - distinct,
            missing=len(rows) - distinct,
            seen_by_duckdb=seen_by_duckdb,
            counted=counted.counted,
            late=counted.late,
            unreadable=counted.unreadable,
            groups=len(expected),
            groups_that_differ=differ,
        )


def _by_duckdb(by_carrier: list[tuple[str, int, float | None]]) -> Section:
    bars = {f"{carrier} ({flights:,} flights)": delay for carrier, flights, delay in by_carrier if delay is not None}
    return Section("Mean delay at arrival, by carrier, asked of the lake by DuckDB", bar_chart(bars, unit="min"))


def expected_delays(rows: list[dict[str, Any]]) -> dict[tuple[str, str, str], tuple[int, int, float, float]]:
    """Flights, cancelled flights and sums of delays (minutes) by day (UTC), carrier and airport, from the CSV alone."""
    sums: dict[tuple[str, str, str], list[float]] = {}
    for row in rows:
        group = sums.setdefault((row["event_time"][:10], row["carrier"], row["origin"]), [0, 0, 0.0, 0.0])
        group[0] += 1
        group[1] += row["dep_delay"] is None
        group[2] += row["dep_delay"] or 0.0
        group[3] += row["arr_delay"] or 0.0
    return {key: (int(n), int(cancelled), dep, arr) for key, (n, cancelled, dep, arr) in sums.items()}


def lateness(seconds: int) -> str:
    """The lateness to allow in event time, when a year of flights takes so many seconds."""
    return f"{-(-365 * _OUTAGE_S // seconds)} days"


def _state(streams: list[RunningQuery]) -> list[int]:
    return [stream.last_batch_id for stream in streams]


def _poll(streams: list[RunningQuery]) -> None:
    for stream in streams:
        if stream.poll(_WAIT_S):
            raise PipelineError(f"{stream.job} ended before the flights did.")


def _print_verdict(verdict: DemoVerdict, report: str, log: ProgressLog, *, as_json: bool) -> None:
    values = {name: getattr(verdict, name) for name in verdict.__slots__}
    if as_json:
        print(json.dumps({**values, "clean": verdict.clean, "report": report}))
        return
    for name, value in values.items():
        log(f"{name.replace('_', ' '):>20}  {value:,}")
    log(f"{'CLEAN' if verdict.clean else 'NOT CLEAN'}: the page is {os.path.abspath(report)}")
