"""What a node's state does not tell, so that it must be counted as it passes.

`BrokerTopicStats` and `RequestMetrics` are the observers that a node with a metrics port is given; a node without one
has observers that do nothing. `PartitionChanges` subscribes to the metadata. `ProcessTimings` times the event loop, the
garbage collector and the disk. Durations are measured with `time.perf_counter`, since the event loop's clock counts
milliseconds.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from ...broker.network.request import Request, RequestObserver
from ...controller.metadata.metadata_image import MetadataDelta, MetadataImage, PartitionRegistration
from ...isr.ports import ReplicaObserver, WantedPartition
from ...isr.results import AppendDone, FetchParams
from ...log.append_info import AppendInfo
from ...raft.types import LeaderAndEpoch
from ...runtime.ports import Disk, File, Runtime
from ...wire.fetch import FetchPartitionResponse
from ...wire.produce import ProducePartitionResponse
from ...wire.types import TopicPartition
from .latency import Latency

LAG_INTERVAL_S = 0.5


@dataclass(slots=True)
class TopicStats:
    """What went through this broker for one topic, since its start. Requests are counted once for each partition."""

    messages_in: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    replication_bytes_in: int = 0
    replication_bytes_out: int = 0
    produce_requests: int = 0
    fetch_requests: int = 0
    failed_produce_requests: int = 0
    failed_fetch_requests: int = 0


class BrokerTopicStats(ReplicaObserver):
    """Counts appends and fetches by topic, and the bytes that reassignments move."""

    __slots__ = ("_image", "_node_id", "by_topic", "reassignment_bytes_in", "reassignment_bytes_out")

    def __init__(self) -> None:
        self.by_topic: dict[str, TopicStats] = {}
        self.reassignment_bytes_in = 0
        self.reassignment_bytes_out = 0
        self._node_id = -1
        self._image: MetadataImage | None = None

    def know_metadata(self, node_id: int, image: MetadataImage) -> None:
        """Learn which broker this is, and the node's live image, which shows what is being reassigned."""
        self._node_id = node_id
        self._image = image

    def of(self, topic: str) -> TopicStats:
        """The counters of a topic. They are not kept for one that the metadata does not have, such as a deleted one."""
        found = self.by_topic.get(topic)
        if found is None:
            found = TopicStats()
            if self._image is None or topic in self._image.topics_by_name:
                self.by_topic[topic] = found
        return found

    def forget_deleted(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """Drop the counters of deleted topics. Fetches that wait for their records may be answered later."""
        for topic in delta.deleted_topics.values():
            self.by_topic.pop(topic.name, None)

    def on_append(self, entries: Sequence[tuple[TopicPartition, memoryview | None]], done: AppendDone) -> AppendDone:
        """See `ReplicaObserver`."""
        topics = [key.topic for key, _ in entries]  # the records must not be kept until the answer
        for topic in topics:
            self.of(topic).produce_requests += 1

        def count_failures(responses: list[ProducePartitionResponse]) -> None:
            for topic, response in zip(topics, responses, strict=True):
                if response.error_code:
                    self.of(topic).failed_produce_requests += 1
            done(responses)

        return count_failures

    def on_appended(self, topic_partition: TopicPartition, info: AppendInfo, records: memoryview) -> None:
        """See `ReplicaObserver`. Duplicates are not counted."""
        messages = info.last_offset - info.first_offset + 1
        if messages > 0 and not info.duplicate:
            stats = self.of(topic_partition.topic)
            stats.messages_in += messages
            stats.bytes_in += len(records)

    def on_fetch(self, params: FetchParams, wanted: Sequence[WantedPartition]) -> None:
        """See `ReplicaObserver`. Followers' fetches are not counted as requests."""
        if params.replica_id < 0:
            for one in wanted:
                if one.topic_partition is not None:
                    self.of(one.topic_partition.topic).fetch_requests += 1

    def on_fetched(
        self,
        params: FetchParams,
        wanted: Sequence[WantedPartition],
        rows: Sequence[FetchPartitionResponse],
    ) -> None:
        """See `ReplicaObserver`."""
        follower = params.replica_id
        for one, row in zip(wanted, rows, strict=True):
            if one.topic_partition is None:
                continue
            stats = self.of(one.topic_partition.topic)
            size_bytes = len(row.records or b"")
            if row.error_code:
                stats.failed_fetch_requests += 1
            elif follower < 0:
                stats.bytes_out += size_bytes
            else:
                stats.replication_bytes_out += size_bytes
                if size_bytes and self._is_added(one.topic_partition, follower):
                    self.reassignment_bytes_out += size_bytes

    def on_records_fetched(self, topic_partition: TopicPartition, size_bytes: int) -> None:
        """See `ReplicaObserver`."""
        self.of(topic_partition.topic).replication_bytes_in += size_bytes
        if self._is_added(topic_partition, self._node_id):
            self.reassignment_bytes_in += size_bytes

    def _is_added(self, key: TopicPartition, broker: int) -> bool:
        """Whether a reassignment brings the partition to that broker."""
        topic = None if self._image is None else self._image.topics_by_name.get(key.topic)
        partition = None if topic is None else topic.partitions.get(key.partition)
        return partition is not None and broker in partition.adding_replicas


class RequestMetrics(RequestObserver):
    """How long requests took, from their last byte read to their answer, by API."""

    __slots__ = ("by_api",)

    def __init__(self) -> None:
        self.by_api: dict[int, Latency] = {}

    def on_begun(self, request: Request) -> None:
        """See `RequestObserver`."""
        request.begun_at_s = time.perf_counter()

    def on_completed(self, request: Request) -> None:
        """See `RequestObserver`."""
        latency = self.by_api.get(request.api_key)
        if latency is None:
            latency = self.by_api[request.api_key] = Latency()
        latency.observe(time.perf_counter() - request.begun_at_s)


class PartitionChanges:
    """Counts what the metadata says of partitions and the quorum: elections, unclean ones, ISR changes, controllers."""

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
        """The node has applied a commit."""
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
        """The quorum has a leader, or has lost it."""
        self.new_controllers += leader.leader_id is not None

    def _compare(self, before: PartitionRegistration, now: PartitionRegistration) -> None:
        if now.leader >= 0 and now.leader_epoch > before.leader_epoch and now.leader != before.leader:
            self.leader_elections += 1
            if now.leader not in before.isr and now.leader not in before.elr:
                self.unclean_leader_elections += 1
        if now.leader == self._node_id:
            self.isr_shrinks += any(replica not in now.isr for replica in before.isr)
            self.isr_expands += any(replica not in before.isr for replica in now.isr)


class ProcessTimings:
    """The event loop's lag, the garbage collector's pauses, and the time that background syncs of the disk take."""

    def __init__(self) -> None:
        self.loop_lag = Latency()
        self.gc_pauses = Latency()
        self.fsyncs = Latency()
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._gc_began = 0.0

    def start(self) -> None:
        """Begin to measure the loop and the collector."""
        gc.callbacks.append(self._on_gc)
        self._arm()

    def stop(self) -> None:
        """Stop measuring; safe when `start` was not called."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            gc.callbacks.remove(self._on_gc)

    def with_timed_disk(self, runtime: Runtime) -> Runtime:
        """`runtime` with a disk whose background syncs are timed."""
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
    """A `Disk` that times `fsync_soon` and passes all other calls on."""

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
