"""One log directory of this node: its lock, its five offset checkpoints, and the logs in it.

A directory is used by one process at a time (`.lock`), and only if its `meta.properties` names this node and cluster.
When its disk refuses, the directory fails for good (KIP-858): its logs refuse everything from then on.
The file `.kafka_cleanshutdown` says that everything was durable when the node stopped, and in which broker epoch
(KIP-966).
"""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import os
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field
from uuid import UUID

from ...runtime.incremental_work import Work, run_at_once
from ...runtime.ports import DirLock, Disk, Runtime
from ...wire.types import TopicPartition
from ..config import MAX_INT64, LogConfig
from ..errors import (
    CorruptFileError,
    DirFailedError,
    DirLockedError,
    StorageError,
    UnformattedDirError,
    is_no_space,
    refused_write,
)
from ..hooks import LogHooks
from ..partition_log import PartitionLog
from ..state.checkpoints import (
    CLEAN_SHUTDOWN_FILE,
    CLEANER_OFFSET_FILE,
    DAMAGED_OFFSET_FILE,
    HIGH_WATERMARK_FILE,
    LOG_START_OFFSET_FILE,
    RECOVERY_POINT_FILE,
    read_offsets,
    render_offsets,
)
from .delayed_deletion import DelayedDeletion
from .meta_properties import check_owner, read_meta_properties, refuse_data_of_unknown_owner, why_unusable

_logger = logging.getLogger(__name__)


