"""Walking over the batches of a log file by their headers."""

from __future__ import annotations

from collections.abc import Iterator

from ..runtime.ports import File
from ..wire.errors import ErrorCode
from ..wire.records import (
    BATCH_HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC_V2,
    BatchHeader,
    CorruptBatchError,
    check_header,
    read_header,
    verify_crc,
)

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
        size = header.batch_length + LOG_OVERHEAD
        if header.magic != MAGIC_V2 or size < BATCH_HEADER_SIZE or position + size > end:
            return
        yield position, header
        position += size


class ValidatingScan:
    """Iterates over the batches of a whole file that are good in every byte; `damage` then says why it ended early.

    Good is: a header that fits, a matching CRC, offsets that grow from `next_offset` on, epochs that do not fall.
    """

    def __init__(self, file: File, next_offset: int, epoch: int = -1) -> None:
        self.damage: str | None = None
        self.end_position = 0
        self.next_offset = next_offset
        self._epoch = epoch
        self._file = file

    def __iter__(self) -> Iterator[tuple[int, BatchHeader]]:
        size = self._file.size()
        window, window_start = memoryview(b""), 0
        while self.end_position < size:
            position = self.end_position
            window, window_start = self._window_with_batch(window, window_start, size)
            try:
                header = self._judge(window, position - window_start)
            except CorruptBatchError as error:
                self.damage = f"{error.message} at position {position}"
                return
            self.end_position += header.size_bytes
            self.next_offset = header.next_offset
            self._epoch = header.partition_leader_epoch
            yield position, header

    def _window_with_batch(self, window: memoryview, start: int, size: int) -> tuple[memoryview, int]:
        at = self.end_position - start
        left = len(window) - at
        if left >= BATCH_HEADER_SIZE and left >= read_header(window, at).size_bytes:
            return window, start
        wanted = _VALIDATION_WINDOW_BYTES
        if left >= BATCH_HEADER_SIZE:
            wanted = max(wanted, read_header(window, at).size_bytes)
        else:
            head = self._file.pread(self.end_position, BATCH_HEADER_SIZE)
            if len(head) == BATCH_HEADER_SIZE:
                wanted = max(wanted, read_header(head).size_bytes)
        length = min(wanted, size - self.end_position)
        return memoryview(self._file.pread(self.end_position, length)), self.end_position

    def _judge(self, window: memoryview, at: int) -> BatchHeader:
        header = read_header(window, at)
        check_header(header, len(window) - at)
        if header.base_offset < self.next_offset:
            raise _corrupt(f"offset {header.base_offset} where {self.next_offset} was to come")
        if header.partition_leader_epoch < self._epoch:
            raise _corrupt(f"leader epoch {header.partition_leader_epoch} after {self._epoch}")
        if not verify_crc(window, at, header):
            raise _corrupt("CRC does not match")
        return header


def _corrupt(reason: str) -> CorruptBatchError:
    return CorruptBatchError(ErrorCode.CORRUPT_MESSAGE, reason)
