"""What of a log would survive a loss of power: the recovery point, and the fsyncs that move it.

Before the recovery point may pass an offset, everything that recovery trusts below it is made durable: the segments
with their indexes, the leader epochs, the producer snapshots, and the names of new files. The indexes of the active
segment are durable only up to a producer snapshot inside it, where recovery begins.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from ..runtime.files.open_files import is_out_of_files
from ..runtime.invariants import sometimes
from ..runtime.ports import Disk, File
from .availability import LogAvailability
from .errors import NoSpaceError, StorageError, is_no_space, no_space_refused, refused_write
from .segment.log_segments import LogSegments
from .segment.segment import Segment
from .state.leader_epoch_cache import LeaderEpochCache
from .state.partition_metadata_files import PartitionMetadataFiles
from .state.producer_snapshots import ProducerSnapshots


@dataclass(frozen=True, slots=True)
class LogFiles:
    """The files of one log, as they are known in memory."""

    disk: Disk
    directory: str
    segments: LogSegments
    epoch_cache: LeaderEpochCache
    snapshots: ProducerSnapshots


class Durability:
    """Keeps the recovery point, below which everything is fsynced, and knows which files still need an fsync."""

    def __init__(self, files: LogFiles, recovery_point: int, is_settled: bool, availability: LogAvailability) -> None:
        """`is_settled`: the files are as a clean shutdown left them, so nothing needs an fsync."""
        self.recovery_point = recovery_point
        self.history = 0
        """Changes when offsets or files are removed. An fsync that began before then says nothing about the rest."""
        self.last_flush_s: float | None = None
        """When log maintenance last flushed the whole log, in seconds of the loop; None before its first round."""
        self._files = files
        self._availability = availability
        self._unsynced: list[Segment] = []
        self._names_changed = 0 if is_settled else 1
        """How many changes of names were made in the directory; `_names_synced` of them are durable."""
        self._names_synced = 0
        self._is_name_new = not is_settled
        self.metadata_files = PartitionMetadataFiles(files.disk, files.directory, files.epoch_cache)
        self._trusted: Segment | None = None
        """The segment with a producer snapshot inside it; `_trusted_bytes` of it are before that snapshot."""
        self._trusted_bytes = 0
        if is_settled and files.snapshots.latest_offset == recovery_point:
            self._trust(files.segments.active, files.segments.active.size_bytes)
        if not is_settled:
            self._unsynced = files.segments.items[max(files.segments.index_of(recovery_point), 0) : -1]
            files.epoch_cache.is_dirty = True

    @property
    def unchecked_bytes(self) -> int:
        """Bytes of the active segment that recovery would check after a crash now."""
        active = self._files.segments.active
        return active.size_bytes - (self._trusted_bytes if self._trusted is active else 0)

    @property
    def has_unsynced_segments(self) -> bool:
        """Whether rolled segments wait for their fsync."""
        return bool(self._unsynced)

    def close_idle_files(self) -> None:
        """Close the files of durable segments; a read or append opens them again."""
        *rolled, active = self._files.segments.items
        for segment in rolled:
            if segment not in self._unsynced:
                segment.close_idle_files()
        if self.recovery_point == active.next_offset:
            active.close_idle_files()

    # What changes

    def segment_rolled(self, segment: Segment) -> None:
        """`segment` takes no more appends, and the file of the next one is there, so nothing here may be refused.

        If all its records are durable but not the ends of its indexes, recovery would start after it. A loss of power
        may then damage the indexes; that shows when they are used, and they are rebuilt.
        """
        if segment.next_offset > self.recovery_point or segment.has_unsynced_indexes:
            self._unsynced.append(segment)
        self._names_changed += 1

    def segments_replaced(self, removed: Sequence[Segment]) -> None:
        """The records of these segments are in another one now, which is durable, and so is its name."""
        self._unsynced = [segment for segment in self._unsynced if segment not in removed]

    def segments_gone(self, removed: Sequence[Segment]) -> None:
        """The files of these segments are removed. The result of an fsync that is under way is ignored."""
        kept = [segment for segment in self._unsynced if segment not in removed]
        if len(kept) < len(self._unsynced):
            self._unsynced = kept
            self.history += 1

    def truncated(self, end_offset: int) -> None:
        """The log ends at `end_offset` now, and some segments are gone.

        Their leader epochs may stay in the checkpoint until the recovery point moves: recovery replaces those above it.
        """
        rolled = self._files.segments.items[:-1]
        self._unsynced = [segment for segment in self._unsynced if segment in rolled]
        self.recovery_point = min(self.recovery_point, end_offset)
        if self._files.segments.active.size_bytes < self._trusted_bytes:
            self._trusted = None

    def started_over(self, offset: int) -> None:
        """The log is empty and begins at `offset`, and nothing of its former records is left on the disk. `OSError`.

        While the disk is too full for its small files, the recovery point stays below: the former ones must not count.
        """
        try:
            self.sync_metadata_files()
        except OSError as error:
            if not is_no_space(error):
                raise
            return
        self.recovery_point = offset

    # fsync

    def flush(self) -> int:
        """fsync everything; returns the new recovery point. `StorageError` for good when the fsync fails.

        After a `NoSpaceError` the log is as it was: a small file could not be written, or none be opened.
        """
        self._availability.check()
        try:
            self.sync(self._files.segments.active.next_offset)
        except OSError as error:
            raise self._flush_failed(error) from error
        return self.recovery_point

    def prepare_flush(self) -> None:
        """Save the small files before an append which `flush.messages` has fsynced at once.

        Raises `StorageError` where they are refused: the append is refused then, before it has changed anything.
        """
        try:
            with no_space_refused(f"{self._files.directory} cannot be flushed"):
                self.metadata_files.save()
            self.sync_metadata_files()
        except OSError as error:
            raise self._flush_failed(error) from error

    def flush_appended(self) -> None:
        """fsync what was appended after `prepare_flush`. `StorageError`.

        While the disk is too full for the file of a new leader epoch, the records are fsynced all the same, and the
        recovery point stays: recovery makes that file again from them.
        """
        try:
            self.flush()
        except NoSpaceError:
            sometimes(True, "records were fsynced while the disk was too full for a small file")
            try:
                for path in self._directories_to_sync(False):
                    self._files.disk.fsync_dir(path)
                for segment in (*self._unsynced, self._files.segments.active):
                    segment.file.fsync()
            except OSError as error:
                raise self._flush_failed(error) from error

    def _flush_failed(self, error: OSError) -> StorageError:
        """Without a free descriptor no fsync was tried, and the log goes on. After any other error it has failed."""
        if is_out_of_files(error):
            return self._refused(error)
        return self._availability.fail("fsync failed", error)

    def flush_soon(self) -> asyncio.Future[int]:
        """fsync what is in the log now without blocking the loop; the result is the recovery point after that.

        It is less than the log's end at the call if the log was truncated meanwhile. Fails with `StorageError`.
        """
        return self._soon(partial(self.sync_soon, self._files.segments.active.next_offset, self.all_files))

    def flush_rolled_soon(self) -> asyncio.Future[int]:
        """Like `flush_soon`, for all segments but the active one."""
        return self._soon(partial(self.sync_soon, self._files.segments.active.base_offset, self.rolled_files))

    def flush_with_snapshot_soon(self, producers: bytes) -> asyncio.Future[int]:
        """Like `flush_soon`; afterwards recovery begins where the log ends now. `producers` is the snapshot for it."""
        return self._soon(partial(self.checkpoint_soon, self._files.segments.active.next_offset, producers))

    def _soon(self, begin: Callable[[asyncio.Future[int]], None]) -> asyncio.Future[int]:
        result: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        try:
            self._availability.check()
        except StorageError as error:
            result.set_exception(error)
        else:
            begin(result)
        return result

    def sync(self, target: int) -> None:
        """fsync everything and move the recovery point to `target`, the end of the log. `OSError`, `NoSpaceError`."""
        if target == self.recovery_point and not self._unsynced:
            return
        with no_space_refused(f"{self._files.directory} cannot be flushed"):
            self.metadata_files.save()
            files = self.all_files()
        self.sync_metadata_files()
        for file in files:
            file.fsync()
        self._synced_up_to(target)

    def sync_soon(self, target: int, files_of: Callable[[], list[File]], result: asyncio.Future[int]) -> None:
        """fsync without blocking the loop; `result` gets the recovery point after that, or a `StorageError`.

        After a `NoSpaceError` the log goes on as it is: a small file could not be replaced.
        """
        history, names = self.history, self._names_changed
        disk, snapshots = self._files.disk, self._files.snapshots.unsynced()
        try:
            files = [*snapshots.values(), *(files_of() if target > self.recovery_point or self._unsynced else ())]
            waiting = [*self.metadata_files.save_soon(), *(disk.fsync_soon(file) for file in files)]
            waiting += [disk.fsync_dir_soon(path) for path in self._directories_to_sync(bool(snapshots))]
        except OSError as error:
            result.set_exception(self._refused(error))
            return

        def synced(error: BaseException | None) -> None:
            failure: StorageError | None = None
            sometimes(history != self.history, "a log was cut while it was being synced")
            if history == self.history:
                if error is None:
                    self._files.snapshots.synced(snapshots)
                    self._names_synced = max(self._names_synced, names)
                    self._is_name_new = False
                    self._synced_up_to(target)
                elif isinstance(error, NoSpaceError):
                    sometimes(True, "a full disk kept a log from being synced")
                    failure = error
                else:
                    sometimes(True, "an fsync failed, and its log was used no more")
                    failure = self._availability.fail("fsync failed", error)
            if result.done():
                return
            if failure is not None:
                result.set_exception(failure)
            else:
                result.set_result(self.recovery_point)

        _when_synced(waiting, synced)

    def checkpoint_soon(self, end: int, producers: bytes, result: asyncio.Future[int]) -> None:
        """Like `sync_soon`; afterwards recovery begins at `end`, the log's end now. `producers` is the snapshot for it.

        A snapshot inside a segment tells recovery that the indexes are durable up to there. The recovery point may be
        that far already, so the snapshot is written after the indexes are durable; they are fsynced after the records.
        If the segment is rolled or cut meanwhile, no snapshot is written.
        """
        history, segment, size_bytes = self.history, self._files.segments.active, self._files.segments.active.size_bytes

        def then(step: Callable[[], None]) -> Callable[[BaseException | None], None]:
            def on_synced(error: BaseException | None) -> None:
                if history != self.history or segment is not self._files.segments.active:
                    sometimes(True, "a segment was rolled or cut while a start for recovery was being written")
                    result.set_result(self.recovery_point)
                elif error is not None:
                    result.set_exception(self._availability.fail("fsync failed", error))
                else:
                    carry_out(step)

            return on_synced

        def carry_out(step: Callable[[], None]) -> None:
            try:
                step()
            except OSError as error:
                result.set_exception(self._refused(error))

        def sync_records() -> None:
            segment.save_indexes()
            _when_synced([self._files.disk.fsync_soon(segment.file)], then(sync_indexes))

        def sync_indexes() -> None:
            files = segment.unsynced_index_files()
            _when_synced([self._files.disk.fsync_soon(file) for file in files], then(write_snapshot))

        def write_snapshot() -> None:
            snapshots = self._files.snapshots
            for path in snapshots.take_stray(one.base_offset for one in self._files.segments):
                self._files.disk.remove_soon(path).add_done_callback(_ignore_error)
            snapshots.write(end, producers)
            self._trust(segment, size_bytes)
            self.sync_soon(end, self.all_files, result)

        carry_out(sync_records)

    def _trust(self, segment: Segment, size_bytes: int) -> None:
        self._trusted, self._trusted_bytes = segment, size_bytes

    def _refused(self, error: OSError) -> StorageError:
        if is_no_space(error):
            return refused_write(f"{self._files.directory} cannot be flushed now: {error}", error)
        return self._availability.fail("fsync failed", error)

    def sync_indexes(self, segment: Segment) -> None:
        """fsync one segment's indexes. `StorageError`."""
        try:
            for file in segment.unsynced_index_files():
                file.fsync()
        except OSError as error:
            raise self._availability.fail("fsync failed", error) from error
        segment.indexes_synced()

    def rolled_files(self) -> list[File]:
        """The files of rolled segments that need an fsync. `OSError`."""
        files = []
        for segment in self._unsynced:
            segment.save_indexes()
            files += [segment.file, *segment.unsynced_index_files()]
        return files

    def all_files(self) -> list[File]:
        """The files that need an fsync before everything is durable. `OSError`."""
        active = self._files.segments.active
        aborted = active.transaction_index.unsynced()
        return [*self.rolled_files(), active.file, *([aborted] if aborted is not None else [])]

    def _synced_up_to(self, target: int) -> None:
        for segment in self._unsynced:
            if segment.next_offset <= target:
                segment.indexes_synced()
                segment.close_idle_files()
        self._unsynced = [segment for segment in self._unsynced if segment.next_offset > target]
        self.recovery_point = max(self.recovery_point, target)

    def sync_metadata_files(self) -> None:
        """fsync what must be durable before the recovery point may move: epochs, snapshots, new names. `OSError`."""
        self.metadata_files.save()
        for path in self._directories_to_sync(self._files.snapshots.sync()):
            self._files.disk.fsync_dir(path)
        self._names_synced = self._names_changed
        self._is_name_new = False

    def _directories_to_sync(self, has_new_snapshots: bool) -> list[str]:
        directory = self._files.directory
        paths = [directory] if has_new_snapshots or self._names_synced < self._names_changed else []
        return [*paths, directory.rpartition("/")[0] or "."] if self._is_name_new else paths


def _when_synced(waiting: Sequence[asyncio.Future[None]], done: Callable[[BaseException | None], None]) -> None:
    """Call `done` once: with the first error, or with None when all went well, at once if there are no futures.

    Errors of futures that end after the first error are retrieved too, as asyncio would report them otherwise.
    """
    left = len(waiting)
    is_done = False

    def synced(future: asyncio.Future[None]) -> None:
        nonlocal left, is_done
        left -= 1
        error = future.exception()
        if is_done:
            return
        if error is not None or not left:
            is_done = True
            done(error)

    for future in waiting:
        future.add_done_callback(synced)
    if not waiting:
        done(None)


def _ignore_error(done: asyncio.Future[None]) -> None:
    """Ignore the error: a file that could not be removed does no harm."""
    if not done.cancelled():
        done.exception()


def ignore_failure(done: asyncio.Future[int]) -> None:
    """Ignore the error: the log itself has recorded the failure and told its owner."""
    if not done.cancelled():
        done.exception()
