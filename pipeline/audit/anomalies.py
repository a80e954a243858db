"""Finds anomalies: from the findings of each block, and by joins across blocks.

Kinds are those of `chaos check`, without those of transactions and without `realtime-order`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ...cluster.command_line.plural import counted
from ..running_query import ProgressLog
from .block_checks import first_read
from .history import History, split
from .history_lines import LIMIT, SHIFT
from .parcels import BLOCK_BITS, BLOCK_MASK, STATES

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

KINDS = (
    "lost", "vanished", "duplicate", "reordered", "inconsistent-offset", "seen-before-send", "nonmonotonic-poll",
    "skipped-poll", "phantom", "failed-seen", "corrupt", "unseen", "unanswered", "not-healed",
    "node-ended",
)  # fmt: skip
REALTIME_ORDER = "acked records for realtime-order"
_TOTALS = {"acked": "ok", "failed": "fail", "unknown": "info", "unanswered": "invoke"}
_SKIPS_MAX = 10_000


@dataclass
class AuditVerdict:
    """The result of an audit: the count and the first cases of each kind, and totals."""

    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    evidence: dict[str, list[str]] = field(default_factory=lambda: {kind: [] for kind in KINDS})
    totals: dict[str, int] = field(default_factory=dict)
    lacks_faults: bool = False
    """Whether the run was to inject faults, and injected none."""
    not_judged: dict[str, int] = field(default_factory=dict)
    """What the history has that only `chaos check` judges: how many of each."""

    @property
    def word(self) -> str:
        """VALID, INVALID, or UNKNOWN when nothing was acked, nothing read, or no fault injected that was to be."""
        if any(self.counts.values()):
            return "INVALID"
        if self.lacks_faults:
            return "UNKNOWN"
        return "VALID" if self.totals.get("acked") and self.totals.get("reads") else "UNKNOWN"

    def to_text(self) -> str:
        """The verdict for people."""
        totals = ", ".join(f"{count:,} {name}" for name, count in self.totals.items())
        lines = [f"{self.word}: {totals}"]
        for kind, count in self.counts.items():
            if count:
                lines.append(f"{kind}: {count:,}")
                lines += [f"    {text}" for text in self.evidence[kind]]
        if self.not_judged:
            parts = ", ".join(f"{count:,} {what}" for what, count in self.not_judged.items())
            lines.append(f"not judged: {parts}; raftwerk chaos check judges them")
        return "\n".join(lines)

    def to_json_text(self) -> str:
        """The verdict as JSON, for scripts."""
        found = {kind: {"count": count, "evidence": self.evidence[kind]} for kind, count in self.counts.items()}
        not_judged = [{"what": what, "count": count} for what, count in self.not_judged.items()]
        return json.dumps({"verdict": self.word, "totals": self.totals, "anomalies": found, "not_judged": not_judged})


@dataclass
class Audit:
    """An audit of a history. Up to `evidence_max` cases of each kind are described."""

    history: History
    evidence_max: int
    log: ProgressLog
    verdict: AuditVerdict = field(default_factory=AuditVerdict)

    def judge(self) -> AuditVerdict:
        """Find all anomalies, and say what is not judged."""
        history = self.history
        self.log(f"{counted(len(history.places), 'partition')}; what became of each record")
        records = history.judged_records()
        self.log("what is at each offset")
        offsets = history.judged_offsets()
        self._totals(records)
        self._records(records)
        self._offsets(records, offsets)
        self._order(records, offsets)
        self._polls(offsets)
        for line in history.lines:
            if line["f"] == "heal" and line["type"] != "ok":
                self._add("not-healed", 1, [line["error"] or "the replicas did not get in sync"])
            elif line["f"] == "node-end":
                self._add("node-ended", 1, [line["error"] or "no fault of the run ended it"])
        self.verdict.lacks_faults = self._lacks_faults()
        acked = self.verdict.totals["acked"]
        self.verdict.not_judged = history.transactional | ({REALTIME_ORDER: acked} if acked else {})
        return self.verdict

    def _lacks_faults(self) -> bool:
        lines = self.history.lines
        chosen = [line["faults"] or "[]" for line in lines if line["f"] == "history" and line["process"] == "nemesis"]
        return chosen[-1:] not in ([], ["[]"]) and not any(line["f"] == "fault" for line in lines)

    # -- anomalies

    def _totals(self, records: DataFrame) -> None:
        from pyspark.sql import functions as f

        totals = records.where("kind = 'total'").groupBy("rid").agg(f.sum("key").alias("n")).collect()
        states = {row["rid"]: row["n"] for row in totals}
        counts = {name: states.get(STATES[word], 0) for name, word in _TOTALS.items()}
        reads = self.history.notes("reads").agg(f.coalesce(f.sum("n"), f.lit(0))).collect()[0][0]
        self.verdict.totals = {"sends": sum(counts.values()), **counts, "reads": reads}

    def _records(self, records: DataFrame) -> None:
        counts = {row["kind"]: row["count"] for row in records.groupBy("kind").count().collect()}
        for kind, tell in self._tellers().items():
            if counts.get(kind):
                rows = self._some(records.where(records["kind"] == kind))
                self._add(kind, counts[kind], [f"{_name(row.rid)} {tell(row)}" for row in rows])
        foreign = self.history.notes("foreign")
        places = self.history.known.places
        found = [places[row["topic"], row["partition"]] * LIMIT + row["first"] for row in self._some(foreign)]
        cases = [f"{self._at(at)} holds bytes that nobody of the run wrote" for at in found]
        self._add("corrupt", foreign.count(), cases)

    def _tellers(self) -> dict[str, Callable[[Any], str]]:
        """Texts for the kinds that are decided within one record's row."""
        return {
            "phantom": lambda r: f"was read at {self._at(r.seen)}; nobody sent it",
            "failed-seen": lambda r: f"failed, and was read at {self._at(r.seen)}",
            "seen-before-send": lambda r: f"was read {(r.start - r.first_ns) / 1e9:.6f} s before its send began",
            "corrupt": lambda r: f"was sent with key {r.key} and read with another at {self._at(r.seen)}",
            "unanswered": lambda r: "was sent, and never answered",
            "lost": lambda r: f"{self._acked(r)}, is gone; later ones were read",
            "unseen": lambda r: f"{self._acked(r)}; no read came so far",
            "vanished": lambda r: f"was read at {self._at(r.seen)}, and not in the final read",
        }

    def _offsets(self, records: DataFrame, offsets: DataFrame) -> None:
        """Find two records at one offset, acks that name an offset without a record, and records elsewhere."""
        from pyspark.sql import functions as f

        conflicts = offsets.where("kind = 'conflict'")
        cases = [f"{self._at(r.at)} is {_name(r.rid)} and also {_name(r.other)}" for r in self._some(conflicts)]
        self._add("inconsistent-offset", conflicts.count(), cases)
        elsewhere = records.where("kind = 'elsewhere'").select(
            "rid", "ack", "seen", *_block_of("ack"), f.col("ack").bitwiseAND(f.lit(BLOCK_MASK)).alias("bit")
        )
        bits = offsets.where("kind = 'bits'").select("place", "block", "known")
        byte = "conv(hex(substring(known, cast(bit div 8 as int) + 1, 1)), 16, 10)"
        there = f.expr(f"shiftright(cast({byte} as int), cast(bit % 8 as int)) & 1")
        nothing = elsewhere.join(bits, ["place", "block"], "left").where(f.coalesce(there, f.lit(0)) == 0)
        self._find(
            "inconsistent-offset",
            nothing,
            lambda r: f"was acked at {self._at(r.ack)} and read at {self._at(r.seen)}",
        )
        self._find(
            "inconsistent-offset",
            records.where("kind = 'elsewhere-unacked'"),
            lambda r: f"was sent to {self.history.name(r.place)} and read at {self._at(r.seen)}",
        )

    def _order(self, records: DataFrame, offsets: DataFrame) -> None:
        """Find duplicates, and broken order of a producer. Offsets with two different records are left out of both."""
        from pyspark.sql import Window
        from pyspark.sql import functions as f

        self.log("duplicates, and the order of each producer")
        conflicts = offsets.where("kind = 'conflict'").select("at")
        extra = records.where("kind = 'duplicate'").join(conflicts, "at", "left_anti")
        self._find("duplicate", extra, lambda r: f"is at {self._at(r.seen)} and at {self._at(r.at)}")
        pairs = self._doubtful_pairs(offsets)
        if not pairs:
            return
        producer, place = f.shiftright("rid", SHIFT), f.shiftright("seen", SHIFT)
        first = self.history.firsts(pairs).withColumns({"producer": producer, "place": place, "at": f.col("seen")})
        first = first.join(conflicts, "at", "left_anti")
        way = Window.partitionBy("place", "producer").orderBy("at")
        before = f.max("rid").over(way.rowsBetween(Window.unboundedPreceding, -1))
        self._find(
            "reordered",
            self.history.materialized(first.withColumn("before", before).where("before > rid"), "reordered"),
            lambda r: f"is at {self._at(r.at)}, after number {split(r.before)[1]} of the same producer",
        )

    @staticmethod
    def _doubtful_pairs(offsets: DataFrame) -> list[tuple[int, int]]:
        """`place, producer` of records that may be out of order: all that are, and perhaps some more."""
        from pyspark.sql import Window
        from pyspark.sql import functions as f

        way = Window.partitionBy("place", "producer").orderBy("block")
        before = f.max("other").over(way.rowsBetween(Window.unboundedPreceding, -1))
        runs = offsets.where("kind = 'order'").withColumn("before", before)
        pairs = runs.where("out_of_order or before > rid").select("place", "producer").distinct().collect()
        return sorted((row["place"], row["producer"]) for row in pairs)

    def _polls(self, offsets: DataFrame) -> None:
        from pyspark.sql import Window
        from pyspark.sql import functions as f

        self.log("the positions of each consumer")
        way = Window.partitionBy("text", "topic", "partition").orderBy("file", "position")
        ways = self.history.notes("way").withColumn("before", f.lag("last").over(way)).where("first != before + 1")
        names = ("text", "topic", "partition")
        jumps = self.history.notes("jump").select(*names, f.col("first").alias("after"), f.col("last").alias("offset"))
        jumps = self.history.materialized(jumps.union(ways.select(*names, "before", "first")), "jumps")
        back = jumps.where("offset <= after")
        cases = [
            f"{r.text} read {r.topic}-{r.partition} offset {r.offset} after offset {r.after}" for r in self._some(back)
        ]
        self._add("nonmonotonic-poll", back.count(), cases)
        ahead = jumps.where("offset > after").limit(_SKIPS_MAX).withColumn("jump", f.monotonically_increasing_id())
        ahead = self.history.materialized(ahead, "ahead")
        skipped = ahead.join(self._read_between(ahead, offsets), "jump")
        cases = [
            f"{r.text} went from {r.topic}-{r.partition} offset {r.after} to {r.offset}; others read {r.step}"
            for r in self._some(skipped)
        ]
        self._add("skipped-poll", skipped.count(), cases)

    def _read_between(self, ahead: DataFrame, offsets: DataFrame) -> DataFrame:
        """`jump, step`: the first offset that others read among those that a jump skipped."""
        from pyspark.sql import functions as f

        numbers = [(*name, number) for name, number in self.history.known.places.items()]
        places = self.history.spark.createDataFrame(numbers, "topic STRING, partition INT, place BIGINT")
        low, high = f.col("after") + 1, f.col("offset") - 1
        ranges = ahead.join(f.broadcast(places), ["topic", "partition"]).select(
            "jump", "place", low.alias("low"), high.alias("high")
        )
        bits = offsets.where("kind = 'bits'").select("place", "block", "read")
        blocks = f.col("block").between(f.shiftright("low", BLOCK_BITS), f.shiftright("high", BLOCK_BITS))
        passed = f.broadcast(ranges).join(bits, "place").where(blocks).select("jump", "low", "high", "block", "read")
        found = passed.mapInArrow(first_read, "jump BIGINT, step BIGINT")
        return found.groupBy("jump").agg(f.min("step").alias("step"))

    # -- evidence

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


def _block_of(column: str) -> tuple[Column, Column]:
    """The `place` and the `block` of an `at`, as columns."""
    from pyspark.sql import functions as f

    offset = f.col(column).bitwiseAND(f.lit(LIMIT - 1))
    return f.shiftright(column, SHIFT).alias("place"), f.shiftright(offset, BLOCK_BITS).alias("block")
