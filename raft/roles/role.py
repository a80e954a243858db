"""What every role has in common: the events of the quorum, and what they do where a role does not say otherwise."""

# ruff: noqa: B027 - an event that means nothing to a role has an empty method here

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from ...runtime.invariants import sometimes
from ...wire.errors import ErrorCode
from ..messages.messages import (
    ChangeReply,
    EndQuorumEpoch,
    Fetch,
    FetchReply,
    FetchSnapshot,
    Outgoing,
    ProbeReply,
    SnapshotReply,
    Vote,
    VoterChange,
    VoteReply,
)
from ..quorum.effects import FailureKind
from ..types import NotLeaderError, ReplicaKey, RoleKind
from ..voters.voter_set import VoterEndpoint

if TYPE_CHECKING:
    from ..quorum.quorum_state import QuorumState
    from .leader import Leader


class ActiveLeader(NamedTuple):
    """A leader that works, and where its controller listener is; both None where none is known."""

    id: int | None
    endpoint: VoterEndpoint | None


NO_LEADER = ActiveLeader(None, None)


class Role(ABC):
    """A node's role in one epoch. It decides what an event does, and asks `quorum` for all that outlives it.

    Events of the epoch and requests with an older or newer epoch have been sorted out before (`Quorum`). A reply may
    belong to a request of an earlier role: each role looks whether it waits for it. Times are in milliseconds of the
    monotonic clock.
    """

    kind: ClassVar[RoleKind]
    quorum: QuorumState
    epoch: int
    leader_id: int | None
    """The leader that the epoch has, or is known to have had; None while it is unknown."""
    voted: ReplicaKey | None
    """The replica that has this node's vote in the epoch."""

    # ---- what others may ask -----------------------------------------------------------------------------------------

    @property
    def active_leader(self) -> ActiveLeader:
        """The leader while this node follows it or is it."""
        return NO_LEADER

    @property
    def leader_to_name(self) -> ActiveLeader:
        """The leader that replies to other nodes name."""
        return self.active_leader

    @property
    def awaits_successor(self) -> bool:
        """Whether this node resigned as the leader and another voter may still take over because of that."""
        return False

    def as_leader(self) -> Leader | None:
        """This role if it is the leader's."""
        return None

    @abstractmethod
    def next_deadline_ms(self) -> int | None:
        """When `on_timer` is due; None for never."""

    # ---- changes of role ---------------------------------------------------------------------------------------------

    def on_entered(self, now_ms: int) -> None:
        """The node has this role from now on."""

    def on_left(self) -> None:
        """The node has another role now, which `quorum` knows already."""

    def on_leader_discovered(self, leader_id: int, endpoint: VoterEndpoint, now_ms: int) -> None:
        """The epoch of this role has a leader, and it is not this node."""
        self.quorum.transition_to_follower(self.epoch, leader_id, endpoint, now_ms)

    # ---- time and disk -----------------------------------------------------------------------------------------------

    @abstractmethod
    def on_timer(self, now_ms: int) -> None:
        """The time of `next_deadline_ms` has come; an early call does nothing."""

    def on_flushed(self, now_ms: int) -> None:
        """More of the log is durable."""

    # ---- requests of other nodes -------------------------------------------------------------------------------------

    @abstractmethod
    def can_grant(self, vote: Vote, log_is_up_to_date: bool, now_ms: int) -> bool:
        """Whether the candidate gets the vote or pre-vote that it asks for in this epoch."""

    def on_vote(self, vote: Vote, now_ms: int) -> bool:
        """Vote, and return whether the vote is granted. A granted pre-vote binds nothing (KIP-996)."""
        log = self.quorum.log
        log_is_up_to_date = (vote.last_epoch, vote.last_offset) >= (log.last_epoch, log.end_offset)
        granted = self.can_grant(vote, log_is_up_to_date, now_ms)
        sometimes(not log_is_up_to_date, "a vote was refused to a node with a shorter metadata log")
        sometimes(
            not granted and log_is_up_to_date and vote.pre_vote,
            "a pre-vote was refused because the leader seemed to be alive",
        )
        sometimes(not granted and log_is_up_to_date and not vote.pre_vote, "a vote was refused because it was given")
        sometimes(
            granted and not vote.pre_vote and self.voted is not None,
            "a voter gave its vote to the same candidate again",
        )
        if granted and vote.pre_vote:
            self.on_pre_vote_granted(now_ms)
        elif granted and self.voted is None:
            self.quorum.transition_to_unattached(vote.epoch, now_ms, voted=vote.candidate)
        return granted

    def on_pre_vote_granted(self, now_ms: int) -> None:
        """Another node has this node's pre-vote and is about to stand for election."""

    def on_begin_quorum_epoch(self, now_ms: int) -> None:
        """The leader of the epoch made itself known."""

    def on_end_quorum_epoch(self, end: EndQuorumEpoch, now_ms: int) -> None:
        """The leader of the epoch resigned."""

    def on_fetch(self, token: int, fetch: Fetch, now_ms: int) -> None:
        """A replica fetches in this epoch; the answer goes to the effects, now or later, under `token`."""
        sometimes(True, "a replica fetched metadata from a node that does not lead the quorum")
        self.quorum.refuse_fetch(token, ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def on_fetch_snapshot(self, request: FetchSnapshot, now_ms: int) -> SnapshotReply:
        """A replica fetches a part of a snapshot in this epoch."""
        return self.quorum.refused_snapshot(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def on_voter_change(self, token: int, request: VoterChange, now_ms: int) -> None:
        """A voter shall be added, removed or updated; the answer goes to the effects, now or later, under `token`."""
        self.quorum.answer_voter_change(token, ErrorCode.NOT_LEADER_OR_FOLLOWER)

    # ---- replies to requests of this node ----------------------------------------------------------------------------

    def on_vote_reply(self, sent: Outgoing, reply: VoteReply, now_ms: int) -> None:
        """A voter has answered a vote or pre-vote."""

    def on_vote_failure(self, sent: Outgoing, now_ms: int) -> None:
        """A voter has not answered a vote or pre-vote."""

    def on_end_quorum_epoch_failure(self, sent: Outgoing) -> None:
        """A voter did not answer EndQuorumEpoch."""

    def on_begin_quorum_epoch_ended(self, sent: Outgoing, now_ms: int) -> None:
        """A voter has answered BeginQuorumEpoch, or the request has failed."""

    def on_fetch_reply(self, sent: Outgoing, reply: FetchReply, now_ms: int) -> None:
        """The leader, or a node that was taken for it, has answered a fetch."""

    def on_snapshot_reply(self, sent: Outgoing, request: FetchSnapshot, reply: SnapshotReply, now_ms: int) -> None:
        """The leader has sent a part of a snapshot, or refused to."""

    def on_fetch_failure(self, sent: Outgoing, kind: FailureKind, now_ms: int) -> None:
        """A fetch, of the log or of a snapshot, got no answer."""

    def on_probe_reply(self, sent: Outgoing, reply: ProbeReply | None, now_ms: int) -> None:
        """A future voter has answered with the versions that it supports; None when it did not answer."""

    def on_change_reply(self, sent: Outgoing, reply: ChangeReply | None) -> None:
        """The leader has answered this node's request for a change of the voters; None when it did not."""

    # ---- what only a leader does -------------------------------------------------------------------------------------

    def append(self, records: Sequence[bytes], epoch: int) -> int:
        """Append one batch as the leader of `epoch`; returns its last offset. Raises `NotLeaderError`."""
        sometimes(True, "metadata records were refused because the node led the quorum no more")
        raise NotLeaderError(epoch, self.quorum.leader_and_epoch)

    def upgrade_kraft_version(self, epoch: int, level: int, *, validate_only: bool) -> None:
        """Finalize `kraft.version` as the leader of `epoch`. Raises `NotLeaderError`, and `ProtocolError`."""
        raise NotLeaderError(epoch, self.quorum.leader_and_epoch)

    def complete_delayed_fetches(self, now_ms: int) -> None:
        """Answer the fetches that waited for what has happened since."""

    def resign(self, now_ms: int) -> None:
        """Give up leadership, where this node has it."""
