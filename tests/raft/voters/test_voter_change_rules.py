"""Who may become a voter, stay one, or be removed."""

from __future__ import annotations

import random
from typing import Any
from uuid import UUID

import pytest
from support.raft.memory_log import MemoryLog

from raftwerk.raft.messages.messages import AddVoter, ProbeVoter, RemoveVoter, UpdateVoter, VoterChange
from raftwerk.raft.quorum.config import RaftConfig
from raftwerk.raft.quorum.quorum import Quorum
from raftwerk.raft.replication.replica_progress import ProgressTracker
from raftwerk.raft.types import NO_DIRECTORY, ElectionState, ReplicaKey
from raftwerk.raft.voters.voter_changes import (
    LeaderStanding,
    check_add,
    check_probed,
    check_ready,
    check_update,
    own_change,
    remaining_voters,
    upgraded_voters,
)
from raftwerk.raft.voters.voter_set import (
    KRaftVersion,
    LeaderChange,
    VersionRange,
    Voter,
    VoterEndpoint,
    VoterHistory,
    VoterListener,
    VoterSet,
)
from raftwerk.wire.errors import ErrorCode, ProtocolError

BOTH = (VoterListener("CONTROLLER", "h", 9093), VoterListener("OTHER", "h", 9094))


def key(node_id: int, directory: int | None = None) -> ReplicaKey:
    return ReplicaKey(node_id, UUID(int=directory or node_id))


def voter(key: ReplicaKey, listeners: tuple[VoterListener, ...] = BOTH) -> Voter:
    return Voter(key, listeners, VersionRange(0, 1))


THREE = VoterSet.of(voter(key(node_id)) for node_id in (1, 2, 3))


def add(new: Voter) -> AddVoter:
    return AddVoter(cluster_id=None, voter=new, timeout_ms=1)


def test_one_listener_of_a_voter_must_be_the_quorums() -> None:
    check_add(add(voter(key(4))), THREE, "CONTROLLER")
    with pytest.raises(ProtocolError, match="names no endpoint for the listener CONTROLLER"):
        check_add(add(voter(key(4), BOTH[1:])), THREE, "CONTROLLER")
    with pytest.raises(ProtocolError) as refused:
        check_add(add(voter(key(3, 30))), THREE, "CONTROLLER")
    assert refused.value.code is ErrorCode.DUPLICATE_VOTER


def test_a_voter_is_updated_by_itself_and_knows_the_finalized_version() -> None:
    def update(of: Voter, level: int) -> None:
        check_update(UpdateVoter(cluster_id=None, epoch=1, voter=of), THREE, level, "CONTROLLER")

    for level in (0, 1):
        update(voter(key(3)), level)
    with pytest.raises(ProtocolError, match=r"kraft\.version 2 is finalized"):
        update(voter(key(3)), 2)
    newer = Voter(key(3), BOTH, VersionRange(1, 2))
    with pytest.raises(ProtocolError, match=r"kraft\.version 0 is finalized"):
        update(newer, 0)
    for stranger in (key(4), key(3, 30)):
        with pytest.raises(ProtocolError) as refused:
            update(voter(stranger), 1)
        assert refused.value.code is ErrorCode.VOTER_NOT_FOUND


def test_a_new_voter_that_does_not_answer_is_given_up_in_time() -> None:
    """Its request times out, and the next change may begin."""
    log = MemoryLog(formatted=[KRaftVersion(1), VoterSet.of([voter(key(1))])])
    seeds = (VoterEndpoint("h", 9093),)
    directory = key(1).directory_id
    config = RaftConfig(node_id=1, cluster_id="c", bootstrap=seeds, directory_id=directory, listeners=BOTH)
    quorum = Quorum(config, log, ElectionState(), random.Random(0))
    quorum.start(0)
    log.flush()
    quorum.on_flushed(0)
    quorum.take_effects()
    quorum.on_voter_change(7, AddVoter(cluster_id="c", voter=voter(key(4)), timeout_ms=700), 1000)
    (sent,) = quorum.take_effects().requests
    assert isinstance(sent.request, ProbeVoter)
    assert quorum.next_deadline_ms() == 1700
    quorum.on_timer(1699)
    assert quorum.take_effects().change_replies == []
    quorum.on_timer(1700)
    ((token, reply),) = quorum.take_effects().change_replies
    assert (token, reply.error) == (7, ErrorCode.REQUEST_TIMED_OUT)
    quorum.on_voter_change(8, AddVoter(cluster_id="c", voter=voter(key(5)), timeout_ms=700), 1700)
    assert len(quorum.take_effects().requests) == 1


