"""The settings of the group coordinator, named after the keys of server.properties; times in milliseconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

OFFSETS_TOPIC = "__consumer_offsets"
LATE_MS = 500
GRACE_MS = 1_000
"""A session's end that is noticed later than `LATE_MS` says that this node stood still, and heartbeats may wait unread
before its door: the member has `GRACE_MS` from there on."""


@dataclass(frozen=True, slots=True)
class OffsetsTopicConfig:
    """offsets.topic.*: how `__consumer_offsets` is made."""

    partitions: int = 50
    replication_factor: int = 3
    segment_bytes: int = 100 * 1024 * 1024

    def topic_configs(self) -> dict[str, str]:
        """What the topic is created with, as Apache Kafka does."""
        return {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(self.segment_bytes),
        }


@dataclass(frozen=True, slots=True)
class ClassicConfig:
    """group.*: the protocol in which the clients assign."""

    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 3_000
    max_size: int = 2**31 - 1
    new_member_join_timeout_ms: int = 5 * 60 * 1000


class MigrationPolicy(StrEnum):
    """group.consumer.migration.policy: which way a group with members may go from one protocol to the other."""

    DISABLED = "disabled"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    BIDIRECTIONAL = "bidirectional"

    @property
    def upgrades(self) -> bool:
        return self in (MigrationPolicy.UPGRADE, MigrationPolicy.BIDIRECTIONAL)

    @property
    def downgrades(self) -> bool:
        return self in (MigrationPolicy.DOWNGRADE, MigrationPolicy.BIDIRECTIONAL)


@dataclass(frozen=True, slots=True)
class ConsumerConfig:
    """group.consumer.*: the protocol of KIP-848, in which the coordinator assigns."""

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
    """All of it."""

    topic: OffsetsTopicConfig = OffsetsTopicConfig()
    classic: ClassicConfig = ClassicConfig()
    consumer: ConsumerConfig = ConsumerConfig()
    offsets: OffsetsConfig = OffsetsConfig()


def with_own_values(config: GroupConfig, own: Mapping[str, str]) -> GroupConfig:
    """The settings of a group that has values of its own, within what the broker allows (KIP-848, "Group Configs").

    Values are held to the limits here too: they may have been narrower or wider where the value was checked.
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
