"""One round of an election: whom a node asks, when it asks again, when the round is won or lost."""

from __future__ import annotations

import random

import pytest
from support.raft.memory_log import MemoryLog

from raftwerk.raft.messages.messages import BeginQuorumEpoch, Outgoing, Vote, VoteReply
from raftwerk.raft.quorum.config import RaftConfig
from raftwerk.raft.quorum.effects import FailureKind
from raftwerk.raft.quorum.quorum import Quorum
from raftwerk.raft.roles.epoch_election import EpochElection
from raftwerk.raft.types import EPOCH_MAX, ElectionState, ReplicaKey, RoleKind
from raftwerk.raft.voters.voter_set import VoterEndpoint
from raftwerk.wire.errors import ErrorCode

VOTERS = {i: VoterEndpoint(f"n{i}", 9093) for i in (1, 2, 3, 4, 5)}
BEGAN_MS = 5000
ROUND_MS, RETRY_MS = 1000, 50
"""The least time of a round, and the default of `retry_backoff_ms`."""


class LeastDraws(random.Random):
    """Each draw is its least value."""

    def randint(self, a: int, b: int) -> int:
        return a


def prospective(epoch: int = 5) -> tuple[Quorum, list[Outgoing]]:
    """Node 1 of five voters, which asks for pre-votes since `BEGAN_MS`, and what it has sent."""
    config = RaftConfig(node_id=1, cluster_id="c", voters=VOTERS)
    quorum = Quorum(config, MemoryLog(), ElectionState(epoch=epoch), LeastDraws(0))
    quorum.start(0)
    quorum.take_effects()
    quorum.on_timer(BEGAN_MS)
    assert quorum.state.role.kind is RoleKind.PROSPECTIVE
    return quorum, quorum.take_effects().requests


def answer(quorum: Quorum, sent: Outgoing, now_ms: int = BEGAN_MS, *, granted: bool = True) -> RoleKind:
    reply = VoteReply(error=ErrorCode.NONE, leader_id=None, epoch=quorum.state.epoch, granted=granted)
    quorum.on_reply(sent, reply, now_ms)
    return quorum.state.role.kind


def votes(requests: list[Outgoing]) -> list[tuple[int, int, bool]]:
    """The addressee of each vote, its epoch, and whether it is a pre-vote."""
    found = []
    for sent in requests:
        assert isinstance(sent.request, Vote)
        assert sent.request.voter.id == sent.to
        found.append((sent.to, sent.request.epoch, sent.request.pre_vote))
    return found


def test_pre_votes_are_asked_of_all_others_then_votes_of_the_next_epoch() -> None:
    quorum, sent = prospective()
    assert votes(sent) == [(2, 5, True), (3, 5, True), (4, 5, True), (5, 5, True)]
    assert answer(quorum, sent[0]) is RoleKind.PROSPECTIVE, "two of five"
    assert answer(quorum, sent[0]) is RoleKind.PROSPECTIVE, "a voter counts once"
    assert answer(quorum, sent[3]) is RoleKind.CANDIDATE
    effects = quorum.take_effects()
    assert effects.election_state == ElectionState(6, None, ReplicaKey(1)), "it votes for itself"
    assert votes(effects.requests) == [(2, 6, False), (3, 6, False), (4, 6, False), (5, 6, False)]
    answer(quorum, effects.requests[2])
    assert answer(quorum, effects.requests[1]) is RoleKind.LEADER
    leader = quorum.state.role.as_leader()
    assert leader is not None and list(leader.granting) == [1, 3, 4]


def test_a_round_is_lost_when_a_majority_has_refused() -> None:
    quorum, sent = prospective()
    answer(quorum, sent[0], granted=False)
    assert answer(quorum, sent[1], granted=False) is RoleKind.PROSPECTIVE, "three may still grant it"
    assert answer(quorum, sent[2], granted=False) is RoleKind.UNATTACHED
    assert quorum.next_deadline_ms() == BEGAN_MS + 20 + RETRY_MS // 2, "the next round comes later"
    assert quorum.state.epoch == 5, "no leader was disturbed"


def test_a_candidate_that_lost_is_bound_by_its_own_vote() -> None:
    quorum, sent = prospective()
    answer(quorum, sent[0])
    answer(quorum, sent[1])
    for one in quorum.take_effects().requests[:3]:
        answer(quorum, one, granted=False)
    role = quorum.state.role
    assert (role.kind, role.epoch, role.voted) == (RoleKind.UNATTACHED, 6, ReplicaKey(1))


