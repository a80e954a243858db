"""Turns the lines of a history into parcels for blocks, and into notes.

Spark does not shuffle single rows of a history. Sends and reads are cut into parcels: some thousand rows of one block,
as compressed Arrow columns. Spark sorts and shuffles the parcels. The block of a record follows from its number, and
the block of an offset from the offset, so each block is checked by itself in tables of fixed size (`block_checks`).
Notes are facts that need no other lines: jumps of a consumer's position, the last offset of reads, counts by second.
"""

from __future__ import annotations

import itertools
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..source.python_worker import prepare_worker
from .history_lines import LIMIT, SHIFT, TRANSACTION_KINDS, DamagedHistory, FileSplit, read_tables

Ints = npt.NDArray[np.int64]

BLOCK_BITS = 17
"""A block is 2^17 consecutive record numbers of a producer, or offsets of a partition."""
BLOCK_MASK = (1 << BLOCK_BITS) - 1
INVOKED, INFO, FAILED, ACKED = 1, 2, 3, 4
STATES = {"invoke": INVOKED, "info": INFO, "fail": FAILED, "ok": ACKED}
LAST_NS = (1 << 63) - 1
SECOND_NS = 10**9
NO_FINAL_READ = -2
"""Stands for the last offset of a final read when there was no final read."""
BEGUN = "txn begun"
"""Stands for lines that begin a transaction, as `txn` does for those that tell how one ended."""
_BUCKETS = 4
_SPREAD = 64

SQL_SCHEMA = (
    "kind STRING, text STRING, topic STRING, partition INT, block BIGINT, first BIGINT, last BIGINT, n BIGINT, "
    "file STRING, position BIGINT, parcel BINARY"
)
SCHEMA = pa.schema(
    [
        ("kind", pa.string()), ("text", pa.string()), ("topic", pa.string()), ("partition", pa.int32()),
        ("block", pa.int64()), ("first", pa.int64()), ("last", pa.int64()), ("n", pa.int64()),
        ("file", pa.string()), ("position", pa.int64()), ("parcel", pa.binary()),
    ]
)  # fmt: skip

Note = dict[str, Any]
Place = tuple[str, int]


@dataclass(frozen=True)
class ReadSplits:
    """The task that reads the splits whose indexes it gets. Damage becomes a note, so that Spark does not retry."""

    pieces: Sequence[FileSplit]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        prepare_worker()
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from self._read(self.pieces[number])

    def _read(self, piece: FileSplit) -> Iterator[pa.RecordBatch]:
        try:
            for position, table in read_tables(piece):
                part = HistoryPart(piece.path, position)
                part.add(table)
                yield pa.RecordBatch.from_pylist(part.notes, SCHEMA)
        except DamagedHistory as error:
            note = {"kind": "damaged", "text": str(error), "file": piece.path, "position": piece.first}
            yield pa.RecordBatch.from_pylist([note], SCHEMA)


