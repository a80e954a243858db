"""The replicas of one broker, as its request handlers and its metadata loader see them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import UUID

from ..controller.metadata.metadata_image import MetadataDelta, MetadataImage
from ..log.errors import NoSpaceError
from ..log.results import LogDirView
from ..runtime.ports import Runtime
from ..wire.errors import ProtocolError
from ..wire.types import TopicPartition
from .directories.directory_assignments import DirectoryAssignments
from .directories.log_dir_moves import LogDirMoves
from .fetching import offset_lookup
from .fetching.fetch_requests import FetchRequests, Wanted, WatchedFetch
from .fetching.incremental_fetch_context import IncrementalFetchContext, Watches
from .follower.fetcher_manager import FetcherManager
from .follower.replica_fetcher import FetcherContext
from .hosted_partitions import HostedPartitions
from .leader.alter_partition_manager import AlterPartitionManager
from .leader.appends import Appends, Entries
from .leader.expected_fetches import ExpectedFetches
from .leader.leader_state import AlterPartitionResult
from .leader.record_deletion import RecordDeletion
from .ports import AlterPartitionItem, ReplicaLogs, ReplicaManagerConfig, ReplicaPorts
from .purgatory.delayed_operation_completion import DelayedOperationCompletion
from .purgatory.delayed_operation_timers import DelayedOperationTimers
from .purgatory.purgatory import DelayedFetch, Purgatory
from .replica import Replica
from .results import AppendDone, DeletedRecords, EpochEndResult, FetchDone, FetchParams, ListOffsetResult
from .roles.metadata_delta_applier import MetadataDeltaApplier
from .throttling.throttles import Throttles, is_held_back


class ReplicaManager:
    """Made on the running loop. Until `start`, metadata is only remembered and every request is refused."""

    def __init__(self, config: ReplicaManagerConfig, runtime: Runtime, logs: ReplicaLogs, ports: ReplicaPorts) -> None:
        self.config = config
        self._runtime = runtime
        self._logs = logs
        self._observer = ports.observer
        self._loop = asyncio.get_running_loop()
        self._deadlines = DelayedOperationTimers(self._loop)
        self.purgatory = Purgatory(self._deadlines)
        self._directory = HostedPartitions(config.node_id, ports.broker_epoch)
        self._isr_changes = AlterPartitionManager(
            ports.alter_partition, self._on_alter_partition, config.alter_partition_backoff_ms
        )
        self.throttles = Throttles(config)
        self._watches = Watches(self._is_held_back)
        self._consequences = DelayedOperationCompletion(
            self._directory,
            self.purgatory,
            self._watches,
            self._isr_changes.submit,
            ports.on_storage_error,
            ports.on_no_space,
        )
        fetching = FetcherContext(config, ports.connect, ports.broker_epoch, self, runtime.rng, self.throttles.follower)
        self._fetchers = FetcherManager(fetching)
        now_ms = self._deadlines.now_ms
        self._assignments = DirectoryAssignments(ports.assign_to_dirs, config.alter_partition_backoff_ms)
        self._expected = ExpectedFetches(self.purgatory)
        self._roles = MetadataDeltaApplier(
            config, self._directory, logs, self._fetchers, self._consequences, self._assignments, now_ms
        )
        self._roles.on_led = self._on_led
        self._appends = Appends(self._directory, self.purgatory, self._consequences, self._now, ports.observer)
        self._fetches = FetchRequests(
            self._directory,
            self.purgatory,
            self._consequences,
            self._expected,
            self.throttles.leader,
            now_ms,
            ports.observer,
        )
        self.append: Callable[[int, int, Entries, AppendDone], None] = self._appends.append
        """`append(acks, timeout_ms, entries, done)`: `entries` are partitions and batches (mutable: offsets are set in
        place). `done` is called once with one result per entry, in order: at once, or, with acks=all (-1), when all
        that could be appended is committed, `timeout_ms` are over, or leadership is lost."""
        self.fetch: Callable[[FetchParams, Wanted, FetchDone], DelayedFetch | None] = self._fetches.fetch
        """`fetch(params, wanted, done)`: `done` is called once with one row per wanted partition, in order: at once, or
        when there is enough to read, something changes, or `max_wait_ms` are over. Returns the parked fetch, whose
        `cancel()` forgets it (the connection is gone), or None when `done` has been called."""
        self.fetch_watched: Callable[[FetchParams, WatchedFetch], DelayedFetch | None] = self._fetches.fetch_watched
        """`fetch`, for an incremental fetch of a follower: `WatchedFetch` says what to look at."""
        self.open_watch: Callable[[int], IncrementalFetchContext] = self._watches.open
        """`open_watch(replica_id)`: for a new fetch session of that follower; close it with the session."""
        self._moves = LogDirMoves(
            self._directory, logs, self.throttles.dirs, self._roles.on_moved, self.on_replica_failed
        )
        self.move_to_dir: Callable[[TopicPartition, str], None] = self._moves.begin
        self.log_dirs: Callable[[], Sequence[LogDirView]] = logs.describe
        deletion = RecordDeletion(self._directory, self._consequences)
        self.delete_records: Callable[[TopicPartition, int], DeletedRecords] = deletion.delete_before
        self.low_watermark: Callable[[TopicPartition], DeletedRecords] = deletion.low_watermark
        self._tickers: list[asyncio.TimerHandle] = []
        self._started = False

    # ---------------------------------------------------------------- life

    async def start(self) -> None:
        """Take up the roles that the image last applied gives; call when the broker has caught up with the metadata."""
        self._started = True
        self._roles.apply_all(self._directory.image)
        await self._roles.settled()
        if not self._started:
            return
        self._moves.resume()
        self._every(self.config.replica_lag_time_max_ms // 2, self.shrink_isrs)
        self._every(self.config.high_watermark_checkpoint_interval_ms, self.checkpoint_high_watermarks)

    async def stop(self) -> None:
        """Stop fetching, answer every waiting request, write the high watermarks; no replica is here from then on.

        The logs stay open: they are the log manager's to close.
        """
        if not self._started:
            return
        self._started = False
        for ticker in self._tickers:
            ticker.cancel()
        self._roles.stop()
        await self._fetchers.stop()
        await self._isr_changes.stop()
        await self._assignments.stop()
        await self._moves.stop()
        self.purgatory.close()
        self._deadlines.close()
        self._logs.write_high_watermarks(self._high_watermarks())
        self._directory.replicas.clear()

    def apply(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """The metadata has moved on: `delta` says what changed, `image` how it is now."""
        self.throttles.apply(image, delta)
        if self._started:
            self._roles.apply(image, delta)
        else:
            self._directory.image = image

    # ---------------------------------------------------------------- questions

    @property
    def applied_offset(self) -> int:
        """Up to which offset of the metadata every role is taken up; the image may be further."""
        return self._roles.applied_offset

    @property
    def partitions(self) -> Mapping[TopicPartition, Replica]:
        """All replicas that are here."""
        return self._directory.replicas

    def throttled_rates(self) -> dict[str, float]:
        """Bytes a second of what is throttled, by the names of Kafka's metrics."""
        now_ms, throttles = self._deadlines.now_ms(), self.throttles
        quotas = {
            "leader": throttles.leader.quota,
            "follower": throttles.follower.quota,
            "alterlogdirs": throttles.dirs,
        }
        return {name: quota.rate(now_ms) for name, quota in quotas.items()}

    def high_watermark_of(self, topic_partition: TopicPartition) -> int | None:
        """The high watermark as this replica knows it; None when it is not here."""
        replica = self._directory.replicas.get(topic_partition)
        return None if replica is None else replica.high_watermark

    def list_offset(
        self,
        topic_partition: TopicPartition,
        timestamp: int,
        current_leader_epoch: int = -1,
        isolation_level: int = 0,
        replica_id: int = -1,
    ) -> ListOffsetResult:
        """See `offset_lookup.list_offset`; errors come as the result's code. Both isolation levels see the same yet."""
        try:
            replica = self._directory.find(topic_partition)
            return offset_lookup.list_offset(replica, timestamp, current_leader_epoch, replica_id)
        except (ProtocolError, OSError) as error:
            return ListOffsetResult(int(self._consequences.refused(topic_partition, error).code))

    def offset_for_leader_epoch(
        self, topic_partition: TopicPartition, current_leader_epoch: int, leader_epoch: int
    ) -> EpochEndResult:
        """See `offset_lookup.offset_for_leader_epoch`; errors come as the result's code."""
        try:
            replica = self._directory.find(topic_partition)
            return offset_lookup.offset_for_leader_epoch(replica, current_leader_epoch, leader_epoch)
        except (ProtocolError, OSError) as error:
            return EpochEndResult(int(self._consequences.refused(topic_partition, error).code))

    def describe(self) -> list[dict[str, Any]]:
        """One row per replica, for people and metrics."""
        return [describe_replica(replica) for replica in self._directory.replicas.values()]

    # ---------------------------------------------------------------- the clock's duties

    def shrink_isrs(self) -> None:
        """Ask for the removal of replicas that have fallen behind; runs every half lag time."""
        now_ms = self._deadlines.now_ms()
        for replica in self._directory.replicas.values():
            leader = replica.partition.leader
            if leader is not None and not replica.offline:
                proposal = leader.propose_shrink(replica.log_end_offset, now_ms)
                if proposal is not None:
                    self._consequences.on_proposal(replica, proposal)

    def checkpoint_high_watermarks(self) -> None:
        """Write all high watermarks, if one has changed."""
        self._logs.write_high_watermarks_soon(self._high_watermarks())

    def _high_watermarks(self) -> dict[TopicPartition, int]:
        return {
            topic_partition: replica.high_watermark
            for topic_partition, replica in self._directory.replicas.items()
            if not replica.offline
        }

    def _every(self, interval_ms: int, duty: Callable[[], None]) -> None:
        """Run `duty` each `interval_ms` until `stop`."""
        at = len(self._tickers)

        def tick() -> None:
            self._tickers[at] = self._loop.call_later(interval_ms / 1000, tick)
            duty()

        self._tickers.append(self._loop.call_later(interval_ms / 1000, tick))

    def _now(self) -> tuple[int, int]:
        return self._deadlines.now_ms(), self._runtime.clock.wall_ms()

    # ---------------------------------------------------------------- what others tell

    def on_no_space(self, replica: Replica, error: NoSpaceError) -> None:
        """A fetcher could not write what it fetched, as the disk is full."""
        self._consequences.on_no_space(replica.topic_partition, error)

    def set_full_dirs(self, paths: Sequence[str]) -> None:
        """The log directories that have no space for more records; replicas in all others take them."""
        for replica in self._directory.replicas.values():
            replica.has_room = replica.log.directory.rpartition("/")[0] not in paths

    def on_dir_failed(self, directory_id: UUID, error: OSError) -> None:
        """A log directory is used no more: all replicas in it are offline. To be called with nothing half done."""
        for topic_partition, replica in self._directory.replicas.items():
            if not replica.offline and self._logs.directory_id_of(topic_partition) == directory_id:
                self.on_replica_failed(replica, error)

    def on_records_fetched(self, replica: Replica, size_bytes: int) -> None:
        """A fetcher has got records."""
        self._observer.on_records_fetched(replica.topic_partition, size_bytes)

    def on_follower_high_watermark(self, replica: Replica) -> None:
        """A fetcher has moved a follower's high watermark."""
        self._consequences.on_high_watermark(replica)

    def on_replica_failed(self, replica: Replica, error: Exception) -> None:
        """A fetcher could not write what it fetched."""
        self._fetchers.remove(replica)
        self._consequences.on_failed(replica, error)

    def _is_held_back(self, replica: Replica, replica_id: int) -> bool:
        throttle = self.throttles.leader
        if throttle.is_idle:
            return False
        now_ms = self._deadlines.now_ms()
        return throttle.quota.room_bytes(now_ms) <= 0 and is_held_back(replica, replica_id, throttle, now_ms)

    def _on_alter_partition(self, item: AlterPartitionItem, result: AlterPartitionResult) -> bool:
        replica = self._directory.replicas.get(item.topic_partition)
        if replica is None or replica.topic_id != item.topic_id:
            return False
        leader = replica.partition.leader
        if leader is None:
            return False
        old_high_watermark = leader.high_watermark
        again = leader.on_alter_partition_result(
            item.proposal, result, replica.log_end_offset, self._deadlines.now_ms()
        )
        self._consequences.on_changed(replica)
        if leader.high_watermark != old_high_watermark:
            self._consequences.on_high_watermark(replica)
        return again

    def _on_led(self, replica: Replica) -> None:
        """This broker has another say over the partition: its followers come as soon as they know."""
        self._consequences.on_changed(replica)
        leader = replica.partition.leader
        if leader is not None:
            self._expected.expect(replica.topic_partition, leader.followers, self._deadlines.now_ms())


def describe_replica(replica: Replica) -> dict[str, Any]:
    """The replica's state in plain values."""
    partition = replica.partition
    leader = partition.leader
    return {
        "topic": replica.topic_partition.topic,
        "partition": replica.topic_partition.partition,
        "topic_id": str(replica.topic_id),
        "role": "offline" if replica.offline else "follower" if leader is None else "leader",
        "leader": partition.leader_id,
        "leader_epoch": partition.leader_epoch,
        "partition_epoch": partition.partition_epoch,
        "high_watermark": replica.high_watermark,
        "log_start_offset": replica.log.log_start_offset,
        "log_end_offset": replica.log_end_offset,
        "isr": [] if leader is None else list(leader.isr_state.isr),
        "under_min_isr": leader is not None and leader.is_under_min_isr,
        "followers": {} if leader is None else {f.replica_id: f.log_end_offset for f in leader.followers.values()},
    }
