"""`windows`: delays of flights by carrier and airport, in windows of event time, from a stream that is out of order.

Spark keeps a window open until the watermark (the latest event time minus the allowed lateness) has passed its end. A
flight that arrives later is counted as late. The new values of each batch go to a compacted topic, whose key is window,
carrier and airport, and are merged into a table, where they replace the earlier values of their keys.

    raftwerk pipeline run windows -t flights --out /data/windows --to flight-delays --report windows.html
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import click

from ...cluster.command_line.commands import Command, Option
from ..errors import PipelineError, WrongOptionError
from ..flights import SCHEMA, data_file
from ..lakehouse.open_table import open_maintained, read_table
from ..lakehouse.partition_fields import PartitionField
from ..lakehouse.table import MaintainedTable, StreamBatch
from ..lakehouse.table_format import TRANSACTIONAL_FORMATS
from ..lakehouse.table_maintenance import MaintenanceSettings, TableMaintenance
from ..output_directory import OutputDirectory, check_local_output, locked
from ..running_query import Metrics, ProgressLog, RunningQuery
from ..status.status_file import reported
from ..topics import Topics
from ..typed_values import REGISTRY
from ..typed_values.registry_values import json_texts
from .intervals import interval_microseconds
from .job_command import (
    ReadSettings,
    format_option,
    prepare_job,
    print_result,
    registry_option,
    report_errors,
    shorten_errors,
    source_options,
    spark_options,
    spark_page,
    take_registry,
    take_run_settings,
    take_source_options,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

JOB = "windows"
KEY = ("window_start", "carrier", "origin")
_DAMAGE = "_damage"


@dataclass(frozen=True, slots=True)
class WindowsOptions:
    """The length of a window, the allowed lateness (Spark's intervals, such as `1 day`), and the outputs."""

    out: str
    window: str = "1 day"
    late: str = "2 days"
    to_topic: str | None = None
    table_format: str = TRANSACTIONAL_FORMATS[0]
    registry_url: str | None = None
    """The registry by whose schemas values are written; None for values in JSON."""

    def __post_init__(self) -> None:
        window = _interval("window", self.window, months=False)
        late = _interval("lateness", self.late, months=True)
        if window is not None and window <= 0:
            raise WrongOptionError(f"the window is {self.window}, and must be longer than nothing.")
        if late is not None and late < 0:
            raise WrongOptionError(f"the lateness is {self.late}, and must not be negative.")


def identity_of(topics: Topics, options: WindowsOptions) -> dict[str, Any]:
    """What the table of a run holds."""
    return {
        "topics": list(topics.names),
        "window": options.window,
        "lateness": options.late,
        "table format": options.table_format,
    }


@dataclass(frozen=True, slots=True)
class RecordCounts:
    """How many records were read, and what became of them: `read = counted + late + unreadable`.

    Of records that retention has deleted, those in the table are known, and no others.
    """

    read: int
    counted: int
    late: int
    unreadable: int


@dataclass
class Windows:
    """The job for one output directory."""

    spark: SparkSession
    topics: Topics
    options: WindowsOptions
    table: MaintainedTable = field(init=False)
    output: OutputDirectory = field(init=False)

    def __post_init__(self) -> None:
        out = self.options.out
        self.table = open_maintained(self.spark, out, self.options.table_format)
        identity = identity_of(self.topics, self.options)
        self.output = OutputDirectory(self.spark, out, JOB, identity, self.table.is_written)
        self.sink = None
        if self.options.to_topic is not None:
            self.sink = replace(self.topics, names=(self.options.to_topic,), options={})

    def start(self, read_settings: ReadSettings, log: ProgressLog, metrics: Metrics) -> RunningQuery:
        """Start the streaming query."""
        if self.sink is not None:
            self.sink.create(3, {"cleanup.policy": "compact"})
        records = self.topics.read_stream(self.spark, read_settings.starting_offsets, read_settings.max_offsets)
        values = delays(parse(records, self.options.registry_url), self.options.window, self.options.late)
        self.table.prepare(_with_batch(values, 0).schema, [PartitionField("date")])
        maintenance = TableMaintenance(self.table, MaintenanceSettings(), log)

        def on_batch(rows: DataFrame, batch: int) -> None:
            self._on_batch(rows, batch)
            maintenance(1)

        query = (
            values.writeStream.queryName(JOB)
            .outputMode("update")
            .option("checkpointLocation", self.output.checkpoint)
            .trigger(**read_settings.trigger(self.topics))
            .foreachBatch(shorten_errors(on_batch))
            .start()
        )
        return read_settings.follow(JOB, query, self.topics, log, metrics)

    def _on_batch(self, rows: DataFrame, batch: int) -> None:
        rows = _with_batch(rows, batch).persist()
        try:
            if self.sink is not None:
                # After a crash the same keys and values are written again, which changes nothing in a compacted topic.
                self.sink.write(self.spark, _as_records(rows))
            self.table.merge(rows, KEY, StreamBatch(self.output.query_id(), batch))
        finally:
            rows.unpersist()

    def counted(self) -> RecordCounts:
        """Count the records that the job has read. Late are those that are in the topic and in no window."""
        from pyspark.sql import functions as f

        records = self._read()
        if records is None:
            return RecordCounts(0, 0, 0, 0)
        read = f.count(f.lit(1)), f.count(f.when(_unreadable(), 1))
        total, unreadable = records.agg(*read).collect()[0]
        counted = int(self.latest().agg({"flights": "sum"}).collect()[0][0] or 0)
        late = max(0, total - unreadable - counted)
        return RecordCounts(counted + late + unreadable, counted, late, unreadable)

    def latest(self) -> DataFrame:
        """The results: one row for each window, carrier and airport."""
        return self.table.read()

    def _read(self) -> DataFrame | None:
        """The records that the stream has processed, by the offsets in its checkpoint; None before a first batch."""
        from pyspark.sql import functions as f

        # A batch that is in the table may not be noted as done in the checkpoint yet.
        in_table = self.latest().agg(f.max("batch")).collect()[0][0]
        batch = max(self.output.last_batch(), -1 if in_table is None else in_table)
        if batch < 0:
            return None
        records = self.topics.read(self.spark, up_to=self.output.offsets_of(batch))
        return parse(records, self.options.registry_url)


def parse(records: DataFrame, registry_url: str | None = None) -> DataFrame:
    """The flights in records, in JSON or by the schemas of a registry. One without a flight has a null event time."""
    from pyspark.sql import functions as f

    how = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _DAMAGE}
    value = records["value"]
    text = value.cast("string") if registry_url is None else json_texts(value, registry_url, None)
    flight = f.from_json(text, f"{SCHEMA}, {_DAMAGE} STRING", how)
    return records.select(flight.alias("flight")).select("flight.*")


