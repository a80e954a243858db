"""Replaces a damaged segment of a log by the same batches as another replica has them.

The batches are written to a new segment, which then takes the place of the damaged one as after a compaction: a crash
at any moment leaves the one or the other. The log keeps its end, its leader epochs and its producers, and what is sound
in it is never given up before the whole replacement is durable. Where compaction of the other replica has removed the
last offsets, an empty batch takes their place, as in our own compaction: recovery drops what follows a gap.
"""

from __future__ import annotations

from ...runtime.incremental_work import PLAIN_STEP, Step, Work
from ...runtime.invariants import sometimes
from ...runtime.ports import Disk
from ...wire.errors import ErrorCode
from ...wire.records import BatchHeader, CorruptBatchError, iter_headers, verify_crc
from ..cleaner.batch_filter import filler
from ..partition_log import PartitionLog
from ..segment.segment import MENDED_SUFFIX, Segment


class MendingGivenUpError(Exception):
    """The log has changed meanwhile, or the other replica does not have these batches."""


class SegmentMending:
    """One replacement, of the segment with this base offset. An active segment is rolled first.

    `add` all batches up to `end_offset`, then do the work of `placing`; `end` in any case. Methods raise
    `StorageError`, `OSError` and `MendingGivenUpError`. Meanwhile the cleaner leaves the log alone.
    """

    def __init__(self, log: PartitionLog, disk: Disk, base_offset: int) -> None:
        found = next((segment for segment in log.segments if segment.base_offset == base_offset), None)
        if found is None or log.is_changing_names or log.is_being_mended:
            raise MendingGivenUpError(f"the segment at {base_offset} of {log.directory} is gone or is being replaced")
        if found is log.segments[-1]:
            log.roll()
        self._log = log
        self._damaged = found
        self._history = log.history
        self._is_placed = False
        self._last: BatchHeader | None = None
        """The header of the batch that was added last."""
        self.end_offset = found.next_offset
        self.next_offset = base_offset
        """The offset of the next batch to add."""
        self._new = Segment.create(disk, log.directory, base_offset, MENDED_SUFFIX)
        log.is_being_mended = True

    def add(self, batches: memoryview) -> None:
        """Append the batches of the segment's range; others and an incomplete last one are left out.

        Raises `CorruptBatchError`, and appends nothing, when they are damaged.
        """
        headers: list[BatchHeader] = []
        start = end = -1
        beyond: BatchHeader | None = None
        for position, header in iter_headers(batches, allow_partial_tail=True):
            if header.last_offset < self.next_offset:
                continue
            if header.base_offset >= self.end_offset:
                beyond = header
                break
            if not verify_crc(batches, position, header):
                raise CorruptBatchError(ErrorCode.CORRUPT_MESSAGE, f"batch at offset {header.base_offset} is damaged")
            self._check_place(header)
            start = position if start < 0 else start
            end = position + header.size_bytes
            self.next_offset = header.next_offset
            headers.append(header)
        if headers:
            self._new.append(batches[start:end], headers, self._log.config.index_interval_bytes)
            self._last = headers[-1]
        if beyond is not None and self.next_offset < self.end_offset:
            self._fill_end(beyond)

    def _fill_end(self, beyond: BatchHeader) -> None:
        """The other replica has no more batches of this range, but `beyond` after it."""
        self._check_gap(beyond.base_offset)
        last_offset = self.end_offset - 1
        epoch = self._log.epoch_cache.epoch_for_offset(last_offset)
        like = self._last or beyond
        header, batch = filler(like if epoch is None else like._replace(partition_leader_epoch=epoch), last_offset)
        self._new.append(batch, [header], self._log.config.index_interval_bytes)
        self.next_offset = self.end_offset
        sometimes(True, "a segment was mended whose last offsets another replica had compacted away")

    def _check_gap(self, following_offset: int) -> None:
        """Offsets are missing before this one; recovery has to know it before such a segment is in its place."""
        if not self._log.may_have_gaps:
            raise MendingGivenUpError(
                f"the other replica has a batch at {following_offset}, {self.next_offset} is needed"
            )
        self._log.note_gaps(at_once=True)

    def _check_place(self, header: BatchHeader) -> None:
        """Check what no CRC covers: offset and epoch must be what they can be at this place."""
        base_offset, log = header.base_offset, self._log
        if base_offset > self.next_offset:
            self._check_gap(base_offset)
        if not self.next_offset <= base_offset <= header.last_offset < self.end_offset:
            raise MendingGivenUpError(f"the other replica has a batch at {base_offset}, {self.next_offset} is needed")
        if log.epoch_cache.epoch_for_offset(base_offset) not in (None, header.partition_leader_epoch):
            raise MendingGivenUpError(f"the other replica has another epoch at {base_offset}")

    def placing(self) -> Work[None]:
        """Make the new segment durable, and put it in the place of the damaged one."""
        log, new = self._log, self._new
        for aborted in log.aborted_transactions(new.base_offset, self.end_offset):
            if new.base_offset <= aborted.last_offset < self.end_offset:
                new.transaction_index.add(aborted)
        new.finish()
        yield Step(fsyncs=(new.file, *new.unsynced_index_files()))
        while log.is_changing_names:
            yield PLAIN_STEP
        if log.is_closed or log.is_failed or log.history != self._history or self._damaged not in log.segments:
            sometimes(True, "a log changed while a segment of it was mended")
            raise MendingGivenUpError(f"{log.directory} has changed")
        new.indexes_synced()
        change = log.replace_segments([self._damaged], new)
        self._is_placed = True
        yield Step(change=change)

    def end(self) -> None:
        """Remove the new segment, unless it is in its place."""
        self._log.is_being_mended = False
        if self._is_placed or self._log.is_failed:
            return
        try:
            self._new.file.truncate(0)  # fails in a process that has died; its successor may have such a file too
            self._new.remove()
        except OSError:
            self._new.close()  # the directory may be gone; the next opening of the log removes what is left
