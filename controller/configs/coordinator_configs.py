"""The broker's configurations of the coordinators of groups and of transactions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...wire.config_def import (
    BOOLEAN,
    INT,
    INT_MAX,
    LIST,
    LONG,
    NOT_NEGATIVE,
    POSITIVE,
    STRING,
    Between,
    ConfigKey,
    UpdateMode,
    one_of,
)


@dataclass(frozen=True, slots=True)
class Assignors:
    """The range of `group.consumer.assignors`."""

    requirement: str = ""

    def complaint(self, value: Any) -> str | None:
        """Refuse unknown assignors, and none."""
        known = bool(value) and all(name in ("uniform", "range") for name in value)
        return None if known else "the assignors are uniform and range"

    def __str__(self) -> str:
        return "[uniform, range]"


COORDINATOR_CONFIGS: tuple[ConfigKey, ...] = (
    # transactions
    ConfigKey(
        "transaction.state.log.num.partitions",
        INT,
        "50",
        "Partitions of __transaction_state when it is created.",
        POSITIVE,
    ),
    ConfigKey(
        "transaction.state.log.replication.factor", INT, "3", "Replicas of __transaction_state.", Between(1, 32767)
    ),
    ConfigKey("transaction.state.log.min.isr", INT, "2", "min.insync.replicas of __transaction_state.", POSITIVE),
    ConfigKey(
        "transaction.max.timeout.ms", INT, "900000", "The longest time-out that a transaction may have.", POSITIVE
    ),
    ConfigKey(
        "transaction.two.phase.commit.enable",
        BOOLEAN,
        "false",
        "Allow transactions that an outside coordinator ends, and that never time out (KIP-939).",
    ),
    ConfigKey(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        INT,
        "10000",
        "How often the broker looks for transactions past their time-outs, and aborts them.",
        POSITIVE,
    ),
    ConfigKey(
        "transactional.id.expiration.ms",
        INT,
        "604800000",
        "A transactional id that has not been used for this time is removed.",
        POSITIVE,
    ),
    ConfigKey(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        INT,
        "3600000",
        "How often the broker looks for expired transactional ids.",
        POSITIVE,
    ),
    ConfigKey(
        "transaction.state.log.segment.bytes", INT, "104857600", "Segment size of __transaction_state.", POSITIVE
    ),
    ConfigKey(
        "add.partitions.to.txn.retry.backoff.ms",
        INT,
        "20",
        "Longest wait of a partition's leader before it asks again to add the partition to a transaction, while the "
        "producer's former transaction is ending.",
        POSITIVE,
    ),
    ConfigKey(
        "add.partitions.to.txn.retry.backoff.max.ms",
        INT,
        "100",
        "How long a partition's leader keeps asking; after that the client retries.",
        NOT_NEGATIVE,
    ),
    ConfigKey(
        "transaction.partition.verification.enable",
        BOOLEAN,
        "true",
        "Whether a partition's leader asks the transaction coordinator before a write of an older client opens a "
        "transaction there. Without that, a late write can leave a transaction open for ever.",
        update_mode=UpdateMode.CLUSTER_WIDE,
    ),
    # groups
    ConfigKey(
        "offsets.topic.num.partitions", INT, "50", "Partitions of __consumer_offsets when it is created.", POSITIVE
    ),
    ConfigKey("offsets.topic.replication.factor", INT, "3", "Replicas of __consumer_offsets.", Between(1, 32767)),
    ConfigKey("offsets.topic.segment.bytes", INT, "104857600", "Segment size of __consumer_offsets.", POSITIVE),
    ConfigKey(
        "offset.metadata.max.bytes",
        INT,
        "4096",
        "The longest metadata text of a committed offset, in bytes.",
        NOT_NEGATIVE,
    ),
    ConfigKey("offsets.commit.timeout.ms", INT, "5000", "How long a commit waits for the replicas.", POSITIVE),
    ConfigKey(
        "offsets.retention.minutes",
        INT,
        "10080",
        "Offsets of a group without members are deleted after this time.",
        POSITIVE,
    ),
    ConfigKey(
        "offsets.retention.check.interval.ms",
        LONG,
        "600000",
        "How often the broker looks for expired offsets.",
        POSITIVE,
    ),
    ConfigKey(
        "group.min.session.timeout.ms",
        INT,
        "6000",
        "The shortest session timeout of a member of a classic group.",
        POSITIVE,
    ),
    ConfigKey(
        "group.max.session.timeout.ms",
        INT,
        "1800000",
        "The longest session timeout of a member of a classic group.",
        POSITIVE,
    ),
    ConfigKey(
        "group.initial.rebalance.delay.ms",
        INT,
        "3000",
        "How long a new group waits for more members before its first rebalance.",
        NOT_NEGATIVE,
    ),
    ConfigKey("group.max.size", INT, str(INT_MAX), "The maximum number of members of a classic group.", POSITIVE),
    ConfigKey(
        "group.consumer.min.session.timeout.ms",
        INT,
        "45000",
        "The shortest session timeout that a group may set (KIP-848).",
        POSITIVE,
    ),
    ConfigKey(
        "group.consumer.max.session.timeout.ms",
        INT,
        "60000",
        "The longest session timeout that a group may set (KIP-848).",
        POSITIVE,
    ),
    ConfigKey(
        "group.consumer.min.heartbeat.interval.ms",
        INT,
        "5000",
        "The shortest heartbeat interval that a group may set.",
        POSITIVE,
    ),
    ConfigKey(
        "group.consumer.max.heartbeat.interval.ms",
        INT,
        "15000",
        "The longest heartbeat interval that a group may set.",
        POSITIVE,
    ),
    ConfigKey(
        "group.consumer.max.size",
        INT,
        str(INT_MAX),
        "The maximum number of members of a consumer group (KIP-848).",
        POSITIVE,
    ),
    ConfigKey(
        "group.consumer.migration.policy",
        STRING,
        "bidirectional",
        "In which directions a group with members may change between the classic and the consumer protocol.",
        one_of("disabled", "upgrade", "downgrade", "bidirectional"),
    ),
    ConfigKey(
        "group.consumer.assignors",
        LIST,
        "uniform,range",
        "The assignors that a consumer group may use, the default first.",
        Assignors(),
    ),
)
