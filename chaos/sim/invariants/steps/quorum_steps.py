"""Checks after every event that what a node's quorum did is a step of the specification of KRaft.

The invariant's name is "each step of the quorum is one of its specification". The specification is in
`chaos/specification/quorum`. The states are read from the nodes' quorums and logs; the voters follow from the records
in the logs, and what is durable is read from the simulated devices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .....log.errors import StorageError
from .....raft.driver.quorum_state_store import parse_quorum_state
from .....raft.driver.raft_driver import RaftDriver
from .....raft.messages.control_records import voter_records
from .....raft.replication.partition_raft_log import PartitionRaftLog
from .....raft.roles import Role
from .....raft.types import CommittedBatch, ElectionState, RoleKind
from .....raft.voters.voter_set import VoterSet
from .....wire.records import iter_headers
from .....wire.types import SnapshotId
from ....specification.quorum.quorum_specification import QuorumSpecification, StoredElection
from ....specification.quorum.replica_state import MetadataLog, ReplicaState
from ....specification.step_search import Deviation
from ...disk.sim_disk import SimDisk
from ..durable_log import DurableLog
from ..invariant_broken import InvariantBroken

_READ_BYTES = 1 << 20


@dataclass(slots=True)
class _ObservedNode:
    """A running node, and what was seen of it after its last event."""

    driver: RaftDriver
    disk: SimDisk
    state_path: str
    device: DurableLog
    role: Role | None = None
    seen: tuple[int, int, int, SnapshotId] | None = None
    """The end of the log with its epoch, the high watermark, and the start of the log."""


class QuorumStepChecker:
    """Observes the quorums of all nodes."""

    def __init__(self, *on_committed: Callable[[Sequence[CommittedBatch]], None]) -> None:
        """These are told of all committed batches, once and in order."""
        self._on_committed = on_committed
        self._specification = QuorumSpecification()
        self._nodes: dict[int, _ObservedNode] = {}
        self._told_offset = 0

    def watch(self, node_id: int, driver: RaftDriver, disk: SimDisk, directory: str) -> None:
        """A process has started, with its metadata log and quorum-state in this directory."""
        state_path, device = f"{directory}/quorum-state", DurableLog(disk, directory)
        self._nodes[node_id] = _ObservedNode(driver, disk, state_path, device)
        root_voters = driver.quorum_state.log.voters.voters_at(0) or driver.config.static_voters
        self._specification.on_start(node_id, root_voters)

    def forget(self, node_id: int) -> None:
        """The process has ended, and its disk is as it was at its end."""
        node = self._nodes.pop(node_id, None)
        if node is not None:
            self._specification.on_end(node_id, self._durable(node_id, node))

    def on_disk_replaced(self, node_id: int) -> None:
        """The node, which does not run, has an empty disk, or an old one."""
        self._specification.on_disk_replaced(node_id)

    def after_event(self, node_id: int) -> None:
        """Check the node whose event has just run. Raises `InvariantBroken`."""
        node = self._nodes.get(node_id)
        if node is None:
            return
        quorum = node.driver.quorum_state
        if node.driver.failure.done():
            if quorum.role.kind in (RoleKind.LEADER, RoleKind.RESIGNED):
                self._judge(node_id, self._specification.on_end_as_leader(node_id, quorum.role.epoch))
            return
        log, high_watermark = quorum.log, quorum.high_watermark.offset or 0
        seen = log.end_offset, log.last_epoch, high_watermark, log.start
        if quorum.role is node.role and seen == node.seen:
            return
        try:
            after = self._state_of(node_id, node)
        except (StorageError, OSError):  # its disk has failed, which ends it
            return
        if quorum.is_leader and high_watermark > self._specification.states[node_id].high_watermark:
            for each, other in self._nodes.items():
                self._specification.history.durable[other.driver.config.own_key] = self._durable(each, other)
            self._specification.history.durable[after.key] = self._durable_part(after.log, node)
        self._judge(node_id, self._specification.observe(after))
        if quorum.role is not node.role:
            self._judge(node_id, self._specification.stored_differently(after, _stored(node)))
        if after.voters.keys != node.driver.voters.keys:
            deviation = Deviation(f"the voters by its log are {after.voters}", f"it counts {node.driver.voters}")
            self._judge(node_id, deviation)
        node.role, node.seen = quorum.role, seen
        self._tell_committed(after.log, _log_of(node))

    def _tell_committed(self, entries: MetadataLog, log: PartitionRaftLog) -> None:
        """Tell of what is newly committed, as far as this node has it; else another node will."""
        committed = self._specification.history.committed
        if committed.end_offset == self._told_offset:
            return
        end_offset = committed.common_prefix(entries).end_offset
        while log.start.end_offset <= self._told_offset < end_offset:
            try:
                batches = log.read_batches(self._told_offset, end_offset, _READ_BYTES)
            except (StorageError, OSError):  # its disk has failed
                return
            self._told_offset = batches[-1].last_offset + 1
            for on_committed in self._on_committed:
                on_committed(batches)

    def _judge(self, node_id: int, deviation: Deviation | None) -> None:
        if deviation is not None:
            raise _broken(node_id, str(deviation))

    # -- the states

    def _state_of(self, node_id: int, node: _ObservedNode) -> ReplicaState:
        quorum = node.driver.quorum_state
        log_start, log = self._logs_of(node_id, node)
        return ReplicaState(
            node.driver.config.own_key,
            log,
            log_start,
            self._specification.root_voters[node_id],
            quorum.role.kind,
            quorum.role.epoch,
            quorum.role.leader_id,
            quorum.role.voted,
            quorum.high_watermark.offset or 0,
        )

    def _logs_of(self, node_id: int, node: _ObservedNode) -> tuple[MetadataLog, MetadataLog]:
        """The log up to its start, and all of it."""
        log, known = _log_of(node), self._specification.states[node_id].log
        start_offset, epoch = log.start
        start = self._specification.history.committed.at(start_offset)
        if start is None or start.epoch != epoch:
            committed = self._specification.history.committed
            raise _broken(node_id, f"a snapshot of it is named {log.start}; committed is {committed}")
        entry = known.up_to(log.end_offset)
        while entry.end_offset > start_offset and not _is_in(log, entry):
            entry = entry.parent or entry
        if entry.end_offset <= start_offset:
            entry = start
        return start, _read_on(node_id, log, entry)

    def _durable(self, node_id: int, node: _ObservedNode) -> MetadataLog:
        return self._durable_part(self._specification.states[node_id].log, node)

    def _durable_part(self, log: MetadataLog, node: _ObservedNode) -> MetadataLog:
        """The part of a node's log that is on its device."""
        end_offset, checksum = node.device.end_offset, node.device.last_checksum
        entry = log.at(end_offset)
        if entry is not None and (checksum is None or entry.digest == checksum):
            return entry
        known = self._specification.history.durable.get(node.driver.config.own_key, self._specification.root)
        return log.common_prefix(known)


