"""The topic configurations: one table with name, type, default, range and the broker setting that stands in for each.

A topic's value is its own, else the cluster-wide dynamic default, else the node's static setting, else the default.
Names, defaults and ranges are those of Apache Kafka 4.2.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum

from ..wire.errors import ErrorCode, ProtocolError
from .image import BROKER_RESOURCE, TOPIC_RESOURCE, MetadataImage

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


class ConfigSource(IntEnum):
    """Where a value comes from, as DescribeConfigs numbers it."""

    TOPIC = 1
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """One key. `check` returns what is wrong with a parsed value, or None."""

    name: str
    type: ConfigType
    default: str
    check: Callable[[object], str | None]
    broker_setting: str = ""
    """The setting of a broker that gives the default for its topics; empty where there is none."""


def _between(low: float, high: float | None = None) -> Callable[[object], str | None]:
    def check(value: object) -> str | None:
        if isinstance(value, int | float) and value < low:
            return f"Value must be at least {low}"
        if high is not None and isinstance(value, int | float) and value > high:
            return f"Value must be no more than {high}"
        return None

    return check


def _gzip_level(value: object) -> str | None:
    return None if value == -1 else _between(1, 9)(value)


def _one_of(*choices: str) -> Callable[[object], str | None]:
    def check(value: object) -> str | None:
        chosen = value if isinstance(value, list) else [value]
        wrong = [item for item in chosen if item not in choices]
        return f"String must be one of: {', '.join(choices)}" if wrong else None

    return check


def _throttled_replicas(value: object) -> str | None:
    items = value if isinstance(value, list) else []
    if items == ["*"] or all(len(pair := item.split(":")) == 2 and all(p.isdigit() for p in pair) for item in items):
        return None
    return "must be the literal '*' or a list of replicas: [partitionId]:[brokerId],[partitionId]:[brokerId],..."


def _anything(value: object) -> str | None:
    return None


_B, _S, _I, _L, _D, _LIST = (
    ConfigType.BOOLEAN,
    ConfigType.STRING,
    ConfigType.INT,
    ConfigType.LONG,
    ConfigType.DOUBLE,
    ConfigType.LIST,
)
_FOREVER = str(LONG_MAX)
_COMPRESSION = _one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
_TIMESTAMPS = _one_of("CreateTime", "LogAppendTime")

_ROWS: tuple[TopicConfig, ...] = (
    TopicConfig("cleanup.policy", _LIST, "delete", _one_of("compact", "delete"), "log.cleanup.policy"),
    TopicConfig("compression.gzip.level", _I, "-1", _gzip_level, "compression.gzip.level"),
    TopicConfig("compression.lz4.level", _I, "9", _between(1, 17), "compression.lz4.level"),
    TopicConfig("compression.type", _S, "producer", _COMPRESSION, "compression.type"),
    TopicConfig("compression.zstd.level", _I, "3", _between(-131072, 22), "compression.zstd.level"),
    TopicConfig("delete.retention.ms", _L, "86400000", _between(0), "log.cleaner.delete.retention.ms"),
    TopicConfig("file.delete.delay.ms", _L, "60000", _between(0), "log.segment.delete.delay.ms"),
    TopicConfig("flush.messages", _L, _FOREVER, _between(1), "log.flush.interval.messages"),
    TopicConfig("flush.ms", _L, _FOREVER, _between(0), "log.flush.interval.ms"),
    TopicConfig("follower.replication.throttled.replicas", _LIST, "", _throttled_replicas),
    TopicConfig("index.interval.bytes", _I, "4096", _between(0), "log.index.interval.bytes"),
    TopicConfig("leader.replication.throttled.replicas", _LIST, "", _throttled_replicas),
    TopicConfig("local.retention.bytes", _L, "-2", _between(-2), "log.local.retention.bytes"),
    TopicConfig("local.retention.ms", _L, "-2", _between(-2), "log.local.retention.ms"),
    TopicConfig("max.compaction.lag.ms", _L, _FOREVER, _between(1), "log.cleaner.max.compaction.lag.ms"),
    TopicConfig("max.message.bytes", _I, "1048588", _between(0), "message.max.bytes"),
    TopicConfig("message.timestamp.after.max.ms", _L, "3600000", _between(0), "log.message.timestamp.after.max.ms"),
    TopicConfig("message.timestamp.before.max.ms", _L, _FOREVER, _between(0), "log.message.timestamp.before.max.ms"),
    TopicConfig("message.timestamp.type", _S, "CreateTime", _TIMESTAMPS, "log.message.timestamp.type"),
    TopicConfig("min.cleanable.dirty.ratio", _D, "0.5", _between(0, 1), "log.cleaner.min.cleanable.ratio"),
    TopicConfig("min.compaction.lag.ms", _L, "0", _between(0), "log.cleaner.min.compaction.lag.ms"),
    TopicConfig("min.insync.replicas", _I, "1", _between(1), "min.insync.replicas"),
    TopicConfig("preallocate", _B, "false", _anything, "log.preallocate"),
    TopicConfig("remote.log.copy.disable", _B, "false", _anything),
    TopicConfig("remote.log.delete.on.disable", _B, "false", _anything),
    TopicConfig("remote.storage.enable", _B, "false", _anything),
    TopicConfig("retention.bytes", _L, "-1", _anything, "log.retention.bytes"),
    TopicConfig("retention.ms", _L, "604800000", _between(-1), "log.retention.ms"),
    TopicConfig("segment.bytes", _I, "1073741824", _between(1048576), "log.segment.bytes"),
    TopicConfig("segment.index.bytes", _I, "10485760", _between(4), "log.index.size.max.bytes"),
    TopicConfig("segment.jitter.ms", _L, "0", _between(0), "log.roll.jitter.ms"),
    TopicConfig("segment.ms", _L, "604800000", _between(1), "log.roll.ms"),
    TopicConfig("unclean.leader.election.enable", _B, "false", _anything, "unclean.leader.election.enable"),
)
TOPIC_CONFIGS: Mapping[str, TopicConfig] = {row.name: row for row in _ROWS}
TOPIC_CONFIG_BY_BROKER_SETTING: Mapping[str, TopicConfig] = {r.broker_setting: r for r in _ROWS if r.broker_setting}


def parse_value(config: TopicConfig, value: str) -> object:
    """The typed value; `ProtocolError(INVALID_CONFIG)` saying what is wrong with it."""
    text = value.strip()
    try:
        parsed = _parse(config.type, text)
    except ValueError as error:
        raise _invalid(config, value, str(error)) from None
    complaint = config.check(parsed)
    if complaint is not None:
        raise _invalid(config, value, complaint)
    return parsed


def _parse(config_type: ConfigType, text: str) -> object:
    if config_type is ConfigType.BOOLEAN:
        if text.lower() not in ("true", "false"):
            raise ValueError("Expected value to be either true or false")
        return text.lower() == "true"
    if config_type is ConfigType.LIST:
        return [item.strip() for item in text.split(",")] if text else []
    if config_type is ConfigType.STRING:
        return text
    kind = float if config_type is ConfigType.DOUBLE else int
    try:
        number = kind(text)
    except ValueError:
        raise ValueError(f"Not a number of type {config_type.name}") from None
    limit = {ConfigType.INT: INT_MAX, ConfigType.LONG: LONG_MAX}.get(config_type)
    if limit is not None and not -limit - 1 <= number <= limit:
        raise ValueError(f"Not a number of type {config_type.name}")
    return number


def _invalid(config: TopicConfig, value: str, complaint: str) -> ProtocolError:
    message = f"Invalid value {value} for configuration {config.name}: {complaint}"
    return ProtocolError(ErrorCode.INVALID_CONFIG, message)


def validate_topic_config(name: str, value: str) -> None:
    """Raise `ProtocolError(INVALID_CONFIG)` for an unknown name or a value out of its range."""
    config = TOPIC_CONFIGS.get(name)
    if config is None:
        raise ProtocolError(ErrorCode.INVALID_CONFIG, f"Unknown topic config name: {name}")
    parse_value(config, value)


def validate_topic_configs(values: Mapping[str, str]) -> None:
    """Each value by itself, and the relation of the compaction lags."""
    for name, value in values.items():
        validate_topic_config(name, value)
    least, most = (int(values.get(name, "0")) for name in ("min.compaction.lag.ms", "max.compaction.lag.ms"))
    if "max.compaction.lag.ms" in values and least > most:
        raise ProtocolError(
            ErrorCode.INVALID_CONFIG,
            f"conflict topic config setting min.compaction.lag.ms ({least}) > max.compaction.lag.ms ({most})",
        )


def resolve(
    image: MetadataImage,
    topic: str,
    name: str,
    static_defaults: Mapping[str, str],
    *,
    own: Mapping[str, str] | None = None,
) -> tuple[str, ConfigSource]:
    """The value that holds for a topic and its source.

    `static_defaults` are the node's settings under the topic's names; `own` stands in for the topic's stored values
    while the topic is not there yet.
    """
    config = TOPIC_CONFIGS[name]
    values = image.configs.get((TOPIC_RESOURCE, topic), {}) if own is None else own
    if name in values:
        return values[name], ConfigSource.TOPIC
    cluster = image.configs.get((BROKER_RESOURCE, ""), {})
    if config.broker_setting and config.broker_setting in cluster:
        return cluster[config.broker_setting], ConfigSource.DYNAMIC_DEFAULT_BROKER
    if name in static_defaults:
        return static_defaults[name], ConfigSource.STATIC_BROKER
    return config.default, ConfigSource.DEFAULT


def effective_topic_configs(image: MetadataImage, topic: str, static_defaults: Mapping[str, str]) -> dict[str, str]:
    """Every configuration of a topic with the value that holds."""
    return {name: resolve(image, topic, name, static_defaults)[0] for name in TOPIC_CONFIGS}
