"""All partitions' logs of a node, in its log directories.

`acquire` locks the directories (a node with only the metadata log needs no more), `load` opens the logs in them,
`start` begins the periodic maintenance, `shutdown` ends it all. The metadata log is in one of the directories, but the
quorum opens it.

A directory whose disk refuses is used no more, at the start and later; its logs refuse everything, and the others go on
(KIP-858). Only what the node cannot work without must be there: the directory of the metadata log, and one directory
for partitions.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from uuid import UUID

from ...runtime.incremental_work import run_at_once, run_in_steps
from ...runtime.invariants import sometimes
from ...runtime.ports import Clock, Runtime
from ...wire.errors import ErrorCode, ProtocolError
from ...wire.types import TopicPartition
from ..config import LogConfig
from ..directory_names import DELETED_SUFFIX, STRAY_SUFFIX
from ..errors import NoSpaceError, StorageError
from ..partition_log import PartitionLog
from ..segment.batch_scan import Damage
from .delayed_deletion import DelayedDeletion
from .future_logs import FutureLogs
from .log_directories import LogDirectories
from .log_directory import LogDirectory
from .log_loading import METADATA_LOG, LogLoader
from .log_maintenance import LogMaintenance
from .log_manager_config import LogMaintenanceChange, LogManagerConfig
from .log_scrubber import LogScrubber
from .stray_logs import why_stray

_logger = logging.getLogger(__name__)
_TELL_EVERY_MS = 1_000


class LogManager:
    """Decides where a partition's log is made, and when it goes; keeps the high watermarks that are checkpointed."""

    def __init__(self, runtime: Runtime, config: LogManagerConfig) -> None:
        self._runtime = runtime
        self._config = config
        self.directories = LogDirectories(runtime, config)
        self.deletion = DelayedDeletion(runtime.disk)
        self.future_logs = FutureLogs(runtime, config, self.directories, self.deletion)
        self._loader = LogLoader(runtime, config, self.directories, self.deletion)
        self._maintenance: LogMaintenance | None = None
        self.metadata_scrubber: LogScrubber | None = None
        """Looks for damage in the metadata log; None before `scrub_metadata_log`."""
        self._displaced: dict[TopicPartition, UUID] = {}
        """Partitions in whose place a stray log, or none, was at a clean start, with their topic ids."""

    # Start and shutdown

    def acquire(self) -> None:
        """Lock the directories and check that they are this node's; calling again is harmless. `LogDirError`."""
        self.directories.acquire()

    def load(self) -> None:
        """Open every partition's log, with recovery where the last shutdown was not clean. `LogDirError`."""
        self.begin_load()
        run_at_once(self._loader.loading())

    def begin_load(self) -> None:
        """Lock the directories, and learn how they were left. `LogDirError`."""
        self.acquire()
        self._loader.begin()

    async def load_soon(self) -> None:
        """After `begin_load`, open every partition's log without blocking the loop. `LogDirError`."""
        await run_in_steps(self._loader.loading(), self._runtime.disk)

    @property
    def previous_broker_epoch(self) -> int:
        """The broker epoch of the last shutdown, if that was clean in all directories, else -1 (KIP-966)."""
        return self._loader.previous_broker_epoch

    def start(
        self,
        high_watermark_of: Callable[[TopicPartition], int | None] | None = None,
        on_damaged: Callable[[TopicPartition, Damage], None] = lambda tp, damage: None,
        on_log_start_incremented: Callable[[TopicPartition], None] = lambda tp: None,
    ) -> None:
        """Begin the periodic maintenance, on the running loop.

        `high_watermark_of` knows the high watermarks of the partitions; where it returns None, the checkpointed one
        counts. `on_damaged` is told of each log whose files were found to be damaged, and
        `on_log_start_incremented` of each whose beginning retention has deleted.
        """

        def high_watermark(tp: TopicPartition) -> int:
            known = high_watermark_of(tp) if high_watermark_of is not None else None
            return self.directories.high_watermarks.get(tp, 0) if known is None else known

        self._maintenance = LogMaintenance(
            self._config,
            self._runtime,
            self.directories,
            self.deletion,
            high_watermark,
            on_damaged,
            on_log_start_incremented,
        )
        self._maintenance.start()

    @property
    def scrubber(self) -> LogScrubber | None:
        """Looks for damage in the files of logs; None before `start`."""
        return None if self._maintenance is None else self._maintenance.scrubber

    def scrub_metadata_log(self, log: PartitionLog, on_damaged: Callable[[Damage], None]) -> None:
        """Begin to look for damage in the metadata log, which is opened by the quorum, on the running loop."""
        log_dir = next(one for one in self.directories if one.path == log.directory.rpartition("/")[0])
        self.metadata_scrubber = LogScrubber(
            self._config.scrubber, self._runtime, _MetadataLogHost(log, log_dir), lambda _, damage: on_damaged(damage)
        )
        self.metadata_scrubber.start()

    def change_maintenance(self, to: LogMaintenanceChange) -> None:
        """Use these settings for maintenance from now on; has no effect before `start`."""
        if self._maintenance is not None:
            self._maintenance.change(to)

    def shutdown(self, broker_epoch: int = -1) -> None:
        """Close every log, write the clean shutdown file where that succeeded, and release the directories.

        A directory whose logs were not all opened is left as it was.
        """
        if self._maintenance is not None:
            self._maintenance.stop()
        self._maintenance = None
        if self.metadata_scrubber is not None:
            self.metadata_scrubber.stop()
        self.metadata_scrubber = None
        progress = _ClosingProgress(
            sum(len(_open_logs(one)) for one in self.directories), self._runtime.clock, self._config.on_progress
        )
        cleanly_closed = [log_dir for log_dir in self.directories if _close_logs(log_dir, progress)]
        self.checkpoint_recovery_points()
        for log_dir in cleanly_closed:
            _mark_clean(log_dir, broker_epoch)
        self.directories.release()

    # Partitions

    @property
    def logs(self) -> Mapping[TopicPartition, PartitionLog]:
        """Every partition's log, directory by directory."""
        return self.directories.logs

    def get(self, tp: TopicPartition) -> PartitionLog | None:
        """The partition's log, None when this node has none."""
        return self.directories.get(tp)

    def create(
        self, tp: TopicPartition, topic_id: UUID, config: LogConfig | None = None, directory_id: UUID | None = None
    ) -> PartitionLog:
        """The log, made if there is none: in the given directory, else where there is space, and fewest logs are.

        A directory whose disk refuses for want of space is passed over; `NoSpaceError` when all of them refuse.
        INCONSISTENT_TOPIC_ID when there is a log of another topic of that name: `delete` it first. `StorageError`.
        """
        log = self.get(tp)
        if log is None:
            log = self._create(tp, topic_id, config or self._config.defaults, directory_id)
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

    def _create(self, tp: TopicPartition, topic_id: UUID, config: LogConfig, directory_id: UUID | None) -> PartitionLog:
        usable = self.directories.usable
        if not usable:
            raise StorageError("no log directory is left")
        self.future_logs.discard(tp)  # it can only be a copy of a log that is gone
        preferred = self.future_logs.take_preferred(tp)

        def rank(log_dir: LogDirectory) -> tuple[bool, bool, bool, int]:
            is_asked = log_dir.path == preferred, log_dir.directory_id == directory_id
            return not is_asked[0], not is_asked[1], log_dir.is_full, len(log_dir.logs)

        *others, last = sorted(usable, key=rank)
        for log_dir in others:
            try:
                return self._create_in(log_dir, tp, topic_id, config)
            except NoSpaceError:
                sometimes(True, "a log directory had no space for a new log, and another one was tried")
        return self._create_in(last, tp, topic_id, config)

    def _create_in(self, log_dir: LogDirectory, tp: TopicPartition, topic_id: UUID, config: LogConfig) -> PartitionLog:
        log = log_dir.make_log(self._runtime, tp, topic_id, config, self.deletion)
        self.directories.add(log_dir, tp, log)
        return log

    def delete(self, tp: TopicPartition) -> None:
        """Delete the partition: its directory is renamed now, and removed `file.delete.delay.ms` later. `StorageError`.

        A loss of power may bring it back; its topic id then says that it is stray.
        """
        path = self._rename_away(tp, DELETED_SUFFIX)
        if path is not None:
            self.deletion.add([path], self._config.file_delete_delay_ms)

    def set_aside(self, tp: TopicPartition, reason: str) -> None:
        """Rename a stray log, which belongs to another topic than this partition. `StorageError`."""
        path = self._rename_away(tp, STRAY_SUFFIX)
        if path is not None:
            _log_set_aside(tp, reason, path)

    def set_strays_aside(self, wanted: Callable[[TopicPartition], UUID | None]) -> list[TopicPartition]:
        """Set every stray log aside, and return their partitions.

        `wanted` gives the topic id of a partition that this node should have, None for any other partition. Where a
        stray log was displaced that this node left there by a clean shutdown, the partition itself had its data there,
        or none; in any case an empty log must not pass for its data (`is_displaced`). No more must it where a log is
        gone, such as one whose directory somebody removed. Stray future logs are removed. Of the logs of several topics
        of the same name the wanted one is kept.
        """
        self._displace_lost_logs(wanted)
        for one in self.directories:
            for tp, log in list(one.duplicate_logs.items()):
                self._settle_duplicate(one, tp, log.topic_id, wanted(tp))
        reasons = {tp: why_stray(log.topic_id, wanted(tp)) for tp, log in self.logs.items() if not log.is_failed}
        strays = [(tp, reason) for tp, reason in reasons.items() if reason is not None]
        for tp, reason in strays:
            expected, log_dir = wanted(tp), self.directories.dir_of(tp)
            if expected is not None and log_dir is not None and log_dir.was_cleanly_shut_down:
                self._displaced[tp] = expected
            try:
                self.set_aside(tp, reason)
            except StorageError as error:
                _logger.error("%s", error)
        self.future_logs.discard_strays(wanted)
        return [tp for tp, _ in strays]

    def _displace_lost_logs(self, wanted: Callable[[TopicPartition], UUID | None]) -> None:
        for one in self.directories:
            for tp in one.lost_logs:
                expected = wanted(tp)
                if expected is not None and self.get(tp) is None:
                    sometimes(True, "the log of a partition was gone after a clean stop")
                    _logger.error("the log of %s is gone: it was in %s when this node stopped cleanly", tp, one.path)
                    self._displaced[tp] = expected

    def _settle_duplicate(
        self, log_dir: LogDirectory, tp: TopicPartition, topic_id: UUID | None, wanted: UUID | None
    ) -> None:
        """Set the duplicate aside; or, if it is the wanted log, the one whose place it takes."""
        try:
            if topic_id != wanted:
                path = self.directories.rename_duplicate_away(log_dir, tp, STRAY_SUFFIX)
                _log_set_aside(tp, f"has topic id {topic_id}, not {wanted}", path)
                return
            former = self.get(tp)
            if former is not None:
                self.set_aside(tp, f"has topic id {former.topic_id}, not {wanted}")
        except StorageError as error:
            _logger.error("%s", error)
        if topic_id == wanted:
            self.directories.add_loaded(log_dir, tp, log_dir.duplicate_logs.pop(tp))

    def is_displaced(self, tp: TopicPartition, topic_id: UUID) -> bool:
        """Whether a stray log, or none, was in the partition's place, where a clean shutdown had left its records."""
        return self._displaced.get(tp) == topic_id

    def _rename_away(self, tp: TopicPartition, suffix: str) -> str | None:
        self.future_logs.discard(tp)
        if self.get(tp) is not None:
            self.directories.high_watermarks.pop(tp, None)
        return self.directories.rename_away(tp, suffix)

    # Checkpoints

    def checkpoint_recovery_points(self) -> None:
        """Write the recovery points and log start offsets that changed. A refusing disk fails its directory."""
        self.directories.write_each(LogDirectory.write_recovery_points)

    def note_high_watermarks(self, high_watermarks: Mapping[TopicPartition, int]) -> None:
        """Remember these high watermarks for the next write; other partitions keep the last known one."""
        self.directories.high_watermarks.update(high_watermarks)

    def write_high_watermarks(self) -> None:
        """Write the known high watermarks to the checkpoint files. A refusing disk fails its directory."""
        self.directories.write_each(LogDirectory.write_high_watermarks)

    def write_high_watermarks_soon(self) -> None:
        """Like `write_high_watermarks`, without blocking the loop; skipped while the last write is under way."""
        for log_dir in self.directories:
            if log_dir.is_usable:
                log_dir.write_high_watermarks_soon()


