"""A leader: how long it leads without being fetched from, and when it is due to do something."""

from __future__ import annotations

import random
from uuid import UUID

import pytest
from support.raft.memory_log import MemoryLog

from raftwerk.raft.messages.messages import (
    BeginQuorumEpoch,
    EpochReply,
    Fetch,
    FetchSnapshot,
    RemoveVoter,
    Vote,
    VoteReply,
)
from raftwerk.raft.quorum.config import RaftConfig
from raftwerk.raft.quorum.effects import Effects, FailureKind
from raftwerk.raft.quorum.quorum import Quorum
from raftwerk.raft.types import ElectionState, ReplicaKey, RoleKind
from raftwerk.raft.voters.voter_set import KRaftVersion, LeaderChange, Voter, VoterEndpoint, VoterListener, VoterSet
from raftwerk.wire.errors import ErrorCode
from raftwerk.wire.types import SnapshotId

STATIC = {i: VoterEndpoint(f"n{i}", 9093) for i in (1, 2, 3)}
ELECTED_MS = 10_000
CHECK_QUORUM_MS = 3000
"""One and a half times the default of `fetch_timeout_ms`."""


def elected(config: RaftConfig, log: MemoryLog) -> Quorum:
    """The leader of epoch 6, elected at `ELECTED_MS`. It has announced itself to the others."""
    quorum = Quorum(config, log, ElectionState(epoch=5), random.Random(0))
    quorum.start(0)
    quorum.on_timer(ELECTED_MS)
    while not quorum.state.is_leader:
        for sent in quorum.take_effects().requests:
            if isinstance(sent.request, Vote):
                reply = VoteReply(error=ErrorCode.NONE, leader_id=None, epoch=quorum.state.epoch, granted=True)
                quorum.on_reply(sent, reply, ELECTED_MS)
    return quorum


def leader(log: MemoryLog | None = None) -> Quorum:
    """One of three voters, whose announcements have failed and are not due for a while."""
    quorum = elected(RaftConfig(node_id=1, cluster_id="c", voters=STATIC), log or MemoryLog())
    for sent in quorum.take_effects().requests:
        assert isinstance(sent.request, BeginQuorumEpoch)
    return quorum


def fetch(quorum: Quorum, replica: int | ReplicaKey, now_ms: int, *, wait_ms: int = 0, offset: int = 0) -> Effects:
    """What follows at once from a fetch of a replica that knows all that is committed."""
    fetched = Fetch(
        cluster_id="c",
        replica=replica if isinstance(replica, ReplicaKey) else ReplicaKey(replica),
        epoch=quorum.state.epoch,
        fetch_offset=offset,
        last_epoch=quorum.state.log.last_epoch,
        max_wait_ms=wait_ms,
        max_bytes=1000,
        high_watermark=quorum.state.high_watermark.offset or -1,
    )
    quorum.on_fetch(now_ms, fetched, now_ms)
    return quorum.take_effects()


def leads_until_ms(quorum: Quorum) -> int:
    """When it resigns, by its own timers, if nothing more happens."""
    due_ms = quorum.next_deadline_ms()
    while due_ms is not None:
        quorum.on_timer(due_ms - 1)
        assert quorum.state.is_leader, "an early timer does nothing"
        quorum.on_timer(due_ms)
        if not quorum.state.is_leader:
            assert quorum.state.role.kind is RoleKind.RESIGNED
            return due_ms
        for sent in quorum.take_effects().requests:
            quorum.on_failure(sent, FailureKind.TIMEOUT, due_ms)
        due_ms = quorum.next_deadline_ms()
    raise AssertionError("it leads for ever")


def test_a_fetch_before_the_logs_first_offset_is_refused_once_and_counts_for_nothing() -> None:
    quorum = leader()
    ((_, reply),) = fetch(quorum, 2, ELECTED_MS + 500, offset=-1).fetch_replies
    assert reply.error is ErrorCode.INVALID_REQUEST
    assert leads_until_ms(quorum) == ELECTED_MS + CHECK_QUORUM_MS


