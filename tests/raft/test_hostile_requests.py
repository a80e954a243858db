"""No request of another node ends the quorum, whatever numbers it holds: each is answered, and elections go on."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from support.raft.memory_log import Entry, MemoryLog

from raftwerk.raft.driver.quorum_state_store import format_quorum_state, parse_quorum_state
from raftwerk.raft.messages.messages import (
    BeginQuorumEpoch,
    EndQuorumEpoch,
    EpochReply,
    Fetch,
    FetchReply,
    FetchSnapshot,
    Vote,
    VoteReply,
)
from raftwerk.raft.quorum.config import RaftConfig
from raftwerk.raft.quorum.quorum import Quorum
from raftwerk.raft.types import EPOCH_JUMP_MAX, EPOCH_MAX, ElectionState, ReplicaKey, RoleKind
from raftwerk.raft.voters.voter_set import VoterEndpoint
from raftwerk.wire.errors import ErrorCode
from raftwerk.wire.records import CorruptBatchError
from raftwerk.wire.types import SnapshotId

INT32_MAX, INT64_MAX = 2**31 - 1, 2**63 - 1
VOTERS = {i: VoterEndpoint(f"n{i}", 9093) for i in (1, 2, 3)}
ELSEWHERE = VoterEndpoint("attacker", 1)


def make(epoch: int = 5) -> Quorum:
    quorum = Quorum(
        RaftConfig(node_id=1, cluster_id="c", voters=VOTERS), MemoryLog(), ElectionState(epoch=epoch), random.Random(0)
    )
    quorum.start(0)
    return quorum


def time_out(quorum: Quorum) -> int:
    at_ms = quorum.next_deadline_ms()
    assert at_ms is not None
    quorum.on_timer(at_ms)
    return at_ms


def win_round(quorum: Quorum, now_ms: int) -> None:
    """Grant every vote that the quorum asks for now."""
    for sent in quorum.take_effects().requests:
        if isinstance(sent.request, Vote):
            granted = VoteReply(error=ErrorCode.NONE, leader_id=None, epoch=sent.request.epoch, granted=True)
            quorum.on_reply(sent, granted, now_ms)


def elect(quorum: Quorum) -> None:
    """Time passes, and the other voters grant their votes, until this node leads."""
    for _ in range(20):
        if quorum.state.role.kind is RoleKind.LEADER:
            return
        quorum.take_effects()
        now_ms = time_out(quorum)
        win_round(quorum, now_ms)
        win_round(quorum, now_ms)
    raise AssertionError(f"not elected: {quorum.state.role}")


VOTE = Vote(cluster_id="c", voter=ReplicaKey(1), candidate=ReplicaKey(2), epoch=6, last_epoch=9, last_offset=9,
            pre_vote=False)  # fmt: skip


@pytest.mark.parametrize("epoch", [INT32_MAX, EPOCH_MAX, 2**30, 5 + EPOCH_JUMP_MAX + 1])
@pytest.mark.parametrize("pre_vote", [False, True])
def test_a_request_with_an_epoch_that_leaves_no_others_changes_nothing(epoch: int, pre_vote: bool) -> None:
    quorum = make()
    vote = replace(VOTE, epoch=epoch, pre_vote=pre_vote)
    assert quorum.on_vote(vote, 10) == VoteReply(error=ErrorCode.INVALID_REQUEST, leader_id=None, epoch=5)
    begin = BeginQuorumEpoch(cluster_id="c", voter=ReplicaKey(1), leader_id=2, epoch=epoch, leader_endpoint=ELSEWHERE)
    assert quorum.on_begin_quorum_epoch(begin, 10).error is ErrorCode.INVALID_REQUEST
    end = EndQuorumEpoch(cluster_id="c", leader_id=2, epoch=epoch, preferred_successors=())
    assert quorum.on_end_quorum_epoch(end, 10).error is ErrorCode.INVALID_REQUEST
    assert quorum.state.epoch == 5
    elect(quorum)
    assert quorum.state.epoch == 6


@pytest.mark.parametrize(("own", "epoch"), [(5, 5 + EPOCH_JUMP_MAX), (EPOCH_MAX - 1, EPOCH_MAX)])
def test_the_greatest_epoch_that_a_request_may_name_is_taken(own: int, epoch: int) -> None:
    quorum = make(own)
    assert quorum.on_vote(replace(VOTE, epoch=epoch), 10).granted
    assert quorum.state.epoch == epoch


def test_an_answer_with_an_epoch_that_leaves_no_others_counts_as_none() -> None:
    quorum = make()
    time_out(quorum)
    for sent in quorum.take_effects().requests:
        quorum.on_reply(sent, VoteReply(error=ErrorCode.NONE, leader_id=None, epoch=INT32_MAX, granted=True), 10)
    assert quorum.state.epoch == 5
    elect(quorum)


def test_the_highest_epoch_is_one_below_the_greatest_number_that_can_be_sent() -> None:
    assert EPOCH_MAX == INT32_MAX - 1 == 2_147_483_646


def test_the_highest_epoch_may_be_learned_from_an_answer() -> None:
    quorum = make()
    time_out(quorum)
    sent = quorum.take_effects().requests[0]
    quorum.on_reply(sent, VoteReply(error=ErrorCode.FENCED_LEADER_EPOCH, leader_id=None, epoch=EPOCH_MAX), 10)
    assert quorum.state.epoch == EPOCH_MAX


def test_a_voter_that_missed_many_elections_learns_the_epoch_from_answers() -> None:
    quorum = make()
    now_ms = time_out(quorum)
    sent = quorum.take_effects().requests[0]
    behind = VoteReply(error=ErrorCode.FENCED_LEADER_EPOCH, leader_id=None, epoch=50_000)
    quorum.on_reply(sent, behind, now_ms)
    assert quorum.state.epoch == 50_000
    assert quorum.on_vote(replace(VOTE, epoch=50_001), now_ms).granted


def test_after_the_highest_epoch_nothing_is_written_that_cannot_be_sent() -> None:
    quorum = make(EPOCH_MAX)
    for _ in range(3):
        now_ms = time_out(quorum)
        win_round(quorum, now_ms)
        assert quorum.state.epoch == EPOCH_MAX
        assert quorum.state.role.kind is not RoleKind.CANDIDATE


def test_the_end_of_an_epoch_that_names_another_leader_is_refused() -> None:
    """It broke the invariant of one leader an epoch, which ended the node's part in the quorum."""
    quorum = make()
    begin = BeginQuorumEpoch(cluster_id="c", voter=ReplicaKey(1), leader_id=3, epoch=6)
    assert quorum.on_begin_quorum_epoch(begin, 10).error is ErrorCode.NONE
    end = EndQuorumEpoch(cluster_id="c", leader_id=2, epoch=6, preferred_successors=(), leader_endpoint=ELSEWHERE)
    assert quorum.on_end_quorum_epoch(end, 10) == EpochReply(
        error=ErrorCode.INVALID_REQUEST, leader_id=3, epoch=6, leader_endpoint=VOTERS[3]
    )
    assert quorum.state.role.kind is RoleKind.FOLLOWER


