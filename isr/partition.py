"""A partition on this node: leader, follower or neither, without its log.

Roles change only by metadata, in the order of leader epoch and then partition epoch; what is older is ignored. The high
watermark outlives the roles: a follower that becomes leader starts from the one it had learnt.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from ..wire.errors import ErrorCode, ProtocolError
from ..wire.types import TopicPartition
from .high_watermark import HighWatermark
from .leader.leader_state import BrokerView, LeaderConfig, LeaderState

NO_LEADER = -1
NO_EPOCH = -1


class Registration(Protocol):
    """What the controller has committed about a partition (`PartitionRegistration`)."""

    @property
    def replicas(self) -> tuple[int, ...]: ...
    @property
    def isr(self) -> tuple[int, ...]: ...
    @property
    def leader(self) -> int: ...
    @property
    def leader_epoch(self) -> int: ...
    @property
    def partition_epoch(self) -> int: ...


@dataclass(frozen=True, slots=True)
class FollowerState:
    """A follower in one leader epoch; `leader_id` is -1 while there is no leader."""

    leader_id: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...] = ()


class Partition:
    """Pure state of one replica of a partition. Raises `ProtocolError` where a request must be refused."""

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
        return self.follower.leader_epoch if self.leader is None else self.leader.leader_epoch

    @property
    def partition_epoch(self) -> int:
        return self.follower.partition_epoch if self.leader is None else self.leader.partition_epoch

    @property
    def leader_id(self) -> int:
        return self.follower.leader_id if self.leader is None else self.config.local_id

    def is_news(self, registration: Registration) -> bool:
        """Not older than what this node has acted on."""
        return registration.leader_epoch >= self.leader_epoch and registration.partition_epoch >= self.partition_epoch

    def is_newer(self, registration: Registration) -> bool:
        """Newer than what this node has acted on."""
        return registration.leader_epoch > self.leader_epoch or registration.partition_epoch > self.partition_epoch

    def make_leader(self, registration: Registration, log_end_offset: int, now_ms: int) -> bool:
        """This node leads. True when it did not before. The high watermark may move: the ISR may be this node alone."""
        became_leader = self.leader is None
        if self.leader is None:
            self.leader = LeaderState(self.config, self._brokers, self.watermark)
        self.leader.on_registration(
            registration.replicas,
            registration.isr,
            (registration.leader_epoch, registration.partition_epoch),
            log_end_offset,
            now_ms,
        )
        return became_leader

    def make_follower(self, registration: Registration) -> bool:
        """Another node leads, or none. True when the leader or its epoch is a new one."""
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
            self.watermark.reset(log_end_offset)

    def update_config(self, config: LeaderConfig) -> None:
        """New settings; a lower `min_isr` lets the high watermark move at the next chance."""
        self.config = config
        if self.leader is not None:
            self.leader.update_config(config)

    def check_leader_epoch(self, requested_epoch: int) -> None:
        """Refuse who knows less or more than this node; -1 does not ask. Source: KIP-320."""
        if requested_epoch < 0:
            return
        leader_epoch = self.leader_epoch
        if requested_epoch < leader_epoch:
            raise ProtocolError(ErrorCode.FENCED_LEADER_EPOCH, f"epoch {requested_epoch} is over, now {leader_epoch}")
        if requested_epoch > leader_epoch:
            raise ProtocolError(ErrorCode.UNKNOWN_LEADER_EPOCH, f"epoch {requested_epoch} not known, {leader_epoch} is")

    def require_leader(self) -> LeaderState:
        """The leader's state, or NOT_LEADER_OR_FOLLOWER."""
        if self.leader is None:
            raise ProtocolError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"not the leader of {self.topic_partition}")
        return self.leader
