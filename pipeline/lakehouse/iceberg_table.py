"""A table in Iceberg's format, in a directory of its own, with Iceberg's Hadoop catalog.

The catalog keeps the table's state in the directory itself: a commit is the creation of the next `vN.metadata.json` by
a rename, which must not replace a file. So it is safe on HDFS and, for the processes of one machine that take turns, on
a local disk. Iceberg's streaming sink writes the id of the query and the number of the micro-batch into the summary of
the snapshot that it commits, and skips a batch that it finds there; `merge` does the same under the same names.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from ..hadoop_files import HadoopFiles
from ..session import temporary_settings
from ..spark_jars import ICEBERG_CATALOG
from .columns import Columns, column_changes
from .partition_fields import PartitionField, of_iceberg, quoted
from .snapshots import Snapshot, expiry_cutoff, snapshots_to_keep
from .table import NEWEST, REPLACE_OR_ADD, StreamBatch, TableVersion, columns_of, merge_rows
from .table_format import is_iceberg

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter
    from pyspark.sql.types import StructType

QUERY_ID = "spark.sql.streaming.queryId"
"""The query that made a snapshot, in the snapshot's summary."""
BATCH = "spark.sql.streaming.epochId"
"""The micro-batch that a snapshot holds."""
_SUMMARY_SETTING = "spark.sql.iceberg.snapshot-property."
_PROPERTIES = {
    "format-version": "2",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "100",
}
_FILES_TO_MERGE_MIN = 4


