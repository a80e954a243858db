"""Recovery points inside active segments, so that a kill or a loss of power leaves little to be checked.

Now and then the logs that were appended to since the last round are made durable, with their indexes and a snapshot of
their producers, one log at a time. The device rests after each for as long as that took, so that half of its time at
least is left to what somebody waits for. A log that has gained little is passed over: checking that takes no time.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from ...runtime.incremental_work import IncrementalTask, for_each
from ...wire.types import TopicPartition
from ..partition_log import PartitionLog
from .durability import swallow

_LOGS_PER_SLICE = 500
_FIRST_ROUND_AFTER_MS = 5000
"""What was checked at the start shall not have to be checked again, however soon the next kill comes."""


@dataclass(frozen=True, slots=True)
class RecoveryPointConfig:
    """`log.flush.offset.checkpoint.interval.ms` and `.min.bytes`."""

    interval_ms: int = 60_000
    bytes_min: int = 1024 * 1024


class RecoveryPoints:
    """Made and used on the running loop."""

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
        """What is under way ends by itself."""
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
        if self._is_worth_it(log):
            self._due.append(log)

    def _is_worth_it(self, log: PartitionLog) -> bool:
        return not (log.is_failed or log.is_closed) and log.durability.unchecked_bytes >= self._config.bytes_min

    def _next(self) -> None:
        while self._due:
            log = self._due.popleft()
            if self._is_worth_it(log):
                log.checkpoint_soon().add_done_callback(partial(self._rest, asyncio.get_running_loop().time()))
                return
        since_s = asyncio.get_running_loop().time() - self._round_began_s
        self._call_later(max(self._config.interval_ms / 1000 - since_s, 0), self._begin_round)

    def _rest(self, began_s: float, done: asyncio.Future[int]) -> None:
        swallow(done)
        if self._timer is not None:
            self._call_later(asyncio.get_running_loop().time() - began_s, self._next)