def topic_parts(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The task that turns rows of `topic, partition, offset, producer, number, key` into one more final read."""
    for batch in batches:
        part = HistoryPart("", 0)
        names, place = _places(batch)
        offset, producer, number, key = (_ints(batch, name, 0) for name in ("offset", "producer", "number", "key"))
        end_ns = np.full(len(place), LAST_NS)
        part.read(names, Reads(place, offset, producer, number, key, end_ns, np.ones(len(place), dtype=bool)))
        yield pa.RecordBatch.from_pylist(part.notes, SCHEMA)


@dataclass(frozen=True, slots=True)
class Reads:
    """A row for each record that a poll returned. `place` is an index into a list of partitions. `end` is in ns."""

    place: Ints
    offset: Ints
    producer: Ints
    number: Ints
    key: Ints
    end: Ints
    final: npt.NDArray[np.bool_]

    def where(self, mask: npt.NDArray[np.bool_]) -> Reads:
        """The rows that the mask selects."""
        return Reads(
            self.place[mask], self.offset[mask], self.producer[mask], self.number[mask], self.key[mask],
            self.end[mask], self.final[mask],
        )  # fmt: skip


@dataclass
class HistoryPart:
    """The notes and parcels of a chunk of a file, in the order of its lines."""

    file: str
    position: int
    notes: list[Note] = field(default_factory=list)

    def add(self, table: pa.Table) -> None:
        """Add lines that are in the format."""
        kinds = pc.unique(table["f"]).to_pylist()
        if "send" in kinds:
            self._sends(table if kinds == ["send"] else table.filter(pc.equal(table["f"], "send")))
        if "poll" in kinds or "assign" in kinds:
            self._polls(table.filter(pc.is_in(table["f"], pa.array(["poll", "assign"]))))
        if "final" in kinds:
            ends = table.filter(pc.equal(table["f"], "final"))
            names, place = _places(ends)
            self._reached(names, place, _ints(ends, "offset", 0) - 1, np.ones(len(place), dtype=bool))
            for name in names:
                self._note("end", name)
        rest = table.filter(pc.is_in(table["f"], pa.array(["history", "fault", "heal", "node-end"])))
        fields = ["f", "type", "process", "producer", "idempotent", "error", "fault", "faults"]
        for at, line in enumerate(rest.select(fields).to_pylist()):
            self._note("line", text=json.dumps(line), file=self.file, position=self.position, n=at)
        if any(kind in TRANSACTION_KINDS for kind in kinds):
            self._count(table.filter(pc.is_in(table["f"], pa.array(TRANSACTION_KINDS))))

    def read(self, names: Sequence[Place], reads: Reads) -> None:
        """Add records that polls returned."""
        self._note("reads", n=len(reads.place))
        self._reached(names, reads.place, reads.offset, reads.final)
        foreign = reads.producer < 0
        if foreign.any():
            for place, offset in zip(reads.place[foreign].tolist(), reads.offset[foreign].tolist()):
                self._note("foreign", names[place], first=offset)
            reads = reads.where(~foreign)
        columns: dict[str, Any] = {
            "rid": reads.producer * LIMIT + reads.number, "key": reads.key, "place": reads.place,
            "offset": reads.offset, "end": reads.end, "final": reads.final,
        }  # fmt: skip
        self._add_parcels("read", columns["rid"] >> BLOCK_BITS, columns, names)
        found = {name: columns[name] for name in ("place", "offset", "rid")}
        self._add_parcels("found", offset_blocks(names, reads.place, reads.offset), found, names)

    def _count(self, table: pa.Table) -> None:
        """Count lines that nobody judges here: those of begun transactions, their outcomes, and the other ones."""
        is_begin = pc.fill_null(pc.equal(table["type"], "invoke"), False)
        name = pc.if_else(pc.and_(pc.equal(table["f"], "txn"), is_begin), BEGUN, table["f"])
        for row in pc.value_counts(name).to_pylist():
            self._note("not-judged", text=row["values"], n=row["counts"])

    # -- sends

    def _sends(self, table: pa.Table) -> None:
        names, place = _places(table)
        rid = _ints(table, "producer", 0) * LIMIT + _ints(table, "number", 0)
        types = table["type"].combine_chunks().dictionary_encode()
        state = np.array([STATES[name] for name in types.dictionary.to_pylist()])[types.indices.to_numpy()]
        start, end = _ints(table, "start", 0), _ints(table, "end", 0)
        ack = np.where(state == ACKED, _ints(table, "offset", -1), -1)
        columns = {
            "rid": rid, "state": state, "key": _ints(table, "key", 0), "place": place,
            "start": start, "end": end, "offset": ack,
        }  # fmt: skip
        self._add_parcels("send", rid >> BLOCK_BITS, columns, names)
        told = ack >= 0
        where, offset = place[told], ack[told]
        self._add_parcels(
            "ack", offset_blocks(names, where, offset), {"place": where, "offset": offset, "rid": rid[told]}, names
        )
        for name in names:
            self._note("place", name, first=-1, last=NO_FINAL_READ)
        acked = (state == ACKED) & (end > 0)
        self._latencies(start[acked], end[acked])

    def _latencies(self, start: Ints, end: Ints) -> None:
        """Count acks by second and by bucket of latency. Four buckets cover a factor of two."""
        micros = np.maximum(1, (end - start) // 1000)
        bucket = np.floor(np.log2(micros) * _BUCKETS).astype(np.int64)
        seconds, count = np.unique(end // SECOND_NS * 1024 + bucket, return_counts=True)
        for second, n in zip(seconds.tolist(), count.tolist()):
            self._note("acked", first=second // 1024, last=second % 1024, n=n)

    # -- polls

    def _polls(self, table: pa.Table) -> None:
        """Add polls and assignments. An assignment sets a consumer's position."""
        polled = pc.and_(pc.equal(table["f"], "poll"), pc.equal(table["type"], "ok"))
        table = table.filter(pc.or_(polled, pc.equal(table["f"], "assign")))
        names, place = _places(table)
        polls = pc.equal(table["f"], "poll").to_numpy()
        records = table["records"].combine_chunks()
        count = pc.fill_null(pc.list_value_length(records), 0).to_numpy(zero_copy_only=False).astype(np.int64) * polls
        cells = records.filter(pa.array(polls)).flatten().flatten().to_numpy(zero_copy_only=False).reshape(-1, 4)
        offset, producer, number, key = (np.ascontiguousarray(column) for column in cells.T)
        end, final = _ints(table, "end", 0), _bools(table, "final")
        of = np.repeat(np.arange(len(count)), count)
        self.read(names, Reads(place[of], offset, producer, number, key, end[of], final[of]))
        self._reached(names, place[polls], np.full(int(polls.sum()), -1), final[polls])
        live = polls & ~final
        seconds, row = np.unique(end[live] // SECOND_NS, return_inverse=True)
        for second, n in zip(seconds.tolist(), np.bincount(row, count[live]).tolist() if len(seconds) else []):
            self._note("polled", first=second, n=int(n))
        self._consumer_paths(table, (names, place), count, offset)

    def _consumer_paths(self, table: pa.Table, places: tuple[Sequence[Place], Ints], count: Ints, offset: Ints) -> None:
        """Note the path of each consumer through each partition: jumps in this chunk, and its first and last offset."""
        names, place = places
        processes = table["process"].combine_chunks().dictionary_encode()
        way = processes.indices.to_numpy().astype(np.int64) * len(names) + place
        assigned = ~pc.equal(table["f"], "poll").to_numpy()
        # A step is a record that was read, or an assignment, which names the offset of the next step.
        steps = np.where(assigned, 1, count)
        of = np.repeat(np.arange(len(steps)), steps)
        is_set = assigned[of]
        at = np.empty(len(of), dtype=np.int64)
        at[~is_set] = offset
        at[is_set] = _ints(table, "offset", 0)[of[is_set]] - 1
        order = np.argsort(way[of], kind="stable")
        way, at, is_set = way[of][order], at[order], is_set[order]
        if not len(way):
            return
        begins = np.flatnonzero(np.r_[True, way[1:] != way[:-1]])
        ends = np.r_[begins[1:], len(way)] - 1
        jumped = np.r_[False, (way[1:] == way[:-1]) & (at[1:] != at[:-1] + 1)] & ~is_set
        words = processes.dictionary.to_pylist()
        for step in np.flatnonzero(jumped).tolist():
            who, where = divmod(int(way[step]), len(names))
            self._note("jump", names[where], text=words[who], first=int(at[step - 1]), last=int(at[step]))
        for begin, end in zip(begins.tolist(), ends.tolist()):
            who, where = divmod(int(way[begin]), len(names))
            first = None if is_set[begin] else int(at[begin])
            self._note(
                "way", names[where], text=words[who], first=first, last=int(at[end]),
                file=self.file, position=self.position,
            )  # fmt: skip

    # -- notes

    def _reached(self, names: Sequence[Place], place: Ints, offset: Ints, final: npt.NDArray[np.bool_]) -> None:
        """Note the last offset of reads, and of final reads."""
        last = np.full(len(names), -1)
        last_final = np.full(len(names), NO_FINAL_READ)
        np.maximum.at(last, place, offset)
        np.maximum.at(last_final, place[final], offset[final])
        for name, one, other in zip(names, last.tolist(), last_final.tolist()):
            self._note("place", name, first=one, last=other)

    def _add_parcels(self, kind: str, block: Ints, columns: Mapping[str, Any], names: Sequence[Place]) -> None:
        """Add parcels, one for each block."""
        if not len(block):
            return
        if block[0] == block[-1] and (block == block[0]).all():
            self._note(kind, block=int(block[0]), n=len(block), parcel=pack(columns, names))
            return
        order = np.argsort(block, kind="stable")
        ordered = block[order]
        cuts = [0, *(np.flatnonzero(np.diff(ordered)) + 1).tolist(), len(ordered)]
        for begin, end in itertools.pairwise(cuts):
            picked = order[begin:end]
            parcel = pack({name: column[picked] for name, column in columns.items()}, names)
            self._note(kind, block=int(ordered[begin]), n=end - begin, parcel=parcel)

    def _note(self, kind: str, place: Place | None = None, **fields: Any) -> None:
        topic, partition = place if place is not None else (None, None)
        self.notes.append({"kind": kind, "topic": topic, "partition": partition, **fields})


def offset_blocks(names: Sequence[Place], place: Ints, offset: Ints) -> Ints:
    """The block of each offset. Several partitions share a block, so that many partitions make few small parcels."""
    spread = [zlib.crc32(f"{topic}\0{partition}".encode()) % _SPREAD << SHIFT for topic, partition in names]
    return np.array(spread, dtype=np.int64)[place] + (offset >> BLOCK_BITS)


def bucket_ms(bucket: int) -> float:
    """The upper bound of a bucket of latencies, in milliseconds."""
    return float(2 ** ((bucket + 1) / _BUCKETS)) / 1000


def pack(columns: Mapping[str, Any], names: Sequence[Place]) -> bytes:
    """Columns as compressed bytes, with the partitions that their column `place` refers to by index."""
    arrays = [pa.array(column) for column in columns.values()]
    schema = pa.schema([(name, array.type) for name, array in zip(columns, arrays)], {"places": json.dumps(names)})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as stream:
        stream.write_batch(pa.RecordBatch.from_arrays(arrays, schema=schema))
    return bytes(sink.getvalue())


def unpack(parcel: bytes) -> tuple[dict[str, Any], list[Place]]:
    """The arguments of `pack`."""
    with pa.ipc.open_stream(parcel) as stream:
        places = [(topic, partition) for topic, partition in json.loads(stream.schema.metadata[b"places"])]
        batch = stream.read_next_batch()
    return {name: batch.column(name).to_numpy(zero_copy_only=False) for name in batch.schema.names}, places


def _places(rows: pa.Table | pa.RecordBatch) -> tuple[list[Place], Ints]:
    """The partitions in the rows, and for each row the index of its partition."""
    column = rows.column("topic")
    topics = (column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column).dictionary_encode()
    code = (topics.indices.to_numpy().astype(np.int64) << 32) + _ints(rows, "partition", 0)  # perhaps -1, not told
    if len(code) and code[0] == code[-1] and (code == code[0]).all():
        unique, place = code[:1], np.zeros(len(code), dtype=np.int64)
    else:
        unique, place = np.unique(code, return_inverse=True)
    words = topics.dictionary.to_pylist()
    return [(words[one + 1 >> 32], (one + 1 & 0xFFFFFFFF) - 1) for one in unique.tolist()], place.astype(np.int64)


def _ints(rows: pa.Table | pa.RecordBatch, name: str, fill: int) -> Ints:
    column = pc.fill_null(rows.column(name), fill)
    found: Ints = column.to_numpy() if isinstance(column, pa.ChunkedArray) else column.to_numpy(zero_copy_only=False)
    return found


def _bools(rows: pa.Table, name: str) -> npt.NDArray[np.bool_]:
    found: npt.NDArray[np.bool_] = pc.fill_null(rows.column(name), False).to_numpy()
    return found