class IcebergTable:
    """The table in one directory."""

    format = "iceberg"

    def __init__(self, spark: SparkSession, root: str) -> None:
        self.spark = spark
        self.files = HadoopFiles(spark, root)
        warehouse, name = self.files.parent_and_name()
        self._catalog = f"lake_{zlib.crc32(warehouse.encode()):08x}"
        self._table = quoted(name)
        self.name = f"{self._catalog}.{self._table}"
        """The name of the table in Spark's SQL, in this session."""
        setting = f"spark.sql.catalog.{self._catalog}"
        spark.conf.set(setting, ICEBERG_CATALOG)
        spark.conf.set(f"{setting}.type", "hadoop")
        spark.conf.set(f"{setting}.warehouse", warehouse)
        spark.conf.set(f"{setting}.cache-enabled", "false")

    def exists(self) -> bool:
        """Whether there is a table."""
        return is_iceberg(self.files.names)

    def is_written(self) -> bool:
        """Whether a micro-batch was committed to a table there, although its rows may have gone since."""
        return self.exists() and self._java_table().currentSnapshot() is not None

    def prepare(self, schema: StructType, partition_by: Sequence[PartitionField]) -> list[str]:
        """Make the table, or add columns, widen types and change the partition fields, without rewriting a file."""
        if not self.exists():
            self._create(schema, partition_by)
            return []
        changes = column_changes(self.columns(), columns_of(schema))
        for name, kind in changes.added:
            self._alter(f"ADD COLUMN {quoted(name)} {kind}")
        for name, kind in changes.widened:
            self._alter(f"ALTER COLUMN {quoted(name)} TYPE {kind}")
        before = self._partition_fields()
        for field in (field for field in before if field not in partition_by):
            self._alter(f"DROP PARTITION FIELD {field.sql}")
        for field in (field for field in partition_by if field not in before):
            self._alter(f"ADD PARTITION FIELD {field.sql}")
        said = [str(changes)] if changes.added or changes.widened else []
        if set(before) != set(partition_by):
            said.append(f"new rows are partitioned by {', '.join(map(str, partition_by)) or 'nothing'}")
        return said

    def columns(self) -> Columns:
        """The columns of the table."""
        return columns_of(self.spark.table(self.name).schema)

    def start(self, writer: DataStreamWriter) -> StreamingQuery:
        """Start a query on Iceberg's streaming sink."""
        return writer.format("iceberg").outputMode("append").toTable(self.name)

    def read(self, version: TableVersion = NEWEST) -> DataFrame:
        """The rows of a version."""
        return self.spark.read.options(**version.options).table(self.name)

    def row_count(self) -> int:
        """The number of rows, from the summary of the newest snapshot."""
        return self._total("total-records")

    def file_count(self) -> int:
        """The number of data files, from the summary of the newest snapshot."""
        return self._total("total-data-files")

    def merge(self, rows: DataFrame, key: Sequence[str], batch: StreamBatch, clauses: str = REPLACE_OR_ADD) -> None:
        """Merge these rows by their keys, unless the batch is in the table."""
        if self._last_batch(batch.query_id) >= batch.number:
            return
        summary = {QUERY_ID: batch.query_id, BATCH: str(batch.number)}
        with temporary_settings(rows.sparkSession, {_SUMMARY_SETTING + name: value for name, value in summary.items()}):
            merge_rows(rows, self.name, key, clauses)

    def compact(self, small_bytes: int) -> int:
        """Merge files smaller than this where a partition has several. Returns how many files went."""
        options = {"min-input-files": _FILES_TO_MERGE_MIN, "min-file-size-bytes": small_bytes}
        pairs = ", ".join(f"'{name}', '{value}'" for name, value in options.items())
        return int(self._call("rewrite_data_files", f"options => map({pairs})")["rewritten_data_files_count"])

    def expire(self, retain: timedelta, *, at_most: int | None = None, writing_since: datetime | None = None) -> int:
        """Forget snapshots that are older, and more than so many. Returns how many files that deleted."""
        snapshots = self.snapshots()
        cutoff = expiry_cutoff(snapshots, datetime.now(UTC), retain, at_most, writing_since)
        keep = snapshots_to_keep(snapshots)
        deleted = self._call("expire_snapshots", f"older_than => {_literal(cutoff)}, retain_last => {keep}")
        return sum(int(count or 0) for count in deleted.asDict().values())

    def remove_orphans(self, older_than: timedelta) -> int:
        """Delete files of writes that were never committed. Iceberg refuses less than a day. Returns how many."""
        cutoff = _literal(datetime.now(UTC) - older_than)
        call = f"CALL {self._catalog}.system.remove_orphan_files({self._argument()}, older_than => {cutoff})"
        return len(self.spark.sql(call).collect())

    def snapshots(self) -> list[Snapshot]:
        """The snapshots that can be read, the oldest first."""
        query = f"SELECT snapshot_id, committed_at, operation, summary FROM {self.name}.snapshots ORDER BY committed_at"
        return [
            Snapshot(version, at.astimezone(UTC), operation, QUERY_ID in summary)
            for version, at, operation, summary in self.spark.sql(query).collect()
        ]

    # -- within

    def _create(self, schema: StructType, partition_by: Sequence[PartitionField]) -> None:
        fields = ", ".join(field.sql for field in partition_by)
        partitioned = f"PARTITIONED BY ({fields})" if fields else ""
        properties = ", ".join(f"'{name}' = '{value}'" for name, value in _PROPERTIES.items())
        ddl = ", ".join(f"{quoted(name)} {kind}" for name, kind in columns_of(schema))
        self.spark.sql(f"CREATE TABLE {self.name} ({ddl}) USING iceberg {partitioned} TBLPROPERTIES ({properties})")

    def _alter(self, change: str) -> None:
        self.spark.sql(f"ALTER TABLE {self.name} {change}")

    def _call(self, procedure: str, arguments: str) -> Any:
        call = f"CALL {self._catalog}.system.{procedure}({self._argument()}, {arguments})"
        return self.spark.sql(call).collect()[0]

    def _argument(self) -> str:
        return "table => '" + self._table.replace("\\", "\\\\").replace("'", "\\'") + "'"

    def _java_table(self) -> Any:
        """Iceberg's own object: Spark's SQL tells no partition fields, and runs a job for the summary of a snapshot."""
        jvm: Any = self.spark.sparkContext._jvm
        return jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(self.spark._jsparkSession, self.name)

    def _partition_fields(self) -> list[PartitionField]:
        table = self._java_table()
        return [
            of_iceberg(table.schema().findColumnName(field.sourceId()), field.transform().toString())
            for field in table.spec().fields()
        ]

    def _total(self, name: str) -> int:
        snapshot = self._java_table().currentSnapshot()
        return 0 if snapshot is None else int(snapshot.summary().get(name) or 0)

    def _last_batch(self, query_id: str) -> int:
        """The last micro-batch of a query in the table, -1 for none."""
        table = self._java_table()
        snapshot = table.currentSnapshot()
        while snapshot is not None:
            summary = snapshot.summary()
            if summary.get(QUERY_ID) == query_id:
                return int(summary.get(BATCH))
            parent = snapshot.parentId()
            snapshot = None if parent is None else table.snapshot(parent)
        return -1


def _literal(at: datetime) -> str:
    return f"TIMESTAMP '{at.astimezone(UTC):%Y-%m-%d %H:%M:%S.%f}Z'"
