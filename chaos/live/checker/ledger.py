"""Two tables of everything that was sent and everything that was read; they may be filled in any order.

The row of a record holds its outcome and where it was read; the row of an offset holds the record that was found there.
Two records at one offset are found at once. `judge` walks the tables at the end and finds all other anomalies.
"""

from __future__ import annotations

import os
from array import array
from dataclasses import dataclass
from typing import NamedTuple

from .findings import Findings
from .paged_table import INDEX_LIMIT, PagedTable

# Columns of a record's row.
STATE, KEY, PLACE, ACK, START, END, SEEN_PLACE, SEEN, FIRST_NS, FINAL, READ_KEY_MIN, READ_KEY_MAX = range(12)
_RECORD_COLUMNS = 12
_SKIP_COLUMNS = 4
# Columns of an offset's row.
VALUE, READ, CONFLICT = range(3)

INVOKED, INFO, FAILED, ACKED = 1, 2, 3, 4
STATES = {"invoke": INVOKED, "ok": ACKED, "fail": FAILED, "info": INFO}
_NUMBER_BITS = 40
_NUMBER_MASK = (1 << _NUMBER_BITS) - 1
PRODUCER_LIMIT = 1 << 20


@dataclass
class PartitionState:
    """A partition, and how far it was read. Partition -1 is where a record went that the client never told."""

    topic: str
    partition: int
    last_read: int = -1
    last_final: int = -1
    is_ended: bool = False
    """Whether the final read came to the end of the log: what it does not have is gone, wherever it was."""

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"

    @property
    def is_told(self) -> bool:
        """Whether the client told the partition."""
        return self.partition >= 0


class _Ack(NamedTuple):
    """When a record was acked, at which offset, and who had sent it."""

    end_ns: int
    offset: int
    producer: int


@dataclass
class _EarliestAcks:
    """The earliest of some acks, and the earliest one that another producer got."""

    first: _Ack | None = None
    other: _Ack | None = None

    def add(self, ack: _Ack) -> None:
        """Add an ack. Of two at the same time the one that was added first counts."""
        if self.first is None or ack.end_ns < self.first.end_ns:
            if self.first is not None and self.first.producer != ack.producer:
                self.other = self.first
            self.first = ack
        elif ack.producer != self.first.producer and (self.other is None or ack.end_ns < self.other.end_ns):
            self.other = ack

    def of_others(self, producer: int) -> _Ack | None:
        """The earliest ack that anybody but this producer got."""
        return self.first if self.first is None or self.first.producer != producer else self.other


