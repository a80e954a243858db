"""The KRaft quorum of one node, without I/O (KIP-595, pre-vote of KIP-996, check-quorum of KAFKA-15489, KIP-853).

The driver hands in events with the time (`now_ms`, monotonic milliseconds): requests of others, replies to this node's
requests, their failures, a finished fsync, a timer. After each it takes the `Effects` and carries them out in their
order. The log is a port that the quorum appends to and truncates; what is *durable* in it the quorum learns by
`on_flushed`. Two rules carry all safety: the election state is on disk before anything that follows from it leaves the
node, and an offset counts towards the high watermark only when it is on the disk of the replica that claims it.

The class is built in layers, each of which uses those below it only: `core.py` (the role and its changes),
`following.py`, `leading.py`, `elections.py`; this file routes events to them. What the roles remember and whom they
vote for is in `roles/`, waiting times are in `pacing.py`, arithmetic is in `majority.py` and `replication.py`, the
rules for changes of the voters in `voter_changes.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..messages.messages import (
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
    Vote,
    VoterChange,
    VoteReply,
)
from ..roles import Candidate, Follower, Leader, Prospective, Resigned, Unattached
from ..types import NotLeaderError
from .effects import FailureKind
from .elections import Elections


class Quorum(Elections):
    """One node's part in the quorum. See the module's text for the contract with the driver."""

    # ---- events: life of the node ---------------------------------------------------------------------------------

    def start(self, now_ms: int) -> None:
        """Begin: a lone voter leads at once, other voters wait a moment, observers look for the leader."""
        if not self.may_stand:
            self._enter(Unattached(self.epoch, self.role.leader_id, self.role.voted, None, next_fetch_ms=now_ms))
            self._fetch_from_any_voter(now_ms)
        elif self.is_voter and len(self.voters.voters) == 1:
            self._become_prospective(now_ms)
        else:
            self._become_unattached(self.epoch, now_ms)

    def on_timer(self, now_ms: int) -> None:
        """The deadline of `next_deadline_ms` has come (an early call does nothing)."""
        role = self.role
        if isinstance(role, Leader):
            self._on_leader_timer(role, now_ms)
        elif isinstance(role, Follower):
            self._on_follower_timer(role, now_ms)
        elif isinstance(role, Prospective | Candidate):
            if role.deadline_ms <= now_ms:
                self._lose_election(now_ms)
            else:
                self._send_votes(role.ballot.due(now_ms))
        elif isinstance(role, Resigned):
            if role.deadline_ms <= now_ms:
                self._become_unattached(role.epoch, now_ms)
        elif role.deadline_ms is not None and role.deadline_ms <= now_ms:
            self._become_prospective(now_ms)
        else:
            self._fetch_from_any_voter(now_ms)

    def _on_follower_timer(self, role: Follower, now_ms: int) -> None:
        if role.deadline_ms <= now_ms:
            if self.may_stand:
                self._become_prospective(now_ms)
            else:
                self._become_unattached(role.epoch, now_ms)
        elif role.fetch_id is None and role.next_fetch_ms is not None and role.next_fetch_ms <= now_ms:
            self._fetch_next(role, now_ms)

    def on_flushed(self, now_ms: int) -> None:
        """`log.durable_offset` has moved."""
        role = self.role
        if isinstance(role, Leader):
            self._advance_high_watermark(role, now_ms)
        elif isinstance(role, Follower) and role.next_fetch_ms is None:
            self._fetch_next(role, now_ms)

    def append(self, records: Sequence[bytes], epoch: int) -> int:
        """Append one batch as the leader of `epoch`; returns its last offset. Call `serve_parked` soon after."""
        if not isinstance(self.role, Leader) or self.role.epoch != epoch:
            raise NotLeaderError(epoch, self.leader_and_epoch)
        return self.log.append_records(records, epoch)

    # ---- events: answers to this node's requests ------------------------------------------------------------------

    def on_reply(self, sent: Outgoing, reply: Reply, now_ms: int) -> None:
        """The reply to a request of this node."""
        if isinstance(reply, FetchReply):
            self._on_fetch_reply(sent, reply, now_ms)
        elif isinstance(reply, SnapshotReply):
            if isinstance(sent.request, FetchSnapshot):
                self._on_snapshot_reply(sent, sent.request, reply, now_ms)
        elif isinstance(reply, ProbeReply):
            self._on_probed(sent, reply, now_ms)
        elif isinstance(reply, ChangeReply):
            self._on_own_change(sent, reply)
        else:
            self._observe(reply.epoch, reply.leader_id, reply.leader_endpoint, now_ms)
            self._on_election_reply(sent, reply, now_ms)

    def _on_election_reply(self, sent: Outgoing, reply: VoteReply | EpochReply, now_ms: int) -> None:
        role = self.role
        if isinstance(reply, VoteReply):
            if isinstance(role, Prospective | Candidate) and self._belongs_to_round(sent.request):
                self._count_vote(role, sent.to, reply, now_ms)
        elif isinstance(role, Resigned) and isinstance(sent.request, EndQuorumEpoch) and sent.to in role.unacknowledged:
            role.unacknowledged.remove(sent.to)
            role.is_heard = True

    def on_failure(self, sent: Outgoing, kind: FailureKind, now_ms: int) -> None:
        """A request of this node got no reply."""
        role = self.role
        if isinstance(sent.request, Fetch | FetchSnapshot):
            self._on_fetch_failure(sent, kind, now_ms)
        elif isinstance(sent.request, Vote):
            if isinstance(role, Prospective | Candidate) and self._belongs_to_round(sent.request):
                role.ballot.resend_at[sent.to] = now_ms + self._timing.retry_backoff_ms
        elif isinstance(sent.request, ProbeVoter):
            self._on_probed(sent, None, now_ms)
        elif isinstance(sent.request, VoterChange):
            self._on_own_change(sent, None)
        elif isinstance(role, Resigned) and sent.to in role.unacknowledged:
            role.unacknowledged.remove(sent.to)
