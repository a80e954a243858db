"""Reads the lines of histories into Arrow tables, some megabytes at a time, and checks their format.

Arrow's own JSON reader parses a hundred megabytes a second on a core and makes no Python object for a line. Text that
it refuses is parsed again line by line. That finds the line to report, or shows that only lines of other kinds, which
may hold anything, did not fit.
"""

from __future__ import annotations

import gzip
import json
import os
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

SHIFT = 40
LIMIT = 1 << SHIFT
VERSION = 1
CHUNK_BYTES = 8 * 1024 * 1024
"""The text that is parsed at once, roughly."""
SPLIT_BYTES = 128 * 1024 * 1024
"""A longer file without compression is read by several tasks."""

KINDS = ("history", "send", "assign", "poll", "final", "fault", "heal", "node-end")
TRANSACTION_KINDS = ("txn", "commit", "read", "group-offset", "stable", "hanging")
"""The lines about transactions: they are counted and not judged, so they may hold anything."""
PRODUCER_LIMIT = 1 << 20
_PARTITION_LIMIT = 1 << 31
SCHEMA = pa.schema(
    [
        ("process", pa.string()), ("type", pa.string()), ("f", pa.string()), ("version", pa.int64()),
        ("producer", pa.int64()), ("idempotent", pa.bool_()), ("timed", pa.bool_()), ("topic", pa.string()),
        ("partition", pa.int64()), ("number", pa.int64()), ("key", pa.int64()), ("start", pa.int64()),
        ("end", pa.int64()), ("offset", pa.int64()), ("error", pa.string()),
        ("records", pa.list_(pa.list_(pa.int64()))), ("final", pa.bool_()), ("fault", pa.string()),
        ("faults", pa.string()),
    ]
)  # fmt: skip


class DamagedHistory(Exception):
    """A file cannot be read, or a line is not in the format. The text names it."""


@dataclass(frozen=True, slots=True)
class FileSplit:
    """The lines of a file that begin from byte `first` to before byte `end`. `end` is None for a compressed file."""

    path: str
    first: int
    end: int | None


def file_splits(files: Sequence[str]) -> list[FileSplit]:
    """The splits of the files, the largest first."""
    found: list[tuple[int, FileSplit]] = []
    for path in files:
        size = os.path.getsize(path)
        if path.endswith(".gz"):
            found.append((size * 10, FileSplit(path, 0, None)))
            continue
        for first in range(0, size, SPLIT_BYTES):
            end = min(size, first + SPLIT_BYTES)
            found.append((end - first, FileSplit(path, first, end)))
    return [piece for _, piece in sorted(found, key=lambda one: (-one[0], one[1].path, one[1].first))]


def read_tables(piece: FileSplit) -> Iterator[tuple[int, pa.Table]]:
    """The checked lines of a split, without those of other kinds, each table with the position of its text.

    Lines about transactions are there with their `f` and `type`, whatever else they hold.
    Raises `DamagedHistory`. An incomplete last line of a file is left out.
    """
    for position, text in _texts(piece):
        table, lines = _parse(text, piece.path)
        bad = pc.index(_damaged(table), True).as_py()
        if bad >= 0:
            raise _not_in_format(piece.path, lines[bad] if lines is not None else _line(text, bad))
        wanted = pc.is_in(table["f"], pa.array((*KINDS, *TRANSACTION_KINDS)))
        yield position, table if pc.all(wanted).as_py() else table.filter(wanted)


# -- text


def _texts(piece: FileSplit) -> Iterator[tuple[int, bytes]]:
    """Chunks of whole lines, with their positions in the file."""
    try:
        with gzip.open(piece.path) if piece.end is None else open(piece.path, "rb") as file:
            position = piece.first
            if position:  # a line that crosses the boundary belongs to the split before
                file.seek(position - 1)
                position += len(file.readline()) - 1
            while piece.end is None or position < piece.end:
                text = file.read(CHUNK_BYTES if piece.end is None else min(CHUNK_BYTES, piece.end - position))
                if not text:
                    return
                if not text.endswith(b"\n"):
                    text += file.readline()
                yield position, text
                position += len(text)
    except (OSError, EOFError, zlib.error) as error:
        raise DamagedHistory(f"{piece.path} cannot be read to its end: {error}.") from None


def _line(text: bytes, row: int) -> bytes:
    return [line for line in text.split(b"\n") if line.strip()][row]


def _not_in_format(path: str, line: bytes) -> DamagedHistory:
    said = line.decode("utf-8", "replace")[:200]
    return DamagedHistory(f"{path}: a line is not in the format (docs/chaos-history.md): {said}")


# -- lines


