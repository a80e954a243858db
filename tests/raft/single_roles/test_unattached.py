"""A node without a leader: whom it asks, and when."""

from __future__ import annotations

import random

from support.raft.memory_log import MemoryLog

from raftwerk.raft.messages.messages import Fetch, FetchReply, Outgoing, Vote, VoteReply
from raftwerk.raft.quorum.config import RaftConfig
from raftwerk.raft.quorum.effects import FailureKind
from raftwerk.raft.quorum.quorum import Quorum
from raftwerk.raft.types import ElectionState, ReplicaKey, RoleKind
from raftwerk.raft.voters.voter_set import VoterEndpoint, VoterListener
from raftwerk.wire.errors import ErrorCode

VOTERS = {i: VoterEndpoint(f"n{i}", 9093) for i in (1, 2, 3)}
RETRY_MS, STAGGER_MS = 50, 30
"""The defaults of `retry_backoff_ms` and `election_stagger_ms`."""

PRE_VOTE = Vote(
    cluster_id="c",
    voter=ReplicaKey(1),
    candidate=ReplicaKey(2),
    epoch=5,
    last_epoch=0,
    last_offset=0,
    pre_vote=True,
)


def started(config: RaftConfig) -> Quorum:
    quorum = Quorum(config, MemoryLog(), ElectionState(epoch=5), random.Random(0))
    quorum.start(1000)
    return quorum


def observer() -> Quorum:
    return started(RaftConfig(node_id=9, cluster_id="c", voters=VOTERS, can_vote=False))


def kind(quorum: Quorum) -> RoleKind:
    return quorum.state.role.kind


def sent_by(quorum: Quorum) -> list[Outgoing]:
    return quorum.take_effects().requests


def test_an_observer_asks_one_node_after_the_other_and_waits_before_each() -> None:
    quorum = observer()
    asked = []
    now_ms = 1000
    for _ in range(4):
        (sent,) = sent_by(quorum)
        assert isinstance(sent.request, Fetch) and sent.request.max_wait_ms == 0, "who does not lead answers at once"
        asked.append(sent.to)
        assert quorum.next_deadline_ms() is None, "it waits for the answer"
        quorum.on_timer(now_ms + 10 * RETRY_MS)
        assert sent_by(quorum) == [], "a second request does not go out beside the first"
        quorum.on_failure(sent, FailureKind.TIMEOUT, now_ms + 1)
        now_ms += RETRY_MS
        assert quorum.next_deadline_ms() == now_ms
        quorum.on_timer(now_ms - 1)
        assert sent_by(quorum) == [], "an early timer does nothing"
        quorum.on_timer(now_ms)
    assert sorted(asked[:3]) == [1, 2, 3] and asked[3] == asked[0], "each voter in turn"


def test_an_answer_without_a_leader_ends_the_request_and_names_the_epoch() -> None:
    quorum = observer()
    (sent,) = sent_by(quorum)
    quorum.on_reply(sent, FetchReply(error=ErrorCode.NOT_LEADER_OR_FOLLOWER, leader_id=None, epoch=5), 1010)
    assert kind(quorum) is RoleKind.UNATTACHED
    quorum.on_timer(1000 + RETRY_MS)
    (following,) = sent_by(quorum)
    assert following.to != sent.to
    quorum.on_failure(following, FailureKind.LOST, 1060)
    quorum.on_timer(1100)
    (current,) = sent_by(quorum)
    quorum.on_failure(sent, FailureKind.LOST, 1101)
    late = FetchReply(error=ErrorCode.NOT_LEADER_OR_FOLLOWER, leader_id=2, epoch=5)
    quorum.on_reply(sent, late, 1102)
    quorum.on_timer(2000)
    assert sent_by(quorum) == [], "what becomes of a former request does not end the present one"
    assert kind(quorum) is RoleKind.UNATTACHED
    quorum.on_reply(current, late, 1103)
    assert kind(quorum) is RoleKind.FOLLOWER


def test_a_voter_that_waits_for_its_election_asks_nobody() -> None:
    quorum = started(RaftConfig(node_id=1, cluster_id="c", voters=VOTERS))
    deadline_ms = quorum.next_deadline_ms()
    assert deadline_ms is not None and deadline_ms > 1000
    quorum.on_timer(deadline_ms - 1)
    assert sent_by(quorum) == []
    assert kind(quorum) is RoleKind.UNATTACHED
    quorum.on_timer(deadline_ms)
    assert kind(quorum) is RoleKind.PROSPECTIVE


def test_a_node_that_knows_only_itself_looks_again_later() -> None:
    listeners = (VoterListener("CONTROLLER", "n9", 9093),)
    own = (VoterEndpoint("n9", 9093),)
    quorum = started(RaftConfig(node_id=9, cluster_id="c", bootstrap=own, listeners=listeners))
    assert sent_by(quorum) == []
    assert quorum.next_deadline_ms() == 1000 + RETRY_MS
    quorum.on_timer(1000 + RETRY_MS)
    assert quorum.next_deadline_ms() == 1000 + 2 * RETRY_MS


def test_a_voter_that_gave_its_pre_vote_lets_the_other_one_finish() -> None:
    quorum = started(RaftConfig(node_id=1, cluster_id="c", voters=VOTERS))
    deadline_ms = quorum.next_deadline_ms()
    assert deadline_ms is not None
    assert quorum.on_vote(PRE_VOTE, deadline_ms - 2 * STAGGER_MS - 5).granted
    assert quorum.next_deadline_ms() == deadline_ms, "it stands later anyway"
    assert quorum.on_vote(PRE_VOTE, deadline_ms - 1).granted
    assert quorum.next_deadline_ms() == deadline_ms - 1 + 2 * STAGGER_MS


def test_a_voter_that_lost_and_has_bootstrap_servers_both_asks_for_the_leader_and_stands_again() -> None:
    bootstrap = (VoterEndpoint("b1", 9093),)
    quorum = started(RaftConfig(node_id=1, cluster_id="c", voters=VOTERS, bootstrap=bootstrap))
    now_ms = quorum.next_deadline_ms()
    assert now_ms is not None
    quorum.on_timer(now_ms)
    for sent in sent_by(quorum):
        quorum.on_reply(sent, VoteReply(error=ErrorCode.NONE, leader_id=None, epoch=5), now_ms)
    (asked,) = sent_by(quorum)
    assert isinstance(asked.request, Fetch)
    stands_at_ms = quorum.next_deadline_ms()
    assert stands_at_ms is not None and stands_at_ms > now_ms, "while it waits for the answer, only the election is due"
    quorum.on_failure(asked, FailureKind.LOST, now_ms + 1)
    assert quorum.next_deadline_ms() == min(stands_at_ms, now_ms + RETRY_MS)
    quorum.on_timer(stands_at_ms)
    assert kind(quorum) is RoleKind.PROSPECTIVE
