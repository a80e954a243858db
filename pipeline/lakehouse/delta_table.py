"""A table in Delta's format, in a directory of its own.

Delta writes the id of the query and the number of the micro-batch into its log with each commit (`txn`), and refuses a
batch that it finds there, also against a writer at the same time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from ..errors import PipelineError
from ..hadoop_files import HadoopFiles
from ..session import temporary_settings
from .columns import Columns, column_changes
from .partition_fields import PartitionField, plain_columns, quoted
from .snapshots import Snapshot, expiry_cutoff
from .table import NEWEST, REPLACE_OR_ADD, StreamBatch, TableVersion, columns_of, merge_rows
from .table_format import is_delta

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter
    from pyspark.sql.types import StructType

_SETTING = "spark.databricks.delta."
_OF_PREPARATION = ("WRITE", "CREATE TABLE", "ADD COLUMNS")
"""The operations that `prepare` makes."""


class DeltaTable:
    """The table in one directory."""

    format = "delta"

    def __init__(self, spark: SparkSession, root: str) -> None:
        self.spark = spark
        self.files = HadoopFiles(spark, root)
        self.location = self.files.location
        self.name = f"delta.{quoted(self.location)}"
        """The name of the table in Spark's SQL."""

    def exists(self) -> bool:
        """Whether there is a table."""
        return is_delta(self.files.names)

    def is_written(self) -> bool:
        """Whether a micro-batch was committed to a table there, although its rows may have gone since."""
        return self.exists() and any(one.operation not in _OF_PREPARATION for one in self.snapshots())

    def prepare(self, schema: StructType, partition_by: Sequence[PartitionField]) -> list[str]:
        """Make the table, or add columns. `PipelineError` for other types and partitions, which Delta cannot change."""
        partitions = plain_columns(partition_by, self.format)
        if not self.exists():
            writer = self.spark.createDataFrame([], schema).write.format(self.format)
            (writer.partitionBy(*partitions) if partitions else writer).save(self.location)
            return []
        before = self._detail()["partitionColumns"]
        if list(before) != partitions:
            raise PipelineError(
                f"{self.files.root} is partitioned by {', '.join(before) or 'nothing'}, which Delta cannot change: go "
                "on with the same --partition-by, or name another output; Iceberg can."
            )
        changes = column_changes(
            self.columns(), columns_of(schema), "a Delta table takes new columns and no other types"
        )
        if changes.widened:
            raise PipelineError(
                f"a column of {self.files.root} would have a wider type ({changes}), which readers of Delta do not all "
                "know: go on with the same type, or name another output; Iceberg can."
            )
        for name, kind in changes.added:
            self.spark.sql(f"ALTER TABLE {self.name} ADD COLUMNS ({quoted(name)} {kind})")
        return [str(changes)] if changes.added else []

    def columns(self) -> Columns:
        """The columns of the table."""
        return columns_of(self.read().schema)

    def start(self, writer: DataStreamWriter) -> StreamingQuery:
        """Start a query on Delta's streaming sink."""
        return writer.format(self.format).outputMode("append").start(self.location)

    def read(self, version: TableVersion = NEWEST) -> DataFrame:
        """The rows of a version."""
        return self.spark.read.format(self.format).options(**version.options).load(self.location)

    def row_count(self) -> int:
        """The number of rows, which Delta counts by its log."""
        return self.read().count()

    def file_count(self) -> int:
        """The number of data files."""
        return int(self._detail()["numFiles"])

    def merge(self, rows: DataFrame, key: Sequence[str], batch: StreamBatch, clauses: str = REPLACE_OR_ADD) -> None:
        """Merge these rows by their keys, unless the batch is in the table."""
        settings = {
            f"{_SETTING}write.txnAppId": batch.query_id,
            f"{_SETTING}write.txnVersion": str(batch.number),
        }
        with temporary_settings(rows.sparkSession, settings):
            merge_rows(rows, self.name, key, clauses)

    def compact(self, small_bytes: int) -> int:
        """Merge files smaller than this where a partition has several. Returns how many files went."""
        if small_bytes <= 0:
            return 0
        with temporary_settings(self.spark, {f"{_SETTING}optimize.minFileSize": str(small_bytes)}):
            return int(self.spark.sql(f"OPTIMIZE {self.name}").collect()[0]["metrics"]["numFilesRemoved"])

    def expire(self, retain: timedelta, *, at_most: int | None = None, writing_since: datetime | None = None) -> int:
        """Delete the files that only versions need that are older, or more than so many. Returns how many."""
        now = datetime.now(UTC)
        snapshots = [] if at_most is None else self.snapshots()
        return self._vacuum(now - expiry_cutoff(snapshots, now, retain, at_most, writing_since))

    def remove_orphans(self, older_than: timedelta) -> int:
        """Delete files of writes that were never committed. Delta does that together with `expire`."""
        return self._vacuum(older_than)

    def snapshots(self) -> list[Snapshot]:
        """The versions in Delta's history, the oldest first. What `expire` has cut cannot be read any more."""
        rows = self.spark.sql(f"DESCRIBE HISTORY {self.name}").select("version", "timestamp", "operation").collect()
        return [
            Snapshot(version, at.astimezone(UTC), operation, operation == "STREAMING UPDATE")
            for version, at, operation in sorted(tuple(row) for row in rows)
        ]

    # -- within

    def _vacuum(self, older_than: timedelta) -> int:
        hours = max(0, math.ceil(older_than / timedelta(hours=1)))  # Delta would round it, and delete what is younger
        settings = {
            f"{_SETTING}retentionDurationCheck.enabled": "false",
            f"{_SETTING}vacuum.retentionWindowIgnore.enabled": "false",  # else newer Deltas take only 0 hours
            f"{_SETTING}vacuum.logging.enabled": "true",
        }
        with temporary_settings(self.spark, settings):
            self.spark.sql(f"VACUUM {self.name} RETAIN {hours} HOURS")
        # Not the newest entry: a batch may have been committed since.
        history = self.spark.sql(f"DESCRIBE HISTORY {self.name}").where("operation = 'VACUUM END'")
        done = history.orderBy("version", ascending=False).first()
        return 0 if done is None else int(done["operationMetrics"]["numDeletedFiles"])

    def _detail(self) -> Any:
        return self.spark.sql(f"DESCRIBE DETAIL {self.name}").collect()[0]
