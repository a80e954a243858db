"""Administrators in the simulator: one whose topic comes, grows, goes and comes again, one who moves partitions.

A request whose answer is lost may still be carried out later, even after others. So "already exists" to the first
create, or "unknown topic" to the first delete, proves a bug only while no answer was ever lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import UUID

from ....cluster.client.client_errors import ClientError, is_retriable
from ....cluster.client.cluster_client import LOST, ClusterClient, TopicView
from ....wire.api_keys import ApiKey
from ....wire.codec import Struct
from ....wire.errors import ErrorCode
from ....wire.fetch import FetchPartition, FetchRequest, FetchTopic, decode_fetch_response, encode_fetch_request
from ....wire.records import NewRecord, encode_batch, iter_headers, iter_records
from ..invariants.quorum_invariants import InvariantBroken
from .clients import Surroundings

_CREATE_TOPICS = 7
_DELETE_TOPICS = 6
_CREATE_PARTITIONS = 3
_ALTER_REASSIGNMENTS = 0
_ELECT_LEADERS = 2
_ALTER_CONFIGS = 1
_SET, _DELETE = 0, 1
_TOPIC, _BROKER = 2, 4
_BY_ID = 13
"""Produce and Fetch name topics by their ids from this version on."""
_FINAL = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,)
_NOT_YET = (ErrorCode.INVALID_REPLICATION_FACTOR,)
"""What a controller says that knows no unfenced broker yet."""
_PARTITIONS_MAX = 6
_PAUSE_S = 0.15
_RETRY_S = 0.1
_TIMEOUT_S = 3.0


class Admin:
    """Asks any broker until it has an answer that settles the matter."""

    def __init__(self, given: Surroundings, name: str) -> None:
        self.cluster = ClusterClient(given.bootstrap, client_id=name, timeout_s=_TIMEOUT_S)
        self.in_doubt = False
        """Whether an answer was lost, ever."""

    async def ask(
        self, api: ApiKey, version: int, fields: Mapping[str, Any], code_of: Callable[[Struct], int]
    ) -> ErrorCode:
        """The first code that is not temporary."""
        while True:
            try:
                code = code_of(await self.cluster.request(api, version, {**fields, "timeout": 2000}))
            except ClientError:
                self.in_doubt = True
            else:
                self.in_doubt = self.in_doubt or code == ErrorCode.REQUEST_TIMED_OUT
                if code in _FINAL or not (code in _NOT_YET or is_retriable(code)):
                    return ErrorCode(code)
            await asyncio.sleep(_RETRY_S)

    async def set(self, kind: int, name: str, key: str, value: str | None) -> ErrorCode:
        """Give a setting of a topic or a broker (`kind`) another value; None: its default."""
        change = {"name": key, "config_operation": _DELETE if value is None else _SET, "value": value}
        resource = {"resource_type": kind, "resource_name": name, "configs": [change]}
        return await self.ask(
            ApiKey.INCREMENTAL_ALTER_CONFIGS,
            _ALTER_CONFIGS,
            {"resources": [resource], "validate_only": False},
            lambda answer: answer.responses[0].error_code,
        )


class TopicChurn:
    """An `Actor`. Its records say for which incarnation of the topic they were meant; they are in no other."""

    name = "churn"

    def __init__(self, given: Surroundings, views: Callable[[], list[tuple[UUID, int] | None]]) -> None:
        """`views` gives what each broker knows of the topic: its id and number of partitions."""
        self._given = given
        self._views = views
        self._admin = Admin(given, self.name)
        self._partitions = 0
        self._stopping = False
        self._finished = False

    def stop(self) -> None:
        self._stopping = True

    async def run(self) -> None:
        rng = self._given.rng
        while not self._stopping:
            steps = [self._create] if not self._partitions else [self._grow, self._delete, self._write, self._write]
            await rng.choice(steps)()
            await asyncio.sleep(rng.expovariate(1 / _PAUSE_S))
        if not self._partitions:
            await self._create()
        await self._write()
        self._finished = True

    def why_not_settled(self) -> str | None:
        if not self._finished:
            return "it still acts"
        views = self._views()
        if len({*views}) > 1:
            return f"the brokers differ: {views}"
        known = views[0][1] if views[0] is not None else 0
        is_right = known == self._partitions or self._admin.in_doubt
        return None if is_right else f"{known} partitions, {self._partitions} were asked for"  # it may be behind

    def check(self) -> None:
        """All know the topic as the last answers left it."""
        for view in self._views():
            known = view[1] if view is not None else 0
            if known != self._partitions and not self._admin.in_doubt:
                detail = f"{known} partitions, {self._partitions} were asked for"
                raise InvariantBroken("an answered change of topics stays", detail)

    async def _create(self) -> None:
        count = self._given.rng.randrange(1, 4)
        row = {"name": self._given.topic, "num_partitions": count, "replication_factor": -1}
        fields = {"topics": [{**row, "assignments": [], "configs": []}], "validate_only": False}
        code = await self._admin.ask(ApiKey.CREATE_TOPICS, _CREATE_TOPICS, fields, lambda a: a.topics[0].error_code)
        self._expect(code, "create", if_repeated=ErrorCode.TOPIC_ALREADY_EXISTS)
        self._partitions = count

    async def _grow(self) -> None:
        if self._partitions >= _PARTITIONS_MAX:
            return
        row = {"name": self._given.topic, "count": self._partitions + 1, "assignments": None}
        fields = {"topics": [row], "validate_only": False}
        code = await self._admin.ask(
            ApiKey.CREATE_PARTITIONS, _CREATE_PARTITIONS, fields, lambda answer: answer.results[0].error_code
        )
        self._expect(code, "grow", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, if_repeated=ErrorCode.INVALID_PARTITIONS)
        self._partitions += 1

    async def _delete(self) -> None:
        fields = {"topics": [{"name": self._given.topic, "topic_id": None}]}
        code = await self._admin.ask(
            ApiKey.DELETE_TOPICS, _DELETE_TOPICS, fields, lambda answer: answer.responses[0].error_code
        )
        self._expect(code, "delete", if_repeated=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        self._partitions = 0

    def _expect(self, code: ErrorCode, what: str, *in_doubt: ErrorCode, if_repeated: ErrorCode) -> None:
        """Refuse an error. `if_repeated` says that the change is there already: a broker that loses its connection to
        the controller forwards a request once more, as Kafka's does, and the controller may have carried it out.
        """
        if code and code != if_repeated and not (self._admin.in_doubt and code in in_doubt):
            raise InvariantBroken("a change of topics is answered rightly", f"{what}: {code.name}")

    # -- records

    async def _write(self) -> None:
        try:
            topic = await self._look()
            if topic is None or topic.topic_id is None:
                return
            partition = self._given.rng.choice(topic.partitions)
            await self._produce(topic.topic_id, partition.partition, partition.leader)
            await self._read(topic.topic_id, partition.partition, partition.leader)
        except (ClientError, *LOST):
            return

    async def _look(self) -> TopicView | None:
        view = await self._admin.cluster.metadata([self._given.topic])
        return next((topic for topic in view.topics if topic.partitions), None)

    async def _produce(self, topic_id: UUID, partition: int, leader: int) -> None:
        records = bytes(encode_batch([NewRecord(b"k", str(topic_id).encode(), (), self._given.wall_ms())]))
        rows = [{"topic_id": topic_id, "partition_data": [{"index": partition, "records": records}]}]
        fields = {"transactional_id": None, "acks": -1, "timeout": 1000, "topic_data": rows}
        await self._admin.cluster.request_node(leader, ApiKey.PRODUCE, _BY_ID, fields)

    async def _read(self, topic_id: UUID, partition: int, leader: int) -> None:
        request = FetchRequest(max_wait_ms=100, topics=[FetchTopic(None, topic_id, [FetchPartition(partition)])])
        connection = await self._admin.cluster.connection(leader)
        body = [encode_fetch_request(_BY_ID, request)]
        answer = await connection.send_raw(ApiKey.FETCH, _BY_ID, body, timeout_s=_TIMEOUT_S)
        for topic in decode_fetch_response(_BY_ID, answer).topics:
            records = memoryview(topic.partitions[0].records_in_memory())
            for position, header in iter_headers(records, allow_partial_tail=True):
                for record in iter_records(records[position : position + header.size_bytes]):
                    if bytes(record.value or b"") != str(topic_id).encode():
                        detail = f"{topic_id}-{partition} at {record.offset}: {bytes(record.value or b'')!r}"
                        raise InvariantBroken("a topic made anew holds nothing of the old", detail)


class LeaderMover:
    """An `Actor`: gives partitions of the main topic another preferred leader, and asks for it at once.

    So leaders change while everybody lives, and soon again, before their followers have all.
    """

    name = "elections"

    def __init__(self, given: Surroundings, brokers: list[int]) -> None:
        """`brokers` hold the topic, all of them."""
        self._given = given
        self._brokers = brokers
        self._admin = Admin(given, self.name)
        self._stopping = False
        self._finished = False

    def stop(self) -> None:
        self._stopping = True

    async def run(self) -> None:
        rng = self._given.rng
        while not self._stopping:
            await asyncio.sleep(rng.expovariate(1 / _PAUSE_S))
            await self._elect(rng.randrange(2), rng.sample(self._brokers, len(self._brokers)))
        self._finished = True

    def why_not_settled(self) -> str | None:
        return None if self._finished else "it still acts"

    def check(self) -> None:
        """Who leads does not matter."""

    async def _elect(self, partition: int, replicas: list[int]) -> None:
        row = {"partition_index": partition, "replicas": replicas}
        moves = {"topics": [{"name": self._given.topic, "partitions": [row]}]}
        await self._admin.ask(
            ApiKey.ALTER_PARTITION_REASSIGNMENTS, _ALTER_REASSIGNMENTS, moves, lambda answer: answer.error_code
        )
        topics = [{"topic": self._given.topic, "partitions": [partition]}]
        fields = {"election_type": 0, "topic_partitions": topics}
        await self._admin.ask(ApiKey.ELECT_LEADERS, _ELECT_LEADERS, fields, lambda answer: answer.error_code)


class PartitionMover:
    """An `Actor`: gives partitions of the main topic other replicas, and sometimes thinks better of it."""

    name = "moves"

    def __init__(self, given: Surroundings, brokers: list[int], why_moving: Callable[[], str | None]) -> None:
        """`why_moving` names a partition that is on its way, None when there is none."""
        self._given = given
        self._brokers = brokers
        self._why_moving = why_moving
        self._admin = Admin(given, self.name)
        self._stopping = False
        self._finished = False

    def stop(self) -> None:
        self._stopping = True

    async def run(self) -> None:
        rng = self._given.rng
        while not self._stopping:
            await asyncio.sleep(rng.expovariate(1 / (2 * _PAUSE_S)))
            await self._move(rng.sample(self._brokers, 3) if rng.random() < 0.8 else None)
        self._finished = True

    def why_not_settled(self) -> str | None:
        return self._why_moving() if self._finished else "it still acts"

    def check(self) -> None:
        """Where partitions are does not matter; that they get there does."""

    async def _move(self, replicas: list[int] | None) -> None:
        partition = {"partition_index": self._given.rng.randrange(2), "replicas": replicas}
        fields = {"topics": [{"name": self._given.topic, "partitions": [partition]}]}

        def code_of(answer: Struct) -> int:
            code: int = answer.error_code or answer.responses[0].partitions[0].error_code
            return code

        code = await self._admin.ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, _ALTER_REASSIGNMENTS, fields, code_of)
        nothing_to_cancel = replicas is None and code == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
        if code and not nothing_to_cancel:
            raise InvariantBroken("partitions may be moved", f"{partition}: {code.name}")


class ThrottledMover(PartitionMover):
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
        rng = self._given.rng
        await self._set_rate(rng.choice(self.rates))
        for side in ("leader", "follower"):
            key = f"{side}.replication.throttled.replicas"
            await self._alter(_TOPIC, self._given.topic, key, rng.choice(("*", "*", self._some_replicas(), None)))
        await super()._move(replicas)

    def _some_replicas(self) -> str:
        rng = self._given.rng
        brokers = rng.sample(self._brokers, 3)
        return ",".join(f"{partition}:{broker}" for partition in range(2) for broker in brokers)

    async def _set_rate(self, rate: int) -> None:
        for side in ("leader", "follower"):
            await self._alter(_BROKER, "", f"{side}.replication.throttled.rate", str(rate))

    async def _alter(self, kind: int, name: str, key: str, value: str | None) -> None:
        code = await self._admin.set(kind, name, key, value)
        if code:
            raise InvariantBroken("a throttle may be set", f"{key}={value}: {code.name}")


class MinIsrMover:
    """An `Actor`: changes `min.insync.replicas` of the main topic, to 1 and back to 2, while its ISRs change.

    Which replicas may lead though they left the ISR depends on it, so leader and controller must go by the same value.
    """

    name = "min isr"

    def __init__(self, given: Surroundings) -> None:
        self._given = given
        self._admin = Admin(given, self.name)
        self._stopping = False
        self._finished = False

    def stop(self) -> None:
        self._stopping = True

    async def run(self) -> None:
        rng = self._given.rng
        while not self._stopping:
            await asyncio.sleep(rng.expovariate(1 / _PAUSE_S))
            await self._set(rng.randrange(1, 3))
        await self._set(2)
        self._finished = True

    def why_not_settled(self) -> str | None:
        return None if self._finished else "it still acts"

    def check(self) -> None:
        """What is committed is watched by others."""

    async def _set(self, value: int) -> None:
        code = await self._admin.set(_TOPIC, self._given.topic, "min.insync.replicas", str(value))
        if code:
            raise InvariantBroken("min.insync.replicas may be set", f"{value}: {code.name}")


class DirMover:
    """An `Actor`: moves replicas between the log directories of their brokers."""

    name = "dir moves"

    def __init__(self, given: Surroundings, brokers: list[int], dirs: Sequence[str]) -> None:
        self._given = given
        self._brokers = brokers
        self._dirs = dirs
        self._cluster = ClusterClient(given.bootstrap, client_id=self.name, timeout_s=_TIMEOUT_S)
        self._stopping = False
        self._finished = False

    def stop(self) -> None:
        self._stopping = True

    async def run(self) -> None:
        rng = self._given.rng
        while not self._stopping:
            await asyncio.sleep(rng.expovariate(1 / _PAUSE_S))
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
        view = await self._cluster.metadata([self._given.topic])
        partitions = [one.partition for topic in view.topics for one in topic.partitions]
        if not partitions:
            return
        topic = {"name": self._given.topic, "partitions": [self._given.rng.choice(partitions)]}
        fields = {"dirs": [{"path": path, "topics": [topic]}]}
        answer = await self._cluster.request_node(broker, ApiKey.ALTER_REPLICA_LOG_DIRS, 2, fields)
        code = ErrorCode(answer.results[0].partitions[0].error_code)
        if code not in (ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.REPLICA_NOT_AVAILABLE):
            raise InvariantBroken("replicas may be moved between directories", f"{broker} {path}: {code.name}")
