"""The broker settings that may be changed while brokers run, in one table: type, default, range, meaning, scope.

Cluster-wide settings are kept for all brokers or for one; what one broker was told holds before what all were told, and
both before the node's server.properties. The settings behind a topic's defaults are among them: a topic without a value
of its own follows them at once, on every broker. Names are those of Kafka's documentation, "Dynamic Broker Configs".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from .config_table import TOPIC_CONFIG_BY_BROKER_SETTING, Anything, Between, ConfigType, TopicConfig

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
