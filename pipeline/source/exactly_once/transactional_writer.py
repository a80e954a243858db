"""The streaming writer with `kafka.transactional.id`: each micro-batch is in the topics once (`sink_transactions`).

A task writes in a transaction of its own, waits for all acknowledgements, and leaves the transaction open. Spark gives
what the tasks return to the driver, which ends all transactions together.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter, WriterCommitMessage

from ....cluster.client.transactions.producer_transactions import ProducerIdAndEpoch
from ...errors import PipelineError
from ..kafka_client import KafkaClient
from ..options import WriteOptions
from ..python_worker import prepare_worker
from ..writer import TaskProducer, TaskResult
from .decision import TaskTransaction
from .sink_transactions import SinkTransactions, WrittenBatch, producer_of, task_transactional_id

T = TypeVar("T")

_QUERY_ID, _BATCH = "sql.streaming.queryId", "streaming.sql.batchId"
"""Spark's names for what a task belongs to: StreamExecution.QUERY_ID_KEY, MicroBatchExecution.BATCH_ID_KEY."""
_TIMEOUT_S = 60.0


@dataclass
class TransactionResult(TaskResult):
    """What a task has written: its part of the batch, None when it had no rows."""

    part: WrittenBatch | None = None


@dataclass(frozen=True, slots=True)
class StreamingTask:
    """An attempt of a task, and the micro-batch to which it belongs."""

    query_id: str
    batch: int
    partition: int
    attempt: int

    @property
    def suffix(self) -> str:
        """What tells apart the attempts of a batch. The next batch has them again."""
        return f"{self.partition}-{self.attempt}"


class TransactionalTaskProducer(TaskProducer):
    """The producer of one attempt of a task, with its transaction begun."""

    def __init__(self, options: WriteOptions, transactional_id: str) -> None:
        mine = {"transactional.id": transactional_id, "transaction.timeout.ms": str(options.transaction_timeout_ms)}
        super().__init__(replace(options, producer={**options.producer, **mine}))
        try:
            self._producer.init_transactions(_TIMEOUT_S)
            self._producer.begin_transaction()
        except self._refusal as refusal:
            why = refusal.args[0].str()
            raise PipelineError(f"{self._bootstrap} begins no transaction for {transactional_id}: {why}.") from None

    def abort(self) -> None:
        """Abort the transaction, so that readers do not wait for it. Where that fails, its time-out does it."""
        try:
            self._producer.purge()
            self._producer.abort_transaction(_TIMEOUT_S)
        except self._refusal:
            return


class TransactionalStreamWriter(DataSourceArrowWriter, DataSourceStreamWriter):
    """The writer of `df.writeStream.format("raftwerk")` with a `kafka.transactional.id`."""

    def __init__(self, options: WriteOptions, sink_id: str) -> None:
        self.options = options
        self.sink_id = sink_id
        self.driver: ProducerIdAndEpoch | None = None
        """Who has begun the batch; set before tasks get the writer."""

    def begin_batch(self) -> None:
        """Carry out what was decided before, and take the sink over, so that no other driver ends this batch."""
        self.driver = self._run(lambda sink: sink.begin_batch())

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TransactionResult:
        """Write a task's rows in a transaction, which stays open."""
        prepare_worker()
        return self.write_task(current_task(), iterator)

    def write_task(self, task: StreamingTask, rows: Iterator[pa.RecordBatch]) -> TransactionResult:
        """Write the rows of this task."""
        if self.driver is None:
            raise PipelineError("a batch begins before its tasks write.")
        filled = (one for one in rows if one.num_rows)
        first = next(filled, None)
        if first is None:
            return TransactionResult(0)
        producer = TransactionalTaskProducer(self.options, task_transactional_id(self.sink_id, task.suffix))
        try:
            # Before the first record: who takes the id over later fences what is sent, and must not be told as ours.
            me = producer_of(self._run(lambda sink: sink.describe(task.suffix)))
            producer.send(first)
            for one in filled:
                producer.send(one)
            records = producer.finish().records
        except BaseException:
            producer.abort()
            raise
        topic = self.options.topic or first.column("topic")[0].as_py()
        part = WrittenBatch(task.query_id, task.batch, self.driver, topic, (TaskTransaction(task.suffix, me),))
        return TransactionResult(records, part)

    def commit(  # type: ignore[override]
        self,
        messages: Sequence[WriterCommitMessage | None],
        batchId: int,  # noqa: N803
    ) -> None:
        """Commit the transactions of all tasks. A batch that was committed before is aborted instead."""
        batch = whole_batch(messages)
        if batch is not None:
            self._run(lambda sink: sink.commit(batch))

    def abort(  # type: ignore[override]
        self,
        messages: Sequence[WriterCommitMessage | None],
        batchId: int,  # noqa: N803
    ) -> None:
        """Abort the transactions of the tasks that have ended. The next batch begins with those of others."""
        batch = whole_batch(messages)
        if batch is not None:
            self._run(lambda sink: sink.abort(batch))

    def _run(self, work: Callable[[SinkTransactions], Coroutine[Any, Any, T]]) -> T:
        with KafkaClient(self.options.client) as client:
            sink = SinkTransactions(client.cluster, self.sink_id, self.options.transaction_timeout_ms)
            return client.run(work(sink))


def current_task() -> StreamingTask:
    """The task that this process of Spark's carries out."""
    context = TaskContext.get()
    query_id = None if context is None else context.getLocalProperty(_QUERY_ID)
    batch = None if context is None else context.getLocalProperty(_BATCH)
    if context is None or query_id is None or batch is None:
        raise PipelineError(
            "this Spark does not tell a task its query and batch, which writing exactly once needs: it runs with Spark "
            "4.0 and 4.1."
        )
    return StreamingTask(query_id, int(batch), context.partitionId(), context.attemptNumber())


def whole_batch(messages: Sequence[WriterCommitMessage | None]) -> WrittenBatch | None:
    """What all tasks have written together; None when nothing."""
    parts = [one.part for one in messages if isinstance(one, TransactionResult) and one.part is not None]
    if not parts:
        return None
    transactions = tuple(one for part in parts for one in part.transactions)
    return replace(parts[0], topic=min(part.topic for part in parts), transactions=transactions)
