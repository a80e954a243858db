"""How voters answer who asks for a vote, found in the bytes of the simulated connections.

A voter that refuses its vote without a reason loses no record, but no leader may be elected where few voters are left:
"a vote is refused for a reason". The reasons are those of KIP-595 and KIP-996: the log of the voter reaches further, by
its last epoch first; the vote is given; the leader is known; or the request is of a former epoch. A voter that grants
its vote must have nothing that the candidate lacks: "a vote is given to who has all that its voter has". The voter's
log is looked up when it reads the request.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .....raft.driver.raft_driver import RaftDriver
from .....raft.roles import Role
from .....raft.types import RoleKind
from .....wire.api_keys import ApiKey
from .....wire.codec import Struct, decode_request
from .....wire.frames import RequestHeader
from ..invariant_broken import InvariantBroken
from .answered_requests import AnsweredRequests, decoded

_MAY_VOTE = (RoleKind.UNATTACHED, RoleKind.PROSPECTIVE)
_MAY_PRE_VOTE = (*_MAY_VOTE, RoleKind.CANDIDATE, RoleKind.RESIGNED)


@dataclass(frozen=True, slots=True)
class _Asked:
    """A request for a vote, and the voter when it read it: its role, and the last epoch and the end of its log."""

    version: int
    wanted: Struct
    voter: RaftDriver
    voters_role: Role
    voters_end: tuple[int, int]

    @property
    def candidates_end(self) -> tuple[int, int]:
        return self.wanted.last_offset_epoch, self.wanted.last_offset


class VoteAnswers:
    """Watches the connections to controllers, and judges their answers to Vote requests."""

    def __init__(self) -> None:
        self._answered: list[tuple[_Asked, bytes]] = []
        """What was answered and is not judged yet."""

    def requests(self, voter: Callable[[], RaftDriver | None]) -> AnsweredRequests[_Asked]:
        """What watches one connection to a controller; `voter` gives its quorum while it runs."""
        return AnsweredRequests(
            {ApiKey.VOTE},
            lambda header, frame, body_at: _asked(voter(), header, frame, body_at),
            lambda asked, frame: self._answered.append((asked, frame)),
        )

    def forget(self) -> None:
        """A process has ended in the midst of an event: what it has just answered is not judged."""
        self._answered.clear()

    def check(self) -> None:
        """Judge what was answered in the event that has just run. Raises `InvariantBroken`."""
        answered, self._answered = self._answered, []
        for asked, frame in answered:
            response = decoded(ApiKey.VOTE, asked.version, frame)
            if not response.error_code and not response.topics[0].partitions[0].error_code:
                _judge(asked, response.topics[0].partitions[0])


def _asked(voter: RaftDriver | None, header: RequestHeader, frame: bytes, body_at: int) -> _Asked | None:
    if voter is None:
        return None
    wanted = decode_request(header.api_key, header.api_version, frame, body_at).topics[0].partitions[0]
    quorum = voter.quorum_state
    return _Asked(header.api_version, wanted, voter, quorum.role, (quorum.log.last_epoch, quorum.log.end_offset))


def _judge(asked: _Asked, answer: Struct) -> None:
    wanted, role = asked.wanted, asked.voter.quorum_state.role
    ends = f"{wanted.replica_id} has {asked.candidates_end}, node {asked.voter.config.node_id} has {asked.voters_end}"
    is_up_to_date = asked.candidates_end >= asked.voters_end
    if answer.vote_granted:
        if not is_up_to_date:
            raise InvariantBroken("a vote is given to who has all that its voter has", ends)
        return
    is_pre_vote = wanted.get("pre_vote", False)
    has_given_vote = not is_pre_vote and role.voted is not None
    knows_leader = not is_pre_vote and answer.leader_id >= 0
    is_former_epoch = wanted.replica_epoch != answer.leader_epoch or wanted.replica_epoch != role.epoch
    if is_former_epoch or has_given_vote or knows_leader or not is_up_to_date:
        return
    may_grant = _MAY_PRE_VOTE if is_pre_vote else _MAY_VOTE
    roles = [one for one in (asked.voters_role, role) if one.epoch == wanted.replica_epoch]  # it may have changed since
    if all(one.kind in may_grant for one in roles):
        raise InvariantBroken("a vote is refused for a reason", f"as {role.kind.value} of epoch {role.epoch}: {ends}")