def test_the_last_voter_stays() -> None:
    two = remaining_voters(RemoveVoter(cluster_id=None, voter=key(3)), THREE)
    one = remaining_voters(RemoveVoter(cluster_id=None, voter=key(2)), two)
    assert (two.ids, one.ids) == ([1, 2], [1])
    with pytest.raises(ProtocolError, match="the last voter"):
        remaining_voters(RemoveVoter(cluster_id=None, voter=key(1)), one)
    with pytest.raises(ProtocolError) as refused:
        remaining_voters(RemoveVoter(cluster_id=None, voter=key(3, 30)), THREE)
    assert refused.value.code is ErrorCode.VOTER_NOT_FOUND


def test_a_change_waits_for_a_commit_of_the_epoch_and_for_the_change_before() -> None:
    history = VoterHistory()
    history.add(20, THREE)

    def ready(high_watermark: int | None, pending: bool = False) -> bool:
        try:
            check_ready(LeaderStanding(10, high_watermark, history, pending))
        except ProtocolError as refused:
            assert refused.code is ErrorCode.REQUEST_TIMED_OUT
            return False
        return True

    assert [ready(at) for at in (None, 10, 11, 20, 21)] == [False, False, False, False, True]
    assert not ready(21, pending=True)
    history.truncate_to(20)
    assert [ready(at) for at in (10, 11)] == [False, True]


def test_a_removed_voter_may_stand_until_the_removal_is_committed_whatever_endpoint_was_corrected_after_it() -> None:
    """Only node 3 has its removal, and the correction with which the leader began its next epoch: it is needed."""
    log = MemoryLog()
    log.append_controls([LeaderChange(2, (), ()), KRaftVersion(1), THREE], 1)
    log.append_controls([THREE.without_voter(3)], 1)
    moved = voter(key(2), (VoterListener("CONTROLLER", "elsewhere", 9093),))
    log.append_controls([LeaderChange(2, (), ()), THREE.without_voter(3).with_voter(moved)], 2)
    config = RaftConfig(
        node_id=3, cluster_id="c", bootstrap=(VoterEndpoint("h", 9093),), directory_id=key(3).directory_id
    )
    state = Quorum(config, log, ElectionState(epoch=2), random.Random(0)).state
    for committed, may_stand in [(3, True), (4, False), (5, False), (6, False)]:
        state.high_watermark.offset = committed
        assert state.may_stand is may_stand, committed


def test_a_voter_of_the_configuration_that_the_very_first_record_removed_may_stand_while_nothing_is_committed() -> None:
    log = MemoryLog()
    log.append_controls([THREE.without_voter(3)], 1)
    static = {node_id: VoterEndpoint("h", 9093) for node_id in (1, 2, 3)}
    config = RaftConfig(node_id=3, cluster_id="c", voters=static, directory_id=key(3).directory_id)
    state = Quorum(config, log, ElectionState(epoch=1), random.Random(0)).state
    assert state.may_stand
    state.high_watermark.offset = 1
    assert not state.may_stand
    stranger = RaftConfig(node_id=4, cluster_id="c", voters=static, directory_id=key(4).directory_id)
    assert not Quorum(stranger, log, ElectionState(epoch=1), random.Random(0)).state.may_stand


def probed(replicas: ProgressTracker, replica: ReplicaKey, now_ms: int, versions: VersionRange) -> str:
    try:
        check_probed(replicas, replica, versions, now_ms, lag_max_ms=2000)
    except ProtocolError as refused:
        return refused.message or ""
    return "may vote"


