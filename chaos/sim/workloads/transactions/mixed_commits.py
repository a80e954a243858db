"""Offsets of one group that several producers and a client without transactions commit, in the simulator.

Two transactions, in which it may be committed twice, and plain commits name the same partition. The transactions end in
any order, and whichever commit came last of those that take effect is what the group has then, in the order in which
they were answered: an offset is not replaced by one that was committed before it, and whose transaction ends later.
"""

from __future__ import annotations

import asyncio

from .....cluster.client.client_errors import ClientError
from .....cluster.client.cluster_client import NO_ANSWER
from .....wire.api_keys import ApiKey
from ...invariants.invariant_broken import InvariantBroken
from ..clients import ClientContext, TopicClient
from .transactional_producer import GROUP_KEY, AbortableError, ClientStyle, FencedError, TransactionalProducer

_GROUP = "mixed"
_COMMIT = 8
_PRODUCERS = 2
_PAUSE_S = 0.05
_TIMEOUT_MS = 60_000
_AGAIN_PROBABILITY = 0.3
_PLAIN_PROBABILITY = 0.4
_ABORT_PROBABILITY = 0.3


class MixedCommits:
    """Commits in rounds, each of which is judged where no answer was lost. A `Workload`."""

    name = "mixed commits"

    def __init__(self, context: ClientContext) -> None:
        self._context = context
        self._topic = TopicClient(context, self.name)
        self._producers: list[TransactionalProducer] = []
        self._stopping = False
        self._finished = False
        self._next_offset = 1
        self._is_certain = False

    def stop(self) -> None:
        """See `Workload`."""
        self._stopping = True

    def why_not_settled(self) -> str | None:
        """See `Workload`."""
        return None if self._finished else "it still commits"

    def check(self) -> None:
        """Each round is judged when it ends."""

    async def run(self) -> None:
        """See `Workload`."""
        rng = self._context.rng
        await self._topic.until_known()
        while not self._stopping:
            try:
                if not self._producers:
                    await self._begin()
                await self._round()
            except (FencedError, AbortableError):
                self._producers = []
            await asyncio.sleep(rng.expovariate(1 / _PAUSE_S))
        self._finished = True

    async def _begin(self) -> None:
        style = ClientStyle(self._context.rng.choice((1, 2)))
        producers = [
            TransactionalProducer(self._context, f"mixed{n}", f"mixed{n}", style, _TIMEOUT_MS)
            for n in range(_PRODUCERS)
        ]
        for producer in producers:
            await producer.init()
        self._producers = producers

    async def _round(self) -> None:
        """Commit in both transactions and between them, end them in any order, and read what there is."""
        rng = self._context.rng
        lost_before = self._lost_answers
        commits: list[tuple[TransactionalProducer | None, int]] = []
        self._is_certain = True
        again = [producer for producer in self._producers if rng.random() < _AGAIN_PROBABILITY]
        for producer in rng.sample([*self._producers, *again], _PRODUCERS + len(again)):
            offset = self._take_offset()
            await producer.send_offsets(_GROUP, self._context.topic, {0: offset})
            commits.append((producer, offset))
            if rng.random() < _PLAIN_PROBABILITY:
                offset = self._take_offset()
                await self._commit(offset)
                commits.append((None, offset))
        aborted = [producer for producer in self._producers if rng.random() < _ABORT_PROBABILITY]
        for producer in rng.sample(self._producers, _PRODUCERS):
            await producer.end(commit=producer not in aborted)
        effective = [offset for producer, offset in commits if producer not in aborted]
        found = (await self._producers[0].fetch_offsets(_GROUP, self._context.topic, (0,)))[0]
        is_certain = self._is_certain and self._lost_answers == lost_before
        if is_certain and effective and found != effective[-1]:
            detail = f"{commits}, aborted {aborted}: {found} is committed"
            raise InvariantBroken("the last commit of an offset that takes effect is there", detail)

    @property
    def _lost_answers(self) -> int:
        return sum(producer.lost_answers for producer in self._producers)

    def _take_offset(self) -> int:
        self._next_offset += 1
        return self._next_offset

    async def _commit(self, offset: int) -> None:
        """A commit outside of transactions, once; without an answer the round is not judged."""
        partitions = [{"partition_index": 0, "committed_offset": offset, "committed_metadata": ""}]
        topics = [{"name": self._context.topic, "partitions": partitions}]
        who = {"group_id": _GROUP, "generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None}
        producer = self._producers[0]
        try:
            address = await producer.find_coordinator((GROUP_KEY, _GROUP))
            answer = await self._topic.cluster.request_at(
                address, ApiKey.OFFSET_COMMIT, _COMMIT, {**who, "topics": topics}
            )
            code = answer.topics[0].partitions[0].error_code
        except (ClientError, *NO_ANSWER):
            code = -1
        self._is_certain = self._is_certain and not code
