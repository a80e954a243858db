"""Opens a table in one of the formats, by name or by what its directory holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..hadoop_files import HadoopFiles
from .delta_table import DeltaTable
from .iceberg_table import IcebergTable
from .parquet_files import ParquetFiles
from .table import NEWEST, MaintainedTable, Table, TableVersion
from .table_format import format_by_names

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


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
    return format_by_names(root, HadoopFiles(spark, root).names)


def read_table(spark: SparkSession, root: str, version: TableVersion = NEWEST) -> DataFrame:
    """The rows of a table as of its last commit, or of another version. `PipelineError` when there is no table."""
    return open_table(spark, root, format_of(spark, root)).read(version)
