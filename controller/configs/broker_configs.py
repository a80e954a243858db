"""The table of the broker's configurations: all that server.properties may hold, and what may change at run time.

Names, types, defaults and ranges are those of Apache Kafka 4.2 ("Broker Configs", "Dynamic Broker Configs"). The table
is here because the controller checks changes by it. DescribeConfigs, the start of a node and docs/configuration.md
read it too. Those of the coordinators are in `coordinator_configs.py`; the configurations behind those of topics and
groups are declared with them, in `log/topic_configs.py` and `group_configs.py`.

A configuration that may change at run time is kept for all brokers or for one broker. The value for one broker counts
before the value for all, and both count before the node's server.properties. A topic without a value of its own follows
such a change at once, on every broker.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any

from ...log.topic_configs import TOPIC_CONFIGS
from ...wire.config_def import (
    BOOLEAN,
    DOUBLE,
    INT,
    INT_MAX,
    LIST,
    LONG,
    LONG_MAX,
    NOT_NEGATIVE,
    POSITIVE,
    STRING,
    Between,
    ConfigKey,
    UpdateMode,
    at_least,
    one_of,
)
from .configs_without_effect import CONFIGS_WITHOUT_EFFECT
from .coordinator_configs import COORDINATOR_CONFIGS
from .group_configs import GROUP_CONFIGS
from .security_configs import SECURITY_CONFIGS

CLUSTER_WIDE = UpdateMode.CLUSTER_WIDE
DOUBLE_MAX = "1.7976931348623157E308"
LEADER_SELECTOR = "org.apache.kafka.common.replica.LeaderSelector"
RACK_AWARE_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


@dataclass(frozen=True, slots=True)
class Roles:
    """The range of `process.roles`."""

    requirement: str = ""

    def complaint(self, value: Any) -> str | None:
        """Refuse unknown roles, no role, and a role that is named twice."""
        if not value or any(role not in ("broker", "controller") for role in value):
            return "a role is broker or controller, or both: broker,controller"
        return "a role is named twice" if len(value) != len(frozenset(value)) else None

    def __str__(self) -> str:
        return "[broker, controller]"


@dataclass(frozen=True, slots=True)
class ConnectionsByAddress:
    """The range of `max.connections.per.ip.overrides`."""

    requirement: str = ""

    def complaint(self, value: Any) -> str | None:
        """Refuse what `connections_by_address` does not understand."""
        try:
            connections_by_address(value)
        except ValueError as error:
            return str(error)
        return None

    def __str__(self) -> str:
        return "address:count,..."


def connections_by_address(text: str) -> dict[str, int]:
    """`max.connections.per.ip.overrides`, written address:count,...: the limits by the canonical form of the address.

    Raises ValueError with the reason. Kafka takes host names too; this node asks no name server.
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


