"""Plain Parquet files, which Spark's own file sink writes exactly once, with a log of batches in `_spark_metadata`.

Readers that know that log, such as Spark, see whole batches, each once. Others see the files of a batch that did not
finish as well. Files are never merged, and nothing is ever changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..errors import PipelineError
from ..hadoop_files import HadoopFiles
from .columns import Columns
from .partition_fields import PartitionField, plain_columns
from .table import NEWEST, TableVersion, columns_of
from .table_format import is_parquet

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter
    from pyspark.sql.types import StructType


class ParquetFiles:
    """The files in one directory."""

    format = "parquet"

    def __init__(self, spark: SparkSession, root: str) -> None:
        self.spark = spark
        self.files = HadoopFiles(spark, root)
        self._columns: Columns = []
        self._partition_by: list[str] = []

    def exists(self) -> bool:
        """Whether a batch was written."""
        return is_parquet(self.files.names)

    def is_written(self) -> bool:
        """Whether a batch was written."""
        return self.exists()

    def prepare(self, schema: StructType, partition_by: Sequence[PartitionField]) -> list[str]:
        """Take the columns and the partitions, which are those of the job as long as it writes these files."""
        self._columns = columns_of(schema)
        self._partition_by = plain_columns(partition_by, self.format)
        return []

    def columns(self) -> Columns:
        """The columns that `prepare` was given."""
        return self._columns

    def start(self, writer: DataStreamWriter) -> StreamingQuery:
        """Start a query on Spark's file sink."""
        if self._partition_by:
            writer = writer.partitionBy(*self._partition_by)
        return writer.format(self.format).outputMode("append").start(self.files.location)

    def read(self, version: TableVersion = NEWEST) -> DataFrame:
        """The rows; there are no versions."""
        if version != NEWEST:
            raise PipelineError(f"{self.files.root} holds plain Parquet files, which have no versions.")
        if not self.exists():
            raise PipelineError(f"{self.files.root} holds no rows yet.")
        return self.spark.read.parquet(self.files.location)

    def row_count(self) -> int:
        """The number of rows."""
        return self.read().count() if self.exists() else 0

    def file_count(self) -> int:
        """The number of files."""
        return len(self.read().inputFiles()) if self.exists() else 0
