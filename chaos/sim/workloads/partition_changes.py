"""Administrators in the simulator that change partitions: leaders, replicas, throttles, min ISR, log directories."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ....cluster.client.admin_client import NewTopic
from ....cluster.client.client_errors import ClientError
from ....cluster.client.cluster_client import NO_ANSWER, ClusterClient
from ....wire.api_keys import ApiKey
from ....wire.codec import Struct
from ....wire.errors import ErrorCode
from ..invariants.invariant_broken import InvariantBroken
from .administrator import BROKER, PAUSE_S, TIMEOUT_S, TOPIC, RepeatedChange, RetryingAdmin
from .clients import ClientContext
from .workload import create_topic_until_done

_ALTER_REASSIGNMENTS = 0
_ALTER_REPLICA_LOG_DIRS = 2
_ELECT_LEADERS = 2
_PARTITIONS_BESIDE = 6


class PreferredLeaderChanges(RepeatedChange):
    """Gives partitions of the main topic another preferred leader, and asks for its election at once.

    So leaders change while every node is alive, and again before their followers have all records.
    """

    name = "elections"

    def __init__(self, context: ClientContext, brokers: list[int], *, to_and_fro: bool = False) -> None:
        """All the `brokers` hold replicas of the topic.

        `to_and_fro`: each leadership is given back at once, so that the leader epoch of a fetch that is on its way is
        over while its leader leads again.
        """
        super().__init__(context)
        self._brokers = brokers
        self._to_and_fro = to_and_fro
        self._admin = RetryingAdmin(context, self.name)

    async def change(self) -> None:
        """Elect a replica of a partition, and perhaps another one just before."""
        rng = self.context.rng
        partition, replicas = rng.randrange(2), rng.sample(self._brokers, len(self._brokers))
        if self._to_and_fro:
            await self._elect(partition, replicas)
            replicas = [*replicas[1:], replicas[0]]
            await self._elect(partition, replicas)
            replicas = [replicas[-1], *replicas[:-1]]
        await self._elect(partition, replicas)

    async def _elect(self, partition: int, replicas: list[int]) -> None:
        """Reorder the replicas of a partition, then elect the preferred one."""
        topic = self.context.topic
        row = {"partition_index": partition, "replicas": replicas}
        moves = {"topics": [{"name": topic, "partitions": [row]}]}
        await self._admin.ask(
            ApiKey.ALTER_PARTITION_REASSIGNMENTS, _ALTER_REASSIGNMENTS, moves, lambda answer: answer.error_code
        )
        fields = {"election_type": 0, "topic_partitions": [{"topic": topic, "partitions": [partition]}]}
        await self._admin.ask(ApiKey.ELECT_LEADERS, _ELECT_LEADERS, fields, lambda answer: answer.error_code)


class Reassignments(RepeatedChange):
    """Gives partitions of the main topic other replicas, and sometimes cancels a reassignment."""

    name = "moves"
    mean_pause_s = 2 * PAUSE_S
    cancel_probability = 0.2
    tolerated_errors: tuple[ErrorCode, ...] = ()
    """Errors that are no mistake, as another workload creates the topic, and may not have done so yet."""

    def __init__(self, context: ClientContext, brokers: list[int], why_reassigning: Callable[[], str | None]) -> None:
        """`why_reassigning` names a partition that is being reassigned, None when there is none."""
        super().__init__(context)
        self._brokers = brokers
        self._why_reassigning = why_reassigning
        self._admin = RetryingAdmin(context, self.name)

    async def change(self) -> None:
        """Reassign a partition, or cancel its reassignment."""
        rng = self.context.rng
        await self._reassign(self.draw_replicas() if rng.random() >= self.cancel_probability else None)

    def draw_replicas(self) -> list[int]:
        """The brokers that a partition moves to."""
        return self.context.rng.sample(self._brokers, 3)

    def why_not_settled(self) -> str | None:
        """Every reassignment must come to its end."""
        return super().why_not_settled() or self._why_reassigning()

    async def _reassign(self, replicas: list[int] | None) -> None:
        partition = {"partition_index": self.context.rng.randrange(2), "replicas": replicas}
        fields = {"topics": [{"name": self.context.topic, "partitions": [partition]}]}

        def code_of(answer: Struct) -> int:
            code: int = answer.error_code or answer.responses[0].partitions[0].error_code
            return code

        code = await self._admin.ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, _ALTER_REASSIGNMENTS, fields, code_of)
        nothing_to_cancel = replicas is None and code == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
        needs_unclean_election = replicas is None and code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
        if code and code not in self.tolerated_errors and not nothing_to_cancel and not needs_unclean_election:
            raise InvariantBroken("partitions may be moved", f"{partition}: {code.name}")


class TransactionMoves(Reassignments):
    """Moves the partitions of a topic to which transactional producers write."""

    name = "moves of transactions"
    tolerated_errors = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,)


class CancelledReassignments(Reassignments):
    """Reassigns partitions to one broker or two, and cancels much of it soon.

    The former replicas may be down then. A cancellation that would need an unclean election is refused.
    """

    name = "cancelled moves"
    cancel_probability = 0.4

    def draw_replicas(self) -> list[int]:
        """See `Reassignments`."""
        return self.context.rng.sample(self._brokers, self.context.rng.randrange(1, 3))


class ThrottledReassignments(Reassignments):
    """Reassigns partitions under replication throttles that change with every reassignment (KIP-73).

    Until the end a throttle may have any rate, even 0: replicas that are in sync must not notice it. The last rate is
    high enough for the reassignments to end.
    """

    name = "throttled moves"
    rates: tuple[int, ...] = (0, 300, 3_000, 30_000, 300_000)
    last_rate = 100_000
    """Bytes a second."""

    async def _reassign(self, replicas: list[int] | None) -> None:
        rng = self.context.rng
        await self._set_rate(rng.choice(self.rates))
        for side in ("leader", "follower"):
            key = f"{side}.replication.throttled.replicas"
            await self._alter(TOPIC, self.context.topic, key, rng.choice(("*", "*", self._some_replicas(), None)))
        await super()._reassign(replicas)

    async def finish(self) -> None:
        """Let the last reassignments end."""
        await self._set_rate(self.last_rate)

    def _some_replicas(self) -> str:
        rng = self.context.rng
        brokers = rng.sample(self._brokers, 3)
        return ",".join(f"{partition}:{broker}" for partition in range(2) for broker in brokers)

    async def _set_rate(self, rate: int) -> None:
        for side in ("leader", "follower"):
            await self._alter(BROKER, "", f"{side}.replication.throttled.rate", str(rate))

    async def _alter(self, kind: int, name: str, key: str, value: str | None) -> None:
        code = await self._admin.set(kind, name, key, value)
        if code:
            raise InvariantBroken("a throttle may be set", f"{key}={value}: {code.name}")


class MinIsrChanges(RepeatedChange):
    """Sets `min.insync.replicas` of the main topic to 1 and to 2 while its ISRs change.

    The setting decides which replicas may lead after they left the ISR (ELR, KIP-966), so leader and controller must
    use the same value. Beside it is a topic with a minimum of its own, some partitions of which have the same replicas.
    """

    name = "min isr"

    def __init__(self, context: ClientContext) -> None:
        super().__init__(context)
        self._admin = RetryingAdmin(context, self.name)

    async def run(self) -> None:
        """Make the topic beside, then changes."""
        cluster = ClusterClient(self.context.bootstrap, client_id=self.name, timeout_s=TIMEOUT_S, probe_timeout_s=None)
        await create_topic_until_done(cluster, NewTopic("beside", _PARTITIONS_BESIDE, -1, {"min.insync.replicas": "1"}))
        await super().run()

    async def change(self) -> None:
        """Set 1 or 2."""
        await self._set(self.context.rng.randrange(1, 3))

    async def finish(self) -> None:
        """Set the usual value again."""
        await self._set(2)

    async def _set(self, value: int) -> None:
        code = await self._admin.set(TOPIC, self.context.topic, "min.insync.replicas", str(value))
        if code:
            raise InvariantBroken("min.insync.replicas may be set", f"{value}: {code.name}")


class LogDirMoves(RepeatedChange):
    """Moves replicas between the log directories of their brokers."""

    name = "dir moves"

    def __init__(self, context: ClientContext, brokers: list[int], dirs: Sequence[str]) -> None:
        super().__init__(context)
        self._brokers = brokers
        self._dirs = dirs
        self._cluster = ClusterClient(context.bootstrap, client_id=self.name, timeout_s=TIMEOUT_S, probe_timeout_s=None)

    async def change(self) -> None:
        """Ask one broker once; a lost answer does not matter."""
        rng = self.context.rng
        try:
            await self._move(rng.choice(self._brokers), rng.choice(self._dirs))
        except (ClientError, *NO_ANSWER):
            return

    async def _move(self, broker: int, path: str) -> None:
        view = await self._cluster.metadata([self.context.topic])
        partitions = [one.partition for topic in view.topics for one in topic.partitions]
        if not partitions:
            return
        topic = {"name": self.context.topic, "partitions": [self.context.rng.choice(partitions)]}
        fields = {"dirs": [{"path": path, "topics": [topic]}]}
        answer = await self._cluster.request_node(
            broker, ApiKey.ALTER_REPLICA_LOG_DIRS, _ALTER_REPLICA_LOG_DIRS, fields
        )
        code = ErrorCode(answer.results[0].partitions[0].error_code)
        if code not in (ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.REPLICA_NOT_AVAILABLE):
            raise InvariantBroken("replicas may be moved between directories", f"{broker} {path}: {code.name}")
