"""Administrators in the simulator that change partitions: leaders, replicas, throttles, min ISR, log directories."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from ....cluster.client.client_errors import ClientError
from ....cluster.client.cluster_client import LOST, ClusterClient
from ....wire.api_keys import ApiKey
from ....wire.codec import Struct
from ....wire.errors import ErrorCode
from ..invariants.invariant_broken import InvariantBroken
from .admin_client import BROKER, PAUSE_S, TIMEOUT_S, TOPIC, AdminClient
from .clients import ClientContext

_ALTER_REASSIGNMENTS = 0
_ELECT_LEADERS = 2


class PreferredLeaderChanges:
    """An `Workload`: gives partitions of the main topic another preferred leader, and asks for it at once.

    So leaders change while everybody lives, and soon again, before their followers have all.
    """

    name = "elections"

    def __init__(self, context: ClientContext, brokers: list[int]) -> None:
        """`brokers` hold the topic, all of them."""
        self._context = context
        self._brokers = brokers
        self._admin = AdminClient(context, self.name)
        self._stopping = False
        self._finished = False

    def stop(self) -> None:
        self._stopping = True

    async def run(self) -> None:
        rng = self._context.rng
        while not self._stopping:
            await asyncio.sleep(rng.expovariate(1 / PAUSE_S))
            await self._elect(rng.randrange(2), rng.sample(self._brokers, len(self._brokers)))
        self._finished = True

    def why_not_settled(self) -> str | None:
        return None if self._finished else "it still acts"

    def check(self) -> None:
        """Who leads does not matter."""

    async def _elect(self, partition: int, replicas: list[int]) -> None:
        row = {"partition_index": partition, "replicas": replicas}
        moves = {"topics": [{"name": self._context.topic, "partitions": [row]}]}
        await self._admin.ask(
            ApiKey.ALTER_PARTITION_REASSIGNMENTS, _ALTER_REASSIGNMENTS, moves, lambda answer: answer.error_code
        )
        topics = [{"topic": self._context.topic, "partitions": [partition]}]
        fields = {"election_type": 0, "topic_partitions": topics}
        await self._admin.ask(ApiKey.ELECT_LEADERS, _ELECT_LEADERS, fields, lambda answer: answer.error_code)


class Reassignments:
    """An `Workload`: gives partitions of the main topic other replicas, and sometimes thinks better of it."""

    name = "moves"

    def __init__(self, context: ClientContext, brokers: list[int], why_moving: Callable[[], str | None]) -> None:
        """`why_moving` names a partition that is on its way, None when there is none."""
        self._context = context
        self._brokers = brokers
        self._why_moving = why_moving
        self._admin = AdminClient(context, self.name)
        self._stopping = False
        self._finished = False

    def stop(self) -> None:
        self._stopping = True

    async def run(self) -> None:
        rng = self._context.rng
        while not self._stopping:
            await asyncio.sleep(rng.expovariate(1 / (2 * PAUSE_S)))
            await self._move(rng.sample(self._brokers, 3) if rng.random() < 0.8 else None)
        self._finished = True

    def why_not_settled(self) -> str | None:
        return self._why_moving() if self._finished else "it still acts"

    def check(self) -> None:
        """Where partitions are does not matter; that they get there does."""

    async def _move(self, replicas: list[int] | None) -> None:
        partition = {"partition_index": self._context.rng.randrange(2), "replicas": replicas}
        fields = {"topics": [{"name": self._context.topic, "partitions": [partition]}]}

        def code_of(answer: Struct) -> int:
            code: int = answer.error_code or answer.responses[0].partitions[0].error_code
            return code

        code = await self._admin.ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, _ALTER_REASSIGNMENTS, fields, code_of)
        nothing_to_cancel = replicas is None and code == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
        if code and not nothing_to_cancel:
            raise InvariantBroken("partitions may be moved", f"{partition}: {code.name}")


class ThrottledReassignments(Reassignments):
    """Moves partitions under throttles that it changes at every move; the last one gives enough to end (KIP-73).

    Before that any may be, nothing at all included: what is in sync must not notice.
    """

    name = "throttled moves"
    rates = (0, 300, 3_000, 30_000, 300_000)
    last_rate = 100_000
    """Bytes a second."""

    async def run(self) -> None:
        await super().run()
        self._finished = False
        await self._set_rate(self.last_rate)
        self._finished = True

    async def _move(self, replicas: list[int] | None) -> None:
        rng = self._context.rng
        await self._set_rate(rng.choice(self.rates))
        for side in ("leader", "follower"):
            key = f"{side}.replication.throttled.replicas"
            await self._alter(TOPIC, self._context.topic, key, rng.choice(("*", "*", self._some_replicas(), None)))
        await super()._move(replicas)

    def _some_replicas(self) -> str:
        rng = self._context.rng
        brokers = rng.sample(self._brokers, 3)
        return ",".join(f"{partition}:{broker}" for partition in range(2) for broker in brokers)

    async def _set_rate(self, rate: int) -> None:
        for side in ("leader", "follower"):
            await self._alter(BROKER, "", f"{side}.replication.throttled.rate", str(rate))

    async def _alter(self, kind: int, name: str, key: str, value: str | None) -> None:
        code = await self._admin.set(kind, name, key, value)
        if code:
            raise InvariantBroken("a throttle may be set", f"{key}={value}: {code.name}")


class MinIsrChanges:
    """An `Workload`: changes `min.insync.replicas` of the main topic, to 1 and back to 2, while its ISRs change.

    Which replicas may lead though they left the ISR depends on it, so leader and controller must go by the same value.
    """

    name = "min isr"

    def __init__(self, context: ClientContext) -> None:
        self._context = context
        self._admin = AdminClient(context, self.name)
        self._stopping = False
        self._finished = False

    def stop(self) -> None:
        self._stopping = True

    async def run(self) -> None:
        rng = self._context.rng
        while not self._stopping:
            await asyncio.sleep(rng.expovariate(1 / PAUSE_S))
            await self._set(rng.randrange(1, 3))
        await self._set(2)
        self._finished = True

    def why_not_settled(self) -> str | None:
        return None if self._finished else "it still acts"

    def check(self) -> None:
        """What is committed is watched by others."""

    async def _set(self, value: int) -> None:
        code = await self._admin.set(TOPIC, self._context.topic, "min.insync.replicas", str(value))
        if code:
            raise InvariantBroken("min.insync.replicas may be set", f"{value}: {code.name}")


class LogDirMoves:
    """An `Workload`: moves replicas between the log directories of their brokers."""

    name = "dir moves"

    def __init__(self, context: ClientContext, brokers: list[int], dirs: Sequence[str]) -> None:
        self._context = context
        self._brokers = brokers
        self._dirs = dirs
        self._cluster = ClusterClient(context.bootstrap, client_id=self.name, timeout_s=TIMEOUT_S)
        self._stopping = False
        self._finished = False

    def stop(self) -> None:
        self._stopping = True

    async def run(self) -> None:
        rng = self._context.rng
        while not self._stopping:
            await asyncio.sleep(rng.expovariate(1 / PAUSE_S))
            try:
                await self._move(rng.choice(self._brokers), rng.choice(self._dirs))
            except (ClientError, *LOST):
                continue
        self._finished = True

    def why_not_settled(self) -> str | None:
        return None if self._finished else "it still acts"

    def check(self) -> None:
        """Where replicas are does not matter."""

    async def _move(self, broker: int, path: str) -> None:
        view = await self._cluster.metadata([self._context.topic])
        partitions = [one.partition for topic in view.topics for one in topic.partitions]
        if not partitions:
            return
        topic = {"name": self._context.topic, "partitions": [self._context.rng.choice(partitions)]}
        fields = {"dirs": [{"path": path, "topics": [topic]}]}
        answer = await self._cluster.request_node(broker, ApiKey.ALTER_REPLICA_LOG_DIRS, 2, fields)
        code = ErrorCode(answer.results[0].partitions[0].error_code)
        if code not in (ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.REPLICA_NOT_AVAILABLE):
            raise InvariantBroken("replicas may be moved between directories", f"{broker} {path}: {code.name}")
