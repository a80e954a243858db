"""A log directory that this node holds, with the logs in it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from ...runtime.incremental_work import Work
from ...runtime.ports import Disk, Runtime
from ...wire.types import TopicPartition
from ..config import LogConfig
from ..errors import DirFailedError
from ..partition_log import PartitionLog
from ..results import LogDirView, LogHooks
from .dir_checkpoints import DirCheckpoints
from .log_dir import LogDir


def hold(disk: Disk, path: str, cluster_id: str, node_id: int, *, takes_partitions: bool) -> LogDirState:
    """Take the directory. Raises as `LogDir.acquire`."""
    log_dir = LogDir.acquire(disk, path, cluster_id, node_id)
    try:
        return LogDirState(log_dir, takes_partitions, DirCheckpoints(disk, path))
    except OSError as error:
        log_dir.release()
        raise DirFailedError(f"Log directory {path} cannot be read: {error}.") from error


@dataclass(slots=True)
class LogDirState:
    """`failure` is why it is used no more; `clean_offsets` are how far its compacted logs are clean. `was_left_cleanly`
    by the life before this one: then nothing that stood in it can have come back or be gone."""

    held: LogDir
    takes_partitions: bool
    checkpoints: DirCheckpoints
    logs: dict[TopicPartition, PartitionLog] = field(default_factory=dict)
    clean_offsets: dict[TopicPartition, int] = field(default_factory=dict)
    failure: OSError | None = None
    is_loaded: bool = False
    was_left_cleanly: bool = False

    @property
    def is_usable(self) -> bool:
        return self.failure is None and self.is_loaded

    def opening(
        self, runtime: Runtime, tp: TopicPartition, path: str, config: LogConfig, clean_shutdown: bool, hooks: LogHooks
    ) -> Work[PartitionLog]:
        """Open the partition's log at `path` by what the checkpoints know of it. `StorageError`."""

        def recovery_point_lowered(_: PartitionLog, offset: int) -> None:
            if tp in self.clean_offsets:
                self.clean_offsets[tp] = min(self.clean_offsets[tp], offset)
            self.checkpoints.clean_offsets.lower(tp, offset)
            self.checkpoints.recovery_points.lower(tp, offset)
            self.checkpoints.log_start_offsets.lower(tp, offset)

        recovery_point = self.checkpoints.recovery_points.offsets.get(tp, 0)
        clean_offsets = self.checkpoints.clean_offsets
        log = yield from PartitionLog.opening(
            runtime,
            path,
            config,
            recovery_point=recovery_point,
            void_without_id=not recovery_point,
            log_start_offset=self.checkpoints.log_start_offsets.offsets.get(tp, 0),
            clean_shutdown=clean_shutdown,
            has_gaps=clean_offsets.was_unreadable or tp in clean_offsets.offsets,
            hooks=replace(hooks, on_recovery_point_lowered=recovery_point_lowered),
        )
        # Where the log has lost what it had there.
        self.checkpoints.log_start_offsets.lower(tp, log.log_start_offset)
        return log

    def share_of(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The offsets of the partitions that are in this directory."""
        return {tp: offsets[tp] for tp in self.logs if tp in offsets}

    def write_recovery_points(self) -> None:
        """Write the recovery points, log start offsets and clean offsets that changed. `OSError`."""
        self.checkpoints.recovery_points.write(self._recovery_points())
        self.checkpoints.log_start_offsets.write(self._log_start_offsets())
        if self.clean_offsets:
            self.checkpoints.clean_offsets.write(self.clean_offsets)

    def write_recovery_points_soon(self, on_failed: Callable[[OSError], None]) -> None:
        """The same without blocking the loop."""
        self.checkpoints.recovery_points.write_soon(self._recovery_points(), on_failed)
        self.checkpoints.log_start_offsets.write_soon(self._log_start_offsets(), on_failed)
        if self.clean_offsets:
            self.checkpoints.clean_offsets.write_soon(self.clean_offsets, on_failed)

    def note_gaps(self, tp: TopicPartition, *, at_once: bool) -> None:
        """`tp` has a clean offset, if only 0, before the first of its offsets is missing: recovery goes by that.

        Durably on return if `at_once`, `OSError` then; else the upkeep writes it.
        """
        self.clean_offsets.setdefault(tp, 0)
        if at_once and tp not in self.checkpoints.clean_offsets.offsets:
            self.checkpoints.clean_offsets.write(self.clean_offsets)

    def gaps_noted(self, tp: TopicPartition, on_failed: Callable[[OSError], None]) -> bool:
        """Whether that is durable; else it is begun."""
        if tp in self.checkpoints.clean_offsets.offsets:
            return True
        self.note_clean(tp, self.clean_offsets.get(tp, 0), on_failed)
        return False

    def note_clean(self, tp: TopicPartition, offset: int, on_failed: Callable[[OSError], None]) -> None:
        """The log is clean up to `offset`; soon checkpointed."""
        self.clean_offsets[tp] = offset
        self.checkpoints.clean_offsets.write_soon(self.clean_offsets, on_failed)

    def _recovery_points(self) -> dict[TopicPartition, int]:
        return {tp: log.recovery_point for tp, log in self.logs.items()}

    def _log_start_offsets(self) -> dict[TopicPartition, int]:
        """Also of logs that start where their first segment does: a loss of power may bring deleted ones back."""
        return {tp: log.log_start_offset for tp, log in self.logs.items() if log.log_start_offset}


def view_of(
    disk: Disk,
    path: str,
    dirs: Iterable[LogDirState],
    copies_in: Callable[[LogDirState], Mapping[TopicPartition, PartitionLog]],
    on_failed: Callable[[LogDirState, OSError], None],
) -> LogDirView:
    """The directory at `path` as it is told; one that is not among the sound ones of `dirs` has failed."""
    for one in dirs:
        if one.held.path == path and one.failure is None:
            try:
                sizes = disk.total_bytes(path), disk.free_bytes(path)
            except OSError as error:
                on_failed(one, error)
            else:
                return LogDirView(path, False, *sizes, dict(one.logs), copies_in(one))
    return LogDirView(path, is_failed=True)
