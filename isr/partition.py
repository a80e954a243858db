"""The state of one replica without its log: leader, or follower of another broker or of none.

Roles change by metadata only, in the order of leader epoch and then partition epoch; older metadata is ignored. The
high watermark outlives the roles: a follower that becomes leader starts from the one that it has learnt.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from ..runtime.invariants import sometimes
from ..wire.errors import ErrorCode, ProtocolError
from ..wire.types import TopicPartition
from .high_watermark import HighWatermark
from .leader.leader_state import BrokerView, LeaderConfig, LeaderState

NO_LEADER = -1
NO_EPOCH = -1


class Registration(Protocol):
    """What the controller has committed about a partition (`PartitionRegistration`)."""

    @property
    def replicas(self) -> tuple[int, ...]:
        """The ids of the brokers that have a replica."""
        ...

    @property
    def adding_replicas(self) -> tuple[int, ...]:
        """Those of the replicas that a reassignment is adding."""
        ...

    @property
    def isr(self) -> tuple[int, ...]:
        """The in-sync replicas."""
        ...

    @property
    def leader(self) -> int:
        """The id of the leader, -1 for none."""
        ...

    @property
    def leader_epoch(self) -> int:
        """Counts the leaders."""
        ...

    @property
    def partition_epoch(self) -> int:
        """Counts the changes of the registration."""
        ...


@dataclass(frozen=True, slots=True)
class FollowerState:
    """A follower in one leader epoch; `leader_id` is -1 while there is no leader."""

    leader_id: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...] = ()


class Partition:
    """Owns the role of one replica and its high watermark. Pure: without I/O."""

    __slots__ = ("_brokers", "config", "follower", "leader", "topic_partition", "watermark")

    def __init__(
        self, topic_partition: TopicPartition, config: LeaderConfig, brokers: BrokerView, high_watermark: int
    ) -> None:
        self.topic_partition = topic_partition
        self.config = config
        self._brokers = brokers
        self.leader: LeaderState | None = None
        self.follower = FollowerState(NO_LEADER, NO_EPOCH, NO_EPOCH)
        self.watermark = HighWatermark(high_watermark)

    @property
    def high_watermark(self) -> int:
        """The offset below which this node knows all records to be committed."""
        return self.watermark.offset

    @property
    def leader_epoch(self) -> int:
        """The leader epoch that this node has acted on; -1 before the first one."""
        return self.follower.leader_epoch if self.leader is None else self.leader.leader_epoch

    @property
    def partition_epoch(self) -> int:
        """The partition epoch that this node has acted on; -1 before the first one."""
        return self.follower.partition_epoch if self.leader is None else self.leader.partition_epoch

    @property
    def leader_id(self) -> int:
        """The leader that this node knows; -1 for none."""
        return self.follower.leader_id if self.leader is None else self.config.local_id

    def is_news(self, registration: Registration) -> bool:
        """Whether it is not older than what this node has acted on."""
        return registration.leader_epoch >= self.leader_epoch and registration.partition_epoch >= self.partition_epoch

    def is_newer(self, registration: Registration) -> bool:
        """Whether it is newer than what this node has acted on."""
        return registration.leader_epoch > self.leader_epoch or registration.partition_epoch > self.partition_epoch

    def make_leader(self, registration: Registration, log_end_offset: int, now_ms: int) -> bool:
        """This node leads; true when it did not before. The high watermark advances if the ISR is this node alone."""
        became_leader = self.leader is None
        if self.leader is None:
            self.leader = LeaderState(self.config, self._brokers, self.watermark)
        self.leader.on_registration(
            registration.replicas,
            registration.isr,
            (registration.leader_epoch, registration.partition_epoch),
            log_end_offset,
            now_ms,
            registration.adding_replicas,
        )
        return became_leader

    def make_follower(self, registration: Registration) -> bool:
        """Another node leads, or none; true when the leader or its epoch is new."""
        changed = (
            self.leader is not None
            or registration.leader_epoch != self.follower.leader_epoch
            or registration.leader != self.follower.leader_id
        )
        self.follower = FollowerState(
            registration.leader,
            registration.leader_epoch,
            registration.partition_epoch,
            registration.isr,
        )
        self.leader = None
        return changed

    def learn_high_watermark(self, leader_high_watermark: int, log_end_offset: int) -> None:
        """A follower takes over its leader's high watermark, as far as its own log reaches.

        A new leader may know less than its followers: what was committed stays committed.
        """
        self.watermark.advance(min(leader_high_watermark, log_end_offset))

    def on_truncated(self, log_end_offset: int) -> None:
        """Keep the high watermark within the log. Only an unclean election takes committed records away."""
        if log_end_offset < self.watermark.offset:
            sometimes(True, "an unclean election took committed records away from a follower")
            self.watermark.reset(log_end_offset)

    def update_config(self, config: LeaderConfig) -> None:
        """Use new settings. A lower `min_isr` may let the high watermark advance; that is for the caller to try."""
        self.config = config
        if self.leader is not None:
            self.leader.update_config(config)

    def check_leader_epoch(self, requested_epoch: int) -> None:
        """Refuse a request that names another leader epoch than this node knows; -1 names none (KIP-320).

        Raises `ProtocolError`: FENCED_LEADER_EPOCH for an older one, UNKNOWN_LEADER_EPOCH for a newer one.
        """
        if requested_epoch == -1:
            return
        leader_epoch = self.leader_epoch
        if requested_epoch < leader_epoch:
            sometimes(True, "a request named a former leader epoch")
            raise ProtocolError(ErrorCode.FENCED_LEADER_EPOCH, f"epoch {requested_epoch} is over, now {leader_epoch}")
        if requested_epoch > leader_epoch:
            sometimes(True, "a request named a leader epoch that the broker did not know yet")
            raise ProtocolError(ErrorCode.UNKNOWN_LEADER_EPOCH, f"epoch {requested_epoch} not known, {leader_epoch} is")

    def require_leader(self) -> LeaderState:
        """The leader's state. Raises `ProtocolError`: NOT_LEADER_OR_FOLLOWER."""
        if self.leader is None:
            raise ProtocolError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"not the leader of {self.topic_partition}")
        return self.leader
