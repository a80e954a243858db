"""Three replica managers on the simulator's loop, talking Fetch over the wire format but without sockets."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from typing import Any, TypeVar
from uuid import UUID

from support.isr.fetch_caller import Caller
from support.isr.replicas import FixedClock, batch

from raftwerk.chaos.sim.disk.sim_disk import SimDisk
from raftwerk.chaos.sim.kernel.event_loop import ProcessLoop, Scheduler
from raftwerk.controller.metadata.metadata_image import MetadataDelta, MetadataImage
from raftwerk.controller.metadata.metadata_records import (
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from raftwerk.isr.leader.leader_state import AlterPartitionResult
from raftwerk.isr.ports import (
    NO_OBSERVER,
    AlterPartitionItem,
    ReplicaKey,
    ReplicaManagerConfig,
    ReplicaObserver,
    ReplicaPorts,
)
from raftwerk.isr.replica_manager import ReplicaManager
from raftwerk.isr.results import FetchParams
from raftwerk.log.manager.log_manager import LogManager
from raftwerk.log.manager.log_manager_config import LogManagerConfig
from raftwerk.log.manager.meta_properties import format_dirs
from raftwerk.runtime.files.file_slice import in_memory
from raftwerk.runtime.ports import Runtime
from raftwerk.wire.client import ConnectionLostError
from raftwerk.wire.codec import decode_response, encode_response
from raftwerk.wire.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    decode_fetch_request,
    encode_fetch_response,
)
from raftwerk.wire.types import TopicPartition

T = TypeVar("T")

LATENCY_S = 0.001


class Link:
    """A connection from one manager to another: answers come in order, a millisecond each way."""

    def __init__(self, cluster: Cluster, source: int, target: int) -> None:
        self.cluster, self.source, self.target = cluster, source, target
        self.is_closed = False
        self.received_bytes = 0
        self.pending: dict[int, asyncio.Future[memoryview]] = {}
        self.sent = 0

    def send_raw(self, api_key: int, version: int, body: Sequence[Any]) -> asyncio.Future[memoryview]:
        future: asyncio.Future[memoryview] = self.cluster.loop.create_future()
        if self.is_closed:
            future.set_exception(ConnectionLostError("closed"))
            return future
        self.sent += 1
        self.pending[self.sent] = future
        data = b"".join(bytes(part) for part in body)
        self.cluster.loop.call_later(LATENCY_S, self._serve, self.sent, version, data)
        return future

    def _serve(self, number: int, version: int, data: bytes) -> None:
        held = self.cluster.held.get((self.source, self.target))
        if held is not None:
            held.append(lambda: self._serve(number, version, data))
            return
        request = decode_fetch_request(version, data)
        self.cluster.fetches.append((self.source, self.target, request))
        manager = self.cluster.managers.get(self.target)
        if self.is_closed or manager is None or (self.source, self.target) in self.cluster.mute:
            return

        def answer(response: FetchResponse) -> None:
            data = in_memory(encode_fetch_response(version, response))
            self.cluster.loop.call_later(LATENCY_S, self._answer, number, bytearray(data))

        params = FetchParams(
            request.replica_id,
            request.replica_epoch,
            request.max_wait_ms,
            request.min_bytes,
            request.max_bytes,
            uses_topic_ids=self.cluster.reads_dirty_only,
            from_follower_allowed=request.replica_id < 0,
            connection=self,
        )
        Caller().fetch(manager, params, request, answer)

    def _answer(self, number: int, data: bytearray) -> None:
        future = self.pending.pop(number, None)
        if future is not None and not future.done():
            future.set_result(memoryview(data))

    async def request(self, api_key: int, version: int, fields: Mapping[str, Any]) -> Any:
        topic = fields["topics"][0]
        partition = topic["partitions"][0]
        tp = TopicPartition(topic["name"], partition["partition_index"])
        result = self.cluster.managers[self.target].list_offset(
            tp, partition["timestamp"], partition["current_leader_epoch"], 0, fields["replica_id"]
        )
        row = {"partition_index": tp.partition, "error_code": result.error_code, "offset": result.offset}
        answer = {"topics": [{"name": tp.topic, "partitions": [row]}]}
        return decode_response(api_key, version, memoryview(encode_response(api_key, version, answer)))

    def close(self) -> None:
        self.is_closed = True
        pending, self.pending = self.pending, {}
        for future in pending.values():
            if not future.done():
                future.set_exception(ConnectionLostError("closed"))


class Cluster:
    """Metadata is a list of records that every manager replays when told to."""

    def __init__(self, nodes: Sequence[int] = (1, 2, 3), dirs: Sequence[str] = ("n",), **config: Any) -> None:
        self.dirs = dirs
        self.scheduler = Scheduler()
        self.process = ProcessLoop(self.scheduler, "cluster")
        self.loop = self.process.as_asyncio
        self.config = config
        self.managers: dict[int, ReplicaManager] = {}
        self.logs: dict[int, LogManager] = {}
        self.disks = {node: SimDisk(random.Random(node)) for node in nodes}
        self.starting: dict[int, asyncio.Task[None]] = {}
        self.images: dict[int, MetadataImage] = {}
        self.records: list[Any] = []
        self.names: dict[UUID, str] = {}
        self.links: list[Link] = []
        self.fetches: list[tuple[int, int, Any]] = []
        self.mute: dict[tuple[int, int], None] = {}
        self.held: dict[tuple[int, int], list[Callable[[], None]]] = {}
        """By source and target: requests that are under way until `release`."""
        self.alterations: list[AlterPartitionItem] = []
        self.alter_error: int | None = None
        self.connects = 0
        self.reads_dirty_only = True
        """Whether fetches of followers read dirty partitions only, or all partitions of their sessions."""
        self.storage_errors: list[TopicPartition] = []
        self.assigned: list[tuple[int, dict[ReplicaKey, UUID]]] = []
        """Which nodes have told in which directories their replicas are; the metadata does not change by that."""
        self.observer: ReplicaObserver = NO_OBSERVER
        """Of the brokers that are booted from now on."""
        self.work_seconds: Iterator[float] = itertools.repeat(0.0)
        """By the stopwatch of all nodes."""
        for node in nodes:
            self.records.append(registration(node))
        _made.append(self)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        result: T = self.process.run_until_complete(coroutine, 120.0)
        return result

    def sleep(self, seconds: float) -> None:
        self.scheduler.run_for(seconds)

    def boot(self, node: int) -> ReplicaManager:
        async def start() -> ReplicaManager:
            manager = self._load(node)
            await manager.start()
            return manager

        return self.run(start())

    def begin_boot(self, node: int) -> ReplicaManager:
        """Like `boot`, but returns when the first roles are taken up; the others follow."""

        async def begin() -> ReplicaManager:
            manager = self._load(node)
            self.starting[node] = self.loop.create_task(manager.start())
            await asyncio.sleep(0)
            return manager

        return self.run(begin())

    def _load(self, node: int) -> ReplicaManager:
        runtime = Runtime(
            self.disks[node], FixedClock(), random.Random(node), stopwatch=lambda: next(self.work_seconds)
        )
        paths = tuple(f"/{name}{node}" for name in self.dirs)
        logs = LogManager(runtime, LogManagerConfig(paths, "cluster", node))
        format_dirs(runtime, list(paths), "cluster", node)
        logs.acquire()
        logs.load()
        config = ReplicaManagerConfig(node, cluster_id="cluster", **self.config)
        ports = ReplicaPorts(
            lambda items: self._alter(node, items),
            lambda target: self._connect(node, target),
            lambda: self._epoch(node),
            lambda assignments: self._assign(node, assignments),
            on_storage_error=lambda tp, error: self.storage_errors.append(tp),
            observer=self.observer,
        )
        self.logs[node] = logs
        manager = self.managers[node] = ReplicaManager(config, runtime, logs, ports)
        self.images[node] = MetadataImage("cluster")
        self.tell(node)
        logs.set_strays_aside(lambda tp: wanted_topic_id(self.images[node], node, tp))
        return manager

    def stop(self, node: int) -> None:
        async def stop() -> None:
            await self.managers[node].stop()
            self.logs[node].shutdown()

        self.kill_links(node)
        self.run(stop())
        del self.managers[node]
        self.disks[node].crash(power_loss=False)

    def release(self, source: int, target: int) -> None:
        """The requests that are held arrive now."""
        for arrive in self.held.pop((source, target)):
            self.on_loop(arrive)

    def kill_links(self, node: int) -> None:
        for link in self.links:
            if node in (link.source, link.target):
                link.close()

    def _epoch(self, node: int) -> int:
        return self.images[node].brokers[node].epoch

    async def _connect(self, source: int, target: int) -> Link:
        self.connects += 1
        await asyncio.sleep(LATENCY_S)
        if target not in self.managers:
            raise ConnectionRefusedError(f"broker {target} is down")
        link = Link(self, source, target)
        self.links.append(link)
        return link

    async def _alter(self, node: int, items: Sequence[AlterPartitionItem]) -> list[AlterPartitionResult]:
        """The controller's part, simplified: accept and commit, or answer `alter_error`."""
        self.alterations += items
        await asyncio.sleep(LATENCY_S)
        if self.alter_error is not None:
            return [AlterPartitionResult(self.alter_error)] * len(items)
        results = []
        for item in items:
            now = self.latest().partition(item.topic_id, item.topic_partition.partition)
            assert now is not None
            isr = tuple(member for member, _ in item.proposal.new_isr)
            self.change(item.topic_id, item.topic_partition.partition, isr=isr)
            results.append(AlterPartitionResult(0, now.leader, now.leader_epoch, isr, now.partition_epoch + 1))
        return results

    async def _assign(self, node: int, assignments: Mapping[ReplicaKey, UUID]) -> Mapping[ReplicaKey, int]:
        self.assigned.append((node, dict(assignments)))
        await asyncio.sleep(LATENCY_S)
        return dict.fromkeys(assignments, 0)

    # -- metadata

    def latest(self) -> MetadataImage:
        image = MetadataImage("cluster")
        for offset, record in enumerate(self.records):
            image.replay(record, offset, MetadataDelta())
        return image

    def tell(self, *nodes: int) -> None:
        """Let these nodes (default: all that are up) learn all metadata."""
        for node in nodes or tuple(self.managers):
            image, delta = self.images[node], MetadataDelta()
            for offset in range(image.offset + 1, len(self.records)):
                image.replay(self.records[offset], offset, delta)
            self.on_loop(self.managers[node].apply, image, delta)

    def on_loop(self, call: Any, *args: Any) -> Any:
        """Call as if from a callback of the loop, without letting time or anything else move."""
        before = asyncio._get_running_loop()
        asyncio._set_running_loop(self.loop)
        try:
            return call(*args)
        finally:
            asyncio._set_running_loop(before)

    def create_topic(self, name: str, number: int, replicas: tuple[int, ...] = (1, 2, 3), partitions: int = 1) -> UUID:
        topic_id = UUID(int=number)
        self.names[topic_id] = name
        self.records.append(TopicRecord(name, topic_id))
        for index in range(partitions):
            self.records.append(PartitionRecord(topic_id, index, replicas, replicas, replicas[0]))
        return topic_id

    def delete_topic(self, topic_id: UUID) -> None:
        self.records.append(RemoveTopicRecord(topic_id))

    def change(self, topic_id: UUID, index: int, **changes: Any) -> None:
        self.records.append(PartitionChangeRecord(topic_id, index, **changes))

    # -- clients

    def produce(
        self, node: int, tp: TopicPartition, value: bytes = b"v", acks: int = -1, timeout_ms: int = 1000
    ) -> Answer:
        return self.produce_batch(node, tp, batch(value), acks, timeout_ms)

    def produce_batch(
        self, node: int, tp: TopicPartition, encoded: bytearray | memoryview, acks: int = -1, timeout_ms: int = 1000
    ) -> Answer:
        answer = Answer()
        records = memoryview(bytearray(encoded))
        self.on_loop(self.managers[node].append, acks, timeout_ms, [(tp, records)], answer)
        return answer

    def consume(self, node: int, tp: TopicPartition, offset: int, max_wait_ms: int = 0, **params: Any) -> Answer:
        return self.consume_all(node, {tp: offset}, max_wait_ms, **params)

    def consume_all(
        self, node: int, offsets: Mapping[TopicPartition, int], max_wait_ms: int = 0, **params: Any
    ) -> Answer:
        """One fetch without a session."""
        answer = Answer()
        topics = [
            FetchTopic(tp.topic, None, [FetchPartition(tp.partition, fetch_offset=offset)])
            for tp, offset in offsets.items()
        ]
        self.on_loop(
            answer.caller.fetch,
            self.managers[node],
            FetchParams(max_wait_ms=max_wait_ms, **params),
            FetchRequest(topics=topics),
            answer.take_response,
        )
        return answer


