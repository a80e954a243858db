"""Queries on topics by either format, and what they wrote to Parquet files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

from support.pipeline.topics import values_by_partition

FORMATS = ["kafka", "raftwerk"]
"""Spark's own Kafka connector, and our data source."""
READ_COMMITTED = {"kafka.isolation.level": "read_committed"}


def goes_on_with(spark: Any, form: str) -> str:
    """The format by which a query goes on that may have ended within a batch.

    Spark 4.1's connector fails when it repeats one (SPARK-57438). A query can go on with our data source then.
    """
    return "raftwerk" if spark.version.startswith("4.1.") else form


def load(spark: Any, form: str, bootstrap: str, **options: Any) -> Any:
    reader = spark.read.format(form).option("kafka.bootstrap.servers", bootstrap)
    return reader.options(**{name: str(value) for name, value in options.items()}).load()


def per(topic: str, **offsets: int) -> str:
    return json.dumps({topic: {name[1:]: offset for name, offset in offsets.items()}})


def stream(spark: Any, form: str, bootstrap: str, **options: Any) -> Any:
    reader = spark.readStream.format(form).option("kafka.bootstrap.servers", bootstrap)
    chosen = {"startingOffsets": "earliest", **options}
    return reader.options(**{name: str(value) for name, value in chosen.items()}).load()


@contextmanager
def to_parquet(frame: Any, directory: Path, **trigger: Any) -> Iterator[Any]:
    """The query that writes the frame to `directory`/out with its checkpoint beside it, stopped at the end."""
    writer = frame.writeStream.format("parquet").option("checkpointLocation", str(directory / "checkpoint"))
    query = writer.trigger(**trigger or {"processingTime": "100 milliseconds"}).start(str(directory / "out"))
    try:
        yield query
    finally:
        query.stop()


def output(spark: Any, directory: Path) -> Any:
    """What a reader of the files sees now."""
    return spark.read.schema("topic string, partition int, offset bigint, value binary").parquet(f"{directory}/out")


def written(spark: Any, directory: Path) -> dict[int, list[int]]:
    return values_by_partition(output(spark, directory).collect())


def rows_written(spark: Any, directory: Path) -> int:
    return output(spark, directory).count() if (directory / "out" / "_spark_metadata" / "0").exists() else 0


def positions(query: Any, topic: str) -> list[tuple[dict[str, int], dict[str, int]]]:
    """Start and end of every batch so far."""
    found = []
    for progress in query.recentProgress:
        (source,) = json.loads(progress.json)["sources"]
        start, end = ((source[side] or {}).get(topic, {}) for side in ("startOffset", "endOffset"))
        found.append((start, end))
    return found


def check_never_backwards(found: list[tuple[dict[str, int], dict[str, int]]]) -> None:
    for start, end in found:
        assert all(end[partition] >= start[partition] for partition in start), (start, end)
    for (_, end), (start, _) in pairwise(found):
        assert start == end or start == {}, (end, start)
