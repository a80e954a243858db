"""A driver that dies, or loses an answer, at each of its requests in turn: each record is in the topic once."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Coroutine, Iterator, Mapping
from typing import Any

import pytest
from support.pipeline.topics import committed_values

from raftwerk.cluster.client.client_errors import ClientError
from raftwerk.cluster.client.cluster_client import ClusterClient
from raftwerk.cluster.client.group_client import GroupClient
from raftwerk.cluster.client.transactions.producer_transactions import ProducerTransactions
from raftwerk.cluster.client.transactions.transaction_client import TransactionClient
from raftwerk.pipeline.errors import PipelineError
from raftwerk.pipeline.source.exactly_once import decision, sink_transactions
from raftwerk.testkit.process_cluster import TestCluster
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.types import TopicPartition

pa = pytest.importorskip("pyarrow")
pytest.importorskip("pyspark", reason="no PySpark: writing exactly once is NOT tested")

from raftwerk.pipeline.source.exactly_once.sink_transactions import task_transactional_id  # noqa: E402
from raftwerk.pipeline.source.exactly_once.transactional_writer import (  # noqa: E402
    StreamingTask,
    TransactionalStreamWriter,
    TransactionalTaskProducer,
    TransactionResult,
)
from raftwerk.pipeline.source.options import parse_write  # noqa: E402
from raftwerk.pipeline.source.writer import TaskResult  # noqa: E402

pytestmark = pytest.mark.process
TASKS, LAST = 2, 1
CHANGES = (ApiKey.INIT_PRODUCER_ID, ApiKey.ADD_OFFSETS_TO_TXN, ApiKey.TXN_OFFSET_COMMIT, ApiKey.END_TXN)
"""What changes something at a coordinator: a failure between two others leaves what one after the first leaves."""
Request = Callable[..., Any]


class Killed(BaseException):
    """The driver's end: nothing of it runs any more."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[TestCluster]:
    with TestCluster.start(1) as running:
        yield running


@pytest.fixture(autouse=True)
def decisions_of_several_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decision, "PART_CHARS", 150)


class Query:
    """A streaming query as Spark runs it: a batch that it has not noted is run again when it starts again."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.options = parse_write(
            {"kafka.bootstrap.servers": bootstrap, "topic": topic, "kafka.transactional.id": f"sink-{topic}"},
            streaming=True,
        )
        self.bootstrap, self.topic = bootstrap, topic
        self.noted = -1

    def writer(self) -> TransactionalStreamWriter:
        return TransactionalStreamWriter(self.options, str(self.options.transactional_id))

    def write(self, writer: TransactionalStreamWriter, batch: int) -> list[TransactionResult]:
        """The tasks of a batch; in the first one an attempt of the last hangs, and its executor is lost."""
        tasks = [StreamingTask("q", batch, one, 0) for one in range(TASKS)]
        if batch == 0:
            lost = TransactionalTaskProducer(self.options, task_transactional_id(writer.sink_id, tasks[-1].suffix))
            lost.send(rows(["of an attempt that was lost"]))
            lost.finish()
            tasks[-1] = StreamingTask("q", batch, TASKS - 1, 1)
        results = [writer.write_task(one, iter([rows(values_of(one))])) for one in tasks]
        return [*results, writer.write_task(StreamingTask("q", batch, TASKS, 0), iter([rows([])]))]

    def run(self, last: int = LAST) -> None:
        """All batches that are left, to the last."""
        for batch in range(self.noted + 1, last + 1):
            writer = self.writer()
            writer.begin_batch()
            results = self.write(writer, batch)
            ending = self.writer()  # Spark has another process for it
            try:
                ending.commit(results, batch)
            except PipelineError:
                ending.abort(results, batch)
                raise
            self.noted = batch

    def check(self) -> None:
        """Each record is there once, and no transaction is left open."""
        expected = [one for batch in range(LAST + 1) for task in range(TASKS) for one in values_of(task, batch)]
        assert values(self.bootstrap, self.topic) == sorted(expected)
        assert asyncio.run(self._open()) == []

    async def _open(self) -> list[str]:
        async with ClusterClient(self.bootstrap) as client:
            listed = await TransactionClient(client).list_transactions(states=["Ongoing"])
            mine = str(self.options.transactional_id)
            return [one.transactional_id for one in listed.rows if one.transactional_id.startswith(mine)]


def values_of(task: StreamingTask | int, batch: int = 0) -> list[str]:
    number, batch = (task.partition, task.batch) if isinstance(task, StreamingTask) else (task, batch)
    return [f"batch {batch}, task {number}, row {row}" for row in range(3)]


def rows(texts: list[str]) -> Any:
    return pa.RecordBatch.from_pydict({"value": pa.array(texts, pa.string())})


def values(bootstrap: str, topic: str) -> list[str]:
    return sorted(one.decode() for one in committed_values(bootstrap, topic, 2))


class Fault:
    """Lets one of the driver's requests that change something fail, by its number."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, kind: str, number: int) -> None:
        self.kind, self.number = kind, number
        self.seen = 0
        self.at: ApiKey | None = None
        original: Request = ClusterClient.request_node

        async def request_node(
            client: ClusterClient, node_id: int, api: ApiKey, version: int, fields: Mapping[str, Any], *more: Any
        ) -> Any:
            self.seen += api in CHANGES
            is_here = api in CHANGES and self.seen == self.number
            if is_here:
                self.at = api
            if is_here and kind == "given up":
                raise ClientError("no answer for long")
            answer = await original(client, node_id, api, version, fields, *more)
            if is_here and kind == "killed after":
                raise Killed
            if is_here and kind == "answer lost":
                raise ConnectionError("the connection is gone")
            return answer

        monkeypatch.setattr(ClusterClient, "request_node", request_node)


