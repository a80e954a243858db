"""Recovery points inside active segments, so that little has to be checked after a kill or a loss of power.

In each round the logs that have grown since the last one are made durable, with their indexes and a snapshot of their
producers, one log at a time. After each log the device is left alone for as long as the fsyncs took, so that at least
half of its time is left for requests. A log that has grown little is passed over, as checking it takes no time.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial

from ...runtime.incremental_work import IncrementalTask, for_each
from ...wire.types import TopicPartition
from ..durability import ignore_failure
from ..partition_log import PartitionLog
from .log_manager_config import RecoveryPointConfig

_LOGS_PER_SLICE = 500
_FIRST_ROUND_AFTER_MS = 5000
"""The first round comes early: what recovery checked at the start should not have to be checked again."""


class RecoveryPointAdvancer:
    """Moves the recovery points of all logs forward in rounds. Made and used on the running loop."""

    def __init__(self, config: RecoveryPointConfig, logs: Callable[[], Mapping[TopicPartition, PartitionLog]]) -> None:
        self._config = config
        self._logs = logs
        self._due: deque[PartitionLog] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._round: IncrementalTask[None] | None = None
        self._round_began_s = 0.0

    def start(self) -> None:
        """Begin, on the running loop."""
        self._call_later(min(self._config.interval_ms, _FIRST_ROUND_AFTER_MS) / 1000, self._begin_round)

    def stop(self) -> None:
        """Begin nothing more; an fsync under way ends by itself."""
        for timed in (self._timer, self._round):
            if timed is not None:
                timed.cancel()
        self._timer = self._round = None
        self._due.clear()

    def _call_later(self, delay_s: float, what: Callable[[], None]) -> None:
        self._timer = asyncio.get_running_loop().call_later(delay_s, what)

    def _begin_round(self) -> None:
        self._round_began_s = asyncio.get_running_loop().time()
        work = for_each(list(self._logs().values()), self._visit)
        self._round = IncrementalTask(work, steps_per_slice=_LOGS_PER_SLICE, done=lambda _: self._next())

    def _visit(self, log: PartitionLog) -> None:
        if self._has_grown(log):
            self._due.append(log)

    def _has_grown(self, log: PartitionLog) -> bool:
        return not (log.is_failed or log.is_closed) and log.durability.unchecked_bytes >= self._config.bytes_min

    def _next(self) -> None:
        while self._due:
            log = self._due.popleft()
            if self._has_grown(log):
                log.checkpoint_soon().add_done_callback(partial(self._pause, asyncio.get_running_loop().time()))
                return
        since_s = asyncio.get_running_loop().time() - self._round_began_s
        self._call_later(max(self._config.interval_ms / 1000 - since_s, 0), self._begin_round)

    def _pause(self, began_s: float, done: asyncio.Future[int]) -> None:
        ignore_failure(done)
        if self._timer is not None:
            self._call_later(asyncio.get_running_loop().time() - began_s, self._next)
