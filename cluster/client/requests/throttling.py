"""What a client of a cluster does while a quota throttles it (KIP-219)."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

_TOLD_FROM_S = 1.0
"""It is said that a quota throttles the client once it has done so for this time."""
_TOLD_AGAIN_S = 10.0
"""It is said again after each such time more for which the client was throttled."""

_logger = logging.getLogger("raftwerk.cluster.client")


class Throttling:
    """For how long brokers have throttled a client. That time counts for none of its limits.

    Where several brokers throttle it at the same time, that time counts once. With `is_silent` nothing is said of it.
    """

    def __init__(self, *, is_silent: bool) -> None:
        self._total_s = 0.0
        """For how long it is throttled in all, up to the end of the present throttle time."""
        self._until = -math.inf
        self._limits: dict[asyncio.Timeout, None] = {}
        self.is_silent = is_silent
        self._told_at_s = _TOLD_FROM_S
        """It is said when the client has been throttled for so long in all."""
        self._notice: asyncio.TimerHandle | None = None

    @property
    def left_s(self) -> float:
        """For how long brokers throttle the client from now on; 0 when they do not."""
        return max(0.0, self._until - asyncio.get_running_loop().time())

    @property
    def seconds(self) -> float:
        """For how long the client has been throttled up to now."""
        return self._total_s - self.left_s

    def unthrottled_time(self) -> float:
        """The loop's time without what the client was throttled for: a clock for limits that are looked at now."""
        return asyncio.get_running_loop().time() - self.seconds

    def on_throttled(self, peer: str, until: float) -> None:
        """A broker throttles the client until this time of the loop."""
        added_s = until - max(self._until, asyncio.get_running_loop().time())
        if added_s <= 0:
            return
        self._until = until
        self._total_s += added_s
        for limit in self._limits:
            end = limit.when()
            if end is not None and not limit.expired():
                limit.reschedule(end + added_s)
        if not self.is_silent:
            self._tell_in_time(peer)

    def _tell_in_time(self, peer: str) -> None:
        """Say it when the client will have been throttled for so long, if it is still there then."""
        self.close()
        due_s = self._told_at_s - self.seconds
        if due_s <= self.left_s:
            self._notice = asyncio.get_running_loop().call_later(due_s, self._tell, peer)

    def _tell(self, peer: str) -> None:
        self._told_at_s += _TOLD_AGAIN_S
        text = "a quota throttles this client at %s, for another %.1f s; raftwerk quotas list shows the quotas"
        _logger.warning(text, peer, self.left_s)
        self._tell_in_time(peer)

    def close(self) -> None:
        """Say nothing any more of the present throttle time: nobody waits for its end."""
        if self._notice is not None:
            self._notice.cancel()

    @asynccontextmanager
    async def limit_until(self, end: float | None) -> AsyncIterator[None]:
        """`asyncio.timeout_at`, with a later end for each time for which the client is throttled, also for one now."""
        async with asyncio.timeout_at(None if end is None else end + self.left_s) as limit:
            self._limits[limit] = None
            try:
                yield
            finally:
                del self._limits[limit]

    async def wait(self, quiet_s: float) -> None:
        """Wait until no broker has throttled the client for so many seconds."""
        loop = asyncio.get_running_loop()
        while True:
            left_s = self._until + quiet_s - loop.time()
            if left_s <= 0:
                return
            await asyncio.sleep(left_s)
