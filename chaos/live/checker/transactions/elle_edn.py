"""The transactions of a history in EDN, as Elle's list-append checker reads them.

A partition is a list, and a transaction appends to several of them: `[[:append "t-0" 17] [:append "u-1" 18]]`. What a
reader at read_committed has read of a partition is a read of the whole list: `[[:r "t-0" [17 21]]]`. A list is written
when it has become twice as long, and in the final read, so that the file does not grow with the square of the history.
A transaction whose commit nobody asked for is a `:fail`; one that has no outcome is an `:info`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, TextIO

from ...history import Line, event_ns
from .read_table import COMMITTED

_INDEX_BITS = 20


class RecordNumbers:
    """Gives each record of a transaction a number of its own."""

    def __init__(self) -> None:
        self._transactions: dict[str, int] = {}

    def of(self, transaction: str, index: int) -> int:
        """The number of a record: that of its transaction, in the order of calls, and the record's index in it."""
        return self._transactions.setdefault(transaction, len(self._transactions)) << _INDEX_BITS | index


class ElleWriter:
    """Writes operations; lines must come in the order of their times."""

    def __init__(self, file: TextIO) -> None:
        self.count = 0
        self._file = file
        self._numbers = RecordNumbers()
        self._processes: dict[str, int] = {}
        self._open: dict[str, Line] = {}
        self._asked: dict[str, None] = {}
        self._written: dict[str, Sequence[Any]] = {}
        """The writes of each transaction."""
        self._lists: dict[tuple[str, str], list[int]] = {}
        self._told: dict[tuple[str, str], int] = {}
        """How long a list was when it was last written."""
        self._last_ns = 0

    def add(self, line: Line) -> None:
        """Write a line of the history, if it is about transactions."""
        self._last_ns = max(self._last_ns, event_ns(line))
        if line["f"] == "txn":
            self._transaction(line)
        elif line["f"] == "commit":
            self._asked[line["txn"]] = None
        elif line["f"] == "read" and line["isolation"] == COMMITTED:
            self._read(line)

    def finish(self) -> None:
        """Write the end of the transactions that have no outcome, and the lists of the final read."""
        for name, line in self._open.items():
            type_ = "info" if name in self._asked else "fail"
            self._write(type_, _appends(line, self._numbers), line["process"], self._last_ns)
        for (process, key), values in self._lists.items():
            if len(values) > self._told.get((process, key), 0):
                self._write_list(process, key, values, (self._last_ns, self._last_ns))

    def _transaction(self, line: Line) -> None:
        name = line["txn"]
        if line["type"] == "invoke":
            self._open[name] = line
            self._written[name] = line["writes"]
            self._write("invoke", _appends(line, self._numbers), line["process"], line["start"])
            return
        del self._open[name]
        type_ = "fail" if line["type"] == "info" and name not in self._asked else line["type"]
        self._write(type_, _appends(line, self._numbers), line["process"], line["end"])

    def _read(self, line: Line) -> None:
        where = [line["topic"], line["partition"]]
        found = [
            self._numbers.of(name, index)
            for _, name, index in line["records"]
            if name is not None and self._is_written(name, index, where)
        ]
        if not found:
            return
        key = f"{line['topic']}-{line['partition']}"
        values = self._lists.setdefault((line["process"], key), [])
        values += found
        if len(values) >= 2 * self._told.get((line["process"], key), 0):
            self._write_list(line["process"], key, values, (line["start"], line["end"]))

    def _is_written(self, name: str, index: int, where: list[Any]) -> bool:
        """Whether the transaction wrote it there; copies in other topics are no part of the transaction."""
        writes = self._written.get(name)
        return writes is None or index >= len(writes) or list(writes[index][:2]) == where

    def _write_list(self, process: str, key: str, values: Sequence[int], times_ns: tuple[int, int]) -> None:
        self._told[process, key] = len(values)
        self._write("invoke", f"[[:r {json.dumps(key)} nil]]", process, times_ns[0])
        self._write("ok", f"[[:r {json.dumps(key)} [{' '.join(map(str, values))}]]]", process, times_ns[1])

    def _write(self, type_: str, value: str, process: str, at_ns: int) -> None:
        number = self._processes.setdefault(process, len(self._processes))
        self._file.write(
            f"{{:index {self.count}, :time {at_ns}, :type :{type_}, :process {number}, :f :txn, :value {value}}}\n"
        )
        self.count += 1


def write_elle(lines: Iterable[Line], output: str) -> int:
    """Convert lines in the order of their times; how many operations were written."""
    with open(output, "w", encoding="utf-8") as file:
        writer = ElleWriter(file)
        for line in lines:
            writer.add(line)
        writer.finish()
        return writer.count


def _appends(line: Line, numbers: RecordNumbers) -> str:
    rows = (
        f"[:append {json.dumps(f'{row[0]}-{row[1]}')} {numbers.of(line['txn'], index)}]"
        for index, row in enumerate(line["writes"])
    )
    return f"[{' '.join(rows)}]"
