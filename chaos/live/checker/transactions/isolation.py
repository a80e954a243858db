"""Judges whether transactions are atomic and isolated: all or nothing at read_committed, and nothing too early.

Kafka promises no isolation between transactions that run at the same time: their records lie mixed, in other orders in
other partitions, and each order is right. It does order what is not concurrent: once a transaction has ended, none of
its records can be written behind records of a transaction that began later. Cycles of write order and time break that.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..findings import Findings
from .read_table import ReadTable, RecordKey, SeenRecord
from .transaction_table import Outcome, Place, Transaction, TransactionTable

Spot = tuple[Place, int]
"""A partition and an offset."""


class IsolationJudge:
    """Walks over all transactions and all reads, and adds what is wrong to the findings."""

    def __init__(
        self, table: TransactionTable, reads: ReadTable, findings: Findings, copies: Iterable[str], origin_ns: int
    ) -> None:
        """`copies` are topics that hold copies of other topics' records, which are judged elsewhere.

        Times in evidence are counted from `origin_ns`.
        """
        self._table = table
        self._reads = reads
        self._findings = findings
        self._spots: dict[RecordKey, Spot] = {}
        self._final: dict[RecordKey, None] = {}
        self._last_read: dict[Place, int] = {}
        """The highest offset that was read at read_committed."""
        self._places = [place for place in sorted(reads.records) if place.topic not in tuple(copies)]
        self._origin_ns = origin_ns

    def judge(self) -> None:
        """Judge everything."""
        for place in self._places:
            self._judge_place(place)
            self._judge_order(place)
        for number, transaction in self._table.transactions.items():
            self._judge_transaction(number, transaction)

    def is_visible(self, number: int, index: int) -> bool:
        """Whether the final read at read_committed has the record; without one, whether anybody read it."""
        return RecordKey(number, index) in self._final

    # -- one record after the other

    def _judge_place(self, place: Place) -> None:
        last: dict[int, int] = {}
        for offset, seen in sorted(self._reads.records[place].items()):
            transaction = self._table.transactions.get(seen.key.transaction)
            if transaction is None or seen.key.ordinal >= len(transaction.writes):
                self._about("phantom", place, offset, "was read, and no client wrote it")
                continue
            if self._is_elsewhere(place, offset, seen, transaction):
                continue
            if seen.key.ordinal < last.get(seen.key.transaction, -1):
                before = last[seen.key.transaction]
                self._about("reordered", place, offset, f"stands after record {before} of the same transaction")
            last[seen.key.transaction] = seen.key.ordinal
            if seen.first_ns is not None:
                self._last_read[place] = offset
                self._judge_committed_read(place, offset, seen.first_ns, transaction)
                if seen.is_final or not self._reads.final_ends:
                    self._final[seen.key] = None

    def _is_elsewhere(self, place: Place, offset: int, seen: SeenRecord, transaction: Transaction) -> bool:
        """Whether the record is not where it was written; that is a finding, too."""
        first = self._spots.setdefault(seen.key, (place, offset))
        if first != (place, offset):
            self._about("duplicate", place, offset, f"is at {first[0]} offset {first[1]} already")
            return True
        wanted, ack = transaction.writes[seen.key.ordinal].place, transaction.ack(seen.key.ordinal)
        if wanted != place or (ack is not None and ack != offset):
            told = f"was sent to {wanted}" if ack is None else f"was acked at {wanted} offset {ack}"
            self._about("inconsistent-offset", place, offset, told)
        return False

    def _judge_committed_read(self, place: Place, offset: int, first_ns: int, transaction: Transaction) -> None:
        if transaction.outcome is Outcome.ABORTED:
            self._about("aborted-read", place, offset, f"was read at read_committed; {self._why_aborted(transaction)}")
        elif transaction.commit_ns is not None and first_ns < transaction.commit_ns:
            early_s = (transaction.commit_ns - first_ns) / 1e9
            said = f"was read at read_committed {early_s:.6f} s before the commit was asked for"
            self._about("intermediate-read", place, offset, said)

    def _why_aborted(self, transaction: Transaction) -> str:
        if transaction.type == "fail":
            return f"the transaction was aborted at {self._seconds(transaction.end_ns)}"
        if transaction.commit_ns is None:
            return "nobody asked for its commit"
        began = self._seconds(transaction.successor_ns)
        return f"its commit was asked for at {self._seconds(transaction.commit_ns)}, and its successor began at {began}"

    # -- the order of a partition

    def _judge_order(self, place: Place) -> None:
        """Compare the order of offsets with the order of begins and ends."""
        latest: tuple[int, Transaction] | None = None
        found: dict[str, None] = {}
        for offset, seen in sorted(self._reads.records[place].items()):
            transaction = self._table.transactions.get(seen.key.transaction)
            if transaction is None:
                continue
            if latest is not None and transaction.has_ended_before(latest[1]) and transaction.name not in found:
                found[transaction.name] = None
                began = self._seconds(latest[1].start_ns)
                other = f"transaction {latest[1].name} at offset {latest[0]}, which began at {began}"
                said = f"stands behind {other}, though its own had ended at {self._seconds(transaction.latest_end_ns)}"
                self._about("write-cycle", place, offset, said)
            if latest is None or transaction.start_ns > latest[1].start_ns:
                latest = (offset, transaction)

    # -- one transaction after the other

    def _judge_transaction(self, number: int, transaction: Transaction) -> None:
        if transaction.type == "ok" and transaction.is_asked_too_late:
            said = f"was committed at {self._seconds(transaction.end_ns)}; {self._why_aborted(transaction)}"
            self._of(transaction, "fenced-commit", said)
        if transaction.outcome is Outcome.ABORTED:
            return
        there = [index for index in range(len(transaction.writes)) if self.is_visible(number, index)]
        missing = [index for index in range(len(transaction.writes)) if not self.is_visible(number, index)]
        unread = [index for index in missing if not self.was_looked_for(transaction, index)]
        gone = [index for index in missing if index not in unread]
        seen = [index for index in missing if self._has_vanished(RecordKey(number, index))]
        if there and gone:
            told = f"({transaction.outcome.value}): the final read has {self._in_words(transaction, there)}"
            self._of(transaction, "torn-transaction", f"{told}, and not {self._in_words(transaction, gone)}")
        elif gone and transaction.outcome is Outcome.COMMITTED:
            said = f"was committed at {self._seconds(transaction.end_ns)}; gone is {self._in_words(transaction, gone)}"
            self._of(transaction, "lost-transaction", said)
        elif seen:
            said = f"was read at read_committed, and is not in the final read: {self._in_words(transaction, seen)}"
            self._of(transaction, "vanished", said)
        never_seen = [index for index in unread if index not in seen]
        if never_seen and transaction.outcome is Outcome.COMMITTED and self._reads.final_ends:
            said = f"is committed; no final read came to {self._in_words(transaction, never_seen)}"
            self._of(transaction, "unseen", said)

    def _has_vanished(self, key: RecordKey) -> bool:
        """Whether a record was read at read_committed, and the final read came to the end of the log without it."""
        spot = self._spots.get(key)
        if spot is None or key in self._final or spot[0] not in self._reads.final_ends:
            return False
        return self._reads.records[spot[0]][spot[1]].first_ns is not None

    def was_looked_for(self, transaction: Transaction, index: int) -> bool:
        """Whether the final read came as far as this record must be; without one, whether any reader did."""
        place, ack = transaction.writes[index].place, transaction.ack(index)
        if not self._reads.final_ends:
            return ack is not None and ack < self._last_read.get(place, -1)
        end = self._reads.final_ends.get(place)
        return end is not None and (ack is None or ack < end)

    @staticmethod
    def _in_words(transaction: Transaction, indexes: Sequence[int]) -> str:
        """Records and where they are, at most three of them."""
        told = []
        for index in indexes[:3]:
            ack = transaction.ack(index)
            where = f"{transaction.writes[index].place}{'' if ack is None else f' offset {ack}'}"
            told.append(f"record {index} ({where})")
        return ", ".join(told) + (f" and {len(indexes) - 3} more" if len(indexes) > 3 else "")

    # -- evidence

    def _about(self, kind: str, place: Place, offset: int, said: str) -> None:
        text = f"{self._reads.name(place, offset)} at {place} offset {offset} {said}"
        key = self._reads.records[place][offset].key
        self._findings.add(kind, text, place=str(place), offset=offset, transaction=self._table.name(key.transaction))

    def _of(self, transaction: Transaction, kind: str, said: str) -> None:
        self._findings.add(kind, f"transaction {transaction.name} {said}", transaction=transaction.name)

    def _seconds(self, ns: int | None) -> str:
        """A time in seconds since the begin of the run."""
        return "an unknown time" if ns is None else f"{(ns - self._origin_ns) / 1e9:.3f} s"
