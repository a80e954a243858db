"""Opens a table in one of the formats, by name or by what its directory holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import PipelineError
from ..hadoop_files import HadoopFiles
from .delta_table import DeltaTable, is_delta
from .iceberg_table import IcebergTable, is_iceberg
from .parquet_files import ParquetFiles, is_parquet
from .table import NEWEST, MaintainedTable, Table, TableVersion

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TRANSACTIONAL_FORMATS = ("iceberg", "delta")
"""The formats with transactions, the default first."""
TABLE_FORMATS = (*TRANSACTIONAL_FORMATS, "parquet")


def open_table(spark: SparkSession, root: str, table_format: str) -> Table:
    """The table in a directory, which need not exist yet."""
    return ParquetFiles(spark, root) if table_format == "parquet" else open_maintained(spark, root, table_format)


def open_maintained(spark: SparkSession, root: str, table_format: str) -> MaintainedTable:
    """The table with transactions in a directory, which need not exist yet."""
    return DeltaTable(spark, root) if table_format == "delta" else IcebergTable(spark, root)


def maintained(table: Table) -> MaintainedTable | None:
    """The table, if its format has transactions."""
    return table if isinstance(table, IcebergTable | DeltaTable) else None


def format_of(spark: SparkSession, root: str) -> str:
    """The format of the table in a directory. `PipelineError` when there is none."""
    files = HadoopFiles(spark, root)
    for is_there, name in ((is_iceberg, "iceberg"), (is_delta, "delta"), (is_parquet, "parquet")):
        if is_there(files):
            return name
    raise PipelineError(f"{root} is no table of these jobs: it has no metadata of Iceberg, Delta or Spark's file sink.")


def read_table(spark: SparkSession, root: str, version: TableVersion = NEWEST) -> DataFrame:
    """The rows of a table as of its last commit, or of another version. `PipelineError` when there is no table."""
    return open_table(spark, root, format_of(spark, root)).read(version)