@pytest.mark.parametrize(
    "kind",
    ["killed after", *(pytest.param(kind, marks=pytest.mark.long) for kind in ("given up", "answer lost"))],
)
def test_each_request_fails_in_turn(cluster: TestCluster, kind: str) -> None:
    at: list[ApiKey] = []
    for number in itertools.count(1):
        query = Query(cluster.bootstrap_servers, cluster.create_topic(partitions=2))
        with pytest.MonkeyPatch.context() as monkeypatch:
            fault = Fault(monkeypatch, kind, number)
            try:
                query.run(last=0)
            except (Killed, PipelineError):
                assert fault.at is not None
        if fault.at is None:
            break
        at.append(fault.at)
        query.run()
        query.check()
    assert set(at) == set(CHANGES) and len(at) > 10


def test_a_driver_that_was_replaced_decides_nothing(cluster: TestCluster) -> None:
    query = Query(cluster.bootstrap_servers, cluster.create_topic(partitions=2))
    old = query.writer()
    old.begin_batch()
    written = query.write(old, 0)
    query.run()
    query.writer().commit(written, 0)  # a batch that is there already
    query.writer().abort(written, 0)
    query.check()


def test_a_replaced_driver_with_open_transactions_is_told_so(cluster: TestCluster) -> None:
    query = Query(cluster.bootstrap_servers, cluster.create_topic(partitions=2))
    old = query.writer()
    old.begin_batch()
    query.writer().begin_batch()
    written = query.write(old, 0)
    with pytest.raises(PipelineError, match=r"another query writes with kafka\.transactional\.id sink-"):
        query.writer().commit(written, 0)
    query.run()
    query.check()


def each_transaction(
    query: Query, results: list[TransactionResult], end: Callable[[ClusterClient, str], Coroutine[Any, Any, object]]
) -> None:
    """Do this with the transactional ids of these tasks."""
    sink_id = str(query.options.transactional_id)

    async def end_all() -> None:
        async with ClusterClient(query.bootstrap) as client:
            for part in (one.part for one in results):
                for one in part.transactions if part is not None else ():
                    await end(client, task_transactional_id(sink_id, one.suffix))

    asyncio.run(end_all())


async def time_out(client: ClusterClient, transactional_id: str) -> None:
    """Let the coordinator abort a transaction as after its time-out: the first try to take its id over does the same"""
    with pytest.raises(ClientError, match="has not ended the transaction before"):
        await ProducerTransactions(client, 0.0).init_producer_id(transactional_id, 60_000)
    while (await TransactionClient(client).describe(transactional_id)).state != "CompleteAbort":
        pass


async def take_over(client: ClusterClient, transactional_id: str) -> None:
    await ProducerTransactions(client, 60.0).init_producer_id(transactional_id, 60_000)


