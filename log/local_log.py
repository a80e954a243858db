"""The files of one partition's log: appended to, rolled, read, truncated, deleted, replaced.

This part knows nothing of producers, leader epochs, retention or the log start offset: `PartitionLog` does.
Source: LocalLog of Apache Kafka, which UnifiedLog uses in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..runtime.files.file_slice import FileSlice
from ..runtime.invariants import sometimes
from ..wire.records import BatchHeader, CorruptBatchError, read_header
from .availability import LogAvailability
from .cleaner.batch_filter import filler
from .durability import Durability, LogFiles
from .errors import NoSpaceError, is_no_space, no_space_refused, refused_write
from .segment.batch_scan import scan_headers
from .segment.log_segments import LogSegments
from .segment.segment import LOG_SUFFIX, Segment, TimestampOffset, segment_path
from .segment.segment_replacement import SegmentReplacement, StagedRenames
from .segment.transaction_index import AbortedTransaction

_NO_EPOCH = -1
"""In the header of a batch whose leader epoch is not known."""


class LocalLog:
    """Owns the segments of a log and their files."""

    def __init__(
        self,
        files: LogFiles,
        durability: Durability,
        availability: LogAvailability,
        on_files_deleted: Callable[[list[str]], None] | None,
    ) -> None:
        self.segments: LogSegments = files.segments
        self._files = files
        self._durability = durability
        self._availability = availability
        self._replacement = SegmentReplacement(files, durability, on_files_deleted, availability)

    # Appends

    def append(self, batches: memoryview, headers: Sequence[BatchHeader], index_interval_bytes: int) -> None:
        """Write batches to the active segment. On an error that is not for good the file is as before.

        `StorageError`, `NoSpaceError`.
        """
        active = self.segments.active
        try:
            active.append(batches, headers, index_interval_bytes)
        except OSError as error:
            if active.is_torn:
                what = "what a failed write left behind could not be cut off"
                raise self._availability.fail(what, error) from error
            raise refused_write(f"{self._files.directory} cannot be written: {error}", error) from error

    def roll(self, base_offset: int, producers: bytes) -> None:
        """Start a new segment at `base_offset`; `producers` is the snapshot of the producers at that offset.

        On `StorageError` the active segment is what it was, and the same may be tried again. If the file of the new one
        cannot be removed then, the log has failed: recovery would end the log where that file begins.
        """
        files, rolled = self._files, self.segments.active
        try:
            rolled.finish()
            segment = Segment.create(files.disk, files.directory, base_offset)
            self._write_snapshot(segment, producers)
        except OSError as error:
            if files.disk.exists(segment_path(files.directory, base_offset, LOG_SUFFIX)):
                what = "the file of a segment that could not be started is left"
                raise self._availability.fail(what, error) from error
            raise refused_write(f"{files.directory} cannot start a new segment: {error}", error) from error
        self._durability.segment_rolled(rolled)
        rolled.next_offset = base_offset
        self.segments.add(segment)

    def _write_snapshot(self, segment: Segment, producers: bytes) -> None:
        """Write the snapshot of the producers at the base offset of a new segment, which is removed on `OSError`.

        The segment is there first: a snapshot inside the active segment says that the indexes are durable up to there.
        """
        try:
            self._files.snapshots.write(segment.base_offset, producers)
        except OSError:
            segment.remove()
            raise

    # Reads: `StorageError`

    def read(
        self, offset: int, max_bytes: int, end_offset: int, min_one_batch: bool, *, allow_blocking_io: bool
    ) -> bytes:
        """As `LogSegments.read`."""
        try:
            return self.segments.read(offset, max_bytes, end_offset, min_one_batch, allow_blocking_io=allow_blocking_io)
        except OSError as error:
            raise refused_write(f"{self._files.directory} cannot be read: {error}", error) from error

    def batch_of(self, first_offset: int, last_offset: int) -> BatchHeader | None:
        """The header of the batch with just these offsets; None if there is none, or it is damaged."""
        if not self.segments.first_offset <= first_offset <= last_offset:
            return None
        try:
            data = self.read(first_offset, 1, last_offset + 1, True, allow_blocking_io=True)
            header = read_header(data) if data else None
        except CorruptBatchError:
            return None
        is_it = header is not None and (header.base_offset, header.last_offset) == (first_offset, last_offset)
        return header if is_it else None

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
        """As `LogSegments.read_or_slice`."""
        try:
            return self.segments.read_or_slice(
                offset, max_bytes, end_offset, min_one_batch, slice_bytes_min, allow_blocking_io=allow_blocking_io
            )
        except OSError as error:
            raise refused_write(f"{self._files.directory} cannot be read: {error}", error) from error

    def find_timestamp(self, timestamp_ms: int, start_offset: int) -> TimestampOffset | None:
        """As `LogSegments.find_timestamp`."""
        try:
            return self.segments.find_timestamp(timestamp_ms, start_offset)
        except OSError as error:
            raise refused_write(f"{self._files.directory} cannot be read: {error}", error) from error

    def largest_timestamp(self) -> int:
        """The greatest timestamp in the log, -1 when there is none."""
        try:
            return max(segment.largest_timestamp() for segment in self.segments)
        except OSError as error:
            raise refused_write(f"{self._files.directory} cannot be read: {error}", error) from error

    def aborted_transactions(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """As `LogSegments.aborted_transactions`."""
        try:
            return self.segments.aborted_transactions(start_offset, end_offset)
        except OSError as error:
            raise refused_write(f"{self._files.directory} cannot be read: {error}", error) from error

    def has_aborted_transactions_after(self, offset: int) -> bool:
        """As `LogSegments.has_aborted_transactions_after`."""
        try:
            return self.segments.has_aborted_transactions_after(offset)
        except OSError as error:
            raise refused_write(f"{self._files.directory} cannot be read: {error}", error) from error

    # Replacement and deletion

    @property
    def is_changing_names(self) -> bool:
        """Whether files are being renamed: until that is over no segment is replaced or deleted."""
        return self._replacement.is_under_way

    def settle(self) -> None:
        """Finish a change of file names that is under way, blocking the loop. `StorageError`."""
        self._replacement.settle()

    def replace(self, group: Sequence[Segment], cleaned: Segment) -> StagedRenames:
        """Put `cleaned`, whose files are durable, in the place of `group`; the caller begins the returned change."""
        return self._replacement.replace(group, cleaned)

    def delete_oldest(self, count: int, roll: Callable[[], None]) -> int:
        """Delete the `count` oldest segments, and return how many it were. `StorageError`, `OSError`.

        If these are all segments, `roll` starts a new one first. When the disk is too full for that, the newest one
        stays; deleting the others makes space for the next time.
        """
        if is_whole := count == len(self.segments):
            try:
                roll()
            except NoSpaceError:
                if count == 1:
                    raise
                count, is_whole = count - 1, False
        self._replacement.put_away(count, is_end_new=is_whole)
        return count

    def delete_below(self, offset: int) -> None:
        """Remove the segments that end at or below `offset`, which is fsynced, but never the active one. `OSError`.

        They go oldest first, each durably before the next, so that a loss of power cannot leave a gap, and its batches
        before its indexes, so that it cannot leave batches without their aborted transactions.
        """
        files = self._files
        while len(self.segments) > 1 and self.segments.items[0].next_offset <= offset:
            self._durability.segments_gone(self.segments.items[:1])
            (segment,) = self.segments.take_first(1)
            segment.remove((LOG_SUFFIX,))
            files.disk.fsync_dir(files.directory)
            segment.remove()

    # Truncation: `OSError`

    def truncate_to(self, offset: int, before_cut: Callable[[int], None]) -> int:
        """Remove every batch that reaches `offset`, durably; returns where the log ends then.

        That is `offset`, or the base offset of the batch that held it; `before_cut` is called with it before any file
        changes.
        """
        files = self._files
        keep = self.segments.index_of(offset) + 1
        with no_space_refused(f"{files.directory} cannot be truncated"):
            position, end = self.segments.items[keep - 1].boundary_at(offset)
            first = self.segments.items[keep - 1].first_header()
        before_cut(end)
        self._remove_segments(keep)
        self.segments.active.truncate_to(position, end)
        self._fill_gap(self.segments.active, first)
        files.snapshots.remove_after(end)
        files.disk.fsync_dir(files.directory)
        return end

    def _fill_gap(self, segment: Segment, first: BatchHeader | None) -> None:
        """If compaction had removed the last offsets below the log's end, add an empty batch there, durably.

        `first` is the first batch that the segment had before it was cut; the segment may have begun with such a gap.
        Without it these offsets would be given again after a restart, and recovery would drop a segment that begins at
        the log's end. A disk without space for it leaves the log as it is.
        """
        like, next_offset, end = first, segment.base_offset, segment.next_offset
        epoch = self._files.epoch_cache.epoch_for_offset(end - 1)
        for _, last in scan_headers(segment.file, segment.offset_index.last_position(), segment.size_bytes):
            like, next_offset = last, last.next_offset
        if like is None or next_offset >= end:
            return
        sometimes(True, "a log was cut where compaction had removed offsets")
        if epoch is None:  # that of a batch which was cut off is too great
            epoch = like.partition_leader_epoch if segment.size_bytes else _NO_EPOCH
        header, batch = filler(like._replace(partition_leader_epoch=epoch), end - 1)
        try:
            segment.append(batch, [header], header.size_bytes)
            segment.file.fsync()
        except OSError as error:
            if segment.is_torn or not is_no_space(error):
                raise

    def start_over_at(self, offset: int) -> None:
        """Remove everything and start an empty segment at `offset`; durable after an fsync of the directory."""
        files = self._files
        self._remove_segments(0)
        files.snapshots.remove_after(-1)
        self.segments.add(Segment.create(files.disk, files.directory, offset))

    def _remove_segments(self, keep: int) -> None:
        for segment in reversed(self.segments.cut(keep)):
            segment.remove()

    # Ending

    def close_cleanly(self, producers: Callable[[], bytes]) -> None:
        """Make everything durable; `producers` gives the snapshot of the producers at the log's end. `StorageError`."""
        files, durability, active = self._files, self._durability, self.segments.active
        end = active.next_offset
        if not end and durability.metadata_files.unsaved_topic_id is not None:
            return  # There never was a record in it: what a loss of power leaves of it is as good.
        try:
            active.finish()
            if files.snapshots.latest_offset < end and end > self.segments.first_offset:
                files.snapshots.write(end, producers())
            durability.flush()
            durability.sync_metadata_files()
            durability.sync_indexes(active)
        except OSError as error:
            if is_no_space(error):
                raise refused_write(f"{files.directory} could not be closed cleanly: {error}", error) from error
            raise self._availability.fail("it could not be closed cleanly", error) from error

    def close(self) -> None:
        """Close the files."""
        self._files.snapshots.close()
        for segment in self.segments:
            segment.close()
