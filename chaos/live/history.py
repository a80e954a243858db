"""The history of a run: what clients did and saw, and what was done to the cluster, as lines of JSON.

One object a line, one file a process (or all in one file; only the polls of one process must stand in their order).
Every line has `process`, `type` (`invoke`, `ok`, `fail`, `info`, with Jepsen's meanings) and `f`; times are nanoseconds
of the machine's monotonic clock. A completion repeats what its invocation said, so a checker needs no pairing. The
whole format is in docs/chaos-history.md.
"""

from __future__ import annotations

import gzip
import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TextIO

VERSION = 1
SUFFIXES = (".jsonl", ".jsonl.gz")
_FLUSH_BYTES = 1 << 16

Line = dict[str, Any]
ReadRecord = tuple[int, int, int, int]
"""What a poll saw: offset, producer, number, key; producer -1 for bytes that no producer of the run wrote."""


class HistoryError(Exception):
    """A history that is not in the format; the message names the file, the line and what is wrong."""


@dataclass(frozen=True, slots=True)
class Send:
    """One record on its way: `number` counts a producer's sends from 0, in the order of its calls."""

    producer: int
    number: int
    key: int
    topic: str
    partition: int
    start_ns: int


class HistoryWriter:
    """Writes one process's lines. `flush` when it matters that others see them; `close` at the end."""

    def __init__(self, path: str, process: str) -> None:
        self.process = process
        self._file: TextIO = open(path, "a", encoding="utf-8")  # noqa: SIM115
        self._buffer: list[str] = []
        self._buffered = 0
        self._head = f'{{"process":{json.dumps(process)},"type":"'

    def begin(self, **facts: Any) -> None:
        """The first line of a process; a producer says `producer` and `idempotent`."""
        self.event(
            "info", "history", version=VERSION, start=time.monotonic_ns(), wall_ms=time.time_ns() // 10**6, **facts
        )

    def event(self, type_: str, f: str, **fields: Any) -> None:
        """Any line."""
        line: Line = {"process": self.process, "type": type_, "f": f, **fields}
        self._add(json.dumps(line, separators=(",", ":")))

    def send_invoked(self, send: Send) -> None:
        """Before the client is given the record."""
        self._add(f'{self._head}invoke","f":"send",{_send_fields(send)}}}')

    def send_done(self, send: Send, type_: str, end_ns: int, *, offset: int | None = None, error: str = "") -> None:
        """`ok` with the offset (None where it was not told), `fail` (surely not written) or `info` (unknown)."""
        outcome = f',"error":{json.dumps(error)}' if error else ""
        told = "" if offset is None else f',"offset":{offset}'
        self._add(f'{self._head}{type_}","f":"send",{_send_fields(send)}{told},"end":{end_ns}{outcome}}}')

    def assigned(self, topic: str, partition: int, offset: int) -> None:
        """From now on this process reads the partition from this offset."""
        self.event("ok", "assign", topic=topic, partition=partition, offset=offset, start=time.monotonic_ns())

    def polled(
        self, place: tuple[str, int], records: Sequence[ReadRecord], times_ns: tuple[int, int], *, final: bool = False
    ) -> None:
        """Records of one partition that one poll returned, in its order. `final`: read after the last fault healed."""
        rows = ",".join(f"[{offset},{producer},{number},{key}]" for offset, producer, number, key in records)
        marked = ',"final":true' if final else ""
        self._add(
            f'{self._head}ok","f":"poll","topic":{json.dumps(place[0])},"partition":{place[1]},"records":[{rows}]'
            f',"start":{times_ns[0]},"end":{times_ns[1]}{marked}}}'
        )

    def flush(self) -> None:
        """Hand all lines to the operating system."""
        if self._buffer:
            self._file.write("\n".join(self._buffer) + "\n")
            self._buffer.clear()
            self._buffered = 0
        self._file.flush()

    def close(self) -> None:
        """Flush and close."""
        self.flush()
        self._file.close()

    def _add(self, line: str) -> None:
        self._buffer.append(line)
        self._buffered += len(line)
        if self._buffered >= _FLUSH_BYTES:
            self.flush()


def _send_fields(send: Send) -> str:
    return (
        f'"topic":{json.dumps(send.topic)},"partition":{send.partition},"producer":{send.producer},'
        f'"number":{send.number},"key":{send.key},"start":{send.start_ns}'
    )


def history_files(paths: Iterable[str]) -> list[str]:
    """The history files that these files and directories hold (a run's directory holds `history/`), sorted."""
    found: list[str] = []
    for path in paths:
        if not os.path.isdir(path):
            found.append(path)
            continue
        inner = os.path.join(path, "history")
        directory = inner if os.path.isdir(inner) else path
        found += sorted(os.path.join(directory, name) for name in os.listdir(directory) if name.endswith(SUFFIXES))
    if not found:
        raise HistoryError(f"no history in {', '.join(paths)}: there are no files that end in .jsonl or .jsonl.gz")
    return found


def read_lines(path: str) -> Iterator[Line]:
    """The lines of a file, in order; `HistoryError` for one that is no object. A last one cut short is left out."""
    with _open(path) as file:
        for number, text in enumerate(file, 1):
            try:
                line = json.loads(text)
                if line.__class__ is not dict:
                    raise ValueError("not an object")
            except ValueError as error:
                if not text.endswith("\n"):
                    return
                raise HistoryError(f"{path}:{number}: {error}") from None
            yield line


def event_ns(line: Mapping[str, Any]) -> int:
    """When the line was written: a completion's end, else its start."""
    at = line.get("end", line.get("start", 0))
    return at if isinstance(at, int) else 0


def _open(path: str) -> TextIO:
    try:
        if path.endswith(".gz"):
            return gzip.open(path, "rt", encoding="utf-8")
        return open(path, encoding="utf-8")
    except OSError as error:
        raise HistoryError(f"cannot read {path}: {error.strerror}") from None
