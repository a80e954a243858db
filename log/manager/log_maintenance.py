"""Everything that is done to a node's logs periodically, beside appends and reads.

- `LogFlusher`: rolled segments are fsynced, and whole logs after `flush.ms`; then recovery points are checkpointed and
  deleted files are removed.
- `RetentionRounds`: segments roll by age, expired segments are deleted, silent producers are forgotten, files closed.
- `LogCleaner`: compaction (folder `cleaner/`).
- `LogScrubber`: all logs are read again, and damage on the disk is found.
- `RecoveryPointAdvancer`: active segments are made durable, so that recovery has little to check.

Each round visits some logs in each iteration of the loop, so that thousands of logs do not block it. A log with nothing
to do costs some microseconds a round.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace

from ...runtime.incremental_work import IncrementalTask, for_each
from ...runtime.loop import report_error
from ...runtime.ports import Clock, Runtime
from ...wire.types import TopicPartition
from ..cleaner.log_cleaner import LogCleaner
from ..durability import ignore_failure
from ..errors import NoSpaceError, StorageError
from ..partition_log import PartitionLog
from ..segment.batch_scan import Damage
from .delayed_deletion import DelayedDeletion
from .log_directories import LogDirectories
from .log_manager_config import LogMaintenanceChange, LogManagerConfig, RetentionConfig
from .log_scrubber import LogScrubber
from .recovery_point_advancer import RecoveryPointAdvancer

_logger = logging.getLogger(__name__)
_LOGS_PER_FLUSH_SLICE = 500
_LOGS_PER_RETENTION_SLICE = 20
_REMOVALS_PER_SLICE = 100
_FIRST_RETENTION_ROUND_AFTER_MS = 30_000


class LogMaintenance:
    """All periodic work on the logs of a node, with the settings as they are now. Made and used on the running loop."""

    def __init__(
        self,
        config: LogManagerConfig,
        runtime: Runtime,
        directories: LogDirectories,
        deletion: DelayedDeletion,
        high_watermark_of: Callable[[TopicPartition], int],
        on_damaged: Callable[[TopicPartition, Damage], None],
        on_log_start_incremented: Callable[[TopicPartition], None],
    ) -> None:
        self._config = config
        self._flusher = LogFlusher(config.flush_interval_s, directories, deletion)
        self._retention = RetentionRounds(
            config.retention, runtime.clock, lambda: directories.logs, high_watermark_of, on_log_start_incremented
        )
        self._cleaner = LogCleaner(config.cleaner, runtime, directories, high_watermark_of)
        self.scrubber = LogScrubber(config.scrubber, runtime, directories, on_damaged)
        self._recovery_points = RecoveryPointAdvancer(config.recovery_points, lambda: directories.logs)

    def start(self) -> None:
        """Begin, on the running loop."""
        self._retention.start()
        self._cleaner.start()
        self.scrubber.start()
        self._recovery_points.start()
        self._flusher.start()

    def stop(self) -> None:
        """Begin nothing more."""
        self._flusher.stop()
        self._retention.stop()
        self._cleaner.stop()
        self.scrubber.stop()
        self._recovery_points.stop()

    def change(self, to: LogMaintenanceChange) -> None:
        """Use these settings from now on. A compaction under way keeps its old ones, but for its pace."""
        self._retention.config = replace(self._config.retention, producer_expiration_ms=to.producer_expiration_ms)
        self._cleaner.change(
            replace(
                self._config.cleaner,
                dedupe_buffer_bytes=to.dedupe_buffer_bytes,
                io_bytes_per_s=to.io_bytes_per_s,
                backoff_ms=to.backoff_ms,
            )
        )


class LogFlusher:
    """Flushes logs in rounds; after each round it checkpoints recovery points and removes deleted files."""

    def __init__(self, interval_s: float, directories: LogDirectories, deletion: DelayedDeletion) -> None:
        self._interval_s = interval_s
        self._directories = directories
        self._deletion = deletion
        self._timer: asyncio.TimerHandle | None = None
        self._task: IncrementalTask[None] | None = None

    def start(self) -> None:
        """Begin, on the running loop."""
        self._timer = asyncio.get_running_loop().call_later(self._interval_s, self._begin_round)

    def stop(self) -> None:
        """Begin nothing more."""
        for timed in (self._timer, self._task):
            if timed is not None:
                timed.cancel()
        self._timer = self._task = None

    def _begin_round(self) -> None:
        self.start()
        if self._task is None or not self._task.is_running:
            self._task = flush_dirty(self._directories.logs, self._after_flush)

    def _after_flush(self) -> None:
        if self._timer is None:  # stopped meanwhile
            return
        for log_dir in self._directories:
            if log_dir.is_usable:
                log_dir.write_recovery_points_soon()
        removal = for_each(self._deletion.take_due(), self._deletion.remove_soon)
        self._task = IncrementalTask(removal, steps_per_slice=_REMOVALS_PER_SLICE)


def flush_dirty(
    logs: Mapping[TopicPartition, PartitionLog], done: Callable[[], None] = lambda: None
) -> IncrementalTask[None]:
    """Begin to fsync the rolled segments of all logs, and whole logs after `flush.ms`; then call `done`.

    Source: LogManager.flushDirtyLogs of Apache Kafka.
    """
    now_s = asyncio.get_running_loop().time()
    work = for_each(list(logs.values()), lambda log: _flush_if_dirty(log, now_s))
    return IncrementalTask(work, steps_per_slice=_LOGS_PER_FLUSH_SLICE, done=lambda _: done())


def _flush_if_dirty(log: PartitionLog, now_s: float) -> None:
    if log.is_failed or log.is_closed:
        return
    durability = log.durability
    if durability.last_flush_s is None:
        durability.last_flush_s = now_s
    if log.log_end_offset == log.recovery_point and not durability.has_unsynced_segments:
        durability.last_flush_s = now_s
    elif (now_s - durability.last_flush_s) * 1000 >= log.config.flush_ms:
        durability.last_flush_s = now_s
        log.flush_soon().add_done_callback(ignore_failure)
    elif durability.has_unsynced_segments:
        durability.flush_rolled_soon().add_done_callback(ignore_failure)


class RetentionRounds:
    """Visits all logs every `log.retention.check.interval.ms`: rolls old segments, deletes expired ones.

    `high_watermark_of` gives a partition's high watermark: nothing at or above it is deleted.
    `on_log_start_incremented` is told of each log of which something was deleted.
    Source: LogManager.cleanupLogs of Apache Kafka.
    """

    def __init__(
        self,
        config: RetentionConfig,
        clock: Clock,
        logs: Callable[[], Mapping[TopicPartition, PartitionLog]],
        high_watermark_of: Callable[[TopicPartition], int],
        on_log_start_incremented: Callable[[TopicPartition], None] = lambda tp: None,
    ) -> None:
        self.config = config
        self._clock = clock
        self._logs = logs
        self._high_watermark_of = high_watermark_of
        self._on_log_start_incremented = on_log_start_incremented
        self._timer: asyncio.TimerHandle | None = None
        self._round: IncrementalTask[None] | None = None

    def start(self) -> None:
        """Begin, on the running loop."""
        self._schedule(min(self.config.interval_ms, _FIRST_RETENTION_ROUND_AFTER_MS))

    def stop(self) -> None:
        """Begin nothing more."""
        for timed in (self._timer, self._round):
            if timed is not None:
                timed.cancel()
        self._timer = self._round = None

    def _schedule(self, delay_ms: int) -> None:
        self._timer = asyncio.get_running_loop().call_later(delay_ms / 1000, self._begin_round)

    def _begin_round(self) -> None:
        work = for_each(list(self._logs().items()), lambda item: self._visit_alone(*item))
        self._round = IncrementalTask(
            work,
            steps_per_slice=_LOGS_PER_RETENTION_SLICE,
            done=lambda _: self._schedule(self.config.interval_ms),
        )

    def _visit_alone(self, tp: TopicPartition, log: PartitionLog) -> None:
        """Visit a log. An error is reported, and ends neither the round nor those that follow: disks would fill."""
        try:
            self.visit(tp, log)
        except Exception as error:
            report_error(f"retention of {tp} has failed", error)

    def visit(self, tp: TopicPartition, log: PartitionLog) -> None:
        """Do what is due for one log. The log itself reports a disk that refuses."""
        if log.is_failed or log.is_closed:
            return
        now_ms = self._clock.wall_ms()
        try:
            _roll_if_due(log, now_ms)
            deleted = log.delete_expired(now_ms, self._high_watermark_of(tp))
        except StorageError as error:
            _logger.error("%s", error)
            return
        log.durability.close_idle_files()
        if deleted:
            _logger.info("%s: %d segments deleted, the log starts at %d", tp, deleted, log.log_start_offset)
            self._on_log_start_incremented(tp)
        expired = log.producers.expire(_monotonic_ms(), self.config.producer_expiration_ms)
        if expired:
            _logger.info("%s: %d silent producers forgotten", tp, expired)


def _roll_if_due(log: PartitionLog, now_ms: int) -> None:
    try:
        log.roll_if_due(now_ms)
    except NoSpaceError as error:
        _logger.warning("%s", error)  # what is deleted next makes space


def _monotonic_ms() -> int:
    return int(asyncio.get_running_loop().time() * 1000)
