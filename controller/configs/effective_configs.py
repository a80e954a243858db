"""Which value of a configuration holds: for a topic, and for a broker.

A topic's value is the first of these: its own value, the value that was set at run time for this broker, the value that
was set at run time for all brokers, the value in this node's server.properties, the default.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...log.topic_configs import TOPIC_CONFIG_BY_SYNONYM, TOPIC_CONFIGS
from ...wire.config_def import ConfigSource
from ..metadata.metadata_image import BROKER_RESOURCE, TOPIC_RESOURCE, MetadataImage
from .broker_configs import BROKER_CONFIGS


def resolve(
    image: MetadataImage,
    topic: str,
    name: str,
    static_defaults: Mapping[str, str],
    *,
    own: Mapping[str, str] | None = None,
    broker_id: int | None = None,
) -> tuple[str, ConfigSource]:
    """The value that holds for a topic, and its source.

    `static_defaults` are the values of server.properties by the topic's names. `own` replaces the topic's stored values
    while the topic does not exist yet. Values that were set for one broker count only with its `broker_id`.
    """
    synonym = TOPIC_CONFIGS[name].broker_name
    values = image.configs.get((TOPIC_RESOURCE, topic), {}) if own is None else own
    if name in values:
        return values[name], ConfigSource.TOPIC
    of_broker = {} if broker_id is None else image.configs.get((BROKER_RESOURCE, str(broker_id)), {})
    if synonym in of_broker:
        return of_broker[synonym], ConfigSource.DYNAMIC_BROKER
    of_all = image.configs.get((BROKER_RESOURCE, ""), {})
    if synonym in of_all:
        return of_all[synonym], ConfigSource.DYNAMIC_DEFAULT_BROKER
    if name in static_defaults:
        return static_defaults[name], ConfigSource.STATIC_BROKER
    return TOPIC_CONFIGS[name].default or "", ConfigSource.DEFAULT


def dynamic_overrides(image: MetadataImage, topic: str, broker_id: int) -> dict[str, str]:
    """The values set at run time that hold for a topic's partitions on a broker, by the topic's names."""
    overrides: dict[str, str] = {}
    for resource_name in ("", str(broker_id)):
        for name, value in image.configs.get((BROKER_RESOURCE, resource_name), {}).items():
            key = TOPIC_CONFIG_BY_SYNONYM.get(name)
            if key is not None:
                overrides[key.name] = value
    return overrides | image.configs.get((TOPIC_RESOURCE, topic), {})


def broker_value(image: MetadataImage, broker_id: int, properties: Mapping[str, str], name: str) -> str:
    """The value that holds on a broker now; `properties` are its server.properties."""
    for resource_name in (str(broker_id), ""):
        value = image.configs.get((BROKER_RESOURCE, resource_name), {}).get(name)
        if value is not None:
            return value
    return properties.get(name, BROKER_CONFIGS[name].default or "")
