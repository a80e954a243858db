"""What a node makes of an epoch and a leader that a message names, and whom it asks for the leader."""

from __future__ import annotations

import random
from uuid import UUID

import pytest
from support.raft.memory_log import MemoryLog

from raftwerk.raft.quorum.config import RaftConfig
from raftwerk.raft.quorum.quorum_state import QuorumState
from raftwerk.raft.roles.follower import Follower
from raftwerk.raft.roles.unattached import Unattached
from raftwerk.raft.types import ElectionState, LeaderAndEpoch, ReplicaKey, RoleKind
from raftwerk.raft.voters.voter_set import KRaftVersion, Voter, VoterEndpoint, VoterListener, VoterSet
from raftwerk.runtime.invariants import InvariantViolation
from raftwerk.wire.types import SnapshotId

STATIC = {i: VoterEndpoint(f"n{i}", 9093) for i in (1, 2, 3)}
MOVED = VoterEndpoint("moved", 9093)


def key(node_id: int) -> ReplicaKey:
    return ReplicaKey(node_id, UUID(int=node_id))


def recorded(*ids: int) -> VoterSet:
    return VoterSet.of(Voter(key(i), (VoterListener("CONTROLLER", f"r{i}", 9093),)) for i in ids)


def static(node_id: int = 1, state: ElectionState | None = None) -> QuorumState:
    config = RaftConfig(node_id=node_id, cluster_id="c", voters=STATIC)
    return QuorumState(config, MemoryLog(), state or ElectionState(epoch=5), random.Random(0))


def dynamic(node_id: int = 1, bootstrap: tuple[VoterEndpoint, ...] = (VoterEndpoint("b", 9093),)) -> QuorumState:
    """Nodes 1 to 3 are voters by a record."""
    log = MemoryLog(formatted=[KRaftVersion(1), recorded(1, 2, 3)])
    config = RaftConfig(
        node_id=node_id,
        cluster_id="c",
        bootstrap=bootstrap,
        directory_id=key(node_id).directory_id,
        listeners=(VoterListener("CONTROLLER", f"r{node_id}", 9093),),
    )
    return QuorumState(config, log, ElectionState(epoch=5), random.Random(0))


def told(state: QuorumState, epoch: int, leader_id: int | None, endpoint: VoterEndpoint | None = None) -> object:
    """Where the leader is that the node follows now; None if it follows none."""
    state.maybe_transition(epoch, leader_id, endpoint, 1000)
    role = state.role
    return role.leader_endpoint if isinstance(role, Follower) else None


def test_static_voters_are_where_the_configuration_says() -> None:
    assert told(static(), 6, 2) == STATIC[2]
    assert told(static(), 6, 2, MOVED) == STATIC[2]
    assert told(static(), 6, 4, MOVED) == MOVED, "a leader that this node does not know yet"
    assert told(static(), 6, 4) is None


def test_what_a_message_tells_of_a_recorded_voter_is_newer_than_its_record() -> None:
    assert told(dynamic(), 6, 2) == VoterEndpoint("r2", 9093)
    assert told(dynamic(), 6, 2, MOVED) == MOVED
    assert told(dynamic(), 6, 4, MOVED) == MOVED
    assert told(dynamic(), 6, 4) is None


def test_a_record_takes_the_place_of_the_configuration() -> None:
    log = MemoryLog()
    config = RaftConfig(node_id=1, cluster_id="c", voters=STATIC, directory_id=key(1).directory_id)
    state = QuorumState(config, log, ElectionState(epoch=5), random.Random(0))
    log.append_controls([KRaftVersion(1), recorded(1, 2, 3)], 5)
    assert told(state, 6, 2) == VoterEndpoint("r2", 9093)


def test_a_later_epoch_counts_with_or_without_its_leader() -> None:
    for leader_id, endpoint in ((None, None), (4, None), (1, MOVED)):
        state = static()
        assert told(state, 6, leader_id, endpoint) is None
        assert (state.role.kind, state.epoch) == (RoleKind.UNATTACHED, 6)
        assert state.leader_and_epoch == LeaderAndEpoch(None, 6)
        assert state.take_effects().election_state == ElectionState(6, None, None)
    state = static()
    told(state, 6, 2)
    assert state.leader_and_epoch == LeaderAndEpoch(2, 6)
    assert state.leader_endpoint == STATIC[2]


def test_a_former_epoch_and_an_unknown_leader_of_the_own_one_change_nothing() -> None:
    state = static()
    role = state.role
    for epoch, leader_id in ((4, 2), (5, None), (5, 4), (5, 1)):
        assert told(state, epoch, leader_id) is None
        assert state.role is role
    assert told(state, 5, 2) == STATIC[2]


def test_an_epoch_has_one_leader() -> None:
    state = static()
    told(state, 6, 2)
    with pytest.raises(InvariantViolation, match="one leader an epoch"):
        told(state, 6, 3)


