"""What cannot be read from a node's state and must be counted as it passes.

A tap replaces a port of the node by one that counts and hands on. Where no metrics are asked for, nothing is replaced
and the request path is what it was. Durations are measured by the processor's clock: the loop's counts milliseconds.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from ...broker.network.connection import Connection, ConnectionOwner
from ...broker.network.request import Request
from ...controller.metadata.metadata_image import MetadataDelta, MetadataImage, PartitionRegistration
from ...isr.fetching.fetch_requests import Wanted, WatchedFetch
from ...isr.fetching.incremental_fetch_context import IncrementalFetchContext
from ...isr.leader.appends import Entries
from ...isr.purgatory.purgatory import DelayedFetch
from ...isr.replica import Replica
from ...isr.replica_manager import ReplicaManager
from ...isr.results import AppendDone, AppendResult, FetchDone, FetchParams
from ...raft.types import LeaderAndEpoch
from ...runtime.files.file_slice import Sendable
from ...runtime.ports import Disk, File, Runtime
from ...wire.fetch import FetchPartitionResponse
from ...wire.types import TopicPartition
from .latency import Latency

LAG_INTERVAL_S = 0.5


@dataclass(slots=True)
class TopicTraffic:
    """What went through this broker for one topic, since its start."""

    messages_in: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    replication_bytes_in: int = 0
    replication_bytes_out: int = 0
    produce_requests: int = 0
    fetch_requests: int = 0
    failed_produce_requests: int = 0
    failed_fetch_requests: int = 0


class _Counted:
    """A follower's fetch that counts what it is answered (`WatchedFetch`)."""

    __slots__ = ("_fetch", "_follower", "_tap", "_wanted")

    def __init__(self, fetch: WatchedFetch, tap: TrafficTap, follower: int) -> None:
        self._fetch = fetch
        self._tap = tap
        self._follower = follower
        self._wanted: Wanted = ()

    @property
    def watch(self) -> IncrementalFetchContext:
        return self._fetch.watch

    @property
    def has_refusals(self) -> bool:
        return self._fetch.has_refusals

    def wanted(self) -> Wanted:
        self._wanted = self._fetch.wanted()
        return self._wanted

    def is_news(self, row: int, answer: FetchPartitionResponse) -> bool:
        return self._fetch.is_news(row, answer)

    def done(self, rows: list[FetchPartitionResponse]) -> None:
        self._tap.sent_to_follower(self._follower, self._wanted, rows)
        self._fetch.done(rows)


