"""Checks one block at a time: tables with a row for each record number, or each offset, of the block.

Parcels arrive sorted by block, in any order within a block, and are merged into its tables. A block is complete when
the next one begins, so memory depends on the size of a block, not on the length of the history. What one block cannot
decide is passed on as a candidate to the joins in `anomalies`: an ack that names another offset than the read, or an
order that continues in the next block.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..source.python_worker import prepare_worker
from .history_lines import LIMIT, SHIFT
from .parcels import ACKED, BLOCK_BITS, BLOCK_MASK, FAILED, INVOKED, Ints, Place, unpack

Mask = npt.NDArray[np.bool_]

_MAX = np.iinfo(np.int64).max
_MIN = np.iinfo(np.int64).min
_SIZE = 1 << BLOCK_BITS
_OFFSETS_MIN = 1024
_OTHERS_MAX = 1 << 18

RECORDS_SQL = (
    "kind STRING, rid BIGINT, at BIGINT, key BIGINT, place BIGINT, start BIGINT, ack BIGINT, seen BIGINT, "
    "first_ns BIGINT"
)
RECORDS_SCHEMA = pa.schema(
    [("kind", pa.string()), *((name, pa.int64()) for name in RECORDS_SQL.replace(" BIGINT", "").split(", ")[1:])]
)
OFFSETS_SQL = (
    "kind STRING, place BIGINT, block BIGINT, at BIGINT, rid BIGINT, other BIGINT, producer BIGINT, "
    "out_of_order BOOLEAN, read BINARY, known BINARY"
)
OFFSETS_SCHEMA = pa.schema(
    [
        ("kind", pa.string()), ("place", pa.int64()), ("block", pa.int64()), ("at", pa.int64()), ("rid", pa.int64()),
        ("other", pa.int64()), ("producer", pa.int64()), ("out_of_order", pa.bool_()), ("read", pa.binary()),
        ("known", pa.binary()),
    ]
)  # fmt: skip


@dataclass(frozen=True)
class HistorySummary:
    """Facts about the whole history that the checks of blocks need. Lists are indexed by the number of a partition."""

    places: Mapping[Place, int]
    last_read: Sequence[int]
    last_final: Sequence[int]
    is_ended: Sequence[bool]
    """Whether the final read came to the end of the log."""
    has_final: bool
    non_idempotent: Sequence[int]


# -- records


@dataclass(frozen=True)
class JudgeRecords:
    """The task that checks records: rows of `block, kind, parcel` of sends and reads, sorted by block."""

    known: HistorySummary

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for block in _record_blocks(batches, self.known.places):
            yield from _RecordVerdicts(block, self.known).found()


@dataclass(frozen=True)
class FindFirsts:
    """The task that finds where each record was read first, or else acked, for some pairs of partition and producer."""

    known: HistorySummary
    pairs: Sequence[tuple[int, int]]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        wanted = np.array([place << 20 | producer for place, producer in self.pairs], dtype=np.int64)
        for block in _record_blocks(batches, self.known.places):
            first = np.where(block.seen < _MAX, block.seen, block.ack)
            code = first >> SHIFT << 20 | block.rid >> SHIFT
            rows = np.flatnonzero((first >= 0) & np.isin(code, wanted))
            yield _records("first", rid=block.rid[rows], seen=first[rows])


class RecordBlock:
    """A row for each record number of a block. `place` is that of the send, `seen` the lowest position of a read."""

    def __init__(self, block: int) -> None:
        self.rid = (block << BLOCK_BITS) + np.arange(_SIZE, dtype=np.int64)
        self.state = np.zeros(_SIZE, dtype=np.int64)
        self.key = np.full(_SIZE, _MIN)
        self.place = np.full(_SIZE, -1)
        self.start = np.full(_SIZE, _MAX)
        self.ack = np.full(_SIZE, -1)
        self.seen = np.full(_SIZE, _MAX)
        self.read_key = np.full(_SIZE, _MAX)
        self.read_key_last = np.full(_SIZE, _MIN)
        self.first_ns = np.full(_SIZE, _MAX)
        self.final = np.zeros(_SIZE, dtype=bool)
        self._others: list[tuple[Ints, Ints]] = []
        self._others_count = 0

    def sent(self, rows: Mapping[str, Any], place: Ints) -> None:
        """Add a parcel of sends."""
        at = rows["rid"] & BLOCK_MASK
        ack = np.where(rows["offset"] >= 0, place * LIMIT + rows["offset"], -1)
        for table, values in (
            (self.state, rows["state"]),
            (self.key, rows["key"]),
            (self.place, place),
            (self.ack, ack),
        ):
            np.maximum.at(table, at, values)
        np.minimum.at(self.start, at, rows["start"])

    def read(self, rows: Mapping[str, Any], place: Ints) -> None:
        """Add a parcel of reads."""
        at = rows["rid"] & BLOCK_MASK
        seen = place * LIMIT + rows["offset"]
        before = self.seen[at]
        np.minimum.at(self.seen, at, seen)
        now = self.seen[at]
        self._add_others(at[seen != now], seen[seen != now])
        replaced = (before != now) & (before != _MAX)
        self._add_others(at[replaced], before[replaced])
        np.minimum.at(self.read_key, at, rows["key"])
        np.maximum.at(self.read_key_last, at, rows["key"])
        np.minimum.at(self.first_ns, at, rows["end"])
        self.final[at[rows["final"]]] = True

    def other_positions(self) -> tuple[Ints, Ints]:
        """The rows that were read at further positions, each with one such position."""
        if not self._others:
            return np.array([], dtype=np.int64), np.array([], dtype=np.int64)
        at, seen = (np.concatenate([pair[side] for pair in self._others]) for side in (0, 1))
        order = np.lexsort((seen, at))
        at, seen = at[order], seen[order]
        once = np.r_[True, (at[1:] != at[:-1]) | (seen[1:] != seen[:-1])]
        self._others = [(at[once], seen[once])]
        self._others_count = int(once.sum())
        return self._others[0]

    def _add_others(self, at: Ints, seen: Ints) -> None:
        if len(at):
            self._others.append((at, seen))
            self._others_count += len(at)
            if self._others_count > _OTHERS_MAX:
                self.other_positions()


@dataclass(frozen=True)
class _RecordVerdicts:
    """The findings in a complete block of records."""

    block: RecordBlock
    known: HistorySummary

    def found(self) -> Iterator[pa.RecordBatch]:
        block = self.block
        seen, sent = block.seen < _MAX, block.state > 0
        for state in (INVOKED, FAILED, ACKED, FAILED - 1):
            count = int((block.state == state).sum())
            if count:
                yield _records("total", rid=np.array([state]), key=np.array([count]))
        wrong_key = (block.read_key != block.key) | (block.read_key_last != block.key)
        simple = {
            "phantom": seen & ~sent,
            "failed-seen": seen & (block.state == FAILED),
            "seen-before-send": sent & (block.first_ns < block.start),
            "corrupt": sent & seen & wrong_key,
            "unanswered": (block.state == INVOKED) & self.known.has_final,
            "elsewhere": sent & seen & (block.ack >= 0) & (block.ack != block.seen),
            "elsewhere-unacked": sent & seen & (block.ack < 0) & self._is_told() & (block.place != block.seen >> SHIFT),
            **self._gone(seen),
        }
        for kind, mask in simple.items():
            if mask.any():
                yield self._rows(kind, mask)
        at, where = block.other_positions()
        twice = self._promised()[at]
        at, where = at[twice], where[twice]
        if len(at):
            yield _records("duplicate", rid=block.rid[at], seen=block.seen[at], at=where)

    def _is_told(self) -> Mask:
        """Whether the client told the partition that it sent to; the name of one that it did not tell is -1."""
        told = np.array([*(partition >= 0 for _, partition in self.known.places), False])
        found: Mask = told[self.block.place]
        return found

    def _promised(self) -> Mask:
        return ~np.isin(self.block.rid >> SHIFT, np.array(self.known.non_idempotent, dtype=np.int64))

    def _gone(self, seen: Mask) -> dict[str, Mask]:
        block, known = self.block, self.known
        gone = ~block.final if known.has_final else ~seen
        # The last element, -1, is for records without a partition: their index is -1.
        reach = np.array([*(known.last_final if known.has_final else known.last_read), -1])
        without_offset = 0 if known.has_final else LIMIT
        passed = reach[block.place] >= np.where(block.ack >= 0, block.ack & (LIMIT - 1), without_offset)
        acked = (block.state == ACKED) & gone
        place = np.where(seen, block.seen >> SHIFT, -1)
        passed_again = np.array([*known.last_final, -1])[place] >= (block.seen & (LIMIT - 1))
        looked_for = passed_again | np.array([*known.is_ended, False])[place]
        others = (block.state > 0) & (block.state != ACKED) & gone & seen
        return {"lost": acked & passed, "unseen": acked & ~passed & known.has_final, "vanished": others & looked_for}

    def _rows(self, kind: str, mask: Mask) -> pa.RecordBatch:
        block, rows = self.block, np.flatnonzero(mask)
        return _records(
            kind, rid=block.rid[rows], key=block.key[rows], place=block.place[rows], start=block.start[rows],
            ack=block.ack[rows], seen=block.seen[rows], first_ns=block.first_ns[rows],
        )  # fmt: skip


def _records(kind: str, **columns: Ints) -> pa.RecordBatch:
    length = len(columns["rid"])
    arrays = [pa.repeat(pa.scalar(kind), length)]
    arrays += [
        pa.array(columns[name]) if name in columns else pa.nulls(length, pa.int64())
        for name in RECORDS_SCHEMA.names[1:]
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=RECORDS_SCHEMA)


def _record_blocks(batches: Iterable[pa.RecordBatch], places: Mapping[Place, int]) -> Iterator[RecordBlock]:
    prepare_worker()
    block: RecordBlock | None = None
    number = -1
    for at, kind, rows, place in _parcels(batches, places):
        if block is None or at != number:
            if block is not None:
                yield block
            number, block = at, RecordBlock(at)
        (block.sent if kind == "send" else block.read)(rows, place)
    if block is not None:
        yield block


def _parcels(
    batches: Iterable[pa.RecordBatch], places: Mapping[Place, int]
) -> Iterator[tuple[int, str, dict[str, Any], Ints]]:
    """Block, kind and columns of each parcel, with the number of the partition of each row."""
    for batch in batches:
        for block, kind, parcel in zip(*(batch.column(name).to_pylist() for name in ("block", "kind", "parcel"))):
            rows, names = unpack(parcel)
            numbers = np.array([places[name] for name in names], dtype=np.int64)
            yield block, kind, rows, numbers[rows["place"]]


# -- offsets


@dataclass(frozen=True)
class JudgeOffsets:
    """The task that checks offsets: rows of `block, kind, parcel` of acks and reads, sorted by block."""

    known: HistorySummary

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        prepare_worker()
        tables: dict[int, OffsetBlock] = {}
        number = -1
        for at, kind, rows, place in _parcels(batches, self.known.places):
            if at != number:
                yield from self._judged(number, tables)
                number, tables = at, {}
            for one in np.unique(place).tolist():
                mask = place == one
                picked = rows if mask.all() else {name: column[mask] for name, column in rows.items()}
                tables.setdefault(one, OffsetBlock()).add(picked, kind == "found")
        yield from self._judged(number, tables)

    def _judged(self, number: int, tables: Mapping[int, OffsetBlock]) -> Iterator[pa.RecordBatch]:
        block = number & (LIMIT - 1)
        for place, table in tables.items():
            begin = place * LIMIT + (block << BLOCK_BITS)
            known = table.high >= 0
            conflict = known & (table.low != table.high)
            bits = [np.packbits(mask, bitorder="little").tobytes() for mask in (table.read, table.read | conflict)]
            yield _offsets("bits", 1, place=place, block=block, read=bits[0], known=bits[1])
            rows = np.flatnonzero(conflict)
            if len(rows):
                yield _offsets("conflict", len(rows), at=begin + rows, rid=table.low[rows], other=table.high[rows])
            yield from self._orders(place, block, table, known & ~conflict)

    def _orders(self, place: int, block: int, table: OffsetBlock, there: Mask) -> Iterator[pa.RecordBatch]:
        """The lowest and the highest number of each producer, and whether their order is broken here."""
        rows = np.flatnonzero(there)
        producer = table.low[rows] >> SHIFT
        if self.known.non_idempotent:
            promised = ~np.isin(producer, np.array(self.known.non_idempotent))
            rows, producer = rows[promised], producer[promised]
        if not len(rows):
            return
        order = np.argsort(producer, kind="stable")
        rid, producer = table.low[rows][order], producer[order]
        same = producer[1:] == producer[:-1]
        back = np.r_[False, same & (rid[1:] < rid[:-1])]
        begins = np.flatnonzero(np.r_[True, ~same])
        yield _offsets(
            "order", len(begins), place=place, block=block, producer=producer[begins],
            rid=np.minimum.reduceat(rid, begins), other=np.maximum.reduceat(rid, begins),
            out_of_order=np.logical_or.reduceat(back, begins),
        )  # fmt: skip


@dataclass
class OffsetBlock:
    """A row for each offset of a block in one partition: the lowest and the highest record found there, and if read."""

    low: Ints = field(default_factory=lambda: np.full(0, _MAX))
    high: Ints = field(default_factory=lambda: np.full(0, -1))
    read: Mask = field(default_factory=lambda: np.zeros(0, dtype=bool))

    def add(self, rows: Mapping[str, Any], read: bool) -> None:
        """Add a parcel of acks, or of reads."""
        at = rows["offset"] & BLOCK_MASK
        self._grow(int(at.max()) + 1)
        np.minimum.at(self.low, at, rows["rid"])
        np.maximum.at(self.high, at, rows["rid"])
        if read:
            self.read[at] = True

    def _grow(self, wanted: int) -> None:
        more = max(_OFFSETS_MIN, 1 << (wanted - 1).bit_length()) - len(self.low)
        if more > 0:
            self.low = np.r_[self.low, np.full(more, _MAX)]
            self.high = np.r_[self.high, np.full(more, -1)]
            self.read = np.r_[self.read, np.zeros(more, dtype=bool)]


def _offsets(kind: str, length: int, **columns: Any) -> pa.RecordBatch:
    arrays = [pa.repeat(pa.scalar(kind), length)]
    for one in list(OFFSETS_SCHEMA)[1:]:
        value = columns.get(one.name)
        if value is None:
            arrays.append(pa.nulls(length, one.type))
        elif isinstance(value, np.ndarray):
            arrays.append(pa.array(value, one.type))
        else:
            arrays.append(pa.repeat(pa.scalar(value, one.type), length))
    return pa.RecordBatch.from_arrays(arrays, schema=OFFSETS_SCHEMA)


# -- ranges of offsets


def first_read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The task for `jump, low, high, block, read`: the first offset of the block from `low` to `high` that was read."""
    schema = pa.schema([("jump", pa.int64()), ("step", pa.int64())])
    for batch in batches:
        found: list[tuple[int, int]] = []
        for jump, low, high, block, bits in zip(*(column.to_pylist() for column in batch.columns)):
            read = np.unpackbits(np.frombuffer(bits, dtype=np.uint8), bitorder="little")
            begin = block << BLOCK_BITS
            steps = np.flatnonzero(read[max(0, low - begin) : high - begin + 1])
            if len(steps):
                found.append((jump, max(low, begin) + int(steps[0])))
        columns = [pa.array([one[side] for one in found], pa.int64()) for side in (0, 1)]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)
