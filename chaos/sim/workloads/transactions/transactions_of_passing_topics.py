"""Transactions over a topic that stays and one that is deleted and created again, in the simulator.

A transaction whose partitions are deleted ends all the same: what it wrote to the topic that stays is shown entirely or
not at all, and no reader waits for a marker that nobody can write.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from .....cluster.client.admin_client import NewTopic
from .....wire.api_keys import ApiKey
from .....wire.errors import ErrorCode
from ...invariants.transaction_invariants import Outcome, TransactionHistory
from ..administrator import RetryingAdmin
from ..clients import ClientContext
from ..workload import create_topic_until_done
from .committed_reader import CommittedReader
from .transactional_producer import AbortableError, ClientStyle, FencedError, TransactionalProducer

_WRITERS = 2
_PARTITIONS = 2
_PASSING = "passing"
_DELETE_TOPICS = 6
_LIFETIME_S = 0.4
_GAP_S = 0.15
_PAUSE_S = 0.03
_ABORT_PROBABILITY = 0.2


class TransactionsOfPassingTopics:
    """Writers with an id each, an administrator, and a reader of the topic that stays. A `Workload`."""

    name = "transactions of passing topics"

    def __init__(self, context: ClientContext, style: Callable[[], ClientStyle]) -> None:
        self._context = context
        self._style = style
        self._history = TransactionHistory()
        self._reader = CommittedReader(context, "lasting reader", context.topic, self._history.on_read)
        self._admin = RetryingAdmin(context, "passing topic")
        self._stopping = False
        self._acting = _WRITERS

    def stop(self) -> None:
        """See `Workload`."""
        self._stopping = True

    async def run(self) -> None:
        """See `Workload`."""
        await create_topic_until_done(self._admin.cluster, NewTopic(self._context.topic, _PARTITIONS, -1, {}))
        writers = [self._write_always(f"passing-{number}") for number in range(_WRITERS)]
        await asyncio.gather(self._reader.run(), self._change_topic(), *writers)

    def why_not_settled(self) -> str | None:
        """See `Workload`."""
        return f"{self._acting} writers still act" if self._acting else self._reader.why_behind()

    def check(self) -> None:
        """See `Workload`."""
        self._history.check()

    async def _change_topic(self) -> None:
        """Create and delete the passing topic; in the end it is there, and every writer can go on."""
        rng = self._context.rng
        while True:
            await create_topic_until_done(self._admin.cluster, NewTopic(_PASSING, _PARTITIONS, -1, {}))
            if self._stopping:
                return
            await asyncio.sleep(rng.expovariate(1 / _LIFETIME_S))
            row = {"topics": [{"name": _PASSING, "topic_id": None}]}
            code = ErrorCode.REQUEST_TIMED_OUT
            while code not in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
                code = await self._admin.ask(
                    ApiKey.DELETE_TOPICS, _DELETE_TOPICS, row, lambda answer: answer.responses[0].error_code
                )
            await asyncio.sleep(rng.choice((0.0, rng.expovariate(1 / _GAP_S))))

    async def _write_always(self, transactional_id: str) -> None:
        number, producer = 0, None
        rng = self._context.rng
        while not self._stopping or producer is not None:
            number += 1
            name = f"{transactional_id}/{number}"
            if producer is None:
                producer = TransactionalProducer(self._context, name, transactional_id, self._style())
                if not await _begins(producer):
                    producer = None
                    continue
            if not await self._transact(producer, name) or self._stopping:
                producer = None
            await asyncio.sleep(rng.expovariate(1 / _PAUSE_S))
        self._acting -= 1

    async def _transact(self, producer: TransactionalProducer, name: str) -> bool:
        """One transaction; False when the producer cannot go on."""
        rng, lasting = self._context.rng, self._context.topic
        transaction = self._history.begin(name)
        places = [(_PASSING, rng.randrange(_PARTITIONS)), (lasting, rng.randrange(_PARTITIONS))]
        rng.shuffle(places)
        try:
            try:
                for index, (topic, partition) in enumerate(places):
                    value = f"{name}/{index}"
                    await producer.send(topic, partition, [value])
                    if topic == lasting:
                        transaction.written[value] = (topic, partition)
                await asyncio.sleep(rng.choice((0.0, rng.expovariate(1 / _LIFETIME_S))))
                commits = rng.random() >= _ABORT_PROBABILITY
            except AbortableError:
                commits = False
            transaction.outcome = Outcome.ASKED if commits else Outcome.ABORTED
            await producer.end(commit=commits)
            if commits:
                transaction.outcome = Outcome.COMMITTED
        except (FencedError, AbortableError):
            return False
        return True


async def _begins(producer: TransactionalProducer) -> bool:
    try:
        await producer.init()
    except (FencedError, AbortableError):
        return False
    return True
