"""All partitions' logs of a node, in its log directories.

A directory whose disk refuses is used no more, at the start as later on; its logs refuse everything, and the others go
on. Only what nothing works without must be there: the directory of the metadata log, and one for partitions.

`acquire` takes the directories (all that a node with nothing but the metadata log needs), `load` opens the logs in
them, `start` begins the upkeep, `shutdown` ends it all. The metadata log in one of them is the quorum's to open.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import partial
from uuid import UUID

from ...runtime.incremental_work import PLAIN_STEP, IncrementalTask, Work, for_each, run_at_once, run_in_steps
from ...runtime.ports import Runtime
from ...wire.errors import ErrorCode, ProtocolError
from ...wire.types import TopicPartition
from ..config import LogConfig
from ..errors import DirFailedError, LogDirError, StorageError
from ..names import parse_dir_name
from ..partition_log import LogHooks, PartitionLog
from ..recovery.load_progress import LoadProgress
from ..results import LogDirView
from .flushing import Flusher
from .future_logs import FUTURE_SUFFIX, FutureLogs, finish_swaps, future_of
from .held_dir import LogDirState, hold, view_of
from .log_dir import check_distinct
from .manager_config import LogManagerConfig, UpkeepChange
from .strays import STRAY_SUFFIX, report_strays, why_stray
from .trash import Trash
from .upkeep import Upkeep

METADATA_TOPIC = "__cluster_metadata"
_DELETED_SUFFIX = "-delete"
_DIR_NAME_LENGTH_MAX = 255
_REMOVED_PER_TURN = 100
_logger = logging.getLogger(__name__)


class LogManager:
    """See the module's text."""

    def __init__(self, runtime: Runtime, config: LogManagerConfig) -> None:
        self._runtime = runtime
        self._config = config
        self._dirs: list[LogDirState] = []
        self._dir_of: dict[TopicPartition, LogDirState] = {}
        self._trash = Trash(runtime.disk)
        self._flusher = Flusher()
        self._timer: asyncio.TimerHandle | None = None
        self._slices: IncrementalTask[None] | None = None
        self._upkeep: Upkeep | None = None
        self._futures = FutureLogs(runtime)
        self._displaced: dict[TopicPartition, UUID] = {}
        self._preferred: dict[TopicPartition, str] = {}
        """Where partitions that are not here yet shall be made."""
        self._refused: dict[str, DirFailedError] = {}
        """Directories that could not even be taken."""
        self.high_watermark_checkpoint: dict[TopicPartition, int] = {}
        self.previous_broker_epoch = -1

    def acquire(self) -> None:
        """Lock the directories and check that they are this node's; calling again is harmless. `LogDirError`."""
        if self._dirs:
            return
        self._refused.clear()
        try:
            for path in self._config.dirs:
                self._acquire_one(path)
            check_distinct([log_dir.held for log_dir in self._dirs])
        except BaseException:
            for log_dir in self._dirs:
                log_dir.held.release()
            self._dirs.clear()
            raise

    def _acquire_one(self, path: str) -> None:
        disk, config = self._runtime.disk, self._config
        takes_partitions = config.holds_partitions(path)
        try:
            self._dirs.append(hold(disk, path, config.cluster_id, config.node_id, takes_partitions=takes_partitions))
        except DirFailedError as error:
            if path == (config.metadata_dir or config.dirs[0]):
                raise
            _logger.error("%s The node goes on without it.", error)
            self._refused[path] = error

    def load(self) -> None:
        """Open every partition's log, recovering where the last stop was not clean. `LogDirError`, `StorageError`."""
        self.begin_load()
        run_at_once(self._loading())

    async def load_soon(self) -> None:
        """Like `load` after `begin_load`, in steps between which the loop turns."""
        await run_in_steps(self._loading(), self._runtime.disk)

    def begin_load(self) -> None:
        """Take the directories, and learn how they were left. `LogDirError`."""
        self.acquire()
        finish_swaps(self._runtime.disk, [log_dir.held.path for log_dir in self._dirs])
        epochs = []
        for log_dir in self._dirs:
            try:
                epoch = log_dir.held.take_clean_shutdown_mark()
            except OSError as error:
                self._cannot_load(log_dir, error)
                continue
            epochs.append(-1 if epoch is None else epoch)
            log_dir.was_left_cleanly = epoch is not None
        self.previous_broker_epoch = -1 if self.has_failed_dirs else min(epochs)

    def _loading(self) -> Work[None]:
        progress = LoadProgress()
        for log_dir in self._dirs:
            if log_dir.failure is not None:
                continue
            try:
                for step in self._load_dir(log_dir, progress):
                    progress.checked(step.done_bytes)
                    yield step
            except OSError as error:
                self._cannot_load(log_dir, error)
            except StorageError as error:
                cause = error.__cause__
                self._cannot_load(log_dir, cause if isinstance(cause, OSError) else OSError(str(error)))
        if not any(log_dir.is_usable and log_dir.takes_partitions for log_dir in self._dirs):
            raise LogDirError("None of the log directories can be used: mend a disk, or set log.dirs to others.")
        progress.done()

    def _cannot_load(self, log_dir: LogDirState, error: OSError) -> None:
        path = log_dir.held.path
        self.previous_broker_epoch = -1  # what has failed was hardly left cleanly
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
        found = {**self._refused, **{d.held.path: d.failure for d in self._dirs if d.failure is not None}}
        return {path: found[path] for path in self._config.dirs if path in found}

    @property
    def has_failed_dirs(self) -> bool:
        """Whether some replica's log may be where it cannot be seen."""
        return bool(self.failures)

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

    def describe(self) -> list[LogDirView]:
        """Every directory for partitions, in the order of the configuration, with what is in it."""
        paths = [path for path in self._config.dirs if self._config.holds_partitions(path)]
        disk, copies_in = self._runtime.disk, self._futures.of
        return [view_of(disk, path, self._dirs, copies_in, self._dir_failed) for path in paths]

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
            self._displaced.pop(tp, None)
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
        self._futures.discard(tp)
        path = self._rename_away(tp, _DELETED_SUFFIX)
        if path is not None:
            self._trash.add([path], self._config.file_delete_delay_ms)

    def set_aside(self, tp: TopicPartition, reason: str) -> None:
        """Take a log out of the way that is not this partition's; see `strays`. `StorageError`."""
        path = self._rename_away(tp, STRAY_SUFFIX)
        if path is not None:
            _logger.error("%s %s; set aside as %s, to be removed by hand", tp, reason, path)

    def set_strays_aside(self, wanted: Callable[[TopicPartition], UUID | None]) -> list[TopicPartition]:
        """`wanted` gives the topic id of a partition that this node shall hold; returns those whose log it is not."""
        reasons = {tp: why_stray(log.topic_id, wanted(tp)) for tp, log in self.logs.items() if not log.is_failed}
        strays = [(tp, reason) for tp, reason in reasons.items() if reason is not None]
        for tp, reason in strays:
            expected = wanted(tp)
            if expected is not None and self._dir_of[tp].was_left_cleanly:
                self._displaced[tp] = expected
            try:
                self.set_aside(tp, reason)
            except StorageError as error:
                _logger.error("%s", error)
        return [tp for tp, _ in strays]

    def is_displaced(self, tp: TopicPartition, topic_id: UUID) -> bool:
        """Whether there was another log in the place of this partition's, which a clean stop had left."""
        return self._displaced.get(tp) == topic_id

    def _rename_away(self, tp: TopicPartition, ending: str, *, forget: bool = True) -> str | None:
        log_dir = self._dir_of.pop(tp, None)
        if log_dir is None:
            return None
        log = log_dir.logs.pop(tp)
        log_dir.clean_offsets.pop(tp, None)
        if forget:
            self.high_watermark_checkpoint.pop(tp, None)
        self._flusher.forget(tp)
        log.close(clean=False)
        suffix = f"-{tp.partition}.{self._runtime.rng.getrandbits(128):032x}{ending}"
        path = f"{log_dir.held.path}/{tp.topic[: _DIR_NAME_LENGTH_MAX - len(suffix)]}{suffix}"
        try:
            self._runtime.disk.rename(log.directory, path)
        except OSError as error:
            self._dir_failed(log_dir, error)
            raise StorageError(f"{log.directory} cannot be renamed to {path}: {error}") from error
        return path

    # Moves between directories

    @property
    def moving(self) -> list[TopicPartition]:
        """The partitions that have a copy in another directory."""
        return list(self._futures)

    def future_log(self, tp: TopicPartition) -> PartitionLog | None:
        """The copy that shall take the place of the partition's log."""
        held = self._futures.get(tp)
        return None if held is None else held[1]

    def begin_move(self, tp: TopicPartition, path: str) -> bool:
        """Begin a copy of the partition's log in the directory at `path`; whether there is something to copy.

        A copy elsewhere is thrown away. For a partition that is not here, the directory is remembered. Raises
        `ProtocolError`: LOG_DIR_NOT_FOUND, INVALID_TOPIC_EXCEPTION (its name leaves no room), `StorageError`.
        """
        target = self._target_of_move(path)
        current = self.get(tp)
        if current is None:
            self._preferred[tp] = path
            return False
        if self._dir_of[tp] is target:
            self._futures.discard(tp)
            return False

        config = current.config
        open_copy = lambda path: self._open(target, tp, config, clean_shutdown=True, future_path=path)  # noqa: E731
        try:
            self._futures.begin(tp, target, current.topic_id, open_copy)
        except OSError as error:
            self._dir_failed(target, error)
            raise StorageError(f"{path} cannot be written: {error}") from error
        return True

    def _target_of_move(self, path: str) -> LogDirState:
        wanted = path.rstrip("/") or path
        if wanted in self.failures:
            raise StorageError(f"log directory {path} is offline")
        target = next((d for d in self._dirs if d.held.path.rstrip("/") == wanted and d.takes_partitions), None)
        if target is None:
            raise ProtocolError(ErrorCode.LOG_DIR_NOT_FOUND, f"{path} is none of this broker's log directories")
        return target

    def move_target(self, tp: TopicPartition) -> UUID:
        """The id of the directory that the partition's copy is in."""
        return self._futures.dir_of(tp).held.directory_id

    def cancel_move(self, tp: TopicPartition) -> None:
        """Throw the partition's copy away."""
        self._futures.discard(tp)

    def finish_move(self, tp: TopicPartition) -> PartitionLog:
        """The copy, which holds all that the log does, takes its place; returns it.

        `StorageError` when the new disk refuses: then the log may be where it was (`get`), or be found after a restart.
        """
        current = self._dir_of[tp].logs[tp]
        config, start_offset = current.config, current.log_start_offset
        target = self._futures.dir_of(tp)
        try:
            self._futures.swap(tp, self._dir_of[tp].held.path, lambda: self._take_away(tp))
            starts = target.checkpoints.log_start_offsets
            starts.write({**starts.offsets, tp: start_offset})
        except OSError as error:
            self._dir_failed(target, error)
            raise StorageError(f"the move of {tp} could not be finished: {error}") from error
        log = self._open(target, tp, config, clean_shutdown=True)
        self._adopt(target, tp, log)
        return log

    def _take_away(self, tp: TopicPartition) -> None:
        path = self._rename_away(tp, _DELETED_SUFFIX, forget=False)
        if path is not None:
            self._trash.add([path], self._config.file_delete_delay_ms)

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

        self._upkeep = Upkeep(self._config, self._runtime, self, high_watermark)
        self._upkeep.start()
        self._timer = loop.call_later(self._config.flush_interval_s, self._flush_in_turns)

    def change_upkeep(self, to: UpkeepChange) -> None:
        """Nothing before `start`."""
        if self._upkeep is not None:
            self._upkeep.change(to)

    def _flush_in_turns(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._config.flush_interval_s, self._flush_in_turns)
        if self._slices is None or not self._slices.is_running:
            self._slices = self.flush_dirty(self._after_flush)

    def flush_dirty(self, done: Callable[[], None] = lambda: None) -> IncrementalTask[None]:
        """Begin to fsync rolled segments everywhere, and the whole log where `flush.ms` is over; some logs a turn."""
        return self._flusher.flush_dirty(self.logs, done)

    def _after_flush(self) -> None:
        if self._timer is not None:  # else the end has come meanwhile
            self._checkpoint_recovery_points_soon()
            removal = for_each(self._trash.take_due(), self._trash.remove_soon)
            self._slices = IncrementalTask(removal, steps_per_slice=_REMOVED_PER_TURN)

    def checkpoint_recovery_points(self) -> None:
        """Write the recovery points and log start offsets that changed. A refusing disk fails its directory."""
        self._write_each(LogDirState.write_recovery_points)

    def _write_each(self, write: Callable[[LogDirState], None]) -> None:
        for log_dir in self._dirs:
            if log_dir.is_usable:
                try:
                    write(log_dir)
                except OSError as error:
                    self._dir_failed(log_dir, error)

    def _checkpoint_recovery_points_soon(self) -> None:
        for log_dir in self._dirs:
            if log_dir.is_usable:
                log_dir.write_recovery_points_soon(partial(self._dir_failed, log_dir))

    # Compaction

    def clean_offset(self, tp: TopicPartition) -> int:
        """How far the partition is clean, 0 when it never was."""
        log_dir = self._dir_of.get(tp)
        return log_dir.clean_offsets.get(tp, 0) if log_dir is not None else 0

    def durable_offset(self, tp: TopicPartition) -> int:
        """The recovery point of the partition, as it is checkpointed."""
        log_dir = self._dir_of.get(tp)
        return log_dir.checkpoints.recovery_points.offsets.get(tp, 0) if log_dir is not None else 0

    def gaps_noted(self, tp: TopicPartition) -> bool:
        """Whether it is durable that offsets are missing from the partition; else that is begun, if it is here."""
        log_dir = self._dir_of.get(tp)
        return log_dir is not None and log_dir.is_usable and log_dir.gaps_noted(tp, partial(self._dir_failed, log_dir))

    def note_clean(self, tp: TopicPartition, offset: int) -> None:
        """The partition is clean up to `offset`; soon checkpointed. A refusing disk fails its directory."""
        log_dir = self._dir_of.get(tp)
        if log_dir is not None and log_dir.is_usable:
            log_dir.note_clean(tp, offset, partial(self._dir_failed, log_dir))

    def _note_gaps(self, log_dir: LogDirState, tp: TopicPartition, *, at_once: bool) -> None:
        try:
            log_dir.note_gaps(tp, at_once=at_once)
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
        self._write_each(lambda log_dir: log_dir.checkpoints.high_watermarks.write(log_dir.share_of(known)))

    def write_high_watermarks_soon(self, high_watermarks: Mapping[TopicPartition, int]) -> None:
        """Like `write_high_watermarks`, without blocking the loop; skipped while the last one is under way."""
        self.high_watermark_checkpoint.update(high_watermarks)
        known = self.high_watermark_checkpoint
        for log_dir in self._dirs:
            if log_dir.is_usable:
                failed = partial(self._dir_failed, log_dir)
                log_dir.checkpoints.high_watermarks.write_soon(log_dir.share_of(known), failed)

    def remove_deleted(self, *, all_now: bool = False) -> None:
        """Remove the directories of deleted partitions, and the files of deleted segments, whose time has come."""
        for path in self._trash.take_due(all_now=all_now):
            self._trash.remove(path)

    def shutdown(self, broker_epoch: int = -1) -> None:
        """Close every log, mark the directories where that went cleanly, and release them.

        A directory that was not loaded, or not to its end, is left as it was.
        """
        for timed in (self._timer, self._slices):
            if timed is not None:
                timed.cancel()
        if self._upkeep is not None:
            self._upkeep.stop()
        self._timer = self._slices = self._upkeep = None
        self._futures.close()
        cleanly_closed = [log_dir for log_dir in self._dirs if self._close_logs(log_dir)]
        self.checkpoint_recovery_points()
        for log_dir in cleanly_closed:
            self._mark_clean(log_dir, broker_epoch)
        for log_dir in self._dirs:
            log_dir.held.release()
        self._dirs.clear()
        self._dir_of.clear()

    # Inside

    def _load_dir(self, log_dir: LogDirState, progress: LoadProgress) -> Work[None]:
        disk, root = self._runtime.disk, log_dir.held.path
        names = [name for name in disk.listdir(root) if disk.is_dir(f"{root}/{name}")]
        report_strays(root, names)
        progress.found(sum(parse_dir_name(name) is not None for name in names))
        for name in names:
            if name.endswith(_DELETED_SUFFIX):
                self._trash.add([f"{root}/{name}"], 0)
                continue
            if name.endswith(FUTURE_SUFFIX):
                self._load_future(log_dir, name)
                continue
            tp = parse_dir_name(name)
            if tp is None or tp.topic == METADATA_TOPIC:
                continue
            if tp in self._dir_of:
                raise LogDirError(
                    f"Partition {tp} is in {self._dir_of[tp].held.path} and in {root}: remove the one that is stale."
                )
            log = yield from self._opening(log_dir, tp, self._config.defaults, log_dir.was_left_cleanly, None)
            self._adopt(log_dir, tp, log)
            progress.opened()
            yield PLAIN_STEP
            if tp in log_dir.checkpoints.clean_offsets.offsets:
                log_dir.clean_offsets[tp] = log_dir.checkpoints.clean_offsets.offsets[tp]
            if tp in log_dir.checkpoints.high_watermarks.offsets:
                self.high_watermark_checkpoint[tp] = log_dir.checkpoints.high_watermarks.offsets[tp]
        log_dir.is_loaded = True

    def _load_future(self, log_dir: LogDirState, name: str) -> None:
        tp, path = future_of(name), f"{log_dir.held.path}/{name}"
        if tp is None or self._futures.get(tp) is not None:
            self._trash.add([path], 0)
            return
        clean = log_dir.was_left_cleanly
        log = self._open(log_dir, tp, self._config.defaults, clean_shutdown=clean, future_path=path)
        self._futures.adopt(log_dir, tp, log)

    def _create(self, tp: TopicPartition, config: LogConfig, directory_id: UUID | None) -> PartitionLog:
        usable = [log_dir for log_dir in self._dirs if log_dir.is_usable and log_dir.takes_partitions]
        if not usable:
            raise StorageError("no log directory is left")
        preferred = self._preferred.pop(tp, None)
        asked = [log_dir for log_dir in usable if log_dir.held.path == preferred]
        asked += [log_dir for log_dir in usable if log_dir.held.directory_id == directory_id]
        log_dir = asked[0] if asked else min(usable, key=lambda candidate: len(candidate.logs))
        try:
            log_dir.checkpoints.forget_all_but(log_dir.logs, tp)
        except OSError as error:
            self._dir_failed(log_dir, error)
            raise StorageError(f"{log_dir.held.path} cannot be written: {error}") from error
        log = self._open(log_dir, tp, config, clean_shutdown=True)
        self._adopt(log_dir, tp, log)
        return log

    def _open(
        self,
        log_dir: LogDirState,
        tp: TopicPartition,
        config: LogConfig,
        *,
        clean_shutdown: bool,
        future_path: str | None = None,
    ) -> PartitionLog:
        return run_at_once(self._opening(log_dir, tp, config, clean_shutdown, future_path))

    def _opening(
        self, log_dir: LogDirState, tp: TopicPartition, config: LogConfig, clean_shutdown: bool, future_path: str | None
    ) -> Work[PartitionLog]:
        def files_deleted(log: PartitionLog, paths: list[str]) -> None:
            self._trash.add(paths, log.config.file_delete_delay_ms)

        hooks = LogHooks(
            on_failed=lambda _, error: self._dir_failed(log_dir, error),
            on_files_deleted=files_deleted,
            on_gaps=lambda _, at_once: self._note_gaps(log_dir, tp, at_once=at_once),
        )
        path = future_path or f"{log_dir.held.path}/{tp}"
        return log_dir.opening(self._runtime, tp, path, config, clean_shutdown, hooks)

    def _adopt(self, log_dir: LogDirState, tp: TopicPartition, log: PartitionLog) -> None:
        log_dir.logs[tp] = log
        self._dir_of[tp] = log_dir

    def _dir_failed(self, log_dir: LogDirState, error: OSError) -> None:
        if log_dir.failure is not None:
            return
        log_dir.failure = error
        _logger.error("log directory %s has failed and is used no more: %s", log_dir.held.path, error)
        for log in (*log_dir.logs.values(), *self._futures.of(log_dir).values()):
            log.fail("its log directory failed", error)
        self._config.on_dir_failed(log_dir.held.path, error)

    def _close_logs(self, log_dir: LogDirState) -> bool:
        is_clean = log_dir.is_usable or log_dir.was_left_cleanly
        for log in log_dir.logs.values():
            try:
                log.close()
            except StorageError as error:
                is_clean = False
                _logger.error("%s", error)
        return is_clean and log_dir.failure is None

    def _mark_clean(self, log_dir: LogDirState, broker_epoch: int) -> None:
        if log_dir.failure is not None:
            return
        try:
            log_dir.held.mark_clean_shutdown(broker_epoch)
        except OSError as error:
            _logger.error("log directory %s could not be marked as cleanly stopped: %s", log_dir.held.path, error)