def test_a_fetch_of_what_is_damaged_is_refused_and_the_others_are_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """It ended the round of answers, and the fetches that had been answered already were answered again in the next."""
    quorum = make()
    elect(quorum)
    log, epoch = quorum.state.log, quorum.state.epoch
    for token in (1, 2, 3):
        fetch = Fetch(cluster_id="c", replica=ReplicaKey(7 + token), epoch=epoch, fetch_offset=log.end_offset,
                      last_epoch=epoch, max_wait_ms=500, max_bytes=token, high_watermark=-1)  # fmt: skip
        quorum.on_fetch(token, fetch, 10)
    quorum.append([b"x"], epoch)
    read = log.read

    def damaged(offset: int, max_bytes: int) -> Any:
        if max_bytes == 2:
            raise CorruptBatchError(ErrorCode.CORRUPT_MESSAGE, "the batch is damaged")
        return read(offset, max_bytes)

    monkeypatch.setattr(log, "read", damaged)
    quorum.complete_delayed_fetches(20)
    answers = {token: reply.error for token, reply in quorum.take_effects().fetch_replies}
    assert answers == {1: ErrorCode.NONE, 2: ErrorCode.CORRUPT_MESSAGE, 3: ErrorCode.NONE}
    quorum.complete_delayed_fetches(30)
    assert not quorum.take_effects().fetch_replies


