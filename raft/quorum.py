"""The KRaft quorum of one node, without I/O (KIP-595, pre-vote of KIP-996, check-quorum of KAFKA-15489).

The driver hands in events with the time (`now_ms`, monotonic milliseconds): requests of others, replies to this node's
requests, their failures, a finished fsync, a timer. After each it takes the `Effects` and carries them out in their
order. The log is a port that the quorum appends to and truncates; what is *durable* in it the quorum learns by
`on_flushed`. Two rules carry all safety: the election state is on disk before anything that follows from it leaves the
node, and an offset counts towards the high watermark only when it is on the disk of the replica that claims it.

What the roles remember and whom they vote for is in `roles/`, waiting times are in `pacing.py`, arithmetic is in
`majority.py` and `replication.py`; this file routes events and changes roles.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from ..log.errors import StorageError
from ..runtime.invariants import invariant
from ..wire.errors import ErrorCode, ProtocolError
from . import requests
from .config import RaftConfig
from .effects import Effects, FailureKind
from .log_port import RaftLog
from .majority import next_high_watermark
from .messages import (
    BeginQuorumEpoch,
    EndQuorumEpoch,
    EpochReply,
    Fetch,
    FetchReply,
    FetchSnapshot,
    Outgoing,
    Reply,
    Request,
    SnapshotReply,
    Vote,
    VoteReply,
)
from .pacing import Pacing
from .replication import divergence, needs_snapshot, truncation_offset
from .roles import Candidate, Follower, Leader, Prospective, Resigned, Role, Unattached
from .roles.ballot import Ballot
from .roles.follower import Download
from .roles.leader import ParkedFetch, ReplicaProgress
from .serving import fetch_answer, snapshot_answer
from .transitions import is_legal
from .types import ElectionState, LeaderAndEpoch, NotLeaderError, ReplicaKey


class Quorum:
    """One node's part in the quorum. See the module's text for the contract with the driver."""

    def __init__(self, config: RaftConfig, log: RaftLog, state: ElectionState, rng: random.Random) -> None:
        self.config = config
        self.log = log
        snapshot = log.latest_snapshot
        self.high_watermark: int | None = None if snapshot is None else snapshot.end_offset
        self.is_high_watermark_current = False
        """Whether the leader told it, or this node leads and has committed, since the start: it was out of date."""
        self.role: Role
        self._timing = config.timing
        self._pacing = Pacing(config, rng)
        self._own_key = requests.own_key(config)
        self._effects = Effects()
        self._persisted = state
        self._last_request_id = 0
        self._next_contact = rng.randrange(len(config.voters))
        if log.last_epoch > state.epoch:
            state = ElectionState(epoch=log.last_epoch)
        self.role = Unattached(state.epoch, state.leader_id, state.voted, None)
        self._persist()

    # ---- what others may know -------------------------------------------------------------------------------------

    @property
    def epoch(self) -> int:
        return self.role.epoch

    @property
    def leader_and_epoch(self) -> LeaderAndEpoch:
        """The leader while it is followed or is this node; a leader given up is not named any more."""
        role = self.role
        return LeaderAndEpoch(role.leader_id if isinstance(role, Follower | Leader) else None, role.epoch)

    def take_effects(self) -> Effects:
        """The effects of all events since the last call."""
        effects, self._effects = self._effects, Effects()
        return effects

    def next_deadline_ms(self) -> int | None:
        """When `on_timer` is due; None when nothing is waited for."""
        return self.role.next_deadline_ms()

    # ---- events: life of the node ---------------------------------------------------------------------------------

    def start(self, now_ms: int) -> None:
        """Begin: a lone voter leads at once, other voters wait a moment, observers look for the leader."""
        if self.config.voter_ids == [self.config.node_id]:
            self._become_prospective(now_ms)
        elif self.config.is_voter:
            self._become_unattached(self.epoch, now_ms)
        else:
            self._enter(Unattached(self.epoch, self.role.leader_id, None, None, next_fetch_ms=now_ms))
            self._fetch_from_any_voter(now_ms)

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
                for voter in role.ballot.due(now_ms):
                    self._send_vote(voter)
        elif isinstance(role, Resigned):
            if role.deadline_ms <= now_ms:
                self._become_unattached(role.epoch, now_ms)
        elif role.deadline_ms is not None and role.deadline_ms <= now_ms:
            self._become_prospective(now_ms)
        else:
            self._fetch_from_any_voter(now_ms)

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

    def resign(self, now_ms: int) -> None:
        """Give up leadership, naming the voters with the longest logs as successors. Not leading, do nothing."""
        role = self.role
        if not isinstance(role, Leader):
            return
        successors = sorted(role.peers, key=lambda voter: (-role.peers[voter].end_offset, voter))
        deadline_ms = now_ms + self._pacing.election_timeout_ms()
        self._enter(Resigned(role.epoch, role.leader_id, role.voted, deadline_ms, self.config.peers))
        for voter in self.config.peers:
            self._send(voter, requests.end_quorum_epoch(self.config, role.epoch, successors))

    # ---- events: requests of others -------------------------------------------------------------------------------

    def on_vote(self, vote: Vote, now_ms: int) -> VoteReply:
        """A vote or pre-vote is asked for. The reply may leave only after the effects' election state is on disk."""
        error = self._check_sender(vote.cluster_id, vote.voter_id, vote.candidate.id, vote.epoch)
        if error is not ErrorCode.NONE:
            return self._vote_reply(error, granted=False)
        if vote.epoch > self.epoch:
            self._become_unattached(vote.epoch, now_ms)
        log_is_up_to_date = (vote.last_epoch, vote.last_offset) >= (self.log.last_epoch, self.log.end_offset)
        granted = self.role.can_grant(vote, log_is_up_to_date, now_ms)
        if granted and vote.pre_vote:
            self._let_other_go_ahead(now_ms)
        elif granted and self.role.voted is None:
            self._become_unattached(vote.epoch, now_ms, voted=vote.candidate)
        return self._vote_reply(ErrorCode.NONE, granted=granted)

    def on_begin_quorum_epoch(self, begin: BeginQuorumEpoch, now_ms: int) -> EpochReply:
        """A leader announces itself."""
        error = self._check_sender(begin.cluster_id, begin.voter_id, begin.leader_id, begin.epoch)
        if error is ErrorCode.NONE and begin.epoch == self.epoch and self.role.leader_id not in (None, begin.leader_id):
            error = ErrorCode.INVALID_REQUEST
        if error is ErrorCode.NONE:
            self._observe(begin.epoch, begin.leader_id, now_ms)
            if isinstance(self.role, Follower):
                self._trust_leader(self.role, now_ms)
        return self._epoch_reply(error)

    def on_end_quorum_epoch(self, end: EndQuorumEpoch, now_ms: int) -> EpochReply:
        """The leader resigned: its preferred successors stand for election in their order."""
        error = self._check_sender(end.cluster_id, -1, end.leader_id, end.epoch)
        if error is not ErrorCode.NONE:
            return self._epoch_reply(error)
        self._observe(end.epoch, end.leader_id, now_ms)
        if isinstance(self.role, Follower):
            successors = end.preferred_successors
            own_id = self.config.node_id
            place = successors.index(own_id) if own_id in successors else len(successors)
            self._become_unattached(end.epoch, now_ms, deadline_ms=now_ms + self._pacing.successor_ms(place))
        return self._epoch_reply(ErrorCode.NONE)

    def on_fetch(self, token: int, fetch: Fetch, now_ms: int) -> None:
        """A replica fetches; the answer comes among the effects, now or later, under `token`."""
        role = self.role
        error = self._check_fetch(fetch)
        if error is not ErrorCode.NONE or not isinstance(role, Leader):
            self._effects.fetch_replies.append((token, self._fetch_reply(error)))
            return
        self._answer_older_fetch(role, fetch.replica)
        progress = role.progress_of(fetch.replica)
        if not needs_snapshot(self.log, fetch) and divergence(self.log, fetch) is None:
            progress.on_fetch(fetch.fetch_offset, self.log.end_offset, now_ms)
            self._advance_high_watermark(role, now_ms)
        else:
            progress.last_fetch_ms = now_ms
        if fetch.replica.id in role.announce_at:
            del role.announce_at[fetch.replica.id]
        parked = ParkedFetch(token, fetch, now_ms + fetch.max_wait_ms)
        if not self._try_answer(role, parked, now_ms):
            role.parked.append(parked)

    def on_fetch_snapshot(self, request: FetchSnapshot, now_ms: int) -> SnapshotReply:
        """A replica fetches a part of a snapshot, which shows that it hears this leader."""
        role = self.role
        error = self._check_epoch(request.cluster_id, request.epoch)
        if error is not ErrorCode.NONE or not isinstance(role, Leader):
            return SnapshotReply(error=error, leader_id=self._leader_to_name(), epoch=self.epoch)
        role.progress_of(request.replica).last_fetch_ms = now_ms
        return snapshot_answer(self.log, role, request)

    def serve_parked(self, now_ms: int) -> None:
        """Answer the fetches for which there is news; to be called once after a burst of appends."""
        role = self.role
        if isinstance(role, Leader):
            role.parked = [parked for parked in role.parked if not self._try_answer(role, parked, now_ms)]

    # ---- events: answers to this node's requests ------------------------------------------------------------------

    def on_reply(self, sent: Outgoing, reply: Reply, now_ms: int) -> None:
        """The reply to a request of this node."""
        if isinstance(reply, FetchReply):
            self._on_fetch_reply(sent, reply, now_ms)
            return
        if isinstance(reply, SnapshotReply):
            if isinstance(sent.request, FetchSnapshot):
                self._on_snapshot_reply(sent, sent.request, reply, now_ms)
            return
        self._observe(reply.epoch, reply.leader_id, now_ms)
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
        elif isinstance(role, Resigned) and sent.to in role.unacknowledged:
            role.unacknowledged.remove(sent.to)

    # ---- changes of role ------------------------------------------------------------------------------------------

    def _enter(self, role: Role) -> None:
        """The only place where the role changes."""
        before = self.role
        invariant(is_legal(before.kind, role.kind), f"{before.kind.value} may become {role.kind.value}")
        invariant(role.epoch >= before.epoch, "the epoch never goes back")
        self.role = role
        self._persist()
        if isinstance(before, Leader):
            for parked in before.parked:
                self._effects.fetch_replies.append((parked.token, self._fetch_reply(self._check_fetch(parked.request))))

    def _persist(self) -> None:
        state = ElectionState(self.role.epoch, self.role.leader_id, self.role.voted)
        if state != self._persisted:
            self._persisted = state
            self._effects.election_state = state

    def _become_unattached(
        self, epoch: int, now_ms: int, *, voted: ReplicaKey | None = None, deadline_ms: int | None = None
    ) -> None:
        """Follow nobody. In the same epoch, the vote given and the leader known go on to bind."""
        same_epoch = epoch == self.epoch
        leader_id = self.role.leader_id if same_epoch else None
        if not self.config.is_voter:
            next_fetch_ms = now_ms + self._timing.retry_backoff_ms
            self._enter(Unattached(epoch, leader_id, None, None, next_fetch_ms=next_fetch_ms))
            return
        if deadline_ms is None:
            wait_ms = self._pacing.election_timeout_ms() if voted else self._pacing.first_election_ms()
            deadline_ms = now_ms + wait_ms
        voted = voted or (self.role.voted if same_epoch else None)
        self._enter(Unattached(epoch, leader_id, voted, deadline_ms))

    def _become_prospective(self, now_ms: int) -> None:
        role = self.role
        ballot = Ballot(self.config.voter_ids, self.config.node_id)
        deadline_ms = now_ms + self._pacing.election_timeout_ms()
        self._enter(Prospective(role.epoch, role.leader_id, role.voted, deadline_ms, ballot))
        if ballot.is_won:
            self._become_candidate(now_ms)
            return
        for voter in self.config.peers:
            self._send_vote(voter)

    def _become_candidate(self, now_ms: int) -> None:
        ballot = Ballot(self.config.voter_ids, self.config.node_id)
        deadline_ms = now_ms + self._pacing.election_timeout_ms()
        self._enter(Candidate(self.epoch + 1, self._own_key, deadline_ms, ballot))
        if ballot.is_won:
            self._become_leader(ballot, now_ms)
            return
        for voter in self.config.peers:
            self._send_vote(voter)

    def _become_leader(self, ballot: Ballot, now_ms: int) -> None:
        invariant(self.log.last_epoch < self.epoch, "a new leader's epoch is higher than any in its log")
        own_id = self.config.node_id
        role = Leader(
            epoch=self.epoch,
            leader_id=own_id,
            voted=self.role.voted,
            elected_ms=now_ms,
            epoch_start_offset=self.log.end_offset,
            check_quorum_timeout_ms=self._timing.fetch_timeout_ms * 3 // 2,
            peers={voter: ReplicaProgress(ReplicaKey(voter)) for voter in self.config.peers},
        )
        self._enter(role)
        self._pacing.on_leader_works()
        self.log.append_leader_change(role.epoch, own_id, self.config.voter_ids, ballot.granting)
        for voter in self.config.peers:
            self._announce(role, voter, now_ms)

    def _become_follower(self, epoch: int, leader_id: int, now_ms: int) -> None:
        voted = self.role.voted if epoch == self.epoch else None
        deadline_ms = now_ms + self._pacing.fetch_timeout_ms(leader_id)
        role = Follower(epoch, leader_id, voted, deadline_ms, now_ms)
        self._enter(role)
        self._fetch_next(role, now_ms)

    def _observe(self, epoch: int, leader_id: int | None, now_ms: int) -> None:
        """Learn of an epoch, perhaps with its leader. Older epochs tell nothing, nor that this node leads."""
        if leader_id not in self.config.voters or leader_id == self.config.node_id:
            leader_id = None
        if epoch > self.epoch:
            if leader_id is None:
                self._become_unattached(epoch, now_ms)
            else:
                self._become_follower(epoch, leader_id, now_ms)
        elif epoch == self.epoch and leader_id is not None:
            invariant(self.role.leader_id in (None, leader_id), "at most one leader an epoch")
            if isinstance(self.role, Prospective):
                self._pacing.on_round_failed()
            if not isinstance(self.role, Follower):
                self._become_follower(epoch, leader_id, now_ms)

    # ---- elections ------------------------------------------------------------------------------------------------

    def _belongs_to_round(self, request: Request) -> bool:
        is_pre_vote = isinstance(self.role, Prospective)
        return isinstance(request, Vote) and request.epoch == self.epoch and request.pre_vote == is_pre_vote

    def _count_vote(self, role: Prospective | Candidate, voter: int, reply: VoteReply, now_ms: int) -> None:
        role.ballot.record(voter, reply.granted)
        if role.ballot.is_won:
            if isinstance(role, Prospective):
                self._become_candidate(now_ms)
            else:
                self._become_leader(role.ballot, now_ms)
        elif role.ballot.is_lost:
            self._lose_election(now_ms)

    def _lose_election(self, now_ms: int) -> None:
        self._pacing.on_round_failed()
        self._become_unattached(self.epoch, now_ms)

    def _let_other_go_ahead(self, now_ms: int) -> None:
        """Having granted a pre-vote, do not stand for election in the next moment and split the votes."""
        role = self.role
        if isinstance(role, Unattached | Follower) and role.deadline_ms is not None:
            role.deadline_ms = max(role.deadline_ms, now_ms + self._pacing.yield_ms())

    def _announce(self, role: Leader, voter: int, now_ms: int) -> None:
        """BeginQuorumEpoch, repeated until the voter fetches."""
        role.announce_at[voter] = now_ms + self._timing.fetch_timeout_ms // 2
        self._send(voter, requests.begin_quorum_epoch(self.config, voter, role.epoch))

    def _send_vote(self, voter: int) -> None:
        is_pre_vote = isinstance(self.role, Prospective)
        self._send(voter, requests.vote(self.config, self.log, voter, self.epoch, pre_vote=is_pre_vote))

    # ---- leading --------------------------------------------------------------------------------------------------

    def _on_leader_timer(self, role: Leader, now_ms: int) -> None:
        quorum_deadline_ms = role.quorum_deadline_ms()
        if quorum_deadline_ms is not None and quorum_deadline_ms <= now_ms:
            self.resign(now_ms)
            return
        for voter in sorted(v for v, at_ms in role.announce_at.items() if at_ms <= now_ms):
            self._announce(role, voter, now_ms)
        self.serve_parked(now_ms)
        role.forget_silent_observers(now_ms)

    def _advance_high_watermark(self, role: Leader, now_ms: int) -> None:
        end_offsets = [progress.end_offset for progress in role.peers.values()]
        end_offsets.append(self.log.durable_offset)
        reached = next_high_watermark(self.high_watermark, end_offsets, role.epoch_start_offset)
        if reached != self.high_watermark:
            self.high_watermark = reached
            self.is_high_watermark_current = True
            self.serve_parked(now_ms)

    def _try_answer(self, role: Leader, parked: ParkedFetch, now_ms: int) -> bool:
        reply = fetch_answer(self.log, role, parked, self.high_watermark, now_ms)
        if reply is not None:
            self._effects.fetch_replies.append((parked.token, reply))
        return reply is not None

    def _answer_older_fetch(self, role: Leader, replica: ReplicaKey) -> None:
        """A replica has one fetch at a time: an older one was given up by its sender."""
        for parked in [parked for parked in role.parked if parked.request.replica == replica and replica.id >= 0]:
            role.parked.remove(parked)
            self._effects.fetch_replies.append((parked.token, self._fetch_reply(ErrorCode.REQUEST_TIMED_OUT)))

    # ---- following ------------------------------------------------------------------------------------------------

    def _on_follower_timer(self, role: Follower, now_ms: int) -> None:
        if role.deadline_ms <= now_ms:
            if self.config.is_voter:
                self._become_prospective(now_ms)
            else:
                self._become_unattached(role.epoch, now_ms)
        elif role.fetch_id is None and role.next_fetch_ms is not None and role.next_fetch_ms <= now_ms:
            self._fetch_next(role, now_ms)

    def _fetch_next(self, role: Follower, now_ms: int) -> None:
        """Fetch, unless something is not on disk yet: the offset of a voter's fetch acknowledges all below it."""
        if self.config.is_voter and self.log.durable_offset < self.log.end_offset:
            role.next_fetch_ms = None
            return
        role.fetch_sent_ms = role.next_fetch_ms = now_ms
        if role.download is None:
            role.fetch_id = self._send_fetch(role.leader_id, self._timing.fetch_max_wait_ms)
        else:
            role.fetch_id = self._send(role.leader_id, requests.fetch_snapshot(self.config, role.epoch, role.download))

    def _fetch_from_any_voter(self, now_ms: int) -> None:
        """An observer that knows no leader asks the voters in turn."""
        role = self.role
        if not isinstance(role, Unattached) or role.next_fetch_ms is None or role.fetch_id is not None:
            return
        if role.next_fetch_ms <= now_ms:
            self._next_contact = (self._next_contact + 1) % len(self.config.voters)
            role.next_fetch_ms = now_ms + self._timing.retry_backoff_ms
            role.fetch_id = self._send_fetch(self.config.voter_ids[self._next_contact], 0)

    def _send_fetch(self, voter: int, max_wait_ms: int) -> int:
        fetch = requests.fetch(self.config, self.log, self.epoch, max_wait_ms, self.high_watermark)
        return self._send(voter, fetch)

    def _on_fetch_reply(self, sent: Outgoing, reply: FetchReply, now_ms: int) -> None:
        role = self.role
        if not isinstance(role, Follower | Unattached) or role.fetch_id != sent.id:
            return
        role.fetch_id = None
        self._observe(reply.epoch, reply.leader_id, now_ms)
        if self.role is not role or isinstance(role, Unattached):
            return
        if reply.error is ErrorCode.NONE and reply.epoch == role.epoch:
            self._hear_leader(role, now_ms)
            self._take_records(role, reply, now_ms)
        else:
            self._on_fetch_refused(role, reply, now_ms)

    def _on_snapshot_reply(self, sent: Outgoing, request: FetchSnapshot, reply: SnapshotReply, now_ms: int) -> None:
        role = self.role
        if not isinstance(role, Follower) or role.fetch_id != sent.id:
            return
        role.fetch_id = None
        self._observe(reply.epoch, reply.leader_id, now_ms)
        if self.role is not role:
            return
        if reply.error is ErrorCode.NONE and reply.epoch == role.epoch and reply.position == request.position:
            self._hear_leader(role, now_ms)
            self._take_snapshot(role, request, reply, now_ms)
        else:
            role.download = None
            self._on_fetch_refused(role, reply, now_ms)

    def _take_snapshot(self, role: Follower, request: FetchSnapshot, reply: SnapshotReply, now_ms: int) -> None:
        snapshot_id, position = request.snapshot_id, request.position + len(reply.data)
        self.log.receive_snapshot(snapshot_id, request.position, reply.data)
        if len(reply.data) and position < reply.size_bytes:
            role.download = Download(snapshot_id, position)
        else:
            role.download = None
            invariant(snapshot_id.end_offset >= (self.high_watermark or 0), "a snapshot takes nothing committed away")
            if position != reply.size_bytes or not self.log.install_snapshot(snapshot_id):
                role.next_fetch_ms = now_ms + self._timing.retry_backoff_ms
                return
            self.high_watermark = max(self.high_watermark or 0, snapshot_id.end_offset)
        self._fetch_next(role, now_ms)

    def _on_fetch_refused(self, role: Follower, reply: FetchReply | SnapshotReply, now_ms: int) -> None:
        role.next_fetch_ms = now_ms + self._timing.retry_backoff_ms
        has_resigned = reply.error is ErrorCode.NOT_LEADER_OR_FOLLOWER and reply.epoch == role.epoch
        if has_resigned or reply.error is ErrorCode.KAFKA_STORAGE_ERROR:
            self._suspect_leader(role, now_ms)

    def _take_records(self, role: Follower, reply: FetchReply, now_ms: int) -> None:
        if reply.snapshot_id is not None:
            role.download = Download(reply.snapshot_id, 0)
        elif reply.diverging is not None:
            offset = truncation_offset(self.log, reply.diverging)
            invariant(offset >= (self.high_watermark or 0), "no truncation below the high watermark")
            self.log.truncate_to(offset)
            invariant(self.log.end_offset == offset, "logs part between batches, never within one")
        elif len(reply.records):
            try:
                self.log.append_fetched(reply.records)
            except StorageError:
                raise
            except ProtocolError:
                role.next_fetch_ms = now_ms + self._timing.retry_backoff_ms
                return
        if reply.diverging is None and reply.snapshot_id is None and reply.high_watermark >= 0:
            reached = min(reply.high_watermark, self.log.end_offset)
            self.high_watermark = max(reached, self.high_watermark or 0)
            self.is_high_watermark_current = True
        self._fetch_next(role, now_ms)

    def _on_fetch_failure(self, sent: Outgoing, kind: FailureKind, now_ms: int) -> None:
        role = self.role
        if not isinstance(role, Follower | Unattached) or role.fetch_id != sent.id:
            return
        role.fetch_id = None
        if isinstance(role, Follower):
            # A connection that breaks is retried at once, which probes whether anything still listens there.
            role.next_fetch_ms = max(now_ms, (role.fetch_sent_ms or now_ms) + self._timing.retry_backoff_ms)
            if kind is FailureKind.REFUSED:
                self._suspect_leader(role, now_ms)
            elif role.next_fetch_ms <= now_ms:
                self._fetch_next(role, now_ms)

    def _suspect_leader(self, role: Follower, now_ms: int) -> None:
        """Nothing listens at the leader's, or it says that it leads no more: do not wait out the time-out."""
        if not self.config.is_voter:
            self._become_unattached(role.epoch, now_ms)
        elif not role.suspected:
            role.suspected = True
            role.deadline_ms = min(role.deadline_ms, now_ms + self._pacing.turn_ms(role.leader_id))

    def _trust_leader(self, role: Follower, now_ms: int) -> None:
        role.suspected = False
        role.deadline_ms = now_ms + self._pacing.fetch_timeout_ms(role.leader_id)

    def _hear_leader(self, role: Follower, now_ms: int) -> None:
        self._trust_leader(role, now_ms)
        role.doubted_at_ms = now_ms + self._timing.fetch_timeout_ms // 2
        self._pacing.on_leader_works()

    # ---- checks and replies ---------------------------------------------------------------------------------------

    def _check_sender(self, cluster_id: str | None, receiver_id: int, sender_id: int, epoch: int) -> ErrorCode:
        """What is wrong with a request that only voters exchange."""
        error = requests.sender_error(self.config, cluster_id, receiver_id, sender_id)
        return ErrorCode.FENCED_LEADER_EPOCH if error is ErrorCode.NONE and epoch < self.epoch else error

    def _check_fetch(self, fetch: Fetch) -> ErrorCode:
        error = self._check_epoch(fetch.cluster_id, fetch.epoch)
        return ErrorCode.INVALID_REQUEST if error is ErrorCode.NONE and fetch.fetch_offset < 0 else error

    def _check_epoch(self, cluster_id: str | None, epoch: int) -> ErrorCode:
        error = requests.cluster_error(self.config, cluster_id)
        if error is not ErrorCode.NONE:
            return error
        if epoch != self.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH if epoch < self.epoch else ErrorCode.UNKNOWN_LEADER_EPOCH
        return ErrorCode.NONE if isinstance(self.role, Leader) else ErrorCode.NOT_LEADER_OR_FOLLOWER

    def _leader_to_name(self) -> int | None:
        """The leader to tell others of: not one that is suspected, or followers would keep each other in its tow."""
        role = self.role
        return None if isinstance(role, Follower) and role.suspected else self.leader_and_epoch.leader_id

    def _vote_reply(self, error: ErrorCode, *, granted: bool) -> VoteReply:
        leader_id = None if granted else self._leader_to_name()
        return VoteReply(error=error, leader_id=leader_id, epoch=self.epoch, granted=granted)

    def _epoch_reply(self, error: ErrorCode) -> EpochReply:
        return EpochReply(error=error, leader_id=self._leader_to_name(), epoch=self.epoch)

    def _fetch_reply(self, error: ErrorCode) -> FetchReply:
        return FetchReply(error=error, leader_id=self._leader_to_name(), epoch=self.epoch)

    def _send(self, to: int, request: Request) -> int:
        self._last_request_id += 1
        self._effects.requests.append(Outgoing(self._last_request_id, to, request))
        return self._last_request_id
