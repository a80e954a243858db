"""Reads a log from its start, for state that is rebuilt from its records, and gets past what is damaged on the disk.

`PartitionLog.read` finds its way by the indexes and the headers of the batches, and refuses where these are damaged. A
replay goes from batch to batch instead and checks the CRC of each. Where a batch is damaged, it stops. Who replays may
then have the log mended, or let the replay look for the next sound batch, so that no flipped bit is the end of a
partition.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...runtime.incremental_work import Work
from ...runtime.invariants import sometimes
from ...wire.records import BATCH_HEADER_SIZE, read_header
from ..segment.batch_scan import Damage, complaint_about, find_sound_batch
from ..segment.segment import Segment

PIECE_BYTES = 32 * 1024


class LogReplay:
    """Reads the batches from `offset` to below `end_offset`. `segments` are those of the log now.

    Compaction and mending may replace segments meanwhile. The log must not be truncated.
    """

    def __init__(self, segments: Callable[[], Sequence[Segment]], offset: int, end_offset: int) -> None:
        self.offset = offset
        """All before it was read or passed."""
        self.damage: Damage | None = None
        """What is damaged at `offset`; None if nothing is."""
        self._segments = segments
        self._end_offset = end_offset
        self._segment: Segment | None = None
        self._position = 0
        self._next_offset = 0

    @property
    def is_at_end(self) -> bool:
        """Whether all was read or passed."""
        return self.offset >= self._end_offset

    def read(self) -> memoryview:
        """The next batches, at least one and about `PIECE_BYTES`, all of them sound. `OSError`.

        Empty at the end, and where the next batch is damaged: then `damage` says so.
        """
        self.damage = None
        while not self.is_at_end and (segment := self._current_segment()) is not None:
            if self._position >= segment.size_bytes:
                self.offset = max(self.offset, segment.next_offset)
                continue
            piece = self._read_from(segment)
            if piece or self.damage is not None:
                return piece
        return memoryview(b"")

    def passing_damage(self) -> Work[None]:
        """Go on with the first sound batch after what is damaged. `OSError`."""
        segment = self._current_segment()
        if segment is None:
            return
        offsets = range(self._next_offset, segment.next_offset)
        search = find_sound_batch(segment.file, self._position, segment.size_bytes, offsets)
        while True:
            try:
                step = next(search)
            except StopIteration as end:
                found = end.value
                break
            yield step
            if self._current_segment() is not segment:
                return
        if found is None:
            self.offset = max(self.offset, segment.next_offset)
        else:
            self._position, header = found
            self.offset = max(self.offset, header.base_offset)

    def _current_segment(self) -> Segment | None:
        """The segment that holds `offset`; if it is another one than before, from its start."""
        segments, segment = self._segments(), self._segment
        if segment is None or segment.next_offset <= self.offset or segment not in segments:
            segment = next((one for one in segments if one.next_offset > self.offset), None)
            self._segment = segment
            self._position = 0
            self._next_offset = 0 if segment is None else segment.base_offset
        return segment

    def _read_from(self, segment: Segment) -> memoryview:
        """The sound batches of a piece from the position on, without those before `offset`."""
        left = segment.size_bytes - self._position
        data = segment.file.pread(self._position, min(PIECE_BYTES, left))
        if len(data) >= BATCH_HEADER_SIZE and len(data) < (wanted := read_header(data).size_bytes) <= left:
            data = segment.file.pread(self._position, wanted)
        view = memoryview(data)
        begin = at = 0
        while at < len(view) or not view:  # the file may have lost its end
            what = complaint_about(view, at)
            header = None if what is not None else read_header(view, at)
            if (
                header is not None
                and not self._next_offset <= header.base_offset <= header.last_offset < segment.next_offset
            ):
                what = f"offset {header.base_offset} where {self._next_offset} was to come"
            if header is None or what is not None:
                if at == 0:
                    where = f"{segment.file.path}: {what} at position {self._position}"
                    sometimes(True, "a replay met a damaged batch")
                    self.damage = Damage(segment.base_offset, max(self.offset, self._next_offset), where)
                break
            if header.base_offset >= self._end_offset:
                self.offset = self._end_offset
                break
            at += header.size_bytes
            self._next_offset = header.next_offset
            if header.last_offset < self.offset:
                begin = at
            else:
                self.offset = header.next_offset
        self._position += at
        return view[begin:at]
