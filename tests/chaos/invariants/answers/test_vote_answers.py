"""Votes are judged by the voter's log and role when it read the request."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from raftwerk.chaos.sim.invariants.answers.answered_requests import watch_answers
from raftwerk.chaos.sim.invariants.answers.vote_answers import VoteAnswers
from raftwerk.chaos.sim.invariants.invariant_broken import InvariantBroken
from raftwerk.raft.types import ReplicaKey, RoleKind
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.codec import encode_request, encode_response
from raftwerk.wire.errors import ErrorCode
from raftwerk.wire.frames import RequestHeader
from raftwerk.wire.frames import encode_request as request_frame
from raftwerk.wire.frames import encode_response as response_frame

REFUSED = "a vote is refused for a reason"
GIVEN = "a vote is given to who has all that its voter has"
_VERSION = 2


class _Pipe:
    """One direction of a connection."""

    on_sent: Any = None
    on_read: Any = None


def _role(kind: RoleKind, epoch: int = 5, voted: ReplicaKey | None = None) -> Any:
    return SimpleNamespace(kind=kind, epoch=epoch, voted=voted)


class Voter:
    """Node 1, whose log ends at offset 20 in epoch 4; node 2 asks for its vote in epoch 5."""

    def __init__(self, kind: RoleKind = RoleKind.UNATTACHED, voted: ReplicaKey | None = None) -> None:
        log = SimpleNamespace(last_epoch=4, end_offset=20)
        self.quorum_state = SimpleNamespace(role=_role(kind, voted=voted), log=log)
        self.config = SimpleNamespace(node_id=1)
        self._answers = VoteAnswers()
        self._there, self._back = _Pipe(), _Pipe()
        watched = self._answers.requests(lambda: self)  # type: ignore[arg-type, return-value]
        watch_answers(self._there, self._back, [watched])  # type: ignore[arg-type]
        self._number = 0

    def reads(self, last_epoch: int, last_offset: int, *, pre_vote: bool = False, epoch: int = 5) -> None:
        """Read the request of a candidate whose log ends there."""
        self._number += 1
        wanted = {
            "partition_index": 0,
            "replica_epoch": epoch,
            "replica_id": 2,
            "last_offset_epoch": last_epoch,
            "last_offset": last_offset,
            "pre_vote": pre_vote,
        }
        fields = {"voter_id": 1, "topics": [{"topic_name": "__cluster_metadata", "partitions": [wanted]}]}
        header = RequestHeader(ApiKey.VOTE, _VERSION, self._number, "c")
        frame = request_frame(header, encode_request(ApiKey.VOTE, _VERSION, fields))
        self._there.on_read(b"".join(bytes(part) for part in frame))

    def answers(self, *, granted: bool, epoch: int = 5, leader: int = -1, code: int = 0) -> None:
        """Answer it, which is judged at once. Raises `InvariantBroken`."""
        row = {
            "partition_index": 0,
            "error_code": code,
            "leader_id": leader,
            "leader_epoch": epoch,
            "vote_granted": granted,
        }
        fields = {"topics": [{"topic_name": "__cluster_metadata", "partitions": [row]}]}
        parts = response_frame(ApiKey.VOTE, _VERSION, self._number, encode_response(ApiKey.VOTE, _VERSION, fields))
        self._back.on_sent(b"".join(bytes(part) for part in parts))
        self._answers.check()


@pytest.mark.parametrize("end", [(4, 20), (4, 21), (5, 3)])
def test_a_voter_refuses_nobody_who_has_as_much(end: tuple[int, int]) -> None:
    """A shorter log of a later epoch is the newer one."""
    voter = Voter()
    voter.reads(*end)
    voter.answers(granted=True)
    voter.reads(*end)
    with pytest.raises(InvariantBroken, match=REFUSED):
        voter.answers(granted=False)


@pytest.mark.parametrize("end", [(4, 19), (3, 30)])
def test_nobody_with_less_gets_the_vote(end: tuple[int, int]) -> None:
    voter = Voter()
    voter.reads(*end)
    voter.answers(granted=False)
    voter.reads(*end)
    with pytest.raises(InvariantBroken, match=GIVEN):
        voter.answers(granted=True)


@pytest.mark.parametrize("kind", [RoleKind.FOLLOWER, RoleKind.LEADER])
@pytest.mark.parametrize("pre_vote", [False, True])
def test_who_follows_or_leads_may_refuse(kind: RoleKind, pre_vote: bool) -> None:
    voter = Voter(kind)
    voter.reads(4, 20, pre_vote=pre_vote)
    voter.answers(granted=False)


def test_other_reasons_to_refuse() -> None:
    """The vote is given, the leader is known, the request is of a former epoch, or an error says why."""
    voter = Voter(voted=ReplicaKey(3))
    voter.reads(4, 20)
    voter.answers(granted=False)
    voter = Voter()
    voter.reads(4, 20)
    voter.answers(granted=False, leader=3)
    voter.reads(4, 20, epoch=4)
    voter.answers(granted=False)
    voter.reads(4, 20)
    voter.answers(granted=False, code=int(ErrorCode.FENCED_LEADER_EPOCH))


def test_a_pre_vote_binds_nothing() -> None:
    """It is not refused because the vote is given, nor by a candidate; a follower may have ended to be one since."""
    for voter in (Voter(voted=ReplicaKey(3)), Voter(RoleKind.CANDIDATE, ReplicaKey(1))):
        voter.reads(4, 20, pre_vote=True)
        with pytest.raises(InvariantBroken, match=REFUSED):
            voter.answers(granted=False)
    voter = Voter(RoleKind.FOLLOWER)
    voter.reads(4, 20, pre_vote=True)
    voter.quorum_state.role = _role(RoleKind.PROSPECTIVE)
    voter.answers(granted=False)
