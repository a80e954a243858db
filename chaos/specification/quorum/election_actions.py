"""The actions of elections: RequestVote, HandleRequestVoteRequest, BecomeLeader, AcceptBeginQuorumRequest and others.

The names are those of the specification. Actions that it does not have are named after their KIP: a node asks for
pre-votes before it raises the epoch (KIP-996), and a leader that no majority fetches from resigns (KIP-595,
KAFKA-15489).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ....raft.quorum.majority import majority_size
from ....raft.types import ReplicaKey, RoleKind
from ..step_search import Action, Proposal, violated
from .quorum_history import QuorumHistory
from .replica_state import ReplicaState

Proposals = Iterator[Proposal[ReplicaState]]
_GIVEN_UP = {
    RoleKind.FOLLOWER: "FetchTimeout",
    RoleKind.PROSPECTIVE: "LosePreVote (KIP-996)",
    RoleKind.CANDIDATE: "LoseElection",
    RoleKind.RESIGNED: "ElectionTimeout of a resigned leader",
}


class ElectionActions:
    """Changes of the role, the epoch and the vote of one replica."""

    def __init__(self, history: QuorumHistory) -> None:
        self._history = history

    @property
    def actions(self) -> list[Action[ReplicaState]]:
        """All of them."""
        return [
            self.request_pre_vote,
            self.request_vote,
            self.handle_request_vote_request,
            self.become_leader,
            self.become_unattached,
            self.become_follower,
            self.resign,
            self.give_up,
        ]

    def request_pre_vote(self, now: ReplicaState, after: ReplicaState) -> Proposals:
        """RequestPreVote (KIP-996): nothing changes but the role."""
        failed = violated(
            (
                now.role in (RoleKind.UNATTACHED, RoleKind.FOLLOWER),
                f"the node is {now.role.value}",
            ),
            (now.may_stand, f"{now.key.id} is not among the voters {now.voters} of its log"),
        )
        yield Proposal("RequestPreVote (KIP-996)", replace(now, role=RoleKind.PROSPECTIVE), failed)

    def request_vote(self, now: ReplicaState, after: ReplicaState) -> Proposals:
        """RequestVote: raise the epoch by one, and vote for oneself."""
        if after.epoch <= now.epoch:
            return
        is_alone = len(now.voters.voters) == 1
        asked = now.key in self._history.of(now.epoch).prospective
        failed = violated(
            (now.role is RoleKind.PROSPECTIVE, f"the node is {now.role.value}, not prospective"),
            (is_alone or asked, "no voter can have answered its pre-votes within the same event"),
            (now.may_stand, f"{now.key.id} is not among the voters {now.voters} of its log"),
        )
        stands = replace(now, role=RoleKind.CANDIDATE, epoch=now.epoch + 1, leader=None, voted_for=now.key)
        yield Proposal("RequestVote", stands, failed)

    def handle_request_vote_request(self, now: ReplicaState, after: ReplicaState) -> Proposals:
        """HandleRequestVoteRequest: grant a vote. A pre-vote changes nothing, and neither does a refused vote."""
        candidate = after.voted_for
        if candidate is None or candidate == now.key or now.voted_for == candidate:
            return
        standing = [
            position for key, position in self._history.of(now.epoch).candidates.items() if candidate.matches(key)
        ]
        failed = violated(
            (now.voted_for is None, f"its vote in epoch {now.epoch} belongs to {_name(now.voted_for)}"),
            (now.leader is None, f"epoch {now.epoch} is led by {now.leader}"),
            (now.role in (RoleKind.UNATTACHED, RoleKind.PROSPECTIVE), f"the node is {now.role.value}"),
            (bool(standing), f"{candidate.id} does not stand for election in epoch {now.epoch}"),
            (
                max(standing, default=(0, 0)) >= now.log_position,
                f"the log of {candidate.id} ends at (epoch, offset) {max(standing, default=None)}, "
                f"the voter's own at {now.log_position}",
            ),
        )
        granted = replace(now, role=RoleKind.UNATTACHED, voted_for=candidate)
        yield Proposal("HandleRequestVoteRequest", granted, failed)

    def become_leader(self, now: ReplicaState, after: ReplicaState) -> Proposals:
        """BecomeLeader: a majority of the voters of its log has voted for it."""
        epoch = self._history.of(now.epoch)
        votes = {**epoch.votes, now.key: now.voted_for}
        voters = now.voters.keys
        granting = [voter.id for voter in voters if _has_vote(voter, votes, now.key)]
        failed = violated(
            (now.role is RoleKind.CANDIDATE, f"the node is {now.role.value}, not a candidate"),
            (
                len(granting) >= majority_size(len(voters)),
                f"of the voters {now.voters} only {granting} voted for it in epoch {now.epoch}",
            ),
            (epoch.leader in (None, now.key.id), f"epoch {now.epoch} is led by {epoch.leader}"),
            (now.log.epoch < now.epoch, f"its log has entries of epoch {now.log.epoch}"),
        )
        yield Proposal("BecomeLeader", replace(now, role=RoleKind.LEADER, leader=now.key.id), failed)

    def become_unattached(self, now: ReplicaState, after: ReplicaState) -> Proposals:
        """TransitionToUnattached: a message had a later epoch, which some candidate has begun."""
        for epoch in sorted({after.epoch - 1, after.epoch}):
            if epoch <= now.epoch:
                continue
            failed = violated((epoch in self._history.epochs, f"nobody has begun epoch {epoch}"))
            unattached = replace(now, role=RoleKind.UNATTACHED, epoch=epoch, leader=None, voted_for=None)
            yield Proposal("TransitionToUnattached", unattached, failed)

    def become_follower(self, now: ReplicaState, after: ReplicaState) -> Proposals:
        """TransitionToFollower: AcceptBeginQuorumRequest, or a reply that names the leader."""
        leader, epoch = after.leader, after.epoch
        if leader is None or epoch < now.epoch:
            return
        is_known, known = epoch == now.epoch, self._history.of(epoch).leader
        failed = violated(
            (known == leader, f"{leader} does not lead epoch {epoch}, but {known}"),
            (leader != now.key.id, "a node does not follow itself"),
            (not is_known or now.leader in (None, leader), f"epoch {epoch} is led by {now.leader}"),
            (not is_known or now.role is not RoleKind.LEADER, "a leader follows nobody in its epoch"),
        )
        voted_for = now.voted_for if is_known else None
        follows = replace(now, role=RoleKind.FOLLOWER, epoch=epoch, leader=leader, voted_for=voted_for)
        yield Proposal("TransitionToFollower", follows, failed)

    def resign(self, now: ReplicaState, after: ReplicaState) -> Proposals:
        """Resign (KIP-595): a leader that shuts down, or that no majority fetches from."""
        if now.role is RoleKind.LEADER:
            yield Proposal("Resign (KIP-595)", replace(now, role=RoleKind.RESIGNED))

    def give_up(self, now: ReplicaState, after: ReplicaState) -> Proposals:
        """A time-out, a lost election or EndQuorumEpoch: what is known of the epoch still binds the node."""
        if now.role in _GIVEN_UP:
            yield Proposal(_GIVEN_UP[now.role], replace(now, role=RoleKind.UNATTACHED))


def _has_vote(voter: ReplicaKey, votes: dict[ReplicaKey, ReplicaKey | None], candidate: ReplicaKey) -> bool:
    given = [vote for key, vote in votes.items() if voter.matches(key)]
    return any(vote is not None and vote.matches(candidate) for vote in given)


def _name(key: ReplicaKey | None) -> str:
    return "nobody" if key is None else str(key.id)
