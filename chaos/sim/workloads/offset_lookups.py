"""A client in the simulator that asks leaders for the ends of partitions, as a consumer does that begins at the end.

The end that consumers are told does not go back (KIP-207): a new leader answers only when it knows that everything is
committed which its predecessor may have shown. A former leader may answer late; so answers are compared with those of
earlier epochs, and with earlier answers of the same epoch.

Now and then it opens a fetch session (KIP-227), and never uses it again. Where slots are few, it has one that a
follower wants, which must not be kept from it.
"""

from __future__ import annotations

import asyncio

from ....cluster.client.cluster_client import NO_ANSWER, PartitionView
from ....wire.api_keys import ApiKey
from ....wire.errors import ErrorCode
from ....wire.fetch import FetchPartition, FetchRequest, FetchTopic, encode_fetch_request
from ..invariants.invariant_broken import InvariantBroken
from .administrator import RepeatedChange
from .clients import ClientContext, TopicClient

_LIST_OFFSETS = 7
_LATEST = -1
_FETCH_VERSION = 12
_SESSION_PROBABILITY = 0.2
_TIMEOUT_S = 1.0


class OffsetLookups(RepeatedChange):
    """Asks for the end of one partition after the other."""

    name = "offset lookups"
    mean_pause_s = 0.02

    def __init__(self, context: ClientContext) -> None:
        super().__init__(context)
        self._client = TopicClient(context, self.name)
        self._ends: dict[int, dict[int, int]] = {}
        """The last answer for each partition by leader epoch."""

    async def change(self) -> None:
        """Ask once; a lost answer does not matter."""
        if not self._client.partitions:
            await self._client.refresh()
            return
        view = self.context.rng.choice(self._client.partitions)
        try:
            if self.context.rng.random() < _SESSION_PROBABILITY:
                await self._open_session(view)
            code, offset = await self._ask(view)
        except NO_ANSWER:
            code, offset = ErrorCode.NETWORK_EXCEPTION, -1
        if code:
            await self._client.refresh()
        else:
            self._judge(view, offset)

    async def _ask(self, view: PartitionView) -> tuple[int, int]:
        asked = {"partition_index": view.partition, "current_leader_epoch": view.leader_epoch, "timestamp": _LATEST}
        topics = [{"name": self._client.topic, "partitions": [asked]}]
        fields = {"replica_id": -1, "isolation_level": 0, "topics": topics}
        connection = await asyncio.wait_for(self._client.cluster.connection(view.leader), _TIMEOUT_S)
        answer = await connection.request(ApiKey.LIST_OFFSETS, _LIST_OFFSETS, fields, timeout_s=_TIMEOUT_S)
        row = answer.topics[0].partitions[0]
        return row.error_code, row.offset

    async def _open_session(self, view: PartitionView) -> None:
        wanted = FetchPartition(view.partition, current_leader_epoch=view.leader_epoch, fetch_offset=0)
        topics = [FetchTopic(self._client.topic, None, [wanted])]
        request = FetchRequest(max_wait_ms=0, session_id=0, session_epoch=0, topics=topics)
        connection = await asyncio.wait_for(self._client.cluster.connection(view.leader), _TIMEOUT_S)
        body = [encode_fetch_request(_FETCH_VERSION, request)]
        await connection.send_raw(ApiKey.FETCH, _FETCH_VERSION, body, timeout_s=_TIMEOUT_S)

    def _judge(self, view: PartitionView, offset: int) -> None:
        ends = self._ends.setdefault(view.partition, {})
        known = max((end for epoch, end in ends.items() if epoch <= view.leader_epoch), default=0)
        if offset < known:
            detail = f"partition {view.partition}, epoch {view.leader_epoch}: {offset} after {known}; {ends}"
            raise InvariantBroken("the end that consumers are told does not go back", detail)
        ends[view.leader_epoch] = offset