class _MetadataLogHost:
    """The metadata log for its scrubber (`ScrubberHost`); it was checked as a whole when it was opened."""

    was_cleanly_shut_down = True

    def __init__(self, log: PartitionLog, log_dir: LogDirectory) -> None:
        self.logs = {METADATA_LOG: log}
        self._log_dir = log_dir
        self.note_damage(METADATA_LOG, None)

    def damaged_offsets(self) -> dict[TopicPartition, int]:
        """None is checked before its time."""
        return {}

    def note_damage(self, tp: TopicPartition, offset: int | None) -> None:
        """Write it to the checkpoint in the log's directory."""
        self._log_dir.note_damage(tp, offset)


class _ClosingProgress:
    """How many logs are closed; logged and told about each second.

    It reads the wall clock, because no iteration of the loop ends meanwhile.
    """

    def __init__(self, count: int, clock: Clock, tell: Callable[[str], None]) -> None:
        self._count = count
        self._clock = clock
        self._tell = tell
        self._closed = 0
        self._told_at_ms = clock.wall_ms()

    def closed(self) -> None:
        """One more log is closed."""
        self._closed += 1
        now_ms = self._clock.wall_ms()
        if abs(now_ms - self._told_at_ms) >= _TELL_EVERY_MS:
            self._told_at_ms = now_ms
            _logger.info("closing logs: %d of %d", self._closed, self._count)
            self._tell(f"has closed {self._closed:,} of {self._count:,} logs")


def _log_set_aside(tp: TopicPartition, reason: str, path: str | None) -> None:
    _logger.error("%s %s; set aside as %s, to be removed by hand", tp, reason, path)


def _open_logs(log_dir: LogDirectory) -> list[PartitionLog]:
    return [*log_dir.future_logs.values(), *log_dir.logs.values(), *log_dir.duplicate_logs.values()]


def _close_logs(log_dir: LogDirectory, progress: _ClosingProgress) -> bool:
    """Close the logs of a directory; whether everything in it is durable, copies that are not complete included."""
    is_clean = log_dir.is_usable or log_dir.was_cleanly_shut_down
    for log in _open_logs(log_dir):
        try:
            log.close()
        except StorageError as error:
            is_clean = False
            _logger.error("%s", error)
        progress.closed()
    log_dir.future_logs.clear()
    return is_clean and log_dir.failure is None


def _mark_clean(log_dir: LogDirectory, broker_epoch: int) -> None:
    if log_dir.failure is not None:
        return
    try:
        log_dir.mark_clean_shutdown(broker_epoch)
    except OSError as error:
        _logger.error("log directory %s could not be marked as cleanly stopped: %s", log_dir.path, error)
