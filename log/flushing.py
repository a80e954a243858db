"""Which logs are fsynced in the upkeep: rolled segments everywhere, the whole log where `flush.ms` is over.

A log that was written to keeps its file open until it is durable. Where so many are open that most of what the process
may open is used up, all are made durable, and their files closed until somebody wants them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from ..runtime.ports import Disk
from ..runtime.slices import Slices
from ..wire.types import TopicPartition
from .durability import swallow
from .partition_log import PartitionLog
from .trash import now_s

_LOGS_PER_TURN, _SCARCE_PER_TURN = 500, 20
_SCARCE_SHARE = 0.6


class Flusher:
    """Knows when each log was last flushed as a whole, in seconds of the loop."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._flushed_at_s: dict[TopicPartition, float] = {}

    def forget(self, tp: TopicPartition) -> None:
        """The log is here no more."""
        self._flushed_at_s.pop(tp, None)

    def flush_dirty(
        self, logs: Mapping[TopicPartition, PartitionLog], done: Callable[[], None]
    ) -> Slices[tuple[TopicPartition, PartitionLog]]:
        """Begin what is due, some logs a turn of the loop; `done` when all is begun."""
        at_s, is_scarce = now_s(), self.are_files_scarce()

        def visit(item: tuple[TopicPartition, PartitionLog]) -> None:
            tp, log = item
            if log.is_failed or log.is_closed:
                return
            if is_scarce:
                log.flush_soon().add_done_callback(lambda done: _park(log, done))
            elif log.log_end_offset == log.recovery_point and not log.durability.has_unsynced_segments:
                self._flushed_at_s[tp] = at_s
            elif (at_s - self._flushed_at_s.setdefault(tp, at_s)) * 1000 >= log.config.flush_ms:
                self._flushed_at_s[tp] = at_s
                log.flush_soon().add_done_callback(swallow)
            elif log.durability.has_unsynced_segments:
                log.flush_rolled_soon().add_done_callback(swallow)

        return Slices(list(logs.items()), visit, _SCARCE_PER_TURN if is_scarce else _LOGS_PER_TURN, done)

    def are_files_scarce(self) -> bool:
        """Whether few more files can be opened."""
        spare, limit = self._disk.spare_files()
        return spare < limit * _SCARCE_SHARE


def _park(log: PartitionLog, done: asyncio.Future[int]) -> None:
    swallow(done)
    if not (log.is_closed or log.is_failed):
        log.durability.park()
