"""The table of settings: one row a key, with its type, default, limits and meaning. Names and defaults are Kafka's.

`KEYS` are the settings that something in the node reads. `ACCEPTED` are settings of Kafka for parts that are not served
yet: a configuration that was written for Kafka loads, and the node says once which of its lines do nothing.
Source: Kafka's documentation, "Broker Configs".
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from ...controller.configs.broker_configs import connections_by_address

Check: TypeAlias = Callable[[Any], str | None]
"""Gives the reason why a value is refused, or None."""

REQUIRED: Final = object()
INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Key:
    """One setting. `kind` is one of int, bool, string, list, double."""

    name: str
    kind: str
    default: Any
    doc: str
    check: Check | None = None


def at_least(least: int) -> Check:
    """Refuse what is smaller."""
    return lambda value: f"it must be at least {least}" if value < least else None


def between(least: int, most: int) -> Check:
    """Refuse what is outside, ends included."""
    return lambda value: f"it must be between {least} and {most}" if not least <= value <= most else None


def one_of(*choices: str) -> Check:
    """Refuse what is not in the list."""
    return lambda value: f"it must be one of {', '.join(choices)}" if value not in choices else None


def _roles(value: list[str]) -> str | None:
    wrong = [role for role in value if role not in ("broker", "controller")]
    if wrong or not value:
        return "a role is broker or controller, or both: broker,controller"
    return "a role is named twice" if len(value) != len(frozenset(value)) else None


def _assignors(value: list[str]) -> str | None:
    known = [name for name in value if name in ("uniform", "range")]
    return None if known and len(known) == len(value) else "the assignors are uniform and range"


def _connections_by_address(value: str) -> str | None:
    try:
        connections_by_address(value)
    except ValueError as error:
        return str(error)
    return None


_POSITIVE = at_least(1)
_NOT_NEGATIVE = at_least(0)

_ROWS: tuple[Key, ...] = (
    # identity and quorum
    Key("process.roles", "list", REQUIRED, "What this node is: broker, controller, or broker,controller.", _roles),
    Key("node.id", "int", REQUIRED, "The id of this node, unique in the cluster.", between(0, INT_MAX)),
    Key("controller.quorum.voters", "list", (), "The quorum: id@host:port of every controller, joined by commas."),
    Key(
        "controller.quorum.bootstrap.servers",
        "list",
        (),
        "Where to ask for the quorum, host:port of some controllers, instead of controller.quorum.voters: the voters "
        "are then those that formatting named, or that were added since.",
    ),
    Key(
        "controller.quorum.auto.join.enable",
        "bool",
        False,
        "Whether a controller that is no voter asks to become one; not with controller.quorum.voters.",
    ),
    Key("controller.listener.names", "list", (), "Names of the listeners that controllers use."),
    Key("controller.quorum.election.timeout.ms", "int", 1000, "How long a candidate waits for votes.", _POSITIVE),
    Key("controller.quorum.fetch.timeout.ms", "int", 2000, "A leader silent for so long is stood against.", _POSITIVE),
    Key("controller.quorum.election.backoff.max.ms", "int", 1000, "Longest wait before a new election.", _NOT_NEGATIVE),
    Key("controller.quorum.request.timeout.ms", "int", 2000, "How long a quorum request may take.", _POSITIVE),
    Key("controller.quorum.retry.backoff.ms", "int", 20, "Wait before a quorum request is sent again.", _NOT_NEGATIVE),
    Key(
        "metadata.log.max.record.bytes.between.snapshots",
        "int",
        20 * 1024 * 1024,
        "Bytes of new metadata after which a snapshot is made.",
        _POSITIVE,
    ),
    Key(
        "metadata.log.max.snapshot.interval.ms",
        "int",
        3600000,
        "Time after which new metadata goes into a snapshot; 0: bytes alone decide.",
        _NOT_NEGATIVE,
    ),
    Key(
        "metadata.max.retention.bytes",
        "int",
        100 * 1024 * 1024,
        "Size beyond which the metadata log is cut behind its snapshots; -1 for none.",
        at_least(-1),
    ),
    Key(
        "metadata.max.retention.ms",
        "int",
        604800000,
        "Age at which all but the newest metadata snapshot go, with the log before; -1 for none.",
        at_least(-1),
    ),
    # listeners
    Key("listeners", "list", ("PLAINTEXT://:9092",), "What to listen on: NAME://host:port, joined by commas."),
    Key("advertised.listeners", "list", (), "What clients are told to connect to; default: listeners."),
    Key("listener.security.protocol.map", "list", (), "NAME:PROTOCOL for every listener name."),
    Key("inter.broker.listener.name", "string", "", "The listener that brokers reach each other by."),
    Key("socket.request.max.bytes", "int", 104857600, "The largest request in bytes.", _POSITIVE),
    Key("max.connections", "int", INT_MAX, "Connections that a broker takes in all.", _NOT_NEGATIVE),
    Key("max.connections.per.ip", "int", INT_MAX, "Connections that a broker takes of one address.", _NOT_NEGATIVE),
    Key(
        "max.connections.per.ip.overrides",
        "string",
        "",
        "For these addresses, as address:count,..., instead of max.connections.per.ip.",
        _connections_by_address,
    ),
    Key(
        "max.connection.creation.rate",
        "int",
        INT_MAX,
        "Connections a second that a broker begins to serve, on average over ten; the others wait.",
        _NOT_NEGATIVE,
    ),
    Key("connections.max.idle.ms", "int", 600000, "Connections idle for so long are closed.", _POSITIVE),
    Key("max.incremental.fetch.session.cache.slots", "int", 1000, "Fetch sessions kept.", _NOT_NEGATIVE),
    # directories and log
    Key("log.dirs", "list", (), "Directories of the partitions, joined by commas; default: log.dir."),
    Key("log.dir", "string", "/tmp/kafka-logs", "The directory of the partitions, when log.dirs is not set."),
    Key("metadata.log.dir", "string", "", "The directory of the metadata log; default: the first of log.dirs."),
    Key(
        "log.dirs.reserve.bytes",
        "int",
        16777216,
        "Space that is left free in each log directory: with less, its replicas take no records until there is more.",
        _NOT_NEGATIVE,
    ),
    Key(
        "log.dir.failure.timeout.ms",
        "int",
        30000,
        "A broker that cannot tell the controller of a failed log directory for so long stops.",
        _POSITIVE,
    ),
    Key("log.segment.bytes", "int", 1073741824, "Size at which a segment is full.", at_least(1024 * 1024)),
    Key("log.roll.ms", "int", None, "Age at which a segment is full; before log.roll.hours.", _POSITIVE),
    Key("log.roll.hours", "int", 168, "Age in hours at which a segment is full.", _POSITIVE),
    Key("log.index.size.max.bytes", "int", 10485760, "Size at which an index is full.", at_least(4)),
    Key("log.index.interval.bytes", "int", 4096, "Bytes of log between entries of its index.", _NOT_NEGATIVE),
    Key("log.flush.interval.messages", "int", LONG_MAX, "Records after which a partition is fsynced.", _POSITIVE),
    Key("log.flush.interval.ms", "int", None, "Longest time an append waits for its fsync.", _NOT_NEGATIVE),
    Key(
        "log.flush.offset.checkpoint.interval.ms",
        "int",
        60000,
        "How often active segments are fsynced, and recovery points moved into them: what an unclean start checks.",
        _POSITIVE,
    ),
    Key(
        "log.flush.offset.checkpoint.min.bytes",
        "int",
        1024 * 1024,
        "A log that has gained fewer bytes since is passed over.",
        _NOT_NEGATIVE,
    ),
    Key(
        "log.message.timestamp.type",
        "string",
        "CreateTime",
        "Whose clock a record carries: the producer's (CreateTime) or the broker's (LogAppendTime).",
        one_of("CreateTime", "LogAppendTime"),
    ),
    Key(
        "log.message.timestamp.before.max.ms",
        "int",
        LONG_MAX,
        "How much older than the broker's clock a record's timestamp may be.",
        _NOT_NEGATIVE,
    ),
    Key(
        "log.message.timestamp.after.max.ms",
        "int",
        3600000,
        "How much newer than the broker's clock a record's timestamp may be.",
        _NOT_NEGATIVE,
    ),
    Key("compression.type", "string", "producer", "Codec of the batches in the log; producer: as they come."),
    Key("compression.gzip.level", "int", -1, "Level of gzip, where the broker compresses.", between(-1, 9)),
    Key("compression.zstd.level", "int", 3, "Level of zstd, where the broker compresses.", between(-131072, 22)),
    Key("log.roll.jitter.ms", "int", None, "Up to so much earlier a segment is full by age.", _NOT_NEGATIVE),
    Key("log.roll.jitter.hours", "int", 0, "The same in hours.", _NOT_NEGATIVE),
    # retention and compaction
    Key("log.cleanup.policy", "list", ("delete",), "What becomes of old records: delete, compact, or both."),
    Key(
        "log.retention.ms",
        "int",
        None,
        "Age at which records are deleted, -1 for never; before .minutes.",
        at_least(-1),
    ),
    Key("log.retention.minutes", "int", None, "The same in minutes; before .hours.", at_least(-1)),
    Key("log.retention.hours", "int", 168, "The same in hours.", at_least(-1)),
    Key("log.retention.bytes", "int", -1, "Size at which a partition's oldest segments are deleted; -1 for none."),
    Key("log.retention.check.interval.ms", "int", 300000, "How often retention is looked at.", _POSITIVE),
    Key("log.segment.delete.delay.ms", "int", 60000, "How long deleted files stay on disk.", _NOT_NEGATIVE),
    Key("log.cleaner.enable", "bool", True, "Compact the topics with cleanup.policy compact."),
    Key(
        "log.cleaner.dedupe.buffer.size",
        "int",
        134217728,
        "Memory in bytes for keys during compaction.",
        at_least(4096),
    ),
    Key(
        "log.cleaner.io.max.bytes.per.second",
        "double",
        float("inf"),
        "Bytes a second that compaction may go over.",
        _POSITIVE,
    ),
    Key("log.cleaner.backoff.ms", "int", 15000, "Wait of the cleaner when there is nothing to clean.", _POSITIVE),
    Key("log.cleaner.min.cleanable.ratio", "double", 0.5, "Dirty part at which a log is compacted."),
    Key("log.cleaner.delete.retention.ms", "int", 86400000, "How long tombstones stay.", _NOT_NEGATIVE),
    Key("log.cleaner.min.compaction.lag.ms", "int", 0, "Age before which nothing is compacted.", _NOT_NEGATIVE),
    Key("log.cleaner.max.compaction.lag.ms", "int", LONG_MAX, "Age at which dirty records are compacted.", _POSITIVE),
    Key("producer.id.expiration.ms", "int", 86400000, "Silence after which a producer is forgotten.", _POSITIVE),
    Key("message.max.bytes", "int", 1048588, "The largest record batch in bytes.", _NOT_NEGATIVE),
    # topics
    Key("num.partitions", "int", 1, "Partitions of a topic that does not say.", _POSITIVE),
    Key("default.replication.factor", "int", 1, "Replicas of a topic that does not say.", between(1, 32767)),
    Key("min.insync.replicas", "int", 1, "Replicas that must have a record before acks=all is given.", _POSITIVE),
    Key("auto.create.topics.enable", "bool", True, "Make a topic when a producer names it."),
    Key("unclean.leader.election.enable", "bool", False, "Let a replica outside the ISR lead; records may be lost."),
    Key("delete.topic.enable", "bool", True, "Let topics be deleted."),
    Key(
        "create.topic.policy.class.name",
        "string",
        "",
        "Python class (package.module:Class) that controllers ask about every new topic; see operating.",
    ),
    Key(
        "alter.config.policy.class.name",
        "string",
        "",
        "Python class (package.module:Class) that controllers ask about every change of configuration.",
    ),
    Key("auto.leader.rebalance.enable", "bool", True, "Give leadership back to the preferred replica."),
    Key("leader.imbalance.check.interval.seconds", "int", 300, "How often preferred leaders are checked.", _POSITIVE),
    # broker life
    Key("broker.rack", "string", "", "Where the broker stands; replicas are spread over racks."),
    Key("broker.heartbeat.interval.ms", "int", 2000, "How often a broker tells the controller it lives.", _POSITIVE),
    Key("broker.session.timeout.ms", "int", 9000, "A broker silent for so long is fenced.", _POSITIVE),
    Key("initial.broker.registration.timeout.ms", "int", 60000, "How long registering may take.", _POSITIVE),
    Key("controlled.shutdown.enable", "bool", True, "Hand leaderships over before stopping."),
    # replication
    Key("replica.lag.time.max.ms", "int", 30000, "A follower behind for so long leaves the ISR.", _POSITIVE),
    Key("replica.fetch.max.bytes", "int", 1048576, "Bytes a follower asks of one partition.", _NOT_NEGATIVE),
    Key("replica.fetch.response.max.bytes", "int", 10485760, "Bytes of one answer to a follower.", _NOT_NEGATIVE),
    Key("replica.fetch.wait.max.ms", "int", 500, "How long a follower's fetch waits for records.", _NOT_NEGATIVE),
    Key("replica.fetch.min.bytes", "int", 1, "Bytes that a follower's fetch waits for.", _NOT_NEGATIVE),
    Key("replica.fetch.backoff.ms", "int", 1000, "Wait of a follower after an error.", _NOT_NEGATIVE),
    Key("replica.socket.timeout.ms", "int", 30000, "How long a follower's request may take.", _POSITIVE),
    Key("replica.high.watermark.checkpoint.interval.ms", "int", 5000, "How often HWs are saved.", _POSITIVE),
    Key("replication.quota.window.num", "int", 11, "Windows that replication is measured over.", _POSITIVE),
    Key("replication.quota.window.size.seconds", "int", 1, "Length of such a window.", _POSITIVE),
    Key("alter.log.dirs.replication.quota.window.num", "int", 11, "Windows for moves between directories.", _POSITIVE),
    Key("alter.log.dirs.replication.quota.window.size.seconds", "int", 1, "Length of such a window.", _POSITIVE),
    Key("fetch.max.bytes", "int", 57671680, "The most bytes a fetch is answered with.", at_least(1024)),
    Key("fetch.sendfile.min.bytes", "int", 131072, "From so many bytes on sendfile answers; -1: never.", at_least(-1)),
    # metrics and health over HTTP
    Key("metrics.port", "int", None, "Port of /metrics and /health over HTTP; none: not served.", between(0, 65535)),
    Key("metrics.host", "string", "", "Address that the metrics port listens on; none: every interface."),
    Key("metrics.partition.limit", "int", 4000, "Partitions with time series of their own, at most.", _NOT_NEGATIVE),
    Key(
        "event.loop.stall.log.ms", "int", 0, "Log what held the event loop for so long; 0: do not look.", _NOT_NEGATIVE
    ),
    # groups
    Key("offsets.topic.num.partitions", "int", 50, "Partitions of __consumer_offsets when it is made.", _POSITIVE),
    Key("offsets.topic.replication.factor", "int", 3, "Replicas of __consumer_offsets.", between(1, 32767)),
    Key("offsets.topic.segment.bytes", "int", 104857600, "Segment size of __consumer_offsets.", _POSITIVE),
    Key("offset.metadata.max.bytes", "int", 4096, "The longest text that may go with a commit.", _NOT_NEGATIVE),
    Key("offsets.commit.timeout.ms", "int", 5000, "How long a commit waits for the replicas.", _POSITIVE),
    Key("offsets.retention.minutes", "int", 10080, "Offsets that nobody uses for so long are forgotten.", _POSITIVE),
    Key("offsets.retention.check.interval.ms", "int", 600000, "How often unused offsets are looked for.", _POSITIVE),
    Key("group.min.session.timeout.ms", "int", 6000, "The shortest session of a member.", _POSITIVE),
    Key("group.max.session.timeout.ms", "int", 1800000, "The longest session of a member.", _POSITIVE),
    Key("group.initial.rebalance.delay.ms", "int", 3000, "A new group waits so long for members.", _NOT_NEGATIVE),
    Key("group.max.size", "int", INT_MAX, "The most members of a group.", _POSITIVE),
    Key("group.consumer.session.timeout.ms", "int", 45000, "Session of a member, KIP-848.", _POSITIVE),
    Key("group.consumer.min.session.timeout.ms", "int", 45000, "The shortest session a group may set.", _POSITIVE),
    Key("group.consumer.max.session.timeout.ms", "int", 60000, "The longest session a group may set.", _POSITIVE),
    Key("group.consumer.heartbeat.interval.ms", "int", 5000, "Heartbeats of a member, KIP-848.", _POSITIVE),
    Key("group.consumer.min.heartbeat.interval.ms", "int", 5000, "The shortest a group may set.", _POSITIVE),
    Key("group.consumer.max.heartbeat.interval.ms", "int", 15000, "The longest a group may set.", _POSITIVE),
    Key("group.consumer.max.size", "int", INT_MAX, "The most members of a group, KIP-848.", _POSITIVE),
    Key(
        "group.consumer.migration.policy",
        "str",
        "bidirectional",
        "Which way groups with members may go between the protocols.",
        one_of("disabled", "upgrade", "downgrade", "bidirectional"),
    ),
    Key("group.consumer.assignors", "list", ("uniform", "range"), "Assignors, the default first.", _assignors),
)

KEYS: dict[str, Key] = {key.name: key for key in _ROWS}

_ACCEPTED = re.compile(
    r"""(
    offsets\..* | transaction(al)?\..* | group\..* | share\..* | streams?\..* | producer\.id\..*
  | producer\.purgatory\..* | fetch\.purgatory\..* | delete\.records\.purgatory\..*
  | sasl\..* | ssl\..* | security\..*
  | principal\..* | authorizer\..* | super\.users | allow\.everyone\..* | early\.start\.listeners | log\.cleaner\..*
  | log\.cleanup\..* | log\.retention\..* | log\.segment\.delete\.delay\.ms | log\.roll\.jitter\..* | log\.preallocate
  | log\.flush\.(scheduler|start)\..* | log\.deletion\..* | log\.dir\.failure\..* | log\.initial\..* | log\.local\..*
  | log\.message\.timestamp\.(before|after)\..* | log\.message\.downconversion\.enable
  | compression\..* | quota\..* | num\..*\.threads | num\..*\.per\..* | num\.replica\.fetchers | num\.recovery\..*
  | background\.threads | queued\..* | request\.timeout\.ms | socket\.(send|receive|listen|connection)\..*
  | connections?\.(setup|failed|max\.reauth)\..* | max\.connections.* | max\.connection\..* | max\.request\..*
  | metrics?\..* | client\..* | config\.providers.* | remote\..*
  | metadata\.(log\.(segment|max)|max)\..* | telemetry\..* | unstable\..* | eligible\..* | password\.encoder\..*
  | delegation\.token\..* | kafka\..* | server\.max\..* | listener\.name\..* | zookeeper\..* | internal\..*
  | cordoned\..*
  | controller\.(performance|socket)\..*
  | controller\.quorum\.(append\.linger\.ms|auto\.join\.enable|bootstrap\.servers)
  | broker\.id(\.generation\.enable)? | replica\.selector\.class | replica\.socket\.receive\.buffer\.bytes
  | leader\.imbalance\.per\.broker\.percentage | auto\.include\.jmx\.reporter | unclean\.leader\.election\.interval\.ms
  | quota\.window\..* | reserved\.broker\.max\.id | errors\..*
    )""",
    re.VERBOSE,
)


def is_accepted(name: str) -> bool:
    """Whether Kafka has a setting of this family that this node takes without acting on it."""
    return _ACCEPTED.fullmatch(name) is not None


def describe_keys() -> str:
    """The table as text, for people."""
    lines = []
    for key in _ROWS:
        default = "required" if key.default is REQUIRED else f"default {_show(key.default)}"
        lines.append(f"{key.name}  ({key.kind}, {default})\n    {key.doc}")
    return "\n".join(lines)


def _show(value: object) -> str:
    if value is None or value in ("", ()):
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    return ",".join(value) if isinstance(value, tuple) else str(value)
