"""`changes`: keep a table equal to a table of a database, by the changes that Debezium writes to topics.

Inserted, updated and deleted rows, truncation and new columns are applied by one MERGE for each micro-batch, exactly
once. What a connector sends again after a crash changes nothing, as each row has its position in the database's log
(`change_data`). The key of the table is that of the records.

    raftwerk pipeline run changes -t shop.public.orders --output /data/orders
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

from ...cluster.command_line.commands import Command, Option
from ...cluster.command_line.plural import counted
from ..change_data.change_rows import OWN_COLUMNS
from ..change_data.changed_table import ChangedTable, ChangeSettings
from ..errors import WrongOptionError
from ..lakehouse.open_table import open_maintained
from ..lakehouse.partition_fields import check_fields, parse_fields, plain_columns
from ..lakehouse.table import StreamBatch
from ..lakehouse.table_format import TRANSACTIONAL_FORMATS
from ..lakehouse.table_maintenance import MaintenanceSettings, TableMaintenance
from ..output_directory import DELETED, OutputDirectory, check_local_output, locked
from ..running_query import Metrics, ProgressLog, RunningQuery
from ..status.status_file import reported
from ..topics import Topics
from ..typed_values import REGISTRY
from .ddl import field_names
from .intervals import parse_retention
from .job_command import (
    ReadSettings,
    format_option,
    maintenance_options,
    prepare_job,
    print_result,
    registry_option,
    report_errors,
    shorten_errors,
    source_options,
    spark_options,
    spark_page,
    take_maintenance,
    take_registry,
    take_run_settings,
    take_source_options,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

JOB = "changes"
ORDERS = ("log", "topic")
_FORMATS = ("json", REGISTRY)
_UNLOGGED = ("stop", "null")


@dataclass(frozen=True, slots=True)
class ChangesOptions:
    """The output directory, its format, and how changes are applied to the table there."""

    out: str
    table_format: str = TRANSACTIONAL_FORMATS[0]
    settings: ChangeSettings = field(default_factory=ChangeSettings)
    maintenance: MaintenanceSettings = field(default_factory=MaintenanceSettings)

    def __post_init__(self) -> None:
        fields = self.settings.partition_by
        if self.table_format == "delta":
            plain_columns(fields, self.table_format)
        if self.settings.columns is None:
            return
        names = field_names(self.settings.columns)
        check_fields(fields, names)
        for name in (name for name in names if name.lower() in OWN_COLUMNS):
            raise WrongOptionError(
                f"the schema has a field {name}, a name that this job needs for itself: leave it out."
            )


def identity_of(topics: Topics, options: ChangesOptions) -> dict[str, Any]:
    """What the table of a run holds."""
    return {
        "topics": list(topics.names),
        "table format": options.table_format,
        "order": ORDERS[0 if options.settings.by_log else 1],
    }


class Changes:
    """The job for one output directory."""

    def __init__(self, spark: SparkSession, topics: Topics, options: ChangesOptions) -> None:
        self.spark = spark
        self.topics = topics
        self.options = options
        self.table = open_maintained(spark, options.out, options.table_format)
        self.output = OutputDirectory(spark, options.out, JOB, identity_of(topics, options), self.table.is_written)
        self.deleted = open_maintained(spark, self.output.files.full(DELETED), options.table_format)

    def start(self, read_settings: ReadSettings, log: ProgressLog, metrics: Metrics) -> RunningQuery:
        """Start the streaming query."""

        def say(change: str) -> None:
            log(f"{JOB}: {change}")

        settings = self.options.settings
        changed = ChangedTable(self.spark, self.table, self.deleted, settings, say, self.topics.partitions)
        tables = [TableMaintenance(one, self.options.maintenance, log) for one in (self.table, self.deleted)]

        def on_batch(records: DataFrame, batch: int) -> None:
            changed.apply(records, StreamBatch(self.output.query_id(), batch))
            for one in tables:
                one(1)

        records = self.topics.read_stream(self.spark, read_settings.starting_offsets, read_settings.max_offsets)
        query = (
            records.writeStream.queryName(JOB)
            .option("checkpointLocation", self.output.checkpoint)
            .trigger(**read_settings.trigger(self.topics))
            .foreachBatch(shorten_errors(on_batch))
            .start()
        )
        return read_settings.follow(JOB, query, self.topics, log, metrics)


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
@click.option(
    "--schema",
    help="The columns, such as 'id BIGINT, name STRING', for records that carry no schema of their own.",
)
@click.option(
    "--value-format",
    type=click.Choice(_FORMATS),
    default=_FORMATS[0],
    show_default=True,
    help="What Connect's converter writes for keys and values: JSON, or Avro by the schemas of a registry.",
)
@registry_option
@format_option(TRANSACTIONAL_FORMATS)
@click.option(
    "--partition-by",
    default="",
    help="Columns of the rows, or with iceberg transforms of them, such as 'bucket(16, id)'; default: none.",
)
@click.option(
    "--order",
    type=click.Choice(ORDERS),
    default=ORDERS[0],
    show_default=True,
    help="Which of two changes of a row is later: by the database's log, or by the topic alone.",
)
@click.option(
    "--unlogged",
    type=click.Choice(_UNLOGGED),
    default=_UNLOGGED[0],
    show_default=True,
    help="What a large value becomes that PostgreSQL did not log, if there is no earlier row to keep it from.",
)
@click.option(
    "--remember",
    default="7 days",
    show_default=True,
    help="How long the position of a deletion is kept, against changes that arrive after it once more.",
)
@maintenance_options
@spark_options
@report_errors
def command(**given: Any) -> None:
    """Keep a table equal to a database's, by Debezium's changes, exactly once.

    Records are JSON as Kafka Connect's JsonConverter writes it, best with its schemas, or Avro: new columns are added.

    \b
    Examples:
      raftwerk pipeline run changes -t shop.public.orders --output orders -e
      raftwerk pipeline run changes -t shop.public.orders --output orders2 --format delta
      raftwerk pipeline run changes -t shop.public.orders --output orders3 --schema 'id BIGINT, state STRING'
      raftwerk pipeline run changes -t shop.public.orders --output orders4 --value-format registry --registry URL
    """
    topics, read_settings = take_source_options(given)
    run_settings = take_run_settings(given)
    options = ChangesOptions(
        given["out"],
        given["table_format"],
        ChangeSettings(
            given["schema"],
            tuple(parse_fields(given["partition_by"])),
            given["order"] == ORDERS[0],
            parse_retention(given["remember"], "to remember deletions"),
            given["unlogged"] == _UNLOGGED[1],
            take_registry(given, given["value_format"]),
        ),
        take_maintenance(given),
    )
    log, metrics = prepare_job(JOB, run_settings)
    check_local_output(options.out, JOB, identity_of(topics, options), run_settings.master)
    topics.check()
    with (
        locked(options.out, run_settings.master),
        reported(options.out, run_settings.master, topics, metrics) as status,
        run_settings.session(JOB, log, topics=topics, table_format=options.table_format) as (spark, stopping),
    ):
        status.on_spark(spark_page(spark), stopping)
        job = Changes(spark, topics, options)
        log(f"{JOB}: {', '.join(topics.names)} of {topics.bootstrap_servers} to {options.out}")
        job.start(read_settings, log, metrics).follow(stopping)
        batch = job.output.last_batch()
        rows = job.table.row_count() if job.table.exists() else 0
        last = f", batch {batch}" if batch >= 0 else ""
        print_result(
            {"rows": rows, "last_batch": batch},
            as_json=run_settings.as_json,
            sentence=f"{counted(rows, 'row')} in {options.out}{last}",
        )
