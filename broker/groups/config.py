"""The settings of the group coordinator, named after the keys of server.properties; times in milliseconds."""

from __future__ import annotations

from dataclasses import dataclass

OFFSETS_TOPIC = "__consumer_offsets"


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


@dataclass(frozen=True, slots=True)
class ConsumerConfig:
    """group.consumer.*: the protocol of KIP-848, in which the coordinator assigns."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    max_size: int = 2**31 - 1
    assignors: tuple[str, ...] = ("uniform", "range")


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
