"""The history in EDN, as `jepsen.tests.kafka` reads it, so that Jepsen can check the checker.

A Jepsen process has one operation at a time, and none after an `:info`. Our producers have many sends in flight, so
each send gets the lowest process number that is free. Jepsen's keys are partitions; its values are unique integers,
producer * 2^40 + number. In transactional topics the keys are names of partitions, and the values number all records.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterable, Iterator
from typing import TextIO

from ..history import Line, event_ns, history_files, read_lines
from .transactions.elle_edn import RecordNumbers
from .transactions.read_table import COMMITTED

_PRODUCER_SHIFT = 40


class EdnWriter:
    """Gives each operation an index and a process, and writes it."""

    def __init__(self, file: TextIO) -> None:
        self.count = 0
        self._file = file
        self._free: list[int] = []
        self._next = 0
        self._sending: dict[tuple[int, int], int] = {}
        self._reading: dict[str, int] = {}
        self._assigned: dict[int, dict[str, None]] = {}
        self._transactions: dict[str, int] = {}
        self._numbers = RecordNumbers()

    def add(self, line: Line) -> None:
        """Write a line of the history. Lines must come in the order of their times."""
        f = line["f"]
        if f == "send":
            self._send(line)
        elif f == "txn":
            self._transaction(line)
        elif f in ("poll", "read", "assign"):
            process = self._reading.get(line["process"])
            if process is None:
                process = self._reading[line["process"]] = self._take_for_good()
            {"poll": self._poll, "read": self._read, "assign": self._assign}[f](line, process)
        elif f == "fault":
            start = line["type"] == "invoke"
            value = f"{json.dumps(line.get('target', ''))}"
            self._write("info", f"{'start' if start else 'stop'}-{line['fault']}", value, ":nemesis", event_ns(line))

    def _send(self, line: Line) -> None:
        name = (line["producer"], line["number"])
        value = line["producer"] << _PRODUCER_SHIFT | line["number"]
        invoked = f"[[:send {line['partition']} {value}]]"
        process = self._sending.get(name)
        if process is None:
            process = self._sending[name] = heapq.heappop(self._free) if self._free else self._take_for_good()
            self._write("invoke", "send", invoked, str(process), line["start"])
        if line["type"] == "invoke":
            return
        del self._sending[name]
        if line["type"] == "ok":
            offset = line.get("offset")
            told = f"[{'nil' if offset is None else offset} {value}]"
            self._write("ok", "send", f"[[:send {line['partition']} {told}]]", str(process), line["end"])
        else:
            self._write(line["type"], "send", invoked, str(process), line["end"])
        if line["type"] != "info":
            heapq.heappush(self._free, process)

    def _poll(self, line: Line, process: int) -> None:
        if line["type"] != "ok":
            return
        pairs = " ".join(f"[{row[0]} {row[1] << _PRODUCER_SHIFT | row[2]}]" for row in line["records"] if row[1] >= 0)
        self._write("invoke", "poll", "[[:poll]]", str(process), line["start"])
        self._write("ok", "poll", f"[[:poll {{{line['partition']} [{pairs}]}}]]", str(process), line["end"])

    def _transaction(self, line: Line) -> None:
        """An incarnation of a transactional id is a process, which has one transaction at a time."""
        process = self._transactions.get(line["process"])
        if process is None:
            process = self._transactions[line["process"]] = self._take_for_good()
        acks = line.get("acks", ()) if line["type"] == "ok" else ()
        sends = []
        for index, row in enumerate(line["writes"]):
            value = str(self._numbers.of(line["txn"], index))
            if line["type"] == "ok":
                ack = acks[index] if index < len(acks) else None
                value = f"[{'nil' if ack is None else ack} {value}]"
            sends.append(f"[:send {json.dumps(f'{row[0]}-{row[1]}')} {value}]")
        self._write(line["type"], "txn", f"[{' '.join(sends)}]", str(process), event_ns(line))

    def _read(self, line: Line, process: int) -> None:
        if line["isolation"] != COMMITTED:
            return
        pairs = " ".join(
            f"[{offset} {self._numbers.of(name, index)}]" for offset, name, index in line["records"] if name is not None
        )
        self._write("invoke", "poll", "[[:poll]]", str(process), line["start"])
        self._write("ok", "poll", f"[[:poll {{{_key(line)} [{pairs}]}}]]", str(process), line["end"])

    def _assign(self, line: Line, process: int) -> None:
        """Write all partitions that were assigned so far: Jepsen's assignments replace each other."""
        assigned = self._assigned.setdefault(process, {})
        assigned[_key(line)] = None
        for type_ in ("invoke", "ok"):
            self._write(type_, "assign", f"[{' '.join(assigned)}]", str(process), line["start"])

    def _take_for_good(self) -> int:
        self._next += 1
        return self._next - 1

    def _write(self, type_: str, f: str, value: str, process: str, at_ns: int) -> None:
        self._file.write(
            f"{{:index {self.count}, :time {at_ns}, :type :{type_}, :process {process}, :f :{f}, :value {value}}}\n"
        )
        self.count += 1


def _key(line: Line) -> str:
    """Jepsen's key for a partition: its number, or its name in transactional topics, which are several."""
    return json.dumps(f"{line['topic']}-{line['partition']}") if "isolation" in line else str(line["partition"])


def write_edn(paths: Iterable[str], output: str) -> int:
    """Convert histories; how many operations were written. `HistoryError` if they are not in the format."""
    with open(output, "w", encoding="utf-8") as file:
        writer = EdnWriter(file)
        for line in in_time_order(paths):
            writer.add(line)
        return writer.count


def in_time_order(paths: Iterable[str]) -> Iterator[Line]:
    """The lines of all files, merged by time; each file must be in order."""
    return heapq.merge(*(read_lines(path) for path in history_files(paths)), key=event_ns)
