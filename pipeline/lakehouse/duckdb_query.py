"""Asks an Iceberg table by DuckDB, without Spark: pyiceberg reads the table's metadata, and DuckDB its rows."""

from __future__ import annotations

from typing import Any

from ...cluster.command_line.extras import missing_packages, not_installed
from ..errors import PipelineError


def check_duckdb() -> None:
    """`PipelineError` when a package is missing that `query` needs."""
    missing = missing_packages("duckdb", "pyiceberg")
    if missing:
        raise PipelineError(not_installed(missing, "lakehouse"))


def query(directory: str, sql: str) -> list[tuple[Any, ...]]:
    """The rows that DuckDB answers, where `lake` in the query is the Iceberg table in a directory of this machine."""
    from pyiceberg.table import StaticTable

    connection = StaticTable.from_metadata(directory).scan().to_duckdb("lake")
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()
