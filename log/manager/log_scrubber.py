"""Reads all logs again in the background, slowly, and finds batches that are damaged on the disk.

Consumers and followers get batches as they are in the file, often without this process reading them. So nobody here
would notice a flipped bit, and a replica could stay in the ISR with other bytes than its leader. The scrubber checks
the CRC of every batch. No CRC covers its offset and epoch: these are compared with the batches around it, and with the
leader epochs that the log knows. It reads one log after the other every `log.scrub.interval.ms`, at most
`log.scrub.io.max.bytes.per.second`.

The first damaged offset of each log is kept in `damaged-offset-checkpoint`: a log that was damaged when the node
stopped is checked first after the start. What is done about damage is decided by who hosts the replicas.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Protocol

from ...runtime.incremental_work import FileRange, Step, Work, run_in_steps
from ...runtime.invariants import sometimes
from ...runtime.loop import TaskSet
from ...runtime.ports import Runtime
from ...wire.records import BATCH_HEADER_SIZE, read_header
from ...wire.types import TopicPartition
from ..partition_log import PartitionLog
from ..segment.batch_scan import Damage, complaint_about
from ..segment.segment import LOG_SUFFIX, Segment, segment_path
from .log_manager_config import ScrubberConfig

_WINDOW_BYTES = 64 * 1024
_PACE_AFTER_MENDING = 16
"""A log that was mended is checked so much faster, since its replica stays out of the ISR until it is."""
_logger = logging.getLogger(__name__)


class ScrubberHost(Protocol):
    """The logs that are scrubbed; `LogDirectories` implements it."""

    @property
    def logs(self) -> Mapping[TopicPartition, PartitionLog]:
        """Every partition's log."""
        ...

    @property
    def was_cleanly_shut_down(self) -> bool:
        """Whether the previous shutdown was clean; if not, the first check begins at once."""
        ...

    def damaged_offsets(self) -> Mapping[TopicPartition, int]:
        """The damaged logs by the checkpoint files."""
        ...

    def note_damage(self, tp: TopicPartition, offset: int | None) -> None:
        """The partition's log is damaged at the offset, or sound (None); the checkpoint is written soon."""
        ...


def find_damage(log: PartitionLog, from_offset: int = 0) -> Work[Damage | None]:
    """Check every batch of a log, or of its segments from the one with this offset on; what is damaged first.

    None when all are sound, or the log was truncated or closed meanwhile. Raises `OSError`.
    """
    history, offset = log.history, max(log.log_start_offset, from_offset)
    while True:
        segment = next((one for one in log.segments if one.next_offset > offset), None)
        if segment is None:
            return None
        following = next((one.base_offset for one in log.segments if one.base_offset > segment.base_offset), None)
        check = _SegmentCheck(log, segment, history, following)
        yield from check.run()
        if check.damage is not None or not check.is_valid:
            return check.damage
        offset = max(segment.next_offset, offset + 1)


class _SegmentCheck:
    """Checks the batches of one segment that is part of a log."""

    def __init__(self, log: PartitionLog, segment: Segment, history: int, following: int | None) -> None:
        self._log = log
        self._segment = segment
        self._path = segment_path(log.directory, segment.base_offset, LOG_SUFFIX)
        self._history = history
        self._end_offset = following
        self.damage: Damage | None = None
        self.is_valid = True
        """False when the log was truncated or closed while it was checked."""

    def run(self) -> Work[None]:
        """Check up to where the segment ends now. A segment that compaction replaces meanwhile is passed over."""
        segment, has_gaps = self._segment, self._log.may_have_gaps
        position, size, next_offset, epoch = 0, segment.size_bytes, segment.base_offset, -1
        end_offset = segment.next_offset
        window, at = memoryview(b""), 0
        while position < size:
            left = len(window) - at
            wanted = read_header(window, at).size_bytes if left >= BATCH_HEADER_SIZE else BATCH_HEADER_SIZE
            if left < wanted:
                if at:
                    yield Step(at)
                length = min(max(_WINDOW_BYTES, wanted), size - position)
                if self._has_changed():
                    return
                if not segment.file.is_cached(position, length):
                    yield Step(reads=FileRange(segment.file, position, length))
                    if self._has_changed():
                        return
                window, at = memoryview(segment.file.pread(position, length)), 0
                if len(window) < min(wanted, length) or length < wanted:
                    self._found(next_offset, f"{self._path} ends within a batch at position {position}")
                    return
                continue
            header = read_header(window, at)
            what = complaint_about(window, at)
            begins_at_most = self._offset_max(header.last_offset) if has_gaps else next_offset
            if what is None and not next_offset <= header.base_offset <= begins_at_most:
                what = f"offset {header.base_offset} where {next_offset} was to come"
            if what is None and header.partition_leader_epoch != epoch:
                epoch = header.partition_leader_epoch
                known = self._log.epoch_cache.epoch_for_offset(header.base_offset)
                what = None if known in (None, epoch) else f"leader epoch {epoch}, not {known},"
            if what is not None:
                self._found(next_offset, f"{self._path}: {what} at position {position}")
                return
            next_offset = header.next_offset
            at += header.size_bytes
            position += header.size_bytes
        if next_offset != end_offset and not has_gaps:
            self._found(next_offset, f"{self._path} ends before offset {next_offset}, and {end_offset} comes next")
        yield Step(at)

    def _offset_max(self, last_offset: int) -> int:
        """The greatest offset that a batch ending at `last_offset` may begin with."""
        if self._end_offset is not None and last_offset >= self._end_offset:
            return -1
        return last_offset

    def _has_changed(self) -> bool:
        log = self._log
        self.is_valid = not (log.is_closed or log.is_failed or log.history != self._history)
        return not self.is_valid or self._segment not in log.segments

    def _found(self, offset: int, what: str) -> None:
        self.damage = Damage(self._segment.base_offset, offset, what)


