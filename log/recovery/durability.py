"""What of a log would survive a loss of power, and how the rest gets there.

Before the recovery point may pass an offset, everything that recovery takes on trust below it is made durable: the
segments with their indexes, the leader epochs, the producer snapshots, and the names of new files. The active segment's
indexes are not, but up to a snapshot of producers inside it: there recovery begins.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ...runtime.ports import Disk, File
from ..errors import NoSpaceError, StorageError, is_no_space, refused_write
from ..segment.segment import Segment
from ..segment.segment_list import SegmentList
from ..state.leader_epoch_cache import LeaderEpochCache
from ..state.producer_snapshots import ProducerSnapshots
from ..state.side_files import SideFiles


@dataclass(frozen=True, slots=True)
class LogFiles:
    """The files of one log, as they are known in memory."""

    disk: Disk
    directory: str
    segments: SegmentList
    epoch_cache: LeaderEpochCache
    snapshots: ProducerSnapshots


class Durability:
    """Keeps the recovery point: everything below it is fsynced.

    `fail` is told of a disk that refuses, and gives the error to raise. `history` changes whenever offsets or files
    that were there are no more; what was under way then counts for nothing.
    """

    def __init__(
        self, files: LogFiles, recovery_point: int, is_settled: bool, fail: Callable[[str, BaseException], StorageError]
    ) -> None:
        self.recovery_point = recovery_point
        self.history = 0
        self.last_flush_s: float | None = None
        """When log maintenance last flushed the whole log, in seconds of the loop; None before its first round."""
        self._files = files
        self._fail = fail
        self._unsynced: list[Segment] = []
        self._names_changed = 0 if is_settled else 1
        """How often names were made or changed in the directory; `_names_synced`: how many of these are durable."""
        self._names_synced = 0
        self._is_name_new = not is_settled
        self.side_files = SideFiles(files.disk, files.directory, files.epoch_cache)
        self._trusted: Segment | None = None
        """The segment that has a snapshot of its producers in it, and `_trusted_bytes` stand before that."""
        self._trusted_bytes = 0
        if is_settled and files.snapshots.latest_offset == recovery_point:
            self._trust(files.segments.active, files.segments.active.size_bytes)
        if not is_settled:
            self._unsynced = files.segments.items[max(files.segments.index_of(recovery_point), 0) : -1]
            files.epoch_cache.is_dirty = True

    @property
    def unchecked_bytes(self) -> int:
        """How much of the active segment a recovery would check, if all that can be durable were."""
        active = self._files.segments.active
        return active.size_bytes - (self._trusted_bytes if self._trusted is active else 0)

    @property
    def has_unsynced_segments(self) -> bool:
        """Whether rolled segments wait for their fsync."""
        return bool(self._unsynced)

    def park(self) -> None:
        """Give the descriptors of durable segments free; who reads or writes one opens it again."""
        *rolled, active = self._files.segments.items
        for segment in rolled:
            if segment not in self._unsynced:
                segment.park()
        if self.recovery_point == active.next_offset:
            active.park()

    # What changes

    def segment_rolled(self, segment: Segment) -> None:
        """`segment` is appended to no more, and a new file is there.

        Where all its records are durable but not its indexes' ends, recovery would start behind it: what a loss of
        power leaves of them shows when they are used, and they are made again.
        """
        if segment.next_offset > self.recovery_point or segment.unsynced_index_files():
            self._unsynced.append(segment)
        self._names_changed += 1

    def segments_replaced(self, removed: Sequence[Segment]) -> None:
        """Their records are in another segment, which is durable, with its name."""
        self._unsynced = [segment for segment in self._unsynced if segment not in removed]

    def segments_gone(self, removed: Sequence[Segment]) -> None:
        """Their files are no more; an fsync that is under way will count for nothing, nor will its failure."""
        kept = [segment for segment in self._unsynced if segment not in removed]
        if len(kept) < len(self._unsynced):
            self._unsynced = kept
            self.history += 1

    def truncated(self, end_offset: int) -> None:
        """The log ends at `end_offset` now; its rolled segments are those that are left.

        Epochs that are gone may stay in their file until the recovery point moves: recovery makes those above it anew.
        """
        rolled = self._files.segments.items[:-1]
        self._unsynced = [segment for segment in self._unsynced if segment in rolled]
        self.recovery_point = min(self.recovery_point, end_offset)
        if self._files.segments.active.size_bytes < self._trusted_bytes:
            self._trusted = None

    # fsync

    def sync(self, target: int) -> None:
        """fsync everything; the log ends at `target`. `OSError`."""
        if target == self.recovery_point and not self._unsynced:
            return
        self.sync_side_files()
        for file in self.all_files():
            file.fsync()
        self._synced_up_to(target)

    def sync_soon(self, target: int, files_of: Callable[[], list[File]], result: asyncio.Future[int]) -> None:
        """fsync without blocking the loop; `result` gets the recovery point it led to, or a `StorageError`.

        `NoSpaceError` where a small file could not be replaced: the log goes on as it is.
        """
        history, names = self.history, self._names_changed
        disk, snapshots = self._files.disk, self._files.snapshots.unsynced()
        try:
            files = [*snapshots.values(), *(files_of() if target > self.recovery_point or self._unsynced else ())]
            waiting = [*self.side_files.save_soon(), *(disk.fsync_soon(file) for file in files)]
            waiting += [disk.fsync_dir_soon(path) for path in self._directories_to_sync(bool(snapshots))]
        except OSError as error:
            result.set_exception(self._refused(error))
            return

        def synced(error: BaseException | None) -> None:
            failure: StorageError | None = None
            if history == self.history:
                if error is None:
                    self._files.snapshots.synced(snapshots)
                    self._names_synced = max(self._names_synced, names)
                    self._is_name_new = False
                    self._synced_up_to(target)
                elif isinstance(error, NoSpaceError):
                    failure = error
                else:
                    failure = self._fail("fsync failed", error)
            if result.done():
                return
            if failure is not None:
                result.set_exception(failure)
            else:
                result.set_result(self.recovery_point)

        _when_synced(waiting, synced)

    def checkpoint_soon(self, end: int, producers: bytes, result: asyncio.Future[int]) -> None:
        """Like `sync_soon`, so that recovery begins at `end`, the log's end now, of which `producers` is the snapshot.

        A snapshot inside a segment tells recovery that the indexes are durable up to there. As the recovery point may
        be that far already, it is written when they are; and their device is left to the records first. Where the
        segment is rolled or cut meanwhile, nothing comes of it.
        """
        history, segment, size_bytes = self.history, self._files.segments.active, self._files.segments.active.size_bytes

        def then(step: Callable[[], None]) -> Callable[[BaseException | None], None]:
            def on_synced(error: BaseException | None) -> None:
                if history != self.history or segment is not self._files.segments.active:
                    result.set_result(self.recovery_point)
                elif error is not None:
                    result.set_exception(self._fail("fsync failed", error))
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
                self._files.disk.remove_soon(path).add_done_callback(_look_at)
            snapshots.write(end, producers)
            self._trust(segment, size_bytes)
            self.sync_soon(end, self.all_files, result)

        carry_out(sync_records)

    def _trust(self, segment: Segment, size_bytes: int) -> None:
        self._trusted, self._trusted_bytes = segment, size_bytes

    def _refused(self, error: OSError) -> StorageError:
        if is_no_space(error):
            return refused_write(f"{self._files.directory} cannot be flushed now: {error}", error)
        return self._fail("fsync failed", error)

    def sync_indexes(self, segment: Segment) -> None:
        """fsync one segment's indexes. `StorageError`."""
        try:
            for file in segment.unsynced_index_files():
                file.fsync()
        except OSError as error:
            raise self._fail("fsync failed", error) from error
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
                segment.park()
        self._unsynced = [segment for segment in self._unsynced if segment.next_offset > target]
        self.recovery_point = max(self.recovery_point, target)

    def sync_side_files(self) -> None:
        """What must be durable before the recovery point may pass it: epochs, snapshots, new names. `OSError`."""
        self.side_files.save()
        for path in self._directories_to_sync(self._files.snapshots.sync()):
            self._files.disk.fsync_dir(path)
        self._names_synced = self._names_changed
        self._is_name_new = False

    def _directories_to_sync(self, has_new_snapshots: bool) -> list[str]:
        directory = self._files.directory
        paths = [directory] if has_new_snapshots or self._names_synced < self._names_changed else []
        return [*paths, directory.rpartition("/")[0] or "."] if self._is_name_new else paths


def _when_synced(waiting: Sequence[asyncio.Future[None]], done: Callable[[BaseException | None], None]) -> None:
    """Call `done` once: with the first error, or with None when all went well. At once when there is none to wait for.

    Futures that end after the first error are looked at all the same, so that nobody complains of them.
    """
    left = len(waiting)
    is_told = False

    def synced(future: asyncio.Future[None]) -> None:
        nonlocal left, is_told
        left -= 1
        error = future.exception()
        if is_told:
            return
        if error is not None or not left:
            is_told = True
            done(error)

    for future in waiting:
        future.add_done_callback(synced)
    if not waiting:
        done(None)


def _look_at(done: asyncio.Future[None]) -> None:
    """A file that could not be removed is of no use, and does no harm."""
    if not done.cancelled():
        done.exception()


def swallow(done: asyncio.Future[int]) -> None:
    """The log itself has recorded the failure and told its hooks."""
    if not done.cancelled():
        done.exception()
