"""Judges the transactions of a history. Lines may come in any order, except the reads of one process.

What is judged needs all of a transaction at once, so transactions and reads are kept in memory: about 1 kB for each
transaction and 250 bytes for each record.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..findings import Findings
from .exactly_once import EndOffsets, ExactlyOnceJudge
from .isolation import IsolationJudge
from .read_table import ReadTable
from .transaction_table import Outcome, TransactionTable


class TransactionCheck:
    """A check of transactions: add all lines, then `finish`."""

    def __init__(self, findings: Findings) -> None:
        self.table = TransactionTable()
        self.reads = ReadTable(self.table, findings)
        self.figures: dict[str, int] = {}
        """Figures for the report; empty if there are no transactions."""
        self._findings = findings
        self._ends = EndOffsets()
        self._copies: dict[str, tuple[str, str]] = {}
        """The source and the group of each topic that holds copies."""

    def on_copies(self, source: str, topic: str, group: str) -> None:
        """A group copies the committed records of a topic to another."""
        self._copies[topic] = (source, group)

    def on_group_offset(self, line: Mapping[str, Any]) -> None:
        """The offset that a group has in the end."""
        self._ends.was_looked_at = True
        offset = line["offset"] if line["type"] == "ok" else None
        self._ends.told[line["group"], self.table.place(line["topic"], line["partition"])] = offset

    def on_stable(self, line: Mapping[str, Any]) -> None:
        """Whether the last stable offset of a partition reached the end of its log."""
        self._ends.was_looked_at = True
        if line["type"] == "ok":
            return
        place, seconds = self.table.place(line["topic"], line["partition"]), (line["end"] - line["start"]) / 1e9
        said = f"the last stable offset of {place} is {line['stable']}, and the log ends at {line['high_watermark']}"
        self._findings.add(
            "stuck-stable-offset", f"{said}, {seconds:.0f} s after the last transaction", place=str(place)
        )

    def on_hanging(self, line: Mapping[str, Any]) -> None:
        """A transaction that is open in a partition, though all should have ended."""
        self._ends.was_looked_at = True
        place = self.table.place(line["topic"], line["partition"])
        said = f"{place} has a transaction of producer id {line['producer_id']} open from offset {line['offset']} on"
        seconds = (line["end"] - line["start"]) / 1e9
        said += f", {seconds:.0f} s after the last one should have ended"
        self._findings.add("hanging-transaction", said, place=str(place), offset=line["offset"])

    def finish(self, origin_ns: int) -> None:
        """Judge everything; times in evidence are counted from `origin_ns`."""
        if not self.table.transactions and not self.reads.read_count:
            return
        self.table.complete()
        isolation = IsolationJudge(self.table, self.reads, self._findings, self._copies, origin_ns)
        isolation.judge()
        self.reads.judge_skips()
        exactly_once = ExactlyOnceJudge(self.table, self.reads, self._findings, isolation)
        exactly_once.judge(self._ends)
        for topic, (source, group) in sorted(self._copies.items()):
            exactly_once.judge_copies(topic, source, group, self._ends)
        outcomes = [one.outcome for one in self.table.transactions.values()]
        self.figures |= {"transactions": len(outcomes)}
        self.figures |= {outcome.value: outcomes.count(outcome) for outcome in Outcome}
        incarnations = {(one.transactional_id, one.incarnation): None for one in self.table.transactions.values()}
        self.figures |= {"incarnations": len(incarnations)}
        self.figures |= {"reads": self.reads.read_count, "committed_reads": self.reads.committed_read_count}
        self.figures |= {"effects": exactly_once.effect_count}
