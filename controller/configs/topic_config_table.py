"""The table of topic configurations: name, type, default, range, the broker setting behind it, meaning.

Names, defaults and ranges are those of Apache Kafka 4.2.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1


class ConfigType(IntEnum):
    """The type ids of DescribeConfigs."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """One key. `check` returns what is wrong with a parsed value, or None."""

    name: str
    type: ConfigType
    default: str
    check: Callable[[object], str | None]
    broker_setting: str = ""
    """The setting of a broker that gives the default for its topics; empty where there is none."""
    doc: str = ""

    @property
    def valid_values(self) -> str:
        """The range in words, empty when the type says all."""
        return str(self.check)


@dataclass(frozen=True, slots=True)
class Between:
    """A check of a number's range, ends included."""

    low: float
    high: float | None = None

    def __call__(self, value: object) -> str | None:
        if isinstance(value, int | float) and not value >= self.low:  # NaN is neither
            return f"Value must be at least {self.low}"
        if self.high is not None and isinstance(value, int | float) and value > self.high:
            return f"Value must be no more than {self.high}"
        return None

    def __str__(self) -> str:
        return f"[{self.low},{'...' if self.high is None else self.high}]"


@dataclass(frozen=True, slots=True)
class OneOf:
    """A check that a value, or each item of a list, is one of `choices`."""

    choices: tuple[str, ...]

    def __call__(self, value: object) -> str | None:
        chosen = value if isinstance(value, list) else [value]
        wrong = [item for item in chosen if item not in self.choices]
        return f"String must be one of: {', '.join(self.choices)}" if wrong else None

    def __str__(self) -> str:
        return f"[{', '.join(self.choices)}]"


@dataclass(frozen=True, slots=True)
class GzipLevel:
    """-1 or 1 to 9."""

    def __call__(self, value: object) -> str | None:
        return None if value == -1 else Between(1, 9)(value)

    def __str__(self) -> str:
        return "[1,9] or -1"


@dataclass(frozen=True, slots=True)
class Anything:
    """What the type allows."""

    def __call__(self, value: object) -> str | None:
        return None

    def __str__(self) -> str:
        return ""


@dataclass(frozen=True, slots=True)
class ThrottledReplicas:
    """`*`, or partition:broker pairs."""

    def __call__(self, value: object) -> str | None:
        items = value if isinstance(value, list) else []
        pairs = [item.split(":") for item in items]
        if items == ["*"] or all(len(pair) == 2 and all(part.isdigit() for part in pair) for pair in pairs):
            return None
        return "must be the literal '*' or a list of replicas: [partitionId]:[brokerId],[partitionId]:[brokerId],..."

    def __str__(self) -> str:
        return "[partitionId]:[brokerId],... or *"


_B, _S, _I, _L, _D, _LIST = (
    ConfigType.BOOLEAN,
    ConfigType.STRING,
    ConfigType.INT,
    ConfigType.LONG,
    ConfigType.DOUBLE,
    ConfigType.LIST,
)
_FOREVER = str(LONG_MAX)
_COMPRESSION = OneOf(("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"))
_TIMESTAMPS = OneOf(("CreateTime", "LogAppendTime"))