def test_a_leader_that_nobody_fetches_from_resigns() -> None:
    assert leads_until_ms(leader()) == ELECTED_MS + CHECK_QUORUM_MS


def test_a_leader_leads_as_long_as_a_majority_fetches() -> None:
    """It counts itself, so one of the two others is enough: the one that fetched last."""
    quorum = leader()
    fetch(quorum, 3, ELECTED_MS + 10)
    fetch(quorum, 2, ELECTED_MS + 500)
    fetch(quorum, 3, ELECTED_MS + 300)
    assert leads_until_ms(quorum) == ELECTED_MS + 500 + CHECK_QUORUM_MS


def test_fetches_of_observers_do_not_keep_a_leader() -> None:
    quorum = leader()
    fetch(quorum, 9, ELECTED_MS + 500)
    assert leads_until_ms(quorum) == ELECTED_MS + CHECK_QUORUM_MS


def test_an_observer_that_fetches_no_more_is_forgotten_after_its_session() -> None:
    quorum = leader()
    fetch(quorum, 9, ELECTED_MS)
    replicas = quorum.state.role.as_leader().replicas  # type: ignore[union-attr]
    for now_ms, is_known in ((ELECTED_MS + 300_000, True), (ELECTED_MS + 300_001, False)):
        fetch(quorum, 2, now_ms)
        quorum.on_timer(now_ms)
        assert (ReplicaKey(9) in replicas.observers) is is_known


def test_a_voter_that_cuts_its_log_or_fetches_a_snapshot_hears_its_leader() -> None:
    log = MemoryLog()
    log.append_records([b"a", b"b"], 4)
    log.flush()
    quorum = leader(log)
    ((_, reply),) = fetch(quorum, 2, ELECTED_MS + 500, offset=9).fetch_replies
    assert reply.diverging is not None
    assert leads_until_ms(quorum) == ELECTED_MS + 500 + CHECK_QUORUM_MS
    quorum = leader()
    part = FetchSnapshot(
        cluster_id="c", replica=ReplicaKey(3), epoch=6, snapshot_id=SnapshotId(1, 1), position=0, max_bytes=1
    )
    assert quorum.on_fetch_snapshot(part, ELECTED_MS + 700).error is ErrorCode.SNAPSHOT_NOT_FOUND
    assert leads_until_ms(quorum) == ELECTED_MS + 700 + CHECK_QUORUM_MS


def test_a_lone_voter_is_its_own_majority() -> None:
    log = MemoryLog()
    quorum = elected(RaftConfig(node_id=1, cluster_id="c", voters={1: STATIC[1]}), log)
    assert quorum.next_deadline_ms() is None
    fetch(quorum, 9, ELECTED_MS, offset=1, wait_ms=700)
    assert quorum.next_deadline_ms() == ELECTED_MS + 700, "a fetch that waits is all that is due"
    quorum.on_timer(ELECTED_MS + 699)
    assert quorum.take_effects().fetch_replies == []
    quorum.on_timer(ELECTED_MS + 700)
    ((_, reply),) = quorum.take_effects().fetch_replies
    assert (reply.error, reply.epoch, reply.leader_id, reply.leader_endpoint) == (ErrorCode.NONE, 6, 1, STATIC[1])


@pytest.mark.parametrize(
    ("epoch", "error"), [(7, ErrorCode.FENCED_LEADER_EPOCH), (6, ErrorCode.NOT_LEADER_OR_FOLLOWER)]
)
def test_fetches_that_wait_are_refused_when_the_leadership_ends(epoch: int, error: ErrorCode) -> None:
    quorum = leader()
    assert fetch(quorum, 2, ELECTED_MS, offset=1, wait_ms=700).fetch_replies == []
    if epoch == 7:
        begin = BeginQuorumEpoch(cluster_id="c", voter=ReplicaKey(1), leader_id=3, epoch=7)
        quorum.on_begin_quorum_epoch(begin, ELECTED_MS + 1)
    else:
        quorum.resign(ELECTED_MS + 1)
    ((token, reply),) = quorum.take_effects().fetch_replies
    assert (token, reply.error, reply.epoch) == (ELECTED_MS, error, epoch)