class Answer:
    """Takes the one call of `done`."""

    def __init__(self) -> None:
        self.rows: list[Any] | None = None
        self.caller = Caller()

    def __call__(self, rows: list[Any]) -> None:
        assert self.rows is None, "answered twice"
        self.rows = rows

    def forget(self) -> Any:
        """The connection of a fetch is lost before the answer."""
        assert self.caller.on_gone is not None
        return self.caller.on_gone()

    def take_response(self, response: FetchResponse) -> None:
        """Takes the answer to a fetch."""
        assert not response.error_code
        self([row for topic in response.topics for row in topic.partitions])

    @property
    def row(self) -> Any:
        assert self.rows is not None, "not answered"
        return self.rows[0]

    @property
    def error(self) -> int:
        return int(self.row.error_code)


_made: list[Cluster] = []


def dispose_clusters() -> None:
    """End the tasks of all clusters made since the last call; errors that were not caught fail the test."""
    clusters, _made[:] = _made[:], []
    for cluster in clusters:
        cluster.process.dispose()
        assert not cluster.scheduler.errors


def replicated_topic(replicas: tuple[int, ...] = (1, 2, 3), partitions: int = 1, **config: Any) -> tuple[Cluster, UUID]:
    """Three nodes that are up, and topic `t` on some of them."""
    cluster = Cluster(**config)
    for node in (1, 2, 3):
        cluster.boot(node)
    topic_id = cluster.create_topic("t", 7, replicas, partitions)
    cluster.tell()
    cluster.sleep(1.0)
    return cluster, topic_id


def wanted_topic_id(image: MetadataImage, node: int, tp: TopicPartition) -> UUID | None:
    """The topic id of a partition that the node should have, None for any other."""
    topic = image.topics_by_name.get(tp.topic)
    partition = None if topic is None else topic.partitions.get(tp.partition)
    return None if topic is None or partition is None or node not in partition.replicas else topic.topic_id


def registration(node: int, *, fenced: bool = False, rack: str | None = None) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(node, UUID(int=node), (), rack=rack, fenced=fenced)
