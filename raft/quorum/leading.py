"""Leading: what is committed, who is told of what, and changes of the voters."""

from __future__ import annotations

from ...runtime.invariants import invariant
from ...wire.errors import ErrorCode, ProtocolError
from ..messages import requests
from ..messages.messages import (
    AddVoter,
    ChangeReply,
    Fetch,
    FetchSnapshot,
    Outgoing,
    ProbeReply,
    ProbeVoter,
    RemoveVoter,
    SnapshotReply,
    UpdateVoter,
    VoterChange,
)
from ..replication.divergence import divergence, needs_snapshot
from ..replication.fetch_answers import fetch_answer, snapshot_answer
from ..roles import Leader, Resigned
from ..roles.ballot import Ballot
from ..roles.leader import ParkedFetch, VoterChangeUnderWay
from ..types import NotLeaderError, ReplicaKey
from ..voters import voter_changes
from ..voters.voter_changes import Standing
from ..voters.voter_set import (
    BOOTSTRAP_OFFSET,
    DYNAMIC_VERSION,
    ControlRecord,
    KRaftVersion,
    LeaderChange,
    Voter,
    VoterSet,
)
from .following import Following

_LEAVE_AFTER_MS = 100
"""A leader that was removed goes on for so long: who asked for it, by way of a broker that watches who leads, shall
have the answer first, and the followers shall know what is committed."""


