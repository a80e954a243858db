"""What was read of the transactional topics: the record at each offset, and which readers saw it."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ..findings import Findings
from .transaction_table import Place, TransactionTable

COMMITTED = "read_committed"


class RecordKey(NamedTuple):
    """A record: the number of its transaction, and its own number in it, from 0 on."""

    transaction: int
    ordinal: int


@dataclass(slots=True)
class SeenRecord:
    """The record at an offset. `first_ns`: when it was first read at read_committed; None if it never was."""

    key: RecordKey
    first_ns: int | None = None
    is_final: bool = False
    """Whether the final read at read_committed has it."""


@dataclass
class _Assignment:
    """One partition as one process read it. `first`: where it was to begin; without an assignment, where it began."""

    position: int = -1
    first: int | None = None
    offsets: array[int] = field(default_factory=lambda: array("q"))


class ReadTable:
    """All reads. Only the reads of one process must come in order."""

    def __init__(self, table: TransactionTable, findings: Findings) -> None:
        self.records: dict[Place, dict[int, SeenRecord]] = {}
        self.final_ends: dict[Place, int] = {}
        """Where the final reads at read_committed ended."""
        self.read_count = 0
        self.committed_read_count = 0
        """How many of them were at read_committed."""
        self._table = table
        self._findings = findings
        self._assignments: dict[tuple[str, Place], list[_Assignment]] = {}

    def assigned(self, line: Mapping[str, Any]) -> None:
        """A reader's position is set."""
        key = line["process"], self._table.place(line["topic"], line["partition"])
        assignment = _Assignment(position=line["offset"] - 1, first=line["offset"])
        self._assignments.setdefault(key, []).append(assignment)

    def read(self, line: Mapping[str, Any]) -> None:
        """The records of one partition that one poll returned."""
        place, process = self._table.place(line["topic"], line["partition"]), line["process"]
        is_committed, is_final, end_ns = line["isolation"] == COMMITTED, line.get("final", False), line["end"]
        reader = self._assignments.setdefault((process, place), [_Assignment()])[-1]
        for offset, name, index in line["records"]:
            if offset <= reader.position:
                said = f"{process} read {place} offset {offset} after offset {reader.position}"
                self._findings.add("nonmonotonic-poll", said, process=process, place=str(place), offset=offset)
            reader.position = offset
            reader.first = offset if reader.first is None else reader.first
            reader.offsets.append(offset)
            if name is None:
                said = f"{process} read bytes at {place} offset {offset} that no transaction of the run wrote"
                self._findings.add("corrupt", said, place=str(place), offset=offset)
                continue
            seen = self._found(place, offset, RecordKey(self._table.number(name), index), "read")
            if is_committed:
                seen.first_ns = end_ns if seen.first_ns is None else min(seen.first_ns, end_ns)
                seen.is_final = seen.is_final or is_final
        self.read_count += len(line["records"])
        self.committed_read_count += len(line["records"]) if is_committed else 0

    def ended(self, line: Mapping[str, Any]) -> None:
        """A final read reached the end of a partition."""
        if line["isolation"] == COMMITTED:
            self.final_ends[self._table.place(line["topic"], line["partition"])] = line["offset"]

    def judge_skips(self) -> None:
        """Find readers that passed over a record which the final read at read_committed has."""
        finals = {
            place: [offset for offset, seen in sorted(records.items()) if seen.is_final]
            for place, records in self.records.items()
        }
        for (process, place), assignments in self._assignments.items():
            for assignment in assignments:
                self._judge_assignment(process, place, assignment, finals.get(place, ()))

    def _judge_assignment(self, process: str, place: Place, assignment: _Assignment, finals: Sequence[int]) -> None:
        read = set(assignment.offsets)
        last = max(read, default=-1)
        for offset in finals:
            if (assignment.first or 0) <= offset < last and offset not in read:
                said = f"{process} passed over {place} offset {offset}, {self.name(place, offset)}, and read {last}"
                self._findings.add("skipped-poll", said, process=process, place=str(place), offset=offset)
                return

    def name(self, place: Place, offset: int) -> str:
        """The name of the record at an offset, for evidence."""
        key = self.records[place][offset].key
        return f"record {key.ordinal} of transaction {self._table.name(key.transaction)}"

    def _found(self, place: Place, offset: int, key: RecordKey, how: str) -> SeenRecord:
        records = self.records.setdefault(place, {})
        seen = records.get(offset)
        if seen is None:
            seen = records[offset] = SeenRecord(key)
        elif seen.key != key:
            other = f"record {key.ordinal} of transaction {self._table.name(key.transaction)}"
            said = f"{place} offset {offset} is {self.name(place, offset)} and also {other} ({how})"
            self._findings.add("inconsistent-offset", said, place=str(place), offset=offset)
        return seen
