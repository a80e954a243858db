"""Who gets a vote or a pre-vote, by the role of the node that is asked, in its own epoch."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from support.raft.memory_log import MemoryLog

from raftwerk.raft.messages.messages import BeginQuorumEpoch, FetchReply, Vote, VoteReply
from raftwerk.raft.quorum.config import RaftConfig
from raftwerk.raft.quorum.effects import FailureKind
from raftwerk.raft.quorum.quorum import Quorum
from raftwerk.raft.types import ElectionState, ReplicaKey, RoleKind
from raftwerk.raft.voters.voter_set import VoterEndpoint
from raftwerk.wire.errors import ErrorCode

VOTERS = {i: VoterEndpoint(f"n{i}", 9093) for i in (1, 2, 3)}
EPOCH = 5
NOW_MS = 1000


def unattached(leader_id: int | None = None, voted: int | None = None) -> Quorum:
    """A voter whose log has two records of epoch 4."""
    log = MemoryLog()
    log.append_records([b"a", b"b"], 4)
    log.flush()
    config = RaftConfig(node_id=1, cluster_id="c", voters=VOTERS)
    state = ElectionState(EPOCH, leader_id, None if voted is None else ReplicaKey(voted))
    quorum = Quorum(config, log, state, random.Random(0))
    quorum.start(NOW_MS)
    return quorum


def after_vote() -> Quorum:
    return unattached(voted=2)


def after_leader() -> Quorum:
    return unattached(leader_id=3)


def stand(quorum: Quorum) -> Quorum:
    """It asks for pre-votes."""
    deadline_ms = quorum.next_deadline_ms()
    assert deadline_ms is not None
    quorum.on_timer(deadline_ms)
    assert quorum.state.role.kind is RoleKind.PROSPECTIVE
    return quorum


def prospective() -> Quorum:
    return stand(unattached())


def prospective_after_vote() -> Quorum:
    return stand(after_vote())


def prospective_after_leader() -> Quorum:
    return stand(after_leader())


def win_round(quorum: Quorum) -> None:
    sent = quorum.take_effects().requests[0]
    granted = VoteReply(error=ErrorCode.NONE, leader_id=None, epoch=quorum.state.epoch, granted=True)
    quorum.on_reply(sent, granted, NOW_MS)


def candidate() -> Quorum:
    quorum = prospective()
    win_round(quorum)
    assert quorum.state.role.kind is RoleKind.CANDIDATE
    return quorum


def leader() -> Quorum:
    quorum = candidate()
    win_round(quorum)
    assert quorum.state.is_leader
    return quorum


def resigned() -> Quorum:
    quorum = leader()
    quorum.resign(NOW_MS)
    return quorum


def follower() -> Quorum:
    """It has heard of its leader, and not from it."""
    quorum = unattached()
    begin = BeginQuorumEpoch(cluster_id="c", voter=ReplicaKey(1), leader_id=3, epoch=EPOCH)
    quorum.on_begin_quorum_epoch(begin, NOW_MS)
    return quorum


def follower_that_heard_its_leader() -> Quorum:
    quorum = follower()
    (sent,) = quorum.take_effects().requests
    quorum.on_reply(sent, FetchReply(error=ErrorCode.NONE, leader_id=3, epoch=EPOCH), NOW_MS)
    return quorum


def follower_that_was_refused() -> Quorum:
    quorum = follower_that_heard_its_leader()
    (sent,) = quorum.take_effects().requests
    quorum.on_failure(sent, FailureKind.REFUSED, NOW_MS)
    return quorum


def granted(
    make: Callable[[], Quorum], candidate_id: int, *, pre_vote: bool, last: tuple[int, int], at_ms: int
) -> bool:
    quorum = make()
    vote = Vote(
        cluster_id="c",
        voter=ReplicaKey(1),
        candidate=ReplicaKey(candidate_id),
        epoch=quorum.state.epoch,
        last_epoch=last[0],
        last_offset=last[1],
        pre_vote=pre_vote,
    )
    quorum.take_effects()
    was = quorum.state.role.kind
    reply = quorum.on_vote(vote, at_ms)
    assert reply.error is ErrorCode.NONE
    persisted = quorum.take_effects().election_state
    if reply.granted and not pre_vote:
        assert quorum.state.role.voted == ReplicaKey(candidate_id)
    else:
        assert (persisted, quorum.state.role.kind) == (None, was), "no promise was made"
    return reply.granted


@pytest.mark.parametrize(
    ("make", "votes", "pre_votes"),
    [
        (unattached, [2, 3], [2, 3]),
        (after_vote, [2], [2, 3]),
        (after_leader, [], [2, 3]),
        (prospective, [2, 3], [2, 3]),
        (prospective_after_vote, [2], [2, 3]),
        (prospective_after_leader, [], [2, 3]),
        (candidate, [], [2, 3]),
        (leader, [], []),
        (resigned, [], [2, 3]),
        (follower, [], [2, 3]),
        (follower_that_heard_its_leader, [], []),
        (follower_that_was_refused, [], [2, 3]),
    ],
)
def test_who_is_granted(make: Callable[[], Quorum], votes: list[int], pre_votes: list[int]) -> None:
    end = (9, 9)
    for pre_vote, expected in ((False, votes), (True, pre_votes)):
        found = [one for one in (2, 3) if granted(make, one, pre_vote=pre_vote, last=end, at_ms=NOW_MS)]
        assert found == expected, pre_vote


@pytest.mark.parametrize("make", [unattached, prospective, follower])
@pytest.mark.parametrize(
    ("last", "is_up_to_date"),
    [((4, 1), False), ((4, 2), True), ((4, 3), True), ((3, 9), False), ((5, 0), True)],
)
def test_only_a_log_that_has_all_of_the_own_one_is_granted(
    make: Callable[[], Quorum], last: tuple[int, int], is_up_to_date: bool
) -> None:
    assert granted(make, 2, pre_vote=True, last=last, at_ms=NOW_MS) is is_up_to_date
    if make is not follower:
        assert granted(make, 2, pre_vote=False, last=last, at_ms=NOW_MS) is is_up_to_date


def test_a_candidates_log_is_compared_too() -> None:
    assert not granted(candidate, 2, pre_vote=True, last=(4, 1), at_ms=NOW_MS)
    assert not granted(resigned, 2, pre_vote=True, last=(4, 2), at_ms=NOW_MS), "it led, and wrote a record"


def test_a_leader_is_doubted_half_a_fetch_timeout_after_it_was_heard() -> None:
    for at_ms, expected in ((NOW_MS + 999, False), (NOW_MS + 1000, True)):
        assert granted(follower_that_heard_its_leader, 2, pre_vote=True, last=(9, 9), at_ms=at_ms) is expected
