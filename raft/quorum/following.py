"""Following: finding the leader, fetching its log or its snapshot, and what a follower asks of it for itself."""

from __future__ import annotations

from ...log.errors import StorageError
from ...runtime.invariants import invariant
from ...wire.errors import ErrorCode, ProtocolError
from ..messages import requests
from ..messages.messages import ChangeReply, FetchReply, FetchSnapshot, Outgoing, SnapshotReply
from ..replication.divergence import truncation_offset
from ..roles import Follower, Prospective, Unattached
from ..roles.follower import Download
from ..voters.voter_changes import own_change
from ..voters.voter_set import VoterEndpoint
from .core import QuorumCore
from .effects import FailureKind


class Following(QuorumCore):
    """The follower's and the observer's side of replication."""

    def _become_follower(self, epoch: int, leader_id: int, endpoint: VoterEndpoint, now_ms: int) -> None:
        role = Follower(
            epoch=epoch,
            leader_id=leader_id,
            leader_endpoint=endpoint,
            voted=self.role.voted if epoch == self.epoch else None,
            deadline_ms=now_ms + self._leader_patience_ms(leader_id),
            next_fetch_ms=now_ms,
            next_change_ms=now_ms + self._timing.fetch_timeout_ms // 2,
        )
        self._enter(role)
        self._fetch_next(role, now_ms)

    def _observe(self, epoch: int, leader_id: int | None, endpoint: VoterEndpoint | None, now_ms: int) -> None:
        """Learn of an epoch, perhaps with its leader. Older epochs tell nothing, nor that this node leads.

        The leader need not be among the voters that this node knows of; but where it is must be known.
        """
        endpoint = None if leader_id is None else self._place_of(leader_id, endpoint)
        if endpoint is None:
            leader_id = None
        if epoch > self.epoch:
            if leader_id is None or endpoint is None:
                self._become_unattached(epoch, now_ms)
            else:
                self._become_follower(epoch, leader_id, endpoint, now_ms)
        elif epoch == self.epoch and leader_id is not None and endpoint is not None:
            invariant(self.role.leader_id in (None, leader_id), "at most one leader an epoch")
            if isinstance(self.role, Prospective):
                self._pacing.on_round_failed()
            if not isinstance(self.role, Follower):
                self._become_follower(epoch, leader_id, endpoint, now_ms)

    def _place_of(self, leader_id: int, told: VoterEndpoint | None) -> VoterEndpoint | None:
        """Where a leader is: the configuration's word counts more than what others say, and a record's less."""
        if leader_id == self.config.node_id:
            return None
        static = self._static_voters.get(leader_id)
        if self.log.voters.last is None and static is not None:
            return self._endpoint_of(static)
        known = self.voters.get(leader_id)
        return told if told is not None or known is None else self._endpoint_of(known)

    # ---- fetching -------------------------------------------------------------------------------------------------

    def _fetch_next(self, role: Follower, now_ms: int) -> None:
        """Fetch, unless something is not on disk yet: the offset of a fetch acknowledges all below it.

        That goes for observers, too, which may be made voters at any time; not for nodes that can never be.
        """
        if self.config.can_vote and self.log.durable_offset < self.log.end_offset:
            role.next_fetch_ms = None
            return
        role.fetch_sent_ms = role.next_fetch_ms = now_ms
        if role.download is None:
            wait_ms = self._timing.fetch_max_wait_ms
            role.fetch_id = self._send_fetch(role.leader_id, role.leader_endpoint, wait_ms)
        else:
            part = requests.fetch_snapshot(self.config, role.epoch, role.download)
            role.fetch_id = self._send(role.leader_id, role.leader_endpoint, part)

    def _fetch_from_any_voter(self, now_ms: int) -> None:
        """Who knows no leader asks the voters and the bootstrap servers in turn."""
        role = self.role
        if not isinstance(role, Unattached) or role.next_fetch_ms is None or role.fetch_id is not None:
            return
        if role.next_fetch_ms <= now_ms:
            role.next_fetch_ms = now_ms + self._timing.retry_backoff_ms
            contacts = self._contacts()
            if contacts:
                self._next_contact = (self._next_contact + 1) % len(contacts)
                to, endpoint = contacts[self._next_contact]
                role.fetch_id = self._send_fetch(to, endpoint, 0)

    def _send_fetch(self, to: int, endpoint: VoterEndpoint, max_wait_ms: int) -> int:
        fetch = requests.fetch(self.config, self.log, self.epoch, max_wait_ms, self.high_watermark)
        return self._send(to, endpoint, fetch)

    def _on_fetch_reply(self, sent: Outgoing, reply: FetchReply, now_ms: int) -> None:
        role = self.role
        if not isinstance(role, Follower | Unattached) or role.fetch_id != sent.id:
            return
        role.fetch_id = None
        self._observe(reply.epoch, reply.leader_id, reply.leader_endpoint, now_ms)
        if self.role is not role or isinstance(role, Unattached):
            return
        if reply.error is ErrorCode.NONE and reply.epoch == role.epoch:
            self._hear_leader(role, now_ms)
            self._take_records(role, reply, now_ms)
            self._ask_for_change(role, now_ms)
        else:
            self._on_fetch_refused(role, reply, now_ms)

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

    def _on_snapshot_reply(self, sent: Outgoing, request: FetchSnapshot, reply: SnapshotReply, now_ms: int) -> None:
        role = self.role
        if not isinstance(role, Follower) or role.fetch_id != sent.id:
            return
        role.fetch_id = None
        self._observe(reply.epoch, reply.leader_id, reply.leader_endpoint, now_ms)
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

    # ---- trust in the leader --------------------------------------------------------------------------------------

    def _leader_patience_ms(self, leader_id: int) -> int:
        return self._pacing.fetch_timeout_ms(leader_id, is_voter=self.may_stand)

    def _suspect_leader(self, role: Follower, now_ms: int) -> None:
        """Nothing listens at the leader's, or it says that it leads no more: do not wait out the time-out."""
        if not self.may_stand:
            self._become_unattached(role.epoch, now_ms)
        elif not role.suspected:
            role.suspected = True
            role.deadline_ms = min(role.deadline_ms, now_ms + self._pacing.turn_ms(role.leader_id))

    def _trust_leader(self, role: Follower, now_ms: int) -> None:
        role.suspected = False
        role.deadline_ms = now_ms + self._leader_patience_ms(role.leader_id)

    def _hear_leader(self, role: Follower, now_ms: int) -> None:
        self._trust_leader(role, now_ms)
        role.doubted_at_ms = now_ms + self._timing.fetch_timeout_ms // 2
        self._pacing.on_leader_works()

    # ---- this node's own place among the voters -------------------------------------------------------------------

    def _ask_for_change(self, role: Follower, now_ms: int) -> None:
        """Ask the leader to add this node, or to write down its endpoints, when that is due and it knows all."""
        if self.role is not role or role.change_id is not None or now_ms < role.next_change_ms:
            return
        if self.log.end_offset > (self.high_watermark or 0):
            return
        change = own_change(self.config, role.epoch, self.voters, self.log.voters.version)
        if change is not None:
            role.next_change_ms = now_ms + self._timing.fetch_timeout_ms
            role.change_id = self._send(role.leader_id, role.leader_endpoint, change)

    def _on_own_change(self, sent: Outgoing, reply: ChangeReply | None) -> None:
        """The leader has answered, or not: what is still to be asked will be asked again in a while."""
        role = self.role
        if isinstance(role, Follower) and role.change_id == sent.id:
            role.change_id = None
            if reply is not None and reply.error is ErrorCode.NONE:
                role.next_change_ms -= self._timing.fetch_timeout_ms
