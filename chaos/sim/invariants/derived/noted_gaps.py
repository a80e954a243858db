"""The invariant "a log that lacks offsets is noted as such on its disk", checked after each event that changed a log.

Recovery takes a missing offset for damage, unless `cleaner-offset-checkpoint` has an entry for the log. So the entry is
durable before the first batch is there that does not follow the one before: on a follower of a compacted log as well as
after a compaction. Both are read from the simulated disk, and not from what the node believes of itself.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from .....log.errors import StorageError
from .....log.manager.log_directory import LogDirectory
from .....log.manager.log_manager import LogManager
from .....log.partition_log import PartitionLog
from .....log.state.checkpoints import CLEANER_OFFSET_FILE
from .....wire.records import CorruptBatchError, iter_headers
from .....wire.types import TopicPartition
from ...disk.sim_disk import SimDisk
from ..invariant_broken import InvariantBroken

_READ_BYTES = 1 << 20
_LOOK_EVERY = 100


@dataclass(slots=True)
class _Seen:
    """What a log was when it was last looked at."""

    end_offset: int = -1
    history: int = -1
    next_offset: int = -1
    """The offset that would follow the last batch without a gap; -1 if there was none."""
    has_gaps: bool = False


@dataclass(slots=True)
class _Logs:
    """The logs of a directory whose offsets may have gaps, as they were when all logs were looked through."""

    all: list[PartitionLog] = field(default_factory=list)
    with_gaps: list[tuple[TopicPartition, PartitionLog]] = field(default_factory=list)
    looked_at: int = -_LOOK_EVERY


class NotedGapsChecker:
    """Remembers up to where the logs of running nodes were read."""

    def __init__(self) -> None:
        self._seen: dict[int, dict[PartitionLog, _Seen]] = {}
        self._logs: dict[tuple[int, str], _Logs] = {}
        self._events = 0

    def forget(self, node_id: int) -> None:
        """The node's process has ended."""
        self._seen.pop(node_id, None)

    def after_event(self, node_id: int, logs: LogManager, disk: SimDisk) -> None:
        """Check the logs of a node whose offsets may have gaps. Raises `InvariantBroken`."""
        self._events += 1
        seen_logs = self._seen.setdefault(node_id, {})
        for log_dir in logs.directories:
            for key, log in self._with_gaps(node_id, log_dir):
                if log.is_failed or log.is_closed:
                    continue
                seen = seen_logs.setdefault(log, _Seen())
                if seen.end_offset != log.log_end_offset or seen.history != log.history:
                    _check(node_id, key, log, seen, lambda at=log_dir: _noted(disk, at))  # type: ignore[misc]

    def _with_gaps(self, node_id: int, log_dir: LogDirectory) -> list[tuple[TopicPartition, PartitionLog]]:
        """The logs to check. Settings change seldom, so that not all logs are looked through after each event."""
        known = self._logs.setdefault((node_id, log_dir.path), _Logs())
        now = [*log_dir.logs.values(), *log_dir.future_logs.values()]
        if now != known.all or self._events - known.looked_at >= _LOOK_EVERY:
            known.all, known.looked_at = now, self._events
            every = (*log_dir.logs.items(), *log_dir.future_logs.items())
            known.with_gaps = [(key, log) for key, log in every if log.may_have_gaps]
        return known.with_gaps


def _check(node_id: int, key: TopicPartition, log: PartitionLog, seen: _Seen, noted: Callable[[], list[str]]) -> None:
    if seen.history != log.history or log.log_end_offset < seen.end_offset:
        seen.next_offset = -1
    _read_on(log, seen)
    seen.end_offset, seen.history = log.log_end_offset, log.history
    if seen.has_gaps and f"{key.topic} {key.partition}" not in noted():
        detail = f"{log.directory} on {node_id}, which ends at {log.log_end_offset}"
        raise InvariantBroken("a log that lacks offsets is noted as such on its disk", detail)


def _read_on(log: PartitionLog, seen: _Seen) -> None:
    """Look for gaps in what is new since the last look, or in all."""
    offset = log.log_start_offset
    if seen.next_offset >= 0:
        offset = seen.next_offset
    elif offset == log.segments[0].base_offset:
        seen.next_offset = offset
    end_offset = log.log_end_offset
    with suppress(StorageError, CorruptBatchError):  # its disk has failed, or bits have rotted
        while offset < end_offset and not seen.has_gaps:
            headers = [header for _, header in iter_headers(log.read(offset, _READ_BYTES, end_offset=end_offset))]
            if not headers:
                return
            for header in headers:
                seen.has_gaps |= 0 <= seen.next_offset < header.base_offset
                offset = seen.next_offset = header.next_offset


def _noted(disk: SimDisk, log_dir: LogDirectory) -> list[str]:
    """The partitions in the checkpoint that is on the device."""
    data = disk.durable_bytes(f"{log_dir.path}/{CLEANER_OFFSET_FILE}") or b""
    return [row.rpartition(" ")[0] for row in bytes(data).decode(errors="replace").splitlines()]