def _unreadable() -> Any:
    from pyspark.sql import functions as f

    return f.col("event_time").isNull()


def delays(flights: DataFrame, window: str, late: str) -> DataFrame:
    """Flights, cancelled flights and delays (minutes) by window, carrier and airport."""
    from pyspark.errors import AnalysisException
    from pyspark.sql import functions as f

    try:
        return (
            flights.withWatermark("event_time", late)
            .groupBy(f.window("event_time", window).alias("window"), "carrier", "origin")
            .agg(
                f.count(f.lit(1)).alias("flights"),
                f.count(f.when(f.col("dep_delay").isNull(), 1)).alias("cancelled"),
                f.sum("dep_delay").alias("dep_delay_sum"),
                f.max("dep_delay").alias("dep_delay_max"),
                f.sum("arr_delay").alias("arr_delay_sum"),
            )
            .select(
                f.col("window.start").alias("window_start"),
                f.col("window.end").alias("window_end"),
                "carrier",
                "origin",
                "flights",
                "cancelled",
                "dep_delay_sum",
                "dep_delay_max",
                "arr_delay_sum",
            )
        )
    except AnalysisException:
        raise _no_interval(f"window ({window}) or the lateness ({late})") from None


def _interval(name: str, text: str, *, months: bool) -> float | None:
    try:
        return interval_microseconds(text, months=months)
    except ValueError as error:
        raise _no_interval(f"{name} ({text})", str(error)) from None


def _no_interval(what: str, why: str = "") -> WrongOptionError:
    because = f" ({why})" if why else ""
    return WrongOptionError(f"the {what} is no interval{because}: write it like '1 day' or '30 minutes'.")


def read_windows(spark: SparkSession, root: str) -> DataFrame:
    """The results in a table of this job, one row for each window, carrier and airport."""
    return read_table(spark, root)


def with_names(spark: SparkSession, rows: DataFrame) -> DataFrame:
    """The rows with the names of carriers and airports."""
    from pyspark.sql import functions as f

    carriers = _reference(spark, "airlines.csv").select("carrier", f.col("name").alias("carrier_name"))
    airports = _reference(spark, "airports.csv").select(f.col("faa").alias("origin"), f.col("name").alias("airport"))
    return rows.join(f.broadcast(carriers), "carrier", "left").join(f.broadcast(airports), "origin", "left")