class LogScrubber:
    """Checks the logs of a node, one at a time. Made and used on the running loop.

    `on_damaged` is called for each damaged log, and again in each round until it is mended.
    """

    def __init__(
        self,
        config: ScrubberConfig,
        runtime: Runtime,
        host: ScrubberHost,
        on_damaged: Callable[[TopicPartition, Damage], None],
    ) -> None:
        self._config = config
        self._disk = runtime.disk
        self._host = host
        self._on_damaged = on_damaged
        self._tasks = TaskSet()
        self.damaged: dict[TopicPartition, Damage] = {}
        self.checked_bytes = 0
        """Since the start of the node."""

    def start(self) -> None:
        """Begin, unless the interval is 0."""
        if self._config.interval_ms:
            self._tasks.spawn(self._run(), name="log scrubber")

    def stop(self) -> None:
        """End at the next step."""
        self._tasks.cancel_soon()

    async def _run(self) -> None:
        for tp in list(self._host.damaged_offsets()):
            await self.check(tp)
        if self._host.was_cleanly_shut_down:
            await asyncio.sleep(self._config.interval_ms / 1000)
        while True:
            for tp in list(self._host.logs):
                await self.check(tp)
            await asyncio.sleep(self._config.interval_ms / 1000)

    async def check(self, tp: TopicPartition, *, mended_at: int | None = None) -> Damage | None:
        """Check one partition's log, and note whether it is damaged.

        With `mended_at`, the segment there was damaged first and is mended: only it and what follows is checked.
        """
        log = self._host.logs.get(tp)
        if log is None or log.is_failed:
            self._note_sound(tp)
            return None
        if log.is_closed:
            return self.damaged.get(tp)
        history = log.history
        try:
            found = await run_in_steps(
                find_damage(log, mended_at or 0),
                self._disk,
                lambda step: self._pause_s(step, 1 if mended_at is None else _PACE_AFTER_MENDING),
            )
        except OSError as error:
            _logger.error("%s cannot be checked: %s", tp, error)
            return self.damaged.get(tp)
        if found is not None:
            self.report(tp, found)
        elif log.history == history:
            self._note_sound(tp)
        return found

    def _pause_s(self, step: Step, pace: int) -> float | None:
        self.checked_bytes += step.done_bytes
        return step.done_bytes / (pace * self._config.io_bytes_per_s)

    def _note_sound(self, tp: TopicPartition) -> None:
        if self.damaged.pop(tp, None) is not None:
            sometimes(True, "a damaged log was sound again")
            _logger.warning("%s is sound again", tp)
        self._host.note_damage(tp, None)

    def report(self, tp: TopicPartition, found: Damage) -> None:
        """Note that a log is damaged, and tell of it. Readers that find damage report it, too."""
        former = self.damaged.pop(tp, None)
        self.damaged[tp] = found
        if former != found:
            sometimes(True, "a damaged batch was found in a log")
            _logger.error("%s is damaged from offset %d on: %s", tp, found.offset, found.what)
        self._host.note_damage(tp, found.offset)
        self._on_damaged(tp, found)
