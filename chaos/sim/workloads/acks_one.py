"""A producer with acks=1 and without idempotence, that never sends a record twice.

An ack says that one leader had the record, and the record may be lost with that leader. No record may be there twice,
and none that was not sent. Records that were acked one after the other, and survive, keep their order.
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

_PRODUCE_VERSION = 9
_PAUSE_S = 0.05
_TIMEOUT_S = 3.0


class AcksOneLoad:
    """A producer with one request at a time for each partition, and a consumer. A `Workload`."""

    name = "plain"

    def __init__(self, context: ClientContext) -> None:
        self.finished = False
        self._context = context
        self._client = TopicClient(context, self.name)
        self._consumer = TopicConsumer(context, "plain consumer")
        self._sent: dict[str, None] = {}
        self._acked: dict[int, list[str]] = {}
        self._stopping = False

    async def run(self) -> None:
        """See `Workload`."""
        await create_topic_until_done(self._client.cluster, NewTopic(self._context.topic, 2, -1, {}))
        await self._client.until_known()
        reader = asyncio.get_running_loop().create_task(self._consumer.run(), name="plain consumer")
        await asyncio.gather(*(self._send_partition(each.partition) for each in self._client.partitions))
        self.finished = True
        await reader

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
            found = {value: offset for offset, value in sorted(values.items())}
            if len(found) != len(values):
                raise InvariantBroken("a record sent once is there once", f"partition {partition}: {values}")
            strange = [value for value in found if value not in self._sent]
            if strange:
                raise InvariantBroken("what is there was sent", f"partition {partition}: {strange}")
            offsets = [found[value] for value in self._acked.get(partition, []) if value in found]
            if offsets != sorted(offsets):
                raise InvariantBroken("acked records keep their order", f"partition {partition}: {offsets}")

    async def _send_partition(self, partition: int) -> None:
        number = 0
        while not self._stopping:
            value = f"{self.name}/{partition}/{number}"
            number += 1
            self._sent[value] = None
            if await self._send(partition, value):
                self._acked.setdefault(partition, []).append(value)
            else:
                await self._client.refresh()
            await asyncio.sleep(self._context.rng.expovariate(1 / _PAUSE_S))

    async def _send(self, partition: int, value: str) -> bool:
        records = encode_batch([NewRecord(b"k", value.encode(), (), self._context.wall_ms())])
        data = {"index": partition, "records": bytes(records)}
        topics = [{"name": self._context.topic, "partition_data": [data]}]
        fields = {"transactional_id": None, "acks": 1, "timeout": 1500, "topic_data": topics}
        try:
            connection = await self._client.cluster.connection(self._client.partitions[partition].leader)
            answer = await connection.request(ApiKey.PRODUCE, _PRODUCE_VERSION, fields, timeout_s=_TIMEOUT_S)
        except NO_ANSWER:
            return False
        code: int = answer.responses[0].partition_responses[0].error_code
        return code == ErrorCode.NONE
