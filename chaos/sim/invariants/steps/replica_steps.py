"""Checks after every event that what a node's replicas did are steps of the specification of Kafka replication.

The invariant's name is "each step of a replica is one of its specification". The specification is in
`chaos/specification/partitions`. The states are read from the replicas and their logs, and what the controller has
committed from the metadata log. Of each log only the batches are read that are new. While a disk holds damaged batches,
its replicas are not judged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from uuid import UUID

from .....isr.leader.isr_state import CommittedIsr, IsrState
from .....isr.leader.leader_state import LeaderState
from .....isr.partition import FollowerState
from .....isr.replica import Replica
from .....isr.replica_manager import ReplicaManager
from .....log.errors import StorageError
from .....log.partition_log import PartitionLog
from .....wire.records import BatchHeader, CorruptBatchError, iter_headers
from ....specification.partitions.partition_state import PartitionState
from ....specification.partitions.replica_specification import ReplicaSpecification
from ....specification.partitions.replica_state import ReplicaLog, ReplicaState
from ...disk.sim_disk import SimDisk
from ..invariant_broken import InvariantBroken
from ..producer_invariants import check_begun_anew

_READ_BYTES = 1 << 20
_PartitionKey = tuple[UUID, int]


@dataclass(slots=True)
class _Partition:
    """What is known of a partition. Compaction writes batches anew, so a compacted log's have no digest."""

    specification: ReplicaSpecification = field(default_factory=ReplicaSpecification)
    has_digests: bool = True

    def after(self, log: ReplicaLog, header: BatchHeader) -> ReplicaLog:
        """The log with one batch more."""
        digest = header.crc if self.has_digests else None
        return self.specification.history.follow(log, header.next_offset, header.partition_leader_epoch, digest)

    def ending_with(self, header: BatchHeader) -> ReplicaLog | None:
        """The known log that ends with this batch."""
        digest = header.crc if self.has_digests else None
        return self.specification.history.known(header.next_offset, header.partition_leader_epoch, digest)

    def up_to(self, offset: int, state: ReplicaState) -> ReplicaLog:
        """A replica's log up to an offset, which may be after its end if the leader's log begins there."""
        if offset <= state.log.end_offset:
            return state.log.up_to(offset)
        epochs = self.specification.history.epochs
        logs = [epochs[epoch].leaders_log for epoch in sorted(epochs, reverse=True)]
        longer = next((log for log in logs if log is not None and log.end_offset >= offset), state.log)
        return longer.up_to(offset)


@dataclass(slots=True)
class _ObservedReplica:
    """A replica, and what was seen of it after the last event of its node."""

    replica: Replica
    partition: _Partition
    log: PartitionLog | None = None
    history: int = -1
    """The log's, which changes when offsets are removed from it."""
    end_offset: int = -1
    high_watermark: int = -1
    log_start_offset: int = -1
    role: LeaderState | FollowerState | None = None
    isr_state: IsrState | None = None
    epochs: tuple[int, int] = (-1, -1)
    fetch_offsets: list[int] = field(default_factory=list)

    def is_as_seen(self) -> bool:
        """Whether nothing has happened to it; else what is there now is what was seen."""
        partition, log = self.replica.partition, self.replica.log
        end_offset, high_watermark = log.log_end_offset, partition.watermark.offset
        is_same = (
            end_offset == self.end_offset
            and high_watermark == self.high_watermark
            and log.log_start_offset == self.log_start_offset
            and log is self.log
            and log.history == self.history
        )
        self.end_offset, self.high_watermark = end_offset, high_watermark
        self.log_start_offset = log.log_start_offset
        leader = partition.leader
        if leader is None:
            is_same = is_same and partition.follower is self.role
            self.role = partition.follower
            return is_same
        epochs = leader.leader_epoch, leader.partition_epoch
        fetch_offsets = [follower.log_end_offset for follower in leader.followers.values()]
        is_same = (
            is_same
            and leader is self.role
            and leader.isr_state is self.isr_state
            and fetch_offsets == self.fetch_offsets
            and epochs == self.epochs
        )
        self.role, self.isr_state, self.fetch_offsets, self.epochs = leader, leader.isr_state, fetch_offsets, epochs
        return is_same


