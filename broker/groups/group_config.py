"""The settings of the group coordinator, named after the keys of server.properties; times in milliseconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

OFFSETS_TOPIC = "__consumer_offsets"


@dataclass(frozen=True, slots=True)
class OffsetsTopicConfig:
    """offsets.topic.*: with what `__consumer_offsets` is created."""

    partitions: int = 50
    replication_factor: int = 3
    segment_bytes: int = 100 * 1024 * 1024

    def topic_configs(self) -> dict[str, str]:
        """The topic's own settings, the same as in Apache Kafka."""
        return {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(self.segment_bytes),
        }


@dataclass(frozen=True, slots=True)
class ClassicConfig:
    """group.*: the classic protocol, in which a client assigns the partitions."""

    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 3_000
    max_size: int = 2**31 - 1
    new_member_join_timeout_ms: int = 5 * 60 * 1000


class MigrationPolicy(StrEnum):
    """group.consumer.migration.policy: in which direction a group with members may change its protocol."""

    DISABLED = "disabled"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    BIDIRECTIONAL = "bidirectional"

    @property
    def upgrades(self) -> bool:
        """Whether a classic group may become a consumer group."""
        return self in (MigrationPolicy.UPGRADE, MigrationPolicy.BIDIRECTIONAL)

    @property
    def downgrades(self) -> bool:
        """Whether a consumer group may become a classic group."""
        return self in (MigrationPolicy.DOWNGRADE, MigrationPolicy.BIDIRECTIONAL)


@dataclass(frozen=True, slots=True)
class ConsumerConfig:
    """group.consumer.*: the consumer protocol (KIP-848), in which the coordinator assigns the partitions."""

    session_timeout_ms: int = 45_000
    min_session_timeout_ms: int = 45_000
    max_session_timeout_ms: int = 60_000
    heartbeat_interval_ms: int = 5_000
    min_heartbeat_interval_ms: int = 5_000
    max_heartbeat_interval_ms: int = 15_000
    max_size: int = 2**31 - 1
    assignors: tuple[str, ...] = ("uniform", "range")
    migration_policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL


@dataclass(frozen=True, slots=True)
class OffsetsConfig:
    """offset(s).*: committed offsets."""

    metadata_max_bytes: int = 4_096
    commit_timeout_ms: int = 5_000
    retention_ms: int = 7 * 24 * 60 * 60 * 1000
    retention_check_interval_ms: int = 600_000


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """The settings of the group coordinator, by subject."""

    topic: OffsetsTopicConfig = OffsetsTopicConfig()
    classic: ClassicConfig = ClassicConfig()
    consumer: ConsumerConfig = ConsumerConfig()
    offsets: OffsetsConfig = OffsetsConfig()


def with_own_values(config: GroupConfig, own: Mapping[str, str]) -> GroupConfig:
    """The settings of a group with values of its own (KIP-848, "Group Configs").

    Values outside this broker's limits are moved to the limit: they were checked against the limits of another node.
    """
    consumer = config.consumer
    session_ms, interval_ms = consumer.session_timeout_ms, consumer.heartbeat_interval_ms
    if "consumer.session.timeout.ms" in own:
        wanted = int(own["consumer.session.timeout.ms"])
        session_ms = _within(wanted, consumer.min_session_timeout_ms, consumer.max_session_timeout_ms)
    if "consumer.heartbeat.interval.ms" in own:
        wanted = int(own["consumer.heartbeat.interval.ms"])
        interval_ms = _within(wanted, consumer.min_heartbeat_interval_ms, consumer.max_heartbeat_interval_ms)
    return replace(config, consumer=replace(consumer, session_timeout_ms=session_ms, heartbeat_interval_ms=interval_ms))


def _within(value: int, low: int, high: int) -> int:
    return min(max(value, low), high)