@pytest.mark.parametrize(("leader_id", "kind"), [(None, RoleKind.UNATTACHED), (3, RoleKind.FOLLOWER)])
def test_a_leader_that_hears_of_a_later_epoch_from_an_answer_leads_no_more(
    leader_id: int | None, kind: RoleKind
) -> None:
    quorum = elected(RaftConfig(node_id=1, cluster_id="c", voters=STATIC), MemoryLog())
    sent = quorum.take_effects().requests[0]
    reply = EpochReply(error=ErrorCode.FENCED_LEADER_EPOCH, leader_id=leader_id, epoch=7)
    quorum.on_reply(sent, reply, ELECTED_MS + 1)
    assert (quorum.state.role.kind, quorum.state.epoch) == (kind, 7)


def key(node_id: int) -> ReplicaKey:
    return ReplicaKey(node_id, UUID(int=node_id))


def recorded_leader(fetching: tuple[int, ...] = (2, 3)) -> tuple[Quorum, MemoryLog]:
    """The leader of three recorded voters; those that fetch have all that it has."""
    listeners = {i: (VoterListener("CONTROLLER", f"n{i}", 9093),) for i in (1, 2, 3)}
    voters = VoterSet.of(Voter(key(i), listeners[i]) for i in (1, 2, 3))
    log = MemoryLog(formatted=[KRaftVersion(1), voters])
    config = RaftConfig(
        node_id=1,
        cluster_id="c",
        bootstrap=(STATIC[2],),
        directory_id=key(1).directory_id,
        listeners=listeners[1],
    )
    quorum = elected(config, log)
    for sent in quorum.take_effects().requests:
        quorum.on_failure(sent, FailureKind.LOST, ELECTED_MS)
    log.flush()
    quorum.on_flushed(ELECTED_MS)
    for voter in fetching:
        fetch(quorum, key(voter), ELECTED_MS, offset=log.end_offset)
    assert quorum.state.high_watermark.offset == log.end_offset
    return quorum, log


def removed_leader() -> tuple[Quorum, MemoryLog]:
    """It has appended its own removal, which the others do not have yet."""
    quorum, log = recorded_leader()
    quorum.on_voter_change(7, RemoveVoter(cluster_id="c", voter=key(1)), ELECTED_MS + 10)
    assert quorum.state.voters.ids == [2, 3]
    return quorum, log


def test_a_leader_that_listens_elsewhere_corrects_its_record_and_counts_by_it() -> None:
    former = Voter(key(1), (VoterListener("CONTROLLER", "former", 9093),))
    log = MemoryLog(formatted=[KRaftVersion(1), VoterSet.of([former])])
    config = RaftConfig(
        node_id=1,
        cluster_id="c",
        bootstrap=(STATIC[2],),
        directory_id=key(1).directory_id,
        listeners=(VoterListener("CONTROLLER", "n1", 9093),),
    )
    quorum = elected(config, log)
    corrected = VoterSet.of([Voter(key(1), config.listeners)])
    leader = quorum.state.role.as_leader()
    assert leader is not None
    assert quorum.state.voters == leader.replicas.voters == corrected
    controls = [entry.control for entry in log.entries]
    assert controls[1:] == [KRaftVersion(1), VoterSet.of([former]), corrected]
    first = controls[0]
    assert isinstance(first, LeaderChange)
    assert (first.leader_id, first.voters, first.granting) == (1, (key(1),), (key(1),))


