"""Three replica managers on the simulator's loop, talking Fetch over the wire format but without sockets."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import UUID

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
from raftwerk.isr.fetching.fetch_requests import Wanted
from raftwerk.isr.fetching.incremental_fetch_context import IncrementalFetchContext
from raftwerk.isr.leader.leader_state import AlterPartitionResult
from raftwerk.isr.ports import AlterPartitionItem, ReplicaManagerConfig, ReplicaPorts, TopicIdPartition
from raftwerk.isr.replica_manager import ReplicaManager
from raftwerk.isr.results import FetchParams
from raftwerk.log.manager.log_manager import LogManager
from raftwerk.log.manager.log_manager_config import LogManagerConfig
from raftwerk.log.manager.meta_properties import format_dirs
from raftwerk.runtime.ports import Runtime
from raftwerk.wire.client import ConnectionLostError
from raftwerk.wire.codec import decode_response, encode_response
from raftwerk.wire.fetch import (
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    FetchTopicResponse,
    decode_fetch_request,
    encode_fetch_response,
)
from raftwerk.wire.types import TopicPartition

LATENCY_S = 0.001


class IncrementalFetch:
    """A fetch of a session with a watch (`WatchedFetch`)."""

    has_refusals = False

    def __init__(self, link: Link, watch: IncrementalFetchContext, answer: Callable[[Wanted, Any], None]) -> None:
        self.link, self.watch, self.answer = link, watch, answer
        self.rows: Wanted = []

    def wanted(self) -> Wanted:
        self.rows = self.link.rows([key for key in self.watch.take_awake() if key in self.link.session])
        self.link.cluster.looked_at += len(self.rows)
        for key, _ in self.rows:
            self.watch.found((key.topic_id, key.topic_partition.partition), key.topic_partition)
        return self.rows

    def is_news(self, row: int, answer: FetchPartitionResponse) -> bool:
        return self.link.is_news(self.rows[row][0], answer)

    def done(self, rows: list[FetchPartitionResponse]) -> None:
        self.answer(self.rows, rows)


class Link:
    """A connection from one manager to another: answers come in order, a millisecond each way."""

    def __init__(self, cluster: Cluster, source: int, target: int) -> None:
        self.cluster, self.source, self.target = cluster, source, target
        self.is_closed = False
        self.received_bytes = 0
        self.pending: dict[int, asyncio.Future[memoryview]] = {}
        self.sent = 0
        self.session: dict[tuple[UUID | None, int], FetchPartition] = {}
        self.session_epoch = 0
        self.told: dict[tuple[UUID | None, int], tuple[int, int]] = {}
        self.watch: IncrementalFetchContext | None = None

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
        request = decode_fetch_request(version, data)
        self.cluster.fetches.append((self.source, self.target, request))
        manager = self.cluster.managers.get(self.target)
        if self.is_closed or manager is None or (self.source, self.target) in self.cluster.mute:
            return
        response = self._update_session(request)

        def answer(wanted: Wanted, rows: list[FetchPartitionResponse]) -> None:
            for (key, _), row in zip(wanted, rows, strict=True):
                if self.is_news(key, row):
                    response.topics.append(FetchTopicResponse(None, key.topic_id, [row]))
                    self.told[(key.topic_id, row.partition)] = (row.high_watermark, row.log_start_offset)
            data = b"".join(bytes(b) for b in encode_fetch_response(version, response))
            self.cluster.loop.call_later(LATENCY_S, self._answer, number, bytearray(data))

        params = FetchParams(
            request.replica_id, request.replica_epoch, request.max_wait_ms, request.min_bytes, request.max_bytes
        )
        if self.cluster.is_watched and request.session_epoch == 0:
            self.watch = manager.open_watch(request.replica_id)
            params.max_wait_ms = 0
        if self.watch is not None:
            self._note_changes(self.watch, request)
        if self.watch is not None and request.session_epoch:
            manager.fetch_watched(params, IncrementalFetch(self, self.watch, answer))
        else:
            wanted = self.rows(list(self.session))
            manager.fetch(params, wanted, lambda rows: answer(wanted, rows))

    def rows(self, keys: Sequence[Any]) -> Wanted:
        names = self.cluster.names
        return [
            (TopicIdPartition(TopicPartition(names[topic_id], index), topic_id), self.session[(topic_id, index)])
            for topic_id, index in keys
        ]

    def _note_changes(self, watch: IncrementalFetchContext, request: FetchRequest) -> None:
        for topic in request.topics:
            for partition in topic.partitions:
                watch.want((topic.topic_id, partition.partition))
        for topic in request.forgotten:
            for index in topic.partitions:
                watch.forget((topic.topic_id, index))

    def _update_session(self, request: FetchRequest) -> FetchResponse:
        """The leader's side of KIP-227, as plain as it gets."""
        if request.session_epoch == 0:
            self.session.clear()
            self.told.clear()
            self.session_epoch = 0
            self.cluster.sessions += 1
        else:
            self.session_epoch += 1
            assert (request.session_id, request.session_epoch) == (77, self.session_epoch)
        for topic in request.topics:
            for partition in topic.partitions:
                self.session[(topic.topic_id, partition.partition)] = partition
        for topic in request.forgotten:
            for index in topic.partitions:
                self.session.pop((topic.topic_id, index), None)
        return FetchResponse(session_id=77)

    def is_news(self, key: TopicIdPartition, row: FetchPartitionResponse) -> bool:
        offsets = (row.high_watermark, row.log_start_offset)
        told = self.told.get((key.topic_id, row.partition))
        return bool(row.records or row.error_code or row.diverging_epoch) or told != offsets

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

    def __init__(self, nodes: Sequence[int] = (1, 2, 3), **config: Any) -> None:
        self.scheduler = Scheduler()
        self.process = ProcessLoop(self.scheduler, "cluster")
        self.loop = self.process.as_asyncio
        self.config = config
        self.managers: dict[int, ReplicaManager] = {}
        self.logs: dict[int, LogManager] = {}
        self.disks = {node: SimDisk(random.Random(node)) for node in nodes}
        self.images: dict[int, MetadataImage] = {}
        self.records: list[Any] = []
        self.names: dict[UUID, str] = {}
        self.links: list[Link] = []
        self.fetches: list[tuple[int, int, Any]] = []
        self.mute: dict[tuple[int, int], None] = {}
        self.alterations: list[AlterPartitionItem] = []
        self.alter_error: int | None = None
        self.connects = 0
        self.sessions = 0
        self.is_watched = True
        """Sessions have watches, as a broker's have; else every fetch looks at all partitions."""
        self.looked_at = 0
        """Partitions that incremental fetches looked at."""
        self.storage_errors: list[TopicPartition] = []
        for node in nodes:
            self.records.append(registration(node))

    def run(self, coroutine: Any) -> Any:
        return self.process.run_until_complete(coroutine, 120.0)

    def sleep(self, seconds: float) -> None:
        self.scheduler.run_for(seconds)

    def boot(self, node: int) -> ReplicaManager:
        async def start() -> ReplicaManager:
            runtime = Runtime(self.disks[node], FixedClock(), random.Random(node))
            logs = LogManager(runtime, LogManagerConfig((f"/n{node}",), "cluster", node))
            format_dirs(runtime, [f"/n{node}"], "cluster", node)
            logs.acquire()
            logs.load()
            config = ReplicaManagerConfig(node, cluster_id="cluster", **self.config)
            ports = ReplicaPorts(
                lambda items: self._alter(node, items),
                lambda target: self._connect(node, target),
                lambda: self._epoch(node),
                lambda tp, error: self.storage_errors.append(tp),
            )
            self.logs[node] = logs
            manager = self.managers[node] = ReplicaManager(config, runtime, logs, ports)
            self.images[node] = MetadataImage("cluster")
            self.tell(node)
            await manager.start()
            return manager

        return self.run(start())

    def stop(self, node: int) -> None:
        async def stop() -> None:
            await self.managers[node].stop()
            self.logs[node].shutdown()

        self.kill_links(node)
        self.run(stop())
        del self.managers[node]
        self.disks[node].crash(power_loss=False)

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
        answer = Answer()
        self.on_loop(self.managers[node].append, acks, timeout_ms, [(tp, batch(value))], answer)
        return answer

    def consume(self, node: int, tp: TopicPartition, offset: int, max_wait_ms: int = 0, **params: Any) -> Answer:
        answer = Answer()
        answer.parked = self.on_loop(
            self.managers[node].fetch,
            FetchParams(max_wait_ms=max_wait_ms, **params),
            [(TopicIdPartition(tp), FetchPartition(tp.partition, fetch_offset=offset))],
            answer,
        )
        return answer


class Answer:
    """Takes the one call of `done`."""

    def __init__(self) -> None:
        self.rows: list[Any] | None = None
        self.parked: Any = None

    def __call__(self, rows: list[Any]) -> None:
        assert self.rows is None, "answered twice"
        self.rows = rows

    @property
    def row(self) -> Any:
        assert self.rows is not None, "not answered"
        return self.rows[0]

    @property
    def error(self) -> int:
        return int(self.row.error_code)


def registration(node: int, *, fenced: bool = False) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(node, UUID(int=node), (), fenced=fenced)
