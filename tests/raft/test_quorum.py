"""Refusals: requests that a node must answer with the right error code, and promises that it must keep."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from support.raft.memory_log import MemoryLog

from raftwerk.raft.messages.messages import (
    BeginQuorumEpoch,
    EndQuorumEpoch,
    EpochReply,
    Fetch,
    FetchReply,
    FetchSnapshot,
    Outgoing,
    SnapshotReply,
    Vote,
    VoteReply,
)
from raftwerk.raft.quorum.config import RaftConfig, RaftTiming
from raftwerk.raft.quorum.effects import FailureKind
from raftwerk.raft.quorum.quorum import Quorum
from raftwerk.raft.roles.role_transitions import TRANSITIONS
from raftwerk.raft.types import ElectionState, LeaderAndEpoch, NotLeaderError, ReplicaKey, RoleKind
from raftwerk.raft.voters.voter_set import VoterEndpoint
from raftwerk.runtime.invariants import InvariantViolation
from raftwerk.wire.errors import ErrorCode
from raftwerk.wire.types import EpochEndOffset, SnapshotId

VOTERS = {i: VoterEndpoint(f"n{i}", 9093) for i in (1, 2, 3)}


def make(state: ElectionState | None = None, node_id: int = 1, log: MemoryLog | None = None) -> Quorum:
    config = RaftConfig(node_id=node_id, cluster_id="c", voters=VOTERS)
    quorum = Quorum(config, log or MemoryLog(), state or ElectionState(epoch=5), random.Random(0))
    quorum.start(0)
    quorum.take_effects()
    return quorum


def lead(quorum: Quorum) -> int:
    """Elect `quorum`; returns its epoch."""
    deadline_ms = quorum.next_deadline_ms()
    assert deadline_ms is not None
    quorum.on_timer(deadline_ms)
    for _ in range(2):
        for sent in quorum.take_effects().requests:
            assert isinstance(sent.request, Vote)
            reply = make(ElectionState(epoch=quorum.state.epoch), node_id=2).on_vote(
                replace(sent.request, voter=ReplicaKey(2)), 0
            )
            quorum.on_reply(sent, reply, deadline_ms)
    assert quorum.state.role.kind is RoleKind.LEADER
    quorum.take_effects()
    return quorum.state.epoch


def vote(epoch: int, candidate: int = 2, **changes: object) -> Vote:
    fields = {"cluster_id": "c", "voter": ReplicaKey(1), "last_epoch": 0, "last_offset": 0, "pre_vote": False} | changes
    return Vote(candidate=ReplicaKey(candidate), epoch=epoch, **fields)  # type: ignore[arg-type]


def fetch(epoch: int, **changes: object) -> Fetch:
    fields = {"cluster_id": "c", "fetch_offset": 0, "last_epoch": 0, "max_wait_ms": 500, "max_bytes": 100} | changes
    replica = fields.pop("replica", ReplicaKey(2))
    return Fetch(replica=replica, epoch=epoch, **fields)  # type: ignore[arg-type]


def answer(quorum: Quorum, request: Fetch, now_ms: int = 1000) -> FetchReply | None:
    quorum.on_fetch(7, request, now_ms)
    replies = [reply for token, reply in quorum.take_effects().fetch_replies if token == 7]
    return replies[0] if replies else None


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (vote(6, cluster_id="other"), ErrorCode.INCONSISTENT_CLUSTER_ID),
        (vote(6, voter=ReplicaKey(3)), ErrorCode.INVALID_VOTER_KEY),
        (vote(4), ErrorCode.FENCED_LEADER_EPOCH),
    ],
)
def test_votes_refused_with_an_error_change_nothing(request_: Vote, error: ErrorCode) -> None:
    quorum = make()
    reply = quorum.on_vote(request_, 10)
    assert (reply.error, reply.granted, reply.epoch) == (error, False, 5)
    assert quorum.take_effects().election_state is None


def test_a_null_cluster_id_is_taken() -> None:
    assert make().on_vote(vote(6, cluster_id=None), 10).granted


def test_a_vote_is_among_the_effects_before_its_reply_leaves() -> None:
    quorum = make()
    assert quorum.on_vote(vote(6), 10).granted
    assert quorum.take_effects().election_state == ElectionState(6, None, ReplicaKey(2))


def test_one_vote_an_epoch_also_after_a_restart() -> None:
    quorum = make()
    assert quorum.on_vote(vote(6, 2), 10).granted
    state = quorum.take_effects().election_state
    for now_ms in (20, 30):
        assert not quorum.on_vote(vote(6, 3), now_ms).granted
        assert quorum.on_vote(vote(6, 2), now_ms).granted, "the same vote may be asked for again"
        quorum = make(state)


def test_a_node_that_knows_the_epoch_and_no_voters_follows_whom_it_fetches_from() -> None:
    """It heard of the epoch from a node that knew no leader, so that the leader does not refuse its fetch."""
    leader = make()
    epoch = lead(leader)
    config = RaftConfig(node_id=4, cluster_id="c", bootstrap=(VOTERS[1],))
    quorum = Quorum(config, MemoryLog(), ElectionState(epoch=epoch), random.Random(0))
    quorum.start(0)
    (sent,) = quorum.take_effects().requests
    assert isinstance(sent.request, Fetch) and sent.endpoint == VOTERS[1]
    reply = answer(leader, sent.request)
    assert reply is not None and reply.error is ErrorCode.NONE
    quorum.on_reply(sent, reply, 10)
    assert quorum.state.role.kind is RoleKind.FOLLOWER and quorum.state.leader_endpoint == VOTERS[1]


def test_a_known_leader_binds_like_a_vote() -> None:
    quorum = make(ElectionState(epoch=6, leader_id=3))
    assert not quorum.on_vote(vote(6), 10).granted
    assert quorum.on_vote(vote(7), 10).granted


def test_a_pre_vote_promises_nothing() -> None:
    quorum = make()
    assert quorum.on_vote(vote(5, pre_vote=True), 10).granted
    assert quorum.on_vote(vote(5, 3, pre_vote=True), 10).granted
    assert quorum.take_effects().election_state is None


def test_a_shorter_or_older_log_gets_no_vote() -> None:
    log = MemoryLog()
    log.append_records([b"a", b"b"], 4)
    quorum = make(log=log)
    assert not quorum.on_vote(vote(6, last_epoch=4, last_offset=1), 10).granted
    assert not quorum.on_vote(vote(7, last_epoch=3, last_offset=9), 10).granted
    assert quorum.on_vote(vote(8, last_epoch=4, last_offset=2), 10).granted


def test_a_log_ahead_of_the_quorum_state_sets_the_epoch() -> None:
    log = MemoryLog()
    log.append_records([b"a"], 9)
    assert make(ElectionState(epoch=5, voted=ReplicaKey(1)), log=log).state.epoch == 9


def test_a_restarted_leader_does_not_lead_its_epoch_again() -> None:
    quorum = make(ElectionState(epoch=6, leader_id=1, voted=ReplicaKey(1)))
    assert quorum.state.leader_and_epoch.leader_id is None
    assert lead(quorum) == 7


def test_fetches_are_refused_with_the_leader_named() -> None:
    quorum = make()
    quorum.on_begin_quorum_epoch(BeginQuorumEpoch(cluster_id="c", voter=ReplicaKey(1), leader_id=3, epoch=6), 10)
    for epoch, error in [
        (5, ErrorCode.FENCED_LEADER_EPOCH),
        (6, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (7, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ]:
        reply = answer(quorum, fetch(epoch))
        assert reply is not None
        assert (reply.error, reply.leader_id, reply.epoch) == (error, 3, 6)


def test_fetches_at_the_leader() -> None:
    quorum = make()
    epoch = lead(quorum)
    wrong = answer(quorum, fetch(epoch, cluster_id="other"))
    assert wrong is not None and wrong.error is ErrorCode.INCONSISTENT_CLUSTER_ID
    negative = answer(quorum, fetch(epoch, fetch_offset=-1))
    assert negative is not None and negative.error is ErrorCode.INVALID_REQUEST
    records = answer(quorum, fetch(epoch))
    assert records is not None and len(records.records) == 1
    assert answer(quorum, fetch(epoch, fetch_offset=1, last_epoch=epoch, high_watermark=-1)) is None, "it waits"


def test_a_diverging_fetch_counts_for_nothing() -> None:
    log = MemoryLog()
    log.append_records([b"a", b"b"], 4)
    log.flush()
    quorum = make(log=log)
    epoch = lead(quorum)
    log.flush()
    quorum.on_flushed(1000)
    reply = answer(quorum, fetch(epoch, fetch_offset=3, last_epoch=5))
    assert reply is not None and reply.diverging is not None
    assert (reply.diverging.epoch, reply.diverging.end_offset) == (4, 2)
    assert quorum.state.high_watermark.offset is None
    answer(quorum, fetch(epoch, fetch_offset=3, last_epoch=epoch))
    assert quorum.state.high_watermark.offset == 3


def test_a_waiting_fetch_is_answered_by_time_append_and_resignation() -> None:
    quorum = make()
    epoch = lead(quorum)
    at_end = {"fetch_offset": 1, "last_epoch": epoch, "high_watermark": 99}
    assert answer(quorum, fetch(epoch, **at_end), 1000) is None
    quorum.on_timer(1500)
    assert [reply.error for _, reply in quorum.take_effects().fetch_replies] == [ErrorCode.NONE]
    assert answer(quorum, fetch(epoch, **at_end), 1500) is None
    quorum.append([b"x"], epoch)
    quorum.complete_delayed_fetches(1501)
    assert [len(reply.records) for _, reply in quorum.take_effects().fetch_replies] == [1]
    assert answer(quorum, fetch(epoch, **(at_end | {"fetch_offset": 2})), 1502) is None
    quorum.resign(1503)
    assert [r.error for _, r in quorum.take_effects().fetch_replies] == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


def test_only_the_leader_of_the_epoch_appends() -> None:
    quorum = make()
    with pytest.raises(NotLeaderError) as refused:
        quorum.append([b"x"], quorum.state.epoch)
    assert refused.value.current == LeaderAndEpoch(None, 5)
    epoch = lead(quorum)
    assert quorum.append([b"x", b"y"], epoch) == 2
    with pytest.raises(NotLeaderError) as refused:
        quorum.append([b"x"], epoch - 1)
    assert refused.value.current == LeaderAndEpoch(1, epoch)
    assert str(refused.value) == f"not the leader of epoch {epoch - 1}: epoch {epoch} is led by 1"


def test_begin_and_end_of_an_epoch_refused() -> None:
    """No simulated run is told of two leaders of an epoch: it takes a lost vote, or a bug, to elect them."""
    quorum = make()
    begin = BeginQuorumEpoch(cluster_id="c", voter=ReplicaKey(1), leader_id=3, epoch=6)
    assert quorum.on_begin_quorum_epoch(begin, 10).error is ErrorCode.NONE
    assert quorum.on_begin_quorum_epoch(replace(begin, leader_id=2), 10).error is ErrorCode.INVALID_REQUEST
    assert quorum.on_begin_quorum_epoch(replace(begin, epoch=5), 10).error is ErrorCode.FENCED_LEADER_EPOCH
    end = EndQuorumEpoch(cluster_id="c", leader_id=3, epoch=5, preferred_successors=(ReplicaKey(1), ReplicaKey(2)))
    assert quorum.on_end_quorum_epoch(end, 10).error is ErrorCode.FENCED_LEADER_EPOCH
    assert quorum.state.role.kind is RoleKind.FOLLOWER
    assert quorum.on_end_quorum_epoch(replace(end, epoch=6), 10).error is ErrorCode.NONE
    assert quorum.next_deadline_ms() == 10, "the first successor stands at once"


def test_the_end_of_an_epoch_may_be_the_first_that_a_node_hears_of_it() -> None:
    quorum = make()
    end = EndQuorumEpoch(cluster_id="c", leader_id=3, epoch=7, preferred_successors=(ReplicaKey(2), ReplicaKey(1)))
    assert quorum.on_end_quorum_epoch(end, 10).error is ErrorCode.NONE
    role = quorum.state.role
    assert (role.kind, role.epoch, role.leader_id) == (RoleKind.UNATTACHED, 7, 3), "no other node can win that epoch"
    assert quorum.next_deadline_ms() == 10 + 30, "the second successor"
    assert quorum.take_effects().election_state == ElectionState(7, 3, None)


def test_a_vote_for_node_0_is_for_node_0() -> None:
    assert make().on_vote(vote(6, voter=ReplicaKey(0)), 10).error is ErrorCode.INVALID_VOTER_KEY


def test_fetches_of_snapshots_are_refused_with_the_leader_named() -> None:
    quorum = make()
    quorum.on_begin_quorum_epoch(BeginQuorumEpoch(cluster_id="c", voter=ReplicaKey(1), leader_id=3, epoch=6), 10)
    for epoch, error in [(5, ErrorCode.FENCED_LEADER_EPOCH), (7, ErrorCode.UNKNOWN_LEADER_EPOCH)]:
        request = FetchSnapshot(
            cluster_id="c", replica=ReplicaKey(2), epoch=epoch, snapshot_id=SnapshotId(1, 1), position=0, max_bytes=10
        )
        reply = quorum.on_fetch_snapshot(request, 20)
        assert (reply.error, reply.leader_id, reply.epoch) == (error, 3, 6)


@pytest.mark.parametrize("node_id", [0, 2])
def test_a_replica_has_given_up_the_older_of_its_fetches(node_id: int) -> None:
    quorum = make()
    at_end = {"fetch_offset": 1, "last_epoch": lead(quorum), "high_watermark": 99}
    older = fetch(quorum.state.epoch, replica=ReplicaKey(node_id), **at_end)
    quorum.on_fetch(1, older, 1000)
    quorum.on_fetch(2, older, 1000)
    replies = [(token, reply.error) for token, reply in quorum.take_effects().fetch_replies]
    assert replies == [(1, ErrorCode.REQUEST_TIMED_OUT)]


def test_tools_without_an_id_may_all_wait() -> None:
    quorum = make()
    at_end = {"fetch_offset": 1, "last_epoch": lead(quorum), "high_watermark": 99}
    for token in (1, 2):
        quorum.on_fetch(token, fetch(quorum.state.epoch, replica=ReplicaKey(-1), **at_end), 1000)
    assert quorum.take_effects().fetch_replies == []


def test_a_follower_begins_a_refused_snapshot_anew() -> None:
    """The leader may have deleted it, and names another one in its next answer."""
    quorum = make()
    quorum.on_begin_quorum_epoch(BeginQuorumEpoch(cluster_id="c", voter=ReplicaKey(1), leader_id=3, epoch=6), 10)
    (sent,) = quorum.take_effects().requests
    behind = FetchReply(error=ErrorCode.NONE, leader_id=3, epoch=6, high_watermark=9, snapshot_id=SnapshotId(8, 5))
    quorum.on_reply(sent, behind, 20)
    (sent,) = quorum.take_effects().requests
    assert isinstance(sent.request, FetchSnapshot)
    quorum.on_reply(sent, SnapshotReply(error=ErrorCode.SNAPSHOT_NOT_FOUND, leader_id=3, epoch=6), 30)
    requests = [sent.request for sent in quorum.take_effects().requests]
    deadline_ms = quorum.next_deadline_ms()
    if not requests and deadline_ms is not None:
        quorum.on_timer(deadline_ms)
        requests = [sent.request for sent in quorum.take_effects().requests]
    assert [type(request) for request in requests] == [Fetch]


def test_a_resigned_leader_waits_while_a_voter_may_still_hear_of_it() -> None:
    quorum = make()
    lead(quorum)
    quorum.resign(1000)
    first, second = quorum.take_effects().requests
    assert quorum.state.role.awaits_successor, "two voters may hear of it"
    quorum.on_failure(first, FailureKind.LOST, 1001)
    assert quorum.state.role.awaits_successor, "one still may"
    quorum.on_failure(second, FailureKind.LOST, 1002)
    assert not quorum.state.role.awaits_successor


def test_a_resigned_leader_waits_for_whom_a_voter_that_heard_of_it_will_elect() -> None:
    quorum = make()
    epoch = lead(quorum)
    quorum.resign(1000)
    for sent in quorum.take_effects().requests:
        quorum.on_reply(sent, EpochReply(error=ErrorCode.NONE, leader_id=1, epoch=epoch), 1001)
    assert quorum.state.role.awaits_successor


def test_two_leaders_in_an_epoch_stop_the_node() -> None:
    quorum = make()
    quorum.on_begin_quorum_epoch(BeginQuorumEpoch(cluster_id="c", voter=ReplicaKey(1), leader_id=3, epoch=6), 10)
    sent = quorum.take_effects().requests[0]
    with pytest.raises(InvariantViolation, match="one leader an epoch"):
        quorum.on_reply(sent, FetchReply(error=ErrorCode.NOT_LEADER_OR_FOLLOWER, leader_id=2, epoch=6), 20)


def test_truncation_below_the_high_watermark_stops_the_node() -> None:
    log = MemoryLog()
    log.append_records([b"a", b"b", b"c"], 4)
    log.flush()
    quorum = make(log=log)
    quorum.on_begin_quorum_epoch(BeginQuorumEpoch(cluster_id="c", voter=ReplicaKey(1), leader_id=3, epoch=6), 10)
    sent = quorum.take_effects().requests[0]
    quorum.on_reply(sent, FetchReply(error=ErrorCode.NONE, leader_id=3, epoch=6, high_watermark=3), 20)
    sent = quorum.take_effects().requests[0]
    diverging = FetchReply(error=ErrorCode.NONE, leader_id=3, epoch=6, diverging=EpochEndOffset(4, 2))
    with pytest.raises(InvariantViolation, match="high watermark"):
        quorum.on_reply(sent, diverging, 30)


def test_every_role_is_in_the_table() -> None:
    assert list(TRANSITIONS) == list(RoleKind)


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"fetch_timeout_ms": 400}, "controller.quorum.fetch.timeout.ms=400"),
        ({"request_timeout_ms": 500}, "controller.quorum.request.timeout.ms=500"),
    ],
)
def test_settings_that_contradict_each_other(changes: dict[str, int], key: str) -> None:
    with pytest.raises(ValueError, match=key):
        RaftConfig(node_id=1, cluster_id="c", voters=VOTERS, timing=RaftTiming(**changes))


def test_a_leader_announces_its_epoch_again_only_after_the_answer_or_failure_of_the_last_announcement() -> None:
    """The host of voter 3 is gone: what is sent to it is waited for until its time-out, and must not pile up."""
    quorum = make()
    deadline_ms = quorum.next_deadline_ms()
    assert deadline_ms is not None
    quorum.on_timer(deadline_ms)
    for _ in range(2):
        for sent in quorum.take_effects().requests:
            granted = VoteReply(error=ErrorCode.NONE, leader_id=None, epoch=quorum.state.epoch, granted=True)
            quorum.on_reply(sent, granted, deadline_ms)
    announced = {sent.to: sent for sent in quorum.take_effects().requests}
    assert sorted(announced) == [2, 3]
    every_ms, elected_ms = quorum.state.timing.fetch_timeout_ms // 2, deadline_ms
    quorum.on_failure(announced[2], FailureKind.REFUSED, elected_ms + 1)

    quorum.on_timer(elected_ms + every_ms - 1)
    assert quorum.take_effects().requests == []
    quorum.on_timer(elected_ms + every_ms)
    (again,) = quorum.take_effects().requests
    assert again.to == 2
    quorum.on_reply(again, EpochReply(error=ErrorCode.NONE, leader_id=1, epoch=6), elected_ms + every_ms)

    late_ms = elected_ms + every_ms + 7
    quorum.on_failure(announced[3], FailureKind.TIMEOUT, late_ms)
    assert quorum.next_deadline_ms() == late_ms
    quorum.on_timer(late_ms)
    (again,) = quorum.take_effects().requests
    assert again.to == 3
    quorum.on_failure(announced[3], FailureKind.TIMEOUT, late_ms + 1)  # it is not of the one in flight
    assert quorum.next_deadline_ms() == elected_ms + 2 * every_ms


def test_a_pre_vote_that_was_refused_in_a_former_round_of_the_same_epoch_does_not_count_in_the_present_one() -> None:
    quorum = make()
    rounds: list[list[Outgoing]] = []
    refused = VoteReply(error=ErrorCode.NONE, leader_id=None, epoch=5, granted=False)
    now_ms = 0
    while len(rounds) < 2:
        now_ms = quorum.next_deadline_ms() or now_ms
        quorum.on_timer(now_ms)
        asked = [sent for sent in quorum.take_effects().requests if isinstance(sent.request, Vote)]
        rounds += [asked] if asked else []

    def kind() -> RoleKind:
        return quorum.state.role.kind

    assert kind() is RoleKind.PROSPECTIVE and quorum.state.epoch == 5
    for late in rounds[0]:
        quorum.on_reply(late, refused, now_ms)
    assert kind() is RoleKind.PROSPECTIVE
    for sent in rounds[1]:
        quorum.on_reply(sent, refused, now_ms)
    assert kind() is RoleKind.UNATTACHED
