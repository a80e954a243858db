"""`lake`: write topics to a table in an open format, exactly once.

Each record becomes a row with `topic`, `partition`, `offset`, `timestamp`, `date` (of the timestamp, UTC) and `key`;
its value is one column `value`, or, with a schema that is given or a registry's, a column for each field. A record that
does not fit the schema stops the job before its batch is written. With `--rejects` it becomes a row whose value is in
the column `rejected`.

The format's own streaming sink appends each micro-batch in one transaction, which names the query and the batch, so
that a batch that Spark repeats is in the table once (`lakehouse`). When the job starts again with other fields or other
partitions, the table follows. While the job runs, it merges small files and forgets old snapshots.

    raftwerk pipeline run lake -t flights --out /data/lake --schema 'carrier STRING, dep_delay DOUBLE'
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

from ...cluster.command_line.commands import Command, Option
from ...cluster.command_line.plural import counted
from ..errors import WrongOptionError
from ..lakehouse.open_table import maintained, open_table
from ..lakehouse.partition_fields import PartitionField, check_fields, parse_fields, plain_columns, quoted
from ..lakehouse.table import fitted
from ..lakehouse.table_format import TABLE_FORMATS
from ..lakehouse.table_maintenance import MaintenanceSettings, TableMaintenance
from ..output_directory import OutputDirectory, check_local_output, locked
from ..running_query import Metrics, ProgressLog, RunningQuery
from ..status.status_file import reported
from ..topics import Topics
from ..typed_values import REGISTRY
from ..typed_values.registry_values import json_texts, registered_columns
from ..typed_values.spark_types import ddl_of
from .ddl import field_names, not_ddl, without_colons
from .job_command import (
    ReadSettings,
    format_option,
    maintenance_options,
    prepare_job,
    print_result,
    registry_option,
    report_errors,
    source_options,
    spark_options,
    spark_page,
    take_maintenance,
    take_registry,
    take_run_settings,
    take_source_options,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

JOB = "lake"
VALUE_FORMATS = ("binary", "string", "json", "csv", REGISTRY)
_WITH_SCHEMA = ("json", "csv", REGISTRY)
_PLACE = ("topic", "partition", "offset", "timestamp", "date", "key")
_RAW = "_raw"
_DAMAGE = "_damage"
_REJECTED = "rejected"
_SHOWN_CHARS = 120


@dataclass(frozen=True, slots=True)
class LakeOptions:
    """The output directory, its format and the form of the rows.

    `schema` is Spark's DDL for values in `json`, `csv` or `registry`, None to keep values whole. `registry_url` is that
    of the last, and `schema_is_registered` whether the schema is the registry's own. `partition_by` names columns, or
    transforms of them. `rejects`: keep records that do not fit, in the column `rejected`, instead of stopping.
    """

    out: str
    value_format: str = "binary"
    schema: str | None = None
    partition_by: tuple[str, ...] = ("topic", "date")
    table_format: str = TABLE_FORMATS[0]
    rejects: bool = False
    maintenance: MaintenanceSettings = field(default_factory=MaintenanceSettings)
    registry_url: str | None = None
    schema_is_registered: bool = False

    def __post_init__(self) -> None:
        if self.value_format not in VALUE_FORMATS:
            raise WrongOptionError(f"value format {self.value_format} is none of {', '.join(VALUE_FORMATS)}.")
        if (self.schema is not None) != (self.value_format in _WITH_SCHEMA):
            raise WrongOptionError(
                f"--value-format {self.value_format} needs --schema, such as 'carrier STRING, delay INT'."
                if self.schema is None
                else f"--schema belongs to values in {' or '.join(_WITH_SCHEMA)}: name one as --value-format."
            )
        names = ("value",) if self.schema is None else field_names(self.schema)
        columns = (*_PLACE, *names)
        taken = (*_PLACE, _RAW, _DAMAGE, *((_REJECTED,) if self.rejects else ()))
        if self.schema is not None:
            for name in (name for name in names if name.lower() in taken):  # Spark ignores the case of names
                raise WrongOptionError(f"the schema has a field {name}, which is a column of every lake: leave it out.")
        fields = self.partition_fields
        check_fields(fields, columns)
        if self.table_format == "iceberg":  # it keeps all columns in its files
            return
        if len(plain_columns(fields, self.table_format)) == len(columns) and not self.rejects:
            raise WrongOptionError(
                "no column is left for the files if all are directories: partition by fewer of them."
            )

    @property
    def partition_fields(self) -> tuple[PartitionField, ...]:
        """What the table is partitioned by."""
        return parse_fields(",".join(self.partition_by))


def identity_of(topics: Topics, options: LakeOptions) -> dict[str, Any]:
    """What the table of a run holds, and what only Parquet files cannot change."""
    identity: dict[str, Any] = {
        "topics": list(topics.names),
        "table format": options.table_format,
        "value format": options.value_format,
    }
    if options.table_format == "parquet":
        identity |= {"schema": options.schema, "partition columns": list(options.partition_by)}
    return identity


class Lake:
    """The job for one output directory."""

    def __init__(self, spark: SparkSession, topics: Topics, options: LakeOptions) -> None:
        self.spark = spark
        self.topics = topics
        self.options = options
        self.table = open_table(spark, options.out, options.table_format)
        self.output = OutputDirectory(spark, options.out, JOB, identity_of(topics, options), self.table.is_written)

    def start(self, read_settings: ReadSettings, log: ProgressLog, metrics: Metrics) -> RunningQuery:
        """Start the streaming query."""
        records = self.topics.read_stream(self.spark, read_settings.starting_offsets, read_settings.max_offsets)
        rows = self._rows(records)
        for change in self.table.prepare(rows.schema, self.options.partition_fields):
            log(f"{JOB}: {change}")
        query = self.table.start(
            fitted(rows, self.table.columns())
            .writeStream.queryName(JOB)
            .option("checkpointLocation", self.output.checkpoint)
            .trigger(**read_settings.trigger(self.topics))
        )
        return read_settings.follow(JOB, query, self.topics, log, metrics, self._maintenance(log))

    def _maintenance(self, log: ProgressLog) -> TableMaintenance | None:
        table = maintained(self.table)
        return None if table is None else TableMaintenance(table, self.options.maintenance, log)

    def _rows(self, records: DataFrame) -> DataFrame:
        """The rows of the lake. Where a record does not fit the schema, its batch fails, or it is kept apart."""
        from pyspark.sql import functions as f

        options = self.options
        place = [records[name] for name in ("topic", "partition", "offset", "timestamp")]
        date = f.to_date(records["timestamp"]).alias("date")
        if options.schema is None:
            value = records["value"].cast("string") if options.value_format == "string" else records["value"]
            return records.select(*place, date, records["key"], value.alias("value"))
        names = self._fields()
        parsed = self._parse(self._text(records["value"], names), options.schema)
        flat = records.select(*place, date, records["key"], records["value"].alias(_RAW), parsed.alias("_parsed"))
        fields = [f.col(f"_parsed.{quoted(name)}").alias(name) for name in names]
        damage = f.col(_RAW).isNotNull() & (f.col("_parsed").isNull() | f.col(f"_parsed.{_DAMAGE}").isNotNull())
        return self._refuse_damaged(flat.select(*_PLACE, *fields, _RAW, damage.alias(_DAMAGE)))

    def _text(self, value: Column, names: list[str]) -> Column:
        url = self.options.registry_url
        if url is None:
            return value.cast("string")
        return json_texts(value, url, names if self.options.schema_is_registered else None)

    def _parse(self, text: Column, schema: str) -> Column:
        from pyspark.sql import functions as f

        how = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _DAMAGE}
        whole = f"{without_colons(schema)}, {_DAMAGE} STRING"
        return f.from_csv(text, whole, how) if self.options.value_format == "csv" else f.from_json(text, whole, how)

    def _fields(self) -> list[str]:
        from pyspark.errors import ParseException
        from pyspark.sql.types import StructType

        try:
            return [field.name for field in StructType.fromDDL(str(self.options.schema))]  # type: ignore[attr-defined]
        except ParseException as error:
            raise not_ddl(str(error).strip().splitlines()[0]) from None

    def _refuse_damaged(self, rows: DataFrame) -> DataFrame:
        """Move records that do not fit to the column `rejected`, or fail the batch and name the record."""
        from pyspark.sql import functions as f

        good = rows.where(~f.col(_DAMAGE)).drop(_RAW, _DAMAGE)
        if self.options.rejects:
            keep = f.when(f.col(_DAMAGE), f.col(_RAW)).alias(_REJECTED)
            return rows.select(*map(quoted, good.columns), keep)
        where = f.format_string("%s-%d offset %d", "topic", "partition", "offset")
        what = f.substring(f.col(_RAW).cast("string"), 1, _SHOWN_CHARS)
        sentence = f.concat(
            f.lit("the record at "),
            where,
            f.lit(f" does not fit the schema ({self.options.schema}): "),
            self._misfits(good.columns),
            what,
            f.lit(
                " - keep such records apart with --rejects, or correct the schema, in another --output if it has rows."
            ),
        )
        fine = f.when(f.col(_DAMAGE), f.raise_error(sentence).cast("boolean")).otherwise(f.lit(True))
        return rows.where(fine).drop(_RAW, _DAMAGE)

    def _misfits(self, columns: list[str]) -> Column:
        """The fields of a JSON record that could not be read as their columns' types, each with its value; else ''."""
        from pyspark.sql import functions as f

        if self.options.value_format != "json":
            return f.lit("")
        given = f.from_json(f.col(_RAW).cast("string"), "MAP<STRING, STRING>")
        unread = f.array(*(f.when(f.col(quoted(name)).isNull(), f.lit(name)) for name in columns))
        misfits = f.filter(unread, lambda name: given[name].isNotNull())
        told = f.transform(misfits, lambda name: f.concat(name, f.lit(" is "), given[name]))
        return f.when(f.size(told) > 0, f.concat(f.concat_ws(", ", told), f.lit(", in "))).otherwise(f.lit(""))


