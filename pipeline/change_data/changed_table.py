"""A table that follows a table of a database: micro-batches of changes are merged into it, each once.

A batch that Spark repeats is in the table already, which the table's format knows by the batch's number. What a
connector repeats after a crash is known by the position in the database's log that each row keeps in `_position`; of
deleted rows, and of the last truncation, a table beside it keeps the position for a time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, timedelta
from typing import TYPE_CHECKING, Any, cast

from ..errors import PipelineError
from ..lakehouse.partition_fields import PartitionField, quoted
from ..lakehouse.table import MaintainedTable, StreamBatch, fitted
from .change_event import DELETE, TOMBSTONE, TRUNCATE, UPSERT
from .change_rows import (
    LOG_POSITION,
    OPERATION,
    OWN_COLUMNS,
    POSITION,
    TIMESTAMP,
    UNAVAILABLE,
    BatchContent,
    content_of,
    ddl_of_columns,
    last_changes,
    merge_clauses,
    read_changes,
    sql_text,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructField, StructType

_DELETED_AT = "_deleted_at"
_TRUNCATED = "_truncated"
"""Whether it is a truncation that is remembered, which has no key; null for a deletion."""
_FORGET_BATCHES = 100
"""After so many batches, old deletions are forgotten."""


@dataclass(frozen=True, slots=True)
class ChangeSettings:
    """How changes are applied.

    `columns` in Spark's DDL are for records without a schema. With `by_log`, changes are ordered by the database's log,
    otherwise by the topic alone. A deletion is remembered for the time `remember`. `unlogged_is_null`: a value that the
    database did not log becomes null where there is no earlier row to keep it from, instead of stopping. With the URL
    of a registry, records are in Avro, otherwise in JSON.
    """

    columns: str | None = None
    partition_by: tuple[PartitionField, ...] = ()
    by_log: bool = True
    remember: timedelta = timedelta(days=7)
    unlogged_is_null: bool = False
    registry_url: str | None = None


class ChangedTable:
    """The table, and the table of its deleted rows, open for their only writer.

    `log` is told of changed columns. `partitions` tells how many partitions each of the topics has.
    """

    def __init__(
        self,
        spark: SparkSession,
        table: MaintainedTable,
        deleted: MaintainedTable,
        settings: ChangeSettings,
        log: Callable[[str], None],
        partitions: Callable[[], Mapping[str, int]],
    ) -> None:
        self._spark = spark
        self._table = table
        self._deleted = deleted
        self._settings = settings
        self._log = log
        self._partitions = partitions
        self._prepared: tuple[StructType, tuple[str, ...], bool] | None = None

    def apply(self, records: DataFrame, batch: StreamBatch) -> None:
        """Merge the changes in these records. `PipelineError` for what is no change, and then nothing is changed."""
        settings = self._settings
        changes = read_changes(records, by_log=settings.by_log, registry_url=settings.registry_url).persist()
        try:
            content = content_of(changes)
            if content.truncated_at is not None:
                self._check_truncation()
            if content.key:
                self._merge(changes, content, batch)
            elif content.truncated_at is not None:
                self._truncate(changes, content.truncated_at, batch)
        finally:
            changes.unpersist()
        if batch.number % _FORGET_BATCHES == 0:
            self._forget()

    def _merge(self, changes: DataFrame, content: BatchContent, batch: StreamBatch) -> None:
        self._prepare(content)
        is_made = self._table.exists()
        row_type = self._table.read().drop(POSITION).schema if is_made else self._schema(content)
        last = self._without_what_is_gone(last_changes(changes, row_type, content), content.key)
        last = apart_from_tables(last).persist()
        try:
            if content.has_unavailable and not self._settings.unlogged_is_null:
                self._check_unlogged(last, content.key)
            # Remembered first: after a crash between the two, the batch deletes the rows when it is repeated.
            if content.operations & {DELETE, TOMBSTONE, TRUNCATE}:
                gone = _deletions(last, content.key).unionByName(_truncation(changes), allowMissingColumns=True)
                self._remember(gone, batch)
            if is_made:
                clauses = merge_clauses(row_type.names, content)
                self._table.merge(last.drop(TIMESTAMP), content.key, batch, clauses)
        finally:
            last.unpersist()

    def _truncate(self, changes: DataFrame, truncated_at: str, batch: StreamBatch) -> None:
        """Delete all earlier rows, in a micro-batch that has no others."""
        self._prepare_deleted(())
        self._remember(_truncation(changes), batch)
        if self._table.exists():
            self._spark.sql(f"DELETE FROM {self._table.name} WHERE {POSITION} < {sql_text(truncated_at)}")

    def _check_truncation(self) -> None:
        """`PipelineError` where nobody knows which rows went by a truncation."""
        partitions = self._partitions()
        if len(partitions) > 1:
            raise PipelineError(
                f"a table was truncated, and the rows of {len(partitions)} topics are together in this output, which "
                "does not know from which of them a row came: begin an output for each topic."
            )
        if not self._settings.by_log and sum(partitions.values()) > 1:
            raise PipelineError(
                "the table was truncated, and the order of a topic with several partitions does not tell which of "
                "its rows are earlier: begin another output with --order log, or with a topic of one partition."
            )

    def _schema(self, content: BatchContent) -> StructType:
        """The columns of these changes, which are those of the key where all are deletions without --schema."""
        from pyspark.sql.types import StructType

        ddl = self._settings.columns or ddl_of_columns(content.columns)
        if ddl is None:
            raise PipelineError(
                "the records carry no schema: name the columns of the table with --schema, or let Debezium's converter "
                "write it (value.converter.schemas.enable=true, and the same for the key)."
            )
        return cast("StructType", StructType.fromDDL(ddl))  # of columns, as --schema was checked

    def _prepare(self, content: BatchContent) -> None:
        """Give both tables the columns of these changes. Deletions alone make no table, as they have only the key's."""
        schema = self._schema(content)
        has_all_columns = self._settings.columns is not None or UPSERT in content.operations
        wanted = (schema, content.key, has_all_columns)
        if self._prepared == wanted:
            return
        for name in (name for name in schema.names if name.lower() in OWN_COLUMNS):
            raise PipelineError(f"the rows have a column {name}, a name that this job needs for itself: rename it.")
        for name in (name for name in content.key if name not in schema.names):
            raise PipelineError(f"the key of the records has a column {name}, which --schema does not name: add it.")
        if has_all_columns:
            for change in self._table.prepare(_with_position(schema.fields), self._settings.partition_by):
                self._log(change)
        self._prepare_deleted([field for field in schema.fields if field.name in content.key])
        self._prepared = wanted

    def _prepare_deleted(self, key_columns: Sequence[StructField]) -> None:
        schema = _with_position(key_columns).add(_DELETED_AT, "timestamp").add(_TRUNCATED, "boolean")
        self._deleted.prepare(schema, ())

    def _without_what_is_gone(self, last: DataFrame, key: Sequence[str]) -> DataFrame:
        """The changes but for those of rows of which a later deletion, or truncation, is remembered."""
        from pyspark.sql import functions as f

        remembered = self._deleted.read()
        later = f.col(POSITION).alias("_later")
        names = {name: f"_key_{at}" for at, name in enumerate(key)}
        aliases = [f.col(quoted(name)).alias(alias) for name, alias in names.items()]
        deleted = remembered.where(f"{_TRUNCATED} IS NULL").select(*aliases, later)
        same = [last[quoted(name)].eqNullSafe(deleted[alias]) for name, alias in names.items()]
        kept = last.join(deleted, [*same, last[LOG_POSITION] < deleted["_later"]], "left_anti")
        truncation = remembered.where(_TRUNCATED).select(later)
        return kept.join(f.broadcast(truncation), kept[LOG_POSITION] < truncation["_later"], "left_anti")

    def _check_unlogged(self, last: DataFrame, key: Sequence[str]) -> None:
        """`PipelineError` for a row with an unavailable value that the table does not have."""
        rows = last.where(f"{OPERATION} = '{UPSERT}' AND size({UNAVAILABLE}) > 0")
        there = self._table.read()
        same = [rows[quoted(name)].eqNullSafe(there[quoted(name)]) for name in key]
        for row in rows.join(there, same, "left_anti").limit(1).collect():
            which = ", ".join(f"{name} {row[name]}" for name in key)
            raise PipelineError(
                f"the row with {which} has no value of {', '.join(row[UNAVAILABLE])}, which PostgreSQL did not log, "
                "and the table has no earlier row to keep it from (its primary key was changed, or records before are "
                "gone): with --unlogged null it becomes null; REPLICA IDENTITY FULL logs such values from then on."
            )

    def _remember(self, gone: DataFrame, batch: StreamBatch) -> None:
        """Note these deletions and truncations, unless places in the topic stand for their positions in the log."""
        if not self._settings.by_log:
            return
        rows = apart_from_tables(fitted(gone, self._deleted.columns()))
        key = [name for name in rows.columns if name not in (POSITION, _DELETED_AT)]
        later = f"WHEN MATCHED AND u.{POSITION} > t.{POSITION} THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        self._deleted.merge(rows, key, batch, later)

    def _forget(self) -> None:
        """Forget deletions that are older than those of this time before the newest."""
        from pyspark.sql import functions as f

        if not self._deleted.exists():
            return
        (newest,) = self._deleted.read().agg(f.max(_DELETED_AT)).collect()[0]
        if newest is not None:
            before = (newest - self._settings.remember).astimezone(UTC)
            where = f"{_DELETED_AT} < TIMESTAMP '{before:%Y-%m-%d %H:%M:%S.%f}Z'"
            self._spark.sql(f"DELETE FROM {self._deleted.name} WHERE {where}")