def test_a_new_voter_has_caught_up_lately_with_its_present_disk() -> None:
    replicas = ProgressTracker(key(1), THREE)
    versions = VersionRange(0, 1)
    assert "does not fetch with this directory id" in probed(replicas, key(4), 5000, versions)
    replicas.progress_of(key(4)).on_fetch(5, 10, now_ms=4000)
    assert "has not caught up" in probed(replicas, key(4), 5000, versions)
    replicas.progress_of(key(4)).on_fetch(10, 10, now_ms=5000)
    assert probed(replicas, key(4), 5000, versions) == "may vote"
    assert probed(replicas, key(4), 7000, versions) == "may vote"
    assert "has not caught up" in probed(replicas, key(4), 7001, versions)
    replicas.progress_of(key(4, 40)).on_fetch(0, 10, now_ms=5001)
    assert "does not fetch with this directory id" in probed(replicas, key(4), 5002, versions)


@pytest.mark.parametrize(
    ("versions", "may_vote"),
    [(VersionRange(0, 0), False), (VersionRange(0, 1), True), (VersionRange(1, 1), True), (VersionRange(2, 3), False)],
)
def test_a_new_voter_knows_dynamic_voters(versions: VersionRange, may_vote: bool) -> None:
    replicas = ProgressTracker(key(1), THREE)
    replicas.progress_of(key(4)).on_fetch(10, 10, now_ms=5000)
    assert (probed(replicas, key(4), 5000, versions) == "may vote") is may_vote


def test_static_voters_are_recorded_with_the_directories_that_they_told() -> None:
    static = VoterSet.of(voter(ReplicaKey(node_id, NO_DIRECTORY)) for node_id in (1, 2))
    replicas = ProgressTracker(key(1), static)
    with pytest.raises(ProtocolError, match="Voter 2 has not told its directory id"):
        upgraded_voters(replicas, voter(key(1)))
    replicas.progress_of(key(2)).on_fetch(0, 0, now_ms=1)
    assert [voter.key for voter in upgraded_voters(replicas, voter(key(1))).voters] == [key(1), key(2)]


def wanted(voters: VoterSet, level: int = 1, **changes: Any) -> VoterChange | None:
    """What node 4 asks for in epoch 6, which may join by itself."""
    fields: dict[str, Any] = {"listeners": BOTH, "directory_id": key(4).directory_id, "auto_join": True} | changes
    config = RaftConfig(node_id=4, cluster_id="c", bootstrap=(VoterEndpoint("h", 9093),), **fields)
    return own_change(config, 6, voters, level)


def test_a_controller_asks_to_become_a_voter_where_it_may_and_can() -> None:
    assert wanted(THREE) == AddVoter(cluster_id="c", voter=voter(key(4)), timeout_ms=2000, ack_when_committed=False)
    assert wanted(THREE, level=0) is None, "static voters"
    assert wanted(THREE, can_vote=False) is None, "a broker"
    assert wanted(THREE, listeners=()) is None, "nobody could reach it"
    assert wanted(THREE, auto_join=False) is None


def test_a_controller_asks_that_its_former_disk_is_removed_first() -> None:
    former = THREE.with_voter(voter(key(4, 40)))
    assert wanted(former) == RemoveVoter(cluster_id="c", voter=key(4, 40))
    assert wanted(former, auto_join=False) is None


def test_a_voter_asks_for_a_record_of_its_listeners_and_versions() -> None:
    recorded = voter(key(4), BOTH[::-1])
    assert wanted(THREE.with_voter(recorded)) is None, "their order is not a difference"
    update = UpdateVoter(cluster_id="c", epoch=6, voter=voter(key(4)))
    assert wanted(THREE.with_voter(recorded._replace(listeners=BOTH[:1])), auto_join=False) == update
    assert wanted(THREE.with_voter(recorded._replace(versions=VersionRange(0, 0)))) == update
    assert wanted(THREE.with_voter(recorded._replace(listeners=())), level=0) is None
