"""The segments of a log in order of their offsets; an offset's segment is found by bisection."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from operator import attrgetter

from ...runtime.files.file_slice import FileSlice
from ...runtime.invariants import invariant
from ...wire.records import BATCH_HEADER_SIZE, BatchHeader, CorruptBatchError, TimestampType, iter_headers, iter_records
from .segment import Segment, Slicing, TimestampOffset
from .transaction_index import AbortedTransaction

_COUNT = slice(BATCH_HEADER_SIZE - 4, BATCH_HEADER_SIZE)
_NO_RECORDS = bytes(4)
_LAST_OFFSET = attrgetter("last_offset")


class LogSegments:
    """Owns the list of segments; `active`, the last one, takes appends. It is empty only within a change."""

    __slots__ = ("_bases", "_cuts", "_items", "active")

    def __init__(self, items: Iterable[Segment]) -> None:
        self._items = list(items)
        self._bases = [segment.base_offset for segment in self._items]
        self.active = self._items[-1]
        self._cuts = 0

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._items)

    @property
    def items(self) -> list[Segment]:
        """The segments; the list must not be changed by the caller."""
        return self._items

    @property
    def first_offset(self) -> int:
        """Base offset of the first segment."""
        return self._bases[0]

    @property
    def size_bytes(self) -> int:
        """Bytes of all batches."""
        return sum(segment.size_bytes for segment in self._items)

    def index_of(self, offset: int) -> int:
        """Index of the segment that holds `offset`; -1 when that is before all of them."""
        return bisect_right(self._bases, offset) - 1

    def has_later_one(self, offset: int, end_offset: int) -> bool:
        """Whether a segment after the one of `offset` begins below `end_offset`."""
        following = self.index_of(offset) + 1
        return following < len(self._bases) and self._bases[following] < end_offset

    def add(self, segment: Segment) -> None:
        """Add a segment at the end, which becomes the active one."""
        self._items.append(segment)
        self._bases.append(segment.base_offset)
        self.active = segment

    def cut(self, keep: int) -> list[Segment]:
        """Take out all but the first `keep` segments and return them; the last one that is left becomes active."""
        self._cuts += 1
        removed = self._items[keep:]
        del self._items[keep:], self._bases[keep:]
        if self._items:
            self.active = self._items[-1]
        return removed

    def take_first(self, count: int) -> list[Segment]:
        """Take out the first `count` segments, never the active one, and return them; their files stay."""
        removed = self._items[:count]
        del self._items[:count], self._bases[:count]
        return removed

    def check_replaceable(self, group: Sequence[Segment], cleaned: Segment) -> None:
        """Check that `cleaned` can replace `group`."""
        at = self.index_of(group[0].base_offset)
        invariant(self._items[at : at + len(group)] == list(group), "segments are replaced where they stand")
        invariant(group[-1] is not self.active, "the active segment is not replaced")
        invariant(cleaned.next_offset == group[-1].next_offset, "a cleaned segment ends where the cleaned ones did")

    def put(self, group: Sequence[Segment], cleaned: Segment) -> None:
        """Replace `group` by `cleaned`."""
        self.check_replaceable(group, cleaned)
        at = self.index_of(group[0].base_offset)
        self._items[at : at + len(group)] = [cleaned]
        self._bases[at : at + len(group)] = [cleaned.base_offset]

    def aborted_transactions(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """See `PartitionLog.aborted_transactions`. `OSError`."""
        found = []
        for segment in self._items[max(self.index_of(start_offset), 0) :]:
            entries = segment.transaction_index.entries
            for one in islice(entries, bisect_left(entries, start_offset, key=_LAST_OFFSET), None):
                if one.first_offset < end_offset:
                    found.append(one)
                if one.last_stable_offset >= end_offset:
                    return found
        return found

    def has_aborted_transactions_after(self, offset: int) -> bool:
        """Whether a transaction with records at or after `offset` was aborted. `OSError`."""
        for segment in self._items[max(self.index_of(offset), 0) :]:
            entries = segment.transaction_index.entries
            if entries and entries[-1].last_offset >= offset:
                return True
        return False

    def read(
        self, offset: int, max_bytes: int, end_offset: int, min_one_batch: bool, *, allow_blocking_io: bool = True
    ) -> bytes:
        """Batches from the one that holds `offset`, or the next existing one; see `PartitionLog.read`. `OSError`.

        If compaction has left a segment without records, the next segment is read: a client that gets no records
        concludes that it asked for too few bytes.
        """
        active = self.active
        if offset >= end_offset:
            return b""
        if offset >= active.base_offset:
            return active.read(offset, end_offset, max_bytes, min_one_batch, allow_blocking_io=allow_blocking_io)
        items = self._items
        at = bisect_right(self._bases, offset) - 1
        data = items[at].read(offset, end_offset, max_bytes, min_one_batch, allow_blocking_io=allow_blocking_io)
        if data[_COUNT] != _NO_RECORDS and (data or not min_one_batch):
            return data
        while at < len(items) - 1 and (_has_no_records(data) if data else min_one_batch):
            at += 1
            if self._bases[at] >= end_offset:
                break
            data = (
                items[at].read(
                    self._bases[at], end_offset, max_bytes, min_one_batch, allow_blocking_io=allow_blocking_io
                )
                or data
            )
        return data

    def read_or_slice(
        self,
        offset: int,
        max_bytes: int,
        end_offset: int,
        min_one_batch: bool,
        slice_bytes_min: int,
        *,
        allow_blocking_io: bool,
    ) -> bytes | FileSlice:
        """Like `read`, as bytes or as a slice; bytes if the first batch has no records. `OSError`."""
        if offset >= end_offset:
            return b""
        cuts = self._cuts
        slicing = Slicing(slice_bytes_min, lambda: self._cuts == cuts)
        segment = self._items[self.index_of(offset)]
        data = segment.read_or_slice(
            offset, end_offset, max_bytes, min_one_batch, slicing, allow_blocking_io=allow_blocking_io
        )
        count = data[_COUNT] if isinstance(data, bytes) else data.read(_COUNT.start, len(_NO_RECORDS))
        if count != _NO_RECORDS and (data or not min_one_batch):
            return data
        return self.read(offset, max_bytes, end_offset, min_one_batch, allow_blocking_io=allow_blocking_io)

    def find_timestamp(self, timestamp_ms: int, start: int) -> TimestampOffset | None:
        """The first record from offset `start` on whose timestamp is `timestamp_ms` or later. `OSError`."""
        for segment in self._items:
            if segment.largest_timestamp() < timestamp_ms or segment.next_offset <= start:
                continue
            found = segment.find_timestamp(timestamp_ms, start)
            while found is not None:
                position, header = found
                match = _record_in(segment, position, header, timestamp_ms, start)
                if match is not None:
                    return match
                start = header.next_offset
                found = segment.find_timestamp(timestamp_ms, start)
        return None


def _has_no_records(data: bytes) -> bool:
    """Whether none of these batches has records."""
    return all(not header.record_count for _, header in iter_headers(data))


def _record_in(
    segment: Segment, position: int, header: BatchHeader, timestamp_ms: int, start_offset: int
) -> TimestampOffset | None:
    epoch = header.partition_leader_epoch
    has_all_records = header.record_count == header.last_offset_delta + 1
    if header.timestamp_type is TimestampType.LOG_APPEND_TIME and has_all_records:
        return TimestampOffset(header.max_timestamp, max(header.base_offset, start_offset), epoch)
    try:
        for record in iter_records(segment.file.pread(position, header.size_bytes)):
            if record.timestamp >= timestamp_ms and record.offset >= start_offset:
                return TimestampOffset(record.timestamp, record.offset, epoch)
    except CorruptBatchError:
        return TimestampOffset(header.max_timestamp, max(header.base_offset, start_offset), epoch)
    return None