def apart_from_tables(rows: DataFrame) -> DataFrame:
    """The same rows with a plan that names no table: what becomes of the tables later does not change them.

    Spark 4.1 resolves the tables of a temporary view again whenever the view is used, and cannot plan Iceberg's tables
    that way.
    """
    session: Any = rows.sparkSession
    java = session._jsparkSession.createDataFrame(rows._jdf.toJavaRDD(), rows._jdf.schema())
    return type(rows)(java, session)


def _deletions(last: DataFrame, key: Sequence[str]) -> DataFrame:
    """What is remembered of the deletions in the last changes."""
    deletions = last.where(f"{OPERATION} = '{DELETE}' AND {POSITION} IS NOT NULL")
    return deletions.selectExpr(*map(quoted, key), POSITION, f"{TIMESTAMP} AS {_DELETED_AT}")


def _truncation(changes: DataFrame) -> DataFrame:
    """What is remembered of the last truncation in a micro-batch; no row where there is none."""
    from pyspark.sql import functions as f

    truncations = changes.where(f.col("operation") == TRUNCATE)
    last = truncations.agg(f.max("position").alias(POSITION), f.max("timestamp").alias(_DELETED_AT))
    return last.where(f.col(POSITION).isNotNull()).withColumn(_TRUNCATED, f.lit(True))


def _with_position(columns: Sequence[StructField]) -> StructType:
    from pyspark.sql.types import StringType, StructType

    return StructType([*columns]).add(POSITION, StringType())