def decided(query: Query, *, is_committed: bool = False) -> list[TransactionResult]:
    """A driver that dies when it has decided on batch 0, before it commits any of the tasks' transactions.

    With `is_committed` it dies when they are, before it notes that.
    """
    writer = query.writer()
    writer.begin_batch()
    results = query.write(writer, 0)
    with pytest.MonkeyPatch.context() as monkeypatch:
        original: Request = ClusterClient.request_node
        committed: list[ApiKey] = []

        async def request_node(client: ClusterClient, node_id: int, api: ApiKey, version: int, fields: Any) -> Any:
            is_of_task = api == ApiKey.END_TXN and ".task-" in fields["transactional_id"]
            if is_of_task and not is_committed:
                raise Killed
            answer = await original(client, node_id, api, version, fields)
            committed.extend([api] if is_of_task else [])
            if len(committed) == TASKS:
                raise Killed
            return answer

        monkeypatch.setattr(ClusterClient, "request_node", request_node)
        with pytest.raises(Killed):
            query.writer().commit(results, 0)
    return results


def test_a_transaction_that_timed_out_is_seen_before_anything_is_committed(cluster: TestCluster) -> None:
    query = Query(cluster.bootstrap_servers, cluster.create_topic(partitions=2))
    writer = query.writer()
    writer.begin_batch()
    results = query.write(writer, 0)
    each_transaction(query, results[:1], time_out)
    with pytest.raises(PipelineError, match="is not open any more"):
        query.writer().commit(results, 0)
    query.writer().abort(results, 0)
    assert values(query.bootstrap, query.topic) == []
    query.run()
    query.check()


def test_a_batch_that_timed_out_as_a_whole_after_the_decision_is_written_again(cluster: TestCluster) -> None:
    query = Query(cluster.bootstrap_servers, cluster.create_topic(partitions=2))
    each_transaction(query, decided(query), time_out)
    query.run()
    query.check()


def test_a_batch_of_which_a_part_timed_out_after_the_decision_is_told(cluster: TestCluster) -> None:
    query = Query(cluster.bootstrap_servers, cluster.create_topic(partitions=2))
    each_transaction(query, decided(query)[:1], time_out)
    for _ in range(2):
        with pytest.raises(PipelineError, match="1 of 2 transactions of batch 0 were aborted after the others"):
            query.run()


@pytest.mark.parametrize("is_committed", [True, False])
def test_a_batch_whose_end_is_not_known_any_more_is_not_written_again(cluster: TestCluster, is_committed: bool) -> None:
    """Its coordinator knows only the newest producer of the id, such as that of a late task."""
    query = Query(cluster.bootstrap_servers, cluster.create_topic(partitions=2))
    each_transaction(query, decided(query, is_committed=is_committed), take_over)
    for _ in range(2):
        with pytest.raises(PipelineError, match="of batch 0 has ended is not known any more: its id was taken over"):
            query.run()


def test_a_batch_whose_ids_have_expired_is_not_written_again(cluster: TestCluster) -> None:
    query = Query(cluster.bootstrap_servers, cluster.create_topic(partitions=2))
    decided(query, is_committed=True)
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(sink_transactions, "task_transactional_id", lambda *parts: f"unknown {parts}")
        with pytest.raises(PipelineError, match="or has expired"):
            query.run()
    query.run()
    query.check()


def test_a_task_does_not_take_the_transaction_of_a_late_task_for_its_own(
    cluster: TestCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A late task of an earlier run takes the id over when the task has written all, before it tells that."""
    query = Query(cluster.bootstrap_servers, cluster.create_topic(partitions=2))
    query.run(last=0)
    original = TransactionalTaskProducer.finish
    late: list[TransactionalTaskProducer] = []

    def finish(producer: TransactionalTaskProducer) -> TaskResult:
        result = original(producer)
        if not late:
            transactional_id = task_transactional_id(str(query.options.transactional_id), "0-0")
            late.append(TransactionalTaskProducer(query.options, transactional_id))
            late[0].send(rows(["of a late task"]))
            original(late[0])
        return result

    monkeypatch.setattr(TransactionalTaskProducer, "finish", finish)
    with pytest.raises(PipelineError, match="is not open any more"):
        query.run()
    query.run()
    query.check()


async def commit(query: Query) -> None:
    async with ClusterClient(query.bootstrap) as client:
        await GroupClient(client).commit(str(query.options.transactional_id), {TopicPartition(query.topic, 0): 5})


def test_offsets_of_others_under_the_name_are_not_overwritten(cluster: TestCluster) -> None:
    query = Query(cluster.bootstrap_servers, cluster.create_topic(partitions=2))
    asyncio.run(commit(query))
    with pytest.raises(PipelineError, match=r"name another kafka\.transactional\.id"):
        query.run()
