"""Follower: fetches the log, or a snapshot, from the leader of its epoch (KIP-595, KIP-630).

The failure of a process is detected faster than by Kafka's fetch time-out: when the leader's connection breaks, the
follower fetches again at once. If nothing listens at the leader's endpoint any more, it asks for pre-votes within some
milliseconds. A leader that is paused or cut off does not refuse connections, and is given up by the time-out.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from ...log.errors import StorageError
from ...runtime.invariants import invariant, sometimes
from ...wire.errors import ErrorCode, ProtocolError
from ...wire.types import SnapshotId
from ..messages import requests
from ..messages.messages import ChangeReply, EndQuorumEpoch, FetchReply, FetchSnapshot, Outgoing, SnapshotReply, Vote
from ..quorum.effects import FailureKind
from ..replication.divergence import truncation_offset
from ..types import ReplicaKey, RoleKind
from ..voters.voter_changes import own_change
from ..voters.voter_set import VoterEndpoint
from .role import NO_LEADER, ActiveLeader, Role

if TYPE_CHECKING:
    from ..quorum.quorum_state import QuorumState


class Download(NamedTuple):
    """A snapshot that is being fetched: this node has its bytes below `position`."""

    snapshot_id: SnapshotId
    position: int


@dataclass(eq=False, kw_only=True)
class Follower(Role):
    """Has at most one fetch in flight.

    A fetch offset acknowledges all below it, so the next fetch waits until all that was fetched is durable.
    """

    kind: ClassVar[RoleKind] = RoleKind.FOLLOWER
    quorum: QuorumState = field(repr=False)
    epoch: int
    leader_id: int
    leader_endpoint: VoterEndpoint
    voted: ReplicaKey | None
    deadline_ms: int
    """When the leader is given up unless it is heard from."""
    next_fetch_ms: int | None
    """When to fetch next; None while fetched records are not durable."""
    next_change_ms: int
    """When this node may ask for the next change of the voters on its own behalf."""
    change_id: int | None = None
    """The request for such a change in flight."""
    fetch_id: int | None = None
    """The fetch in flight."""
    fetch_sent_ms: int | None = None
    """When the last fetch was sent."""
    doubted_at_ms: int | None = None
    """From when on pre-votes are granted; None: they are, as no fetch has been answered yet.

    It is earlier than `deadline_ms`: otherwise the first voter that gives the leader up would be refused by the others
    that are about to do so.
    """
    suspected: bool = False
    """Whether the leader's host refuses connections, or the leader said that it leads no more."""
    download: Download | None = None
    """The snapshot that is fetched in place of the log."""

    def __post_init__(self) -> None:
        self._active_leader = ActiveLeader(self.leader_id, self.leader_endpoint)

    @property
    def active_leader(self) -> ActiveLeader:
        """The leader that is followed."""
        return self._active_leader

    @property
    def leader_to_name(self) -> ActiveLeader:
        """No suspected leader, or followers would send each other back to it."""
        return NO_LEADER if self.suspected else self._active_leader

    def next_deadline_ms(self) -> int | None:
        """When to fetch again, or to give the leader up."""
        if self.fetch_id is not None or self.next_fetch_ms is None:
            return self.deadline_ms
        return min(self.deadline_ms, self.next_fetch_ms)

    def on_entered(self, now_ms: int) -> None:
        """Fetch at once."""
        self._fetch(now_ms)

    def on_timer(self, now_ms: int) -> None:
        """Give up a leader that was not heard from, or fetch."""
        if self.deadline_ms <= now_ms:
            sometimes(
                not self.suspected, "a follower gave up a controller that it had not heard for its fetch time-out"
            )
            if self.quorum.may_stand:
                self.quorum.transition_to_prospective(now_ms)
            else:
                self.quorum.transition_to_unattached(self.epoch, now_ms)
        elif self.fetch_id is None and self.next_fetch_ms is not None and self.next_fetch_ms <= now_ms:
            self._fetch(now_ms)

    def on_flushed(self, now_ms: int) -> None:
        """Fetch, if only the disk was waited for."""
        if self.next_fetch_ms is None:
            self._fetch(now_ms)

    # ---- votes and epochs --------------------------------------------------------------------------------------------

    def can_grant(self, vote: Vote, log_is_up_to_date: bool, now_ms: int) -> bool:
        """Pre-votes only, and none while the leader seems to be alive."""
        leader_seems_alive = not self.suspected and self.doubted_at_ms is not None and now_ms < self.doubted_at_ms
        return vote.pre_vote and log_is_up_to_date and not leader_seems_alive

    def on_pre_vote_granted(self, now_ms: int) -> None:
        """Do not stand for election at the same time, which would split the votes."""
        self.deadline_ms = max(self.deadline_ms, now_ms + self.quorum.timeouts.yield_ms())

    def on_leader_discovered(self, leader_id: int, endpoint: VoterEndpoint, now_ms: int) -> None:
        """It is followed already."""

    def on_begin_quorum_epoch(self, now_ms: int) -> None:
        """The leader is alive."""
        self._trust_leader(now_ms)

    def on_end_quorum_epoch(self, end: EndQuorumEpoch, now_ms: int) -> None:
        """The leader resigned: its preferred successors stand for election in their order."""
        own_key, successors = self.quorum.own_key, end.preferred_successors
        places = (place for place, key in enumerate(successors) if key.matches(own_key))
        wait_ms = self.quorum.timeouts.successor_delay_ms(next(places, len(successors)))
        self.quorum.transition_to_unattached(end.epoch, now_ms, deadline_ms=now_ms + wait_ms)

    # ---- fetching ----------------------------------------------------------------------------------------------------

    def _fetch(self, now_ms: int) -> None:
        """Fetch, unless something is not durable yet. A node that can never be a voter does not wait for its disk."""
        quorum = self.quorum
        if quorum.config.can_vote and quorum.log.durable_offset < quorum.log.end_offset:
            self.next_fetch_ms = None
            return
        self.fetch_sent_ms = self.next_fetch_ms = now_ms
        if self.download is None:
            wait_ms = quorum.timing.fetch_max_wait_ms
            self.fetch_id = quorum.send_fetch(self.leader_id, self.leader_endpoint, max_wait_ms=wait_ms)
        else:
            part = requests.fetch_snapshot(quorum.config, self.epoch, self.download.snapshot_id, self.download.position)
            self.fetch_id = quorum.send(self.leader_id, self.leader_endpoint, part)

    def on_fetch_reply(self, sent: Outgoing, reply: FetchReply, now_ms: int) -> None:
        """Append the records, or truncate, or begin with a snapshot."""
        if not self._takes_reply(sent, reply, now_ms):
            return
        if reply.error is ErrorCode.NONE and reply.epoch == self.epoch:
            self._on_leader_heard(now_ms)
            self._take_records(reply, now_ms)
            self._ask_for_change(now_ms)
        else:
            self._on_fetch_refused(reply, now_ms)

    def on_snapshot_reply(self, sent: Outgoing, request: FetchSnapshot, reply: SnapshotReply, now_ms: int) -> None:
        """Write the part, and install the snapshot when it is complete."""
        if not self._takes_reply(sent, reply, now_ms):
            return
        if reply.error is ErrorCode.NONE and reply.epoch == self.epoch and reply.position == request.position:
            self._on_leader_heard(now_ms)
            self._take_snapshot_part(request, reply, now_ms)
        else:
            sometimes(True, "a follower was refused a part of a metadata snapshot")
            self.download = None
            self._on_fetch_refused(reply, now_ms)

    def _takes_reply(self, sent: Outgoing, reply: FetchReply | SnapshotReply, now_ms: int) -> bool:
        """Whether the reply is to the fetch in flight, and this node still follows the same leader after it."""
        if self.fetch_id != sent.id:
            sometimes(True, "the answer to a former metadata fetch came late")
            return False
        self.fetch_id = None
        self.quorum.maybe_transition(reply.epoch, reply.leader_id, reply.leader_endpoint, now_ms)
        sometimes(
            self.quorum.role is not self, "a follower learned of a later quorum epoch from the answer to its fetch"
        )
        return self.quorum.role is self

    def _take_records(self, reply: FetchReply, now_ms: int) -> None:
        log, high_watermark = self.quorum.log, self.quorum.high_watermark
        if reply.snapshot_id is not None:
            if reply.snapshot_id.epoch > self.epoch:
                sometimes(True, "a follower was offered a snapshot of a later epoch")
                self.next_fetch_ms = now_ms + self.quorum.timing.retry_backoff_ms
                return
            self.download = Download(reply.snapshot_id, 0)
        elif reply.diverging is not None:
            offset = truncation_offset(log, reply.diverging)
            sometimes(offset < log.end_offset, "a follower cut its metadata log")
            sometimes(offset < reply.diverging.end_offset, "a follower cut its metadata log below the end of an epoch")
            invariant(offset >= (high_watermark.offset or 0), "no truncation below the high watermark")
            log.truncate_to(offset)
            invariant(log.end_offset == offset, "logs part between batches, never within one")
        elif len(reply.records):
            try:
                log.append_fetched(reply.records, self.epoch)
            except StorageError:
                raise
            except ProtocolError:
                sometimes(True, "a follower refused metadata records that it was sent")
                self.next_fetch_ms = now_ms + self.quorum.timing.retry_backoff_ms
                return
        if reply.diverging is None and reply.snapshot_id is None and reply.high_watermark >= 0:
            high_watermark.advance_as_follower(reply.high_watermark, log.end_offset)
        self._fetch(now_ms)

    def _take_snapshot_part(self, request: FetchSnapshot, reply: SnapshotReply, now_ms: int) -> None:
        log, high_watermark = self.quorum.log, self.quorum.high_watermark
        snapshot_id, position = request.snapshot_id, request.position + len(reply.data)
        log.receive_snapshot(snapshot_id, request.position, reply.data)
        if len(reply.data) and position < reply.size_bytes:
            sometimes(True, "a metadata snapshot came in several parts")
            self.download = Download(snapshot_id, position)
        else:
            self.download = None
            invariant(snapshot_id.end_offset >= (high_watermark.offset or 0), "a snapshot takes nothing committed away")
            if position != reply.size_bytes or not log.install_snapshot(snapshot_id):
                self.next_fetch_ms = now_ms + self.quorum.timing.retry_backoff_ms
                return
            high_watermark.advance_to_snapshot(snapshot_id.end_offset)
            sometimes(True, "a follower installed a metadata snapshot")
        self._fetch(now_ms)

    def _on_fetch_refused(self, reply: FetchReply | SnapshotReply, now_ms: int) -> None:
        self.next_fetch_ms = now_ms + self.quorum.timing.retry_backoff_ms
        has_resigned = reply.error is ErrorCode.NOT_LEADER_OR_FOLLOWER and reply.epoch == self.epoch
        sometimes(has_resigned, "a follower heard by a fetch that the controller had resigned")
        sometimes(reply.error is ErrorCode.KAFKA_STORAGE_ERROR, "a controller could not read its disk for a follower")
        if has_resigned or reply.error is ErrorCode.KAFKA_STORAGE_ERROR:
            self._suspect_leader(now_ms)

    def on_fetch_failure(self, sent: Outgoing, kind: FailureKind, now_ms: int) -> None:
        """Fetch again; where the connection broke, at once, which shows whether anything still listens there."""
        if self.fetch_id != sent.id:
            sometimes(True, "a metadata fetch failed after its follower had given it up")
            return
        self.fetch_id = None
        sometimes(kind is FailureKind.REFUSED, "a follower suspected a controller whose host refused it")
        self.next_fetch_ms = max(now_ms, (self.fetch_sent_ms or now_ms) + self.quorum.timing.retry_backoff_ms)
        if kind is FailureKind.REFUSED:
            self._suspect_leader(now_ms)
        elif self.next_fetch_ms <= now_ms:
            self._fetch(now_ms)

    # ---- trust in the leader -----------------------------------------------------------------------------------------

    def _suspect_leader(self, now_ms: int) -> None:
        """Do not wait out the fetch time-out for a leader that does not listen, or says that it leads no more."""
        quorum = self.quorum
        if not quorum.may_stand:
            quorum.transition_to_unattached(self.epoch, now_ms)
        elif not self.suspected:
            self.suspected = True
            self.deadline_ms = min(self.deadline_ms, now_ms + quorum.timeouts.stagger_ms(self.leader_id))

    def _trust_leader(self, now_ms: int) -> None:
        self.suspected = False
        self.deadline_ms = now_ms + self.quorum.fetch_timeout_ms(self.leader_id)

    def _on_leader_heard(self, now_ms: int) -> None:
        self._trust_leader(now_ms)
        self.doubted_at_ms = now_ms + self.quorum.timing.fetch_timeout_ms // 2
        self.quorum.timeouts.on_leader_works()

    # ---- this node's own place among the voters ----------------------------------------------------------------------

    def _ask_for_change(self, now_ms: int) -> None:
        """Ask the leader to add this node or to record its endpoints, when that is due and all is committed here."""
        quorum = self.quorum
        if quorum.role is not self or self.change_id is not None or now_ms < self.next_change_ms:
            return
        if quorum.log.end_offset > (quorum.high_watermark.offset or 0):
            return
        change = own_change(quorum.config, self.epoch, quorum.voters, quorum.log.voters.version)
        if change is not None:
            self.next_change_ms = now_ms + quorum.timing.fetch_timeout_ms
            self.change_id = quorum.send(self.leader_id, self.leader_endpoint, change)

    def on_change_reply(self, sent: Outgoing, reply: ChangeReply | None) -> None:
        """Ask again later for what is still missing; at once after a success, as there may be a next step."""
        if self.change_id == sent.id:
            self.change_id = None
            if reply is not None and reply.error is ErrorCode.NONE:
                self.next_change_ms -= self.quorum.timing.fetch_timeout_ms
