"""The invariants of the metadata quorum, checked after every event.

Their names are: "epochs do not go back", "one leader an epoch", "the vote is durable before its reply", "the high
watermark does not go back", "committed records never change", "a committed record is on a majority's disks", "a leader
holds every committed record", "nothing committed is truncated", "a leader whose time is over resigns", "an answered
change of the voters is committed", "the voters of a node are those of its log", "what a voter counts as durable is on
its disk".

What is durable is read from the simulated devices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ....raft.driver.log_end_checkpoint import LogEnd
from ....raft.driver.quorum_state_store import parse_quorum_state
from ....raft.driver.raft_driver import RaftDriver
from ....raft.replication.partition_raft_log import PartitionRaftLog
from ....raft.roles import Role
from ....raft.types import CommittedBatch, ReplicaKey
from ....raft.voters.voter_set import VoterSet
from ..disk.sim_disk import SimDisk
from .derived.voters_of_log import check_voters
from .durable_log import DurableLog
from .invariant_broken import InvariantBroken

_READ_BYTES = 1 << 20
_OUTDATED_LIMIT_S = 4.0
"""Check-quorum takes one and a half fetch time-outs of two seconds."""
_SPARING_VOTERS = 3
_PAUSE_S = 1.0
"""A process without an event for this long was paused, and may need a moment to notice the time."""


_LATENCY_MAX_S = 0.3
"""The longest latency of a packet on a slow link."""


@dataclass(slots=True)
class _WatchedNode:
    """The quorum state of a node after its last event."""

    node_id: int
    driver: RaftDriver
    disk: SimDisk
    state_path: str
    log: DurableLog
    role: Role | None = None
    high_watermark: int = 0
    end_offset: int = 0
    durable_offset: int = 0
    noted: LogEnd | None = None
    outdated_since_s: float | None = None
    last_event_s: float = 0.0


class QuorumChecker:
    """Checks the quorum of all nodes. `committed` is the log that the cluster has agreed on."""

    def __init__(
        self,
        voters: Sequence[int],
        note: Callable[[str, str], None],
        now_s: Callable[[], float],
        *,
        is_dynamic: bool = False,
    ) -> None:
        """`voters` are all controllers. If `is_dynamic`, the log says which of them vote (KIP-853)."""
        self.committed: dict[int, CommittedBatch] = {}
        self.committed_end = 0
        self._voter_sets: list[tuple[int, VoterSet]] = []
        """The committed sets of voters, each with the end offset of its record's batch."""
        self.leaders: dict[int, int] = {}
        self._voters = tuple(voters)
        self._is_dynamic = is_dynamic
        self._note = note
        self._now_s = now_s
        self._newest_leader = -1
        self._watched: dict[int, _WatchedNode] = {}
        self._epochs: dict[int, int] = {}
        self._durable: dict[ReplicaKey, int] = {}
        """The last durable offset of each disk, also of a disk that was replaced, if voters have directory ids."""

        self._removed_disks: dict[int, tuple[int, float]] = {}
        """The durable offset of a disk that was removed, and when: one of its fetches may still be on its way."""

    def watch(self, node_id: int, driver: RaftDriver, disk: SimDisk, directory: str) -> None:
        """A process has started, with its metadata log and quorum-state in this directory."""
        log = DurableLog(disk, directory)
        self._watched[node_id] = _WatchedNode(node_id, driver, disk, f"{directory}/quorum-state", log)

    def forget(self, node_id: int) -> None:
        """The process has ended; what its disk holds still counts."""
        watched = self._watched.pop(node_id, None)
        if watched is not None:
            self._durable[watched.driver.config.own_key] = watched.log.end_offset

    def in_sync(self) -> bool:
        """Whether every voter runs, knows the same epoch, and has everything that is committed on its disk."""
        voters = [self._watched[voter].driver for voter in self._voters if voter in self._watched]
        if len(voters) < len(self._voters) or any(driver.failure.done() for driver in voters):
            return False
        if self._is_dynamic and not self._all_votes_live():
            return False
        return len({driver.epoch for driver in voters}) == 1 and all(
            driver.quorum_state.log.durable_offset >= self.committed_end for driver in voters
        )

    def _all_votes_live(self) -> bool:
        """Whether every voter that the leader knows runs with its directory, and there are enough to lose one."""
        leader = self._watched.get(self.leader or 0)
        if leader is None:
            return False
        keys = [watched.driver.config.own_key for watched in self._watched.values()]
        voters = leader.driver.voters.keys
        return len(voters) >= _SPARING_VOTERS and all(key in keys for key in voters)

    def on_disk_replaced(self, node_id: int) -> None:
        """The node has an empty disk, or an old one."""
        self._epochs.pop(node_id, None)
        if not self._is_dynamic:
            for key in [key for key in self._durable if key.id == node_id]:
                self._removed_disks[node_id] = (self._durable.pop(key), self._now_s())

    @property
    def leader(self) -> int | None:
        """The running leader with the highest epoch, or None."""
        leading = [(w.driver.epoch, w.node_id) for w in self._watched.values() if w.driver.is_leader]
        return max(leading)[1] if leading else None

    def after_event(self, node_id: int) -> None:
        """Check the node whose event has just run. Raises `InvariantBroken`."""
        watched = self._watched.get(node_id)
        if watched is None or watched.driver.failure.done():
            return
        quorum = watched.driver.quorum_state
        if quorum.role is not watched.role:
            self._on_role(watched)
        if quorum.is_leader:
            self._check_outdated(watched, quorum.epoch)
        end_offset = quorum.log.end_offset
        if end_offset < watched.end_offset and end_offset < watched.high_watermark:
            detail = f"node {node_id} cut its log to {end_offset}, below its high watermark {watched.high_watermark}"
            raise InvariantBroken("nothing committed is truncated", detail)
        self._check_durable(watched)
        if self._is_dynamic and end_offset < watched.end_offset:
            check_voters(log_of(watched.driver), node_id)
        watched.end_offset = end_offset
        high_watermark = quorum.high_watermark.offset or 0
        if high_watermark != watched.high_watermark:
            self._on_high_watermark(watched, high_watermark)

    def _on_role(self, watched: _WatchedNode) -> None:
        node_id, role = watched.node_id, watched.driver.quorum_state.role
        watched.role = role
        if role.epoch < self._epochs.get(node_id, 0):
            detail = f"node {node_id} went from {self._epochs[node_id]} to {role.epoch}"
            raise InvariantBroken("epochs do not go back", detail)
        self._epochs[node_id] = role.epoch
        self._check_persisted(watched)
        if role.as_leader() is not None:
            leader = self.leaders.setdefault(role.epoch, node_id)
            if leader != node_id:
                raise InvariantBroken("one leader an epoch", f"both {leader} and {node_id} lead epoch {role.epoch}")
            self._newest_leader = max(self._newest_leader, role.epoch)
            self._check_complete(watched, role.epoch)
        self._note(f"n{node_id}", f"{role.kind.value} of epoch {role.epoch}, leader {role.leader_id}")

    def _check_outdated(self, watched: _WatchedNode, epoch: int) -> None:
        now_s, before_s = self._now_s(), watched.last_event_s
        watched.last_event_s = now_s
        if epoch == self._newest_leader:
            watched.outdated_since_s = None
        elif watched.outdated_since_s is None or now_s - before_s > _PAUSE_S:
            watched.outdated_since_s = now_s
        elif now_s - watched.outdated_since_s > _OUTDATED_LIMIT_S:
            detail = f"node {watched.node_id} still leads epoch {epoch}, {self._newest_leader} began long ago"
            raise InvariantBroken("a leader whose time is over resigns", detail)

    def _check_persisted(self, watched: _WatchedNode) -> None:
        role = watched.driver.quorum_state.role
        durable = watched.disk.durable_bytes(watched.state_path)
        if durable is None:
            if role.epoch == 0 and role.voted is None:
                return
            raise InvariantBroken("the vote is durable before its reply", "there is no quorum-state file")
        state = parse_quorum_state(bytes(durable))
        if (state.epoch, state.voted) != (role.epoch, role.voted):
            detail = f"node {watched.node_id}: on disk {state}, in memory epoch {role.epoch}, voted {role.voted}"
            raise InvariantBroken("the vote is durable before its reply", detail)

    def _check_durable(self, watched: _WatchedNode) -> None:
        """Compare what the node counts as durable, and notes of it, with its device, when it changes."""
        log, checkpoint = watched.driver.quorum_state.log, watched.driver.log_end
        durable, noted = log.durable_offset, None if checkpoint is None else checkpoint.noted
        if durable > log.end_offset:
            detail = f"node {watched.node_id}: its log ends at {log.end_offset}, durable are {durable}"
            raise InvariantBroken("what a voter counts as durable is on its disk", detail)
        if (durable == watched.durable_offset and noted is watched.noted) or watched.disk.has_lied:
            return
        watched.durable_offset, watched.noted = durable, noted
        counted = max(durable, 0 if noted is None else noted.committed_offset)
        if log.start.end_offset < counted and watched.log.end_offset < counted:
            detail = f"node {watched.node_id}: {counted}, its disk has {watched.log.end_offset}; noted is {noted}"
            raise InvariantBroken("what a voter counts as durable is on its disk", detail)

    def _check_complete(self, watched: _WatchedNode, epoch: int) -> None:
        """Leader completeness (Raft, 5.4.3). The leader of an older epoch, elected by late votes, is not checked."""
        if epoch < self._newest_leader:
            return
        end_offset = watched.driver.log_end_offset
        if end_offset < self.committed_end:
            detail = f"leader {watched.node_id} has {end_offset} of {self.committed_end}"
            raise InvariantBroken("a leader holds every committed record", detail)
        self._compare(watched, 0, self.committed_end, "a leader holds every committed record")

    def _on_high_watermark(self, watched: _WatchedNode, high_watermark: int) -> None:
        before, watched.high_watermark = watched.high_watermark, high_watermark
        if high_watermark < before:
            detail = f"node {watched.node_id}: from {before} to {high_watermark}"
            raise InvariantBroken("the high watermark does not go back", detail)
        self._compare(watched, before, high_watermark, "committed records never change")
        if watched.driver.quorum_state.is_leader:
            self._check_majority(watched, high_watermark)

    def _check_majority(self, watched: _WatchedNode, high_watermark: int) -> None:
        for other in self._watched.values():
            self._durable[other.driver.config.own_key] = other.log.end_offset
        voters = watched.driver.voters
        offsets = dict.fromkeys(voters.ids, 0)
        for key, offset in self._durable.items():
            if voters.is_voter(key):
                offsets[key.id] = offset
        for voter, (offset, taken_s) in self._removed_disks.items():
            if voter in offsets and self._now_s() - taken_s < _LATENCY_MAX_S:
                offsets[voter] = max(offsets[voter], offset)
        holding = [voter for voter, offset in offsets.items() if offset >= high_watermark]
        if len(holding) * 2 <= len(offsets):
            detail = f"leader {watched.node_id} committed up to {high_watermark}; durable are {offsets}"
            raise InvariantBroken("a committed record is on a majority's disks", detail)

    def _on_committed_voters(self, voters: VoterSet | None) -> None:
        if voters is not None and (not self._voter_sets or self._voter_sets[-1][1] != voters):
            self._voter_sets.append((self.committed_end, voters))

    def check_voter_change(self, key: ReplicaKey, since: int, *, is_added: bool) -> None:
        """A client was told that the voter was added or removed; `committed_end` was `since` when it had asked."""
        if not any(end > since and voters.is_voter(key) == is_added for end, voters in self._voter_sets):
            detail = f"{key} is {'not ' if is_added else ''}in all sets since {since}: {self._voter_sets}"
            raise InvariantBroken("an answered change of the voters is committed", detail)

    def _compare(self, watched: _WatchedNode, start: int, end: int, name: str) -> None:
        log = log_of(watched.driver)
        offset = max(start, log.start.end_offset)
        while offset < end:
            for batch in log.read_batches(offset, end, _READ_BYTES):
                known = self.committed.get(batch.base_offset)
                if known is None and batch.base_offset == self.committed_end:
                    self.committed[batch.base_offset] = batch
                    self.committed_end = batch.last_offset + 1
                    self._on_committed_voters(log.voters.voters_at(self.committed_end))
                elif known != batch:
                    detail = f"node {watched.node_id} has {batch}, committed was {known}"
                    raise InvariantBroken(name, detail)
                offset = batch.last_offset + 1


def log_of(driver: RaftDriver) -> PartitionRaftLog:
    """The metadata log of a running node."""
    log = driver.quorum_state.log
    if not isinstance(log, PartitionRaftLog):
        raise TypeError(f"a running node's quorum log is a partition log, not {type(log).__name__}")
    return log
