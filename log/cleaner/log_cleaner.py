"""Which log is compacted next, and the task that compacts it.

One log at a time, the one with the largest dirty ratio first. Between two steps other tasks of the loop run; pauses
limit the rate to `log.cleaner.io.max.bytes.per.second`. `cleaner-offset-checkpoint` has the offset up to which each log
is clean.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from ...runtime.incremental_work import Step, run_in_steps
from ...runtime.invariants import sometimes
from ...runtime.loop import TaskSet, report_error
from ...runtime.ports import Runtime
from ...wire.records import CorruptBatchError
from ...wire.types import TopicPartition
from ..errors import StorageError, is_no_space
from ..partition_log import PartitionLog
from .compaction import CleanAbortedError, CleanPlan, CleanResult, NoRoomError, clean

_logger = logging.getLogger(__name__)
_SLICE_BYTES = 64 * 1024
_SLICE_STEPS = 16
_PAUSE_S_MIN = 0.0005
_RETRY_AFTER_S = 300.0


@dataclass(frozen=True, slots=True)
class CleanerConfig:
    """log.cleaner.*: memory for the offset map and I/O a second in bytes, the pause when nothing is dirty."""

    enabled: bool = True
    dedupe_buffer_bytes: int = 128 * 1024 * 1024
    io_bytes_per_s: float = float("inf")
    backoff_ms: int = 15_000


class Dirtiness(NamedTuple):
    """The part of a log that may be cleaned: keys from `first_dirty_offset` to `end_offset`."""

    first_dirty_offset: int
    end_offset: int
    clean_bytes: int
    dirty_bytes: int
    is_overdue: bool

    @property
    def ratio(self) -> float:
        """Dirty bytes as a part of all bytes up to `end_offset`."""
        return self.dirty_bytes / max(self.clean_bytes + self.dirty_bytes, 1)


def measure(
    log: PartitionLog, clean_offset: int, high_watermark: int, durable_offset: int, now_ms: int
) -> Dirtiness | None:
    """How dirty a log is, None when nothing can be cleaned.

    Not cleaned are: the active segment, records that are not committed, or in a transaction whose end is not, records
    younger than `min.compaction.lag.ms`, and records above the checkpointed recovery point. Recovery may read the
    latter again and must find the first record of each leader epoch. Source: LogCleanerManager.cleanableOffsets of
    Kafka.
    """
    segments = log.segments
    unstable = log.producers.first_unstable_offset(high_watermark)
    bound = min(high_watermark, durable_offset, log.recovery_point)
    if unstable is not None:
        bound = min(bound, unstable)
    start = max(clean_offset, log.log_start_offset)
    if start > bound:
        start = log.log_start_offset
    config = log.config
    clean_bytes = dirty_bytes = 0
    end, is_overdue = start, False
    for segment in segments[:-1]:
        if segment.next_offset > bound:
            break
        if segment.next_offset <= start:
            clean_bytes += segment.size_bytes
            continue
        newest_ms = segment.largest_timestamp()
        if config.min_compaction_lag_ms > 0 and newest_ms > now_ms - config.min_compaction_lag_ms:
            break
        dirty_bytes += segment.size_bytes
        end = segment.next_offset
        is_overdue = is_overdue or 0 <= segment.earliest_timestamp() < now_ms - config.max_compaction_lag_ms
    return Dirtiness(start, end, clean_bytes, dirty_bytes, is_overdue) if dirty_bytes else None


class CleanerHost(Protocol):
    """What the cleaner needs to know and to store about all logs; `LogDirectories` implements it."""

    @property
    def logs(self) -> Mapping[TopicPartition, PartitionLog]:
        """Every partition's log."""
        ...

    def clean_offset(self, tp: TopicPartition) -> int:
        """The offset up to which the partition is clean, 0 when it never was."""
        ...

    def durable_offset(self, tp: TopicPartition) -> int:
        """The recovery point of the partition in the checkpoint file."""
        ...

    def gaps_noted(self, tp: TopicPartition) -> bool:
        """Whether it is durable that offsets may be missing from the log, as it must be first; if not, it is begun."""
        ...

    def note_clean(self, tp: TopicPartition, offset: int) -> None:
        """The partition is clean up to `offset`; the checkpoint is written soon."""
        ...

    def on_storage_error(self, tp: TopicPartition, error: OSError) -> None:
        """The disk under the partition's log has refused: its log directory fails."""
        ...


