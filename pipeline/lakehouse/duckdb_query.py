"""Asks an Iceberg table by DuckDB, without Spark: pyiceberg reads the table's metadata, and DuckDB its rows."""

from __future__ import annotations

from typing import Any

from ..errors import check_packages


def check_duckdb() -> None:
    """`PipelineError` when a package is missing that `query` needs."""
    check_packages("lakehouse", "duckdb", "pyiceberg")


def query(directory: str, sql: str) -> list[tuple[Any, ...]]:
    """The rows that DuckDB answers, where `lake` in the query is the Iceberg table in a directory of this machine."""
    from pyiceberg.table import StaticTable

    connection = StaticTable.from_metadata(directory).scan().to_duckdb("lake")
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()