def _reference(spark: SparkSession, name: str) -> DataFrame:
    return spark.read.option("header", "true").option("inferSchema", "true").csv(f"file://{data_file(name)}")


def _with_batch(rows: DataFrame, batch: int) -> DataFrame:
    """The rows of a batch, with the date of the window, by which the table is partitioned."""
    from pyspark.sql import functions as f

    return rows.withColumn("batch", f.lit(batch).cast("bigint")).withColumn("date", f.to_date("window_start"))


def _as_records(rows: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    start = f.date_format("window_start", "yyyy-MM-dd'T'HH:mm:ss'Z'")
    key = f.concat_ws("|", start, "carrier", "origin")
    return rows.select(key.alias("key"), f.to_json(f.struct(*rows.columns)).alias("value"))


def _names(names: Sequence[str]) -> str:
    return ", ".join(names)


@click.command(JOB, cls=Command)
@source_options
@click.option(
    "--output",
    "out",
    cls=Option,
    aliases=["--out"],
    required=True,
    help="The table's directory: a path or any URL that Hadoop knows.",
)
@click.option("--to", "to_topic", help="A compacted topic for the results, made when it is not there.")
@format_option(TRANSACTIONAL_FORMATS)
@click.option(
    "--value-format",
    type=click.Choice(["json", REGISTRY]),
    default="json",
    show_default=True,
    help="What values are: JSON, or what serializers of a registry write.",
)
@registry_option
@click.option("--window", default="1 day", show_default=True, help="How long a window is.")
@click.option("--late", default="2 days", show_default=True, help="How much later than the latest a flight may come.")
@click.option("--report", help="Write a page with plots here at the end.")
@spark_options
@report_errors
def command(**given: Any) -> None:
    """Delays of flights by carrier and airport, in windows of event time.

    \b
    Examples:
      raftwerk pipeline feed
      raftwerk pipeline run windows -t flights --output windows -e --report windows.html
    """
    topics, read_settings = take_source_options(given)
    run_settings = take_run_settings(given)
    elsewhere = [name for name in topics.options if name.lower().startswith("starting")]
    if read_settings.starting_offsets != "earliest" or elsewhere:
        raise WrongOptionError("windows tells what became of every record of its topic: it begins at earliest.")
    registry_url = take_registry(given, given["value_format"])
    options = WindowsOptions(
        given["out"], given["window"], given["late"], given["to_topic"], given["table_format"], registry_url
    )
    if options.to_topic is not None:
        if options.to_topic in topics.names:
            raise WrongOptionError(
                f"the results would go to {options.to_topic}, which is read: name another with --to."
            )
        replace(topics, names=(options.to_topic,)).check_names(writes=True)
    log, metrics = prepare_job(JOB, run_settings)
    check_local_output(options.out, JOB, identity_of(topics, options), run_settings.master)
    if given["report"] is not None:
        from ..pages.report_file import check_report

        check_report(given["report"])
    topics.check()
    with (
        locked(options.out, run_settings.master),
        reported(options.out, run_settings.master, topics, metrics) as status,
        run_settings.session(JOB, log, topics=topics, table_format=options.table_format) as (spark, stopping),
    ):
        status.on_spark(spark_page(spark), stopping)
        windows = Windows(spark, topics, options)
        log(f"windows: {_names(topics.names)} of {topics.bootstrap_servers} to {options.out}")
        windows.start(read_settings, log, metrics).follow(stopping)
        finish(windows, given["report"], as_json=run_settings.as_json)


def finish(windows: Windows, report: str | None, *, as_json: bool) -> None:
    """Print the counts, and write the report if a path is given."""
    counted = windows.counted()
    result: dict[str, Any] = {
        "read": counted.read,
        "counted": counted.counted,
        "late": counted.late,
        "unreadable": counted.unreadable,
    }
    if report is not None:
        from .windows_page import write_page

        write_page(report, with_names(windows.spark, windows.latest()), counted)
        result["report"] = report
    sentence = f"{counted.counted:,} flights counted, {counted.late:,} late, {counted.unreadable:,} unreadable"
    print_result(result, as_json=as_json, sentence=sentence)
    check_readable(counted, windows.topics.names)


def check_readable(counts: RecordCounts, topics: Sequence[str]) -> None:
    """Raise `PipelineError`, with the columns of a flight, when there were records and none of them was one."""
    if counts.read and counts.unreadable == counts.read:
        raise PipelineError(
            f"none of the {counts.read:,} records of {_names(topics)} is a flight: windows reads values in JSON with "
            f"an event_time like 2013-01-01T10:15:00Z and these columns: {SCHEMA}; raftwerk pipeline feed sends some."
        )
