"""A table that follows a table of a database: micro-batches of changes are merged into it, each once.

A batch that Spark repeats is in the table already, which the table's format knows by the batch's number. What a
connector repeats after a crash is known by the position in the database's log that each row keeps in `_position`; of
deleted rows, a table beside it keeps the position for a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, timedelta
from typing import TYPE_CHECKING, Any, cast

from ..errors import PipelineError
from ..lakehouse.partition_fields import PartitionField, quoted
from ..lakehouse.table import MaintainedTable, StreamBatch
from .change_event import DELETE, TOMBSTONE, UPSERT
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
    """The table, and the table of its deleted rows, open for their only writer. `log` is told of changed columns."""

    def __init__(
        self,
        spark: SparkSession,
        table: MaintainedTable,
        deleted: MaintainedTable,
        settings: ChangeSettings,
        log: Callable[[str], None],
    ) -> None:
        self._spark = spark
        self._table = table
        self._deleted = deleted
        self._settings = settings
        self._log = log
        self._prepared: tuple[str, tuple[str, ...]] | None = None

    def apply(self, records: DataFrame, batch: StreamBatch) -> None:
        """Merge the changes in these records. `PipelineError` for what is no change, and then nothing is changed."""
        settings = self._settings
        changes = read_changes(records, by_log=settings.by_log, registry_url=settings.registry_url).persist()
        try:
            content = content_of(changes)
            if content.key:
                self._merge(changes, content, batch)
            elif content.truncated_at is not None and self._table.exists():
                where = f"{POSITION} < {sql_text(content.truncated_at)}"
                self._spark.sql(f"DELETE FROM {self._table.name} WHERE {where}")
        finally:
            changes.unpersist()
        if batch.number % _FORGET_BATCHES == 0:
            self._forget()

    def _merge(self, changes: DataFrame, content: BatchContent, batch: StreamBatch) -> None:
        self._prepare(content)
        row_type = self._table.read().drop(POSITION).schema
        last = self._without_what_was_deleted_later(last_changes(changes, row_type, content), content.key)
        last = apart_from_tables(last).persist()
        try:
            if content.has_unavailable and not self._settings.unlogged_is_null:
                self._check_unlogged(last, content.key)
            # Remembered first: after a crash between the two, the batch deletes the rows when it is repeated.
            self._remember(last, content, batch)
            clauses = merge_clauses(row_type.names, content)
            self._table.merge(last.drop(TIMESTAMP), content.key, batch, clauses)
        finally:
            last.unpersist()

    def _prepare(self, content: BatchContent) -> None:
        """Give both tables the columns of these changes."""
        from pyspark.sql.types import StructType

        ddl = self._settings.columns or ddl_of_columns(content.columns)
        if ddl is None:
            raise PipelineError(
                "the records carry no schema: name the columns of the table with --schema, or let Debezium's converter "
                "write it (value.converter.schemas.enable=true, and the same for the key)."
            )
        if self._prepared == (ddl, content.key):
            return
        schema = cast("StructType", StructType.fromDDL(ddl))  # of columns, as --schema was checked
        for name in (name for name in schema.names if name.lower() in OWN_COLUMNS):
            raise PipelineError(f"the rows have a column {name}, a name that this job needs for itself: rename it.")
        for name in (name for name in content.key if name not in schema.names):
            raise PipelineError(f"the key of the records has a column {name}, which --schema does not name: add it.")
        for change in self._table.prepare(_with_position(schema.fields), self._settings.partition_by):
            self._log(change)
        key_columns = [field for field in schema.fields if field.name in content.key]
        self._deleted.prepare(_with_position(key_columns).add(_DELETED_AT, "timestamp"), ())
        self._prepared = (ddl, content.key)

    def _without_what_was_deleted_later(self, last: DataFrame, key: Sequence[str]) -> DataFrame:
        """The changes but for those of rows of which a later deletion is remembered."""
        from pyspark.sql import functions as f

        names = {name: f"_key_{at}" for at, name in enumerate(key)}
        deleted = self._deleted.read().select(
            *(f.col(quoted(name)).alias(alias) for name, alias in names.items()), f.col(POSITION).alias("_later")
        )
        same = [last[quoted(name)] == deleted[alias] for name, alias in names.items()]
        stale = deleted["_later"].isNotNull() & (last[LOG_POSITION] < deleted["_later"])
        return last.join(deleted, [*same, stale], "left_anti")

    def _check_unlogged(self, last: DataFrame, key: Sequence[str]) -> None:
        """`PipelineError` for a row with an unavailable value that the table does not have."""
        rows = last.where(f"{OPERATION} = '{UPSERT}' AND size({UNAVAILABLE}) > 0")
        for row in rows.join(self._table.read(), list(key), "left_anti").limit(1).collect():
            which = ", ".join(f"{name} {row[name]}" for name in key)
            raise PipelineError(
                f"the row with {which} has no value of {', '.join(row[UNAVAILABLE])}, which PostgreSQL did not log, "
                "and the table has no earlier row to keep it from (its primary key was changed, or records before are "
                "gone): with --unlogged null it becomes null; REPLICA IDENTITY FULL logs such values from then on."
            )

    def _remember(self, last: DataFrame, content: BatchContent, batch: StreamBatch) -> None:
        if not content.operations & {DELETE, TOMBSTONE}:
            return
        deletions = last.where(f"{OPERATION} = '{DELETE}' AND {POSITION} IS NOT NULL")
        columns = [quoted(name) for name in content.key]
        rows = deletions.selectExpr(*columns, POSITION, f"{TIMESTAMP} AS {_DELETED_AT}")
        later = f"WHEN MATCHED AND u.{POSITION} > t.{POSITION} THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        self._deleted.merge(rows, content.key, batch, later)

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


def _with_position(columns: Sequence[StructField]) -> StructType:
    from pyspark.sql.types import StringType, StructType

    return StructType([*columns]).add(POSITION, StringType())
