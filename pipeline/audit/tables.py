"""A history as tables: every line is parsed once, into columns on disk that the joins then read.

A partition is a number here (`place`, in the order of topic and partition), a record is `producer * 2^40 + number`
(`rid`), an offset of a partition is `place * 2^40 + offset` (`at`): so that every aggregate is one over integers, which
Spark does in fixed memory.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ..errors import PipelineError
from ..places import Topics

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

VERSION = 1
SHIFT = 40
INVOKED, INFO, FAILED, ACKED = 1, 2, 3, 4
STATES = {"invoke": INVOKED, "info": INFO, "fail": FAILED, "ok": ACKED}
_SUFFIXES = (".jsonl", ".jsonl.gz")
_LAST = (1 << 63) - 1
_SCHEMA = (
    "process STRING, type STRING, f STRING, version INT, producer BIGINT, idempotent BOOLEAN, timed BOOLEAN, "
    "topic STRING, partition INT, number BIGINT, key BIGINT, start BIGINT, end BIGINT, offset BIGINT, error STRING, "
    "records ARRAY<ARRAY<BIGINT>>, final BOOLEAN, fault STRING, target STRING, id STRING, _damage STRING"
)
_KINDS = ("history", "send", "assign", "poll", "final", "fault", "heal")
_LIMIT = 1 << SHIFT


@dataclass
class History:
    """The tables of one or more histories, in a directory that goes with `close`."""

    spark: SparkSession
    directory: str
    topic: DataFrame | None = None

    @classmethod
    def of_paths(cls, spark: SparkSession, paths: Sequence[str], topic: Topics | None = None) -> History:
        """Parse the files, and read the topic where one is given. `PipelineError` for what is not in the format."""
        files = history_files(paths)
        history = cls(spark, tempfile.mkdtemp(prefix="raftwerk-audit-"), topic.read(spark) if topic else None)
        try:
            history._parse(files)
            history._check()
        except BaseException:
            history.close()
            raise
        return history

    def __enter__(self) -> History:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Forget the tables."""
        shutil.rmtree(self.directory, ignore_errors=True)

    # -- what others read

    @cached_property
    def places(self) -> list[tuple[str, int]]:
        """Topic and partition of each place, in order."""
        seen = self.lines("send", "poll", "assign", "final").select("topic", "partition")
        if self.topic is not None:
            seen = seen.union(self.topic.select("topic", "partition"))
        return sorted((row[0], row[1]) for row in seen.distinct().collect())

    def lines(self, *kinds: str) -> DataFrame:
        """The lines of these kinds, with `file`, `block` and `row` for their order."""
        from pyspark.sql import functions as f

        lines = self.spark.read.schema(f"{_SCHEMA}, file STRING, block BIGINT, row BIGINT").parquet(self._path("lines"))
        return lines.where(f.col("f").isin(*kinds))

    def sends(self) -> DataFrame:
        """`rid, state, key, place, start, end, ack`, a row a line."""
        from pyspark.sql import functions as f

        state = f.create_map(*(f.lit(one) for pair in STATES.items() for one in pair))[f.col("type")]
        ack = f.when(f.col("type") == "ok", self._place() * _LIMIT + f.col("offset"))
        return self.lines("send").select(
            _rid("producer", "number").alias("rid"),
            state.alias("state"),
            "key",
            self._place().alias("place"),
            "start",
            f.coalesce("end", f.lit(0)).alias("end"),
            ack.alias("ack"),
        )

    def reads(self) -> DataFrame:
        """`at, producer, rid, key, end, final`, a row for every record that a poll returned."""
        from pyspark.sql import functions as f

        polls = self.lines("poll").where("type = 'ok'")
        rows = polls.select(
            self._place().alias("place"),
            "end",
            f.coalesce("final", f.lit(False)).alias("final"),
            f.explode("records").alias("r"),
        )
        seen = rows.select(
            (f.col("place") * _LIMIT + f.col("r")[0]).alias("at"),
            f.col("r")[1].alias("producer"),
            (f.col("r")[1] * _LIMIT + f.col("r")[2]).alias("rid"),
            f.col("r")[3].alias("key"),
            "end",
            "final",
        )
        return seen if self.topic is None else seen.union(self._of_topic(self.topic))

    def polls(self) -> DataFrame:
        """`process, place, file, block, row, first, last, inner`: where each poll began and ended, or an assignment.

        `inner` holds `[after, offset]` of each record that does not follow the one before it in the same poll.
        """
        from pyspark.sql import functions as f

        order = ["file", "block", "row"]
        polls = self.lines("poll").where("type = 'ok' and size(records) > 0")
        pairs = f.expr(
            "filter(transform(sequence(2, greatest(2, size(records))), "
            "i -> array(records[i - 2][0], get(records, i - 1)[0])), p -> p[1] is not null and p[1] != p[0] + 1)"
        )
        last = f.element_at("records", -1)[0]
        read = polls.select(
            "process",
            self._place().alias("place"),
            *order,
            f.col("records")[0][0].alias("first"),
            last.alias("last"),
            pairs.alias("inner"),
        )
        none = f.lit(None)
        assigned = self.lines("assign").select(
            "process",
            self._place().alias("place"),
            *order,
            none.cast("bigint").alias("first"),
            (f.col("offset") - 1).alias("last"),
            none.cast("array<array<bigint>>").alias("inner"),
        )
        return read.union(assigned)

    @cached_property
    def reached(self) -> tuple[dict[int, int], dict[int, int], bool]:
        """The last offset read and the last finally read of each place; whether there was a final read at all."""
        from pyspark.sql import functions as f

        polls = (
            self.lines("poll")
            .where("type = 'ok'")
            .select(
                self._place().alias("place"),
                f.array_max(f.expr("transform(records, r -> r[0])")).alias("offset"),
                f.coalesce("final", f.lit(False)).alias("final"),
            )
        )
        ends = self.lines("final").select(self._place().alias("place"), f.col("offset") - 1, f.lit(True))
        rows = polls.union(ends)
        if self.topic is not None:
            rows = rows.union(self.topic.select(self._place().alias("place"), "offset", f.lit(True)))
        last_read: dict[int, int] = {}
        last_final: dict[int, int] = {}
        for row in rows.groupBy("place", "final").agg(f.max("offset").alias("offset")).collect():
            offset = -1 if row["offset"] is None else row["offset"]
            last_read[row["place"]] = max(offset, last_read.get(row["place"], -1))
            if row["final"]:
                last_final[row["place"]] = offset
        return last_read, last_final, bool(last_final)

    @cached_property
    def plain_producers(self) -> list[int]:
        """The producers that are not idempotent; the last line about one counts."""
        heads = self.lines("history").where("producer is not null").orderBy("file", "block", "row").collect()
        idempotent = {row["producer"]: row["idempotent"] for row in heads}
        return sorted(producer for producer, promised in idempotent.items() if not promised)

    def name(self, place: int) -> str:
        """`t-3`"""
        topic, partition = self.places[place]
        return f"{topic}-{partition}"

    # -- within

    def _path(self, name: str) -> str:
        return f"file://{os.path.join(self.directory, name)}"

    def _parse(self, files: Sequence[str]) -> None:
        from pyspark.sql import functions as f

        raw = (
            self.spark.read.schema(_SCHEMA)
            .option("mode", "PERMISSIVE")
            .option("columnNameOfCorruptRecord", "_damage")
            .json([f"file://{path}" for path in files])
        )
        placed = raw.select(
            "*",
            f.col("_metadata.file_path").alias("file"),
            f.col("_metadata.file_block_start").alias("block"),
            f.monotonically_increasing_id().alias("row"),
        )
        wanted = f.col("f").isin(*_KINDS) | f.col("_damage").isNotNull()
        placed.where(wanted).withColumn("f", f.coalesce("f", f.lit("damaged"))).write.partitionBy("f").parquet(
            self._path("lines")
        )

    def _check(self) -> None:
        """`PipelineError` that names the first line which is not in the format; a last one cut short is passed over."""
        from pyspark.sql import functions as f

        lines = self.spark.read.schema(f"{_SCHEMA}, file STRING, block BIGINT, row BIGINT").parquet(self._path("lines"))
        send = f.col("f") == "send"
        index = f.col("producer").between(0, (1 << 20) - 1) & f.col("number").between(0, _LIMIT - 1)
        whole = index & f.col("type").isin(*STATES) & f.col("key").isNotNull() & f.col("start").isNotNull()
        rows = f.expr(
            "forall(records, r -> size(r) = 4 and forall(r, x -> x is not null) "
            f"and r[0] between 0 and {_LIMIT - 1} and r[2] < {_LIMIT})"
        )
        poll = f.coalesce(rows, f.lit(False)) & f.col("process").isNotNull()
        spot = f.col("topic").isNotNull() & f.col("partition").isNotNull()
        offset = f.col("offset").isNull() | f.col("offset").between(0, _LIMIT - 1)
        damaged = (
            f.col("_damage").isNotNull()
            | (send & ~f.coalesce(whole & spot & offset, f.lit(False)))
            | ((f.col("f") == "poll") & (f.col("type") == "ok") & ~(poll & spot))
            | (f.col("f").isin("assign", "final") & ~(spot & f.col("offset").isNotNull()))
            | ((f.col("f") == "history") & (f.coalesce("version", f.lit(0)) != VERSION))
        )
        for row in lines.where(damaged).orderBy("file", "block", "row").limit(2 + len(_KINDS)).collect():
            if row["_damage"] is None or not _cut_short(row["file"], row["_damage"]):
                text = row["_damage"] or str({k: v for k, v in row.asDict().items() if v is not None})
                raise PipelineError(f"{row['file']}: a line is not in the format (docs/chaos-history.md): {text[:200]}")

    def _place(self) -> Column:
        from pyspark.sql import functions as f

        name = f.concat_ws("\0", f.col("topic"), f.col("partition").cast("string"))
        numbers = [
            one
            for at, (topic, partition) in enumerate(self.places)
            for one in (f.lit(f"{topic}\0{partition}"), f.lit(at))
        ]
        return f.create_map(*numbers)[name].cast("bigint") if numbers else f.lit(None).cast("bigint")

    def _of_topic(self, records: DataFrame) -> DataFrame:
        """A topic's records as the load wrote them, as one more final read."""
        from pyspark.sql import functions as f

        body = f.expr("substring(value, 10)")
        words = f.split(body.cast("string"), ":")
        crc = f.conv(f.expr("substring(value, 1, 8)").cast("string"), 16, 10).cast("bigint")
        ours = (crc == f.crc32(body)) & (words[2] == f.col("key").cast("string"))
        java = f.split(f.col("value").cast("string"), "[.]")
        is_java = f.col("value").cast("string").rlike("^[0-9]+[.][0-9]+$")
        producer = f.when(is_java, java[0]).when(ours, words[0]).cast("bigint")
        number = f.when(is_java, java[1]).when(ours, words[1]).cast("bigint")
        key = f.when(is_java, f.coalesce(f.col("key").cast("string"), f.lit("0"))).when(ours, words[2]).cast("bigint")
        named = f.coalesce(producer, f.lit(-1))
        return records.select(
            (self._place() * _LIMIT + f.col("offset")).alias("at"),
            named.alias("producer"),
            f.when(named >= 0, named * _LIMIT + number).otherwise(f.lit(-1)).alias("rid"),
            f.coalesce(key, f.lit(0)).alias("key"),
            f.lit(_LAST).alias("end"),
            f.lit(True).alias("final"),
        )


def history_files(paths: Sequence[str]) -> list[str]:
    """The history files in these files and directories (a run's directory holds `history/`), as absolute paths."""
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
    """Producer and number of a `rid`; place and offset of an `at`."""
    return number >> SHIFT, number & (_LIMIT - 1)


def _rid(producer: str, number: str) -> Column:
    from pyspark.sql import functions as f

    return f.col(producer) * _LIMIT + f.col(number)


def _cut_short(file: str, text: str) -> bool:
    """Whether a damaged line is the last of its file and has no end, as a process that was killed leaves it."""
    path = file.removeprefix("file://").removeprefix("file:")
    if path.endswith(".gz"):
        return False
    with open(path, "rb") as raw:
        raw.seek(0, os.SEEK_END)
        size = raw.tell()
        raw.seek(max(0, size - len(text.encode()) - 1))
        tail: Any = raw.read()
    return bool(tail.endswith(text.encode()) and not tail.endswith(b"\n"))
