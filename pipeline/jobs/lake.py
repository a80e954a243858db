"""`lake`: write topics to partitioned Parquet, exactly once.

Each record becomes a row with `topic`, `partition`, `offset`, `timestamp`, `date` (of the timestamp, UTC) and `key`;
its value is one column `value`, or, with a schema, a column for each field. A record that does not fit the schema stops
the job before its batch is written. With `--rejects` it becomes a row whose value is in the column `rejected`.

    raftwerk pipeline run lake -t flights --out /data/lake --schema 'carrier STRING, dep_delay DOUBLE'
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from ...cluster.command_line.commands import Command, Option
from ...cluster.command_line.plural import counted
from ..errors import WrongOptionError
from ..exactly_once_table import ParquetTable, check_local_table
from ..running_query import Metrics, ProgressLog, RunningQuery
from ..topics import Topics
from .ddl import field_names, not_ddl
from .job_command import (
    ReadSettings,
    prepare_job,
    print_result,
    report_errors,
    shorten_errors,
    source_options,
    spark_options,
    take_run_settings,
    take_source_options,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

JOB = "lake"
VALUE_FORMATS = ("binary", "string", "json", "csv")
_PLACE = ("topic", "partition", "offset", "timestamp", "date", "key")
_RAW = "_raw"
_DAMAGE = "_damage"
_REJECTED = "rejected"
_SHOWN_CHARS = 120


@dataclass(frozen=True, slots=True)
class LakeOptions:
    """The output directory and the form of the rows.

    `schema` is Spark's DDL for values in `json` or `csv`, None to keep values whole. Every `compact_every` batches (0
    for never) the files smaller than `small_bytes` are merged. `rejects`: keep records that do not fit, in the column
    `rejected`, instead of stopping.
    """

    out: str
    value_format: str = "binary"
    schema: str | None = None
    partition_by: tuple[str, ...] = ("topic", "date")
    compact_every: int = 20
    small_bytes: int = 32 << 20
    rejects: bool = False

    def __post_init__(self) -> None:
        if self.value_format not in VALUE_FORMATS:
            raise WrongOptionError(f"value format {self.value_format} is none of {', '.join(VALUE_FORMATS)}.")
        if (self.schema is not None) != (self.value_format in ("json", "csv")):
            raise WrongOptionError("a schema belongs to values in json or csv: name both --schema and --value-format.")
        names = ("value",) if self.schema is None else field_names(self.schema)
        columns = (*_PLACE, *names)
        taken = (*_PLACE, _RAW, _DAMAGE, *((_REJECTED,) if self.rejects else ()))
        if self.schema is not None:
            for name in (name for name in names if name.lower() in taken):  # Spark ignores the case of names
                raise WrongOptionError(f"the schema has a field {name}, which is a column of every lake: leave it out.")
        for name in self.partition_by:
            if name not in columns:
                raise WrongOptionError(f"there is no column {name} to partition by: there are {', '.join(columns)}.")
            if self.partition_by.count(name) > 1:
                raise WrongOptionError(f"column {name} is named twice to partition by: name it once.")
        if len(self.partition_by) == len(columns) and not self.rejects:
            raise WrongOptionError(
                "no column is left for the files if all are directories: partition by fewer of them."
            )


def identity_of(topics: Topics, options: LakeOptions) -> dict[str, Any]:
    """What the table of a run holds."""
    return {
        "topics": list(topics.names),
        "value format": options.value_format,
        "schema": options.schema,
        "partition columns": list(options.partition_by),
        "source": topics.format,
    }


class Lake:
    """The job for one output directory."""

    def __init__(self, spark: SparkSession, topics: Topics, options: LakeOptions) -> None:
        self.spark = spark
        self.topics = topics
        self.options = options
        self.table = ParquetTable(spark, options.out, JOB, identity_of(topics, options))
        self._batches = 0

    def start(self, read_settings: ReadSettings, log: ProgressLog, metrics: Metrics) -> RunningQuery:
        """Start the streaming query."""
        records = self.topics.read_stream(self.spark, read_settings.starting_offsets, read_settings.max_offsets)
        rows = self._rows(records)
        query = (
            rows.writeStream.queryName(JOB)
            .option("checkpointLocation", self.table.checkpoint)
            .trigger(**read_settings.trigger(self.topics))
            .foreachBatch(shorten_errors(self._on_batch))
            .start()
        )
        return read_settings.follow(JOB, query, self.topics, log, metrics)

    def _rows(self, records: DataFrame) -> DataFrame:
        """The rows of the lake. With a schema, two more columns hold the raw value and whether it does not fit."""
        from pyspark.sql import functions as f

        options = self.options
        place = [records[name] for name in ("topic", "partition", "offset", "timestamp")]
        date = f.to_date(records["timestamp"]).alias("date")
        if options.schema is None:
            value = records["value"].cast("string") if options.value_format == "string" else records["value"]
            return records.select(*place, date, records["key"], value.alias("value"))
        names = self._fields()
        parsed = self._parse(records["value"].cast("string"), options.schema)
        flat = records.select(*place, date, records["key"], records["value"].alias(_RAW), parsed.alias("_parsed"))
        fields = [f.col(f"_parsed.`{name}`").alias(name) for name in names]
        damage = f.col(_RAW).isNotNull() & (f.col("_parsed").isNull() | f.col(f"_parsed.{_DAMAGE}").isNotNull())
        return flat.select(*_PLACE, *fields, _RAW, damage.alias(_DAMAGE))

    def _parse(self, text: Column, schema: str) -> Column:
        from pyspark.sql import functions as f

        how = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _DAMAGE}
        whole = f"{schema}, {_DAMAGE} STRING"
        return f.from_json(text, whole, how) if self.options.value_format == "json" else f.from_csv(text, whole, how)

    def _fields(self) -> list[str]:
        from pyspark.errors import ParseException
        from pyspark.sql.types import StructType

        try:
            return [field.name for field in StructType.fromDDL(str(self.options.schema))]  # type: ignore[attr-defined]
        except ParseException as error:
            raise not_ddl(str(error).strip().splitlines()[0]) from None

    def _on_batch(self, rows: DataFrame, batch: int) -> None:
        from pyspark.sql import Observation
        from pyspark.sql import functions as f

        if self.table.committed(batch):
            return
        seen = Observation()
        if self.options.schema is not None:
            rows = self._refuse_damaged(rows)
        observed = rows.observe(seen, f.count(f.lit(1)).alias("rows"))
        self.table.commit(batch, observed, self.options.partition_by, lambda: {"rows": seen.get["rows"]})
        self._batches += 1
        if self.options.compact_every and self._batches % self.options.compact_every == 0:
            self.table.compact(self.options.small_bytes)

    def _refuse_damaged(self, rows: DataFrame) -> DataFrame:
        """Move records that do not fit to the column `rejected`, or fail the batch and name the record."""
        from pyspark.sql import functions as f

        good = rows.where(~f.col(_DAMAGE)).drop(_RAW, _DAMAGE)
        if self.options.rejects:
            keep = f.when(f.col(_DAMAGE), f.col(_RAW)).alias(_REJECTED)
            return rows.select(*good.columns, keep)
        where = f.format_string("%s-%d offset %d", "topic", "partition", "offset")
        what = f.substring(f.col(_RAW).cast("string"), 1, _SHOWN_CHARS)
        sentence = f.concat(
            f.lit("the record at "),
            where,
            f.lit(f" does not fit the schema ({self.options.schema}): "),
            what,
            f.lit(" - keep such records apart with --rejects, or begin another output with a schema that fits."),
        )
        fine = f.when(f.col(_DAMAGE), f.raise_error(sentence).cast("boolean")).otherwise(f.lit(True))
        return rows.where(fine).drop(_RAW, _DAMAGE)


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
    help="What values are: bytes as they are, text, or rows of a schema.",
)
@click.option("--schema", help="Fields of json or csv values, such as 'carrier STRING, dep_delay DOUBLE'.")
@click.option("--partition-by", default="topic,date", show_default=True, help="Columns that become directories.")
@click.option(
    "--compact-every",
    default=20,
    show_default=True,
    type=click.IntRange(min=0),
    help="Merge small files after so many batches; 0 for never.",
)
@click.option(
    "--small-mb", default=32, show_default=True, type=click.IntRange(min=0), help="A file below this is small."
)
@click.option("--rejects", is_flag=True, help="Keep a record that does not fit, in the column `rejected`.")
@spark_options
@report_errors
def command(**given: Any) -> None:
    """Copy topics to partitioned Parquet, exactly once. Small files are merged.

    \b
    Examples:
      raftwerk pipeline run lake -t flights --output lake -e
      raftwerk pipeline run lake -t flights --output lake2 --value-format json --schema 'carrier STRING'
    """
    topics, read_settings = take_source_options(given)
    run_settings = take_run_settings(given)
    options = LakeOptions(
        given["out"],
        given["value_format"],
        given["schema"],
        tuple(name.strip() for name in given["partition_by"].split(",") if name.strip()),
        given["compact_every"],
        given["small_mb"] << 20,
        given["rejects"],
    )
    log, metrics = prepare_job(JOB, run_settings)
    check_local_table(options.out, JOB, identity_of(topics, options), run_settings.master)
    topics.check()
    with run_settings.session(JOB, kafka_connector=topics.format == "kafka") as (spark, stopping):
        lake = Lake(spark, topics, options)
        log(f"lake: {', '.join(topics.names)} of {topics.bootstrap_servers} to {options.out}")
        lake.start(read_settings, log, metrics).follow(stopping)
        state = lake.table.state
        result = {"rows": state.facts.get("rows", 0), "files": len(state.files), "last_batch": state.last_batch}
        last = f", batch {state.last_batch}" if state.last_batch >= 0 else ""
        sentence = f"{counted(result['rows'], 'row')} in {counted(result['files'], 'file')}{last}"
        print_result(result, as_json=run_settings.as_json, sentence=sentence)
