"""Ends the transactions of a micro-batch's tasks all together, or none, from whatever process the driver has for it.

Tasks write in transactions and leave them open. The driver then decides: it commits an offset whose metadata names the
transactions (`decision`), in a transaction of its own, and only then ends those of the tasks. So who comes after a
crash knows what is to be committed, and a batch that Spark repeats is known, too. Each batch begins with that: what was
decided is carried out, and what was not is aborted. The driver's own transactional id fences a driver that was
replaced: what that one decides later is refused.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from ....cluster.client.client_errors import RefusedError
from ....cluster.client.cluster_client import ClusterClient
from ....cluster.client.transactions.producer_transactions import (
    OffsetAndMetadata,
    ProducerIdAndEpoch,
    ProducerTransactions,
    is_fenced,
)
from ....cluster.client.transactions.transaction_client import TransactionClient, TransactionView
from ....cluster.command_line.plural import counted
from ....wire.errors import ErrorCode
from ....wire.types import TopicPartition
from ...errors import PipelineError
from .decision import Decision, ForeignMetadataError, TaskTransaction, from_parts, part_count, to_parts

_TIMEOUT_S = 60.0
"""How long requests are repeated: longer than a cluster needs to notice that a broker has died."""
_AT_ONCE = 16
"""So many transactions are ended at once."""
_COMMITTED = ("PrepareCommit", "CompleteCommit")
_ABORTED = ("PrepareAbort", "CompleteAbort")


@dataclass(frozen=True, slots=True)
class WrittenBatch:
    """A micro-batch whose tasks have written: the driver that began it, and the transactions that are open.

    `topic` is one to which they have written.
    """

    query_id: str
    number: int
    driver: ProducerIdAndEpoch
    topic: str
    transactions: tuple[TaskTransaction, ...]


class SinkTransactions:
    """The transactions of one sink, which has the transactional id `sink_id`. Tasks have that id with a suffix."""

    def __init__(self, client: ClusterClient, sink_id: str, timeout_ms: int) -> None:
        self.sink_id = sink_id
        self._timeout_ms = timeout_ms
        self._producers = ProducerTransactions(client, _TIMEOUT_S)
        self._transactions = TransactionClient(client, _TIMEOUT_S)

    async def begin_batch(self) -> ProducerIdAndEpoch:
        """Take the sink over, carry out what was decided, and abort what was not. Returns who the driver now is."""
        driver = await self._producers.init_producer_id(self.sink_id, self._timeout_ms)
        found = await self._read()
        if found is not None and not found[1].is_done:
            await self._carry_out(driver, *found)
        await self._abort_left()
        return driver

    async def commit(self, batch: WrittenBatch) -> bool:
        """Commit the batch; False, and its transactions are aborted, when it was committed before.

        Raises `PipelineError` when a transaction is not open any more, and when another driver has taken over.
        """
        found = await self._read()
        if found is not None and found[1].covers(batch.query_id, batch.number):
            await self._abort(batch.transactions)
            await self._abort_left()
            return False
        await self._check_open(batch)
        serial = found[1].serial if found is not None else 0
        decision = Decision(serial + 1, batch.query_id, batch.number, batch.transactions)
        await self._write(batch.driver, batch.topic, decision)
        if not await self._carry_out(batch.driver, batch.topic, decision):
            raise PipelineError(
                f"the transactions of batch {batch.number} were aborted before they were committed, since more than "
                "kafka.transaction.timeout.ms had gone by. Nothing of the batch is committed; it is written again when "
                "the query starts."
            )
        await self._abort_left()
        return True

    async def describe(self, suffix: str) -> TransactionView:
        """The transaction of a task, as its coordinator knows it."""
        return await self._transactions.describe(self._task_id(suffix))

    async def abort(self, batch: WrittenBatch) -> None:
        """Abort the batch's transactions, unless they are to be committed, or another driver has taken over."""
        try:
            await self._producers.init_producer_id(self.sink_id, self._timeout_ms, batch.driver)
        except RefusedError as error:
            if is_fenced(error):
                return
            raise
        found = await self._read()
        if found is None or not found[1].covers(batch.query_id, batch.number):
            await self._abort(batch.transactions)

    # -- the decision

    async def _read(self) -> tuple[str, Decision] | None:
        """The last decision, and the topic in whose partition 0 it is kept."""
        try:
            found = [
                (key.topic, await self._with_parts(key, one.metadata))
                for key, one in (await self._producers.offsets(self.sink_id)).items()
            ]
        except ForeignMetadataError:
            raise PipelineError(
                f"the group {self.sink_id} has committed offsets, and not as this sink does: name another "
                "kafka.transactional.id."
            ) from None
        return max(found, key=lambda one: one[1].serial, default=None)

    async def _with_parts(self, key: TopicPartition, first: str) -> Decision:
        parts = [first]
        for number in range(1, part_count(first)):
            one = (await self._producers.offsets(self._group(number))).get(key)
            if one is None:
                raise ForeignMetadataError
            parts.append(one.metadata)
        return from_parts(parts)

    async def _write(self, driver: ProducerIdAndEpoch, topic: str, decision: Decision) -> None:
        key = TopicPartition(topic, 0)
        try:
            for number, part in enumerate(to_parts(decision)):
                offsets = {key: OffsetAndMetadata(max(decision.batch, 0), part)}
                await self._producers.commit_offsets(self.sink_id, driver, self._group(number), offsets)
            await self._producers.end_transaction(self.sink_id, driver, commit=True)
        except RefusedError as error:
            if not is_fenced(error):
                raise
            raise PipelineError(
                f"another query writes with kafka.transactional.id {self.sink_id}, or has taken this one's place: give "
                "each query that runs its own."
            ) from None

    def _group(self, number: int) -> str:
        return f"{self.sink_id}.{number}" if number else self.sink_id

    # -- the transactions of tasks

    async def _check_open(self, batch: WrittenBatch) -> None:
        """`PipelineError` unless each transaction is still open: nothing is decided that cannot be carried out."""
        by_id = {self._task_id(one.suffix): one.producer for one in batch.transactions}
        views = await self._transactions.describe_all(list(by_id))
        for transactional_id, producer in by_id.items():
            view = views.get(transactional_id)
            if view is None or view.state != "Ongoing" or producer_of(view) != producer:
                raise PipelineError(
                    f"the transaction {transactional_id} of batch {batch.number} is not open any more: it was "
                    "aborted, after kafka.transaction.timeout.ms or by hand. Nothing of the batch is committed; it is "
                    "written again when the query starts."
                )

    async def _carry_out(self, driver: ProducerIdAndEpoch, topic: str, decision: Decision) -> bool:
        """Commit the transactions. Returns False when all of them were aborted: the batch is to be written again.

        `PipelineError` when some were aborted and others committed, and when that is not known any more.
        """
        at_once = asyncio.Semaphore(_AT_ONCE)

        async def commit(one: TaskTransaction) -> bool:
            async with at_once:
                return await self._is_committed(one, decision.batch)

        results = await asyncio.gather(*(commit(one) for one in decision.transactions))
        if all(results):
            await self._write(driver, topic, decision.done())
            return True
        if not any(results):
            await self._write(driver, topic, decision.void())
            return False
        raise PipelineError(
            f"{results.count(False)} of {counted(len(results), 'transaction')} of batch {decision.batch} were aborted "
            "after the others had been committed, since more than kafka.transaction.timeout.ms went by between them: "
            f"what those tasks wrote is lost. After `raftwerk groups delete {self.sink_id}` the query writes the whole "
            "batch again, and repeats what the others wrote."
        )

    async def _is_committed(self, one: TaskTransaction, batch: int) -> bool:
        """Commit a transaction. Returns False when it was aborted.

        `PipelineError` when its coordinator does not know how it has ended, since another producer has the id by now,
        or the id has expired: to write again what was committed would be wrong, and to leave out what was aborted, too.
        """
        try:
            await self._producers.end_transaction(self._task_id(one.suffix), one.producer, commit=True)
        except RefusedError as error:
            if not is_fenced(error):
                raise
        else:
            return True
        view = await self._view(one.suffix)
        if view is not None and view.state in _COMMITTED and producer_of(view) == one.producer:
            return True
        if (
            view is not None
            and view.state in _ABORTED
            and producer_of(view) in (one.producer, _timed_out(one.producer))
        ):
            return False
        raise PipelineError(
            f"how the transaction {self._task_id(one.suffix)} of batch {batch} has ended is not known any more: its id "
            "was taken over, as by a late task of a query that was stopped, or has expired. After `raftwerk groups "
            f"delete {self.sink_id}` the query writes the whole batch again, and repeats what was committed of it."
        )

    async def _view(self, suffix: str) -> TransactionView | None:
        """As `describe`; None when the coordinator does not know the id."""
        try:
            return await self.describe(suffix)
        except RefusedError as error:
            if error.code != ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                raise
            return None

    async def _abort(self, transactions: Iterable[TaskTransaction]) -> None:
        for one in transactions:
            try:
                await self._producers.end_transaction(self._task_id(one.suffix), one.producer, commit=False)
            except RefusedError as error:
                if not is_fenced(error):
                    raise

    async def _abort_left(self) -> None:
        """Abort what tasks have left open of which no commit was decided: readers would wait there until a timeout."""
        mine = re.compile(re.escape(self._task_id("")) + r"\d+-\d+")
        for one in (await self._transactions.list_transactions(states=["Ongoing"])).rows:
            if mine.fullmatch(one.transactional_id):
                await self._producers.init_producer_id(one.transactional_id, self._timeout_ms)

    def _task_id(self, suffix: str) -> str:
        return task_transactional_id(self.sink_id, suffix)


def task_transactional_id(sink_id: str, suffix: str) -> str:
    """The transactional id of a task."""
    return f"{sink_id}.task-{suffix}"


def producer_of(view: TransactionView) -> ProducerIdAndEpoch:
    """The producer that a transaction belongs to."""
    return ProducerIdAndEpoch(view.producer_id, view.producer_epoch)


def _timed_out(producer: ProducerIdAndEpoch) -> ProducerIdAndEpoch:
    """The producer of a transaction whose coordinator has aborted it: the next epoch fences its own."""
    return replace(producer, epoch=producer.epoch + 1)
