"""The leader's handling of AddRaftVoter, RemoveRaftVoter and UpdateRaftVoter, and of `kraft.version` (KIP-853).

A voter is removed or updated by one control record. One that is added is first asked for its versions, with
ApiVersions, which also shows that its endpoint is right. The rules are in `voter_changes.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...log.errors import StorageError
from ...runtime.invariants import sometimes
from ...wire.errors import ErrorCode, ProtocolError
from ..messages.messages import AddVoter, Outgoing, ProbeReply, ProbeVoter, RemoveVoter, UpdateVoter, VoterChange
from . import voter_changes
from .voter_changes import LeaderStanding
from .voter_set import DYNAMIC_VERSION, KRaftVersion, Voter, VoterSet

if TYPE_CHECKING:
    from ..roles.leader import Leader


@dataclass(slots=True)
class PendingVoterChange:
    """The change that a leader works on."""

    token: int | None
    """The caller's name for the request; None once it is answered."""
    request: VoterChange
    deadline_ms: int
    offset: int | None = None
    """The offset of the voters' record; None until it is appended."""
    probe_id: int | None = None
    """The request in flight that asks the future voter for its versions."""


class VoterChangeHandler:
    """Owns the one change of the voters that its leader works on."""

    def __init__(self, leader: Leader) -> None:
        self._leader = leader
        self._quorum = leader.quorum
        self.pending: PendingVoterChange | None = None

    @property
    def deadline_ms(self) -> int | None:
        """When the request for the pending change times out."""
        return None if self.pending is None else self.pending.deadline_ms

    def _standing(self) -> LeaderStanding:
        return LeaderStanding(
            epoch_start_offset=self._leader.epoch_start_offset,
            high_watermark=self._quorum.high_watermark.offset,
            history=self._quorum.log.voters,
            has_pending_change=self.pending is not None,
        )

    # ---- requests ----------------------------------------------------------------------------------------------------

    def on_request(self, token: int, request: VoterChange, now_ms: int) -> None:
        """Begin a change, or answer why it cannot begin."""
        timeout_ms = request.timeout_ms if isinstance(request, AddVoter) else self._quorum.timing.request_timeout_ms
        change = PendingVoterChange(token, request, now_ms + timeout_ms)
        try:
            self._begin(change, now_ms)
        except StorageError:  # a `ProtocolError`, too, but no refusal: this node leaves the quorum
            raise
        except ProtocolError as refusal:
            self._answer(change, refusal.code, refusal.message)

    def _begin(self, change: PendingVoterChange, now_ms: int) -> None:
        match change.request:
            case UpdateVoter() as request:
                self._update(change, request, now_ms)
            case RemoveVoter() as request:
                self._remove(change, request, now_ms)
            case AddVoter() as request:
                self._probe(change, request)

    def _update(self, change: PendingVoterChange, request: UpdateVoter, now_ms: int) -> None:
        voters, version = self._leader.replicas.voters, self._quorum.log.voters.version
        voter_changes.check_update(request, voters, version, self._quorum.config.listener_name)
        if version < DYNAMIC_VERSION or voters.get(request.voter.key.id) == request.voter:
            self._answer(change, ErrorCode.NONE)
            return
        voter_changes.check_ready(self._standing())
        self._append(change, voters.with_voter(request.voter), now_ms)

    def _remove(self, change: PendingVoterChange, request: RemoveVoter, now_ms: int) -> None:
        standing = self._standing()
        voter_changes.check_dynamic(standing)
        voter_changes.check_ready(standing)
        self._append(change, voter_changes.remaining_voters(request, self._leader.replicas.voters), now_ms)

    def _probe(self, change: PendingVoterChange, request: AddVoter) -> None:
        """Ask the future voter for its versions."""
        quorum, standing = self._quorum, self._standing()
        voter_changes.check_dynamic(standing)
        voter_changes.check_ready(standing)
        voter_changes.check_add(request, self._leader.replicas.voters, quorum.config.listener_name)
        endpoint = quorum.endpoint_of(request.voter)
        if endpoint is not None:
            change.probe_id = quorum.send(request.voter.key.id, endpoint, ProbeVoter(voter=request.voter.key))
            self.pending = change

    def on_probe_reply(self, sent: Outgoing, reply: ProbeReply | None, now_ms: int) -> None:
        """Add the voter if it is new enough and has caught up; `reply` is None when it did not answer."""
        change = self.pending
        if change is None or change.probe_id != sent.id:
            return
        request = change.request
        if reply is None or not isinstance(request, AddVoter):
            sometimes(reply is None, "a voter to be added did not answer")
            at = f"{sent.endpoint.host}:{sent.endpoint.port}"
            self._end(ErrorCode.REQUEST_TIMED_OUT, f"node {sent.to} does not answer at {at}")
            return
        replicas = self._leader.replicas
        try:
            lag_max_ms = self._quorum.timing.fetch_timeout_ms
            voter_changes.check_probed(replicas, request.voter.key, reply.versions, now_ms, lag_max_ms)
        except ProtocolError as refusal:
            self._end(refusal.code, refusal.message)
            return
        change.probe_id = None
        voter = Voter(request.voter.key, request.voter.listeners, reply.versions)
        self._append(change, replicas.voters.with_voter(voter), now_ms)

    def _append(self, change: PendingVoterChange, voters: VoterSet, now_ms: int) -> None:
        change.offset = self._quorum.log.append_controls([voters], self._leader.epoch)
        self.pending = change
        if isinstance(change.request, AddVoter) and not change.request.ack_when_committed:
            self._answer(change, ErrorCode.NONE)
        self._leader.on_voters_appended(voters, now_ms)

    def upgrade_kraft_version(self, level: int, *, validate_only: bool) -> None:
        """Finalize `kraft.version` `level`: the static voters are recorded in the log. Raises `ProtocolError`."""
        log, leader = self._quorum.log, self._leader
        version = log.voters.version
        if level == version:
            return
        if level < version:
            message = f"Invalid update version {level} for feature kraft.version. Can't downgrade the version."
            raise ProtocolError(ErrorCode.INVALID_UPDATE_VERSION, message)
        voter_changes.check_ready(self._standing())
        voters = voter_changes.upgraded_voters(leader.replicas, self._quorum.config.own_voter)
        if not validate_only:
            log.append_controls([KRaftVersion(level), voters], leader.epoch)
            leader.set_voters(voters)

    # ---- the end of a change -----------------------------------------------------------------------------------------

    def on_high_watermark(self, high_watermark: int) -> None:
        """The change is done once its record is committed."""
        change = self.pending
        if change is not None and change.offset is not None and change.offset < high_watermark:
            sometimes(True, "a change of the voters was committed")
            self._end(ErrorCode.NONE)

    def on_timer(self, now_ms: int) -> None:
        """The request may have timed out; a record that was appended can still be committed."""
        if self.pending is not None and self.pending.deadline_ms <= now_ms:
            sometimes(self.pending.offset is not None, "a change of the voters was not committed in time")
            self._end(ErrorCode.REQUEST_TIMED_OUT, "the change was not committed in time; it still may be")

    def on_leadership_lost(self) -> None:
        """The outcome is open: the next leader may have the record, or not."""
        if self.pending is not None:
            sometimes(self.pending.offset is not None, "leadership was lost while a change of the voters was appended")
            text = "the leader resigned before the change was committed: whether it will be is open"
            self._answer(self.pending, ErrorCode.NOT_LEADER_OR_FOLLOWER, text)

    def _end(self, error: ErrorCode, message: str | None = None) -> None:
        change, self.pending = self.pending, None
        if change is not None:
            self._answer(change, error, message)

    def _answer(self, change: PendingVoterChange, error: ErrorCode, message: str | None = None) -> None:
        token, change.token = change.token, None
        if token is not None:
            self._quorum.answer_voter_change(token, error, message)
