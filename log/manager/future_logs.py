"""Future logs: partitions on their way from one log directory of this node to another (AlterReplicaLogDirs, KIP-113).

The future log is a copy that grows beside the original, as `<topic>-<partition>.<id>-future`, until it holds all that
the original does. Then it replaces the original, in several steps on two disks. A mark in the target directory says
that the copy is complete (`swap_marks`). It is written before the original is touched, and removed when everything is
done; a node that finds it after a crash goes on from there. A future log without such a mark is just a copy, which may
be continued or thrown away. It goes with its original: it must not take the place of the log of a later topic of the
same name, so its topic id is compared wherever it is found.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from uuid import UUID

from ...runtime.incremental_work import run_at_once
from ...runtime.invariants import InvariantViolation, sometimes
from ...runtime.ports import Runtime
from ...wire.errors import ErrorCode, ProtocolError
from ...wire.types import TopicPartition
from ..directory_names import DELETED_SUFFIX, future_name, retired_name
from ..errors import StorageError, is_no_space, refused_write
from ..partition_log import PartitionLog
from ..state.checkpoints import PARTITION_METADATA_FILE, remove_durably
from .delayed_deletion import DelayedDeletion
from .log_directories import LogDirectories
from .log_directory import LogDirectory
from .log_manager_config import LogManagerConfig
from .swap_marks import SWAP_SUFFIX, SwapMark, marks_in, promote, remove_mark

_NAME_LENGTH_MAX = 255 - len(SWAP_SUFFIX)
_logger = logging.getLogger(__name__)


class FutureLogs:
    """Moves logs between directories. The future logs themselves are kept by the directories that they are in."""

    def __init__(
        self, runtime: Runtime, config: LogManagerConfig, directories: LogDirectories, deletion: DelayedDeletion
    ) -> None:
        self._runtime = runtime
        self._disk = runtime.disk
        self._config = config
        self._directories = directories
        self._deletion = deletion
        self._preferred: dict[TopicPartition, str] = {}
        """Directories asked for by AlterReplicaLogDirs for partitions that this node does not have yet."""

    @property
    def partitions(self) -> list[TopicPartition]:
        """The partitions that have a future log."""
        return [tp for log_dir in self._directories for tp in log_dir.future_logs]

    def get(self, tp: TopicPartition) -> PartitionLog | None:
        """The partition's future log."""
        target = self._dir_of(tp)
        return None if target is None else target.future_logs[tp]

    def target_id(self, tp: TopicPartition) -> UUID:
        """The id of the directory that the partition's future log is in."""
        return self._target(tp).directory_id

    def take_preferred(self, tp: TopicPartition) -> str | None:
        """The path of the directory that was asked for before the partition was here; it is asked for no more."""
        return self._preferred.pop(tp, None)

    def begin(self, tp: TopicPartition, path: str) -> bool:
        """Make an empty future log in the directory at `path`; returns whether there is something to copy.

        A future log in another directory, or of another topic, is thrown away. For a partition that is not here the
        directory is remembered.
        `ProtocolError`: LOG_DIR_NOT_FOUND, INVALID_TOPIC_EXCEPTION when the topic's name is too long; `StorageError`,
        `NoSpaceError` as in `LogDirectory.make_log`.
        """
        target = self._directory_at(path)
        current = self._directories.get(tp)
        if current is None:
            self._preferred[tp] = path
            return False
        if self._directories.dir_of(tp) is target:
            self.discard(tp)
            return False
        if self._dir_of(tp) is target and target.future_logs[tp].topic_id == current.topic_id:
            return True
        name = future_name(tp, self._runtime.rng)
        if len(name) > _NAME_LENGTH_MAX:
            raise ProtocolError(ErrorCode.INVALID_TOPIC_EXCEPTION, "the topic's name is too long to be moved")
        self.discard(tp)
        target.future_logs[tp] = target.make_log(
            self._runtime, tp, current.topic_id, current.config, self._deletion, path=f"{target.path}/{name}"
        )
        return True

    def discard(self, tp: TopicPartition) -> None:
        """Remove the partition's future log, if there is one. If the disk refuses, the files stay.

        A part of it must not be taken for the whole after a crash, and continued.
        """
        target = self._dir_of(tp)
        if target is None:
            return
        sometimes(True, "a copy in another log directory was thrown away before it took the log's place")
        log = target.future_logs.pop(tp)
        target.forget_offsets(tp)
        log.close(clean=False)
        try:
            self._remove(tp, target, log.directory)
        except OSError as error:
            _logger.warning("%s is of no use any more, and cannot be removed: %s", log.directory, error)

    def _remove(self, tp: TopicPartition, target: LogDirectory, directory: str) -> None:
        """Rename the copy as a deleted log first; without space for the new name, remove its topic id first."""
        path = f"{target.path}/{retired_name(tp, self._runtime.rng, DELETED_SUFFIX)}"
        try:
            self._disk.rename(directory, path)
        except OSError as error:
            if not is_no_space(error):
                raise
            remove_durably(self._disk, f"{directory}/{PARTITION_METADATA_FILE}")
            self._disk.remove_tree(directory)
            return
        self._disk.fsync_dir(target.path)
        self._deletion.add([path], 0)

    def discard_strays(self, wanted: Callable[[TopicPartition], UUID | None]) -> None:
        """Remove the future logs of partitions that this node should not have; `wanted` gives their topic ids.

        One without a topic id goes, too: a crash ended the request to move the log before anything was copied.
        """
        for tp in self.partitions:
            copy = self.get(tp)
            if copy is not None and not copy.is_failed and copy.topic_id != wanted(tp):
                _logger.warning("%s is removed: its topic is deleted, or it is not known which it is", copy.directory)
                self.discard(tp)
        for log_dir in self._directories:
            if log_dir.is_usable:
                self._remove_stray_marks(log_dir, wanted)

    def _remove_stray_marks(self, log_dir: LogDirectory, wanted: Callable[[TopicPartition], UUID | None]) -> None:
        """Remove the marks of logs that this node should not have; their originals are stray if they come back."""
        try:
            for tp, path, mark in list(marks_in(self._disk, log_dir.path)):
                if mark.topic_id != wanted(tp):
                    remove_mark(self._disk, path)
        except OSError as error:
            log_dir.fail(error)

    def finish(self, tp: TopicPartition) -> PartitionLog:
        """Replace the log by its future log, which holds all that the log does; returns the log in its new place.

        `StorageError` when the new disk refuses: then the log may be where it was, or be found after a restart.
        `NoSpaceError` when it is full: then nothing has changed but that the future log is closed; `discard` it.
        """
        source, target = self._directories.dir_of(tp), self._target(tp)
        if source is None:
            raise InvariantViolation(f"{tp} has a log that its future log replaces")
        config = source.logs[tp].config
        try:
            self._mark_complete(tp, source, target)
        except OSError as error:
            if not is_no_space(error):
                target.fail(error)
            raise refused_write(f"the move of {tp} could not be finished: {error}", error) from error
        try:
            self._swap(tp, source, target)
        except OSError as error:
            target.fail(error)
            raise StorageError(f"the move of {tp} could not be finished: {error}") from error
        log = run_at_once(target.opening(self._runtime, tp, config, self._deletion, clean_shutdown=True))
        self._directories.add(target, tp, log)
        return log

    def _mark_complete(self, tp: TopicPartition, source: LogDirectory, target: LogDirectory) -> None:
        """Durably say that the future log is complete, and that the original in the source is void.

        Raises `OSError` and `StorageError`; then the original counts as before.
        """
        original, copy = source.logs[tp], target.future_logs[tp]
        copy.close()
        starts = target.checkpoints.log_start_offsets
        starts.write({**starts.offsets, tp: original.log_start_offset})
        last = original.segments[-1]
        mark = SwapMark(source.directory_id, original.topic_id, (last.base_offset, last.size_bytes))
        self._disk.write_atomic(copy.directory + SWAP_SUFFIX, mark.render())

    def _swap(self, tp: TopicPartition, source: LogDirectory, target: LogDirectory) -> None:
        """If the disk of the original fails at this moment, a later start takes the original away.

        When the target's disk fails (`OSError`), what is on it is finished after a restart.
        """
        path = target.future_logs.pop(tp).directory
        is_taken_away = self._take_away(tp, source)
        promote(self._disk, target.path, path, tp)
        if is_taken_away:
            remove_mark(self._disk, path)
        else:
            _logger.error("%s has moved to %s while its former disk failed", tp, target.path)

    def _take_away(self, tp: TopicPartition, source: LogDirectory) -> bool:
        """Whether the original is durably gone. If not, its directory has failed, so that nothing takes its place."""
        try:
            path = self._directories.rename_away(tp, DELETED_SUFFIX)
            self._disk.fsync_dir(source.path)
        except StorageError:
            return False
        except OSError as error:
            source.fail(error)
            return False
        if path is not None:
            self._deletion.add([path], self._config.file_delete_delay_ms)
        return True

    def _directory_at(self, path: str) -> LogDirectory:
        wanted = path.rstrip("/") or path
        if wanted in self._directories.failures:
            raise StorageError(f"log directory {path} is offline")
        for log_dir in self._directories:
            if log_dir.path.rstrip("/") == wanted and log_dir.takes_partitions:
                return log_dir
        raise ProtocolError(ErrorCode.LOG_DIR_NOT_FOUND, f"{path} is none of this broker's log directories")

    def _dir_of(self, tp: TopicPartition) -> LogDirectory | None:
        return next((log_dir for log_dir in self._directories if tp in log_dir.future_logs), None)

    def _target(self, tp: TopicPartition) -> LogDirectory:
        target = self._dir_of(tp)
        if target is None:
            raise InvariantViolation(f"{tp} has a future log")
        return target
