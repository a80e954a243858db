"""All partitions' logs of a node, in its log directories.

A directory whose disk refuses is used no more, at the start as later on; its logs refuse everything, and the others go
on. Only what nothing works without must be there: the directory of the metadata log, and one for partitions.

`acquire` takes the directories (a node that holds only the metadata log needs no more), `load` opens the logs in them,
`start` begins the upkeep on the running loop, `shutdown` ends it all. The metadata log lives in one of the directories
but belongs to the quorum, which opens it itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from uuid import UUID

from ..runtime.ports import Disk, Runtime
from ..runtime.slices import Slices
from ..wire.errors import ErrorCode, ProtocolError
from ..wire.types import TopicPartition
from .config import LogConfig
from .dir_checkpoints import DirCheckpoints
from .errors import DirFailedError, LogDirError, StorageError
from .housekeeping import Housekeeping, HousekeepingConfig
from .log_cleaner import CleanerConfig, LogCleaner
from .log_dir import LogDir, check_distinct
from .names import parse_dir_name
from .partition_log import LogHooks, PartitionLog

METADATA_TOPIC = "__cluster_metadata"
_DELETED_SUFFIX, _STRAY_SUFFIX = "-delete", "-stray"
_DIR_NAME_LENGTH_MAX = 255
_UPKEEP_INTERVAL_S = 5.0
_LOGS_PER_TURN, _REMOVED_PER_TURN = 2_000, 20
_logger = logging.getLogger(__name__)


def _ignore_dir_failure(path: str, error: OSError) -> None:
    pass


@dataclass(frozen=True, slots=True)
class LogManagerConfig:
    """`on_dir_failed` is told once of a directory whose disk failed; its logs refuse everything from then on.

    `metadata_dir` is the one that the node cannot do without. If it is not among `data_dirs` it gets no partitions;
    empty `data_dirs` stand for all.
    """

    dirs: tuple[str, ...]
    cluster_id: str
    node_id: int
    defaults: LogConfig = field(default_factory=LogConfig)
    file_delete_delay_ms: int = 60_000
    on_dir_failed: Callable[[str, OSError], None] = _ignore_dir_failure
    housekeeping: HousekeepingConfig = field(default_factory=HousekeepingConfig)
    cleaner: CleanerConfig = field(default_factory=CleanerConfig)
    metadata_dir: str | None = None
    data_dirs: tuple[str, ...] = ()

    def holds_partitions(self, path: str) -> bool:
        return not self.data_dirs or path in self.data_dirs


@dataclass(slots=True)
class _Dir:
    held: LogDir
    takes_partitions: bool
    checkpoints: DirCheckpoints
    logs: dict[TopicPartition, PartitionLog] = field(default_factory=dict)
    clean_offsets: dict[TopicPartition, int] = field(default_factory=dict)
    failure: OSError | None = None
    is_loaded: bool = False

    @property
    def is_usable(self) -> bool:
        return self.failure is None and self.is_loaded

    def recovery_points(self) -> dict[TopicPartition, int]:
        return {tp: log.recovery_point for tp, log in self.logs.items()}

    def log_start_offsets(self) -> dict[TopicPartition, int]:
        """Also of logs that start where their first segment does: a loss of power may bring deleted ones back."""
        return {tp: log.log_start_offset for tp, log in self.logs.items() if log.log_start_offset}


class LogManager:
    """See the module's text."""

    def __init__(self, runtime: Runtime, config: LogManagerConfig) -> None:
        self._runtime = runtime
        self._config = config
        self._dirs: list[_Dir] = []
        self._dir_of: dict[TopicPartition, _Dir] = {}
        self._deleted: list[tuple[float, str]] = []
        self._flushed_at_s: dict[TopicPartition, float] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._slices: Slices[Any] | None = None
        self._housekeeping: Housekeeping | None = None
        self._cleaner: LogCleaner | None = None
        self._refused: dict[str, DirFailedError] = {}
        """Directories that could not even be taken."""
        self.high_watermark_checkpoint: dict[TopicPartition, int] = {}
        self.previous_broker_epoch = -1

    def acquire(self) -> None:
        """Lock the directories and check that they are this node's; calling again is harmless. `LogDirError`."""
        if self._dirs:
            return
        held: list[LogDir] = []
        self._refused.clear()
        try:
            for path in self._config.dirs:
                self._acquire_one(path, held)
            check_distinct(held)
        except BaseException:
            for log_dir in held:
                log_dir.release()
            self._dirs.clear()
            raise

    def _acquire_one(self, path: str, held: list[LogDir]) -> None:
        disk, config = self._runtime.disk, self._config
        try:
            log_dir = LogDir.acquire(disk, path, config.cluster_id, config.node_id)
            held.append(log_dir)
            self._dirs.append(_Dir(log_dir, config.holds_partitions(path), _checkpoints_of(disk, path)))
        except DirFailedError as error:
            if path == (config.metadata_dir or config.dirs[0]):
                raise
            _logger.error("%s The node goes on without it.", error)
            self._refused[path] = error

    def load(self) -> None:
        """Open every partition's log, recovering where the last stop was not clean. `LogDirError`, `StorageError`."""
        self.acquire()
        epochs = []
        for log_dir in self._dirs:
            try:
                epoch = log_dir.held.take_clean_shutdown_mark()
                epochs.append(-1 if epoch is None else epoch)
                self._load_dir(log_dir, clean_shutdown=epoch is not None)
            except OSError as error:
                self._cannot_load(log_dir, error)
            except StorageError as error:
                cause = error.__cause__
                self._cannot_load(log_dir, cause if isinstance(cause, OSError) else OSError(str(error)))
        if self._refused or any(log_dir.failure is not None for log_dir in self._dirs):
            epochs.append(-1)  # what has failed was hardly left cleanly
        self.previous_broker_epoch = min(epochs)
        if not any(log_dir.is_usable and log_dir.takes_partitions for log_dir in self._dirs):
            raise LogDirError("None of the log directories can be used: mend a disk, or set log.dirs to others.")

    def _cannot_load(self, log_dir: _Dir, error: OSError) -> None:
        path = log_dir.held.path
        if path == (self._config.metadata_dir or self._config.dirs[0]):
            raise LogDirError(f"Log directory {path} cannot be read: {error}.") from error
        for tp, log in log_dir.logs.items():
            log.close(clean=False)
            del self._dir_of[tp]
        log_dir.logs.clear()
        self._dir_failed(log_dir, error)

    @property
    def directory_ids(self) -> dict[str, UUID]:
        """The ids of the directories that have not failed, by path."""
        return {d.held.path: d.held.directory_id for d in self._dirs if d.failure is None}

    @property
    def online_ids(self) -> list[UUID]:
        """The ids of the directories that may hold partitions and have not failed, in the order of `log.dirs`."""
        return [d.held.directory_id for d in self._dirs if d.failure is None and d.takes_partitions]

    @property
    def failures(self) -> dict[str, Exception]:
        """The directories that are not used, by path, and why."""
        failed = {d.held.path: d.failure for d in self._dirs if d.failure is not None}
        return {path: failed.get(path) or self._refused[path] for path in self._config.dirs if self._has_failed(path)}

    def _has_failed(self, path: str) -> bool:
        return path in self._refused or any(d.failure is not None and d.held.path == path for d in self._dirs)

    @property
    def has_failed_dirs(self) -> bool:
        """Whether some replica's log may be where it cannot be seen."""
        return bool(self._refused) or any(d.failure is not None for d in self._dirs)

    @property
    def logs(self) -> Mapping[TopicPartition, PartitionLog]:
        """Every partition's log, directory by directory."""
        return {tp: log for d in self._dirs for tp, log in d.logs.items()}

    def get(self, tp: TopicPartition) -> PartitionLog | None:
        """The partition's log, None when this node has none."""
        log_dir = self._dir_of.get(tp)
        return log_dir.logs[tp] if log_dir is not None else None

    def directory_id_of(self, tp: TopicPartition) -> UUID | None:
        """The id of the directory that holds the partition."""
        log_dir = self._dir_of.get(tp)
        return log_dir.held.directory_id if log_dir is not None else None

    def directory_id_at(self, path: str) -> UUID | None:
        """The id of the directory at `path`, None when it could not be taken."""
        return next((d.held.directory_id for d in self._dirs if d.held.path == path), None)

    def create(
        self, tp: TopicPartition, topic_id: UUID, config: LogConfig | None = None, directory_id: UUID | None = None
    ) -> PartitionLog:
        """The partition's log, made if there is none: in the given directory, else in the one with the fewest.

        INCONSISTENT_TOPIC_ID when there is one of another topic of that name: `delete` it first. `StorageError`.
        """
        log = self.get(tp)
        if log is None:
            log = self._create(tp, config or self._config.defaults, directory_id)
        if log.topic_id is None:
            log.set_topic_id(topic_id, durably=False)
        if log.topic_id != topic_id:
            raise ProtocolError(
                ErrorCode.INCONSISTENT_TOPIC_ID, f"{log.directory} holds topic id {log.topic_id}, not {topic_id}"
            )
        if config is not None:
            log.config = config
        return log

    def delete(self, tp: TopicPartition) -> None:
        """Forget the partition: its directory is renamed now, and removed `file.delete.delay.ms` later.

        A loss of power may bring it back; its topic id tells then that it is nobody's. `StorageError` when the disk
        refuses.
        """
        path = self._rename_away(tp, _DELETED_SUFFIX)
        if path is not None:
            self._deleted.append((self._now_s() + self._config.file_delete_delay_ms / 1000, path))

    def set_aside(self, is_stray: Callable[[TopicPartition, UUID | None], bool]) -> list[TopicPartition]:
        """Take partitions that are no business of this node out of its way; returns them.

        Their directories are renamed to end in `-stray`, and stay: that the metadata does not know them may be an
        error of its own. Source: KIP-866 and LogManager.isStrayKraftReplica of Apache Kafka.
        """
        strays = [tp for tp, log in self.logs.items() if not log.is_failed and is_stray(tp, log.topic_id)]
        for tp in strays:
            try:
                path = self._rename_away(tp, _STRAY_SUFFIX)
            except StorageError as error:
                _logger.error("%s", error)
            else:
                _logger.warning("%s is not in the metadata; set aside as %s, to be removed by hand", tp, path)
        return strays

    def _rename_away(self, tp: TopicPartition, ending: str) -> str | None:
        log_dir = self._dir_of.pop(tp, None)
        if log_dir is None:
            return None
        log = log_dir.logs.pop(tp)
        log_dir.clean_offsets.pop(tp, None)
        self.high_watermark_checkpoint.pop(tp, None)
        self._flushed_at_s.pop(tp, None)
        log.close(clean=False)
        suffix = f"-{tp.partition}.{self._runtime.rng.getrandbits(128):032x}{ending}"
        path = f"{log_dir.held.path}/{tp.topic[: _DIR_NAME_LENGTH_MAX - len(suffix)]}{suffix}"
        try:
            self._runtime.disk.rename(log.directory, path)
        except OSError as error:
            self._dir_failed(log_dir, error)
            raise StorageError(f"{log.directory} cannot be renamed to {path}: {error}") from error
        return path

    # Upkeep

    def start(self, high_watermark_of: Callable[[TopicPartition], int | None] | None = None) -> None:
        """Begin the upkeep: rolled segments are fsynced, recovery points written, deleted files removed, retention.

        `high_watermark_of` knows the high watermarks of the partitions; where it gives None, that of the checkpoint
        counts.
        """
        loop = asyncio.get_running_loop()

        def high_watermark(tp: TopicPartition) -> int:
            known = high_watermark_of(tp) if high_watermark_of is not None else None
            return self.high_watermark_checkpoint.get(tp, 0) if known is None else known

        self._housekeeping = Housekeeping(
            self._config.housekeeping, self._runtime.clock, lambda: self.logs, high_watermark
        )
        self._housekeeping.start()
        self._cleaner = LogCleaner(self._config.cleaner, self._runtime, self, high_watermark)
        self._cleaner.start()
        self._timer = loop.call_later(_UPKEEP_INTERVAL_S, self._upkeep)

    def _upkeep(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(_UPKEEP_INTERVAL_S, self._upkeep)
        if self._slices is None or not self._slices.is_running:
            self._slices = self.flush_dirty(self._after_flush)

    def flush_dirty(self, done: Callable[[], None] = lambda: None) -> Slices[tuple[TopicPartition, PartitionLog]]:
        """Begin to fsync rolled segments everywhere, and the whole log where `flush.ms` is over; some logs a turn."""
        now_s = self._now_s()

        def visit(item: tuple[TopicPartition, PartitionLog]) -> None:
            tp, log = item
            if log.is_failed or log.is_closed:
                return
            if log.log_end_offset == log.recovery_point:
                self._flushed_at_s[tp] = now_s
            elif (now_s - self._flushed_at_s.setdefault(tp, now_s)) * 1000 >= log.config.flush_ms:
                self._flushed_at_s[tp] = now_s
                log.flush_soon().add_done_callback(_swallow)
            elif log.durability.has_unsynced_segments:
                log.flush_rolled_soon().add_done_callback(_swallow)

        return Slices(list(self.logs.items()), visit, _LOGS_PER_TURN, done)

    def _after_flush(self) -> None:
        if self._timer is not None:  # else the end has come meanwhile
            self._checkpoint_recovery_points_soon()
            self._slices = Slices(self._take_due(all_now=False), self._remove, _REMOVED_PER_TURN)

    def checkpoint_recovery_points(self) -> None:
        """Write the recovery points and log start offsets that changed. A refusing disk fails its directory."""
        for log_dir in self._dirs:
            if not log_dir.is_usable:
                continue
            try:
                log_dir.checkpoints.recovery_points.write(log_dir.recovery_points())
                log_dir.checkpoints.log_start_offsets.write(log_dir.log_start_offsets())
                if log_dir.clean_offsets:
                    log_dir.checkpoints.clean_offsets.write(log_dir.clean_offsets)
            except OSError as error:
                self._dir_failed(log_dir, error)

    def _checkpoint_recovery_points_soon(self) -> None:
        for log_dir in self._dirs:
            if log_dir.is_usable:
                failed = partial(self._dir_failed, log_dir)
                log_dir.checkpoints.recovery_points.write_soon(log_dir.recovery_points(), failed)
                log_dir.checkpoints.log_start_offsets.write_soon(log_dir.log_start_offsets(), failed)
                if log_dir.clean_offsets:
                    log_dir.checkpoints.clean_offsets.write_soon(log_dir.clean_offsets, failed)

    # Compaction

    def clean_offset(self, tp: TopicPartition) -> int:
        """How far the partition is clean, 0 when it never was."""
        log_dir = self._dir_of.get(tp)
        return log_dir.clean_offsets.get(tp, 0) if log_dir is not None else 0

    def durable_offset(self, tp: TopicPartition) -> int:
        """The recovery point of the partition, as it is checkpointed."""
        log_dir = self._dir_of.get(tp)
        return log_dir.checkpoints.recovery_points.offsets.get(tp, 0) if log_dir is not None else 0

    def note_clean(self, tp: TopicPartition, offset: int) -> None:
        """The partition is clean up to `offset`; soon checkpointed. A refusing disk fails its directory."""
        log_dir = self._dir_of.get(tp)
        if log_dir is not None and log_dir.is_usable:
            log_dir.clean_offsets[tp] = offset
            log_dir.checkpoints.clean_offsets.write_soon(log_dir.clean_offsets, partial(self._dir_failed, log_dir))

    def _note_gaps(self, log_dir: _Dir, tp: TopicPartition, *, at_once: bool) -> None:
        """`tp` has a clean offset, if only 0, durably before the first offset is missing; see `_open`."""
        log_dir.clean_offsets.setdefault(tp, 0)  # the upkeep writes it
        if not at_once or tp in log_dir.checkpoints.clean_offsets.offsets:
            return
        try:
            log_dir.checkpoints.clean_offsets.write(log_dir.clean_offsets)
        except OSError as error:
            self._dir_failed(log_dir, error)
            raise StorageError(f"{log_dir.held.path} cannot be written: {error}") from error

    def on_storage_error(self, tp: TopicPartition, error: OSError) -> None:
        """A partition's disk refused: its directory is used no more, even if the log could take the write back.

        An error without a number is no word of a disk, but of a log that is closed already.
        """
        log_dir = self._dir_of.get(tp)
        if log_dir is not None and error.errno is not None:
            self._dir_failed(log_dir, error)

    # Checkpoints

    def write_high_watermarks(self, high_watermarks: Mapping[TopicPartition, int]) -> None:
        """Write the high watermarks; of partitions that are not mentioned, what was known stays."""
        self.high_watermark_checkpoint.update(high_watermarks)
        known = self.high_watermark_checkpoint
        for log_dir in self._dirs:
            if not log_dir.is_usable:
                continue
            try:
                log_dir.checkpoints.high_watermarks.write({tp: known[tp] for tp in log_dir.logs if tp in known})
            except OSError as error:
                self._dir_failed(log_dir, error)

    def write_high_watermarks_soon(self, high_watermarks: Mapping[TopicPartition, int]) -> None:
        """Like `write_high_watermarks`, without blocking the loop; skipped while the last one is under way."""
        self.high_watermark_checkpoint.update(high_watermarks)
        known = self.high_watermark_checkpoint
        for log_dir in self._dirs:
            if log_dir.is_usable:
                log_dir.checkpoints.high_watermarks.write_soon(
                    {tp: known[tp] for tp in log_dir.logs if tp in known}, partial(self._dir_failed, log_dir)
                )

    def remove_deleted(self, *, all_now: bool = False) -> None:
        """Remove the directories of deleted partitions, and the files of deleted segments, whose time has come."""
        for path in self._take_due(all_now=all_now):
            self._remove(path)

    def _take_due(self, *, all_now: bool) -> list[str]:
        now_s = self._now_s()
        due = [path for due_s, path in self._deleted if all_now or due_s <= now_s]
        if due:
            self._deleted = [(due_s, path) for due_s, path in self._deleted if not all_now and due_s > now_s]
        return due

    def _remove(self, path: str) -> None:
        disk = self._runtime.disk
        try:
            if disk.is_dir(path):
                disk.remove_tree(path)
            elif disk.exists(path):
                disk.remove(path)
        except OSError as error:
            _logger.warning("%s was deleted and cannot be removed: %s", path, error)

    def shutdown(self, broker_epoch: int = -1) -> None:
        """Close every log, mark the directories where that went cleanly, and release them.

        A directory that was not loaded is left as it is.
        """
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._slices is not None:
            self._slices.cancel()
            self._slices = None
        if self._housekeeping is not None:
            self._housekeeping.stop()
            self._housekeeping = None
        if self._cleaner is not None:
            self._cleaner.stop()
            self._cleaner = None
        cleanly_closed = [log_dir for log_dir in self._dirs if self._close_logs(log_dir)]
        self.checkpoint_recovery_points()
        for log_dir in cleanly_closed:
            self._mark_clean(log_dir, broker_epoch)
        for log_dir in self._dirs:
            log_dir.held.release()
        self._dirs.clear()
        self._dir_of.clear()

    # Inside

    def _load_dir(self, log_dir: _Dir, *, clean_shutdown: bool) -> None:
        disk = self._runtime.disk
        root = log_dir.held.path
        for name in disk.listdir(root):
            if not disk.is_dir(f"{root}/{name}"):
                continue
            if name.endswith(_DELETED_SUFFIX):
                self._deleted.append((0.0, f"{root}/{name}"))
                continue
            tp = parse_dir_name(name)
            if tp is None or tp.topic == METADATA_TOPIC:
                continue
            if tp in self._dir_of:
                raise LogDirError(
                    f"Partition {tp} is in {self._dir_of[tp].held.path} and in {root}: remove the one that is stale."
                )
            self._adopt(log_dir, tp, self._open(log_dir, tp, self._config.defaults, clean_shutdown=clean_shutdown))
            if tp in log_dir.checkpoints.clean_offsets.offsets:
                log_dir.clean_offsets[tp] = log_dir.checkpoints.clean_offsets.offsets[tp]
            if tp in log_dir.checkpoints.high_watermarks.offsets:
                self.high_watermark_checkpoint[tp] = log_dir.checkpoints.high_watermarks.offsets[tp]
        log_dir.is_loaded = True

    def _create(self, tp: TopicPartition, config: LogConfig, directory_id: UUID | None) -> PartitionLog:
        usable = [log_dir for log_dir in self._dirs if log_dir.is_usable and log_dir.takes_partitions]
        if not usable:
            raise StorageError("no log directory is left")
        asked = [log_dir for log_dir in usable if log_dir.held.directory_id == directory_id]
        log_dir = asked[0] if asked else min(usable, key=lambda candidate: len(candidate.logs))
        try:
            log_dir.checkpoints.forget_all_but(log_dir.logs, tp)
        except OSError as error:
            self._dir_failed(log_dir, error)
            raise StorageError(f"{log_dir.held.path} cannot be written: {error}") from error
        log = self._open(log_dir, tp, config, clean_shutdown=True)
        self._adopt(log_dir, tp, log)
        return log

    def _open(self, log_dir: _Dir, tp: TopicPartition, config: LogConfig, *, clean_shutdown: bool) -> PartitionLog:
        def recovery_point_lowered(_: PartitionLog, offset: int) -> None:
            if tp in log_dir.clean_offsets:
                log_dir.clean_offsets[tp] = min(log_dir.clean_offsets[tp], offset)
            log_dir.checkpoints.clean_offsets.lower(tp, offset)
            log_dir.checkpoints.recovery_points.lower(tp, offset)
            log_dir.checkpoints.log_start_offsets.lower(tp, offset)

        def failed(_: PartitionLog, error: OSError) -> None:
            self._dir_failed(log_dir, error)

        def gaps(_: PartitionLog, at_once: bool) -> None:
            self._note_gaps(log_dir, tp, at_once=at_once)

        def files_deleted(log: PartitionLog, paths: list[str]) -> None:
            due_s = self._now_s() + log.config.file_delete_delay_ms / 1000
            self._deleted.extend((due_s, path) for path in paths)

        recovery_point = log_dir.checkpoints.recovery_points.offsets.get(tp, 0)
        clean_offsets = log_dir.checkpoints.clean_offsets
        log = PartitionLog.open(
            self._runtime,
            f"{log_dir.held.path}/{tp}",
            config,
            recovery_point=recovery_point,
            void_without_id=not recovery_point,
            log_start_offset=log_dir.checkpoints.log_start_offsets.offsets.get(tp, 0),
            clean_shutdown=clean_shutdown,
            has_gaps=clean_offsets.was_unreadable or tp in clean_offsets.offsets,
            hooks=LogHooks(failed, recovery_point_lowered, files_deleted, gaps),
        )
        log_dir.checkpoints.log_start_offsets.lower(
            tp, log.log_start_offset
        )  # where the log has lost what it had there
        return log

    def _adopt(self, log_dir: _Dir, tp: TopicPartition, log: PartitionLog) -> None:
        log_dir.logs[tp] = log
        self._dir_of[tp] = log_dir

    def _dir_failed(self, log_dir: _Dir, error: OSError) -> None:
        if log_dir.failure is not None:
            return
        log_dir.failure = error
        _logger.error("log directory %s has failed and is used no more: %s", log_dir.held.path, error)
        for log in log_dir.logs.values():
            log.fail("its log directory failed", error)
        self._config.on_dir_failed(log_dir.held.path, error)

    def _close_logs(self, log_dir: _Dir) -> bool:
        is_clean = log_dir.is_usable
        for log in log_dir.logs.values():
            try:
                log.close()
            except StorageError as error:
                is_clean = False
                _logger.error("%s", error)
        return is_clean and log_dir.failure is None

    def _mark_clean(self, log_dir: _Dir, broker_epoch: int) -> None:
        if log_dir.failure is not None:
            return
        try:
            log_dir.held.mark_clean_shutdown(broker_epoch)
        except OSError as error:
            _logger.error("log directory %s could not be marked as cleanly stopped: %s", log_dir.held.path, error)

    def _now_s(self) -> float:
        try:
            return asyncio.get_running_loop().time()
        except RuntimeError:
            return 0.0


def _checkpoints_of(disk: Disk, path: str) -> DirCheckpoints:
    try:
        return DirCheckpoints(disk, path)
    except OSError as error:
        raise DirFailedError(f"Log directory {path} cannot be read: {error}.") from error


def _swallow(done: asyncio.Future[int]) -> None:
    """The log itself has recorded the failure and told its hooks."""
    if not done.cancelled():
        done.exception()
