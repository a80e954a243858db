"""Shows whether writes are acknowledged: a small load, one record at a time in each partition, and its gaps.

The load goes to a topic of its own. A gap of a partition is the time since its last acknowledgement. The probe keeps
the longest gap of each tenth of a second, so a failover is seen as it happens.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from ...cluster.client.admin_client import AdminClient, NewTopic
from ...cluster.client.client_errors import ClientError, RefusedError
from ...cluster.client.cluster_client import ClusterClient
from ...cluster.client.producer import Producer
from ...runtime.ports import Clock
from ...wire.errors import ErrorCode

TOPIC = "raftwerk-console-probe"
PARTITIONS = 6
_INTERVAL_S = 0.02
_POINT_S = 0.1
_POINTS_MAX = 3000
_REPLICAS_MAX = 3
_SEND_TIMEOUT_S = 60.0
_PAUSE_S = 0.1
UNWATCHED_MAX_S = 30.0
_RETENTION = {"retention.ms": "600000", "segment.ms": "600000"}


class Probe:
    """The load and its figures. Each partition has a client of its own: one that waits must not hold up the others.

    It ends by itself when nobody has watched for half a minute.
    """

    def __init__(self, client: ClusterClient, clock: Clock, is_watched: Callable[[], bool]) -> None:
        self._client = client
        self._is_watched = is_watched
        self._clock = clock
        self._tasks: list[asyncio.Task[None]] = []
        self._last_ack_s: dict[int, float] = {}
        self._worst_s: dict[int, float] = {}
        self.acked = 0
        self.longest_gap_ms = 0
        self.number = 0
        """How many points there have ever been."""
        self.points: deque[tuple[int, int, int]] = deque(maxlen=_POINTS_MAX)
        """Times in milliseconds since 1970, longest gaps in milliseconds, and acknowledgements since the last point."""

    @property
    def is_running(self) -> bool:
        """Whether the load runs."""
        return bool(self._tasks)

    async def start(self) -> None:
        """Begin the load; makes the topic if it is not there. `ClientError`."""
        if self._tasks:
            return
        brokers = len((await self._client.metadata([])).brokers)
        factor = min(_REPLICAS_MAX, brokers)
        configs = {**_RETENTION, "min.insync.replicas": str(min(2, factor))}
        try:
            await AdminClient(self._client).create_topic(NewTopic(TOPIC, PARTITIONS, factor, configs))
        except RefusedError as error:
            if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
        if self._tasks:
            return  # it was started a second time while the topic was made
        self.acked, self.longest_gap_ms = 0, 0
        self._last_ack_s.clear()
        self._worst_s.clear()
        self._tasks = [asyncio.create_task(self._load(one)) for one in range(PARTITIONS)]
        self._tasks.append(asyncio.create_task(self._measure()))

    def stop(self) -> None:
        """End the load. What was measured stays."""
        for task in self._tasks:
            task.cancel()
        self._tasks = []

    def as_row(self, since: int) -> dict[str, Any]:
        """The figures, and the points after the first `since` ones."""
        new = min(self.number - since, len(self.points))
        points = list(self.points)[len(self.points) - new :] if new > 0 else []
        return {
            "running": self.is_running,
            "acked": self.acked,
            "longest_gap_ms": self.longest_gap_ms,
            "points": points,
        }

    async def _load(self, partition: int) -> None:
        loop = asyncio.get_running_loop()
        async with self._client.apart() as client:
            while True:
                producer = Producer(client, TOPIC, timeout_s=_SEND_TIMEOUT_S)
                try:
                    await producer.start()
                    while True:
                        await producer.send([(b"probe", b"x" * 100)], partition=partition)
                        self._note_ack(partition, loop.time())
                        await asyncio.sleep(_INTERVAL_S)
                except (ClientError, OSError):
                    await asyncio.sleep(_PAUSE_S)

    def _note_ack(self, partition: int, now_s: float) -> None:
        last_s = self._last_ack_s.get(partition, now_s)
        self._worst_s[partition] = max(self._worst_s.get(partition, 0.0), now_s - last_s)
        self._last_ack_s[partition] = now_s
        self.acked += 1

    async def _measure(self) -> None:
        loop = asyncio.get_running_loop()
        acked = self.acked
        watched_s = loop.time()
        while True:
            await asyncio.sleep(_POINT_S)
            now_s = loop.time()
            if self._is_watched():
                watched_s = now_s
            elif now_s - watched_s > UNWATCHED_MAX_S:
                self.stop()
            waiting_s = max((now_s - last for last in self._last_ack_s.values()), default=0.0)
            gap_ms = int(max(waiting_s, *self._worst_s.values(), 0.0) * 1000)
            self._worst_s.clear()
            self.longest_gap_ms = max(self.longest_gap_ms, gap_ms)
            self.points.append((self._clock.wall_ms(), gap_ms, self.acked - acked))
            self.number += 1
            acked = self.acked
