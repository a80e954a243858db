"""The broker settings that may be changed while brokers run, in one table: type, default, range, meaning, scope.

Cluster-wide settings are kept for all brokers or for one; what one broker was told holds before what all were told, and
both before the node's server.properties. The settings behind a topic's defaults are among them: a topic without a value
of its own follows them at once, on every broker. Names are those of Kafka's documentation, "Dynamic Broker Configs".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from ipaddress import ip_address

from ..metadata.metadata_image import BROKER_RESOURCE, MetadataImage
from .topic_config_table import TOPIC_CONFIG_BY_BROKER_SETTING, Anything, Between, ConfigType, TopicConfig


def connections_by_address(text: str) -> dict[str, int]:
    """`max.connections.per.ip.overrides`, as address:count,... by addresses as they are written canonically.

    ValueError says what is wrong. Kafka takes host names too; here nothing asks a name server.
    """
    found = {}
    for item in filter(None, (item.strip() for item in text.split(","))):
        address, colon, count = item.rpartition(":")
        if not colon or not count.strip().isdecimal():
            raise ValueError(f"{item} is not of the form address:count")
        try:
            found[str(ip_address(address.strip().strip("[]")))] = int(count)
        except ValueError:
            raise ValueError(f"{address} is no IP address; name hosts by their addresses") from None
    return found


@dataclass(frozen=True, slots=True)
class _ConnectionsByAddress:
    """A check of `max.connections.per.ip.overrides`."""

    def __call__(self, value: object) -> str | None:
        try:
            connections_by_address(str(value))
        except ValueError as error:
            return str(error)
        return None

    def __str__(self) -> str:
        return "address:count,..."


_OWN_ROWS: tuple[TopicConfig, ...] = (
    TopicConfig(
        "max.connections",
        ConfigType.INT,
        "2147483647",
        Between(0),
        doc="Connections that a broker takes in all; more are closed at once.",
    ),
    TopicConfig(
        "max.connections.per.ip",
        ConfigType.INT,
        "2147483647",
        Between(0),
        doc="Connections that a broker takes of one address; more are closed at once.",
    ),
    TopicConfig(
        "max.connections.per.ip.overrides",
        ConfigType.STRING,
        "",
        _ConnectionsByAddress(),
        doc="For these addresses, instead of max.connections.per.ip.",
    ),
    TopicConfig(
        "max.connection.creation.rate",
        ConfigType.INT,
        "2147483647",
        Between(0),
        doc="Connections a second that a broker begins to serve, on average over ten; the others wait.",
    ),
    TopicConfig(
        "producer.id.expiration.ms",
        ConfigType.INT,
        "86400000",
        Between(1),
        doc="Silence after which a producer is forgotten.",
    ),
    TopicConfig(
        "log.cleaner.backoff.ms",
        ConfigType.LONG,
        "15000",
        Between(1),
        doc="Wait of the cleaner when there is nothing to clean.",
    ),
    TopicConfig(
        "log.cleaner.dedupe.buffer.size",
        ConfigType.LONG,
        "134217728",
        Between(4096),
        doc="Memory in bytes for keys during compaction.",
    ),
    TopicConfig(
        "log.cleaner.io.max.bytes.per.second",
        ConfigType.DOUBLE,
        "1.7976931348623157E308",
        Between(1),
        doc="Bytes a second that compaction may go over.",
    ),
    TopicConfig(
        "leader.replication.throttled.rate",
        ConfigType.LONG,
        "9223372036854775807",
        Between(0),
        doc="Bytes a second that followers get of the partitions named by leader.replication.throttled.replicas.",
    ),
    TopicConfig(
        "follower.replication.throttled.rate",
        ConfigType.LONG,
        "9223372036854775807",
        Between(0),
        doc="Bytes a second that a broker fetches of those named by follower.replication.throttled.replicas.",
    ),
    TopicConfig(
        "replica.alter.log.dirs.io.max.bytes.per.second",
        ConfigType.DOUBLE,
        "1.7976931348623157E308",
        Anything(),
        doc="Bytes a second that moving a replica to another directory of its broker may copy.",
    ),
)

DYNAMIC_BROKER_CONFIGS: Mapping[str, TopicConfig] = {
    **{name: replace(row, name=name) for name, row in sorted(TOPIC_CONFIG_BY_BROKER_SETTING.items())},
    **{row.name: row for row in _OWN_ROWS},
}
"""By the broker's name of the setting."""


def broker_value(image: MetadataImage, broker_id: int, values: Mapping[str, str], name: str) -> str:
    """What holds on a broker now: its own, that of all, that of its server.properties (`values`), the default."""
    for scope in (str(broker_id), ""):
        value = image.configs.get((BROKER_RESOURCE, scope), {}).get(name)
        if value is not None:
            return value
    return values.get(name, DYNAMIC_BROKER_CONFIGS[name].default)