class OffsetCheckpoint:
    """One checkpoint file: offsets by partition, as they are on disk, so that only changes are written.

    An unreadable file counts as empty. That is always safe: more is checked or fetched.
    """

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._path = path
        self._being_written: dict[TopicPartition, int] | None = None
        self.was_unreadable = False
        """Whether the former contents of the file are unknown."""
        try:
            self._on_disk = read_offsets(disk, path)
        except CorruptFileError as error:
            _logger.warning("%s It counts as empty.", error)
            self._on_disk = {}
            self.was_unreadable = True

    @property
    def offsets(self) -> Mapping[TopicPartition, int]:
        """The contents of the file that are certainly durable."""
        return self._on_disk

    def write(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Durably replace the contents, even while another write is under way, which counts after an `OSError`."""
        if offsets != self._on_disk or self._being_written is not None or not self._disk.exists(self._path):
            self._disk.write_atomic(self._path, render_offsets(offsets))
            self._being_written = None
            self._on_disk = dict(offsets)

    def write_soon(self, offsets: Mapping[TopicPartition, int], on_failed: Callable[[OSError], None]) -> None:
        """Begin to replace the contents without blocking the loop; does nothing while another write is under way.

        An fsync beside a busy disk takes a tenth of a second, and no request should wait that long. A full disk is no
        failure: the old contents stay, which are right but older.
        """
        if self._being_written is not None or (offsets == self._on_disk and self._disk.exists(self._path)):
            return
        written = self._being_written = dict(offsets)

        def done(future: asyncio.Future[None]) -> None:
            error = None if future.cancelled() else future.exception()
            if self._being_written is not written:
                return
            self._being_written = None
            if isinstance(error, OSError) and is_no_space(error):
                _logger.warning("%s stays as it is, and is written when there is space: %s", self._path, error)
            elif isinstance(error, OSError):
                on_failed(error)
            elif error is None and not future.cancelled():
                self._on_disk = written

        self._disk.write_atomic_soon(self._path, render_offsets(offsets)).add_done_callback(done)

    def lower(self, tp: TopicPartition, offset: int) -> None:
        """Durably lower the partition's offset to `offset`, if it is greater. `OSError`."""
        newest = self._newest()
        if max(self._on_disk.get(tp, 0), newest.get(tp, 0)) > offset:
            self.write({**newest, tp: min(offset, newest.get(tp, 0))})

    def forget_all_but(self, kept: Container[TopicPartition], tp: TopicPartition) -> None:
        """Durably drop the entry of `tp`, which is of a former topic of that name. `OSError`.

        If there is one, all other entries that are not in `kept` are dropped by the same write.
        """
        newest = self._newest()
        if tp in self._on_disk or tp in newest:
            self.write({other: offset for other, offset in newest.items() if other in kept})

    def _newest(self) -> Mapping[TopicPartition, int]:
        return self._on_disk if self._being_written is None else self._being_written


class DirectoryCheckpoints:
    """The offset checkpoints of a log directory."""

    def __init__(self, disk: Disk, path: str) -> None:
        self.recovery_points = OffsetCheckpoint(disk, f"{path}/{RECOVERY_POINT_FILE}")
        self.high_watermarks = OffsetCheckpoint(disk, f"{path}/{HIGH_WATERMARK_FILE}")
        self.log_start_offsets = OffsetCheckpoint(disk, f"{path}/{LOG_START_OFFSET_FILE}")
        self.clean_offsets = OffsetCheckpoint(disk, f"{path}/{CLEANER_OFFSET_FILE}")
        self.damaged_offsets = OffsetCheckpoint(disk, f"{path}/{DAMAGED_OFFSET_FILE}")

    def forget_all_but(self, kept: Container[TopicPartition], tp: TopicPartition) -> None:
        """As `OffsetCheckpoint.forget_all_but`, in all files. `OSError`."""
        every = (self.recovery_points, self.high_watermarks, self.log_start_offsets, self.clean_offsets)
        for checkpoint in (*every, self.damaged_offsets):
            checkpoint.forget_all_but(kept, tp)


@dataclass(frozen=True, slots=True)
class LogDirDescription:
    """A log directory as DescribeLogDirs shows it; `future_logs` will replace the logs of the same partitions."""

    path: str
    is_failed: bool
    total_bytes: int = -1
    usable_bytes: int = -1
    logs: Mapping[TopicPartition, PartitionLog] = field(default_factory=dict)
    future_logs: Mapping[TopicPartition, PartitionLog] = field(default_factory=dict)


class LogDirectory:
    """A log directory that this process has locked, with its checkpoints and logs, and why it failed if it has."""

    def __init__(
        self,
        disk: Disk,
        path: str,
        directory_id: UUID,
        lock: DirLock,
        takes_partitions: bool,
        on_failed: Callable[[str, OSError], None],
        high_watermarks: dict[TopicPartition, int],
    ) -> None:
        self.path = path
        self.directory_id = directory_id
        self.takes_partitions = takes_partitions
        """False for a directory that holds only the metadata log."""
        self.checkpoints = DirectoryCheckpoints(disk, path)
        self.logs: dict[TopicPartition, PartitionLog] = {}
        self.future_logs: dict[TopicPartition, PartitionLog] = {}
        """Copies of logs that are in another directory, and that will be moved here."""
        self.duplicate_logs: dict[TopicPartition, PartitionLog] = {}
        """Logs that were found at the start beside those of other topics of the same name in other directories.

        The metadata says soon which of them is wanted.
        """
        self.clean_offsets: dict[TopicPartition, int] = {}
        """Up to which offset compacted logs are clean; an entry also says that offsets may be missing from the log."""
        self.damaged_offsets = dict(self.checkpoints.damaged_offsets.offsets)
        """The first damaged offset of logs that the scrubber found damaged."""
        self.failure: OSError | None = None
        self.is_full = False
        """Whether it has no space for more records; new logs are made elsewhere then, if that is possible."""
        self.is_loaded = False
        self.was_cleanly_shut_down = False
        """Whether the previous shutdown was clean: then no file in it can have come back, or be gone."""
        self.lost_logs: list[TopicPartition] = []
        """Partitions whose records were here when the node stopped cleanly, and whose logs were not there any more."""
        self._disk = disk
        self._lock = lock
        self._on_failed = on_failed
        self._high_watermarks = high_watermarks

    @classmethod
    def acquire(
        cls,
        disk: Disk,
        path: str,
        cluster_id: str,
        node_id: int,
        *,
        takes_partitions: bool,
        on_failed: Callable[[str, OSError], None],
        format_advice: str,
        high_watermarks: dict[TopicPartition, int],
    ) -> LogDirectory:
        """Lock the directory and check that it is this node's; raises a `LogDirError` that says what to do.

        `high_watermarks` has the last known ones of all directories.

        `DirFailedError` says that the disk refuses: a node may go on without this directory.
        """
        try:
            if not disk.is_dir(path):
                if disk.exists(path):
                    raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
                raise UnformattedDirError(
                    f"Log directory {path} does not exist: {format_advice}, or mount its disk, or take it out of "
                    "log.dirs, and what it held is fetched from other replicas."
                )
            lock = disk.lock_dir(path)
        except BlockingIOError as error:
            raise DirLockedError(
                f"Log directory {path} is in use by another process: "
                "stop that one, or set log.dirs to another directory."
            ) from error
        except OSError as error:
            raise DirFailedError(why_unusable(disk, path, error)) from error
        try:
            found = read_meta_properties(disk, path)
            if found is None:
                refuse_data_of_unknown_owner(disk, path)
                raise UnformattedDirError(f"Log directory {path} is not formatted: {format_advice}.")
            check_owner(path, found, cluster_id, node_id)
            return cls(disk, path, found.directory_id, lock, takes_partitions, on_failed, high_watermarks)
        except OSError as error:
            lock.release()
            raise DirFailedError(why_unusable(disk, path, error)) from error
        except BaseException:
            lock.release()
            raise

    @property
    def is_usable(self) -> bool:
        """Whether its logs are open and its disk has not failed."""
        return self.failure is None and self.is_loaded

    def fail(self, error: OSError) -> None:
        """The disk has refused: the directory and its logs are used no more. Only the first call has an effect."""
        if self.failure is not None:
            return
        self.failure = error
        _logger.error("log directory %s has failed and is used no more: %s", self.path, error)
        for log in (*self.logs.values(), *self.future_logs.values(), *self.duplicate_logs.values()):
            log.fail("its log directory failed", error)
        self._on_failed(self.path, error)

    def describe(self) -> LogDirDescription:
        """The directory as DescribeLogDirs shows it. A refusing disk fails the directory."""
        if self.failure is None:
            try:
                sizes = self._disk.total_bytes(self.path), self._disk.free_bytes(self.path)
            except OSError as error:
                self.fail(error)
            else:
                return LogDirDescription(self.path, False, *sizes, dict(self.logs), dict(self.future_logs))
        return LogDirDescription(self.path, is_failed=True)

    # The lock and the clean shutdown file

    def take_clean_shutdown_mark(self) -> int | None:
        """Durably remove the clean shutdown file.

        Returns the broker epoch in it (-1 when it has none), None when the last shutdown was not clean. `OSError`.
        """
        path = f"{self.path}/{CLEAN_SHUTDOWN_FILE}"
        if not self._disk.exists(path):
            return None
        content = self._disk.read_bytes(path)
        self._disk.remove(path)
        self._disk.fsync_dir(self.path)
        try:
            epoch = json.loads(content)["brokerEpoch"]
        except (ValueError, KeyError, TypeError):
            return -1
        return epoch if type(epoch) is int and 0 <= epoch <= MAX_INT64 else -1

    def mark_clean_shutdown(self, broker_epoch: int) -> None:
        """Durably write the clean shutdown file. `OSError`."""
        content = json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":"))
        self._disk.write_atomic(f"{self.path}/{CLEAN_SHUTDOWN_FILE}", content.encode())

    def release(self) -> None:
        """Release the lock."""
        self._lock.release()

    # Opening logs

    def loaded(self) -> None:
        """All logs that are here are open. Learn whose records were here at the last clean stop, and are gone."""
        self.is_loaded = True
        if not self.was_cleanly_shut_down:
            return
        every = (self.checkpoints.recovery_points.offsets, self.checkpoints.high_watermarks.offsets)
        had_records = sorted({tp for offsets in every for tp, offset in offsets.items() if offset})
        present = (self.logs, self.future_logs, self.duplicate_logs)
        self.lost_logs = [tp for tp in had_records if not any(tp in logs for logs in present)]

    def opening(
        self,
        runtime: Runtime,
        tp: TopicPartition,
        config: LogConfig,
        deletion: DelayedDeletion,
        *,
        clean_shutdown: bool,
        path: str | None = None,
    ) -> Work[PartitionLog]:
        """Open the partition's log by what the checkpoints say of it; `path` is that of a future log. `StorageError`.

        Files that the log deletes go to `deletion`.
        """

        def recovery_point_lowered(offset: int) -> None:
            if tp in self.clean_offsets:
                self.clean_offsets[tp] = min(self.clean_offsets[tp], offset)
            self.checkpoints.clean_offsets.lower(tp, offset)
            self.checkpoints.recovery_points.lower(tp, offset)
            self.checkpoints.log_start_offsets.lower(tp, offset)

        def truncating(offset: int) -> None:
            # After a crash, records that take the place of removed ones must not count as committed. The copy of a log
            # that is in another directory has no mark of its own in memory.
            if path is None and self._high_watermarks.get(tp, 0) > offset:
                self._high_watermarks[tp] = offset
            self.checkpoints.high_watermarks.lower(tp, offset)

        recovery_point = self.checkpoints.recovery_points.offsets.get(tp, 0)
        clean_offsets = self.checkpoints.clean_offsets
        if tp in clean_offsets.offsets:
            self.clean_offsets.setdefault(tp, clean_offsets.offsets[tp])
        log = yield from PartitionLog.opening(
            runtime,
            path or f"{self.path}/{tp}",
            config,
            recovery_point=recovery_point,
            discard_without_topic_id=not recovery_point,
            log_start_offset=self.checkpoints.log_start_offsets.offsets.get(tp, 0),
            clean_shutdown=clean_shutdown,
            has_gaps=clean_offsets.was_unreadable or tp in clean_offsets.offsets,
            hooks=LogHooks(
                on_failed=self.fail,
                on_recovery_point_lowered=recovery_point_lowered,
                on_truncating=truncating,
                on_files_deleted=lambda delay_ms, paths: deletion.add(paths, delay_ms),
                on_gaps=lambda at_once: self._note_gaps(tp, at_once=at_once),
            ),
        )
        committed = max(recovery_point, self.checkpoints.high_watermarks.offsets.get(tp, 0))
        if path is None and log.log_end_offset < committed:
            _logger.error(
                "%s ends at offset %d, below its last recovery point or high watermark, %d: up to %d records are lost "
                "on this disk, and for good if no other replica has them",
                *(tp, log.log_end_offset, committed, committed - log.log_end_offset),
            )
            truncating(log.log_end_offset)
        # The log may have lost what it had there.
        self.checkpoints.log_start_offsets.lower(tp, log.log_start_offset)
        return log

    def make_log(
        self,
        runtime: Runtime,
        tp: TopicPartition,
        topic_id: UUID | None,
        config: LogConfig,
        deletion: DelayedDeletion,
        *,
        path: str | None = None,
    ) -> PartitionLog:
        """Make a log for the partition, of which there is none here; `path` is that of a future log.

        `NoSpaceError`: then nothing is left of it, as a start could find the partition in two directories.
        `StorageError` when the disk refuses, which fails the directory.
        """
        home = path or f"{self.path}/{tp}"
        is_new = not self._disk.is_dir(home)
        log: PartitionLog | None = None
        try:
            self.checkpoints.forget_all_but({**self._own_logs, **self.future_logs}, tp)
            log = run_at_once(self.opening(runtime, tp, config, deletion, clean_shutdown=True, path=path))
            if log.topic_id is None and topic_id is not None:
                log.set_topic_id(topic_id, durably=path is not None)  # by its id alone a copy may be continued
        except (OSError, StorageError) as error:
            if log is not None:
                log.close(clean=False)
            cause = error.__cause__ if isinstance(error, StorageError) else error
            if isinstance(cause, OSError) and not is_no_space(cause):
                self.fail(cause)
            elif is_new:
                self._remove_unfinished(home)
            if isinstance(error, StorageError):
                raise
            raise refused_write(f"{self.path} cannot be written: {error}", error) from error
        return log

    def _remove_unfinished(self, path: str) -> None:
        try:
            if self._disk.is_dir(path):
                self._disk.remove_tree(path)
                self._disk.fsync_dir(self.path)
        except OSError as error:
            _logger.warning("%s could not be made for want of space, and cannot be removed: %s", path, error)

    # Checkpoints

    def write_high_watermarks(self) -> None:
        """Write the high watermarks of the partitions in this directory. `OSError`."""
        self.checkpoints.high_watermarks.write(self._known_high_watermarks())

    def write_high_watermarks_soon(self) -> None:
        """The same without blocking the loop. A refusing disk fails the directory."""
        self.checkpoints.high_watermarks.write_soon(self._known_high_watermarks(), self.fail)

    def write_recovery_points(self) -> None:
        """Write the recovery points, log start offsets and clean offsets that changed. `OSError`."""
        self.checkpoints.recovery_points.write(self._recovery_points())
        self.checkpoints.log_start_offsets.write(self._log_start_offsets())
        if self.clean_offsets:
            self.checkpoints.clean_offsets.write(self.clean_offsets)
        if self.damaged_offsets != self.checkpoints.damaged_offsets.offsets:
            self.checkpoints.damaged_offsets.write(self.damaged_offsets)

    def write_recovery_points_soon(self) -> None:
        """The same without blocking the loop. A refusing disk fails the directory."""
        self.checkpoints.recovery_points.write_soon(self._recovery_points(), self.fail)
        self.checkpoints.log_start_offsets.write_soon(self._log_start_offsets(), self.fail)
        if self.clean_offsets:
            self.checkpoints.clean_offsets.write_soon(self.clean_offsets, self.fail)
        if self.damaged_offsets != self.checkpoints.damaged_offsets.offsets:
            self.checkpoints.damaged_offsets.write_soon(self.damaged_offsets, self.fail)

    def gaps_noted(self, tp: TopicPartition) -> bool:
        """Whether it is durable that offsets may be missing from the log; if not, that write is begun."""
        if tp in self.checkpoints.clean_offsets.offsets:
            return True
        self.note_clean(tp, self.clean_offsets.get(tp, 0))
        return False

    def note_clean(self, tp: TopicPartition, offset: int) -> None:
        """The log is clean up to `offset`; the checkpoint is written without blocking the loop."""
        self.clean_offsets[tp] = offset
        self.checkpoints.clean_offsets.write_soon(self.clean_offsets, self.fail)

    def note_damage(self, tp: TopicPartition, offset: int | None) -> None:
        """The log is damaged at the offset, or sound (None); the checkpoint is written without blocking the loop."""
        known = self.damaged_offsets.pop(tp, None)
        if offset is not None:
            self.damaged_offsets[tp] = offset
        if known != offset:
            self.checkpoints.damaged_offsets.write_soon(self.damaged_offsets, self.fail)

    def forget_offsets(self, tp: TopicPartition) -> None:
        """The log goes: the next checkpoints do not name it."""
        self.clean_offsets.pop(tp, None)
        self.damaged_offsets.pop(tp, None)

    def _note_gaps(self, tp: TopicPartition, *, at_once: bool) -> None:
        """Give the log a clean offset, if only 0, before the first of its offsets is missing: recovery goes by that.

        Durable on return if `at_once`, `StorageError` then; else the next checkpoint has it.
        """
        self.clean_offsets.setdefault(tp, 0)
        if at_once and tp not in self.checkpoints.clean_offsets.offsets:
            try:
                self.checkpoints.clean_offsets.write(self.clean_offsets)
            except OSError as error:
                if not is_no_space(error):
                    self.fail(error)
                raise refused_write(f"{self.path} cannot be written: {error}", error) from error

    def _known_high_watermarks(self) -> dict[TopicPartition, int]:
        known, former = self._high_watermarks, self.checkpoints.high_watermarks.offsets
        return {
            **{tp: known[tp] for tp in self.logs if tp in known},
            **{tp: former[tp] for tp in self.duplicate_logs if tp in former},
        }

    def _recovery_points(self) -> dict[TopicPartition, int]:
        return {tp: log.recovery_point for tp, log in self._own_logs.items()}

    def _log_start_offsets(self) -> dict[TopicPartition, int]:
        """Also of logs that start where their first segment does: a loss of power may bring deleted segments back."""
        return {tp: log.log_start_offset for tp, log in self._own_logs.items() if log.log_start_offset}

    @property
    def _own_logs(self) -> dict[TopicPartition, PartitionLog]:
        return {**self.logs, **self.duplicate_logs}
