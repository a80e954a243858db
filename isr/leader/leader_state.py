"""The leader's side of a partition: its followers, its ISR, and the high watermark that follows from them.

The high watermark is the smallest log end offset in the maximal ISR and among the replicas that are about to join it,
which are those that fetch and are caught up. It never goes back while a node leads. It stands still while the committed
ISR is smaller than `min.insync.replicas` (KAFKA-15583): records that too few replicas have must not be seen. A new
leader starts from the high watermark that it had as a follower. It knows no follower's position, and learns them from
fetches of its own epoch only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from ...runtime.invariants import invariant, sometimes
from ...wire.errors import ErrorCode, ProtocolError
from ...wire.types import is_under_replicated
from ..high_watermark import HighWatermark
from .follower_progress import UNKNOWN_EPOCH, FollowerProgress
from .isr_state import CommittedIsr, IsrState, PendingExpandIsr, PendingIsr, PendingShrinkIsr


class BrokerView(Protocol):
    """What the metadata says about brokers."""

    def broker_epoch(self, broker_id: int) -> int | None:
        """The epoch of the broker's present registration; None when there is none."""
        ...

    def is_isr_eligible(self, broker_id: int, broker_epoch: int) -> bool:
        """Whether the broker may join the ISR.

        It is registered with this epoch (-1: any), neither fenced nor shutting down, and its log directory works.
        """
        ...


@dataclass(frozen=True, slots=True)
class IsrProposal:
    """A new ISR that a leader proposes to the controller. An answer counts only while `state` is the leader's state."""

    leader_epoch: int
    partition_epoch: int
    new_isr: tuple[tuple[int, int], ...]
    """Broker id and broker epoch of each member; epoch -1 for one that has not fetched in this leadership."""
    state: PendingIsr


@dataclass(frozen=True, slots=True)
class AlterPartitionResult:
    """The controller's answer for one partition. `error_code` NONE makes the other fields the committed state."""

    error_code: int
    leader_id: int = -1
    leader_epoch: int = -1
    isr: tuple[int, ...] = ()
    partition_epoch: int = -1
    leader_recovery_state: int = 0


@dataclass(frozen=True, slots=True)
class LeaderConfig:
    """Settings of a partition's leader. `min_isr` is min.insync.replicas."""

    local_id: int
    min_isr: int = 1
    lag_time_max_ms: int = 30_000


JOIN_WAIT_MS = 2_000
"""The high watermark waits for a replica that is about to join the ISR for so long after its last fetch. It joins by
fetching; if a replica stopped fetching, every produce would have to wait for `replica.lag.time.max.ms`, as in Kafka.
Where neither a fetch nor a record comes after that, the high watermark advances when ISRs are looked at next."""

RESET_TO_COMMITTED = frozenset({ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA})
"""The controller has not carried the proposal out and will not do so: the leader drops it."""

AWAIT_METADATA = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    }
)
"""The proposal may have been carried out, or there is a new leader: the state stays pending until metadata comes."""


