"""All that was committed to a partition of a topic with settings of its own: each record, and how it was stored."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from .....wire.records import BatchHeader, Record, TimestampType, iter_records


class KnownBatch(NamedTuple):
    """How a batch was stored when it was committed."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    is_stamped: bool
    """Whether its records have the time of the leader's append, which is `max_timestamp`."""
    max_timestamp: int
    codec: int
    is_codec_kept: bool
    """Whether it has the producer's codec for certain, as the topic asked for no other when it was appended."""
    appended_s: float


@dataclass(slots=True)
class KnownRecords:
    """The records by offset, and the batches by base offset, up to `end_offset`.

    `removed` are offsets that some replica has removed by compaction, `start_offset` is the highest start of a log.
    """

    records: dict[int, Record] = field(default_factory=dict)
    batches: dict[int, KnownBatch] = field(default_factory=dict)
    newest: dict[bytes, list[int]] = field(default_factory=dict)
    """The offsets of each key."""
    end_offset: int = 0
    start_offset: int = 0
    removed: dict[int, None] = field(default_factory=dict)
    appends: dict[tuple[int, int], tuple[float, bool]] = field(default_factory=dict)
    """When a batch was appended, and whether its codec was to be kept, by leader epoch and base offset."""

    def add(self, header: BatchHeader, batch: bytes) -> None:
        """The next batch is committed."""
        for record in iter_records(batch):
            self.records[record.offset] = record._replace(
                key=bytes(record.key or b""), value=None if record.value is None else bytes(record.value)
            )
            self.newest.setdefault(bytes(record.key or b""), []).append(record.offset)
        epoch, base = header.partition_leader_epoch, header.base_offset
        appended_s, is_codec_kept = self.appends.get((epoch, base), (-1.0, False))
        self.batches[base] = KnownBatch(
            base,
            header.last_offset,
            epoch,
            header.timestamp_type is TimestampType.LOG_APPEND_TIME,
            header.max_timestamp,
            header.compression,
            is_codec_kept,
            appended_s,
        )
        self.end_offset = header.next_offset

    def superseded_by(self, offset: int) -> list[Record]:
        """The later records of the same key."""
        return [self.records[one] for one in self.newest[self.records[offset].key or b""] if one > offset]

    def missing(self, present: dict[int, None], start: int, end: int) -> list[int]:
        """The offsets of committed records in a range that are not among the present ones."""
        offsets = range(start, min(end, self.end_offset))
        return [offset for offset in offsets if offset not in present and offset in self.records]
