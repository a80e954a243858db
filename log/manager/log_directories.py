"""All log directories of a node: which of them work, and which partition's log is in which."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from uuid import UUID

from ...runtime.invariants import sometimes
from ...runtime.ports import Runtime
from ...wire.types import TopicPartition
from ..directory_names import DELETED_SUFFIX, retired_name
from ..errors import DirFailedError, StorageError, is_no_space
from ..partition_log import PartitionLog
from ..state.checkpoints import PARTITION_METADATA_FILE
from .log_directory import LogDirDescription, LogDirectory
from .log_manager_config import LogManagerConfig
from .meta_properties import refuse_copies

_logger = logging.getLogger(__name__)


class LogDirectories:
    """The log directories that this node has locked, and the place of every partition's log in them."""

    def __init__(self, runtime: Runtime, config: LogManagerConfig) -> None:
        self._runtime = runtime
        self._config = config
        self._dirs: list[LogDirectory] = []
        self._dir_of: dict[TopicPartition, LogDirectory] = {}
        self._refused: dict[str, DirFailedError] = {}
        """Directories that could not even be locked."""
        self.high_watermarks: dict[TopicPartition, int] = {}
        """The last known high watermark of each partition, for the checkpoints. Truncation of its log lowers it."""

    def __iter__(self) -> Iterator[LogDirectory]:
        return iter(self._dirs)

    def acquire(self) -> None:
        """Lock the directories and check that they are this node's; calling again is harmless. `LogDirError`."""
        if self._dirs:
            return
        self._refused.clear()
        try:
            for path in self._config.dirs:
                self._acquire_one(path)
            refuse_copies({log_dir.path: log_dir.directory_id for log_dir in self._dirs})
        except BaseException:
            self.release()
            raise

    def _acquire_one(self, path: str) -> None:
        config = self._config
        try:
            log_dir = LogDirectory.acquire(
                self._runtime.disk,
                path,
                config.cluster_id,
                config.node_id,
                takes_partitions=config.holds_partitions(path),
                format_advice=config.format_advice(path),
                on_failed=config.on_dir_failed,
                high_watermarks=self.high_watermarks,
            )
        except DirFailedError as error:
            if self.is_indispensable(path):
                raise
            _logger.error("%s The node goes on without it.", error)
            self._refused[path] = error
        else:
            self._dirs.append(log_dir)

    def release(self) -> None:
        """Release the locks of all directories, and forget them and their logs."""
        for log_dir in self._dirs:
            log_dir.release()
        self._dirs.clear()
        self._dir_of.clear()

    def is_indispensable(self, path: str) -> bool:
        """Whether the node cannot work without the directory, as the metadata log is in it."""
        return path == (self._config.metadata_dir or self._config.dirs[0])

    # Which work

    @property
    def ids(self) -> dict[str, UUID]:
        """The ids of the directories that have not failed, by path."""
        return {log_dir.path: log_dir.directory_id for log_dir in self._dirs if log_dir.failure is None}

    @property
    def online_ids(self) -> list[UUID]:
        """The ids of the directories that may hold partitions and have not failed, in the order of `log.dirs`."""
        return [d.directory_id for d in self._dirs if d.failure is None and d.takes_partitions]

    @property
    def usable(self) -> list[LogDirectory]:
        """The directories in which partitions' logs can be made."""
        return [log_dir for log_dir in self._dirs if log_dir.is_usable and log_dir.takes_partitions]

    @property
    def has_space(self) -> bool:
        """Whether a partition's log can be made in a directory that is not full."""
        return any(not log_dir.is_full for log_dir in self.usable)

    def set_full(self, paths: Collection[str]) -> bool:
        """Name the directories that are full, all others are not; returns whether one of them was not full before."""
        newly_full = [log_dir for log_dir in self._dirs if log_dir.path in paths and not log_dir.is_full]
        for log_dir in self._dirs:
            log_dir.is_full = log_dir.path in paths
        return bool(newly_full)

    @property
    def failures(self) -> dict[str, Exception]:
        """The directories that are not used, by path, and why."""
        found = {**self._refused, **{d.path: d.failure for d in self._dirs if d.failure is not None}}
        return {path: found[path] for path in self._config.dirs if path in found}

    @property
    def has_failed(self) -> bool:
        """Whether some replica's log may be where it cannot be seen."""
        return bool(self.failures)

    def id_at(self, path: str) -> UUID | None:
        """The id of the directory at `path`, None when it could not be locked."""
        return next((log_dir.directory_id for log_dir in self._dirs if log_dir.path == path), None)

    def describe(self) -> list[LogDirDescription]:
        """Every directory for partitions, in the order of `log.dirs`, with the logs in it."""
        by_path = {log_dir.path: log_dir for log_dir in self._dirs}
        return [
            by_path[path].describe() if path in by_path else LogDirDescription(path, is_failed=True)
            for path in self._config.dirs
            if self._config.holds_partitions(path)
        ]

    def on_storage_error(self, tp: TopicPartition, error: OSError) -> None:
        """A partition's disk refused: its directory fails, even if the log could take the write back.

        An error without a number does not come from a disk, but from a log that is closed already.
        """
        log_dir = self._dir_of.get(tp)
        if log_dir is not None and error.errno is not None:
            log_dir.fail(error)

    # Which partition is where

    @property
    def logs(self) -> Mapping[TopicPartition, PartitionLog]:
        """Every partition's log, directory by directory."""
        return {tp: log for log_dir in self._dirs for tp, log in log_dir.logs.items()}

    def get(self, tp: TopicPartition) -> PartitionLog | None:
        """The partition's log, None when this node has none."""
        log_dir = self._dir_of.get(tp)
        return log_dir.logs[tp] if log_dir is not None else None

    def dir_of(self, tp: TopicPartition) -> LogDirectory | None:
        """The directory that holds the partition's log."""
        return self._dir_of.get(tp)

    def id_of(self, tp: TopicPartition) -> UUID | None:
        """The id of the directory that holds the partition's log."""
        log_dir = self._dir_of.get(tp)
        return log_dir.directory_id if log_dir is not None else None

    def add(self, log_dir: LogDirectory, tp: TopicPartition, log: PartitionLog) -> None:
        """The partition's log is open, in this directory."""
        log_dir.logs[tp] = log
        self._dir_of[tp] = log_dir

    def add_loaded(self, log_dir: LogDirectory, tp: TopicPartition, log: PartitionLog) -> None:
        """The partition's log was found in this directory, whose checkpoint has its high watermark."""
        self.add(log_dir, tp, log)
        if tp in log_dir.checkpoints.high_watermarks.offsets:
            self.high_watermarks[tp] = log_dir.checkpoints.high_watermarks.offsets[tp]

    def logs_named(self, tp: TopicPartition) -> list[PartitionLog]:
        """All logs of that name, one a directory: at the start there may be those of several topics."""
        return [log for one in self._dirs for logs in (one.logs, one.duplicate_logs) if (log := logs.get(tp))]

    def close_all_in(self, log_dir: LogDirectory) -> None:
        """Close and forget the logs of a directory that could not be loaded."""
        for tp, log in log_dir.logs.items():
            log.close(clean=False)
            del self._dir_of[tp]
        for log in log_dir.duplicate_logs.values():
            log.close(clean=False)
        log_dir.logs.clear()
        log_dir.duplicate_logs.clear()

    def forget(self, tp: TopicPartition) -> PartitionLog | None:
        """Close and forget the partition's log; its files stay. Returns it, None when there is none."""
        log_dir = self._dir_of.pop(tp, None)
        if log_dir is None:
            return None
        log = log_dir.logs.pop(tp)
        log_dir.forget_offsets(tp)
        log.close(clean=False)
        return log

    def rename_away(self, tp: TopicPartition, suffix: str) -> str | None:
        """Close and forget the partition's log, and give its directory a new name with this ending.

        Returns the new path, None when there is no log, or none any more: a deleted log for whose new name there is no
        space is removed. A loss of power may undo it. `StorageError`.
        """
        log_dir, log = self._dir_of.get(tp), self.forget(tp)
        return None if log_dir is None or log is None else self._rename(log_dir, tp, log, suffix)

    def rename_duplicate_away(self, log_dir: LogDirectory, tp: TopicPartition, suffix: str) -> str | None:
        """As `rename_away`, for the log of another topic of that name in this directory. `StorageError`."""
        log = log_dir.duplicate_logs.pop(tp)
        log_dir.forget_offsets(tp)
        log.close(clean=False)
        return self._rename(log_dir, tp, log, suffix)

    def _rename(self, log_dir: LogDirectory, tp: TopicPartition, log: PartitionLog, suffix: str) -> str | None:
        path = f"{log_dir.path}/{retired_name(tp, self._runtime.rng, suffix)}"
        try:
            self._runtime.disk.rename(log.directory, path)
        except OSError as error:
            if suffix == DELETED_SUFFIX and is_no_space(error):
                sometimes(True, "a full disk had no space for the name of a deleted log, which was removed at once")
                self._remove_at_once(log_dir, log.directory)
                return None
            log_dir.fail(error)
            raise StorageError(f"{log.directory} cannot be renamed to {path}: {error}") from error
        return path

    def _remove_at_once(self, log_dir: LogDirectory, path: str) -> None:
        """Remove a log, whose deletion is to make space. Its topic id goes last: a part without one has no owner."""
        disk = self._runtime.disk
        try:
            for name in disk.listdir(path):
                if name != PARTITION_METADATA_FILE:
                    disk.remove(f"{path}/{name}")
            disk.remove_tree(path)
        except OSError as error:
            log_dir.fail(error)
            raise StorageError(f"{path} cannot be removed: {error}") from error

    # Checkpoints

    def write_each(self, write: Callable[[LogDirectory], None]) -> None:
        """Call `write` for every usable directory; a disk that refuses fails its directory, unless it is only full."""
        for log_dir in self._dirs:
            if log_dir.is_usable:
                try:
                    write(log_dir)
                except OSError as error:
                    if is_no_space(error):
                        _logger.warning("a checkpoint in %s stays as it is: %s", log_dir.path, error)
                    else:
                        log_dir.fail(error)

    def clean_offset(self, tp: TopicPartition) -> int:
        """Up to which offset the log is compacted, 0 when it never was."""
        log_dir = self._dir_of.get(tp)
        return log_dir.clean_offsets.get(tp, 0) if log_dir is not None else 0

    def durable_offset(self, tp: TopicPartition) -> int:
        """The recovery point of the partition in the checkpoint file."""
        log_dir = self._dir_of.get(tp)
        return log_dir.checkpoints.recovery_points.offsets.get(tp, 0) if log_dir is not None else 0

    def gaps_noted(self, tp: TopicPartition) -> bool:
        """Whether it is durable that offsets may be missing from the log; if not, that write is begun."""
        log_dir = self._dir_of.get(tp)
        return log_dir is not None and log_dir.is_usable and log_dir.gaps_noted(tp)

    @property
    def was_cleanly_shut_down(self) -> bool:
        """Whether the previous shutdown was clean in all directories that are in use."""
        return all(log_dir.was_cleanly_shut_down for log_dir in self._dirs if log_dir.takes_partitions)

    def damaged_offsets(self) -> dict[TopicPartition, int]:
        """The first damaged offset of each log that the scrubber found damaged."""
        return {tp: offset for log_dir in self._dirs for tp, offset in log_dir.damaged_offsets.items()}

    def note_damage(self, tp: TopicPartition, offset: int | None) -> None:
        """The log is damaged at the offset, or sound (None); soon checkpointed."""
        log_dir_of = self._dir_of.get(tp)
        for log_dir in self._dirs:
            log_dir.note_damage(tp, offset if log_dir is log_dir_of else None)

    def note_clean(self, tp: TopicPartition, offset: int) -> None:
        """The log is compacted up to `offset`; soon checkpointed. A refusing disk fails its directory."""
        log_dir = self._dir_of.get(tp)
        if log_dir is not None and log_dir.is_usable:
            log_dir.note_clean(tp, offset)
