"""What jobs ask of a table, whatever its format is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Protocol

from .columns import Columns, missing_columns
from .partition_fields import PartitionField, quoted
from .snapshots import Snapshot

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter
    from pyspark.sql.types import DataType, StructType


@dataclass(frozen=True, slots=True)
class StreamBatch:
    """A micro-batch: the id of its query, which the checkpoint holds, and its number, which Spark counts."""

    query_id: str
    number: int


@dataclass(frozen=True, slots=True)
class TableVersion:
    """A version of a table to read: by its number, or the one that was current at a time; the newest by default."""

    number: int | None = None
    at: datetime | None = None

    @property
    def options(self) -> dict[str, str]:
        """The options with which Spark reads this version. Times are in UTC, as in the sessions of these jobs."""
        found = {}
        if self.number is not None:
            found["versionAsOf"] = str(self.number)
        if self.at is not None:
            found["timestampAsOf"] = f"{self.at.astimezone(UTC):%Y-%m-%d %H:%M:%S.%f}"
        return found


NEWEST = TableVersion()
REPLACE_OR_ADD = "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
"""The clauses of a MERGE that replaces the rows that have the keys of others, and adds the others."""


class Table(Protocol):
    """A directory in a table format."""

    format: str

    def exists(self) -> bool:
        """Whether there is a table."""

    def is_written(self) -> bool:
        """Whether a micro-batch was committed to a table there, although its rows may have gone since."""

    def prepare(self, schema: StructType, partition_by: Sequence[PartitionField]) -> list[str]:
        """Make the table, or change it so that rows with this schema fit. Returns what changed, for people.

        `PipelineError` for what the format cannot change.
        """

    def columns(self) -> Columns:
        """The columns of the table."""

    def start(self, writer: DataStreamWriter) -> StreamingQuery:
        """Start a streaming query that appends to the table, each micro-batch once."""

    def read(self, version: TableVersion = NEWEST) -> DataFrame:
        """The rows of a version."""

    def row_count(self) -> int:
        """The number of rows."""

    def file_count(self) -> int:
        """The number of data files."""


class MaintainedTable(Table, Protocol):
    """A table with transactions: rows can be merged into it, and its history is kept and cut."""

    name: str
    """The name of the table in Spark's SQL, in this session."""

    def merge(self, rows: DataFrame, key: Sequence[str], batch: StreamBatch, clauses: str = REPLACE_OR_ADD) -> None:
        """Merge these rows by their keys, unless the batch is in the table.

        `clauses` says in SQL what is done with a row `u` of these, and with the row `t` of the table that has its key.
        """

    def compact(self, small_bytes: int) -> int:
        """Merge files smaller than this where a partition has several. Returns how many files went."""

    def expire(self, retain: timedelta, *, at_most: int | None = None, writing_since: datetime | None = None) -> int:
        """Forget snapshots that are older, and more than so many. Returns how many files that deleted.

        What a write has left since `writing_since` stays, as it may be committed yet.
        """

    def remove_orphans(self, older_than: timedelta) -> int:
        """Delete files of writes that were never committed. Returns how many."""

    def snapshots(self) -> list[Snapshot]:
        """The snapshots that can be read, the oldest first."""


def columns_of(schema: StructType) -> Columns:
    """The names and types of a schema."""
    return [(field.name, _sql_type(field.dataType)) for field in schema.fields]


def _sql_type(kind: DataType) -> str:
    """The type in Spark's SQL; its own text for a struct has the names of fields as they are, such as zip-code."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(kind, StructType):
        return f"struct<{','.join(f'{quoted(field.name)}:{_sql_type(field.dataType)}' for field in kind.fields)}>"
    if isinstance(kind, ArrayType):
        return f"array<{_sql_type(kind.elementType)}>"
    if isinstance(kind, MapType):
        return f"map<{_sql_type(kind.keyType)},{_sql_type(kind.valueType)}>"
    return kind.simpleString()


def fitted(rows: DataFrame, columns: Columns) -> DataFrame:
    """The rows with the columns of a table, in its order and its types; null for those that the rows do not have."""
    from pyspark.sql import functions as f

    missing = dict(missing_columns(columns, columns_of(rows.schema)))
    return rows.select(
        *((f.lit(None) if name in missing else f.col(quoted(name))).cast(kind).alias(name) for name, kind in columns)
    )


def merge_rows(rows: DataFrame, table_name: str, key: Sequence[str], clauses: str) -> None:
    """Merge rows `u` by their keys with those of a table, `t`, by these clauses, in one transaction."""
    rows.createOrReplaceTempView("updates")
    # Nulls are equal here: the key of a table of changes, or of a window, may have some.
    same = " AND ".join(f"t.{quoted(name)} <=> u.{quoted(name)}" for name in key)
    rows.sparkSession.sql(f"MERGE INTO {table_name} t USING updates u ON {same} {clauses}")
