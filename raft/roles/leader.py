"""Leader: appends, answers the fetches of the others, and commits what a majority of the voters has on disk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from ...log.errors import StorageError
from ...runtime.invariants import sometimes
from ...wire.errors import ErrorCode, ProtocolError
from ..messages import requests
from ..messages.messages import (
    Fetch,
    FetchSnapshot,
    Outgoing,
    ProbeReply,
    SnapshotReply,
    UpdateVoter,
    Vote,
    VoterChange,
)
from ..quorum.majority import majority_value
from ..replication import divergence
from ..replication.fetch_answers import DelayedFetch, FetchedLeader, fetch_answer, snapshot_answer
from ..replication.replica_progress import ProgressTracker
from ..types import LeaderAndEpoch, NotLeaderError, ReplicaKey, RoleKind
from ..voters.voter_change_handler import VoterChangeHandler
from ..voters.voter_changes import own_change
from ..voters.voter_set import BOOTSTRAP_OFFSET, ControlRecord, KRaftVersion, LeaderChange, VoterSet
from .role import ActiveLeader, Role

if TYPE_CHECKING:
    from ..quorum.quorum_state import QuorumState

_RESIGN_AFTER_REMOVAL_MS = 100
"""How long a leader leads on after its own removal is committed. The broker that forwarded the removal gets its answer
first, and the followers learn what is committed."""


class Announcement(NamedTuple):
    """The last BeginQuorumEpoch to a voter."""

    request_id: int
    is_in_flight: bool
    due_ms: int
    """When to repeat it, unless it is in flight: requests to a host that is gone must not pile up."""


@dataclass(eq=False, kw_only=True)
class Leader(Role):
    """Leads one epoch.

    It resigns when it has not been fetched from by a majority of the voters for `check_quorum_timeout_ms`
    (check-quorum, KAFKA-15489).
    """

    kind: ClassVar[RoleKind] = RoleKind.LEADER
    quorum: QuorumState = field(repr=False)
    epoch: int
    leader_id: int
    voted: ReplicaKey | None
    granting: Sequence[int]
    """The voters that elected it."""
    elected_ms: int
    epoch_start_offset: int
    """The offset of the epoch's first record, a LeaderChange."""
    check_quorum_timeout_ms: int
    replicas: ProgressTracker
    delayed_fetches: list[DelayedFetch] = field(default_factory=list)
    """Fetches that wait for records or for a higher high watermark."""
    announcements: dict[int, Announcement] = field(default_factory=dict)
    """BeginQuorumEpoch to the voters that have not fetched in this epoch."""
    resign_at_ms: int | None = None
    """When to resign, after this node's own removal from the voters was committed."""
    voter_changes: VoterChangeHandler = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.voter_changes = VoterChangeHandler(self)
        self._active_leader = ActiveLeader(self.leader_id, self.quorum.config.own_endpoint)
        self._leader_and_epoch = LeaderAndEpoch(self.leader_id, self.epoch)

    @property
    def active_leader(self) -> ActiveLeader:
        """This node."""
        return self._active_leader

    def as_leader(self) -> Leader:
        """This role."""
        return self

    def can_grant(self, vote: Vote, log_is_up_to_date: bool, now_ms: int) -> bool:
        """No votes and no pre-votes."""
        return False

    # ---- the epoch's begin and end -----------------------------------------------------------------------------------

    def on_entered(self, now_ms: int) -> None:
        """Begin the epoch with a LeaderChange record, and tell the voters."""
        quorum = self.quorum
        quorum.timeouts.on_leader_works()
        quorum.log.append_controls(self._first_records(), self.epoch)
        self.replicas.set_voters(quorum.voters)
        for voter, _ in quorum.other_voters():
            self._begin_epoch(voter.key.id, now_ms)

    def _first_records(self) -> list[ControlRecord]:
        """The control records that begin the epoch.

        The first leader copies what formatting wrote about the voters into the log, so that the others get it. A leader
        whose endpoints are not those of its voter record corrects the record.
        """
        quorum, voters = self.quorum, self.replicas.voters
        granting = tuple(voter.key for voter in voters.voters if voter.key.id in self.granting)
        records: list[ControlRecord] = [LeaderChange(self.leader_id, tuple(voters.keys), granting)]
        recorded, version = quorum.log.voters.last, quorum.log.voters.version
        if recorded is None:
            return records
        if quorum.log.voters.last_offset == BOOTSTRAP_OFFSET:
            sometimes(True, "a controller copied the voters of its formatting into the log")
            records += [KRaftVersion(version), recorded]
        own = own_change(quorum.config, self.epoch, recorded, version)
        return [*records, recorded.with_voter(own.voter)] if isinstance(own, UpdateVoter) else records

    def _begin_epoch(self, voter_id: int, now_ms: int) -> None:
        """Send BeginQuorumEpoch, and again until the voter fetches."""
        quorum = self.quorum
        voter = self.replicas.voters.get(voter_id)
        endpoint = None if voter is None else quorum.endpoint_of(voter)
        if voter is not None and endpoint is not None:
            begin = requests.begin_quorum_epoch(quorum.config, voter.key, self.epoch)
            request_id = quorum.send(voter_id, endpoint, begin)
            due_ms = now_ms + quorum.timing.fetch_timeout_ms // 2
            self.announcements[voter_id] = Announcement(request_id, is_in_flight=True, due_ms=due_ms)

    def on_begin_quorum_epoch_ended(self, sent: Outgoing, now_ms: int) -> None:
        """It may be repeated, unless the voter has fetched."""
        announcement = self.announcements.get(sent.to)
        if announcement is not None and announcement.request_id == sent.id:
            due_ms = max(announcement.due_ms, now_ms)
            self.announcements[sent.to] = announcement._replace(is_in_flight=False, due_ms=due_ms)

    def _announcements_due_ms(self) -> list[tuple[int, int]]:
        """When the announcements that are not in flight are repeated, with their voters."""
        return [(one.due_ms, voter) for voter, one in self.announcements.items() if not one.is_in_flight]

    def resign(self, now_ms: int) -> None:
        """Give up leadership, and name the voters with the longest logs as successors."""
        self.quorum.transition_to_resigned(self.replicas.peers_by_log_length(), now_ms)

    def on_left(self) -> None:
        """Refuse the requests that still wait for an answer."""
        is_newer = self.quorum.epoch > self.epoch
        sometimes(
            is_newer and self.delayed_fetches, "a later epoch ended a controller's leadership while fetches waited"
        )
        error = ErrorCode.FENCED_LEADER_EPOCH if is_newer else ErrorCode.NOT_LEADER_OR_FOLLOWER
        for delayed in self.delayed_fetches:
            self.quorum.refuse_fetch(delayed.token, error)
        self.voter_changes.on_leadership_lost()

    # ---- time and disk -----------------------------------------------------------------------------------------------

    def check_quorum_deadline_ms(self) -> int | None:
        """When to resign unless more voters fetch; None for a lone voter, which is its own majority."""
        peers = self.replicas.peers.values()
        if not peers:
            return None
        contacts = [self.elected_ms if peer.last_fetch_ms is None else peer.last_fetch_ms for peer in peers]
        if self.replicas.leader_is_voter:
            # The leader is always in contact with itself, so its own contact is later than any other.
            contacts.append(max(contacts) + 1)
        return majority_value(contacts) + self.check_quorum_timeout_ms

    def next_deadline_ms(self) -> int | None:
        """When the next of all that is waited for is due."""
        times = [delayed.deadline_ms for delayed in self.delayed_fetches]
        times.extend(due_ms for due_ms, _ in self._announcements_due_ms())
        others = (self.voter_changes.deadline_ms, self.resign_at_ms, self.check_quorum_deadline_ms())
        times.extend(at_ms for at_ms in others if at_ms is not None)
        return min(times, default=None)

    def on_timer(self, now_ms: int) -> None:
        """Resign, or repeat announcements and end what has waited too long."""
        deadlines = (self.check_quorum_deadline_ms(), self.resign_at_ms)
        if any(deadline_ms is not None and deadline_ms <= now_ms for deadline_ms in deadlines):
            sometimes(self.resign_at_ms is None, "a controller resigned because a majority fetched no more")
            sometimes(self.resign_at_ms is not None, "a controller resigned after its own removal from the voters")
            self.resign(now_ms)
            return
        for voter in sorted(voter for due_ms, voter in self._announcements_due_ms() if due_ms <= now_ms):
            sometimes(True, "a controller announced its epoch again to a voter that had not fetched")
            self._begin_epoch(voter, now_ms)
        self.voter_changes.on_timer(now_ms)
        self.complete_delayed_fetches(now_ms)
        self.replicas.forget_silent_observers(now_ms)

    def on_flushed(self, now_ms: int) -> None:
        """This node's own durable log is longer."""
        self.maybe_advance_high_watermark(now_ms)

    # ---- records and the high watermark ------------------------------------------------------------------------------

    def append(self, records: Sequence[bytes], epoch: int) -> int:
        """Append one batch as the leader of `epoch`; returns its last offset. Raises `NotLeaderError`."""
        self._check_leads(epoch)
        return self.quorum.log.append_records(records, epoch)

    def _check_leads(self, epoch: int) -> None:
        if epoch != self.epoch:
            raise NotLeaderError(epoch, self.quorum.leader_and_epoch)

    def maybe_advance_high_watermark(self, now_ms: int) -> None:
        """Commit what a majority of the voters has on disk, and let those know who wait for that."""
        quorum, replicas = self.quorum, self.replicas
        end_offsets = replicas.durable_end_offsets(quorum.log.durable_offset)
        if not quorum.high_watermark.advance_by_majority(end_offsets, self.epoch_start_offset):
            return
        committed = quorum.high_watermark.offset or 0
        self.complete_delayed_fetches(now_ms)
        self.voter_changes.on_high_watermark(committed)
        is_removed = not replicas.leader_is_voter and quorum.log.voters.last_offset < committed
        if is_removed and self.resign_at_ms is None:
            self.resign_at_ms = now_ms + _RESIGN_AFTER_REMOVAL_MS

    # ---- fetches -----------------------------------------------------------------------------------------------------

    def on_fetch(self, token: int, fetch: Fetch, now_ms: int) -> None:
        """Take note of the replica's position; answer now, or when there is something new."""
        quorum, replicas = self.quorum, self.replicas
        if fetch.fetch_offset < 0:
            quorum.refuse_fetch(token, ErrorCode.INVALID_REQUEST)
            return
        self._refuse_older_fetch(fetch.replica)
        progress = replicas.progress_of(fetch.replica)
        if not divergence.needs_snapshot(quorum.log, fetch) and divergence.diverging_epoch(quorum.log, fetch) is None:
            progress.on_fetch(fetch.fetch_offset, quorum.log.end_offset, now_ms)
            self.maybe_advance_high_watermark(now_ms)
        else:
            progress.last_fetch_ms = now_ms
        if replicas.voters.is_voter(fetch.replica):
            self.announcements.pop(fetch.replica.id, None)
        delayed = DelayedFetch(token, fetch, now_ms + fetch.max_wait_ms)
        if not self._try_answer(delayed, now_ms):
            self.delayed_fetches.append(delayed)

    def on_fetch_snapshot(self, request: FetchSnapshot, now_ms: int) -> SnapshotReply:
        """Answer with the part; the request shows that the replica hears this leader."""
        self.replicas.progress_of(request.replica).last_fetch_ms = now_ms
        return snapshot_answer(self.quorum.log, self._leader_and_epoch, request)

    def complete_delayed_fetches(self, now_ms: int) -> None:
        """Answer the fetches for which there is something new."""
        self.delayed_fetches = [delayed for delayed in self.delayed_fetches if not self._try_answer(delayed, now_ms)]

    def _try_answer(self, delayed: DelayedFetch, now_ms: int) -> bool:
        quorum = self.quorum
        progress = self.replicas.progress_of(delayed.request.replica)
        committed = -1 if quorum.high_watermark.offset is None else quorum.high_watermark.offset
        leader = FetchedLeader(self.leader_id, self.epoch, quorum.config.own_endpoint, committed)
        try:
            reply = fetch_answer(quorum.log, leader, progress, delayed, now_ms)
        except StorageError:
            raise
        except ProtocolError as error:
            sometimes(True, "a controller could not read the records that a replica fetched")
            quorum.refuse_fetch(delayed.token, error.code)
            return True
        if reply is not None:
            quorum.effects.fetch_replies.append((delayed.token, reply))
        return reply is not None

    def _refuse_older_fetch(self, replica: ReplicaKey) -> None:
        """A replica has one fetch at a time, so it has given up an older one."""
        for delayed in [one for one in self.delayed_fetches if one.request.replica == replica and replica.id >= 0]:
            sometimes(True, "a controller refused the older of two fetches of one replica")
            self.delayed_fetches.remove(delayed)
            self.quorum.refuse_fetch(delayed.token, ErrorCode.REQUEST_TIMED_OUT)

    # ---- changes of the voters ---------------------------------------------------------------------------------------

    def on_voter_change(self, token: int, request: VoterChange, now_ms: int) -> None:
        """Begin the change, or refuse it."""
        self.voter_changes.on_request(token, request, now_ms)

    def on_probe_reply(self, sent: Outgoing, reply: ProbeReply | None, now_ms: int) -> None:
        """A future voter has answered, or not."""
        self.voter_changes.on_probe_reply(sent, reply, now_ms)

    def upgrade_kraft_version(self, epoch: int, level: int, *, validate_only: bool) -> None:
        """Finalize `kraft.version` as the leader of `epoch`. Raises `NotLeaderError`, and `ProtocolError`."""
        self._check_leads(epoch)
        self.voter_changes.upgrade_kraft_version(level, validate_only=validate_only)

    def on_voters_appended(self, voters: VoterSet, now_ms: int) -> None:
        """A record with another set of voters was appended: it counts at once, for its own commit too (KIP-853)."""
        before = list(self.replicas.peers)
        self.set_voters(voters)
        sometimes(not self.replicas.leader_is_voter, "a controller led on while its own removal was not committed")
        for voter_id in self.replicas.peers:
            if voter_id not in before:
                self._begin_epoch(voter_id, now_ms)
        self.complete_delayed_fetches(now_ms)
        self.maybe_advance_high_watermark(now_ms)

    def set_voters(self, voters: VoterSet) -> None:
        """Other voters count from now on."""
        self.replicas.set_voters(voters)
        made = self.announcements
        self.announcements = {voter: one for voter, one in made.items() if voter in self.replicas.peers}
