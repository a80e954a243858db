"""A history on Spark: tasks turn its lines into parcels and notes, and write them to files for the checks.

Three ids are used in all tables of the audit. `place` is the number of a partition, in the order of topic and
partition. `rid` is a record: `producer * 2^40 + number`. `at` is a position, an offset in a partition: `place * 2^40 +
offset`.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ..errors import PipelineError, explain
from ..lakehouse.open_table import read_table
from .block_checks import OFFSETS_SQL, RECORDS_SQL, FindFirsts, HistorySummary, JudgeOffsets, JudgeRecords
from .history_lines import LIMIT, PRODUCER_LIMIT, SHIFT, file_splits
from .parcels import BEGUN, NO_FINAL_READ, SQL_SCHEMA, ReadSplits, topic_parts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SUFFIXES = (".jsonl", ".jsonl.gz")
_ROW_GROUP_BYTES = 16 * 1024 * 1024
_PARCELS_AT_ONCE = 8
"""Parcels in one batch from Spark to Python, about a megabyte each."""
_PARTITIONS_A_CORE = 8
_PARTITION_BYTES = 4 * 1024 * 1024
"""A short history is not cut into many tasks, since starting a task would cost more than its work."""


@dataclass
class History:
    """One or more histories as parcels and notes, in a temporary directory that `close` deletes."""

    spark: SparkSession
    directory: str
    records: DataFrame | None = None
    partitions: int = 1

    @classmethod
    def of_paths(cls, spark: SparkSession, paths: Sequence[str], records: DataFrame | None = None) -> History:
        """Read the files, and the records of a topic as one more final read, if they are given.

        `PipelineError` for a line that is not in the format.
        """
        files = history_files(paths)
        history = cls(spark, tempfile.mkdtemp(prefix="raftwerk-audit-"), records)
        try:
            history._read(files)
        except BaseException:
            history.close()
            raise
        return history

    def __enter__(self) -> History:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Delete the directory."""
        shutil.rmtree(self.directory, ignore_errors=True)

    # -- facts

    def notes(self, *kinds: str) -> DataFrame:
        """The notes of these kinds, in the columns of `parcels.SQL_SCHEMA`."""
        from pyspark.sql import functions as f

        parts = self.spark.read.schema(SQL_SCHEMA).parquet(self.path("parts"))
        return parts.where(f.col("kind").isin(*kinds))

    @cached_property
    def known(self) -> HistorySummary:
        """The partitions, how far each was read, and the producers without idempotence."""
        from pyspark.sql import functions as f

        reached = self.notes("place").groupBy("topic", "partition").agg(f.max("first"), f.max("last")).collect()
        rows = sorted(tuple(row) for row in reached)
        ended = {tuple(row): None for row in self.notes("end").select("topic", "partition").distinct().collect()}
        return HistorySummary(
            places={(topic, partition): number for number, (topic, partition, _, _) in enumerate(rows)},
            last_read=[last for _, _, last, _ in rows],
            last_final=[max(-1, last) for _, _, _, last in rows],
            is_ended=[(topic, partition) in ended for topic, partition, _, _ in rows],
            has_final=any(last != NO_FINAL_READ for _, _, _, last in rows),
            non_idempotent=self._non_idempotent(),
        )

    @cached_property
    def places(self) -> list[tuple[str, int]]:
        """Topic and partition by `place`."""
        return list(self.known.places)

    @cached_property
    def lines(self) -> list[dict[str, Any]]:
        """The lines about producers, faults, healing and nodes that ended, in order."""
        rows = self.notes("line").select("file", "position", "n", "text").collect()
        return [json.loads(text) for _, _, _, text in sorted(tuple(row) for row in rows)]

    @cached_property
    def transactional(self) -> dict[str, int]:
        """What the history tells of transactions, which is not judged: how many of each, without those of none."""
        from pyspark.sql import functions as f

        rows = self.notes("not-judged").groupBy("text").agg(f.sum("n").alias("n")).collect()
        return transactional_counts({row["text"]: row["n"] for row in rows})

    def name(self, place: int) -> str:
        """The name of a partition, such as `t-3`."""
        topic, partition = self.places[place]
        return f"{topic}-{partition}"

    # -- checks by block

    def judged_records(self) -> DataFrame:
        """Findings and candidates about records, in the columns of `block_checks.RECORDS_SQL`."""
        return self.materialized(self._by_block(("send", "read"), JudgeRecords(self.known), RECORDS_SQL), "records")

    def judged_offsets(self) -> DataFrame:
        """Findings about the offsets of each block, in the columns of `block_checks.OFFSETS_SQL`."""
        return self.materialized(self._by_block(("ack", "found"), JudgeOffsets(self.known), OFFSETS_SQL), "offsets")

    def firsts(self, pairs: Sequence[tuple[int, int]]) -> DataFrame:
        """`rid, seen` of every record that was read or acked, for these pairs of partition and producer."""
        task = FindFirsts(self.known, pairs)
        return self._by_block(("send", "read"), task, RECORDS_SQL).select("rid", "seen")

    def materialized(self, rows: DataFrame, name: str) -> DataFrame:
        """Write the rows to disk, and return them from there."""
        rows.write.parquet(self.path(name))
        return self.spark.read.schema(rows.schema).parquet(self.path(name))

    def path(self, name: str) -> str:
        """The URL of a table in the directory."""
        return f"file://{os.path.join(self.directory, name)}"

    # -- within

    def _read(self, files: Sequence[str]) -> None:
        cores = self.spark.sparkContext.defaultParallelism
        short = sum(os.path.getsize(path) for path in files) // _PARTITION_BYTES
        most = _PARTITIONS_A_CORE * cores
        self.partitions = most if self.records is not None else max(1, min(most, short))
        pieces = file_splits(files)
        numbers = self.spark.range(0, len(pieces), 1, max(1, min(len(pieces), max(cores, short))))
        parts = numbers.mapInArrow(ReadSplits(pieces), SQL_SCHEMA)
        if self.records is not None:
            parts = parts.union(_load_records(self.records).mapInArrow(topic_parts, SQL_SCHEMA))
        try:
            parts.write.option("parquet.block.size", _ROW_GROUP_BYTES).parquet(self.path("parts"))
        except Exception as error:
            raise explain(error) from error
        for row in self.notes("damaged").orderBy("file", "position").limit(1).collect():
            raise PipelineError(row["text"])

    def _by_block(self, kinds: Sequence[str], task: Callable[..., Any], schema: str) -> DataFrame:
        """Run a task over the parcels of these kinds, sorted by block."""
        self.spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(_PARCELS_AT_ONCE))
        parcels = self.notes(*kinds).select("block", "kind", "parcel")
        return parcels.repartition(self.partitions, "block").sortWithinPartitions("block").mapInArrow(task, schema)

    def _non_idempotent(self) -> list[int]:
        """The producers that are not idempotent. The last line about a producer counts."""
        heads = [line for line in self.lines if line["f"] == "history" and line["producer"] is not None]
        idempotent = {line["producer"]: line["idempotent"] for line in heads}
        return sorted(producer for producer, promised in idempotent.items() if not promised)