class TrafficTap:
    """Counts appends and fetches by topic, and what reassignments move. Stands before ports of a replica manager.

    `image` is the node's live one.
    """

    def __init__(self, replicas: ReplicaManager, node_id: int, image: MetadataImage) -> None:
        self.topics: dict[str, TopicTraffic] = {}
        self.reassignment_bytes_in = 0
        self.reassignment_bytes_out = 0
        self._replicas = replicas
        self._node_id = node_id
        self._image = image
        self._on_records_fetched = replicas.on_records_fetched
        replicas.on_records_fetched = self._got_as_follower  # type: ignore[method-assign]
        self._append = replicas.append
        self._fetch = replicas.fetch
        self._fetch_watched = replicas.fetch_watched
        replicas.append = self.append
        replicas.fetch = self.fetch
        replicas.fetch_watched = self.fetch_watched

    def append(self, acks: int, timeout_ms: int, entries: Entries, done: AppendDone) -> None:
        """As `ReplicaManager.append`; what the log grows by is what came in."""
        ends = [self._end_of(key) for key, _ in entries]

        def count_failures(results: list[AppendResult]) -> None:
            for result in results:
                if result.error_code:
                    self.of(result.topic_partition.topic).failed_produce_requests += 1
            done(results)

        self._append(acks, timeout_ms, entries, count_failures)
        for (key, records), end in zip(entries, ends, strict=True):
            traffic = self.of(key.topic)
            traffic.produce_requests += 1
            messages = self._end_of(key) - end
            if messages > 0:
                traffic.messages_in += messages
                traffic.bytes_in += len(records or b"")

    def fetch(self, params: FetchParams, wanted: Wanted, done: FetchDone) -> DelayedFetch | None:
        """As `ReplicaManager.fetch`."""
        is_follower = params.replica_id >= 0

        def count(rows: list[FetchPartitionResponse]) -> None:
            if is_follower:
                self.sent_to_follower(params.replica_id, wanted, rows)
            else:
                self._sent_to_consumer(wanted, rows)
            done(rows)

        if not is_follower:
            for key, _ in wanted:
                self.of(key.topic_partition.topic).fetch_requests += 1
        return self._fetch(params, wanted, count)

    def _sent_to_consumer(self, wanted: Wanted, rows: Sequence[FetchPartitionResponse]) -> None:
        for (key, _), row in zip(wanted, rows, strict=True):
            traffic = self.of(key.topic_partition.topic)
            if row.error_code:
                traffic.failed_fetch_requests += 1
            else:
                traffic.bytes_out += len(row.records or b"")

    def fetch_watched(self, params: FetchParams, fetch: WatchedFetch) -> DelayedFetch | None:
        """As `ReplicaManager.fetch_watched`."""
        return self._fetch_watched(params, _Counted(fetch, self, params.replica_id))

    def sent_to_follower(self, follower: int, wanted: Wanted, rows: Sequence[FetchPartitionResponse]) -> None:
        """A follower gets these."""
        for (key, _), row in zip(wanted, rows, strict=True):
            traffic = self.of(key.topic_partition.topic)
            if row.error_code:
                traffic.failed_fetch_requests += 1
                continue
            size_bytes = len(row.records or b"")
            traffic.replication_bytes_out += size_bytes
            if size_bytes and self._is_added(key.topic_partition, follower):
                self.reassignment_bytes_out += size_bytes

    def _got_as_follower(self, replica: Replica, size_bytes: int) -> None:
        key = replica.topic_partition
        self.of(key.topic).replication_bytes_in += size_bytes
        if self._is_added(key, self._node_id):
            self.reassignment_bytes_in += size_bytes
        self._on_records_fetched(replica, size_bytes)

    def _is_added(self, key: TopicPartition, broker: int) -> bool:
        """Whether a reassignment brings the partition to that broker."""
        topic = self._image.topics_by_name.get(key.topic)
        partition = None if topic is None else topic.partitions.get(key.partition)
        return partition is not None and broker in partition.adding_replicas

    def forget(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """Drop the counters of deleted topics."""
        for topic in delta.deleted_topics.values():
            self.topics.pop(topic.name, None)

    def of(self, topic: str) -> TopicTraffic:
        """The counters of a topic."""
        found = self.topics.get(topic)
        if found is None:
            found = self.topics[topic] = TopicTraffic()
        return found

    def _end_of(self, key: TopicPartition) -> int:
        replica = self._replicas.partitions.get(key)
        return 0 if replica is None else replica.log_end_offset


class RequestTimes:
    """How long requests took, from their last byte read to their answer, by API."""

    def __init__(self) -> None:
        self.by_api: dict[int, Latency] = {}

    def observe(self, api_key: int, duration_s: float) -> None:
        """Count one request."""
        latency = self.by_api.get(api_key)
        if latency is None:
            latency = self.by_api[api_key] = Latency()
        latency.observe(duration_s)

    def connection(self, owner: ConnectionOwner) -> Connection:
        """What a server makes instead of a plain connection."""
        return _TimedConnection(owner, self)


class _TimedConnection(Connection):
    def __init__(self, owner: ConnectionOwner, times: RequestTimes) -> None:
        super().__init__(owner)
        self._times = times
        self._begun: dict[Request, float] = {}

    def _begin(self, request: Request) -> None:
        self._begun[request] = time.perf_counter()
        super()._begin(request)

    def complete(self, request: Request, response: Sequence[Sendable]) -> None:
        """As `Connection.complete`."""
        begun = self._begun.pop(request, None)
        if begun is not None:
            self._times.observe(request.api_key, time.perf_counter() - begun)
        super().complete(request, response)


class ElectionWatch:
    """Counts what metadata says happened to partitions: elections, unclean ones, ISR changes at this leader."""

    def __init__(self, node_id: int, image: MetadataImage) -> None:
        self.leader_elections = 0
        self.unclean_leader_elections = 0
        self.isr_shrinks = 0
        self.isr_expands = 0
        self.new_controllers = 0
        self._node_id = node_id
        self._known: dict[tuple[UUID, int], PartitionRegistration] = {
            (topic.topic_id, partition): registration
            for topic in image.topics_by_id.values()
            for partition, registration in topic.partitions.items()
        }

    def on_metadata(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """A commit was applied."""
        for topic in delta.deleted_topics.values():
            for partition in topic.partitions:
                self._known.pop((topic.topic_id, partition), None)
        for key in delta.changed_partitions:
            now = image.partition(*key)
            if now is None:
                continue
            before = self._known.get(key)
            self._known[key] = now
            if before is not None:
                self._compare(before, now)

    def on_leader(self, leader: LeaderAndEpoch) -> None:
        """The quorum has a leader, or lost it."""
        self.new_controllers += leader.leader_id is not None

    def _compare(self, before: PartitionRegistration, now: PartitionRegistration) -> None:
        if now.leader >= 0 and now.leader_epoch > before.leader_epoch and now.leader != before.leader:
            self.leader_elections += 1
            if now.leader not in before.isr and now.leader not in before.elr:
                self.unclean_leader_elections += 1
        if now.leader == self._node_id:
            self.isr_shrinks += any(replica not in now.isr for replica in before.isr)
            self.isr_expands += any(replica not in before.isr for replica in now.isr)


class ProcessTaps:
    """The event loop's lag, the collector's pauses, the disk's syncs."""

    def __init__(self) -> None:
        self.loop_lag = Latency()
        self.gc_pauses = Latency()
        self.fsyncs = Latency()
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._gc_began = 0.0

    def start(self) -> None:
        """Begin to measure."""
        gc.callbacks.append(self._on_gc)
        self._arm()

    def stop(self) -> None:
        """End it."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            gc.callbacks.remove(self._on_gc)

    def measured(self, runtime: Runtime) -> Runtime:
        """`runtime` with a disk whose syncs are timed."""
        disk: Any = _TimedDisk(runtime.disk, self.fsyncs)
        return replace(runtime, disk=disk)

    def _arm(self) -> None:
        self._timer = self._loop.call_later(LAG_INTERVAL_S, self._tick, time.perf_counter())

    def _tick(self, armed_at: float) -> None:
        self.loop_lag.observe(max(0.0, time.perf_counter() - armed_at - LAG_INTERVAL_S))
        self._arm()

    def _on_gc(self, phase: str, _info: dict[str, int]) -> None:
        if phase == "start":
            self._gc_began = time.perf_counter()
        else:
            self.gc_pauses.observe(time.perf_counter() - self._gc_began)


class _TimedDisk:
    """A disk that times `fsync_soon`, and is its original in all else."""

    def __init__(self, disk: Disk, fsyncs: Latency) -> None:
        self._disk = disk
        self._fsyncs = fsyncs

    def __getattr__(self, name: str) -> Any:
        return getattr(self._disk, name)

    def fsync_soon(self, file: File) -> asyncio.Future[None]:
        """See `runtime.ports.Disk`."""
        began = time.perf_counter()
        future = self._disk.fsync_soon(file)
        future.add_done_callback(lambda _: self._fsyncs.observe(time.perf_counter() - began))
        return future
