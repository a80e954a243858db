"""Which logs are fsynced in the upkeep: rolled segments everywhere, the whole log where `flush.ms` is over."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ...runtime.incremental_work import IncrementalTask, for_each
from ...wire.types import TopicPartition
from ..partition_log import PartitionLog
from ..recovery.durability import swallow
from .trash import now_s

_LOGS_PER_SLICE = 500


class Flusher:
    """Knows when each log was last flushed as a whole, in seconds of the loop."""

    def __init__(self) -> None:
        self._flushed_at_s: dict[TopicPartition, float] = {}

    def forget(self, tp: TopicPartition) -> None:
        """The log is here no more."""
        self._flushed_at_s.pop(tp, None)

    def flush_dirty(
        self, logs: Mapping[TopicPartition, PartitionLog], done: Callable[[], None]
    ) -> IncrementalTask[None]:
        """Begin what is due, some logs a turn of the loop; `done` when all is begun."""
        at_s = now_s()

        def visit(item: tuple[TopicPartition, PartitionLog]) -> None:
            tp, log = item
            if log.is_failed or log.is_closed:
                return
            if log.log_end_offset == log.recovery_point and not log.durability.has_unsynced_segments:
                self._flushed_at_s[tp] = at_s
            elif (at_s - self._flushed_at_s.setdefault(tp, at_s)) * 1000 >= log.config.flush_ms:
                self._flushed_at_s[tp] = at_s
                log.flush_soon().add_done_callback(swallow)
            elif log.durability.has_unsynced_segments:
                log.flush_rolled_soon().add_done_callback(swallow)

        work = for_each(list(logs.items()), visit)
        return IncrementalTask(work, steps_per_slice=_LOGS_PER_SLICE, done=lambda _: done())
