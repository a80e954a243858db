"""What is looked for, as joins and aggregates over a history's tables; kinds are those of `raftwerk chaos check`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..running import Say
from .tables import ACKED, FAILED, INVOKED, SHIFT, STATES, History, split

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

KINDS = (
    "lost", "vanished", "duplicate", "reordered", "inconsistent-offset", "seen-before-send", "nonmonotonic-poll",
    "skipped-poll", "phantom", "failed-seen", "corrupt", "unseen", "unanswered", "not-healed",
)  # fmt: skip
_TOTALS = {"acked": "ok", "failed": "fail", "unknown": "info", "unanswered": "invoke"}
_LIMIT = 1 << SHIFT
_MASK = _LIMIT - 1
_SKIPS_MAX = 10_000


@dataclass
class AuditVerdict:
    """The end of an audit: how often each kind was found, the first cases, what was counted."""

    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    evidence: dict[str, list[str]] = field(default_factory=lambda: {kind: [] for kind in KINDS})
    totals: dict[str, int] = field(default_factory=dict)

    @property
    def word(self) -> str:
        """VALID, INVALID, or UNKNOWN when nothing was acked or nothing read."""
        if any(self.counts.values()):
            return "INVALID"
        return "VALID" if self.totals.get("acked") and self.totals.get("reads") else "UNKNOWN"

    def to_text(self) -> str:
        """For people."""
        totals = ", ".join(f"{count:,} {name}" for name, count in self.totals.items())
        lines = [f"{self.word}: {totals}"]
        for kind, count in self.counts.items():
            if count:
                lines.append(f"{kind}: {count:,}")
                lines += [f"    {text}" for text in self.evidence[kind]]
        return "\n".join(lines)

    def to_json_text(self) -> str:
        """For scripts."""
        found = {kind: {"count": count, "evidence": self.evidence[kind]} for kind, count in self.counts.items()}
        return json.dumps({"verdict": self.word, "totals": self.totals, "anomalies": found})


@dataclass
class Audit:
    """One audit under way; `evidence_max` cases of each kind are told."""

    history: History
    evidence_max: int
    say: Say
    verdict: AuditVerdict = field(default_factory=AuditVerdict)

    def judge(self) -> AuditVerdict:
        """Look for everything."""
        records, offsets = self._tables()
        self._totals(records)
        self._records(records)
        self._gone(records)
        self._offsets(records, offsets)
        self._order(records, offsets)
        self._polls(offsets)
        for row in self.history.lines("heal").where("type != 'ok'").collect():
            self._add("not-healed", 1, [row["error"] or "the replicas did not get in sync"])
        return self.verdict

    # -- the tables

    def _tables(self) -> tuple[DataFrame, DataFrame]:
        """One row a record and one row an offset, on disk."""
        from pyspark.sql import functions as f

        history = self.history
        self.say(f"{len(history.places)} partitions; the records")
        sends = history.sends().withColumns(
            {
                "seen": f.lit(None).cast("bigint"),
                "read_key": f.lit(None).cast("bigint"),
                "read_ns": f.lit(None).cast("bigint"),
                "final": f.lit(False),
            }
        )
        reads = (
            history.reads()
            .where("producer >= 0")
            .select(
                "rid",
                f.lit(None).cast("int").alias("state"),
                *(f.lit(None).cast("bigint").alias(name) for name in ("key", "place", "start", "end", "ack")),
                f.col("at").alias("seen"),
                f.col("key").alias("read_key"),
                f.col("end").alias("read_ns"),
                "final",
            )
        )
        records = sends.unionByName(reads).groupBy("rid").agg(
            f.max("state").alias("state"), f.max("key").alias("key"), f.max("place").alias("place"),
            f.min("start").alias("start"), f.max("end").alias("end"), f.max("ack").alias("ack"),
            f.min("seen").alias("seen"), f.max("seen").alias("seen_last"), f.min("read_key").alias("read_key"),
            f.max("read_key").alias("read_key_last"),
            f.min("read_ns").alias("first_ns"), f.max("final").alias("final"),
        )  # fmt: skip
        records = self._kept(records, "records")
        self.say("the offsets")
        acked = (
            history.sends().where("ack is not null").select(f.col("ack").alias("at"), "rid", f.lit(False).alias("read"))
        )
        found = history.reads().where("producer >= 0").select("at", "rid", f.lit(True).alias("read"))
        offsets = (
            acked.union(found)
            .groupBy("at")
            .agg(f.min("rid").alias("rid"), f.max("rid").alias("other"), f.max("read").alias("read"))
        )
        return records, self._kept(offsets, "offsets")

    def _kept(self, rows: DataFrame, name: str) -> DataFrame:
        path = f"file://{self.history.directory}/{name}"
        rows.write.parquet(path)
        return self.history.spark.read.parquet(path)

    # -- what is looked for

    def _totals(self, records: DataFrame) -> None:
        states = {row["state"]: row["count"] for row in records.groupBy("state").count().collect()}
        totals = {name: states.get(STATES[word], 0) for name, word in _TOTALS.items()}
        self.verdict.totals = {"sends": sum(totals.values()), **totals, "reads": self.history.reads().count()}

    def _records(self, records: DataFrame) -> None:
        from pyspark.sql import functions as f

        self.say("what became of each record")
        seen = f.col("seen").isNotNull()
        sent = f.col("state").isNotNull()
        self._find("phantom", records.where(seen & ~sent), lambda r: f"was read at {self._at(r.seen)}; nobody sent it")
        self._find(
            "failed-seen",
            records.where(seen & (f.col("state") == FAILED)),
            lambda r: f"failed, and was read at {self._at(r.seen)}",
        )
        self._find(
            "seen-before-send",
            records.where(sent & (f.col("first_ns") < f.col("start"))),
            lambda r: f"was read {(r.start - r.first_ns) / 1e9:.6f} s before its send began",
        )
        keys = (f.col("read_key") != f.col("key")) | (f.col("read_key_last") != f.col("key"))
        self._find(
            "corrupt",
            records.where(sent & seen & keys),
            lambda r: f"was sent with key {r.key} and read with another at {self._at(r.seen)}",
        )
        self._find("unanswered", records.where(f.col("state") == INVOKED), lambda r: "was sent, and never answered")
        foreign = self.history.reads().where("producer < 0")
        rows = [f"{self._at(row.at)} holds bytes that nobody of the run wrote" for row in self._some(foreign)]
        self._add("corrupt", foreign.count() if rows or not self.evidence_max else 0, rows)

    def _gone(self, records: DataFrame) -> None:
        from pyspark.sql import functions as f

        last_read, last_final, has_final = self.history.reached
        gone = ~f.col("final") if has_final else f.col("seen").isNull()
        acked = records.where((f.col("state") == ACKED) & gone)
        reach = _lookup(last_final if has_final else last_read, f.col("place"))
        passed = reach >= f.coalesce(f.col("ack").bitwiseAND(f.lit(_MASK)), f.lit(0))
        self._find("lost", acked.where(passed), lambda r: f"{self._acked(r)}, is gone; later ones were read")
        self._find("unseen", acked.where(~passed), lambda r: f"{self._acked(r)}; no read came so far")
        others = records.where((f.col("state") != ACKED) & gone & f.col("seen").isNotNull())
        there = _lookup(last_final, f.shiftright("seen", SHIFT)) >= f.col("seen").bitwiseAND(f.lit(_MASK))
        self._find(
            "vanished", others.where(there), lambda r: f"was read at {self._at(r.seen)}, and not in the final read"
        )

    def _offsets(self, records: DataFrame, offsets: DataFrame) -> None:
        from pyspark.sql import functions as f

        self.say("what is at each offset")
        conflicts = offsets.where("rid != other")
        cases = [f"{self._at(r.at)} is {_name(r.rid)} and also {_name(r.other)}" for r in self._some(conflicts)]
        self._add("inconsistent-offset", conflicts.count(), cases)
        elsewhere = records.where("state is not null and seen is not null and ack is not null and ack != seen")
        nothing = offsets.where("read or rid != other").select(f.col("at").alias("ack"))
        self._find(
            "inconsistent-offset",
            elsewhere.join(nothing, "ack", "left_anti"),
            lambda r: f"was acked at {self._at(r.ack)} and read at {self._at(r.seen)}",
        )

    def _order(self, records: DataFrame, offsets: DataFrame) -> None:
        """Duplicates and the order of each key: an offset at which two records were found says nothing of either."""
        from pyspark.sql import Window
        from pyspark.sql import functions as f

        self.say("duplicates, and the order of each key")
        plain = self.history.plain_producers
        promised = records.where(~f.shiftright("rid", SHIFT).isin(plain)) if plain else records
        conflicts = offsets.where("rid != other").select("at")
        twice = promised.where("seen != seen_last").select("rid", "seen")
        places = self.history.reads().where("producer >= 0").select("rid", "at").join(f.broadcast(twice), "rid")
        extra = places.where("at != seen").distinct().join(conflicts, "at", "left_anti")
        self._find("duplicate", extra, lambda r: f"is at {self._at(r.seen)} and at {self._at(r.at)}")
        first = promised.where("seen is not null").select(f.col("seen").alias("at"), "rid", "read_key")
        first = first.join(conflicts, "at", "left_anti")
        key = Window.partitionBy(f.shiftright("at", SHIFT), f.shiftright("rid", SHIFT), "read_key").orderBy("at")
        before = f.max("rid").over(key.rowsBetween(Window.unboundedPreceding, -1))
        self._find(
            "reordered",
            first.withColumn("before", before).where("before > rid"),
            lambda r: f"is at {self._at(r.at)}, after number {split(r.before)[1]} of the same key {r.read_key}",
        )

    def _polls(self, offsets: DataFrame) -> None:
        from pyspark.sql import Window
        from pyspark.sql import functions as f

        self.say("the positions of each consumer")
        way = Window.partitionBy("process", "place").orderBy("file", "block", "row")
        polls = self.history.polls().withColumn("before", f.lag("last").over(way))
        between = polls.where("first is not null and before is not null and first != before + 1")
        jumps = between.select("process", "place", f.col("before").alias("after"), f.col("first").alias("offset"))
        inner = polls.select("process", "place", f.explode("inner").alias("j"))
        jumps = self._kept(jumps.union(inner.select("process", "place", f.col("j")[0], f.col("j")[1])), "jumps")
        back = jumps.where("offset <= after")
        cases = [
            f"{r.process} read {self.history.name(r.place)} offset {r.offset} after offset {r.after}"
            for r in self._some(back)
        ]
        self._add("nonmonotonic-poll", back.count(), cases)
        ahead = jumps.where("offset > after").limit(_SKIPS_MAX).withColumn("jump", f.monotonically_increasing_id())
        ahead = self._kept(ahead, "ahead")
        passed = ahead.withColumn("step", f.explode(f.expr("sequence(after + 1, offset - 1)")))
        passed = passed.withColumn("at", f.col("place") * _LIMIT + f.col("step"))
        skipped = passed.join(offsets.where("read").select("at"), "at", "left_semi")
        skipped = skipped.groupBy("jump", "process", "place", "after", "offset").agg(f.min("step").alias("step"))
        cases = [
            f"{r.process} went from {self.history.name(r.place)} offset {r.after} to {r.offset}; others read {r.step}"
            for r in self._some(skipped)
        ]
        self._add("skipped-poll", skipped.count(), cases)

    # -- telling

    def _find(self, kind: str, rows: DataFrame, tell: Any) -> None:
        count = rows.count()
        cases = [f"{_name(row.rid)} {tell(row)}" for row in self._some(rows)] if count else []
        self._add(kind, count, cases)

    def _some(self, rows: DataFrame) -> Iterator[Any]:
        yield from rows.limit(self.evidence_max).collect()

    def _add(self, kind: str, count: int, cases: list[str]) -> None:
        self.verdict.counts[kind] += count
        room = self.evidence_max - len(self.verdict.evidence[kind])
        self.verdict.evidence[kind] += cases[: max(0, room)]

    def _at(self, at: int) -> str:
        place, offset = split(at)
        return f"{self.history.name(place)} offset {offset}"

    def _acked(self, row: Any) -> str:
        where = self._at(row.ack) if row.ack is not None else f"{self.history.name(row.place)}, offset not told"
        return f"acked for {where}"


def _name(rid: int) -> str:
    producer, number = split(rid)
    return f"record {producer}:{number}"


def _lookup(values: dict[int, int], place: Column) -> Column:
    """A place's value, -1 where there is none."""
    from pyspark.sql import functions as f

    if not values:
        return f.lit(-1)
    pairs = [f.lit(one) for pair in sorted(values.items()) for one in pair]
    return f.coalesce(f.create_map(*pairs)[place.cast("int")], f.lit(-1))
