"""The invariant "recovery keeps what was there", checked when a node that has died opens its logs again.

The end of a process takes nothing from its logs: they are what the page cache has. A loss of power leaves what was
synced. Both are read from the simulated disk when the process ends, and by rules that are not those of recovery: all
whole batches that follow one another, and with gaps where the log may have some.

Disks that fail or lie are left out, and logs with bit rot.
"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from .....log.manager.log_manager import LogManager
from .....log.partition_log import PartitionLog
from .....wire.records import CorruptBatchError, read_header, read_valid_header
from ...disk.sim_disk import SimDisk
from ..invariant_broken import InvariantBroken

_SUFFIX = ".log"


@dataclass(frozen=True, slots=True)
class _Kept:
    topic_id: UUID | None
    end_offset: int


class RecoveryChecker:
    """Remembers how far the logs of each node that died must reach when they are opened."""

    def __init__(self) -> None:
        self._kept: dict[int, dict[str, _Kept]] = {}
        """By the directory of the log."""

    def before_crash(self, node_id: int, logs: LogManager, disk: SimDisk, *, power_loss: bool) -> None:
        """A process is about to end."""
        self.forget(node_id)
        if disk.has_lied or disk.failed_dirs or disk.has_lost_pages:
            return
        self._kept[node_id] = {
            log.directory: _Kept(log.topic_id, kept_end(disk, log, power_loss=power_loss))
            for log_dir in logs.directories
            for log in log_dir.logs.values()
            if not log.is_failed
        }

    def forget(self, node_id: int) -> None:
        """The node has another disk, or a damaged one, or has opened all logs that it opens."""
        self._kept.pop(node_id, None)

    def after_event(self, node_id: int, logs: LogManager) -> None:
        """Check the logs that a node has opened in the event that has just run. Raises `InvariantBroken`."""
        kept = self._kept.get(node_id)
        if not kept:
            return
        for log_dir in logs.directories:
            for log in log_dir.logs.values():
                _check(node_id, log, kept)


def _check(node_id: int, log: PartitionLog, kept: dict[str, _Kept]) -> None:
    known = kept.pop(log.directory, None)
    if known is None or log.is_failed or log.topic_id != known.topic_id:
        return
    if log.log_end_offset < known.end_offset:
        detail = f"{log.directory} on {node_id} ends at {log.log_end_offset}, the disk had it up to {known.end_offset}"
        raise InvariantBroken("recovery keeps what was there", detail)


def kept_end(disk: SimDisk, log: PartitionLog, *, power_loss: bool) -> int:
    """The end of a log on the disk, after the end of its process or after a loss of power, whichever it is."""
    names = [name for name in disk.listdir(log.directory) if _is_segment(name)] if disk.is_dir(log.directory) else []
    end_offset = 0
    for number, name in enumerate(names):
        base_offset = int(name.removesuffix(_SUFFIX))
        if number and base_offset != end_offset:
            break
        path = f"{log.directory}/{name}"
        data = disk.read_bytes(path)
        if power_loss:
            data = data[: _common_size(data, disk.lasting_bytes(path))]
        end_offset, is_whole = _end_of(data, base_offset, has_gaps=log.may_have_gaps)
        if not is_whole:
            break
    return end_offset


def _common_size(data: bytes, lasting: bytearray) -> int:
    size = min(len(data), len(lasting))
    if data[:size] == lasting[:size]:
        return size
    return next(at for at in range(size) if data[at] != lasting[at])


def _end_of(data: bytes, base_offset: int, *, has_gaps: bool) -> tuple[int, bool]:
    """The offset after the last sound batch, and whether that is the end of the file."""
    at, end_offset, epoch = 0, base_offset, -1
    while at < len(data):
        try:
            header = read_header(data, at)
        except CorruptBatchError:
            return end_offset, False
        found = memoryview(data)[at : at + header.size_bytes]
        follows = header.base_offset == end_offset or (has_gaps and header.base_offset > end_offset)
        if not follows or header.partition_leader_epoch < epoch or read_valid_header(found, 0) is None:
            return end_offset, False
        end_offset, epoch = header.next_offset, header.partition_leader_epoch
        at += header.size_bytes
    return end_offset, True


def _is_segment(name: str) -> bool:
    return name.endswith(_SUFFIX) and name.removesuffix(_SUFFIX).isdigit()