class LogCleaner:
    """Compacts the logs of a node, one at a time. Made and used on the running loop."""

    def __init__(
        self,
        config: CleanerConfig,
        runtime: Runtime,
        host: CleanerHost,
        high_watermark_of: Callable[[TopicPartition], int],
    ) -> None:
        self._config = config
        self._runtime = runtime
        self._host = host
        self._high_watermark_of = high_watermark_of
        self._tasks = TaskSet()
        self._not_before_s: dict[TopicPartition, float] = {}
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()

    def start(self) -> None:
        """Begin, unless `log.cleaner.enable` is off."""
        if self._config.enabled:
            self._tasks.spawn(self._run(), name="log cleaner")

    def stop(self) -> None:
        """End at the next step; an incomplete copy is removed."""
        self._tasks.cancel_soon()

    def change(self, config: CleanerConfig) -> None:
        """Use these settings from now on; the present pause starts again."""
        if config != self._config:
            self._config = config
            self._changed.set()

    async def _pause(self) -> None:
        """Wait for the back-off, which starts again when it is changed."""
        while True:
            self._changed.clear()
            try:
                async with asyncio.timeout(self._config.backoff_ms / 1000):
                    await self._changed.wait()
            except TimeoutError:
                return

    async def _run(self) -> None:
        while True:
            await self._pause()
            while (target := self.filthiest()) is not None:
                await self._clean_alone(*target)

    async def _clean_alone(self, tp: TopicPartition, log: PartitionLog, found: Dirtiness) -> None:
        """Compact one log. An error that nobody has expected must not end the compaction of all others."""
        try:
            await self.clean(tp, log, found)
        except Exception as error:
            self._on_unexpected(tp, error)

    def filthiest(self) -> tuple[TopicPartition, PartitionLog, Dirtiness] | None:
        """The log to clean next, None when no log is dirty enough.

        Source: LogCleanerManager.grabFilthiestCompactedLog of Apache Kafka.
        """
        now_ms, now_s = self._runtime.clock.wall_ms(), self._loop.time()
        best: tuple[TopicPartition, PartitionLog, Dirtiness] | None = None
        for tp, log in self._host.logs.items():
            if not log.config.is_compacted or log.is_failed or log.is_closed:
                continue
            if log.is_being_mended or log.is_changing_names or self._not_before_s.get(tp, 0) > now_s:
                continue
            try:
                found = measure(
                    log, self._host.clean_offset(tp), self._high_watermark_of(tp), self._host.durable_offset(tp), now_ms
                )
            except OSError as error:
                self._on_refused(tp, log, error)
                continue
            except Exception as error:
                self._on_unexpected(tp, error)
                continue
            if found is None or not (found.is_overdue or found.ratio > log.config.min_cleanable_dirty_ratio):
                continue
            if self._host.gaps_noted(tp) and (best is None or found.ratio > best[2].ratio):
                best = (tp, log, found)
        return best

    async def clean(self, tp: TopicPartition, log: PartitionLog, found: Dirtiness) -> CleanResult | None:
        """Compact one log; None if the log has changed meanwhile, or if it failed, and is tried again minutes later."""
        plan = CleanPlan(
            found.first_dirty_offset, found.end_offset, self._runtime.clock.wall_ms(), self._config.dedupe_buffer_bytes
        )
        try:
            pace = _Pace(lambda: self._config.io_bytes_per_s)
            result = await run_in_steps(clean(log, self._runtime.disk, plan), self._runtime.disk, pace.pause_s)
        except CleanAbortedError as reason:
            _logger.info("%s: compaction given up: %s", tp, reason)
            return None  # the log has changed meanwhile: it is measured anew at once
        except StorageError as error:
            _logger.error("%s: %s", tp, error)
        except OSError as error:
            self._on_refused(tp, log, error)
        except (CorruptBatchError, NoRoomError) as error:
            sometimes(isinstance(error, CorruptBatchError), "compaction met a damaged batch")
            _logger.error("%s cannot be compacted: %s", tp, error)
        else:
            self._host.note_clean(tp, result.clean_offset)
            _logger.info("%s: clean up to %d, %d of %d bytes left", tp, result.clean_offset, *result[:0:-1])
            return result
        self._retry_later(tp)
        return None

    def _on_refused(self, tp: TopicPartition, log: PartitionLog, error: OSError) -> None:
        """The disk refused to be read or written: its directory fails, unless it is only full.

        The files of a log that was closed meanwhile may be gone.
        """
        _logger.error("%s cannot be compacted now: %s", tp, error)
        if not (is_no_space(error) or log.is_closed):
            self._host.on_storage_error(tp, error)
        self._retry_later(tp)

    def _on_unexpected(self, tp: TopicPartition, error: Exception) -> None:
        report_error(f"compaction of {tp} has failed", error)
        self._retry_later(tp)

    def _retry_later(self, tp: TopicPartition) -> None:
        self._not_before_s[tp] = self._loop.time() + _RETRY_AFTER_S


class _Pace:
    """Says when a compaction pauses, and for how long: after some bytes, some steps, or a step without progress."""

    def __init__(self, io_bytes_per_s: Callable[[], float]) -> None:
        self._io_bytes_per_s = io_bytes_per_s
        self._bytes = self._steps = 0

    def pause_s(self, step: Step) -> float | None:
        """Seconds to pause after this step, None to go on at once."""
        self._bytes += step.done_bytes
        self._steps += 1
        if self._bytes < _SLICE_BYTES and step.done_bytes and self._steps < _SLICE_STEPS:
            return None
        pause_s = max(self._bytes / self._io_bytes_per_s(), _PAUSE_S_MIN)
        self._bytes = self._steps = 0
        return pause_s