def _broken(node_id: int, detail: str) -> InvariantBroken:
    return InvariantBroken("each step of the quorum is one of its specification", f"node {node_id}: {detail}")


def _stored(node: _ObservedNode) -> StoredElection:
    durable = node.disk.durable_bytes(node.state_path)
    state = ElectionState() if durable is None else parse_quorum_state(bytes(durable))
    return StoredElection(state.epoch, state.voted)


def _log_of(node: _ObservedNode) -> PartitionRaftLog:
    log = node.driver.quorum_state.log
    if not isinstance(log, PartitionRaftLog):
        raise TypeError(f"a running node's quorum log is a partition log, not {type(log).__name__}")
    return log


def _is_in(log: PartitionRaftLog, entry: MetadataLog) -> bool:
    """Whether the log has this batch at its offset."""
    for _, header in iter_headers(memoryview(log.read(entry.base_offset, 1))):
        found = header.base_offset, header.next_offset, header.partition_leader_epoch, header.crc
        return found == (entry.base_offset, entry.end_offset, entry.epoch, entry.digest)
    return False


def _read_on(node_id: int, log: PartitionRaftLog, entry: MetadataLog) -> MetadataLog:
    """The log with what follows an entry of it."""
    while entry.end_offset < log.end_offset:
        data = memoryview(log.read(entry.end_offset, _READ_BYTES))
        for position, header in iter_headers(data):
            if header.base_offset != entry.end_offset:
                raise _broken(node_id, f"a batch begins at {header.base_offset}, after {entry}")
            batch = data[position : position + header.size_bytes]
            voters = _voters_in(batch) if header.is_control else None
            entry = entry.follow(header.next_offset, header.partition_leader_epoch, header.crc, voters)
    return entry


def _voters_in(batch: memoryview) -> VoterSet | None:
    """The last set of voters in a batch."""
    found = [record for _, record in voter_records(batch) if isinstance(record, VoterSet)]
    return found[-1] if found else None
