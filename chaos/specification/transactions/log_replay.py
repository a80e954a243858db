"""The transactions of one partition, as the batches of its log say: a replay that shares nothing with the log's own.

A transaction is open from its first batch to the producer's next marker, whatever has become of the records: a batch
that compaction has emptied opens one, too. Records are stable below the first transaction that is open, or whose marker
is not committed. Source: KIP-98, KIP-360.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import NamedTuple

from ....wire.records import BatchHeader, iter_records

_REMEMBERED = 5
_SEQUENCES = 1 << 31
_KEY = struct.Struct(">hh")
_VALUE = struct.Struct(">hi")
_ABORT, _COMMIT = 0, 1
NO_OFFSET = -1


class Marker(NamedTuple):
    """What a control batch says of a transaction."""

    is_commit: bool
    coordinator_epoch: int


class SeenBatch(NamedTuple):
    """A batch of a producer by its sequence numbers and its last offset."""

    first_sequence: int
    last_sequence: int
    last_offset: int


class EndedTransaction(NamedTuple):
    """A transaction from its first offset to that of its marker; the epoch is that of its records."""

    producer_id: int
    epoch: int
    first_offset: int
    marker_offset: int
    is_commit: bool


@dataclass(slots=True)
class SeenProducer:
    """What the log says of a producer."""

    epoch: int
    coordinator_epoch: int = -1
    first_offset: int = NO_OFFSET
    """Of the transaction that is open."""
    batches: list[SeenBatch] = field(default_factory=list)
    """The last few of this epoch."""
    last_timestamp: int = -1
    """Of the last batch or marker."""


def marker_in(batch: bytes | memoryview) -> Marker | None:
    """The marker that a control batch holds; None if it holds something else."""
    record = next(iter_records(batch), None)
    if record is None or record.key is None or record.value is None or len(record.key) < _KEY.size:
        return None
    kind = _KEY.unpack_from(record.key)[1]
    if kind not in (_ABORT, _COMMIT) or len(record.value) < _VALUE.size:
        return None
    return Marker(kind == _COMMIT, _VALUE.unpack_from(record.value)[1])


def sequence_after(sequence: int) -> int:
    """The sequence number that comes next."""
    return (sequence + 1) % _SEQUENCES


class LogReplay:
    """Follows a log batch by batch."""

    def __init__(self) -> None:
        self.end_offset = 0
        self.producers: dict[int, SeenProducer] = {}
        self.open: dict[int, tuple[int, int]] = {}
        """The first offset and the epoch of each open transaction by producer id, in order of the offsets."""
        self.ended: list[EndedTransaction] = []
        """In order of their markers."""

    def follow(self, header: BatchHeader, batch: bytes | memoryview) -> Marker | None:
        """Take the next batch; returns the marker that it is."""
        self.end_offset = header.next_offset
        if header.producer_id < 0:
            return None
        if header.is_control:
            marker = marker_in(batch)
            if marker is not None:
                self._end(header, marker)
            return marker
        known = self._producer(header)
        if header.is_transactional and header.producer_id not in self.open:
            self.open[header.producer_id] = header.base_offset, header.producer_epoch
            known.first_offset = header.base_offset
        first = header.base_sequence
        last = (first + header.last_offset_delta) % _SEQUENCES if first >= 0 else -1
        known.batches.append(SeenBatch(first, last, header.last_offset))
        del known.batches[:-_REMEMBERED]
        return None

    def _end(self, header: BatchHeader, marker: Marker) -> None:
        known = self._producer(header)
        known.coordinator_epoch = max(known.coordinator_epoch, marker.coordinator_epoch)
        known.first_offset = NO_OFFSET
        opened = self.open.pop(header.producer_id, None)
        if opened is not None:
            first, epoch = opened
            self.ended.append(EndedTransaction(header.producer_id, epoch, first, header.last_offset, marker.is_commit))

    def _producer(self, header: BatchHeader) -> SeenProducer:
        known = self.producers.get(header.producer_id)
        if known is None:
            known = self.producers[header.producer_id] = SeenProducer(header.producer_epoch)
        elif known.epoch != header.producer_epoch:
            known.epoch = header.producer_epoch
            known.batches = []
        known.last_timestamp = header.max_timestamp
        return known

    def stable_offset(self, high_watermark: int) -> int:
        """Below it all records are committed, and none is of a transaction whose end is not."""
        stable = min(high_watermark, next(iter(self.open.values()))[0]) if self.open else high_watermark
        for one in reversed(self.ended):
            if one.marker_offset < high_watermark:
                break
            stable = min(stable, one.first_offset)
        return stable