@pytest.mark.parametrize("epoch", [7, EPOCH_MAX, INT32_MAX])
def test_a_follower_takes_nothing_of_an_epoch_above_its_leaders(epoch: int) -> None:
    """With such a record, or a snapshot, as its last, it would be elected whatever it lacks."""
    log = MemoryLog()
    quorum = Quorum(RaftConfig(node_id=1, cluster_id="c", voters=VOTERS), log, ElectionState(epoch=5), random.Random(0))
    quorum.start(0)
    begin = BeginQuorumEpoch(cluster_id="c", voter=ReplicaKey(1), leader_id=3, epoch=6)
    assert quorum.on_begin_quorum_epoch(begin, 10).error is ErrorCode.NONE
    answer = FetchReply(error=ErrorCode.NONE, leader_id=3, epoch=6)
    forged: tuple[Any, ...] = (Entry(0, 6, b"sound"), Entry(1, epoch, b"forged"), Entry(2, 6, b"after it"))
    at_ms = 10

    def reply(**fields: Any) -> None:
        nonlocal at_ms
        sent = next(one for one in quorum.take_effects().requests if isinstance(one.request, Fetch))
        at_ms += 1
        quorum.on_reply(sent, replace(answer, **fields), at_ms)
        log.flush()
        quorum.on_flushed(at_ms)
        at_ms += 1_000
        quorum.on_timer(at_ms)

    reply(records=forged[1:2])
    assert log.end_offset == 0
    reply(records=forged)
    assert [entry.payload for entry in log.entries] == [b"sound"]
    reply(records=forged[1:])
    reply(snapshot_id=SnapshotId(50, epoch))
    assert log.end_offset == 1 and log.last_epoch == 6
    assert any(isinstance(one.request, Fetch) for one in quorum.take_effects().requests)


INT32S = st.one_of(st.sampled_from([0, 1, 2, 3, 5, 6, 7, EPOCH_MAX, INT32_MAX]), st.integers(0, INT32_MAX))
SIGNED = st.one_of(INT32S, st.sampled_from([-1, -2, -INT32_MAX - 1]))
INT64S = st.one_of(SIGNED, st.sampled_from([INT64_MAX, INT64_MAX - 1, -INT64_MAX - 1]))
KEYS = st.builds(ReplicaKey, INT32S)
RECEIVERS = st.sampled_from([ReplicaKey(1), ReplicaKey(-1)])
ENDPOINTS = st.sampled_from([None, ELSEWHERE])
CLUSTERS = st.sampled_from(["c", None])
REQUESTS = st.one_of(
    st.builds(Vote, cluster_id=CLUSTERS, voter=RECEIVERS, candidate=KEYS, epoch=INT32S, last_epoch=INT32S,
              last_offset=INT64S, pre_vote=st.booleans()),
    st.builds(BeginQuorumEpoch, cluster_id=CLUSTERS, voter=RECEIVERS, leader_id=INT32S, epoch=INT32S,
              leader_endpoint=ENDPOINTS),
    st.builds(EndQuorumEpoch, cluster_id=CLUSTERS, leader_id=INT32S, epoch=INT32S,
              preferred_successors=st.lists(KEYS, max_size=3).map(tuple), leader_endpoint=ENDPOINTS),
    st.builds(Fetch, cluster_id=CLUSTERS, replica=st.builds(ReplicaKey, SIGNED), epoch=SIGNED, fetch_offset=INT64S,
              last_epoch=SIGNED, max_wait_ms=SIGNED, max_bytes=SIGNED, high_watermark=INT64S),
    st.builds(FetchSnapshot, cluster_id=CLUSTERS, replica=st.builds(ReplicaKey, SIGNED), epoch=SIGNED,
              snapshot_id=st.builds(SnapshotId, INT64S, SIGNED), position=INT64S, max_bytes=SIGNED),
)  # fmt: skip


@settings(max_examples=300, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(st.booleans(), st.lists(REQUESTS, max_size=6))
def test_no_requests_end_the_quorum(leads: bool, hostile: list[object]) -> None:
    quorum = make()
    if leads:
        elect(quorum)
    for token, request in enumerate(hostile):
        if isinstance(request, Vote):
            quorum.on_vote(request, 10)
        elif isinstance(request, BeginQuorumEpoch):
            quorum.on_begin_quorum_epoch(request, 10)
        elif isinstance(request, EndQuorumEpoch):
            quorum.on_end_quorum_epoch(request, 10)
        elif isinstance(request, Fetch):
            # Half of them in the present epoch, where the leader looks at them.
            quorum.on_fetch(token, replace(request, epoch=quorum.state.epoch) if token % 2 else request, 10)
        elif isinstance(request, FetchSnapshot):
            quorum.on_fetch_snapshot(replace(request, epoch=quorum.state.epoch) if token % 2 else request, 10)
        state = quorum.take_effects().election_state
        if state is not None:
            assert parse_quorum_state(format_quorum_state(state)) == state
    assert quorum.state.epoch <= 5 + 2 + 6 * EPOCH_JUMP_MAX
    elect(quorum)