def _parse(text: bytes, path: str) -> tuple[pa.Table, list[bytes] | None]:
    """The lines as a table. If lines were left out, also the text of each line that may be damaged, in its order."""
    if text.isspace():
        return SCHEMA.empty_table(), []
    try:
        table = pyarrow.json.read_json(
            pa.BufferReader(text),
            read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=len(text)),
            parse_options=pyarrow.json.ParseOptions(explicit_schema=SCHEMA, unexpected_field_behavior="ignore"),
        )
    except pa.ArrowInvalid:
        return _one_by_one(text, path)
    return table.select(SCHEMA.names), None


def _one_by_one(text: bytes, path: str) -> tuple[pa.Table, list[bytes]]:
    lines: list[bytes] = []
    tables: list[pa.Table] = []
    counted: list[dict[str, Any]] = []
    for line in text.splitlines(keepends=True):
        if not line.strip():
            continue
        try:
            given: Any = json.loads(line)
            if not isinstance(given, dict):
                raise ValueError("not an object")
            if given.get("f") in TRANSACTION_KINDS:
                counted.append({"f": given["f"], "type": given["type"] if isinstance(given.get("type"), str) else None})
                continue
            if given.get("f") not in KINDS:
                continue
            tables.append(pa.Table.from_pylist([{name: given.get(name) for name in SCHEMA.names}], SCHEMA))
        except (ValueError, TypeError, pa.ArrowException):
            if not line.endswith(b"\n"):
                break
            raise _not_in_format(path, line.strip()) from None
        lines.append(line.strip())
    if counted:
        tables.append(pa.Table.from_pylist(counted, SCHEMA))
    return (pa.concat_tables(tables).combine_chunks() if tables else SCHEMA.empty_table()), lines


def _damaged(table: pa.Table) -> pa.ChunkedArray:
    """Marks lines that are JSON but not in the format."""

    def within(name: str, limit: int, least: int = 0) -> Any:
        column = table[name]
        return pc.fill_null(pc.and_(pc.greater_equal(column, least), pc.less(column, limit)), False)

    def there(*names: str) -> Any:
        found = pc.is_valid(table[names[0]])
        for name in names[1:]:
            found = pc.and_(found, pc.is_valid(table[name]))
        return found

    def said(name: str, *words: str) -> Any:
        return pc.is_in(table[name], pa.array(words))

    spot = pc.and_(there("topic"), within("partition", _PARTITION_LIMIT))
    known = pc.and_(within("producer", PRODUCER_LIMIT), within("number", LIMIT))
    told = pc.and_(there("key", "start"), said("type", "invoke", "ok", "fail", "info"))
    acked = pc.or_(pc.is_null(table["offset"]), within("offset", LIMIT))
    sent_to = pc.and_(there("topic"), within("partition", _PARTITION_LIMIT, least=-1))
    sent = pc.and_(pc.and_(known, told), pc.and_(sent_to, acked))
    polled = pc.and_(pc.and_(there("process", "end"), spot), _whole(table["records"]))
    placed = pc.and_(spot, pc.and_(there("offset"), pc.or_(there("process"), said("f", "final"))))
    first = pc.fill_null(pc.equal(table["version"], VERSION), False)
    wrong = [
        pc.and_(said("f", "send"), pc.invert(sent)),
        pc.and_(pc.and_(said("f", "poll"), said("type", "ok")), pc.invert(polled)),
        pc.and_(said("f", "assign", "final"), pc.invert(placed)),
        pc.and_(said("f", "history"), pc.invert(first)),
    ]
    found = wrong[0]
    for one in wrong[1:]:
        found = pc.or_(found, one)
    return found


def _whole(polls: pa.ChunkedArray) -> Any:
    """Whether each record of each poll is four numbers within their limits."""
    records = polls.combine_chunks()
    there = pc.is_valid(records)
    rows = records.flatten()
    good = pc.fill_null(pc.equal(pc.list_value_length(rows), 4), False).to_numpy(zero_copy_only=False)
    if good.all():
        numbers = rows.flatten()
        nulls = pc.is_null(numbers).to_numpy(zero_copy_only=False).reshape(-1, 4).any(axis=1)
        offset, producer, number, _ = pc.fill_null(numbers, 0).to_numpy(zero_copy_only=False).reshape(-1, 4).T
        good = ~nulls & (offset >= 0) & (offset < LIMIT) & (number < LIMIT) & (producer < PRODUCER_LIMIT)
        good &= (producer < 0) | (number >= 0)
    if good.all():
        return there
    damaged = pc.unique(pc.list_parent_indices(records).filter(pa.array(~good)))
    return pc.and_(there, pc.invert(pc.is_in(pa.array(range(len(records)), damaged.type), damaged)))