@dataclass(slots=True)
class _Node:
    manager: ReplicaManager
    disk: SimDisk
    replicas: list[Replica] = field(default_factory=list)
    seen: list[_ObservedReplica] = field(default_factory=list)
    """In the order of `replicas`."""


class ReplicaStepChecker:
    """Observes the replicas of all brokers. `has_bit_rot` says whether a node's disk may hold damaged batches."""

    def __init__(self, has_bit_rot: Callable[[int], bool]) -> None:
        self._has_bit_rot = has_bit_rot
        self._partitions: dict[_PartitionKey, _Partition] = {}
        self._nodes: dict[int, _Node] = {}

    def on_partition_change(self, topic_id: UUID, index: int, partition_epoch: int, state: PartitionState) -> None:
        """The controller has committed this state of a partition."""
        partition = self._partitions.setdefault((topic_id, index), _Partition())
        partition.specification.history.register(partition_epoch, state)

    def watch(self, node_id: int, manager: ReplicaManager, disk: SimDisk) -> None:
        """A broker has started."""
        self._nodes[node_id] = _Node(manager, disk)

    def forget(self, node_id: int, *, power_loss: bool) -> None:
        """The broker's process has ended. If an fsync has failed, it may lose what was not synced, too.

        If it ended in the midst of an event, that event is not observed: any log may follow where it has changed one.
        """
        node = self._nodes.pop(node_id, None)
        if node is None:
            return
        interrupted_at = node.disk.interrupted_at
        keeps_all = not power_loss and not node.disk.has_lost_pages
        for seen in node.seen:
            specification, log = seen.partition.specification, seen.replica.log
            is_changing = interrupted_at is not None and (
                interrupted_at.startswith(f"{log.directory}/") or log.log_end_offset != seen.end_offset
            )
            if node.disk.failed_dirs or seen.replica.offline or is_changing:
                specification.on_log_lost(node_id)
            else:
                specification.on_end(node_id, log.log_end_offset if keeps_all else _durable_end(log))

    def on_disk_replaced(self, node_id: int) -> None:
        """The node, which does not run, has an empty disk, or an old one."""
        for partition in self._partitions.values():
            partition.specification.on_log_lost(node_id)

    def after_event(self, node_id: int) -> list[Replica]:
        """Check the node whose event has just run; its replicas to which something has happened.

        Raises `InvariantBroken`.
        """
        node = self._nodes.get(node_id)
        if node is None:
            return []
        replicas = list(node.manager.partitions.values())
        if replicas != node.replicas:
            self._update_replicas(node_id, node, replicas)
        changed = [seen for seen in node.seen if not seen.is_as_seen()]
        for seen in changed:
            if not seen.replica.offline:
                with suppress(StorageError, OSError):  # its disk has failed, which takes it offline
                    self._observe(node_id, seen)
        return [seen.replica for seen in changed]

    def log_of(self, node_id: int, replica: Replica) -> ReplicaLog | None:
        """The log of a broker's replica as it was last observed; None if its batches are not told apart, or damaged."""
        partition = self._partitions.get((replica.topic_id, replica.topic_partition.partition))
        if partition is None or not partition.has_digests or self._has_bit_rot(node_id):
            return None
        state = partition.specification.states.get(node_id)
        return None if state is None else state.log

    def _update_replicas(self, node_id: int, node: _Node, replicas: Sequence[Replica]) -> None:
        known = {seen.replica: seen for seen in node.seen}
        node.seen = [known.get(replica) or self._new(node_id, replica) for replica in replicas]
        node.replicas = list(replicas)

    def _new(self, node_id: int, replica: Replica) -> _ObservedReplica:
        key = replica.topic_id, replica.topic_partition.partition
        partition = self._partitions.setdefault(key, _Partition())
        if not partition.specification.states:
            partition.has_digests = not replica.log.config.is_compacted
        if self._nodes[node_id].disk.failed_dirs:  # its former log may be in one that failed as the process started
            partition.specification.on_log_lost(node_id)
        partition.specification.on_created(node_id)
        return _ObservedReplica(replica, partition)

    def _observe(self, node_id: int, seen: _ObservedReplica) -> None:
        specification, log = seen.partition.specification, seen.replica.log
        before = specification.states[node_id]
        if log is seen.log and log.segments[0].base_offset == log.log_end_offset > before.end_offset:
            check_begun_anew(log, f"{seen.replica.topic_partition} on {node_id}")
        state = _state_of(node_id, seen, _log_of(seen, before))
        seen.log, seen.history = log, log.history
        if self._has_bit_rot(node_id):
            specification.adopt(state)
            return
        deviation = specification.observe(state)
        if deviation is not None:
            where = seen.replica.topic_partition
            raise InvariantBroken(
                "each step of a replica is one of its specification",
                f"{where.topic}-{where.partition} on {node_id}: {deviation}",
            )


