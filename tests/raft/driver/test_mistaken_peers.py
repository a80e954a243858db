"""What is said of a controller that is not the one for which this node takes it, once for each."""

from __future__ import annotations

from uuid import UUID

import pytest

from raftwerk.raft.driver.mistaken_peers import MistakenPeers
from raftwerk.raft.messages.messages import (
    BeginQuorumEpoch,
    EndQuorumEpoch,
    EpochReply,
    Outgoing,
    ProbeReply,
    ProbeVoter,
    Reply,
    Request,
    Vote,
    VoteReply,
)
from raftwerk.raft.types import ReplicaKey
from raftwerk.raft.voters.voter_set import VersionRange, VoterEndpoint
from raftwerk.wire.errors import ErrorCode

AT = VoterEndpoint("n2", 9093)
VOTER = ReplicaKey(2, UUID(int=2))
VOTE = Vote(cluster_id="c", voter=VOTER, candidate=ReplicaKey(1), epoch=5, last_epoch=0, last_offset=0, pre_vote=False)
BEGIN = BeginQuorumEpoch(cluster_id="c", voter=VOTER, leader_id=1, epoch=5)
END = EndQuorumEpoch(cluster_id="c", leader_id=1, epoch=5, preferred_successors=())


def told(caplog: pytest.LogCaptureFixture, *answers: tuple[Request, Reply, VoterEndpoint]) -> list[str]:
    """What was logged of these answers, one after the other."""
    peers = MistakenPeers("own-cluster")
    caplog.clear()
    for number, (request, reply, endpoint) in enumerate(answers):
        peers.look(Outgoing(number, 2, endpoint, request), reply)
    return caplog.messages


def vote_reply(error: ErrorCode) -> VoteReply:
    return VoteReply(error=error, leader_id=None, epoch=5)


def test_a_controller_of_another_cluster_is_told_once_by_its_address(caplog: pytest.LogCaptureFixture) -> None:
    reply = vote_reply(ErrorCode.INCONSISTENT_CLUSTER_ID)
    first, second = told(caplog, *[(VOTE, reply, AT)] * 3, (VOTE, reply, VoterEndpoint("n3", 9093)))
    assert "the controller at n2:9093 belongs to another cluster than this node, whose cluster id is own-cl" in first
    assert "the controller at n3:9093 belongs to another cluster" in second


@pytest.mark.parametrize("request_", [VOTE, BEGIN])
def test_a_voter_that_is_back_with_another_directory_is_told_once(
    request_: Request, caplog: pytest.LogCaptureFixture
) -> None:
    reply = EpochReply(error=ErrorCode.INVALID_VOTER_KEY, leader_id=None, epoch=5)
    (line,) = told(caplog, *[(request_, reply, AT)] * 3)
    assert "voter 2 with the directory id AAAAAAAAAAAAAAAAAAAAAg does not vote any more" in line
    assert "the controller at n2:9093 is back with" in line


def test_other_answers_say_nothing_of_who_sent_them(caplog: pytest.LogCaptureFixture) -> None:
    invalid = EpochReply(error=ErrorCode.INVALID_VOTER_KEY, leader_id=None, epoch=5)
    probe = ProbeVoter(voter=VOTER)
    assert told(caplog, (END, invalid, AT)) == [], "it names no addressee"
    assert told(caplog, (VOTE, vote_reply(ErrorCode.NONE), AT)) == []
    assert told(caplog, (probe, ProbeReply(versions=VersionRange(0, 1)), AT)) == []
