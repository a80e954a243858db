"""Iterating over the batches of a log file by their headers, with or without validation, and beyond damage."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ...runtime.incremental_work import FileRange, Step, Work
from ...runtime.ports import File
from ...wire.errors import ErrorCode
from ...wire.records import (
    BATCH_HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC_V2,
    BatchHeader,
    CorruptBatchError,
    check_header,
    read_header,
    read_valid_header,
    verify_crc,
)
from ..config import MAX_INT64

HEADER_WINDOW_BYTES = 64 * 1024
LOOKUP_WINDOW_BYTES = 8 * 1024
_VALIDATION_WINDOW_BYTES = 1024 * 1024
_SEARCH_WINDOW_BYTES = 256 * 1024
_MAGIC_AT = 16
_MAGIC = bytes([MAGIC_V2])


class Damage(NamedTuple):
    """The first damaged batch of a log: it is in the segment with this base offset, at `offset` or after it."""

    segment_base_offset: int
    offset: int
    what: str


def scan_headers(
    file: File, position: int, end: int, window_bytes: int = HEADER_WINDOW_BYTES
) -> Iterator[tuple[int, BatchHeader]]:
    """Positions and headers of the batches from `position` to `end`; stops early where there is no whole batch."""
    window, window_start = b"", position
    while position + BATCH_HEADER_SIZE <= end:
        at = position - window_start
        if at + BATCH_HEADER_SIZE > len(window):
            window, window_start, at = file.pread(position, min(window_bytes, end - position)), position, 0
            if len(window) < BATCH_HEADER_SIZE:
                return
        header = read_header(window, at)
        size = header[1] + LOG_OVERHEAD
        if header[3] != MAGIC_V2 or size < BATCH_HEADER_SIZE or position + size > end:
            return
        yield position, header
        position += size


def complaint_about(window: memoryview, at: int) -> str | None:
    """What is wrong with the batch at `at`, by its header and its CRC; None if nothing is."""
    left = len(window) - at
    if left < BATCH_HEADER_SIZE:
        return "no whole batch"
    header = read_header(window, at)
    try:
        check_header(header, left)
    except CorruptBatchError as error:
        return error.message
    return None if verify_crc(window, at, header) else "CRC does not match"


def find_sound_batch(file: File, position: int, end: int, offsets: range) -> Work[tuple[int, BatchHeader] | None]:
    """Position and header of the first sound batch after the damaged one at `position`; None if there is none.

    A batch is sound if its CRC matches and all its offsets are in `offsets`. If the length of the damaged batch is
    right, the batch after it is found by that, else all bytes up to `end` are searched. `OSError`.
    """
    head = file.pread(position, BATCH_HEADER_SIZE)
    if len(head) == BATCH_HEADER_SIZE and (size := read_header(head).size_bytes) >= BATCH_HEADER_SIZE:
        header = _sound_batch_at(file, position + size, end, offsets)
        if header is not None:
            return position + size, header
    at = position + 1
    while at + BATCH_HEADER_SIZE <= end:
        length = min(_SEARCH_WINDOW_BYTES + BATCH_HEADER_SIZE - 1, end - at)
        yield Step(reads=FileRange(file, at, length))
        window = file.pread(at, length)
        magic_at = window.find(_MAGIC, _MAGIC_AT)
        while 0 <= magic_at <= len(window) - (BATCH_HEADER_SIZE - _MAGIC_AT):
            start = magic_at - _MAGIC_AT
            if read_header(window, start).base_offset in offsets:
                header = _sound_batch_at(file, at + start, end, offsets)
                if header is not None:
                    return at + start, header
            magic_at = window.find(_MAGIC, magic_at + 1)
        at += _SEARCH_WINDOW_BYTES
    return None


def _sound_batch_at(file: File, position: int, end: int, offsets: range) -> BatchHeader | None:
    head = file.pread(position, BATCH_HEADER_SIZE)
    if len(head) < BATCH_HEADER_SIZE:
        return None
    header = read_header(head)
    if not (BATCH_HEADER_SIZE <= header.size_bytes <= end - position and header.base_offset in offsets):
        return None
    if header.last_offset not in offsets:
        return None
    return read_valid_header(memoryview(file.pread(position, header.size_bytes)), 0)


class ValidatingScan:
    """Iterates over the valid batches of a file; `damage` says why it stopped early, None if it did not.

    A batch is valid if its header is plausible, its CRC matches, its offsets grow from `next_offset` on, and its epoch
    is not smaller than the one before. If nothing was compacted (`has_gaps` is false), offsets must not be missing.

    The CRC does not cover offset and epoch, which the broker sets after the producer has computed the CRC. So these are
    compared with the neighbouring batches, and each batch is accepted one batch late. If two neighbours contradict each
    other, the one that agrees with its other neighbour is valid; if both may be wrong, the earlier one is the damaged.
    """

    def __init__(
        self,
        file: File,
        next_offset: int,
        epoch: int = -1,
        *,
        has_gaps: bool = True,
        following: tuple[int, BatchHeader | None] | None = None,
        position: int = 0,
    ) -> None:
        """Begin at `position`, where `next_offset` is expected after `epoch`.

        `following` is the base offset of the next file and the header of its first batch, if that is whole.
        """
        self.damage: str | None = None
        self.end_position = position
        self.next_offset = next_offset
        self._epoch = epoch
        self._file = file
        self._has_gaps = has_gaps
        self._offset_max = None if following is None else following[0]
        self._following = None if following is None else following[1]

    def __iter__(self) -> Iterator[tuple[int, BatchHeader]]:
        size = self._file.size()
        window, window_start = memoryview(b""), 0
        pending: BatchHeader | None = None
        position = self.end_position
        while position < size:
            window, window_start = self._window_with_batch(window, window_start, position, size)
            if pending is None:
                yield from self._certain_batches(window, position - window_start)
                if position < self.end_position:
                    position = self.end_position
                    continue
            try:
                header = self._judge(window, position - window_start)
            except CorruptBatchError as error:
                if pending is not None:
                    yield self._accept(pending)
                self.damage = f"{error.message} at position {position}"
                return
            if pending is not None:
                if self._is_doubtful(pending, header):
                    return
                yield self._accept(pending)
            if not self._continues(header):
                return
            position += header.size_bytes
            if header.base_offset == self.next_offset and header.partition_leader_epoch == self._epoch:
                yield self._accept(header)
                pending = None
            else:
                pending = header
        if pending is not None and (self._following is None or not self._is_doubtful(pending, self._following)):
            yield self._accept(pending)

    def _certain_batches(self, window: memoryview, at: int) -> Iterator[tuple[int, BatchHeader]]:
        """The valid batches from `at` to the window's end, up to the first that starts an epoch or leaves a gap.

        No later batch can contradict one of these. Most logs consist of them, so the speed of recovery depends on this.
        """
        limit = len(window) - BATCH_HEADER_SIZE
        position, next_offset, epoch = self.end_position, self.next_offset, self._epoch
        offset_max = MAX_INT64 if self._offset_max is None else self._offset_max
        while at <= limit:
            header = read_valid_header(window, at)
            if header is None or header[0] != next_offset or header[2] != epoch:
                return
            next_offset += header[6] + 1
            if next_offset > offset_max:
                return
            size = header[1] + LOG_OVERHEAD
            at += size
            self.end_position = position + size
            self.next_offset = next_offset
            yield position, header
            position += size

    def _accept(self, header: BatchHeader) -> tuple[int, BatchHeader]:
        position = self.end_position
        self.end_position += header.size_bytes
        self.next_offset = header.next_offset
        self._epoch = header.partition_leader_epoch
        return position, header

    def _continues(self, header: BatchHeader) -> bool:
        """Whether a batch may follow the accepted ones; if not, sets `damage`."""
        if header.base_offset < self.next_offset or not (self._has_gaps or header.base_offset == self.next_offset):
            what = f"offset {header.base_offset} where {self.next_offset} was to come"
        elif header.partition_leader_epoch < self._epoch:
            what = f"leader epoch {header.partition_leader_epoch} after {self._epoch}"
        elif self._offset_max is not None and header.next_offset > self._offset_max:
            what = f"offset {header.last_offset} where the next segment begins at {self._offset_max}"
        else:
            return True
        self.damage = f"{what} at position {self.end_position}"
        return False

    def _is_doubtful(self, pending: BatchHeader, after: BatchHeader) -> bool:
        """Whether `pending` is the one that is wrong where it contradicts `after`; if so, sets `damage`."""
        span = pending.last_offset_delta + 1
        if (
            after.base_offset < pending.next_offset
            and pending.base_offset != self.next_offset
            and after.base_offset >= self.next_offset + span
        ):
            what = f"offset {pending.base_offset} before {after.base_offset}"
        elif self._epoch < pending.partition_leader_epoch > after.partition_leader_epoch >= self._epoch:
            what = f"leader epoch {pending.partition_leader_epoch} before {after.partition_leader_epoch}"
        else:
            return False
        self.damage = f"{what} at position {self.end_position}"
        return True

    def _window_with_batch(self, window: memoryview, start: int, position: int, size: int) -> tuple[memoryview, int]:
        at = position - start
        left = len(window) - at
        if left >= BATCH_HEADER_SIZE and left >= read_header(window, at).size_bytes:
            return window, start
        wanted = _VALIDATION_WINDOW_BYTES
        if left >= BATCH_HEADER_SIZE:
            wanted = max(wanted, read_header(window, at).size_bytes)
        else:
            head = self._file.pread(position, BATCH_HEADER_SIZE)
            if len(head) == BATCH_HEADER_SIZE:
                wanted = max(wanted, read_header(head).size_bytes)
        return memoryview(self._file.pread(position, min(wanted, size - position))), position

    def _judge(self, window: memoryview, at: int) -> BatchHeader:
        header = read_header(window, at)
        check_header(header, len(window) - at)
        if not verify_crc(window, at, header):
            raise CorruptBatchError(ErrorCode.CORRUPT_MESSAGE, "CRC does not match")
        return header