_OWN: tuple[ConfigKey, ...] = (
    # identity and quorum
    ConfigKey(
        "process.roles",
        LIST,
        None,
        "What this node is: broker, controller, or broker,controller.",
        Roles(),
        is_required=True,
    ),
    ConfigKey(
        "node.id", INT, None, "The id of this node, unique in the cluster.", Between(0, INT_MAX), is_required=True
    ),
    ConfigKey("controller.quorum.voters", LIST, "", "The quorum: id@host:port of every controller, joined by commas."),
    ConfigKey(
        "controller.quorum.bootstrap.servers",
        LIST,
        "",
        "Controllers to ask for the quorum, as host:port,..., instead of controller.quorum.voters: "
        "the voters are then those that formatting named or that were added later.",
    ),
    ConfigKey(
        "controller.quorum.auto.join.enable",
        BOOLEAN,
        "false",
        "Whether a controller that is not a voter asks to become one; not with controller.quorum.voters.",
    ),
    ConfigKey("controller.listener.names", LIST, "", "Names of the listeners that controllers use."),
    ConfigKey(
        "controller.quorum.election.timeout.ms",
        INT,
        "1000",
        "How long a candidate waits for votes before it starts a new election.",
        POSITIVE,
    ),
    ConfigKey(
        "controller.quorum.fetch.timeout.ms",
        INT,
        "2000",
        "A follower that hears nothing from the leader for this time stands for election.",
        POSITIVE,
    ),
    ConfigKey(
        "controller.quorum.election.backoff.max.ms", INT, "1000", "Longest wait before a new election.", NOT_NEGATIVE
    ),
    ConfigKey(
        "controller.quorum.fetch.max.bytes",
        INT,
        "8388608",
        "The largest answer to a fetch of metadata, but for one batch that is larger (KIP-1219).",
        POSITIVE,
    ),
    ConfigKey(
        "controller.quorum.fetch.snapshot.max.bytes",
        INT,
        "8388608",
        "The largest part of a metadata snapshot that is fetched at a time (KIP-1219).",
        POSITIVE,
    ),
    ConfigKey("controller.quorum.request.timeout.ms", INT, "2000", "How long a quorum request may take.", POSITIVE),
    ConfigKey(
        "controller.quorum.retry.backoff.ms", INT, "20", "Wait before a quorum request is sent again.", NOT_NEGATIVE
    ),
    ConfigKey(
        "metadata.log.max.record.bytes.between.snapshots",
        LONG,
        "20971520",
        "Bytes of new metadata after which a snapshot is made.",
        POSITIVE,
    ),
    ConfigKey(
        "metadata.log.max.snapshot.interval.ms",
        LONG,
        "3600000",
        "Time after which new metadata goes into a snapshot; 0: bytes alone decide.",
        NOT_NEGATIVE,
    ),
    ConfigKey(
        "metadata.max.retention.bytes",
        LONG,
        "104857600",
        "Size beyond which the metadata log is truncated behind its snapshots; -1 for none.",
        at_least(-1),
    ),
    ConfigKey(
        "metadata.max.retention.ms",
        LONG,
        "604800000",
        "Age at which old metadata snapshots are deleted, and the log before them; the newest stays; -1 for none.",
        at_least(-1),
    ),
    # listeners
    ConfigKey("listeners", LIST, "PLAINTEXT://:9092", "What to listen on: NAME://host:port, joined by commas."),
    ConfigKey("advertised.listeners", LIST, "", "The addresses that clients connect to; default: listeners."),
    ConfigKey(
        "listener.security.protocol.map", LIST, "", "The protocol of each listener: NAME:PROTOCOL, joined by commas."
    ),
    ConfigKey("inter.broker.listener.name", STRING, "", "The listener over which brokers talk to each other."),
    ConfigKey("socket.request.max.bytes", INT, "104857600", "The largest request in bytes.", POSITIVE),
    ConfigKey(
        "socket.send.buffer.bytes",
        INT,
        "102400",
        "What the system takes of the responses to a connection at most (SO_SNDBUF); -1: as the system chooses.",
        at_least(-1),
    ),
    ConfigKey(
        "socket.receive.buffer.bytes",
        INT,
        "-1",
        "What the system keeps of a connection's requests at most (SO_RCVBUF); -1: as the system chooses.",
        at_least(-1),
    ),
    ConfigKey(
        "queued.max.request.bytes",
        LONG,
        "-1",
        "Memory for the large requests of all connections; beyond it reading waits. A separate listener between "
        "brokers has as much of its own. -1: 256 MiB, or twice the largest request.",
    ),
    ConfigKey(
        "max.connections",
        INT,
        str(INT_MAX),
        "Connections that a broker accepts in all; more are closed at once.",
        NOT_NEGATIVE,
        update_mode=CLUSTER_WIDE,
    ),
    ConfigKey(
        "max.connections.per.ip",
        INT,
        str(INT_MAX),
        "Connections that a broker accepts from one address; more are closed at once.",
        NOT_NEGATIVE,
        update_mode=CLUSTER_WIDE,
    ),
    ConfigKey(
        "max.connections.per.ip.overrides",
        STRING,
        "",
        "For these addresses, as address:count,..., instead of max.connections.per.ip.",
        ConnectionsByAddress(),
        update_mode=CLUSTER_WIDE,
    ),
    ConfigKey(
        "max.connection.creation.rate",
        INT,
        str(INT_MAX),
        "New connections per second that a broker accepts, averaged over ten seconds; others wait for as long at most.",
        NOT_NEGATIVE,
        update_mode=CLUSTER_WIDE,
    ),
    ConfigKey(
        "connections.max.idle.ms", LONG, "600000", "A connection that is idle for this time is closed.", POSITIVE
    ),
    ConfigKey(
        "max.incremental.fetch.session.cache.slots",
        INT,
        "1000",
        "The maximum number of incremental fetch sessions that a broker keeps.",
        NOT_NEGATIVE,
    ),
    # directories and log
    ConfigKey(
        "log.dirs",
        LIST,
        "",
        "Directories of the partitions, separated by commas, which paths therefore cannot contain. Default: log.dir.",
    ),
    ConfigKey("log.dir", STRING, "/tmp/kafka-logs", "The directory of the partitions, when log.dirs is not set."),
    ConfigKey("metadata.log.dir", STRING, "", "The directory of the metadata log; default: the first of log.dirs."),
    ConfigKey(
        "metadata.log.spare.bytes",
        LONG,
        "1048576",
        "Space that a file beside the metadata log keeps for it, and that it takes when the disk is full.",
        NOT_NEGATIVE,
    ),
    ConfigKey(
        "log.dirs.reserve.bytes",
        LONG,
        "16777216",
        "Free space to keep in each log directory; with less, its replicas accept no records until there is more.",
        NOT_NEGATIVE,
    ),
    ConfigKey(
        "log.dir.failure.timeout.ms",
        LONG,
        "30000",
        "A broker that cannot report a failed log directory to the controller within this time stops.",
        POSITIVE,
    ),
    ConfigKey("log.roll.hours", INT, "168", "log.roll.ms in hours.", POSITIVE),
    ConfigKey(
        "log.flush.offset.checkpoint.interval.ms",
        INT,
        "60000",
        "How often active segments are fsynced, so that an unclean start has less to check.",
        POSITIVE,
    ),
    ConfigKey(
        "log.flush.offset.checkpoint.min.bytes",
        INT,
        "1048576",
        "A log that has grown by less since its last fsync is skipped.",
        NOT_NEGATIVE,
    ),
    ConfigKey("log.roll.jitter.hours", INT, "0", "log.roll.jitter.ms in hours.", NOT_NEGATIVE),
    # retention and compaction
    ConfigKey(
        "log.retention.minutes",
        INT,
        None,
        "log.retention.ms in minutes; counts before log.retention.hours.",
        at_least(-1),
    ),
    ConfigKey("log.retention.hours", INT, "168", "log.retention.ms in hours.", at_least(-1)),
    ConfigKey(
        "log.retention.check.interval.ms",
        LONG,
        "300000",
        "How often logs are checked for segments to delete.",
        POSITIVE,
    ),
    ConfigKey(
        "log.scrub.interval.ms",
        LONG,
        "3600000",
        "How long after the last check all logs are read again and their batches checked; 0 for never. Not in Kafka.",
        NOT_NEGATIVE,
    ),
    ConfigKey(
        "log.scrub.io.max.bytes.per.second",
        DOUBLE,
        "2097152",
        "Bytes per second that this check may read. Not in Kafka.",
        POSITIVE,
    ),
    ConfigKey("log.cleaner.enable", BOOLEAN, "true", "Compact the topics with cleanup.policy compact."),
    ConfigKey(
        "log.cleaner.dedupe.buffer.size",
        LONG,
        "134217728",
        "Memory in bytes for keys during compaction.",
        at_least(4096),
        update_mode=CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.cleaner.io.max.bytes.per.second",
        DOUBLE,
        DOUBLE_MAX,
        "Bytes per second that compaction may read and write.",
        POSITIVE,
        update_mode=CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.cleaner.backoff.ms",
        LONG,
        "15000",
        "How long the cleaner waits when there is nothing to clean.",
        POSITIVE,
        update_mode=CLUSTER_WIDE,
    ),
    ConfigKey(
        "producer.id.expiration.ms",
        INT,
        "86400000",
        "A producer that sends nothing for this time is forgotten.",
        POSITIVE,
        update_mode=CLUSTER_WIDE,
    ),
    # topics
    ConfigKey("num.partitions", INT, "1", "Partitions of a new topic if the request does not say.", POSITIVE),
    ConfigKey(
        "default.replication.factor",
        INT,
        "1",
        "Replicas of a new topic if the request does not say.",
        Between(1, 32767),
    ),
    ConfigKey(
        "auto.create.topics.enable", BOOLEAN, "true", "Create a topic when a client asks for one that does not exist."
    ),
    ConfigKey("delete.topic.enable", BOOLEAN, "true", "Allow DeleteTopics."),
    ConfigKey(
        "create.topic.policy.class.name",
        STRING,
        "",
        "Python class (package.module:Class) of the policy that checks every new topic; see operating.",
    ),
    ConfigKey(
        "alter.config.policy.class.name",
        STRING,
        "",
        "Python class (package.module:Class) of the policy that checks every change of a configuration.",
    ),
    ConfigKey("auto.leader.rebalance.enable", BOOLEAN, "true", "Give leadership back to the preferred replicas."),
    ConfigKey(
        "leader.imbalance.check.interval.seconds",
        LONG,
        "5",
        "How soon after a change preferred replicas lead again. Apache Kafka checks every 300 seconds.",
        POSITIVE,
    ),
    # brokers
    ConfigKey("broker.rack", STRING, "", "The rack of the broker; the replicas of a partition are spread over racks."),
    ConfigKey(
        "broker.heartbeat.interval.ms", INT, "2000", "How often a broker sends a heartbeat to the controller.", POSITIVE
    ),
    ConfigKey(
        "broker.session.timeout.ms", INT, "9000", "A broker that sends no heartbeat for this time is fenced.", POSITIVE
    ),
    ConfigKey(
        "initial.broker.registration.timeout.ms",
        INT,
        "60000",
        "How long the registration of a broker may take. It has no effect here: a broker keeps trying.",
        POSITIVE,
        is_served=False,
    ),
    ConfigKey(
        "controlled.shutdown.enable", BOOLEAN, "true", "Move leaderships to other brokers before the broker stops."
    ),
    # replication
    ConfigKey(
        "replica.selector.class",
        STRING,
        LEADER_SELECTOR,
        "Where consumers that name their rack (client.rack) read: with RackAwareReplicaSelector, from a replica in it.",
        one_of(LEADER_SELECTOR, RACK_AWARE_SELECTOR),
    ),
    ConfigKey(
        "replica.lag.time.max.ms",
        LONG,
        "30000",
        "A follower that has not caught up for this time leaves the ISR.",
        POSITIVE,
    ),
    ConfigKey("replica.fetch.max.bytes", INT, "1048576", "Bytes that a follower asks for per partition.", NOT_NEGATIVE),
    ConfigKey(
        "replica.fetch.response.max.bytes", INT, "10485760", "Bytes of one response to a follower.", NOT_NEGATIVE
    ),
    ConfigKey("replica.fetch.wait.max.ms", INT, "500", "How long a follower's fetch waits for records.", NOT_NEGATIVE),
    ConfigKey("replica.fetch.min.bytes", INT, "1", "Bytes that a follower's fetch waits for.", NOT_NEGATIVE),
    ConfigKey(
        "replica.fetch.backoff.ms",
        INT,
        "1000",
        "How long a follower waits after an error before it fetches again.",
        NOT_NEGATIVE,
    ),
    ConfigKey("replica.socket.timeout.ms", INT, "30000", "How long a follower's request may take.", POSITIVE),
    ConfigKey(
        "replica.high.watermark.checkpoint.interval.ms",
        LONG,
        "5000",
        "How often high watermarks are written to disk.",
        POSITIVE,
    ),
    ConfigKey(
        "quota.window.num", INT, "11", "Samples that the rates of clients with quotas are measured over.", POSITIVE
    ),
    ConfigKey("quota.window.size.seconds", INT, "1", "Length of one sample.", POSITIVE),
    ConfigKey("replication.quota.window.num", INT, "11", "Windows that replication is measured over.", POSITIVE),
    ConfigKey("replication.quota.window.size.seconds", INT, "1", "Length of one window.", POSITIVE),
    ConfigKey(
        "alter.log.dirs.replication.quota.window.num", INT, "11", "Windows for moves between directories.", POSITIVE
    ),
    ConfigKey("alter.log.dirs.replication.quota.window.size.seconds", INT, "1", "Length of one window.", POSITIVE),
    ConfigKey(
        "fetch.max.bytes", INT, "57671680", "The maximum number of bytes in the response to a fetch.", at_least(1024)
    ),
    ConfigKey(
        "fetch.sendfile.min.bytes",
        INT,
        "131072",
        "Fetch responses of at least this many bytes are sent by sendfile; -1 for never.",
        at_least(-1),
    ),
    # metrics and health over HTTP
    ConfigKey(
        "metrics.port",
        INT,
        None,
        "Port of /metrics and /health over HTTP; without it they are not served.",
        Between(0, 65535),
    ),
    ConfigKey("metrics.host", STRING, "", "Address that the metrics port listens on; empty for every interface."),
    ConfigKey(
        "metrics.partition.limit",
        INT,
        "4000",
        "The maximum number of partitions that have time series of their own.",
        NOT_NEGATIVE,
    ),
    ConfigKey(
        "event.loop.stall.log.ms",
        INT,
        "0",
        "Log whatever holds the event loop for this long; 0 for never.",
        NOT_NEGATIVE,
    ),
    ConfigKey(
        "fault.injection.enable",
        BOOLEAN,
        "false",
        "Let the user who runs the node cut, slow and fill it for rehearsals, on this machine only. Not in Kafka.",
    ),
    # throttles (KIP-73)
    ConfigKey(
        "leader.replication.throttled.rate",
        LONG,
        str(LONG_MAX),
        "Bytes per second that followers get of the partitions named by leader.replication.throttled.replicas.",
        NOT_NEGATIVE,
        update_mode=CLUSTER_WIDE,
    ),
    ConfigKey(
        "follower.replication.throttled.rate",
        LONG,
        str(LONG_MAX),
        "Bytes per second that a broker fetches of those named by follower.replication.throttled.replicas.",
        NOT_NEGATIVE,
        update_mode=CLUSTER_WIDE,
    ),
    ConfigKey(
        "replica.alter.log.dirs.io.max.bytes.per.second",
        DOUBLE,
        DOUBLE_MAX,
        "Bytes per second that moving a replica to another directory of its broker may copy.",
        update_mode=CLUSTER_WIDE,
    ),
)


def _behind(keys: Mapping[str, ConfigKey], update_mode: UpdateMode) -> dict[str, ConfigKey]:
    """The configurations of the broker behind those of topics or groups, by name."""
    return {
        key.broker_name: ConfigKey(
            key.broker_name,
            key.type,
            key.default if key.synonyms[0].shares_default else None,
            key.doc,
            key.valid,
            update_mode=update_mode,
            is_served=key.is_served,
        )
        for key in keys.values()
        if key.synonyms
    }


BROKER_CONFIGS: Mapping[str, ConfigKey] = {
    **{key.name: key for key in (*_OWN, *COORDINATOR_CONFIGS, *SECURITY_CONFIGS, *CONFIGS_WITHOUT_EFFECT)},
    **_behind(TOPIC_CONFIGS, CLUSTER_WIDE),
    **_behind(GROUP_CONFIGS, UpdateMode.READ_ONLY),
}
"""By name."""
DYNAMIC_BROKER_CONFIGS: Mapping[str, ConfigKey] = {
    name: key for name, key in BROKER_CONFIGS.items() if key.update_mode is not UpdateMode.READ_ONLY
}
"""Those that may change while brokers run."""
