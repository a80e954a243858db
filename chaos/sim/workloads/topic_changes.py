"""A topic in the simulator that is created, grows, is deleted and is created again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple
from uuid import UUID

from ....cluster.client.client_errors import ClientError
from ....cluster.client.cluster_client import NO_ANSWER, TopicView
from ....wire.api_keys import ApiKey
from ....wire.errors import ErrorCode
from ....wire.fetch import FetchPartition, FetchRequest, FetchTopic, decode_fetch_response, encode_fetch_request
from ....wire.records import NewRecord, encode_batch, iter_headers, iter_records
from ..invariants.invariant_broken import InvariantBroken
from .administrator import PAUSE_S, TIMEOUT_S, RetryingAdmin
from .clients import ClientContext

_CREATE_TOPICS = 7
_DELETE_TOPICS = 6
_CREATE_PARTITIONS = 3
_BY_ID = 13
"""Produce and Fetch name topics by their ids from this version on."""
_ALL_FENCED = (ErrorCode.INVALID_REPLICA_ASSIGNMENT,)
"""The answer while all brokers of an assignment are fenced."""
_ASSIGNED_PROBABILITY = 0.5
_LATE_S = 5.0
"""For how long a request without an answer may still be carried out, once there are no faults any more."""


class TopicSizes(NamedTuple):
    """How large a topic is: at first a number of partitions and of replicas of each, and how it grows."""

    first: Sequence[tuple[int, int]]
    growth: int
    grows_below: int
    """A topic with so many partitions grows no more."""


NARROW = TopicSizes(((1, -1), (2, -1), (3, -1)), growth=1, grows_below=6)
WIDE = TopicSizes(((2, 2), (6, 2), (8, 2), (12, 1), (5, 3), (4, 4), (3, 5), (20, 2)), growth=6, grows_below=16)
"""For clusters of five brokers: of two replicas, enough partitions for each pair of brokers."""


class TopicChanges:
    """Creates, grows and deletes one topic. Each record names the topic id that it was sent to, and is in no other."""

    name = "churn"

    def __init__(
        self,
        context: ClientContext,
        views: Callable[[], list[tuple[UUID, int] | None]],
        min_isrs: Sequence[str | None] = (None,),
        sizes: TopicSizes = NARROW,
        assigned_to: Sequence[int] = (),
    ) -> None:
        """`views` gives, for each broker, the topic id and the number of partitions that it knows.

        Each topic gets one of the `min_isrs`, as its min.insync.replicas; None leaves it to the cluster. And it has one
        of the `sizes`. Half of the time its partitions are
        assigned to the brokers `assigned_to`, in any order; without these always by the controller.
        """
        self._context = context
        self._views = views
        self._min_isrs = min_isrs
        self._assigned_to = assigned_to
        self._sizes = sizes
        self._admin = RetryingAdmin(context, self.name)
        self._partitions = 0
        self._answers_known_lost = 0
        """Those among the lost answers whose requests cannot be carried out any more."""
        self._stopping = False
        self._finished = False

    def stop(self) -> None:
        """See `Workload`."""
        self._stopping = True

    async def run(self) -> None:
        """See `Workload`."""
        rng = self._context.rng
        while not self._stopping:
            steps = [self._grow, self._delete, self._recreate, self._write, self._write]
            await (rng.choice(steps) if self._partitions else self._create)()
            await asyncio.sleep(rng.expovariate(1 / PAUSE_S))
        await self._make_sure()
        if not self._partitions:
            await self._create()
        await self._write()
        self._finished = True

    @property
    def _in_doubt(self) -> bool:
        """Whether a request of which nobody knows whether it was carried out may have changed the topic since."""
        return self._admin.lost_answers > self._answers_known_lost

    async def _make_sure(self) -> None:
        """Delete the topic until there is no doubt about it: the faults are over, so the last answers are not lost."""
        while self._in_doubt:
            lost = self._admin.lost_answers
            await asyncio.sleep(_LATE_S)
            await self._delete()
            if self._admin.lost_answers == lost:
                self._answers_known_lost = lost

    def why_not_settled(self) -> str | None:
        """See `Workload`."""
        if not self._finished:
            return "it still acts"
        views = self._views()
        if len({*views}) > 1:
            return f"the brokers differ: {views}"
        known = views[0][1] if views[0] is not None else 0
        is_right = known == self._partitions or self._in_doubt
        return None if is_right else f"{known} partitions, {self._partitions} were asked for"  # it may be behind

    def check(self) -> None:
        """Every broker knows the topic as the last answers left it."""
        for view in self._views():
            known = view[1] if view is not None else 0
            if known != self._partitions and not self._in_doubt:
                detail = f"{known} partitions, {self._partitions} were asked for"
                raise InvariantBroken("an answered change of topics stays", detail)

    async def _create(self) -> None:
        count, factor = self._sizes.first[self._context.rng.randrange(len(self._sizes.first))]
        assigned = self._assignments(count)
        size = (-1, -1) if assigned else (count, factor)
        row = {"name": self._context.topic, "num_partitions": size[0], "replication_factor": size[1]}
        rows = [{"partition_index": index, "broker_ids": brokers} for index, brokers in enumerate(assigned)]
        # Without a choice nothing is drawn, which would change the runs of all other scenarios.
        min_isr = self._context.rng.choice(self._min_isrs) if len(self._min_isrs) > 1 else self._min_isrs[0]
        configs = [] if min_isr is None else [{"name": "min.insync.replicas", "value": min_isr}]
        fields = {"topics": [{**row, "assignments": rows, "configs": configs}], "validate_only": False}
        code = await self._admin.ask(
            ApiKey.CREATE_TOPICS, _CREATE_TOPICS, fields, lambda a: a.topics[0].error_code, may_pass=_ALL_FENCED
        )
        self._expect(code, "create", if_repeated=ErrorCode.TOPIC_ALREADY_EXISTS)
        self._partitions = count

    def _assignments(self, count: int) -> list[list[int]]:
        """The replicas of so many partitions; empty when the controller is to choose them."""
        rng = self._context.rng
        if not self._assigned_to or rng.random() >= _ASSIGNED_PROBABILITY:
            return []
        return [rng.sample(self._assigned_to, len(self._assigned_to)) for _ in range(count)]

    async def _recreate(self) -> None:
        """A broker that is down meanwhile finds another topic under the name of its logs (KIP-516)."""
        await self._delete()
        await self._create()

    async def _grow(self) -> None:
        growth = self._sizes.growth
        if self._partitions >= self._sizes.grows_below:
            return
        assigned = [{"broker_ids": brokers} for brokers in self._assignments(growth)] or None
        row = {"name": self._context.topic, "count": self._partitions + growth, "assignments": assigned}
        fields = {"topics": [row], "validate_only": False}
        code = await self._admin.ask(
            ApiKey.CREATE_PARTITIONS,
            _CREATE_PARTITIONS,
            fields,
            lambda a: a.results[0].error_code,
            may_pass=_ALL_FENCED,
        )
        self._expect(code, "grow", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, if_repeated=ErrorCode.INVALID_PARTITIONS)
        self._partitions += growth

    async def _delete(self) -> None:
        fields = {"topics": [{"name": self._context.topic, "topic_id": None}]}
        code = await self._admin.ask(
            ApiKey.DELETE_TOPICS, _DELETE_TOPICS, fields, lambda answer: answer.responses[0].error_code
        )
        self._expect(code, "delete", if_repeated=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        self._partitions = 0

    def _expect(self, code: ErrorCode, what: str, *in_doubt: ErrorCode, if_repeated: ErrorCode) -> None:
        """Raise for an error that no lost answer explains.

        `if_repeated` says that the change is there already: a broker that loses its connection to the controller
        forwards the request again, as Kafka's does, and the controller may have carried out the first one.
        """
        if code and code != if_repeated and not (self._in_doubt and code in in_doubt):
            raise InvariantBroken("a change of topics is answered rightly", f"{what}: {code.name}")

    # -- records

    async def _write(self) -> None:
        try:
            topic = await self._look()
            if topic is None or topic.topic_id is None:
                return
            partition = self._context.rng.choice(topic.partitions)
            await self._produce(topic.topic_id, partition.partition, partition.leader)
            await self._read(topic.topic_id, partition.partition, partition.leader)
        except (ClientError, *NO_ANSWER):
            return

    async def _look(self) -> TopicView | None:
        view = await self._admin.cluster.metadata([self._context.topic])
        return next((topic for topic in view.topics if topic.partitions), None)

    async def _produce(self, topic_id: UUID, partition: int, leader: int) -> None:
        records = bytes(encode_batch([NewRecord(b"k", str(topic_id).encode(), (), self._context.wall_ms())]))
        rows = [{"topic_id": topic_id, "partition_data": [{"index": partition, "records": records}]}]
        fields = {"transactional_id": None, "acks": -1, "timeout": 1000, "topic_data": rows}
        await self._admin.cluster.request_node(leader, ApiKey.PRODUCE, _BY_ID, fields)

    async def _read(self, topic_id: UUID, partition: int, leader: int) -> None:
        request = FetchRequest(max_wait_ms=100, topics=[FetchTopic(None, topic_id, [FetchPartition(partition)])])
        connection = await self._admin.cluster.connection(leader)
        body = [encode_fetch_request(_BY_ID, request)]
        answer = await connection.send_raw(ApiKey.FETCH, _BY_ID, body, timeout_s=TIMEOUT_S)
        for topic in decode_fetch_response(_BY_ID, answer).topics:
            records = memoryview(topic.partitions[0].records_in_memory())
            for position, header in iter_headers(records, allow_partial_tail=True):
                for record in iter_records(records[position : position + header.size_bytes]):
                    if bytes(record.value or b"") != str(topic_id).encode():
                        detail = f"{topic_id}-{partition} at {record.offset}: {bytes(record.value or b'')!r}"
                        raise InvariantBroken("a topic made anew holds nothing of the old", detail)
