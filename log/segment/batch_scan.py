"""Walking over the batches of a log file by their headers."""

from __future__ import annotations

from collections.abc import Iterator

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


def scan_headers(
    file: File, position: int, end: int, window_bytes: int = HEADER_WINDOW_BYTES
) -> Iterator[tuple[int, BatchHeader]]:
    """Positions and headers from the batch at `position` to `end`; ends early where no whole batch stands."""
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


class ValidatingScan:
    """Iterates over the batches of a file that are good in every byte; `damage` then says why it ended early.

    Good is: a header that fits, a matching CRC, offsets that grow from `next_offset` on, epochs that do not fall.

    Offset and epoch of a batch stand outside of its CRC, as a broker sets them after its producer has made that. So
    they are held against their neighbours', one batch late: where two contradict each other, the one that fits its
    other neighbour is believed, and of two that may both be wrong the earlier one counts as damaged. Where nothing was
    compacted (`has_gaps` false), each offset must be the one that the batch before it leads to.
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
        """From `position` on, where `next_offset` comes and `epoch` was before. `following`: where the next file
        begins, and its first batch if that is whole."""
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
        held: BatchHeader | None = None
        position = self.end_position
        while position < size:
            window, window_start = self._window_with_batch(window, window_start, position, size)
            if held is None:
                yield from self._beyond_doubt(window, position - window_start)
                if position < self.end_position:
                    position = self.end_position
                    continue
            try:
                header = self._judge(window, position - window_start)
            except CorruptBatchError as error:
                if held is not None:
                    yield self._accept(held)
                self.damage = f"{error.message} at position {position}"
                return
            if held is not None:
                if self._is_doubtful(held, header):
                    return
                yield self._accept(held)
            if not self._continues(header):
                return
            position += header.size_bytes
            if header.base_offset == self.next_offset and header.partition_leader_epoch == self._epoch:
                yield self._accept(header)
                held = None
            else:
                held = header
        if held is not None and (self._following is None or not self._is_doubtful(held, self._following)):
            yield self._accept(held)

    def _beyond_doubt(self, window: memoryview, at: int) -> Iterator[tuple[int, BatchHeader]]:
        """The sound batches from `at` to the window's end, up to the first that starts an epoch or leaves a gap.

        Nothing that follows could make one of these doubtful. Most logs consist of them, so this is what recovery
        waits for.
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
        """Whether a batch may follow those that were accepted; else that is the damage."""
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

    def _is_doubtful(self, held: BatchHeader, after: BatchHeader) -> bool:
        """Whether it is `held`, not `after`, that makes the two contradict each other; that is the damage then."""
        span = held.last_offset_delta + 1
        if (
            after.base_offset < held.next_offset
            and held.base_offset != self.next_offset
            and after.base_offset >= self.next_offset + span
        ):
            what = f"offset {held.base_offset} before {after.base_offset}"
        elif self._epoch < held.partition_leader_epoch > after.partition_leader_epoch >= self._epoch:
            what = f"leader epoch {held.partition_leader_epoch} before {after.partition_leader_epoch}"
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
