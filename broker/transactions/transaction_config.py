"""The settings of the transaction coordinator, named after the keys of server.properties; times in milliseconds."""

from __future__ import annotations

from dataclasses import dataclass, field

TRANSACTION_TOPIC = "__transaction_state"


@dataclass(frozen=True, slots=True)
class TransactionTopicConfig:
    """transaction.state.log.*: with what `__transaction_state` is created."""

    partitions: int = 50
    replication_factor: int = 3
    min_isr: int = 2
    segment_bytes: int = 100 * 1024 * 1024

    def topic_configs(self) -> dict[str, str]:
        """The topic's own settings, the same as in Apache Kafka."""
        return {
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "min.insync.replicas": str(self.min_isr),
            "segment.bytes": str(self.segment_bytes),
            "unclean.leader.election.enable": "false",
        }


@dataclass(frozen=True, slots=True)
class TransactionConfig:
    """transaction.* and transactional.id.*.

    `is_two_phase_commit_enabled` allows transactions that an outside coordinator ends (KIP-939). `abort_interval_ms`
    and `expiration_interval_ms` say how often transactions that have timed out and ids that have expired are looked
    for.
    """

    topic: TransactionTopicConfig = field(default_factory=TransactionTopicConfig)
    max_timeout_ms: int = 15 * 60 * 1000
    is_two_phase_commit_enabled: bool = False
    abort_interval_ms: int = 10_000
    id_expiration_ms: int = 7 * 24 * 60 * 60 * 1000
    expiration_interval_ms: int = 60 * 60 * 1000
