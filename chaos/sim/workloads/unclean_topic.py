"""A topic that allows unclean elections, and an account of every record that they take.

Each record is sent once, with acks=all. Acked records may be missing only where an unclean election is on record in the
metadata, and only those that the elected replica did not have. All others are there once, where they were acked.
"""

from __future__ import annotations

import asyncio

from ....cluster.client.admin_client import NewTopic
from ....cluster.client.cluster_client import NO_ANSWER
from ....wire.api_keys import ApiKey
from ....wire.errors import ErrorCode
from ....wire.records import NewRecord, encode_batch
from ..invariants.invariant_broken import InvariantBroken
from .clients import ClientContext, TopicClient, TopicConsumer
from .workload import create_topic_until_done

_PARTITIONS = 2
_PRODUCE_VERSION = 9
_PAUSE_S = 0.08


class UncleanTopicLoad:
    """A producer with one request at a time for each partition; a consumer reads all at the end. A `Workload`."""

    name = "unclean"

    def __init__(self, context: ClientContext) -> None:
        self.finished = False
        self._context = context
        self._client = TopicClient(context, self.name)
        self._consumer = TopicConsumer(context, "unclean topic's consumer")
        self._sent: dict[str, None] = {}
        self._acked: dict[int, dict[int, str]] = {}
        """By partition and offset."""
        self._stopping = False
        context.checker.may_lose[context.topic] = None

    async def run(self) -> None:
        """See `Workload`."""
        min_isr = self._context.rng.choice((1, 2))
        configs = {"unclean.leader.election.enable": "true", "min.insync.replicas": str(min_isr)}
        await create_topic_until_done(self._client.cluster, NewTopic(self._context.topic, _PARTITIONS, -1, configs))
        await self._client.until_known()
        await asyncio.gather(*(self._send_partition(each.partition) for each in self._client.partitions))
        self.finished = True
        await self._consumer.run()

    def stop(self) -> None:
        """See `Workload`."""
        self._stopping = True

    def why_not_settled(self) -> str | None:
        """See `Workload`."""
        if not self.finished:
            return "it still sends"
        return None if self._consumer.caught_up() else f"its consumer reads: {self._consumer.describe()}"

    def check(self) -> None:
        """The promises at the top of this module hold."""
        for partition, values in self._context.history.consumed.items():
            if len(set(values.values())) != len(values):
                raise InvariantBroken("a record sent once is there once", f"partition {partition}: {values}")
            strange = [value for value in values.values() if value not in self._sent]
            if strange:
                raise InvariantBroken("what is there was sent", f"partition {partition}: {strange}")
            losses = self._context.checker.losses.get((self._client.topic_id, partition), [])
            for offset, value in self._acked.get(partition, {}).items():
                is_lost = any(loss.kept_end <= offset < loss.lost_end for loss in losses)
                if values.get(offset) != value and not is_lost:
                    detail = f"{value} acked at {offset}, there is {values.get(offset)}; losses {losses}"
                    raise InvariantBroken("acked records are lost by unclean elections only", detail)

    async def _send_partition(self, partition: int) -> None:
        number = 0
        while not self._stopping:
            value = f"{self.name}/{partition}/{number}"
            number += 1
            self._sent[value] = None
            if not await self._send(partition, value):
                await self._client.refresh()
            await asyncio.sleep(self._context.rng.expovariate(1 / _PAUSE_S))

    async def _send(self, partition: int, value: str) -> bool:
        records = encode_batch([NewRecord(b"k", value.encode(), (), self._context.wall_ms())])
        data = {"index": partition, "records": bytes(records)}
        topics = [{"name": self._context.topic, "partition_data": [data]}]
        fields = {"transactional_id": None, "acks": -1, "timeout": 1500, "topic_data": topics}
        try:
            connection = await self._client.cluster.connection(self._client.partitions[partition].leader)
            answer = await connection.request(ApiKey.PRODUCE, _PRODUCE_VERSION, fields, timeout_s=3.0)
        except NO_ANSWER:
            return False
        row = answer.responses[0].partition_responses[0]
        if row.error_code == ErrorCode.NONE:
            self._context.checker.on_acked((self._client.topic_id, partition), row.base_offset, 1)
            self._acked.setdefault(partition, {})[row.base_offset] = value
        return bool(row.error_code == ErrorCode.NONE)
