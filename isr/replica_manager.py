"""The replicas of one broker: what its request handlers and its metadata loader call.

The parts do the work: `appends.py` and `fetch_requests.py` serve requests, `metadata_delta_applier.py` takes up roles,
`fetcher_manager.py` replicates from other leaders, `isr_proposals.py` proposes ISR changes to the controller, and
`delayed_operations.py` answers what waits for a replica.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import UUID

from ..controller.metadata.metadata_image import MetadataDelta, MetadataImage
from ..log.errors import NoSpaceError
from ..log.manager.log_directory import LogDirDescription
from ..log.manager.log_manager import LogManager
from ..log.segment.batch_scan import Damage
from ..log.state.transaction_verification import VERIFICATION_OFF
from ..runtime.incremental_work import ITEMS_PER_STEP, PLAIN_STEP, IncrementalTask, Work, run_at_once
from ..runtime.ports import Runtime
from ..wire.errors import ProtocolError
from ..wire.fetch import FetchRequest
from ..wire.types import TopicPartition
from .directories.directory_assignments import DirectoryAssignments
from .directories.log_dir_moves import LogDirMoves
from .directories.log_mending import LogMending
from .fetching import offset_lookup
from .fetching.dirty_partitions import DirtyPartitionTracker
from .fetching.fetch_requests import FetchRequests
from .fetching.leader_fetch_sessions import FetchSessionCache
from .fetching.partition_reader import PartitionReader
from .follower.fetcher_manager import FetcherManager
from .follower.replica_fetcher import FetcherContext
from .hosted_partitions import HostedPartitions
from .leader.alter_partition_manager import AlterPartitionManager
from .leader.appends import NO_GUARDS, Appends, Entries, Guards
from .leader.deferred_appends import DeferredAppends
from .leader.expected_first_fetches import ExpectedFetches
from .leader.isr_proposals import IsrProposals
from .leader.record_deletion import RecordDeletion
from .leader.transaction_markers import MarkerAppends, MarkerCommitted, MarkerEntry, MarkersDone
from .ports import AppendCaller, FetchCaller, ReplicaManagerConfig, ReplicaPorts
from .purgatory.delayed_operation_timers import DelayedOperationTimers
from .purgatory.delayed_operations import DelayedOperations
from .purgatory.purgatory import Purgatory
from .replica import Replica
from .results import AppendDone, DeletedRecords, EpochEndResult, FetchDone, FetchParams, ListOffsetResult
from .roles.local_replicas import LocalReplicas
from .roles.metadata_delta_applier import MetadataDeltaApplier
from .storage_errors import StorageErrors
from .throttling.throttles import Throttles, is_throttled_for


class ReplicaManager:
    """To be made on the running loop. Until `start`, it only stores the metadata and refuses every request."""

    def __init__(self, config: ReplicaManagerConfig, runtime: Runtime, logs: LogManager, ports: ReplicaPorts) -> None:
        self.config = config
        self._runtime = runtime
        self._logs = logs
        self._observer = ports.observer
        self._timers = DelayedOperationTimers(asyncio.get_running_loop())
        now_ms = self._timers.now_ms
        hosted = self._hosted = HostedPartitions(config.node_id, ports.broker_epoch)
        self.throttles = Throttles(config)
        tracker = DirtyPartitionTracker(self._is_throttled)
        operations = self._operations = DelayedOperations(hosted, self._timers, tracker, now_ms)
        errors = self._errors = StorageErrors(hosted, operations, ports.on_storage_error, ports.on_no_space)
        self._alter_partition = AlterPartitionManager(ports.alter_partition, config.alter_partition_backoff_ms)
        proposals = self._isr_proposals = IsrProposals(hosted, operations, self._alter_partition.submit, now_ms)
        self._appends = Appends(hosted, operations, errors, ports.observer, self._now, DeferredAppends(runtime.threads))
        self._markers = MarkerAppends(hosted, operations, errors, self._now)
        self._expected = ExpectedFetches(operations.purgatory)
        self._fetches = FetchRequests(
            FetchSessionCache(config.fetch_session_slots, runtime.rng, tracker),
            PartitionReader(hosted, self._expected, proposals, errors, config.replica_selector),
            self._expected,
            operations,
            self.throttles.leader,
            ports.observer,
            now_ms,
        )
        self._deletion = RecordDeletion(hosted, operations, errors)
        self._fetchers = FetcherManager(
            FetcherContext(config, ports.connect, ports.broker_epoch, self, runtime.rng, self.throttles.follower)
        )
        self._assignments = DirectoryAssignments(ports.assign_to_dirs, config.alter_partition_backoff_ms)
        replicas = LocalReplicas(config, hosted, logs, self._fetchers, self._assignments, operations, errors)
        self._roles = MetadataDeltaApplier(
            hosted, replicas, self._fetchers, operations, proposals, self._on_led, runtime.stopwatch
        )
        self._moves = LogDirMoves(hosted, logs, self.throttles.dirs, replicas.on_moved, self.on_replica_failed)
        self._mending = LogMending(hosted, logs, ports.connect, runtime.disk, runtime.rng, replicas.set_suspended)
        self._tasks: list[PeriodicTask] = []
        self._checkpoint: IncrementalTask[None] | None = None
        self._leadership_watchers: dict[str, Callable[[int], None]] = {}
        """By topic."""
        self._started = False

    # ---------------------------------------------------------------- start and stop

    async def start(self) -> None:
        """Take up the roles by the metadata applied so far. Call it when the broker has caught up with the metadata."""
        self._started = True
        self._roles.apply_all(self._hosted.image)
        await self._roles.settled()
        if not self._started:
            return
        self._moves.resume()
        self._tasks = [
            PeriodicTask(self.config.replica_lag_time_max_ms // 2, self.shrink_isrs),
            PeriodicTask(self.config.high_watermark_checkpoint_interval_ms, self.checkpoint_high_watermarks),
        ]

    async def stop(self) -> None:
        """Stop fetching, answer all delayed operations, write the high watermarks, and host no replica any more.

        The logs stay open; the log manager closes them.
        """
        if not self._started:
            return
        self._started = False
        for task in self._tasks:
            task.cancel()
        if self._checkpoint is not None:
            self._checkpoint.cancel()
        self._isr_proposals.stop()
        self._roles.stop()
        await self._fetchers.stop()
        await self._alter_partition.stop()
        await self._assignments.stop()
        await self._moves.stop()
        await self._mending.stop()
        for replica in list(self._hosted.replicas.values()):
            self._operations.on_role_lost(replica)
        self.purgatory.close()
        self._operations.reads.close()
        self._timers.close()
        run_at_once(self._noting_high_watermarks())
        self._logs.write_high_watermarks()
        self._hosted.replicas.clear()

    def apply(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """The metadata changed: `delta` says what, `image` is the new state."""
        self.throttles.apply(image, delta)
        if self._started:
            self._roles.apply(image, delta)
        else:
            self._hosted.image = image

    def watch_leadership(self, topic: str, on_led: Callable[[int], None]) -> None:
        """Call `on_led` with each partition of the topic that this broker leads from now on, or in a new epoch.

        That may be long after the metadata said so: the log of a new replica may have to wait for space on the disk.
        """
        self._leadership_watchers[topic] = on_led

    # ---------------------------------------------------------------- produce and fetch

    def append(
        self,
        acks: int,
        timeout_ms: int,
        entries: Entries,
        done: AppendDone,
        guards: Guards = NO_GUARDS,
        internal: bool = False,
        caller: AppendCaller | None = None,
    ) -> None:
        """Append batches to partitions. `acks` is -1 (all), 0 or 1; the caller has checked that.

        `done` is called once with one response per entry, in order: at once or, with acks=all, when everything that
        could be appended is committed, `timeout_ms` are over, or leadership is lost. `guards` allow transactional
        batches to open a transaction (`Replica.begin_verification`). `internal` batches are those of a coordinator on
        this broker: their records are not validated, and transactional ones have no sequence numbers. `caller` is the
        client's request: it is charged for what is validated in a thread.
        """
        self._appends.append(acks, timeout_ms, entries, done, guards, internal, caller)

    def write_markers(
        self,
        timeout_ms: int,
        entries: Sequence[MarkerEntry],
        done: MarkersDone,
        committed: MarkerCommitted | None = None,
    ) -> None:
        """Append markers with acks=all. `done` is called once with one error code per entry, in order.

        That is when all markers are committed or refused, `timeout_ms` are over, or leadership is lost. Errors are
        those of an append, INVALID_PRODUCER_EPOCH and TRANSACTION_COORDINATOR_FENCED.
        `committed` is called with each entry whose marker is committed, in the order of the log: before `done`, or
        later when that was REQUEST_TIMED_OUT; never when this broker does not lead any more.
        """
        self._markers.write(timeout_ms, entries, done, committed)

    def when_committed(
        self, topic_partition: TopicPartition, offset: int, timeout_ms: int, done: Callable[[bool], None]
    ) -> None:
        """Call `done` once: with true when all below `offset` is committed in a partition that this broker leads.

        It is false after `timeout_ms`, or when this broker does not lead the partition.
        """
        self._operations.when_committed(topic_partition, offset, timeout_ms, done)

    def confirm_leadership(
        self, topic_partition: TopicPartition, leader_epoch: int, timeout_ms: int, done: Callable[[bool], None]
    ) -> None:
        """Call `done` once: with true when no other broker had taken over the partition when this was called.

        It is false after `timeout_ms`, or when this broker does not lead the partition in that epoch. What this broker
        answers from memory after a true contains all that was acknowledged before (see `leader/read_confirmations.py`).
        """
        replica = self._hosted.replicas.get(topic_partition)
        if replica is None:
            done(False)
        else:
            self._operations.reads.confirm(replica, leader_epoch, timeout_ms, done)

    def who_confirms(self, replica: Replica) -> set[int]:
        """The other brokers that must confirm reads of a partition which this broker leads: who may be elected."""
        return self._operations.reads.candidates(replica)

    @property
    def verifies_transactions(self) -> bool:
        """Whether a batch needs a guard to open a transaction (`transaction.partition.verification.enable`)."""
        return self._appends.default_guard is None

    @verifies_transactions.setter
    def verifies_transactions(self, enabled: bool) -> None:
        self._appends.default_guard = None if enabled else VERIFICATION_OFF

    def fetch(
        self, params: FetchParams, request: FetchRequest, done: FetchDone, caller: FetchCaller
    ) -> Work[None] | None:
        """Read the partitions that `request` names, or those of its session; limits and waiting time are in `params`.

        `done` is called once with the response: at once, or when there is enough to read, something changes, or
        `max_wait_ms` are over. Until then `caller.on_gone` forgets the fetch. Returns the work that is left to be done
        if the partitions are many.
        """
        return self._fetches.fetch(params, request, done, caller)

    def fetch_in_steps(
        self, params: FetchParams, request: FetchRequest, done: FetchDone, caller: FetchCaller
    ) -> Work[None]:
        """The work of `fetch` for a request that names many partitions."""
        return self._fetches.fetch_in_steps(params, request, done, caller)

    def delete_records(self, topic_partition: TopicPartition, offset: int) -> DeletedRecords:
        """See `RecordDeletion.delete_before`."""
        return self._deletion.delete_before(topic_partition, offset)

    def low_watermark(self, topic_partition: TopicPartition) -> DeletedRecords:
        """See `RecordDeletion.low_watermark`."""
        return self._deletion.low_watermark(topic_partition)

    # ---------------------------------------------------------------- queries

    @property
    def purgatory(self) -> Purgatory:
        """The delayed produces and fetches."""
        return self._operations.purgatory

    @property
    def applied_offset(self) -> int:
        """Up to which metadata offset every role is taken up; the image may be newer."""
        return self._roles.applied_offset

    @property
    def partitions(self) -> Mapping[TopicPartition, Replica]:
        """All replicas that this broker hosts."""
        return self._hosted.replicas

    def find(self, topic_partition: TopicPartition) -> Replica:
        """The replica that this broker hosts. Raises `ProtocolError` with the reason why it cannot be used."""
        replica = self._hosted.find(topic_partition)
        replica.check_online()
        return replica

    def throttled_rates(self) -> dict[str, float]:
        """Bytes per second of throttled replication, by the names of Kafka's metrics."""
        now_ms, throttles = self._timers.now_ms(), self.throttles
        quotas = {
            "leader": throttles.leader.quota,
            "follower": throttles.follower.quota,
            "alterlogdirs": throttles.dirs,
        }
        return {name: quota.rate(now_ms) for name, quota in quotas.items()}

    def high_watermark_of(self, topic_partition: TopicPartition) -> int | None:
        """The high watermark that the local replica knows; None when there is no local replica."""
        replica = self._hosted.replicas.get(topic_partition)
        return None if replica is None else replica.high_watermark

    def list_offset(
        self,
        topic_partition: TopicPartition,
        timestamp: int,
        current_leader_epoch: int = -1,
        isolation_level: int = 0,
        replica_id: int = -1,
    ) -> ListOffsetResult:
        """See `offset_lookup.list_offset`; errors are in the result's code."""
        try:
            replica = self._hosted.find(topic_partition)
            return offset_lookup.list_offset(replica, timestamp, current_leader_epoch, isolation_level, replica_id)
        except (ProtocolError, OSError) as error:
            return ListOffsetResult(int(self._errors.to_protocol_error(topic_partition, error).code))

    def offset_for_leader_epoch(
        self, topic_partition: TopicPartition, current_leader_epoch: int, leader_epoch: int
    ) -> EpochEndResult:
        """See `offset_lookup.offset_for_leader_epoch`; errors are in the result's code."""
        try:
            replica = self._hosted.find(topic_partition)
            return offset_lookup.offset_for_leader_epoch(replica, current_leader_epoch, leader_epoch)
        except (ProtocolError, OSError) as error:
            return EpochEndResult(int(self._errors.to_protocol_error(topic_partition, error).code))

    def late_transactions(self, age_ms: int) -> int:
        """How many partitions led here have a transaction open whose producer has written nothing for so long."""
        before_ms = self._runtime.clock.wall_ms() - age_ms
        leaders = (one for one in self._hosted.replicas.values() if one.is_leader and not one.offline)
        return sum(one.log.producers.has_late_transaction(before_ms) for one in leaders)

    def describe(self) -> list[dict[str, Any]]:
        """One row per replica, for diagnostics."""
        return [describe_replica(replica) for replica in self._hosted.replicas.values()]

    # ---------------------------------------------------------------- periodic tasks

    def shrink_isrs(self) -> None:
        """Propose the removal of replicas that have fallen behind; runs every half lag time."""
        self._isr_proposals.shrink_all()

    def checkpoint_high_watermarks(self) -> None:
        """Collect all high watermarks in steps, and write them, if one has changed."""
        if self._checkpoint is None or not self._checkpoint.is_running:
            self._checkpoint = IncrementalTask(
                self._noting_high_watermarks(),
                steps_per_slice=4,
                done=lambda _: self._logs.write_high_watermarks_soon(),
            )

    def _noting_high_watermarks(self) -> Work[None]:
        hosted = self._hosted.replicas
        partitions = list(hosted)
        for start in range(0, len(partitions), ITEMS_PER_STEP):
            part = partitions[start : start + ITEMS_PER_STEP]  # some of them may have been removed meanwhile
            there = {tp: hosted[tp].high_watermark for tp in part if tp in hosted and not hosted[tp].offline}
            self._logs.note_high_watermarks(there)
            yield PLAIN_STEP

    def _now(self) -> tuple[int, int]:
        return self._timers.now_ms(), self._runtime.clock.wall_ms()

    # ---------------------------------------------------------------- log directories

    def log_dirs(self) -> Sequence[LogDirDescription]:
        """Every log directory of this broker."""
        return self._logs.directories.describe()

    def move_to_dir(self, topic_partition: TopicPartition, path: str) -> None:
        """Begin to move a replica to the log directory at `path`. Errors as in `LogDirMoves.begin`."""
        self._moves.begin(topic_partition, path)

    def set_full_dirs(self, paths: Sequence[str]) -> None:
        """Name the log directories that have no space for more records; replicas in all others take them.

        Logs that wait for space are made when there is some, but not while the write that found a directory full is
        under way.
        """
        is_fuller = self._logs.directories.set_full(paths)
        for replica in self._hosted.replicas.values():
            replica.has_space = replica.log.directory.rpartition("/")[0] not in paths
        if self._hosted.without_space and not is_fuller and self._logs.directories.has_space:
            self._roles.create_again()
            self._moves.resume()

    def on_dir_failed(self, directory_id: UUID, error: OSError) -> None:
        """Take all replicas in a log directory offline. To be called while no operation on a replica is under way."""
        for topic_partition, replica in self._hosted.replicas.items():
            if not replica.offline and self._logs.directories.id_of(topic_partition) == directory_id:
                self.on_replica_failed(replica, error)

    def on_damaged(self, topic_partition: TopicPartition, damage: Damage) -> None:
        """The scrubber has found damage in the log of a replica: it is mended from other replicas."""
        if self._started:
            self._mending.begin(topic_partition, damage)

    def mend(self, topic_partition: TopicPartition, damage: Damage) -> bool:
        """A reader has found damage in the log of a replica: whether it is being mended now, or is given up.

        The replica may lose its leadership by that.
        """
        scrubber = self._logs.scrubber
        if scrubber is None or self._mending.was_in_vain(topic_partition, damage):
            return False
        if not self._mending.is_under_way(topic_partition):
            scrubber.report(topic_partition, damage)
        return self._mending.is_under_way(topic_partition)

    def on_log_start_incremented(self, topic_partition: TopicPartition) -> None:
        """Retention has deleted the beginning of a log: followers are told its start offset when they fetch next."""
        replica = self._hosted.replicas.get(topic_partition)
        if replica is not None:
            self._operations.on_changed(replica)

    # ---------------------------------------------------------------- what fetchers report (`FetcherListener`)

    def on_records_fetched(self, replica: Replica, size_bytes: int) -> None:
        """A fetcher has got records."""
        self._operations.note_append()
        self._observer.on_records_fetched(replica.topic_partition, size_bytes)

    def on_no_space(self, replica: Replica, error: NoSpaceError) -> None:
        """A fetcher could not write what it fetched, because the disk is full."""
        self._errors.on_no_space(replica.topic_partition, error)

    def on_replica_failed(self, replica: Replica, error: Exception) -> None:
        """The log of a replica could not be read or written."""
        self._fetchers.remove(replica)
        self._errors.take_offline(replica, error)

    def _is_throttled(self, replica: Replica, replica_id: int) -> bool:
        throttle = self.throttles.leader
        if throttle.is_idle:
            return False
        now_ms = self._timers.now_ms()
        return throttle.quota.available_bytes(now_ms) <= 0 and is_throttled_for(replica, replica_id, throttle, now_ms)

    def _on_led(self, replica: Replica) -> None:
        self._operations.on_changed(replica)
        leader = replica.partition.leader
        if leader is not None:
            self._expected.expect(replica.topic_partition, leader.followers, self._timers.now_ms())
        watcher = self._leadership_watchers.get(replica.topic_partition.topic)
        if watcher is not None:
            watcher(replica.topic_partition.partition)


class PeriodicTask:
    """Calls `action` every `interval_ms` on the running loop, until it is cancelled."""

    def __init__(self, interval_ms: int, action: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._interval_s = interval_ms / 1000
        self._action = action
        self._timer = self._loop.call_later(self._interval_s, self._run)

    def cancel(self) -> None:
        """Stop calling it."""
        self._timer.cancel()

    def _run(self) -> None:
        self._timer = self._loop.call_later(self._interval_s, self._run)
        self._action()


def describe_replica(replica: Replica) -> dict[str, Any]:
    """The replica's state as a dict of plain values."""
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
        "last_stable_offset": replica.last_stable_offset,
        "log_start_offset": replica.log.log_start_offset,
        "log_end_offset": replica.log_end_offset,
        "isr": [] if leader is None else list(leader.isr_state.isr),
        "under_min_isr": leader is not None and leader.is_under_min_isr,
        "followers": {} if leader is None else {f.replica_id: f.log_end_offset for f in leader.followers.values()},
    }