def _durable_end(log: PartitionLog) -> int:
    """Up to where the log is durable; 0 if all that it has kept was written since its last fsync."""
    return log.recovery_point if log.recovery_point > log.log_start_offset else 0


def _state_of(node_id: int, seen: _ObservedReplica, log: ReplicaLog) -> ReplicaState:
    partition = seen.replica.partition
    end_offset, log_start_offset = seen.replica.log_end_offset, seen.replica.log.log_start_offset
    leader, follower = partition.leader, partition.follower
    if leader is None:
        return ReplicaState(
            node_id,
            log,
            end_offset,
            partition.high_watermark,
            follower.leader_id,
            follower.leader_epoch,
            follower.partition_epoch,
            frozenset(follower.isr),
            log_start_offset=log_start_offset,
        )
    isr_state = leader.isr_state
    ends = ((node, one.log_end_offset) for node, one in leader.followers.items())
    return ReplicaState(
        node_id,
        log,
        end_offset,
        partition.high_watermark,
        node_id,
        leader.leader_epoch,
        leader.partition_epoch,
        frozenset(isr_state.isr),
        None if isinstance(isr_state, CommittedIsr) else frozenset(isr_state.proposed_isr),
        leader.leader_epoch_start_offset,
        frozenset((node, offset) for node, offset in ends if offset >= 0),
        log_start_offset,
        leader.effective_min_isr,
    )


def _log_of(seen: _ObservedReplica, state: ReplicaState) -> ReplicaLog:
    """The replica's log. It is read on from its end, unless offsets were removed or the process is new."""
    log, partition = seen.replica.log, seen.partition
    if log is seen.log and log.history == seen.history:
        return _read_on(log, partition, state.log)
    end_offset, start_offset = log.log_end_offset, log.log_start_offset
    last = _batch_at(log, end_offset - 1) if end_offset > start_offset else None
    if last is None:
        return partition.up_to(end_offset, state)
    known = partition.ending_with(last)
    if known is not None:
        return known
    entry = partition.up_to(end_offset, state)
    while entry.end_offset > start_offset and not _is_in(log, partition, entry):
        entry = entry.parent or entry
    return _read_on(log, partition, entry)


def _read_on(log: PartitionLog, partition: _Partition, entry: ReplicaLog) -> ReplicaLog:
    """The log with what follows an entry of it."""
    offset, end_offset = max(entry.end_offset, log.log_start_offset), log.log_end_offset
    while offset < end_offset:
        headers = _headers_from(log, offset, _READ_BYTES)
        for header in headers:
            if header.next_offset > entry.end_offset:
                entry = partition.after(entry, header)
        if not headers:
            break
        offset = headers[-1].next_offset
    return entry


def _is_in(log: PartitionLog, partition: _Partition, entry: ReplicaLog) -> bool:
    """Whether the log has this batch."""
    found = _batch_at(log, entry.end_offset - 1)
    return found is not None and partition.ending_with(found) is entry


def _batch_at(log: PartitionLog, offset: int) -> BatchHeader | None:
    """The batch that holds the offset."""
    return next(iter(_headers_from(log, offset, 1)), None)


def _headers_from(log: PartitionLog, offset: int, max_bytes: int) -> list[BatchHeader]:
    try:
        data = log.read(offset, max_bytes, end_offset=log.log_end_offset)
        return [header for _, header in iter_headers(memoryview(data))]
    except CorruptBatchError:  # bits have rotted
        return []
