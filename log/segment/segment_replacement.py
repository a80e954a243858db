"""Changes of many file names in a partition's directory: compacted segments are put in place, expired ones put away.

A rename waits while the file system commits what others have fsynced, and the step after a rename may have to wait
until that is durable. So a change is made in stages, each by a thread of the disk; between two stages the loop brings
the log's memory up to date. Nobody reads or writes by name what a stage renames. When a log cannot wait, as it is
truncated or closed, the whole change is finished at once, blocking the loop; that is right at any moment.

A compacted segment, whose files are durable, gets the ending `.swap`. When that name is durable, the segment is read in
the place of those that it covers, and an interrupted replacement is completed when the log is opened again
(`recovery.complete_swaps`). Then the covered segments get the ending `.deleted`, and the new one its final name.
Expired segments go oldest first, and their batches durably before their indexes: what a crash leaves of a segment must
not lack its aborted transactions. If all segments go, the name of the new active one becomes durable before, as the
log's end is in that name alone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from ...runtime.invariants import invariant, sometimes
from ...runtime.ports import Disk, OrderedRenames
from ..availability import LogAvailability
from ..durability import Durability, LogFiles
from ..errors import StorageError, is_no_space, refused_write
from .segment import DELETED_SUFFIX, LOG_SUFFIX, SEGMENT_SUFFIXES, SWAP_SUFFIX, Segment

_logger = logging.getLogger(__name__)
_RETRY_AFTER_S = 5.0


class Stage(NamedTuple):
    """One stage of a change: `renames` is called when it begins, `after` when these renames are durable."""

    renames: Callable[[], list[tuple[str, str]]]
    after: Callable[[], None]


class StagedRenames:
    """One change of file names; `what` says what was not possible when the disk refuses it, and the log fails.

    A disk without space for a longer name, or a process that can open no more files, is no failure: who waits is told
    so, and the change goes on later.
    """

    def __init__(
        self, disk: Disk, directory: str, stages: Sequence[Stage], availability: LogAvailability, what: str
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._stages = list(stages)
        self._availability = availability
        self._what = what
        self._renames: list[tuple[str, str]] | None = None
        """The renames of the present stage, once it has begun."""
        self._under_way: OrderedRenames | None = None
        self._waiters: list[asyncio.Future[None]] = []
        self._failure: StorageError | None = None
        """Why the change has failed for good."""
        self.is_over = False

    def soon(self) -> asyncio.Future[None]:
        """Make the change without blocking the loop; the future ends when it is done. It fails with `StorageError`.

        After a `NoSpaceError` the change goes on by itself.
        """
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        if self.is_over:
            self._end(self._failure)
        elif self._under_way is None:
            self._begin()
        return waiter

    def finish(self) -> None:
        """Make the change, blocking the loop. `StorageError`; after a `NoSpaceError` it is still to be made."""
        try:
            if self._under_way is not None:
                sometimes(True, "a log could not wait, and a change of its file names was finished at once")
                self._under_way.finish()
                self._stage_done()
            while not self.is_over:
                for source, target in self._renames_left():
                    self._disk.rename(source, target)
                self._disk.fsync_dir(self._directory)
                self._stage_done()
        except OSError as error:
            raise self._refused(error) from error

    def _begin(self) -> None:
        try:
            self._under_way = self._disk.rename_in_order_soon(self._directory, self._renames_left())
        except OSError as error:
            self._refused(error)
            return
        begun = self._under_way
        begun.done.add_done_callback(lambda done: self._on_done(begun, done))

    def _on_done(self, begun: OrderedRenames, done: asyncio.Future[None]) -> None:
        error = None if done.cancelled() else done.exception()
        if self._under_way is not begun:
            return  # `finish` was called meanwhile
        if error is not None:
            self._refused(error)
            return
        self._stage_done()
        if not self.is_over:
            self._begin()

    def _renames_left(self) -> list[tuple[str, str]]:
        """The renames of the present stage, without those that were made when it was tried before."""
        if self._renames is None:
            self._renames = self._stages[0].renames()
            return self._renames
        return [(source, target) for source, target in self._renames if self._disk.exists(source)]

    def _refused(self, error: BaseException) -> StorageError:
        """The disk has refused; returns the error to raise."""
        if not (isinstance(error, OSError) and is_no_space(error)):
            failure = self._availability.fail(self._what, error)
            self._end(failure)
            return failure
        sometimes(True, "a change of file names waited for space on the disk")
        failure = refused_write(f"{self._directory}: {self._what} now: {error}", error)
        _logger.warning("%s; it is tried again", failure.message)
        self._under_way = None
        if _is_in_loop():
            asyncio.get_running_loop().call_later(_RETRY_AFTER_S, self._try_again)
        self._tell(failure)
        return failure

    def _try_again(self) -> None:
        if self.is_over or self._under_way is not None:
            return
        try:
            self._availability.check()  # the directory of a closed log may belong to another one
        except StorageError as failure:
            self._end(failure)
        else:
            self._begin()

    def _stage_done(self) -> None:
        self._under_way = self._renames = None
        self._stages.pop(0).after()
        if not self._stages:
            self._end(None)

    def _end(self, failure: StorageError | None) -> None:
        self._under_way = None
        self._failure = failure
        self.is_over = True
        self._tell(failure)

    def _tell(self, failure: StorageError | None) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if waiter.done():
                continue
            if failure is None:
                waiter.set_result(None)
            else:
                waiter.set_exception(failure)


class SegmentReplacement:
    """Replaces and deletes segments of one log, one change at a time.

    `on_deleted` gets the new paths of the files that nobody needs any more; with None they are removed.
    """

    def __init__(
        self,
        files: LogFiles,
        durability: Durability,
        on_deleted: Callable[[list[str]], None] | None,
        availability: LogAvailability,
    ) -> None:
        self._files = files
        self._durability = durability
        self._on_deleted = on_deleted or self._remove
        self._availability = availability
        self._change: StagedRenames | None = None

    @property
    def is_under_way(self) -> bool:
        """Whether a change has begun and is not over."""
        return self._change is not None and not self._change.is_over

    def settle(self) -> None:
        """Finish the change that is under way, blocking the loop. `StorageError`."""
        if self._change is not None and not self._change.is_over:
            self._change.finish()

    def replace(self, group: Sequence[Segment], cleaned: Segment) -> StagedRenames:
        """Put `cleaned` in the place of `group`; returns the change, which the caller begins. `StorageError`."""
        self._files.segments.check_replaceable(group, cleaned)
        self._check_file(cleaned)
        deleted: list[str] = []

        def make_ready() -> list[tuple[str, str]]:
            cleaned.close_idle_files()
            return cleaned.renames_to(SWAP_SUFFIX)

        def put_in_place() -> None:
            cleaned.renamed_to(SWAP_SUFFIX)
            self._files.segments.put(group, cleaned)
            self._durability.segments_replaced(group)

        def name_it() -> list[tuple[str, str]]:
            cleaned.pin()
            return cleaned.renames_to("")

        def named() -> None:
            cleaned.renamed_to("")
            self._on_deleted(deleted)

        return self._begin(
            "compacted segments could not be put in place",
            Stage(make_ready, put_in_place),
            Stage(lambda: self._away(group, deleted), _nothing),
            Stage(name_it, named),
        )

    def _check_file(self, cleaned: Segment) -> None:
        """Refuse a replacement whose file is not as it was written: the group would be lost for it."""
        where = f"{self._files.directory}: the replacement of the segment at {cleaned.base_offset}"
        cleaned.close_idle_files()  # the file is opened again by its name, as the renames will find it
        try:
            size_bytes = cleaned.file.size()
        except OSError as error:
            raise refused_write(f"{where} cannot be opened: {error}", error) from error
        if size_bytes != cleaned.size_bytes:
            raise StorageError(f"{where} has {size_bytes} bytes, not the {cleaned.size_bytes} that were written")

    def put_away(self, count: int, *, is_end_new: bool) -> None:
        """Delete the first `count` segments; `is_end_new` says that the log's end is in the name of a new file.

        The files follow without blocking the loop; without a loop they are gone on return. `StorageError`.
        """
        files, deleted = self._files, list[str]()
        self._durability.segments_gone(files.segments.items[:count])
        gone = files.segments.take_first(count)
        away = (
            Stage(lambda: _batches_away(gone, deleted), _nothing),
            Stage(lambda: self._away(gone, deleted), lambda: self._on_deleted(deleted)),
        )
        stages = [Stage(list, _nothing), *away] if is_end_new else away
        change = self._begin("a segment could not be deleted", *stages)
        if _is_in_loop():
            change.soon().add_done_callback(lambda done: done.cancelled() or done.exception())
        else:
            change.finish()

    def _remove(self, paths: list[str]) -> None:
        for path in paths:
            self._files.disk.remove(path)

    def _begin(self, what: str, *stages: Stage) -> StagedRenames:
        invariant(not self.is_under_way, "one change of names is under way at a time")
        files = self._files
        self._change = StagedRenames(files.disk, files.directory, stages, self._availability, what)
        return self._change

    def _away(self, segments: Iterable[Segment], deleted: list[str]) -> list[tuple[str, str]]:
        """The renames of these segments' files, and of the snapshots that no segment needs; adds to `deleted`."""
        renames = _renames_away(segments, deleted, SEGMENT_SUFFIXES)
        stray = self._files.snapshots.take_stray(segment.base_offset for segment in self._files.segments)
        deleted.extend(path + DELETED_SUFFIX for path in stray)
        return [*renames, *((path, path + DELETED_SUFFIX) for path in stray)]


def _batches_away(segments: Iterable[Segment], deleted: list[str]) -> list[tuple[str, str]]:
    return _renames_away(segments, deleted, (LOG_SUFFIX,))


def _renames_away(segments: Iterable[Segment], deleted: list[str], kinds: Sequence[str]) -> list[tuple[str, str]]:
    renames: list[tuple[str, str]] = []
    for segment in segments:
        segment.close()
        renames += segment.renames_to(DELETED_SUFFIX, kinds)
    deleted.extend(target for _, target in renames)
    return renames


def _nothing() -> None:
    pass


def _is_in_loop() -> bool:
    """Whether there is a running loop, which must not be blocked; tools and tests do without one."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