def test_a_removal_that_is_the_next_record_to_be_committed_is_not_committed_yet() -> None:
    quorum, log = recorded_leader()
    quorum.append([b"x"], 6)
    quorum.on_voter_change(7, RemoveVoter(cluster_id="c", voter=key(1)), ELECTED_MS + 10)
    for voter in (2, 3):
        fetch(quorum, key(voter), ELECTED_MS + 20, offset=log.end_offset - 1)
    assert quorum.state.high_watermark.offset == log.end_offset - 1
    assert leads_until_ms(quorum) == ELECTED_MS + 20 + CHECK_QUORUM_MS


def test_what_only_a_removed_voter_lacked_is_committed_with_its_removal() -> None:
    """The set without it counts as soon as it is appended."""
    quorum, log = recorded_leader()
    quorum.append([b"x"], 6)
    log.flush()
    quorum.on_flushed(ELECTED_MS)
    before = log.end_offset
    quorum.on_voter_change(7, RemoveVoter(cluster_id="c", voter=key(3)), ELECTED_MS + 10)
    assert quorum.state.high_watermark.offset == before - 1
    fetch(quorum, key(2), ELECTED_MS + 20, offset=log.end_offset)
    log.flush()
    quorum.on_flushed(ELECTED_MS + 20)
    quorum.append([b"y"], 6)
    log.flush()
    quorum.on_flushed(ELECTED_MS + 30)
    assert quorum.state.high_watermark.offset == log.end_offset - 1, "of the two voters one has it"
    quorum.on_voter_change(8, RemoveVoter(cluster_id="c", voter=key(2)), ELECTED_MS + 40)
    assert quorum.state.high_watermark.offset == log.durable_offset == log.end_offset - 1


@pytest.mark.parametrize(("removed", "told"), [(2, [3]), (3, [])])
def test_who_is_no_voter_any_more_is_not_told_of_the_epoch_again(removed: int, told: list[int]) -> None:
    """Voter 3 has not fetched yet."""
    quorum, _ = recorded_leader(fetching=(2,))
    quorum.on_voter_change(7, RemoveVoter(cluster_id="c", voter=key(removed)), ELECTED_MS + 10)
    quorum.take_effects()
    quorum.on_timer(ELECTED_MS + 1000)
    announced = [sent.to for sent in quorum.take_effects().requests if isinstance(sent.request, BeginQuorumEpoch)]
    assert announced == told


def test_a_voter_without_an_endpoint_is_not_told_of_the_epoch() -> None:
    quorum, _ = recorded_leader()
    leader = quorum.state.role.as_leader()
    assert leader is not None
    quorum.take_effects()
    leader.on_voters_appended(quorum.state.voters.with_voter(Voter(key(4), ())), ELECTED_MS)
    assert quorum.take_effects().requests == []
    leader.on_voters_appended(
        quorum.state.voters.with_voter(Voter(key(5), (VoterListener("CONTROLLER", "n5", 9093),))), ELECTED_MS
    )
    assert [sent.to for sent in quorum.take_effects().requests] == [5]


def test_a_leader_leads_on_for_a_moment_after_its_own_removal_is_committed() -> None:
    quorum, log = removed_leader()
    fetch(quorum, key(2), ELECTED_MS + 20, offset=log.end_offset)
    log.flush()
    quorum.on_flushed(ELECTED_MS + 20)
    assert quorum.take_effects().change_replies == [], "it does not count itself any more"
    ((token, reply),) = fetch(quorum, key(3), ELECTED_MS + 40, offset=log.end_offset).change_replies
    assert (token, reply.error) == (7, ErrorCode.NONE)
    fetch(quorum, key(3), ELECTED_MS + 90, offset=log.end_offset)
    assert leads_until_ms(quorum) == ELECTED_MS + 140, "a tenth of a second, by the first commit"


def test_a_removed_leader_that_cannot_commit_its_removal_resigns_without_counting_itself() -> None:
    quorum, log = removed_leader()
    fetch(quorum, key(2), ELECTED_MS + 900, offset=log.end_offset)
    assert leads_until_ms(quorum) == ELECTED_MS + CHECK_QUORUM_MS