_ROWS: tuple[TopicConfig, ...] = (
    TopicConfig(
        "cleanup.policy",
        _LIST,
        "delete",
        OneOf(("compact", "delete")),
        "log.cleanup.policy",
        "What happens to old segments: deleted by time and size, or compacted to the last value of each key.",
    ),
    TopicConfig(
        "compression.gzip.level",
        _I,
        "-1",
        GzipLevel(),
        "compression.gzip.level",
        "The level if compression.type is gzip; a broker keeps what the producer compressed.",
    ),
    TopicConfig(
        "compression.lz4.level",
        _I,
        "9",
        Between(1, 17),
        "compression.lz4.level",
        "The level if compression.type is lz4.",
    ),
    TopicConfig(
        "compression.type",
        _S,
        "producer",
        _COMPRESSION,
        "compression.type",
        "The codec batches are stored in; producer keeps the producer's.",
    ),
    TopicConfig(
        "compression.zstd.level",
        _I,
        "3",
        Between(-131072, 22),
        "compression.zstd.level",
        "The level if compression.type is zstd.",
    ),
    TopicConfig(
        "delete.retention.ms",
        _L,
        "86400000",
        Between(0),
        "log.cleaner.delete.retention.ms",
        "How long compaction keeps the tombstones of deleted keys.",
    ),
    TopicConfig(
        "file.delete.delay.ms",
        _L,
        "60000",
        Between(0),
        "log.segment.delete.delay.ms",
        "How long the files of a deleted segment stay, for those who read them still.",
    ),
    TopicConfig(
        "flush.messages",
        _L,
        _FOREVER,
        Between(1),
        "log.flush.interval.messages",
        "Records after which the log is fsynced.",
    ),
    TopicConfig(
        "flush.ms", _L, _FOREVER, Between(0), "log.flush.interval.ms", "Longest time an append waits for its fsync."
    ),
    TopicConfig(
        "follower.replication.throttled.replicas",
        _LIST,
        "",
        ThrottledReplicas(),
        "",
        "Replicas whose replication is throttled on the follower's side.",
    ),
    TopicConfig(
        "index.interval.bytes",
        _I,
        "4096",
        Between(0),
        "log.index.interval.bytes",
        "Bytes of log between entries of its index.",
    ),
    TopicConfig(
        "leader.replication.throttled.replicas",
        _LIST,
        "",
        ThrottledReplicas(),
        "",
        "Replicas whose replication is throttled on the leader's side.",
    ),
    TopicConfig(
        "local.retention.bytes",
        _L,
        "-2",
        Between(-2),
        "log.local.retention.bytes",
        "With remote storage: bytes kept here; -2 means retention.bytes.",
    ),
    TopicConfig(
        "local.retention.ms",
        _L,
        "-2",
        Between(-2),
        "log.local.retention.ms",
        "With remote storage: time kept here; -2 means retention.ms.",
    ),
    TopicConfig(
        "max.compaction.lag.ms",
        _L,
        _FOREVER,
        Between(1),
        "log.cleaner.max.compaction.lag.ms",
        "A record is compacted after this time at the latest.",
    ),
    TopicConfig(
        "max.message.bytes", _I, "1048588", Between(0), "message.max.bytes", "The largest record batch in bytes."
    ),
    TopicConfig(
        "message.timestamp.after.max.ms",
        _L,
        "3600000",
        Between(0),
        "log.message.timestamp.after.max.ms",
        "How far a record's timestamp may be ahead of the broker's clock.",
    ),
    TopicConfig(
        "message.timestamp.before.max.ms",
        _L,
        _FOREVER,
        Between(0),
        "log.message.timestamp.before.max.ms",
        "How far a record's timestamp may be behind the broker's clock.",
    ),
    TopicConfig(
        "message.timestamp.type",
        _S,
        "CreateTime",
        _TIMESTAMPS,
        "log.message.timestamp.type",
        "Whose clock a record carries: the producer's (CreateTime) or the broker's (LogAppendTime).",
    ),
    TopicConfig(
        "min.cleanable.dirty.ratio",
        _D,
        "0.5",
        Between(0, 1),
        "log.cleaner.min.cleanable.ratio",
        "The share of uncompacted bytes at which compaction begins.",
    ),
    TopicConfig(
        "min.compaction.lag.ms",
        _L,
        "0",
        Between(0),
        "log.cleaner.min.compaction.lag.ms",
        "A record is not compacted before this time.",
    ),
    TopicConfig(
        "min.insync.replicas",
        _I,
        "1",
        Between(1),
        "min.insync.replicas",
        "Replicas that must have a record before acks=all is given.",
    ),
    TopicConfig(
        "preallocate",
        _B,
        "false",
        Anything(),
        "log.preallocate",
        "Reserve a segment's whole size on disk when it begins.",
    ),
    TopicConfig(
        "remote.log.copy.disable", _B, "false", Anything(), "", "With remote storage: copy no more segments there."
    ),
    TopicConfig(
        "remote.log.delete.on.disable",
        _B,
        "false",
        Anything(),
        "",
        "With remote storage: delete what is there when it is switched off.",
    ),
    TopicConfig("remote.storage.enable", _B, "false", Anything(), "", "Keep old segments in remote storage."),
    TopicConfig(
        "retention.bytes",
        _L,
        "-1",
        Anything(),
        "log.retention.bytes",
        "Size beyond which old segments are deleted; -1: none.",
    ),
    TopicConfig(
        "retention.ms",
        _L,
        "604800000",
        Between(-1),
        "log.retention.ms",
        "Age beyond which segments are deleted; -1: none.",
    ),
    TopicConfig(
        "segment.bytes", _I, "1073741824", Between(1048576), "log.segment.bytes", "Size at which a segment is full."
    ),
    TopicConfig(
        "segment.index.bytes", _I, "10485760", Between(4), "log.index.size.max.bytes", "Size at which an index is full."
    ),
    TopicConfig(
        "segment.jitter.ms",
        _L,
        "0",
        Between(0),
        "log.roll.jitter.ms",
        "Random time taken from segment.ms, so that segments are not all full at once.",
    ),
    TopicConfig("segment.ms", _L, "604800000", Between(1), "log.roll.ms", "Age at which a segment is full."),
    TopicConfig(
        "unclean.leader.election.enable",
        _B,
        "false",
        Anything(),
        "unclean.leader.election.enable",
        "Let a replica outside the ISR lead when no other can; records may be lost.",
    ),
)
TOPIC_CONFIGS: Mapping[str, TopicConfig] = {row.name: row for row in _ROWS}
TOPIC_CONFIG_BY_BROKER_SETTING: Mapping[str, TopicConfig] = {r.broker_setting: r for r in _ROWS if r.broker_setting}
