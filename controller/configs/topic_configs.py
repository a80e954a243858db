"""Topic configurations: what values are taken, and which one holds (the table is `config_table.py`).

A topic's value is its own, else the cluster-wide dynamic default, else the node's static setting, else the default.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

from ...wire.errors import ErrorCode, ProtocolError
from ..metadata.metadata_image import BROKER_RESOURCE, TOPIC_RESOURCE, MetadataImage
from .topic_config_table import (
    INT_MAX,
    LONG_MAX,
    TOPIC_CONFIG_BY_BROKER_SETTING,
    TOPIC_CONFIGS,
    ConfigType,
    TopicConfig,
)


class ConfigSource(IntEnum):
    """Where a value comes from, as DescribeConfigs numbers it."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


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
    broker_id: int | None = None,
) -> tuple[str, ConfigSource]:
    """The value that holds for a topic and its source.

    `static_defaults` are the node's settings under the topic's names; `own` stands in for the topic's stored values
    while the topic is not there yet. With `broker_id`, what was set for that broker alone counts too.
    """
    config = TOPIC_CONFIGS[name]
    values = image.configs.get((TOPIC_RESOURCE, topic), {}) if own is None else own
    if name in values:
        return values[name], ConfigSource.TOPIC
    alone = {} if broker_id is None else image.configs.get((BROKER_RESOURCE, str(broker_id)), {})
    if config.broker_setting and config.broker_setting in alone:
        return alone[config.broker_setting], ConfigSource.DYNAMIC_BROKER
    cluster = image.configs.get((BROKER_RESOURCE, ""), {})
    if config.broker_setting and config.broker_setting in cluster:
        return cluster[config.broker_setting], ConfigSource.DYNAMIC_DEFAULT_BROKER
    if name in static_defaults:
        return static_defaults[name], ConfigSource.STATIC_BROKER
    return config.default, ConfigSource.DEFAULT


def dynamic_overrides(image: MetadataImage, topic: str, broker_id: int) -> dict[str, str]:
    """What was set at run time and holds for a topic's partitions on a broker, under the topic's names."""
    overrides: dict[str, str] = {}
    for resource_name in ("", str(broker_id)):
        for setting, value in image.configs.get((BROKER_RESOURCE, resource_name), {}).items():
            config = TOPIC_CONFIG_BY_BROKER_SETTING.get(setting)
            if config is not None:
                overrides[config.name] = value
    return overrides | image.configs.get((TOPIC_RESOURCE, topic), {})