def test_what_binds_in_an_epoch_is_kept_in_it_and_forgotten_after_it() -> None:
    bound = ElectionState(5, 3, key(2))
    state = static(state=bound)
    kept = state.transition_to_unattached(5, 1000)
    assert (kept.leader_id, kept.voted) == (3, key(2))
    later = state.transition_to_unattached(6, 1000)
    assert (later.leader_id, later.voted) == (None, None)
    state = static(state=bound)
    told(state, 5, 3)
    assert (state.role.leader_id, state.role.voted) == (3, key(2))
    told(state, 6, 3)
    assert state.role.voted is None


@pytest.mark.parametrize(("epoch", "expected"), [(4, (5, 3, key(2))), (5, (5, 3, key(2))), (6, (6, None, None))])
def test_a_log_of_a_later_epoch_than_the_vote_is_of_a_vote_that_binds_no_more(
    epoch: int, expected: tuple[int, int | None, ReplicaKey | None]
) -> None:
    log = MemoryLog()
    log.append_records([b"a"], epoch)
    config = RaftConfig(node_id=1, cluster_id="c", voters=STATIC)
    role = QuorumState(config, log, ElectionState(5, 3, key(2)), random.Random(0)).role
    assert (role.epoch, role.leader_id, role.voted) == expected


def test_a_voter_stands_at_a_time_and_an_observer_looks_for_the_leader() -> None:
    timing = RaftConfig(node_id=1, cluster_id="c", voters=STATIC).timing
    voter = static().transition_to_unattached(6, 1000)
    assert voter.next_fetch_ms is None
    assert voter.deadline_ms is not None and 1020 <= voter.deadline_ms <= 1035, "the first one waits a moment only"
    bound = static().transition_to_unattached(6, 1000, voted=key(2))
    assert bound.deadline_ms is not None
    assert 1000 + timing.election_timeout_ms <= bound.deadline_ms <= 1000 + 2 * timing.election_timeout_ms
    assert static().transition_to_unattached(6, 1000, deadline_ms=1234).deadline_ms == 1234
    observer: Unattached = static(node_id=9).transition_to_unattached(6, 1000, deadline_ms=1234)
    assert (observer.deadline_ms, observer.next_fetch_ms) == (None, 1000 + timing.retry_backoff_ms)


def contacts(state: QuorumState) -> list[tuple[int, VoterEndpoint]]:
    """Whom the node asks in turn, from the lowest id on, until it asks the first one again."""
    first = state.next_contact()
    found = []
    contact = first
    while contact is not None:
        found.append(contact)
        contact = state.next_contact()
        if contact == first:
            break
    return sorted(found)


def test_the_other_voters_are_asked_and_the_bootstrap_servers_that_are_none_of_them() -> None:
    servers = tuple(VoterEndpoint(host, 9093) for host in ("r2", "b1", "r1", "b2"))
    state = dynamic(bootstrap=servers)
    expected = {
        (2, VoterEndpoint("r2", 9093)),
        (3, VoterEndpoint("r3", 9093)),
        (-3, VoterEndpoint("b1", 9093)),
        (-5, VoterEndpoint("b2", 9093)),
    }
    assert contacts(state) == sorted(expected)


def test_a_node_that_knows_only_itself_has_nobody_to_ask() -> None:
    log = MemoryLog(formatted=[KRaftVersion(1), recorded(1)])
    config = RaftConfig(
        node_id=1,
        cluster_id="c",
        bootstrap=(VoterEndpoint("r1", 9093),),
        directory_id=key(1).directory_id,
        listeners=(VoterListener("CONTROLLER", "r1", 9093),),
    )
    assert QuorumState(config, log, ElectionState(), random.Random(0)).next_contact() is None


def test_a_voter_without_an_endpoint_is_not_asked() -> None:
    voters = VoterSet.of([*recorded(1, 2).voters, Voter(key(3), ())])
    log = MemoryLog(formatted=[KRaftVersion(1), voters])
    config = RaftConfig(
        node_id=1, cluster_id="c", bootstrap=(VoterEndpoint("r2", 9093),), directory_id=key(1).directory_id
    )
    state = QuorumState(config, log, ElectionState(), random.Random(0))
    assert contacts(state) == [(2, VoterEndpoint("r2", 9093))]


def test_what_is_known_to_be_committed_at_first_is_the_latest_snapshot() -> None:
    assert static().high_watermark.offset is None
    log = MemoryLog()
    log.append_records([b"a", b"b"], 5)
    log.take_snapshot(SnapshotId(2, 5), kept=1)
    config = RaftConfig(node_id=1, cluster_id="c", voters=STATIC)
    assert QuorumState(config, log, ElectionState(), random.Random(0)).high_watermark.offset == 2
