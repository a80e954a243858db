"""The history of a run as lines of JSON: what clients sent and read, and which faults the cluster had.

Each line is one object; each process writes a file of its own. Only the polls of one process must be in order, so the
files may be joined. Every line has `process`, `type` (`invoke`, `ok`, `fail` or `info`, as in Jepsen) and `f`. Times
are nanoseconds of the machine's monotonic clock. A completion repeats the fields of its invocation, so that a checker
need not pair them. docs/chaos-history.md describes the whole format.
"""

from __future__ import annotations

import gzip
import json
import os
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TextIO

from ...runtime.os_errors import os_words

VERSION = 1
SUFFIXES = (".jsonl", ".jsonl.gz")
_FLUSH_BYTES = 1 << 16
_SHOWN_MAX = 200
"""So many characters of a line that is not in the format are shown."""

Line = dict[str, Any]
ReadRecord = tuple[int, int, int, int]
"""A record that a poll returned: offset, producer, number, key. Producer -1: no producer of the run wrote it."""


class HistoryError(Exception):
    """A history that is not in the format; the message names the file, the line and the error."""


class WrongLineError(HistoryError):
    """A line that is not in the format; the message says why, and who knows the place of the line adds it."""

    @classmethod
    def of(cls, line: Line, error: Exception) -> WrongLineError:
        """The error for a line whose fields could not be read."""
        why = str(error)
        if isinstance(error, KeyError):  # of the line's fields, or of the values that one of them may have
            (name,) = error.args
            why = f"{name!r} is not known" if name in line.values() else f"the field {name!r} is missing"
        return cls(f"{why} (docs/chaos-history.md has the format): {json.dumps(line)[:_SHOWN_MAX]}")


@dataclass(frozen=True, slots=True)
class Send:
    """The send of one record. `number` counts the sends of a producer from 0, in the order of its calls."""

    producer: int
    number: int
    key: int
    topic: str
    partition: int
    start_ns: int


class HistoryWriter:
    """Writes the lines of one process. Call `flush` when other processes must see them, and `close` at the end."""

    def __init__(self, path: str, process: str) -> None:
        self.process = process
        self._file: TextIO = open(path, "a", encoding="utf-8")  # noqa: SIM115
        self._buffer: list[str] = []
        self._buffered = 0
        self._head = f'{{"process":{json.dumps(process)},"type":"'

    def begin(self, **facts: Any) -> None:
        """The first line of a process; a producer gives `producer` and `idempotent`."""
        self.event(
            "info", "history", version=VERSION, start=time.monotonic_ns(), wall_ms=time.time_ns() // 10**6, **facts
        )

    def event(self, type_: str, f: str, **fields: Any) -> None:
        """Write a line."""
        line: Line = {"process": self.process, "type": type_, "f": f, **fields}
        self._add(json.dumps(line, separators=(",", ":")))

    def send_invoked(self, send: Send) -> None:
        """Write a send before the record is given to the client."""
        self._add(f'{self._head}invoke","f":"send",{_send_fields(send)}}}')

    def send_done(self, send: Send, type_: str, end_ns: int, *, offset: int | None = None, error: str = "") -> None:
        """Write its outcome: `ok` with the offset (None: unknown), `fail` (surely not written) or `info` (unknown)."""
        outcome = f',"error":{json.dumps(error)}' if error else ""
        told = "" if offset is None else f',"offset":{offset}'
        self._add(f'{self._head}{type_}","f":"send",{_send_fields(send)}{told},"end":{end_ns}{outcome}}}')

    def assigned(self, topic: str, partition: int, offset: int, **facts: Any) -> None:
        """This process reads the partition from this offset on."""
        place = {"topic": topic, "partition": partition, "offset": offset}
        self.event("ok", "assign", **place, **facts, start=time.monotonic_ns())

    def polled(
        self, place: tuple[str, int], records: Sequence[ReadRecord], times_ns: tuple[int, int], *, final: bool = False
    ) -> None:
        """Write the records of a partition that one poll returned. `final`: after the last fault was healed."""
        rows = ",".join(f"[{offset},{producer},{number},{key}]" for offset, producer, number, key in records)
        marked = ',"final":true' if final else ""
        self._add(
            f'{self._head}ok","f":"poll","topic":{json.dumps(place[0])},"partition":{place[1]},"records":[{rows}]'
            f',"start":{times_ns[0]},"end":{times_ns[1]}{marked}}}'
        )

    def flush(self) -> None:
        """Write all lines to the file."""
        if self._buffer:
            self._file.write("\n".join(self._buffer) + "\n")
            self._buffer.clear()
            self._buffered = 0
        self._file.flush()

    def close(self) -> None:
        """Flush, and close the file."""
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
    """The history files in these files and directories, sorted, each once.

    The directory of a run holds them in `history/`.
    """
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
    return list({os.path.realpath(path): path for path in reversed(found)}.values())[::-1]


def read_lines(path: str) -> Iterator[Line]:
    """The lines of a file, in order, without an incomplete last line.

    `HistoryError` for a line that is no object or has no `f`, and for a file that cannot be read.
    """
    try:
        with _open(path) as file:
            for number, text in enumerate(file, 1):
                line = _object(text, f"{path}:{number}")
                if line is None:
                    return
                yield line
    except EOFError:
        raise HistoryError(f"{path} is cut off: its compressed data ends too early") from None
    except (gzip.BadGzipFile, zlib.error):
        raise HistoryError(f"{path} is not compressed by gzip, as its name says, or is damaged") from None
    except UnicodeDecodeError:
        raise HistoryError(f"{path} is not text in UTF-8, as a history is") from None
    except OSError as error:
        raise HistoryError(f"cannot read {path}: {os_words(error)}") from None


def _object(text: str, where: str) -> Line | None:
    """The object of a line; None if the line is incomplete."""
    try:
        line = json.loads(text)
        if line.__class__ is not dict:
            raise ValueError("not an object")
    except ValueError as error:
        if not text.endswith("\n"):
            return None
        raise HistoryError(f"{where}: {error}") from None
    found: Line = line
    if "f" not in found:
        raise HistoryError(f"{where}: {WrongLineError.of(found, KeyError('f'))}")
    return found


def event_ns(line: Mapping[str, Any]) -> int:
    """When a line was written: a completion's end, else its start."""
    at = line.get("end", line.get("start", 0))
    return at if isinstance(at, int) else 0


def _open(path: str) -> TextIO:
    return gzip.open(path, "rt", encoding="utf-8") if path.endswith(".gz") else open(path, encoding="utf-8")
