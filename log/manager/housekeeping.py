"""What every log of a node needs now and then: segments rolled by age, retention, forgotten producers, files closed.

One timer for all of them. A round visits some logs a turn of the loop, so that thousands of them stall nobody; a log
with nothing to do costs some microseconds a round.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ...runtime.incremental_work import IncrementalTask, for_each
from ...runtime.ports import Clock
from ...wire.types import TopicPartition
from ..errors import StorageError
from ..partition_log import PartitionLog

_logger = logging.getLogger(__name__)
_LOGS_PER_SLICE = 20
_FIRST_ROUND_AFTER_MS = 30_000


@dataclass(frozen=True, slots=True)
class LogMaintenanceConfig:
    """`log.retention.check.interval.ms` and `producer.id.expiration.ms`."""

    interval_ms: int = 300_000
    producer_expiration_ms: int = 86_400_000


class LogMaintenance:
    """`high_watermark_of` gives a partition's high watermark: nothing at or above it is deleted."""

    def __init__(
        self,
        config: LogMaintenanceConfig,
        clock: Clock,
        logs: Callable[[], Mapping[TopicPartition, PartitionLog]],
        high_watermark_of: Callable[[TopicPartition], int],
    ) -> None:
        self.config = config
        self._clock = clock
        self._logs = logs
        self._high_watermark_of = high_watermark_of
        self._timer: asyncio.Handle | None = None
        self._round: IncrementalTask[None] | None = None

    def start(self) -> None:
        """Begin, on the running loop."""
        self._schedule(min(self.config.interval_ms, _FIRST_ROUND_AFTER_MS))

    def stop(self) -> None:
        for timed in (self._timer, self._round):
            if timed is not None:
                timed.cancel()
        self._timer = self._round = None

    def _schedule(self, delay_ms: int) -> None:
        self._timer = asyncio.get_running_loop().call_later(delay_ms / 1000, self._begin_round)

    def _begin_round(self) -> None:
        work = for_each(list(self._logs().items()), lambda item: self.visit(*item))
        self._round = IncrementalTask(
            work, steps_per_slice=_LOGS_PER_SLICE, done=lambda _: self._schedule(self.config.interval_ms)
        )

    def visit(self, tp: TopicPartition, log: PartitionLog) -> None:
        """Do what is due for one log. A disk that refuses has been reported by the log itself."""
        if log.is_failed or log.is_closed:
            return
        now_ms = self._clock.wall_ms()
        try:
            log.roll_if_due(now_ms)
            deleted = log.delete_expired(now_ms, self._high_watermark_of(tp))
        except StorageError as error:
            _logger.error("%s", error)
            return
        log.durability.park()
        if deleted:
            _logger.info("%s: %d segments deleted, the log starts at %d", tp, deleted, log.log_start_offset)
        expired = log.producers.expire(self._monotonic_ms(), self.config.producer_expiration_ms)
        if expired:
            _logger.info("%s: %d silent producers forgotten", tp, expired)

    @staticmethod
    def _monotonic_ms() -> int:
        return int(asyncio.get_running_loop().time() * 1000)
