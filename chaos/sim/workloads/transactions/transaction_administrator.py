"""An administrator of transactions in the simulator, and a producer whose transactions hang (KIP-664).

The producer writes to a partition without having added it to its transaction, where leaders do not verify that (KIP-890
came later). So no coordinator ends the transaction, and readers of committed records wait. The administrator finds it
and aborts it in this partition, as `kafka-transactions` does. Meanwhile it asks brokers for what they know of producers
and transactional ids, and compares their answers with the logs.
"""

from __future__ import annotations

import asyncio

from .....broker.transactions.transaction_config import TRANSACTION_TOPIC
from .....cluster.client.client_errors import ClientError
from .....cluster.client.cluster_client import NO_ANSWER, ClusterClient
from .....cluster.client.transactions.transaction_client import TransactionClient
from .....wire.api_keys import ApiKey
from ...invariants.invariant_broken import InvariantBroken
from ...invariants.transactions.described import (
    LogView,
    check_described_id,
    check_described_producers,
    check_listed_ids,
    view_of,
)
from ..clients import ClientContext, TopicClient
from .transactional_producer import AbortableError, ClientStyle, FencedError, TransactionalProducer

SETTINGS = {"transaction.partition.verification.enable": "false"}
"""Settings of the nodes: a batch may open a transaction that its coordinator does not know."""
_PARTITIONS = 2
_ID = "hanging"
_TIMEOUT_S = 3.0
_PAUSE_S = 0.15
_HANG_PAUSE_S = 0.5
_LABELS = ("Empty", "Ongoing", "PrepareCommit", "CompleteCommit", "CompleteAbort")


class TransactionAdministrator:
    """The administrator and the producer. A `Workload`."""

    name = "transaction administrator"

    def __init__(self, context: ClientContext) -> None:
        self._context = context
        self._cluster = ClusterClient(
            context.bootstrap, client_id=self.name, timeout_s=_TIMEOUT_S, probe_timeout_s=None
        )
        self._transactions = TransactionClient(self._cluster)
        self._topic = TopicClient(context, self.name)
        self._states = TopicClient(context, self.name)
        self._states.topic = TRANSACTION_TOPIC
        self._stopping = False
        self._acting = 2
        self._has_judged_producers = self._has_judged_ids = False

    def stop(self) -> None:
        """See `Workload`."""
        self._stopping = True

    def why_not_settled(self) -> str | None:
        """See `Workload`."""
        return "it acts" if self._acting else self._hanging()

    def check(self) -> None:
        """Each answer is judged when it comes."""

    def _hanging(self) -> str | None:
        hanging = self._context.checker.transactions.hanging()
        return f"hanging are {hanging}" if hanging else None

    async def run(self) -> None:
        """See `Workload`."""
        await self._topic.until_known()
        await asyncio.gather(self._hang(), self._administer())

    # ---------------------------------------------------------------- the producer

    async def _hang(self) -> None:
        rng, number = self._context.rng, 0
        while not self._stopping:
            number += 1
            producer = TransactionalProducer(self._context, f"{_ID}/{number}", _ID, ClientStyle(1))
            try:
                await producer.init()
                partition = rng.randrange(_PARTITIONS)
                await producer.send_without_adding(self._context.topic, partition, [f"{_ID}/{number}/0"])
            except (FencedError, AbortableError):
                pass
            is_open = True
            while is_open:
                await asyncio.sleep(rng.expovariate(1 / _HANG_PAUSE_S))
                is_open = self._hanging() is not None
        self._acting -= 1

    # ---------------------------------------------------------------- the administrator

    async def _administer(self) -> None:
        rng = self._context.rng
        while not (self._stopping and self._has_judged_producers and self._has_judged_ids and not self._hanging()):
            try:
                await rng.choice((self._abort_hanging, self._describe_producers, self._describe_ids))()
            except (ClientError, *NO_ANSWER):
                await self._topic.refresh()
                await self._states.refresh()
            await asyncio.sleep(rng.expovariate(1 / _PAUSE_S))
        self._acting -= 1

    async def _abort_hanging(self) -> None:
        checker = self._context.checker.transactions
        found = await self._transactions.find_hanging(self._context.wall_ms() + 1, self._context.topic)
        for one in found.rows:
            if not checker.has_hung(one.partition, one.producer_id, one.producer_epoch):
                raise InvariantBroken("only a transaction that its coordinator does not know is said to hang", str(one))
            await self._transactions.abort(one.partition, one.start_offset)

    async def _describe_producers(self) -> None:
        partition = self._context.rng.randrange(_PARTITIONS)
        leader = self._topic.partitions[partition].leader
        before = self._view(leader, self._context.topic, partition)
        topics = [{"name": self._context.topic, "partition_indexes": [partition]}]
        answer = await self._cluster.request_node(leader, ApiKey.DESCRIBE_PRODUCERS, 0, {"topics": topics})
        after, row = self._view(leader, self._context.topic, partition), answer.topics[0].partitions[0]
        if before is not None and after is not None and not row.error_code:
            self._has_judged_producers |= check_described_producers(before, after, row.active_producers)

    async def _describe_ids(self) -> None:
        """Describe one id, and list those of some states or of all."""
        await self._states.until_known()
        rng = self._context.rng
        view = rng.choice(self._states.partitions)
        before = self._view(view.leader, TRANSACTION_TOPIC, view.partition)
        if before is None or not before.states:
            return
        transactional_id, labels = rng.choice(list(before.states)), rng.sample(_LABELS, rng.randrange(3))
        listing = {"state_filters": labels, "producer_id_filters": []}
        asked = {"transactional_ids": [transactional_id]}
        answer = await self._cluster.request_node(view.leader, ApiKey.DESCRIBE_TRANSACTIONS, 0, asked)
        listed = await self._cluster.request_node(view.leader, ApiKey.LIST_TRANSACTIONS, 0, listing)
        after = self._view(view.leader, TRANSACTION_TOPIC, view.partition)
        row = answer.transaction_states[0]
        if after is not None and not row.error_code and not listed.error_code:
            self._has_judged_ids |= check_described_id(before, after, transactional_id, row)
            check_listed_ids(before, after, labels, listed.transaction_states)

    def _view(self, node_id: int, topic: str, partition: int) -> LogView | None:
        """What the log of a partition says on a node that leads it."""
        for log in self._context.checker.leader_logs(node_id):
            if tuple(log.replica.topic_partition) == (topic, partition):
                return view_of(log)
        return None
