"""The KRaft quorum of one node, without I/O (KIP-595, pre-vote of KIP-996, check-quorum of KAFKA-15489, KIP-853).

The driver hands in events with the time (`now_ms`, monotonic milliseconds): requests of other nodes, replies to this
node's requests, their failures, a finished fsync, a timer. After each event it takes the `Effects` and carries them out
in their order. The log is a port that the quorum appends to and truncates; the quorum learns what is *durable* in it
by `on_flushed`.

All safety rests on two rules. The epoch and the vote are on disk before anything that follows from them leaves the
node. An offset counts towards the high watermark only when it is on the disk of the replica that claims it.

`Quorum` checks a request's cluster, addressee and epoch and hands the event to the role, which decides
(`roles/leader.py`, `roles/follower.py`, ...). The state that outlives a role is in `quorum_state.py`. The high
watermark advances in `high_watermark.py`; an election is won in `roles/candidate.py`, by the count of
`roles/epoch_election.py`; the vote is made durable by `driver/quorum_state_store.py`.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from ...runtime.invariants import sometimes
from ...wire.errors import ErrorCode
from ..messages.messages import (
    BeginQuorumEpoch,
    ChangeReply,
    EndQuorumEpoch,
    EpochReply,
    Fetch,
    FetchReply,
    FetchSnapshot,
    Outgoing,
    ProbeReply,
    ProbeVoter,
    Reply,
    SnapshotReply,
    UpdateVoter,
    Vote,
    VoterChange,
    VoteReply,
)
from ..replication.raft_log import RaftLog
from ..types import EPOCH_JUMP_MAX, EPOCH_MAX, ElectionState, ReplicaKey
from .config import RaftConfig
from .effects import Effects, FailureKind
from .quorum_state import QuorumState

NO_RECEIVER = ReplicaKey(-1)
"""The addressee of a request that names none."""


def cluster_error(config: RaftConfig, cluster_id: str | None) -> ErrorCode:
    """INCONSISTENT_CLUSTER_ID for a request of another cluster; a sender need not name its cluster."""
    return ErrorCode.NONE if cluster_id in (None, config.cluster_id) else ErrorCode.INCONSISTENT_CLUSTER_ID


def receiver_error(config: RaftConfig, cluster_id: str | None, receiver: ReplicaKey) -> ErrorCode:
    """What is wrong with the cluster and the addressee of a request to a voter; a negative id names no addressee.

    Sender and receiver need not be voters as far as this node knows. Its log may be behind the sender's, and a voter
    that does not know yet that it is one must vote, or the change that made it a voter could never be committed
    (KIP-853, "Vote").
    """
    error = cluster_error(config, cluster_id)
    is_mistaken = receiver.id >= 0 and not receiver.matches(config.own_key)
    sometimes(is_mistaken, "a request reached a voter that had come back with another directory")
    return ErrorCode.INVALID_VOTER_KEY if error is ErrorCode.NONE and is_mistaken else error


class Quorum:
    """Takes the events of one node's quorum. See the module's text for the contract with the driver."""

    def __init__(self, config: RaftConfig, log: RaftLog, state: ElectionState, rng: random.Random) -> None:
        """`state` is what the quorum-state file holds."""
        self.state = QuorumState(config, log, state, rng)
        """For the driver to look at; only events change it."""

    def take_effects(self) -> Effects:
        """The effects of all events since the last call."""
        return self.state.take_effects()

    # ---- this node ---------------------------------------------------------------------------------------------------

    def start(self, now_ms: int) -> None:
        """Begin: a lone voter leads at once, other voters wait a moment, observers look for the leader."""
        state = self.state
        if state.is_voter and len(state.voters.voters) == 1:
            state.transition_to_prospective(now_ms)
            return
        unattached = state.transition_to_unattached(state.epoch, now_ms)
        if not state.may_stand:
            unattached.find_leader(now_ms)

    def next_deadline_ms(self) -> int | None:
        """When `on_timer` is due; None when nothing is waited for."""
        return self.state.role.next_deadline_ms()

    def on_timer(self, now_ms: int) -> None:
        """The time of `next_deadline_ms` has come; an early call does nothing."""
        self.state.role.on_timer(now_ms)

    def on_flushed(self, now_ms: int) -> None:
        """`log.durable_offset` has moved."""
        self.state.role.on_flushed(now_ms)

    def append(self, records: Sequence[bytes], epoch: int) -> int:
        """Append one batch as the leader of `epoch`; returns its last offset.

        Call `complete_delayed_fetches` soon after it. Raises `NotLeaderError`.
        """
        return self.state.role.append(records, epoch)

    def complete_delayed_fetches(self, now_ms: int) -> None:
        """Answer the fetches for which there is something new; to be called once after a burst of appends."""
        self.state.role.complete_delayed_fetches(now_ms)

    def upgrade_kraft_version(self, epoch: int, level: int, *, validate_only: bool) -> None:
        """Finalize `kraft.version` `level` as the leader of `epoch`: the static voters are recorded in the log.

        Raises `NotLeaderError`, and `ProtocolError` with the reason why it cannot be done.
        """
        self.state.role.upgrade_kraft_version(epoch, level, validate_only=validate_only)

    def resign(self, now_ms: int) -> None:
        """Give up leadership, where this node has it."""
        self.state.role.resign(now_ms)

    # ---- requests of other nodes -------------------------------------------------------------------------------------

    def on_vote(self, vote: Vote, now_ms: int) -> VoteReply:
        """A vote or pre-vote is asked for. The reply may leave only after the effects' election state is on disk."""
        state = self.state
        error = self._check_receiver(vote.cluster_id, vote.voter, vote.epoch)
        if error is not ErrorCode.NONE:
            return state.vote_reply(error, granted=False)
        if vote.epoch > state.epoch:
            sometimes(state.role.as_leader() is not None, "a leading controller was asked for a vote of a later epoch")
            state.transition_to_unattached(vote.epoch, now_ms)
        granted = state.role.on_vote(vote, now_ms)
        return state.vote_reply(ErrorCode.NONE, granted=granted)

    def on_begin_quorum_epoch(self, begin: BeginQuorumEpoch, now_ms: int) -> EpochReply:
        """A leader makes itself known."""
        state = self.state
        error = self._check_receiver(begin.cluster_id, begin.voter, begin.epoch)
        if error is not ErrorCode.NONE:
            return state.epoch_reply(error)
        if self._has_other_leader(begin.epoch, begin.leader_id):
            sometimes(True, "a voter was told of two leaders of one epoch")
            return state.epoch_reply(ErrorCode.INVALID_REQUEST)
        state.maybe_transition(begin.epoch, begin.leader_id, begin.leader_endpoint, now_ms)
        state.role.on_begin_quorum_epoch(now_ms)
        return state.epoch_reply(ErrorCode.NONE)

    def on_end_quorum_epoch(self, end: EndQuorumEpoch, now_ms: int) -> EpochReply:
        """A leader resigned."""
        state = self.state
        error = self._check_receiver(end.cluster_id, NO_RECEIVER, end.epoch)
        if error is not ErrorCode.NONE:
            return state.epoch_reply(error)
        if self._has_other_leader(end.epoch, end.leader_id):
            return state.epoch_reply(ErrorCode.INVALID_REQUEST)
        state.maybe_transition(end.epoch, end.leader_id, end.leader_endpoint, now_ms)
        state.role.on_end_quorum_epoch(end, now_ms)
        return state.epoch_reply(ErrorCode.NONE)

    def on_fetch(self, token: int, fetch: Fetch, now_ms: int) -> None:
        """A replica fetches; the answer goes to the effects, now or later, under `token`."""
        error = self._check_epoch(fetch.cluster_id, fetch.epoch)
        if error is ErrorCode.NONE:
            self.state.role.on_fetch(token, fetch, now_ms)
        else:
            self.state.refuse_fetch(token, error)

    def on_fetch_snapshot(self, request: FetchSnapshot, now_ms: int) -> SnapshotReply:
        """A replica fetches a part of a snapshot."""
        error = self._check_epoch(request.cluster_id, request.epoch)
        if error is ErrorCode.NONE:
            return self.state.role.on_fetch_snapshot(request, now_ms)
        return self.state.refused_snapshot(error)

    def on_voter_change(self, token: int, request: VoterChange, now_ms: int) -> None:
        """A voter shall be added, removed or updated; the answer goes to the effects, now or later, under `token`."""
        if isinstance(request, UpdateVoter):
            error = self._check_epoch(request.cluster_id, request.epoch)
        else:
            error = cluster_error(self.state.config, request.cluster_id)
        if error is ErrorCode.NONE:
            self.state.role.on_voter_change(token, request, now_ms)
        else:
            self.state.answer_voter_change(token, error)

    def _check_receiver(self, cluster_id: str | None, receiver: ReplicaKey, epoch: int) -> ErrorCode:
        """What is wrong with a request between voters, which may be of a newer epoch."""
        error = receiver_error(self.state.config, cluster_id, receiver)
        if error is not ErrorCode.NONE:
            return error
        if epoch < self.state.epoch:
            sometimes(True, "a voter refused a request of a former epoch")
            return ErrorCode.FENCED_LEADER_EPOCH
        return ErrorCode.INVALID_REQUEST if epoch > min(self.state.epoch + EPOCH_JUMP_MAX, EPOCH_MAX) else error

    def _has_other_leader(self, epoch: int, leader_id: int) -> bool:
        """Whether a request names a leader of this node's epoch that is not the known one."""
        return epoch == self.state.epoch and self.state.role.leader_id not in (None, leader_id)

    def _check_epoch(self, cluster_id: str | None, epoch: int) -> ErrorCode:
        """What is wrong with a request to the leader of an epoch, which must be the one that this node knows."""
        error = cluster_error(self.state.config, cluster_id)
        if error is not ErrorCode.NONE or epoch == self.state.epoch:
            return error
        sometimes(epoch < self.state.epoch, "a replica fetched metadata in a former quorum epoch")
        sometimes(epoch > self.state.epoch, "a replica knew of a later quorum epoch than the node that it fetched from")
        return ErrorCode.FENCED_LEADER_EPOCH if epoch < self.state.epoch else ErrorCode.UNKNOWN_LEADER_EPOCH

    # ---- what became of this node's requests -------------------------------------------------------------------------

    def on_reply(self, sent: Outgoing, reply: Reply, now_ms: int) -> None:
        """The reply to a request of this node."""
        state, request = self.state, sent.request
        if not isinstance(reply, ProbeReply) and reply.epoch > EPOCH_MAX:
            self.on_failure(sent, FailureKind.LOST, now_ms)
            return
        match reply:
            case FetchReply():
                state.role.on_fetch_reply(sent, reply, now_ms)
            case SnapshotReply():
                if isinstance(request, FetchSnapshot):
                    state.role.on_snapshot_reply(sent, request, reply, now_ms)
            case ProbeReply():
                state.role.on_probe_reply(sent, reply, now_ms)
            case ChangeReply():
                state.role.on_change_reply(sent, reply)
            case VoteReply():
                state.maybe_transition(reply.epoch, reply.leader_id, reply.leader_endpoint, now_ms)
                state.role.on_vote_reply(sent, reply, now_ms)
            case EpochReply():
                state.maybe_transition(reply.epoch, reply.leader_id, reply.leader_endpoint, now_ms)
                if isinstance(request, BeginQuorumEpoch):
                    state.role.on_begin_quorum_epoch_ended(sent, now_ms)

    def on_failure(self, sent: Outgoing, kind: FailureKind, now_ms: int) -> None:
        """A request of this node got no reply."""
        role, request = self.state.role, sent.request
        match request:
            case Fetch() | FetchSnapshot():
                role.on_fetch_failure(sent, kind, now_ms)
            case Vote():
                role.on_vote_failure(sent, now_ms)
            case ProbeVoter():
                role.on_probe_reply(sent, None, now_ms)
            case BeginQuorumEpoch():
                role.on_begin_quorum_epoch_ended(sent, now_ms)
            case EndQuorumEpoch():
                role.on_end_quorum_epoch_failure(sent)
            case _:
                role.on_change_reply(sent, None)
