"""The table of topic configurations. Names, types, defaults and ranges are those of Apache Kafka 4.2.

The table is in this package because the log of a partition uses it. The controller checks requests by it, and
DescribeConfigs and docs/configuration.md show it. A configuration of the broker that gives topics their default (a
synonym) is declared here too, and nowhere else. Source: "Topic Configs" in Kafka's documentation, and its class
`ServerTopicConfigSynonyms`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..wire.config_def import (
    BOOLEAN,
    DOUBLE,
    INT,
    LIST,
    LONG,
    LONG_MAX,
    NOT_NEGATIVE,
    POSITIVE,
    STRING,
    Between,
    ConfigKey,
    Synonym,
    at_least,
    one_of,
)
from ..wire.errors import ErrorCode, ProtocolError

MINUTE_MS = 60 * 1000
HOUR_MS = 60 * MINUTE_MS
EVERY_REPLICA = "*"
_REPLICA = re.compile(r"([0-9]{1,10}):([0-9]{1,10})")


@dataclass(frozen=True, slots=True)
class GzipLevel:
    """The range of gzip's levels: -1 (gzip's own default), or 1 to 9."""

    requirement: str = "-1, or between 1 and 9"

    def complaint(self, value: Any) -> str | None:
        """Refuse 0, which stores without compression, as Kafka does."""
        return None if value == -1 else Between(1, 9).complaint(value)

    def __str__(self) -> str:
        return "[1,9] or -1"


@dataclass(frozen=True, slots=True)
class ThrottledReplicas:
    """The range of `*.replication.throttled.replicas` (KIP-73): `*`, or pairs of a partition and a broker."""

    requirement: str = ""

    def complaint(self, value: Any) -> str | None:
        """Refuse what `throttled_partitions` does not understand."""
        try:
            throttled_partitions(value, 0)
        except ValueError as error:
            return str(error)
        return None

    def __str__(self) -> str:
        return "[partitionId]:[brokerId],... or *"


def throttled_partitions(replicas: Sequence[str], broker_id: int) -> frozenset[int] | None:
    """The partitions whose replicas on that broker `*.replication.throttled.replicas` names; None for all.

    Raises ValueError with the reason.
    """
    if tuple(replicas) == (EVERY_REPLICA,):
        return None
    found = [_REPLICA.fullmatch(replica) for replica in replicas]
    pairs = [(int(match[1]), int(match[2])) for match in found if match is not None]
    if len(pairs) < len(found):
        raise ValueError(
            "must be the literal '*' or a list of replicas: [partitionId]:[brokerId],[partitionId]:[brokerId],..."
        )
    return frozenset(partition for partition, broker in pairs if broker == broker_id)


MIN_ISR_KEY = "min.insync.replicas"
_ROWS: tuple[ConfigKey, ...] = (
    ConfigKey(
        "cleanup.policy",
        LIST,
        "delete",
        "What happens to old segments: deleted by time and size, or compacted to the last value of each key.",
        one_of("compact", "delete"),
        synonyms=(Synonym("log.cleanup.policy"),),
    ),
    ConfigKey(
        "compression.gzip.level",
        INT,
        "-1",
        "The level if compression.type is gzip; a broker keeps what the producer compressed.",
        GzipLevel(),
        synonyms=(Synonym("compression.gzip.level"),),
    ),
    ConfigKey(
        "compression.lz4.level",
        INT,
        "9",
        "The level if compression.type is lz4. It has no effect here.",
        Between(1, 17),
        synonyms=(Synonym("compression.lz4.level"),),
        is_served=False,
    ),
    ConfigKey(
        "compression.type",
        STRING,
        "producer",
        "The codec in which batches are stored; producer keeps the producer's.",
        one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        synonyms=(Synonym("compression.type"),),
    ),
    ConfigKey(
        "compression.zstd.level",
        INT,
        "3",
        "The level if compression.type is zstd.",
        Between(-131072, 22),
        synonyms=(Synonym("compression.zstd.level"),),
    ),
    ConfigKey(
        "delete.retention.ms",
        LONG,
        "86400000",
        "How long compaction keeps the tombstones of deleted keys.",
        NOT_NEGATIVE,
        synonyms=(Synonym("log.cleaner.delete.retention.ms"),),
    ),
    ConfigKey(
        "file.delete.delay.ms",
        LONG,
        "60000",
        "How long the files of a deleted segment are kept for readers that still use them.",
        NOT_NEGATIVE,
        synonyms=(Synonym("log.segment.delete.delay.ms"),),
    ),
    ConfigKey(
        "flush.messages",
        LONG,
        str(LONG_MAX),
        "The number of records after which the log is fsynced.",
        POSITIVE,
        synonyms=(Synonym("log.flush.interval.messages"),),
    ),
    ConfigKey(
        "flush.ms",
        LONG,
        str(LONG_MAX),
        "The longest time until an append is fsynced.",
        NOT_NEGATIVE,
        synonyms=(Synonym("log.flush.interval.ms", shares_default=False),),
    ),
    ConfigKey(
        "follower.replication.throttled.replicas",
        LIST,
        "",
        "Replicas whose replication is throttled on the follower's side.",
        ThrottledReplicas(),
    ),
    ConfigKey(
        "index.interval.bytes",
        INT,
        "4096",
        "Bytes of log between entries of its index.",
        NOT_NEGATIVE,
        synonyms=(Synonym("log.index.interval.bytes"),),
    ),
    ConfigKey(
        "leader.replication.throttled.replicas",
        LIST,
        "",
        "Replicas whose replication is throttled on the leader's side.",
        ThrottledReplicas(),
    ),
    ConfigKey(
        "local.retention.bytes",
        LONG,
        "-2",
        "With remote storage: bytes kept here; -2 means retention.bytes. It has no effect here.",
        at_least(-2),
        synonyms=(Synonym("log.local.retention.bytes"),),
        is_served=False,
    ),
    ConfigKey(
        "local.retention.ms",
        LONG,
        "-2",
        "With remote storage: time kept here; -2 means retention.ms. It has no effect here.",
        at_least(-2),
        synonyms=(Synonym("log.local.retention.ms"),),
        is_served=False,
    ),
    ConfigKey(
        "max.compaction.lag.ms",
        LONG,
        str(LONG_MAX),
        "A record is compacted after this time at the latest.",
        POSITIVE,
        synonyms=(Synonym("log.cleaner.max.compaction.lag.ms"),),
    ),
    ConfigKey(
        "max.message.bytes",
        INT,
        "1048588",
        "The largest record batch in bytes.",
        NOT_NEGATIVE,
        synonyms=(Synonym("message.max.bytes"),),
    ),
    ConfigKey(
        "message.timestamp.after.max.ms",
        LONG,
        "3600000",
        "How far a record's timestamp may be ahead of the broker's clock.",
        NOT_NEGATIVE,
        synonyms=(Synonym("log.message.timestamp.after.max.ms"),),
    ),
    ConfigKey(
        "message.timestamp.before.max.ms",
        LONG,
        str(LONG_MAX),
        "How far a record's timestamp may be behind the broker's clock.",
        NOT_NEGATIVE,
        synonyms=(Synonym("log.message.timestamp.before.max.ms"),),
    ),
    ConfigKey(
        "message.timestamp.type",
        STRING,
        "CreateTime",
        "Whose clock a record carries: the producer's (CreateTime) or the broker's (LogAppendTime).",
        one_of("CreateTime", "LogAppendTime"),
        synonyms=(Synonym("log.message.timestamp.type"),),
    ),
    ConfigKey(
        "min.cleanable.dirty.ratio",
        DOUBLE,
        "0.5",
        "The share of uncompacted bytes at which compaction begins.",
        Between(0, 1),
        synonyms=(Synonym("log.cleaner.min.cleanable.ratio"),),
    ),
    ConfigKey(
        "min.compaction.lag.ms",
        LONG,
        "0",
        "A record is not compacted before this time.",
        NOT_NEGATIVE,
        synonyms=(Synonym("log.cleaner.min.compaction.lag.ms"),),
    ),
    ConfigKey(
        MIN_ISR_KEY,
        INT,
        "1",
        "Replicas that must have a record before a producer with acks=all gets its ack. With eligible leader replicas "
        "server.properties says it for a new cluster only; afterwards it is changed at run time.",
        POSITIVE,
        synonyms=(Synonym(MIN_ISR_KEY),),
    ),
    ConfigKey(
        "preallocate",
        BOOLEAN,
        "false",
        "Reserve a segment's whole size on disk when it begins. It has no effect here.",
        synonyms=(Synonym("log.preallocate"),),
        is_served=False,
    ),
    ConfigKey(
        "remote.log.copy.disable",
        BOOLEAN,
        "false",
        "With remote storage: copy no more segments there. It has no effect here.",
        is_served=False,
    ),
    ConfigKey(
        "remote.log.delete.on.disable",
        BOOLEAN,
        "false",
        "With remote storage: delete what is there when it is switched off. It has no effect here.",
        is_served=False,
    ),
    ConfigKey(
        "remote.storage.enable",
        BOOLEAN,
        "false",
        "Keep old segments in remote storage. There is none here, so true is refused, and false has no effect here.",
        is_served=False,
    ),
    ConfigKey(
        "retention.bytes",
        LONG,
        "-1",
        "Size beyond which old segments are deleted; -1: none.",
        synonyms=(Synonym("log.retention.bytes"),),
    ),
    ConfigKey(
        "retention.ms",
        LONG,
        "604800000",
        "Age beyond which segments are deleted; -1: none.",
        at_least(-1),
        synonyms=(
            Synonym("log.retention.ms", shares_default=False),
            Synonym("log.retention.minutes", MINUTE_MS),
            Synonym("log.retention.hours", HOUR_MS),
        ),
    ),
    ConfigKey(
        "segment.bytes",
        INT,
        "1073741824",
        "Size at which a segment is full.",
        at_least(1048576),
        synonyms=(Synonym("log.segment.bytes"),),
    ),
    ConfigKey(
        "segment.index.bytes",
        INT,
        "10485760",
        "Size at which an index is full.",
        at_least(4),
        synonyms=(Synonym("log.index.size.max.bytes"),),
    ),
    ConfigKey(
        "segment.jitter.ms",
        LONG,
        "0",
        "Random time taken from segment.ms, so that segments are not all full at once.",
        NOT_NEGATIVE,
        synonyms=(Synonym("log.roll.jitter.ms", shares_default=False), Synonym("log.roll.jitter.hours", HOUR_MS)),
    ),
    ConfigKey(
        "segment.ms",
        LONG,
        "604800000",
        "Age at which a segment is full.",
        POSITIVE,
        synonyms=(Synonym("log.roll.ms", shares_default=False), Synonym("log.roll.hours", HOUR_MS)),
    ),
    ConfigKey(
        "unclean.leader.election.enable",
        BOOLEAN,
        "false",
        "Let a replica outside the ISR lead when no other can; records may be lost.",
        synonyms=(Synonym("unclean.leader.election.enable"),),
    ),
)
TOPIC_CONFIGS: Mapping[str, ConfigKey] = {key.name: key for key in _ROWS}
"""By name, in alphabetical order."""
TOPIC_CONFIG_BY_SYNONYM: Mapping[str, ConfigKey] = {key.broker_name: key for key in _ROWS if key.synonyms}
"""By the name of the broker's configuration of the same unit."""


def validate_topic_configs(values: Mapping[str, str]) -> None:
    """Check each value, and what they ask for together. Raises `ProtocolError(INVALID_CONFIG)`.

    Remote storage is refused in the words of Apache Kafka's brokers that have none (KIP-405).
    """
    parsed: dict[str, Any] = {}
    for name, text in values.items():
        key = TOPIC_CONFIGS.get(name)
        if key is None:
            raise ProtocolError(ErrorCode.INVALID_CONFIG, f"Unknown topic config name: {name}")
        parsed[name] = key.parse_for_client(text)
    least, most = parsed.get("min.compaction.lag.ms", 0), parsed.get("max.compaction.lag.ms", LONG_MAX)
    if least > most:
        raise ProtocolError(
            ErrorCode.INVALID_CONFIG,
            f"conflict topic config setting min.compaction.lag.ms ({least}) > max.compaction.lag.ms ({most})",
        )
    if parsed.get("remote.storage.enable"):
        raise ProtocolError(
            ErrorCode.INVALID_CONFIG,
            "Tiered Storage functionality is disabled in the broker. "
            "Topic cannot be configured with remote log storage.",
        )
