"""Tables for tests: a stream from files, so that a batch is a file, and what other readers see of a table."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any

import duckdb
from pyiceberg.table import StaticTable

from raftwerk.pipeline.lakehouse.open_table import open_table
from raftwerk.pipeline.lakehouse.partition_fields import PartitionField
from raftwerk.pipeline.lakehouse.table import Table, fitted
from raftwerk.pipeline.output_directory import OutputDirectory

SCHEMA = "n BIGINT, part STRING"


def write_batch(directory: Path, number: int, rows: int = 6) -> list[int]:
    """A file of the source: its numbers and, by turns, two partitions. Returns the numbers."""
    directory.mkdir(exist_ok=True)
    numbers = [number * 100 + at for at in range(rows)]
    lines = [json.dumps({"n": n, "part": f"00{n % 2}", "more": n / 2}) for n in numbers]
    (directory / f"{number:03d}.json").write_text("\n".join(lines))
    return numbers


class Stream:
    """A streaming query that appends the files of a directory to a table, one in each micro-batch."""

    def __init__(self, spark: Any, root: Path, table_format: str, schema: str = SCHEMA) -> None:
        self.spark = spark
        self.source = root / "source"
        self.out = root / "table"
        self.schema = schema
        self.table: Table = open_table(spark, str(self.out), table_format)
        identity = {"table format": table_format}
        self.output = OutputDirectory(spark, str(self.out), "test", identity, self.table.is_written)

    def run(self, *partition_by: PartitionField) -> list[str]:
        """Append all files that are not in the table. Returns what changed in the table."""
        rows = self.spark.readStream.schema(self.schema).option("maxFilesPerTrigger", "1").json(str(self.source))
        said = self.table.prepare(rows.schema, partition_by or [PartitionField("part")])
        writer = fitted(rows, self.table.columns()).writeStream.trigger(availableNow=True)
        query = self.table.start(writer.option("checkpointLocation", self.output.checkpoint))
        query.awaitTermination()
        return said

    def numbers(self) -> list[int]:
        """The numbers in the table."""
        return sorted(row["n"] for row in self.table.read().select("n").collect())


def by_duckdb(table_format: str, root: Path, sql: str) -> list[tuple[Any, ...]]:
    """What DuckDB's own extension for the format answers, where `{table}` in the query is the table."""
    connection = duckdb.connect()
    for extension in ("avro", "iceberg") if table_format == "iceberg" else ("delta",):
        package = import_module(f"duckdb_extension_{extension}")
        (path,) = Path(str(package.__file__)).parent.glob("extensions/*/*.duckdb_extension")
        connection.execute(f"LOAD '{path}'")
    scan = f"iceberg_scan('{root}')" if table_format == "iceberg" else f"delta_scan('file://{root}')"
    return connection.execute(sql.format(table=scan)).fetchall()


def by_pyiceberg(root: Path, snapshot: int | None = None) -> list[dict[str, Any]]:
    """The rows that pyiceberg reads."""
    rows: list[dict[str, Any]] = StaticTable.from_metadata(str(root)).scan(snapshot_id=snapshot).to_arrow().to_pylist()
    return rows