class Ledger:
    """The tables of a history. The order in which `sent` and `read` are called does not matter."""

    def __init__(self, directory: str, findings: Findings) -> None:
        self.findings = findings
        self.records = PagedTable(os.path.join(directory, "records"), _RECORD_COLUMNS)
        self.offsets = PagedTable(os.path.join(directory, "offsets"), 3)
        self._skips = PagedTable(os.path.join(directory, "skips"), _SKIP_COLUMNS)
        self.places: list[PartitionState] = []
        self.idempotent: dict[int, bool] = {}
        self.untimed: dict[int, None] = {}
        """The producers whose start times are not real."""
        self.has_final = False
        self.origin_ns: int | None = None
        self._processes: dict[str, int] = {}
        self._place_numbers: dict[tuple[str, int], int] = {}

    def close(self) -> None:
        """Remove the tables."""
        self.records.close()
        self.offsets.close()
        self._skips.close()

    def place(self, topic: str, partition: int) -> int:
        """The number of a partition, given when it is first seen."""
        key = (topic, partition)
        number = self._place_numbers.get(key)
        if number is None:
            number = self._place_numbers[key] = len(self.places)
            self.places.append(PartitionState(topic, partition))
        return number

    def is_idempotent(self, producer: int) -> bool:
        """Whether a producer is idempotent; True if the history does not say."""
        return self.idempotent.get(producer, True)

    # -- filling

    def sent(self, producer: int, number: int, state: int, key: int, place: int, times_ns: tuple[int, int]) -> None:
        """Add an invocation or an outcome; an outcome replaces the invocation."""
        _check_limits(producer, number)
        if self.origin_ns is None or times_ns[0] < self.origin_ns:
            self.origin_ns = times_ns[0]
        page, at = self.records.row(producer, number)
        if page[at + STATE] > state:
            return
        page[at + STATE] = state
        page[at + KEY] = key + 1
        page[at + PLACE] = place + 1
        page[at + START] = times_ns[0]
        page[at + END] = times_ns[1]

    def acked_at(self, producer: int, number: int, place: int, offset: int) -> None:
        """Add the offset that the broker acknowledged."""
        _check_limits(0, offset)
        page, at = self.records.row(producer, number)
        page[at + ACK] = offset + 1
        self._found(place, offset, producer, number, "acked")

    def read(self, place: int, offset: int, record: tuple[int, int, int], end_ns: int, final: bool) -> None:
        """Add a record (producer, number, key) that a poll returned."""
        producer, number, key = record
        _check_limits(producer, number)
        _check_limits(0, offset)
        self._found(place, offset, producer, number, "read")
        page, at = self.records.row(producer, number)
        if not page[at + SEEN]:
            page[at + FIRST_NS] = end_ns
            page[at + READ_KEY_MIN] = page[at + READ_KEY_MAX] = key + 1
        page[at + FIRST_NS] = min(page[at + FIRST_NS], end_ns)
        page[at + READ_KEY_MIN] = min(page[at + READ_KEY_MIN], key + 1)
        page[at + READ_KEY_MAX] = max(page[at + READ_KEY_MAX], key + 1)
        if not page[at + SEEN] or self._stands_before(place, offset, page[at + SEEN_PLACE] - 1, page[at + SEEN] - 1):
            page[at + SEEN_PLACE] = place + 1
            page[at + SEEN] = offset + 1
        if final:
            page[at + FINAL] = 1

    def reached(self, place: int, offset: int, final: bool) -> None:
        """A poll has read up to this offset."""
        state = self.places[place]
        state.last_read = max(state.last_read, offset)
        if final:
            self.has_final = True
            state.last_final = max(state.last_final, offset)

    def ended(self, place: int, end: int) -> None:
        """The final read has reached the end of the log."""
        self.places[place].is_ended = True
        self.reached(place, end - 1, True)

    def skipped(self, process: str, place: int, after: int, before: int) -> None:
        """A consumer has read offset `before` next after offset `after`."""
        page, at = self._skips.row(0, self._skips.size(0))
        page[at : at + _SKIP_COLUMNS] = array(
            "q", (self._processes.setdefault(process, len(self._processes)), place, after, before)
        )

    def _stands_before(self, place: int, offset: int, other_place: int, other: int) -> bool:
        if place == other_place:
            return offset < other
        one, two = self.places[place], self.places[other_place]
        return (one.topic, one.partition) < (two.topic, two.partition)

    def _found(self, place: int, offset: int, producer: int, number: int, how: str) -> None:
        page, at = self.offsets.row(place, offset)
        value = (producer << _NUMBER_BITS | number) + 1
        if not page[at + VALUE]:
            page[at + VALUE] = value
        elif page[at + VALUE] != value and not page[at + CONFLICT]:
            page[at + CONFLICT] = 1
            self._conflict(place, offset, page[at + VALUE] - 1, value - 1, how)
        if how == "read":
            page[at + READ] = 1

    def _conflict(self, place: int, offset: int, there: int, here: int, how: str) -> None:
        one, other = name_value(there), name_value(here)
        self.findings.add(
            "inconsistent-offset",
            f"{self.places[place]} offset {offset} is {one} and also {other} ({how})",
            place=str(self.places[place]),
            offset=offset,
            records=[one, other],
        )

    # -- the end

    def judge(self, totals: dict[str, int]) -> None:
        """Walk both tables and find the remaining anomalies."""
        for place in self.offsets.groups:
            self._judge_place(place)
            self._judge_times(place)
        for producer in self.records.groups:
            for number in range(self.records.size(producer)):
                self._judge_record(producer, number, totals)
        processes = list(self._processes)
        for number in range(self._skips.size(0)):
            page, at = self._skips.row(0, number)
            process, place, after, before = page[at : at + _SKIP_COLUMNS]
            self._judge_skip(processes[process], place, after, before)

    def _judge_record(self, producer: int, number: int, totals: dict[str, int]) -> None:
        page, at = self.records.row(producer, number)
        row = page[at : at + _RECORD_COLUMNS]
        state, seen = row[STATE], row[SEEN]
        if not state:
            if seen:
                self._about("phantom", producer, number, f"was read at {self._seen(row.tolist())}; nobody sent it")
            return
        totals[_STATE_TOTALS[state]] += 1
        if seen:
            self._judge_seen(producer, number, row.tolist())
        if state == INVOKED and self.has_final:
            self._about("unanswered", producer, number, f"sent at {self._seconds(row[START])}, never answered")
        gone = not (row[FINAL] if self.has_final else seen)
        if state == ACKED and gone:
            self._judge_gone(producer, number, row.tolist())
        elif gone and seen and self._has_passed(row[SEEN_PLACE] - 1, seen - 1):
            self._about(
                "vanished", producer, number, f"was read at {self._seen(row.tolist())}, and not in the final read"
            )

    def _has_passed(self, place: int, offset: int) -> bool:
        """Whether the final read would have an offset, if the record were still there."""
        state = self.places[place]
        return state.is_ended or state.last_final >= offset

    def _judge_seen(self, producer: int, number: int, row: list[int]) -> None:
        if row[STATE] == FAILED:
            self._about("failed-seen", producer, number, f"failed, and was read at {self._seen(row)}")
        if row[FIRST_NS] < row[START]:
            early = (row[START] - row[FIRST_NS]) / 1e9
            self._about("seen-before-send", producer, number, f"was read {early:.6f} s before its send began")
        others = [key - 1 for key in (row[READ_KEY_MIN], row[READ_KEY_MAX]) if key != row[KEY]]
        if others:
            said = f"was sent with key {row[KEY] - 1} and read with key {others[0]} at {self._seen(row)}"
            self._about("corrupt", producer, number, said)
        self._judge_spot(producer, number, row)

    def _judge_spot(self, producer: int, number: int, row: list[int]) -> None:
        """Compare where a record was read first with its ack, or else with the partition that it was sent to."""
        place, offset = row[PLACE] - 1, row[ACK] - 1
        if not row[ACK]:
            if row[PLACE] != row[SEEN_PLACE] and self.places[place].is_told:
                said = f"was sent to {self.places[place]} and read at {self._seen(row)}"
                self._about("inconsistent-offset", producer, number, said)
        elif (row[ACK], row[PLACE]) != (row[SEEN], row[SEEN_PLACE]):
            page, at = self.offsets.row(place, offset)
            if not page[at + READ] and not page[at + CONFLICT]:
                said = f"was acked at {self.places[place]} offset {offset} and read at {self._seen(row)}"
                self._about("inconsistent-offset", producer, number, said)

    def _judge_gone(self, producer: int, number: int, row: list[int]) -> None:
        place = self.places[row[PLACE] - 1]
        reach = place.last_final if self.has_final else place.last_read
        where = f"{place} offset {row[ACK] - 1}" if row[ACK] else f"{place}, offset not told"
        before = ", though it was read before" if row[SEEN] else ""
        is_placed = bool(row[ACK])
        if (is_placed and reach >= row[ACK] - 1) or (not is_placed and self.has_final and reach >= 0):
            acked = f"acked at {self._seconds(row[END])} for {where}"
            said = f"{acked}, is gone{before}; others were read up to offset {reach}"
            self._about("lost", producer, number, said)
        elif self.has_final:
            self._about("unseen", producer, number, f"acked for {where}; reading ended at offset {reach}{before}")

    def _judge_place(self, place: int) -> None:
        """Find duplicates, and records that were read or acked out of order. Offsets with two records are left out."""
        last: dict[int, int] = {}
        for offset in range(self.offsets.size(place)):
            page, at = self.offsets.row(place, offset)
            if not page[at + VALUE] or page[at + CONFLICT]:
                continue
            value, is_read = page[at + VALUE] - 1, page[at + READ]
            producer, number = value >> _NUMBER_BITS, value & _NUMBER_MASK
            if not self.is_idempotent(producer):
                continue
            page, at = self.records.row(producer, number)
            if not is_read and page[at + SEEN]:
                continue  # it was acked here, and stands elsewhere
            if is_read and (page[at + SEEN_PLACE], page[at + SEEN]) != (place + 1, offset + 1):
                first = self._seen(page[at : at + _RECORD_COLUMNS].tolist())
                self._about("duplicate", producer, number, f"is at {first} and at {self.places[place]} offset {offset}")
                continue
            before = last.get(producer, -1)
            if number < before:
                said = f"is at {self.places[place]} offset {offset}, after number {before} of the same producer"
                self._about("reordered", producer, number, said)
            last[producer] = max(before, number)

    def _judge_times(self, place: int) -> None:
        """Find records that stand before one that had been acked when they were sent, whichever producers sent them."""
        acks = _EarliestAcks()  # of the records behind
        for offset in reversed(range(self.offsets.size(place))):
            page, at = self.offsets.row(place, offset)
            if not page[at + VALUE] or page[at + CONFLICT]:
                continue
            value = page[at + VALUE] - 1
            producer, number = value >> _NUMBER_BITS, value & _NUMBER_MASK
            page, at = self.records.row(producer, number)
            start_ns, end_ns = page[at + START], page[at + END]
            # Two records of one idempotent producer are reordered.
            ack = acks.of_others(producer) if self.is_idempotent(producer) else acks.first
            if ack is not None and start_ns > ack.end_ns and producer not in self.untimed:
                said = (
                    f"is at {self.places[place]} offset {offset} and was sent at {self._seconds(start_ns)}, after "
                    f"offset {ack.offset} had been acked at {self._seconds(ack.end_ns)}"
                )
                self._about("realtime-order", producer, number, said)
            if (page[at + PLACE], page[at + ACK]) == (place + 1, offset + 1):
                acks.add(_Ack(end_ns, offset, producer))

    def _judge_skip(self, process: str, place: int, after: int, before: int) -> None:
        for offset in range(after + 1, min(before, self.offsets.size(place))):
            page, at = self.offsets.row(place, offset)
            if page[at + READ]:
                said = f"{process} went from {self.places[place]} offset {after} to {before}; others read {offset}"
                self.findings.add("skipped-poll", said, process=process, place=str(self.places[place]), offset=offset)
                return

    def _seconds(self, ns: int) -> str:
        """A time in seconds since the begin of the run."""
        return f"{(ns - (self.origin_ns or 0)) / 1e9:.3f} s"

    def _about(self, kind: str, producer: int, number: int, said: str) -> None:
        name = name_record(producer, number)
        self.findings.add(kind, f"{name} {said}", record=name)

    def _seen(self, row: list[int]) -> str:
        return f"{self.places[row[SEEN_PLACE] - 1]} offset {row[SEEN] - 1}"


_STATE_TOTALS = {INVOKED: "unanswered", ACKED: "acked", FAILED: "failed", INFO: "unknown"}


def name_record(producer: int, number: int) -> str:
    """The name of a record in evidence."""
    return f"record {producer}:{number}"


def name_value(value: int) -> str:
    """The name of the record in an offset's row."""
    return name_record(value >> _NUMBER_BITS, value & _NUMBER_MASK)


def _check_limits(producer: int, number: int) -> None:
    if not (0 <= producer < PRODUCER_LIMIT and 0 <= number < INDEX_LIMIT):
        raise ValueError(f"producer {producer} with number or offset {number}: these must be dense, from 0")