def test_a_round_without_a_majority_ends_in_time() -> None:
    quorum, sent = prospective()
    answer(quorum, sent[0])
    assert quorum.next_deadline_ms() == BEGAN_MS + ROUND_MS
    quorum.on_timer(BEGAN_MS + ROUND_MS - 1)
    assert (quorum.state.role.kind, quorum.take_effects().requests) == (RoleKind.PROSPECTIVE, [])
    quorum.on_timer(BEGAN_MS + ROUND_MS)
    assert quorum.state.role.kind is RoleKind.UNATTACHED


def test_a_voter_that_no_request_reached_is_asked_again_after_a_while() -> None:
    quorum, sent = prospective()
    quorum.on_failure(sent[1], FailureKind.REFUSED, BEGAN_MS + 10)
    quorum.on_failure(sent[3], FailureKind.LOST, BEGAN_MS + 30)
    assert quorum.next_deadline_ms() == BEGAN_MS + 10 + RETRY_MS
    quorum.on_timer(BEGAN_MS + 10 + RETRY_MS - 1)
    assert quorum.take_effects().requests == []
    quorum.on_timer(BEGAN_MS + 10 + RETRY_MS)
    again = quorum.take_effects().requests
    assert votes(again) == [(3, 5, True)]
    assert quorum.next_deadline_ms() == BEGAN_MS + 30 + RETRY_MS
    answer(quorum, again[0])
    assert answer(quorum, sent[0]) is RoleKind.CANDIDATE, "the second answer counts as the first would"


def test_the_failure_of_a_former_round_asks_nobody_in_the_present_one() -> None:
    quorum, sent = prospective()
    answer(quorum, sent[0])
    answer(quorum, sent[1])
    quorum.take_effects()
    quorum.on_failure(sent[3], FailureKind.LOST, BEGAN_MS)
    assert quorum.next_deadline_ms() == BEGAN_MS + ROUND_MS


def test_a_leader_that_works_after_all_is_followed_and_the_next_round_comes_later() -> None:
    quorum, _ = prospective()
    begin = BeginQuorumEpoch(cluster_id="c", voter=ReplicaKey(1), leader_id=3, epoch=5)
    quorum.on_begin_quorum_epoch(begin, BEGAN_MS)
    assert quorum.state.role.kind is RoleKind.FOLLOWER
    assert quorum.state.timeouts.stagger_ms(None) == RETRY_MS // 2


def test_an_election_that_is_won_ends_the_back_off() -> None:
    quorum, sent = prospective()
    quorum.state.timeouts.on_round_failed()
    answer(quorum, sent[0])
    answer(quorum, sent[1])
    for one in quorum.take_effects().requests[:2]:
        answer(quorum, one)
    assert quorum.state.is_leader
    assert quorum.state.timeouts.stagger_ms(None) == 0


@pytest.mark.parametrize(("epoch", "kind"), [(EPOCH_MAX - 1, RoleKind.CANDIDATE), (EPOCH_MAX, RoleKind.UNATTACHED)])
def test_no_epoch_follows_the_highest_one(epoch: int, kind: RoleKind) -> None:
    quorum, sent = prospective(epoch)
    answer(quorum, sent[0])
    assert answer(quorum, sent[1]) is kind
    assert quorum.state.epoch == EPOCH_MAX


# ---- the count -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("own_id", [1, None])
@pytest.mark.parametrize("voter_count", [1, 2, 3, 4, 5])
def test_a_round_is_won_or_lost_as_soon_as_that_is_certain(voter_count: int, own_id: int | None) -> None:
    """A candidate that is no voter any more has no vote, and needs a majority of the others."""
    voters = list(range(1, voter_count + 1))
    others = [voter for voter in voters if voter != own_id]
    majority = voter_count // 2 + 1
    for granting in range(len(others) + 1):
        for refusing in range(len(others) - granting + 1):
            election = EpochElection(voters, own_id)
            for voter in others[:granting]:
                election.record(voter, granted=True)
            for voter in others[granting : granting + refusing]:
                election.record(voter, granted=False)
            count = granting + (own_id is not None)
            assert election.is_won == (count >= majority)
            assert election.is_lost == (voter_count - refusing < majority)
            assert election.granting == ([1] if own_id else []) + others[:granting]


def test_the_last_answer_of_a_voter_counts_and_ends_the_wish_to_ask_it_again() -> None:
    election = EpochElection([1, 2, 3], 1)
    election.record(2, granted=False)
    election.resend_at_ms |= {2: 100, 3: 50}
    election.record(2, granted=True)
    assert election.is_won
    assert election.take_due(49) == []
    assert election.take_due(50) == [3]
    assert election.resend_at_ms == {}