def _load_records(records: DataFrame) -> DataFrame:
    """The records of a topic, decoded as the load of chaos runs wrote them; other records get the producer -1.

    Nothing here may raise for bytes of any kind, as casts and elements of arrays do in Spark's ANSI mode. Source of the
    form: `chaos.live.load.load_task.decode_record`.
    """
    from pyspark.sql import functions as f

    key, value = f.col("key").cast("string"), f.col("value").cast("string")
    body = f.expr("substring(value, 10)")
    words = f.split(body.cast("string"), ":")
    crc = f.conv(f.expr("substring(value, 1, 8)").cast("string"), 16, 10).try_cast("bigint")
    ours = (crc == f.crc32(body)) & (f.get(words, f.lit(2)) == key)
    java = f.split(value, "[.]")
    is_java = value.rlike("^[0-9]+[.][0-9]+$")
    producer = f.when(is_java, f.get(java, f.lit(0))).when(ours, f.get(words, f.lit(0))).try_cast("bigint")
    number = f.when(is_java, f.get(java, f.lit(1))).when(ours, f.get(words, f.lit(1))).try_cast("bigint")
    record_key = f.when(is_java, f.coalesce(key, f.lit("0"))).when(ours, f.get(words, f.lit(2))).try_cast("bigint")
    is_record = producer.between(0, PRODUCER_LIMIT - 1) & number.between(0, LIMIT - 1) & record_key.isNotNull()
    return records.select(
        "topic",
        "partition",
        "offset",
        f.when(is_record, producer).otherwise(-1).alias("producer"),
        f.when(is_record, number).otherwise(0).alias("number"),
        f.when(is_record, record_key).otherwise(0).alias("key"),
    )


def transactional_counts(lines: Mapping[str, int]) -> dict[str, int]:
    """What so many lines of each kind tell of transactions, without what they do not tell.

    A transaction has one line when it begins, and one at most with its outcome.
    """
    of_the_end = sum(lines.get(kind, 0) for kind in ("group-offset", "stable", "hanging"))
    found = {
        "transactions": max(lines.get(BEGUN, 0), lines.get("txn", 0)),
        "polls of transactional topics": lines.get("read", 0),
        "lines on the end of all transactions": of_the_end,
    }
    return {what: count for what, count in found.items() if count}


def lake_records(spark: SparkSession, root: str) -> DataFrame:
    """The records in a table of the job `lake`, by the table's format. `PipelineError` if it does not keep values."""
    rows = read_table(spark, root)
    if not {"topic", "partition", "offset", "key", "value"} <= set(rows.columns):
        raise PipelineError(
            f"{root} has no column value with the records' values whole: the audit needs a lake that was written "
            "without --schema."
        )
    return rows


def history_files(paths: Sequence[str]) -> list[str]:
    """The absolute paths of history files among files and directories. A run's directory holds `history/`."""
    found: list[str] = []
    for path in paths:
        inner = os.path.join(path, "history")
        directory = inner if os.path.isdir(inner) else path
        if os.path.isdir(directory):
            found += [os.path.join(directory, name) for name in os.listdir(directory) if name.endswith(_SUFFIXES)]
        elif os.path.exists(path):
            found.append(path)
        else:
            raise PipelineError(f"there is no file or directory {path}.")
    if not found:
        raise PipelineError(f"no history in {', '.join(paths)}: there are no files that end in .jsonl or .jsonl.gz.")
    return sorted(os.path.abspath(path) for path in found)


def split(number: int) -> tuple[int, int]:
    """The producer and the number of a `rid`, or the place and the offset of an `at`."""
    return number >> SHIFT, number & (LIMIT - 1)