class LeaderState:
    """A partition's leader, in one epoch or in several consecutive epochs of its own. Pure: without I/O."""

    __slots__ = (
        "_brokers",
        "adding_replicas",
        "config",
        "effective_min_isr",
        "followers",
        "isr_state",
        "leader_epoch",
        "leader_epoch_start_offset",
        "partition_epoch",
        "replicas",
        "watermark",
    )

    def __init__(self, config: LeaderConfig, brokers: BrokerView, watermark: HighWatermark) -> None:
        self.config = config
        self._brokers = brokers
        self.watermark = watermark
        self.replicas: tuple[int, ...] = ()
        self.adding_replicas: tuple[int, ...] = ()
        """Those of `replicas` that a reassignment is adding."""
        self.effective_min_isr = 0
        """`min.insync.replicas`, or the number of replicas where that is smaller."""
        self.followers: dict[int, FollowerProgress] = {}
        self.isr_state: IsrState = CommittedIsr(())
        self.leader_epoch = -1
        self.leader_epoch_start_offset = -1
        self.partition_epoch = -1

    @property
    def high_watermark(self) -> int:
        """The offset below which all records are committed."""
        return self.watermark.offset

    @property
    def is_under_min_isr(self) -> bool:
        """Whether the committed ISR is smaller than `effective_min_isr`."""
        return len(self.isr_state.isr) < self.effective_min_isr

    @property
    def is_under_replicated(self) -> bool:
        """Whether replicas are missing from the committed ISR."""
        return is_under_replicated(self.isr_state.isr, self.replicas, self.adding_replicas)

    # ---------------------------------------------------------------- metadata

    def update_config(self, config: LeaderConfig) -> None:
        """Use new settings. The high watermark may be able to advance; that is for the caller to try."""
        self.config = config
        self.effective_min_isr = min(config.min_isr, len(self.replicas))

    def on_registration(
        self,
        replicas: tuple[int, ...],
        isr: tuple[int, ...],
        epochs: tuple[int, int],
        log_end_offset: int,
        now_ms: int,
        adding_replicas: tuple[int, ...] = (),
    ) -> None:
        """The metadata names this node as leader; `epochs` are leader and partition epoch, neither lower than known.

        The same epochs again are ignored. Otherwise a proposal made meanwhile would be dropped, and the high watermark
        could pass a replica that the controller is just adding to the ISR (KAFKA-12686).
        """
        leader_epoch, partition_epoch = epochs
        if leader_epoch == self.leader_epoch and partition_epoch <= self.partition_epoch:
            sometimes(
                not isinstance(self.isr_state, CommittedIsr),
                "a leader kept its proposal of an ISR when it heard of the same epochs again",
            )
            return
        invariant(leader_epoch >= self.leader_epoch, "a leader epoch does not go back")
        invariant(set(isr) <= set(replicas), "the ISR is a subset of the replicas")
        self.replicas, self.adding_replicas = replicas, adding_replicas
        self.update_config(self.config)
        # A replica that was taken away and added again has an empty log, and is not in the ISR. That takes two changes.
        is_one_change = partition_epoch == self.partition_epoch + 1
        known = {replica: one for replica, one in self.followers.items() if is_one_change or replica in isr}
        self.followers = {
            replica: known.get(replica) or FollowerProgress(replica)
            for replica in replicas
            if replica != self.config.local_id
        }
        self._settle(isr)
        self.partition_epoch = partition_epoch
        if leader_epoch > self.leader_epoch:
            self._begin_epoch(leader_epoch, isr, log_end_offset, now_ms)
        self.maybe_advance_high_watermark(log_end_offset, now_ms)

    def _settle(self, isr: tuple[int, ...]) -> None:
        """The controller has committed this ISR."""
        for replica_id in self.isr_state.isr:
            follower = self.followers.get(replica_id)
            if follower is not None and replica_id not in isr:
                follower.leave_isr()
        self.isr_state = CommittedIsr(isr)

    def _begin_epoch(self, leader_epoch: int, isr: tuple[int, ...], log_end_offset: int, now_ms: int) -> None:
        """Followers' offsets stay known from one own epoch to the next; a gap may hide the epoch of another leader."""
        new_leader = self.leader_epoch < 0 or leader_epoch > self.leader_epoch + 1
        sometimes(new_leader and self.leader_epoch >= 0, "a leader led on after an epoch that it had missed")
        sometimes(not new_leader, "a leader led on in the next epoch")
        self.leader_epoch = leader_epoch
        self.leader_epoch_start_offset = log_end_offset
        for replica_id, follower in self.followers.items():
            follower.reset(now_ms, log_end_offset, new_leader=new_leader, in_isr=replica_id in isr)

    # ---------------------------------------------------------------- high watermark

    def maybe_advance_high_watermark(self, log_end_offset: int, now_ms: int) -> bool:
        """Advance to the smallest log end offset among the replicas that are waited for; true when it moved."""
        if self.is_under_min_isr:
            return False
        lowest, watermark = log_end_offset, self.watermark
        maximal_isr = self.isr_state.maximal_isr
        for replica_id, follower in self.followers.items():
            if follower.log_end_offset < lowest and (
                replica_id in maximal_isr or self._is_joining(follower, log_end_offset, now_ms)
            ):
                lowest = follower.log_end_offset
                if lowest <= watermark.offset:
                    return False
        return watermark.advance(lowest)

    def waits_for(self, replica_id: int, log_end_offset: int, now_ms: int) -> bool:
        """Whether the high watermark waits for this follower."""
        if replica_id in self.isr_state.maximal_isr:
            return True
        follower = self.followers.get(replica_id)
        return follower is not None and self._is_joining(follower, log_end_offset, now_ms)

    def _is_joining(self, follower: FollowerProgress, log_end_offset: int, now_ms: int) -> bool:
        lag_time_max_ms = self.config.lag_time_max_ms
        return (
            follower.has_fetched_within(min(JOIN_WAIT_MS, lag_time_max_ms), now_ms)
            and follower.is_caught_up(log_end_offset, now_ms, lag_time_max_ms)
            and self._is_eligible(follower)
        )

    def _is_eligible(self, follower: FollowerProgress) -> bool:
        epoch = follower.broker_epoch
        return epoch is not None and self._brokers.is_isr_eligible(follower.replica_id, epoch)

    # ---------------------------------------------------------------- fetches of followers

    def check_follower(self, replica_id: int, broker_epoch: int) -> FollowerProgress:
        """The progress of a replica that may fetch.

        Raises `ProtocolError`: UNKNOWN_LEADER_EPOCH when this node does not know (yet) that the replica is assigned,
        and NOT_LEADER_OR_FOLLOWER for an earlier incarnation of the broker (KIP-903).
        """
        follower = self.followers.get(replica_id)
        if follower is None:
            sometimes(True, "a broker fetched that the leader did not know as a replica yet")
            raise ProtocolError(ErrorCode.UNKNOWN_LEADER_EPOCH, f"broker {replica_id} is not a replica here")
        if broker_epoch != UNKNOWN_EPOCH:
            known_epoch = self._brokers.broker_epoch(replica_id)
            if known_epoch is not None and known_epoch > broker_epoch:
                sometimes(True, "a former incarnation of a broker fetched")
                raise ProtocolError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"stale epoch {broker_epoch} of {replica_id}")
        return follower

    def on_follower_fetch(
        self,
        follower: FollowerProgress,
        broker_epoch: int,
        offsets: tuple[int, int],
        log_end_offset: int,
        now_ms: int,
    ) -> IsrProposal | None:
        """Record a fetch that passed `check_follower`, the epoch checks and the divergence check (KAFKA-13141).

        `offsets` are the fetch offset and the follower's log start offset. Returns the ISR expansion to propose, if
        any. The high watermark may advance.
        """
        moved = offsets[0] != follower.log_end_offset
        follower.on_fetch(offsets[0], offsets[1], log_end_offset, broker_epoch, now_ms)
        proposal = self.propose_expand(follower)
        if moved:
            self.maybe_advance_high_watermark(log_end_offset, now_ms)
        return proposal

    # ---------------------------------------------------------------- ISR changes

    def propose_expand(self, follower: FollowerProgress) -> IsrProposal | None:
        """Propose to add a replica that has all records that are committed or older than this epoch; None if not."""
        state = self.isr_state
        if follower.replica_id in state.isr or not isinstance(state, CommittedIsr):
            return None
        end_offset = follower.log_end_offset
        if end_offset < self.high_watermark or end_offset < self.leader_epoch_start_offset:
            sometimes(
                end_offset >= self.high_watermark,
                "a replica had not come to the leader epoch yet",
            )
            return None
        if not self._is_eligible(follower):
            sometimes(True, "a replica had caught up, and its broker could not join the ISR yet")
            return None
        return self._propose(PendingExpandIsr(state, follower.replica_id))

    def propose_shrink(self, log_end_offset: int, now_ms: int) -> IsrProposal | None:
        """Propose to remove the replicas that were not caught up within the lag time; None when there are none."""
        state = self.isr_state
        if not isinstance(state, CommittedIsr):
            return None
        out_of_sync = tuple(
            replica_id
            for replica_id in state.isr
            if replica_id != self.config.local_id
            and not self.followers[replica_id].is_caught_up(log_end_offset, now_ms, self.config.lag_time_max_ms)
        )
        sometimes(out_of_sync, "a leader proposed an ISR without replicas that had fallen behind")
        return self._propose(PendingShrinkIsr(state, out_of_sync)) if out_of_sync else None

    def _propose(self, pending: PendingIsr) -> IsrProposal:
        self.isr_state = pending
        members = tuple((replica_id, self._epoch_of(replica_id)) for replica_id in pending.proposed_isr)
        return IsrProposal(self.leader_epoch, self.partition_epoch, members, pending)

    def _epoch_of(self, replica_id: int) -> int:
        if replica_id == self.config.local_id:
            epoch = self._brokers.broker_epoch(replica_id)
        else:
            epoch = self.followers[replica_id].broker_epoch
        return UNKNOWN_EPOCH if epoch is None else epoch

    def on_alter_partition_result(
        self, proposal: IsrProposal, result: AlterPartitionResult, log_end_offset: int, now_ms: int
    ) -> bool:
        """Take in the controller's answer; true when the same proposal is to be sent again.

        An answer to a proposal that is not current any more is ignored: metadata came first. A smaller ISR counts only
        when it comes as metadata, since the metadata before it may have raised min.insync.replicas: a replica that left
        the ISR may still be eligible to lead by the new value (KIP-966). It must have what the old value commits.
        """
        if self.isr_state is not proposal.state:
            sometimes(True, "metadata overtook the answer to a proposal of an ISR")
            return False
        error_code = result.error_code
        if error_code == ErrorCode.NONE:
            if not isinstance(proposal.state, PendingShrinkIsr):
                self._commit(result, log_end_offset, now_ms)
            return False
        if error_code in RESET_TO_COMMITTED:
            sometimes(True, "the controller refused a replica that was proposed for an ISR")
            self.isr_state = proposal.state.committed
            self.maybe_advance_high_watermark(log_end_offset, now_ms)
            return False
        sometimes(error_code == ErrorCode.FENCED_LEADER_EPOCH, "a leader proposed an ISR in a former leader epoch")
        sometimes(
            error_code == ErrorCode.INVALID_UPDATE_VERSION, "a leader proposed an ISR by a former partition epoch"
        )
        return error_code not in AWAIT_METADATA

    def _commit(self, result: AlterPartitionResult, log_end_offset: int, now_ms: int) -> None:
        if result.leader_epoch != self.leader_epoch or result.partition_epoch < self.partition_epoch:
            sometimes(True, "the answer to a proposal of an ISR was of another epoch")
            return
        self._settle(result.isr)
        self.partition_epoch = result.partition_epoch
        self.maybe_advance_high_watermark(log_end_offset, now_ms)