@click.command(JOB, cls=Command)
@source_options
@click.option(
    "--output",
    "out",
    cls=Option,
    aliases=["--out"],
    required=True,
    help="The lake's directory: a path or any URL that Hadoop knows.",
)
@click.option(
    "--value-format",
    type=click.Choice(VALUE_FORMATS),
    default="binary",
    show_default=True,
    help="What values are: bytes as they are, text, rows of a schema, or what serializers of a registry write.",
)
@click.option(
    "--schema",
    help="Fields of values, such as 'carrier STRING, dep_delay DOUBLE'; with registry those of the latest schema are "
    "the default.",
)
@registry_option
@format_option(TABLE_FORMATS)
@click.option(
    "--partition-by",
    default="topic,date",
    show_default=True,
    help="Columns, or with iceberg transforms of them, such as 'bucket(16, key)'.",
)
@maintenance_options
@click.option("--rejects", is_flag=True, help="Keep a record that does not fit, in the column `rejected`.")
@spark_options
@report_errors
def command(**given: Any) -> None:
    """Copy topics to a table, exactly once. Small files are merged.

    \b
    Examples:
      raftwerk pipeline run lake -t flights --output lake -e
      raftwerk pipeline run lake -t flights --output lake2 --value-format json --schema 'carrier STRING'
      raftwerk pipeline run lake -t flights --output lake3 --format delta
      raftwerk pipeline run lake -t orders --output lake4 --value-format registry --registry http://localhost:8081
    """
    topics, read_settings = take_source_options(given)
    run_settings = take_run_settings(given)
    registry_url = take_registry(given, given["value_format"])
    schema, is_registered = given["schema"], registry_url is not None and given["schema"] is None
    if registry_url is not None and is_registered:
        schema = ddl_of(registered_columns(registry_url, topics.names))
    options = LakeOptions(
        given["out"],
        given["value_format"],
        schema,
        tuple(str(one) for one in parse_fields(given["partition_by"])),
        given["table_format"],
        given["rejects"],
        take_maintenance(given),
        registry_url,
        is_registered,
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
        lake = Lake(spark, topics, options)
        log(f"lake: {', '.join(topics.names)} of {topics.bootstrap_servers} to {options.out}")
        lake.start(read_settings, log, metrics).follow(stopping)
        batch = lake.output.last_batch()
        result = {"rows": lake.table.row_count(), "files": lake.table.file_count(), "last_batch": batch}
        last = f", batch {batch}" if batch >= 0 else ""
        sentence = f"{counted(result['rows'], 'row')} in {counted(result['files'], 'file')}{last}"
        print_result(result, as_json=run_settings.as_json, sentence=sentence)
