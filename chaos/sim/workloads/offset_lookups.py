"""Clients in the simulator that ask leaders for offsets: the ends of partitions, and the first record from a time on.

A consumer that begins at the end asks for that.

The end that consumers are told does not go back (KIP-207): a new leader answers only when it knows that everything is
committed which its predecessor may have shown. A former leader may answer late; so answers are compared with those of
earlier epochs, and with earlier answers of the same epoch.

Now and then it opens a fetch session (KIP-227), and never uses it again. Where slots are few, it has one that a
follower wants, which must not be kept from it.

Offsets by time are those of committed records: "a time finds the first record that is not older", among all that no
replica has removed since then. In the end each replica is asked, too, and all that it holds is looked through.
"""

from __future__ import annotations

import asyncio

from ....cluster.client.cluster_client import NO_ANSWER, PartitionView
from ....isr.fetching.offset_lookup import LATEST_TIMESTAMP, MAX_TIMESTAMP
from ....wire.api_keys import ApiKey
from ....wire.codec import Struct
from ....wire.fetch import FetchPartition, FetchRequest, FetchTopic, encode_fetch_request
from ....wire.types import TopicPartition
from ..invariants.invariant_broken import InvariantBroken
from ..invariants.settings.time_lookups import check_answer, check_log
from ..invariants.settings.topic_settings_checker import TopicSettingsChecker
from .administrator import RepeatedChange
from .clients import ClientContext, TopicClient

_LIST_OFFSETS = 7
_OFFSET_FOR_LEADER_EPOCH = 4
_FETCH_VERSION = 12
_SESSION_PROBABILITY = 0.2
_ELSEWHERE_PROBABILITY = 0.1
_FORMER_EPOCH_PROBABILITY = 0.05
_TIMEOUT_S = 1.0
_GREATEST_PROBABILITY = 0.1
_NEWEST = 5
"""How many of the last records count as the newest."""
_AROUND_MS = 3
"""How far from the time of a record the client asks."""


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
            is_refused = await self.look_up(view)
        except NO_ANSWER:
            is_refused = True
        if is_refused:
            await self._client.refresh()

    async def look_up(self, view: PartitionView) -> bool:
        """Ask once, and judge the answer; whether it is an error. Raises one of `NO_ANSWER`, and `InvariantBroken`."""
        row = await self.ask(view, LATEST_TIMESTAMP)
        if not row.error_code:
            self._judge(view, row.offset)
        return bool(row.error_code)

    async def ask(self, view: PartitionView, timestamp_ms: int) -> Struct:
        """The answer to one question. Raises one of `NO_ANSWER`."""
        asked = {
            "partition_index": view.partition,
            "current_leader_epoch": view.leader_epoch,
            "timestamp": timestamp_ms,
        }
        topics = [{"name": self._client.topic, "partitions": [asked]}]
        fields = {"replica_id": -1, "isolation_level": 0, "topics": topics}
        connection = await asyncio.wait_for(self._client.cluster.connection(view.leader), _TIMEOUT_S)
        answer = await connection.request(ApiKey.LIST_OFFSETS, _LIST_OFFSETS, fields, timeout_s=_TIMEOUT_S)
        row: Struct = answer.topics[0].partitions[0]
        return row

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


class EpochLookups(OffsetLookups):
    """Asks leaders where leader epochs end, of any epoch, and sometimes in a former or a later one (KIP-320).

    The answers are judged where they are sent (`invariants/answers/epoch_answers.py`).
    """

    name = "epoch lookups"

    async def look_up(self, view: PartitionView) -> bool:
        """See `OffsetLookups`."""
        rng = self.context.rng
        broker = rng.choice(view.replicas) if rng.random() < _ELSEWHERE_PROBABILITY else view.leader
        asked = {
            "partition": view.partition,
            "current_leader_epoch": rng.choice((-1, *(view.leader_epoch,) * 3, view.leader_epoch + 1)),
            "leader_epoch": rng.randint(0, view.leader_epoch + 1),
        }
        if rng.random() < _FORMER_EPOCH_PROBABILITY:
            asked["current_leader_epoch"] = rng.randint(0, view.leader_epoch)
        fields = {"replica_id": -1, "topics": [{"topic": self._client.topic, "partitions": [asked]}]}
        connection = await asyncio.wait_for(self._client.cluster.connection(broker), _TIMEOUT_S)
        answer = await connection.request(
            ApiKey.OFFSET_FOR_LEADER_EPOCH, _OFFSET_FOR_LEADER_EPOCH, fields, timeout_s=_TIMEOUT_S
        )
        return bool(answer.topics[0].partitions[0].error_code)


class TimeLookups(OffsetLookups):
    """Asks for the first record from a time on, or for the one with the greatest timestamp.

    The topic is one whose records the `checker` knows.
    """

    name = "time lookups"

    def __init__(self, context: ClientContext, checker: TopicSettingsChecker, *, of_newest: bool = False) -> None:
        """`of_newest`: asks for the times of records that have been committed just now."""
        super().__init__(context)
        self._checker = checker
        self._of_newest = of_newest

    async def look_up(self, view: PartitionView) -> bool:
        """See `OffsetLookups`."""
        rng, known = self.context.rng, self._checker.known.get(TopicPartition(self.context.topic, view.partition))
        if known is None or not known.records:
            return True
        offsets = list(known.records)
        if self._of_newest:
            offsets = offsets[-_NEWEST:]
        asked_ms = known.records[rng.choice(offsets)].timestamp + rng.randint(-_AROUND_MS, _AROUND_MS)
        if rng.random() < _GREATEST_PROBABILITY:
            asked_ms = MAX_TIMESTAMP
        end_offset = known.end_offset
        row = await self.ask(view, asked_ms)
        if not row.error_code:
            where = f"partition {view.partition} on {view.leader}, epoch {view.leader_epoch}"
            check_answer(where, known, asked_ms, (row.timestamp, row.offset), (view.leader_epoch, end_offset))
        return bool(row.error_code)

    def check(self) -> None:
        """What a replica finds by time is what it holds."""
        topic = self.context.topic
        for partition in range(self._checker.topics[topic]):
            for node_id, log in self._checker.logs(TopicPartition(topic, partition)):
                check_log(f"{topic}-{partition} on {node_id}", log, self.context.rng)