class Leading(Following):
    """The leader's side of replication, and of membership (KIP-853)."""

    def _become_leader(self, ballot: Ballot, now_ms: int) -> None:
        invariant(self.log.last_epoch < self.epoch, "a new leader's epoch is higher than any in its log")
        role = Leader(
            epoch=self.epoch,
            key=self._own_key,
            voted=self.role.voted,
            elected_ms=now_ms,
            epoch_start_offset=self.log.end_offset,
            check_quorum_timeout_ms=self._timing.fetch_timeout_ms * 3 // 2,
        )
        role.set_voters(self.voters)
        self._enter(role)
        self._pacing.on_leader_works()
        self.log.append_controls(self._first_records(role, ballot), role.epoch)
        role.set_voters(self.voters)
        for voter, _ in self._peers():
            self._announce(role, voter.key.id, now_ms)

    def _first_records(self, role: Leader, ballot: Ballot) -> list[ControlRecord]:
        """Those of an epoch. What formatting wrote about the voters comes into the log, so that others get it; and
        where this node listens now, if its record says otherwise."""
        granting = tuple(voter.key for voter in role.voters.voters if voter.key.id in ballot.granting)
        records: list[ControlRecord] = [LeaderChange(role.leader_id, tuple(role.voters.keys), granting)]
        voters, version = self.log.voters.last, self.log.voters.version
        if not version or voters is None:
            return records
        if self.log.voters.last_offset == BOOTSTRAP_OFFSET:
            records += [KRaftVersion(version), voters]
        own = voter_changes.own_change(self.config, role.epoch, voters, version)
        return [*records, voters.having(own.voter)] if isinstance(own, UpdateVoter) else records

    def _announce(self, role: Leader, voter_id: int, now_ms: int) -> None:
        """BeginQuorumEpoch, repeated until the voter fetches."""
        voter = role.voters.get(voter_id)
        endpoint = None if voter is None else self._endpoint_of(voter)
        if voter is not None and endpoint is not None:
            role.announce_at[voter_id] = now_ms + self._timing.fetch_timeout_ms // 2
            self._send(voter_id, endpoint, requests.begin_quorum_epoch(self.config, voter.key, role.epoch))

    def resign(self, now_ms: int) -> None:
        """Give up leadership, naming the voters with the longest logs as successors. Not leading, do nothing."""
        role = self.role
        if not isinstance(role, Leader):
            return
        by_length = sorted(role.peers, key=lambda voter: (-role.peers[voter].end_offset, voter))
        successors = [role.peers[voter].key for voter in by_length]
        deadline_ms = now_ms + self._pacing.election_timeout_ms()
        self._enter(Resigned(role.epoch, role.leader_id, role.voted, deadline_ms, list(role.peers)))
        for voter, endpoint in self._peers():
            self._send(voter.key.id, endpoint, requests.end_quorum_epoch(self.config, role.epoch, successors))

    def _leave_leadership(self, before: Leader) -> None:
        super()._leave_leadership(before)
        if before.change is not None:
            text = "the leader resigned before the change was committed: whether it will be is open"
            self._answer_change(before.change, ErrorCode.NOT_LEADER_OR_FOLLOWER, text)

    # ---- requests of others ---------------------------------------------------------------------------------------

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
        if role.voters.is_voter(fetch.replica):
            role.announce_at.pop(fetch.replica.id, None)
        parked = ParkedFetch(token, fetch, now_ms + fetch.max_wait_ms)
        if not self._try_answer(role, parked, now_ms):
            role.parked.append(parked)

    def on_fetch_snapshot(self, request: FetchSnapshot, now_ms: int) -> SnapshotReply:
        """A replica fetches a part of a snapshot, which shows that it hears this leader."""
        role = self.role
        error = self._check_epoch(request.cluster_id, request.epoch)
        if error is not ErrorCode.NONE or not isinstance(role, Leader):
            leader_id, endpoint = self._leader_to_name()
            return SnapshotReply(error=error, leader_id=leader_id, epoch=self.epoch, leader_endpoint=endpoint)
        role.progress_of(request.replica).last_fetch_ms = now_ms
        return snapshot_answer(self.log, role, request)

    def serve_parked(self, now_ms: int) -> None:
        """Answer the fetches for which there is news; to be called once after a burst of appends."""
        role = self.role
        if isinstance(role, Leader):
            role.parked = [parked for parked in role.parked if not self._try_answer(role, parked, now_ms)]

    def _on_leader_timer(self, role: Leader, now_ms: int) -> None:
        quorum_deadline_ms = role.quorum_deadline_ms()
        deadlines = (quorum_deadline_ms, role.leaves_at_ms)
        if any(deadline_ms is not None and deadline_ms <= now_ms for deadline_ms in deadlines):
            self.resign(now_ms)
            return
        for voter in sorted(v for v, at_ms in role.announce_at.items() if at_ms <= now_ms):
            self._announce(role, voter, now_ms)
        if role.change is not None and role.change.deadline_ms <= now_ms:
            self._end_change(role, ErrorCode.REQUEST_TIMED_OUT, "the change was not committed in time; it still may be")
        self.serve_parked(now_ms)
        role.forget_silent_observers(now_ms)

    def _advance_high_watermark(self, role: Leader, now_ms: int) -> None:
        reached = role.high_watermark(self.high_watermark, self.log.durable_offset)
        if reached is None or reached == self.high_watermark:
            return
        self.high_watermark = reached
        self.is_high_watermark_current = True
        self.serve_parked(now_ms)
        change = role.change
        if change is not None and change.offset is not None and change.offset < reached:
            self._end_change(role, ErrorCode.NONE)
        if not role.is_voter and self.log.voters.last_offset < reached and role.leaves_at_ms is None:
            role.leaves_at_ms = now_ms + _LEAVE_AFTER_MS

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

    # ---- changes of the voters ------------------------------------------------------------------------------------

    def on_voter_change(self, token: int, request: VoterChange, now_ms: int) -> None:
        """A voter shall be added, removed or updated; the answer comes among the effects under `token`."""
        role = self.role
        error = requests.cluster_error(self.config, request.cluster_id)
        if error is ErrorCode.NONE and isinstance(request, UpdateVoter):
            error = self._check_epoch(request.cluster_id, request.epoch)
        if error is ErrorCode.NONE and not isinstance(role, Leader):
            error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        timeout_ms = request.timeout_ms if isinstance(request, AddVoter) else self._timing.request_timeout_ms
        change = VoterChangeUnderWay(token, request, now_ms + timeout_ms)
        if error is not ErrorCode.NONE or not isinstance(role, Leader):
            self._answer_change(change, error)
            return
        try:
            self._begin_change(role, change, now_ms)
        except ProtocolError as refusal:
            self._answer_change(change, refusal.code, refusal.message)

    def _begin_change(self, role: Leader, change: VoterChangeUnderWay, now_ms: int) -> None:
        request, history = change.request, self.log.voters
        standing = Standing(self.high_watermark, history)
        if isinstance(request, UpdateVoter):
            voter_changes.check_update(request, role.voters, history.version, self.config.listener_name)
            if history.version < DYNAMIC_VERSION or role.voters.get(request.voter.key.id) == request.voter:
                self._answer_change(change, ErrorCode.NONE)
                return
            voter_changes.check_ready(role, standing)
            self._append_voters(role, change, role.voters.having(request.voter), now_ms)
            return
        voter_changes.check_dynamic(standing)
        voter_changes.check_ready(role, standing)
        if isinstance(request, RemoveVoter):
            rest = voter_changes.remaining_voters(request, role.voters)
            self._append_voters(role, change, rest, now_ms)
            return
        voter_changes.check_add(request, role.voters, self.config.listener_name)
        endpoint = self._endpoint_of(request.voter)
        if endpoint is not None:
            change.probe_id = self._send(request.voter.key.id, endpoint, ProbeVoter(voter=request.voter.key))
            role.change = change

    def _on_probed(self, sent: Outgoing, reply: ProbeReply | None, now_ms: int) -> None:
        """The controller that shall be a voter has told its versions; None: it did not answer."""
        role = self.role
        change = role.change if isinstance(role, Leader) else None
        if not isinstance(role, Leader) or change is None or change.probe_id != sent.id:
            return
        request = change.request
        if reply is None or not isinstance(request, AddVoter):
            self._end_change(
                role,
                ErrorCode.REQUEST_TIMED_OUT,
                f"node {sent.to} does not answer at {sent.endpoint.host}:{sent.endpoint.port}",
            )
            return
        try:
            patience_ms = self._timing.fetch_timeout_ms
            voter_changes.check_probed(role, request.voter.key, reply.versions, now_ms, patience_ms)
        except ProtocolError as refusal:
            self._end_change(role, refusal.code, refusal.message)
            return
        change.probe_id = None
        voter = Voter(request.voter.key, request.voter.listeners, reply.versions)
        self._append_voters(role, change, role.voters.having(voter), now_ms)

    def _append_voters(self, role: Leader, change: VoterChangeUnderWay, voters: VoterSet, now_ms: int) -> None:
        """Write the new set, which counts at once: its own record is committed by it (KIP-853)."""
        change.offset = self.log.append_controls([voters], role.epoch)
        role.change = change
        before = list(role.peers)
        role.set_voters(voters)
        if isinstance(change.request, AddVoter) and not change.request.ack_when_committed:
            self._answer_change(change, ErrorCode.NONE)
        for voter_id in role.peers:
            if voter_id not in before:
                self._announce(role, voter_id, now_ms)
        self.serve_parked(now_ms)
        self._advance_high_watermark(role, now_ms)

    def upgrade_version(self, epoch: int, level: int, *, validate_only: bool) -> None:
        """Finalize `kraft.version` `level` as the leader of `epoch`: the static voters become those of a record.

        Raises `NotLeaderError`, and `ProtocolError` when that cannot be.
        """
        role, version = self.role, self.log.voters.version
        if not isinstance(role, Leader) or role.epoch != epoch:
            raise NotLeaderError(epoch, self.leader_and_epoch)
        if level == version:
            return
        if level < version:
            message = f"Invalid update version {level} for feature kraft.version. Can't downgrade the version."
            raise ProtocolError(ErrorCode.INVALID_UPDATE_VERSION, message)
        voter_changes.check_ready(role, Standing(self.high_watermark, self.log.voters))
        voters = voter_changes.upgraded_voters(role, self.config.own_voter)
        if not validate_only:
            self.log.append_controls([KRaftVersion(level), voters], epoch)
            role.set_voters(voters)

    def _end_change(self, role: Leader, error: ErrorCode, message: str | None = None) -> None:
        change, role.change = role.change, None
        if change is not None:
            self._answer_change(change, error, message)

    def _answer_change(self, change: VoterChangeUnderWay, error: ErrorCode, message: str | None = None) -> None:
        token, change.token = change.token, None
        if token is not None:
            leader_id, endpoint = self._leader_to_name()
            reply = ChangeReply(
                error=error, leader_id=leader_id, epoch=self.epoch, leader_endpoint=endpoint, message=message
            )
            self._effects.change_replies.append((token, reply))
