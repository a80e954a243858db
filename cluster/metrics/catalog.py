"""The table of all metrics of a node: name, labels, meaning, and where Apache Kafka has the same.

Names are those that dashboards for Kafka use already: for Kafka's MBeans those of the JMX exporter with Strimzi's
rules, for topics and consumer groups those of kafka_exporter. A metric for which Kafka has no MBean is called
`raftwerk_*`. `docs/metrics.md` is generated from this table.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

GAUGE, COUNTER, SUMMARY = "gauge", "counter", "summary"


@dataclass(frozen=True, slots=True)
class Spec:
    """One metric. `origin` is the MBean or exporter that has it by this name; it is empty for our own."""

    name: str
    kind: str
    labels: tuple[str, ...]
    doc: str
    origin: str = ""


def _specs(kind: str, origin: str, labels: tuple[str, ...], prefix: str, rows: Iterable[str]) -> list[Spec]:
    found = []
    for row in rows:
        name, _, doc = row.partition(": ")
        found.append(Spec(prefix + name, kind, labels, doc, origin))
    return found


_TOPIC = ("topic",)
_PARTITION = ("topic", "partition")
_RAFT = (
    "current_leader: Node id of the quorum's leader as this node knows it; -1 while there is none.",
    "current_epoch: The quorum's epoch as this node knows it.",
    "current_vote: The node that this node voted for in the epoch; -1 for none.",
    "high_watermark: Offset of the metadata log below which all records are committed.",
    "log_end_offset: End of this node's metadata log.",
)

CATALOG: tuple[Spec, ...] = (
    *_specs(
        COUNTER,
        "kafka.server:type=BrokerTopicMetrics",
        _TOPIC,
        "kafka_server_brokertopicmetrics_",
        (
            "messagesin_total: Records appended by producers.",
            "bytesin_total: Bytes appended by producers.",
            "bytesout_total: Bytes read by consumers.",
            "replicationbytesin_total: Bytes fetched as a follower.",
            "replicationbytesout_total: Bytes read by followers.",
            "totalproducerequests_total: Appends requested, one for each partition of a request.",
            "totalfetchrequests_total: Reads requested by consumers, one for each partition of a request.",
            "failedproducerequests_total: Appends that failed.",
            "failedfetchrequests_total: Reads that failed.",
        ),
    ),
    *_specs(
        COUNTER,
        "kafka.server:type=BrokerTopicMetrics",
        (),
        "kafka_server_brokertopicmetrics_",
        (
            "reassignmentbytesin_total: Bytes fetched of partitions that a reassignment brings here.",
            "reassignmentbytesout_total: Bytes read by followers that a reassignment adds.",
        ),
    ),
    *_specs(
        GAUGE,
        "kafka.server:type=ReplicaManager",
        (),
        "kafka_server_replicamanager_",
        (
            "leadercount: Partitions that this broker leads.",
            "partitioncount: Partitions of which this broker has a replica.",
            "underreplicatedpartitions: Partitions led here with a replica out of sync that no reassignment is adding.",
            "underminisrpartitioncount: Partitions led here with fewer replicas in sync than min.insync.replicas.",
            "atminisrpartitioncount: Partitions led here with exactly min.insync.replicas in sync.",
            "offlinereplicacount: Replicas here whose disk has failed.",
            "reassigningpartitions: Partitions led here that a reassignment changes.",
            "produceridcount: Idempotent and transactional producers that the logs here know.",
            "partitionswithlatetransactionscount: Partitions led here with a transaction that is open and silent for "
            "five minutes more than transaction.max.timeout.ms; it may hang.",
        ),
    ),
    *_specs(
        COUNTER,
        "kafka.server:type=ReplicaManager",
        (),
        "kafka_server_replicamanager_",
        (
            "isrshrinks_total: Times a replica left the ISR of a partition led here.",
            "isrexpands_total: Times a replica joined the ISR of a partition led here.",
        ),
    ),
    Spec(
        "kafka_server_leaderreplication_byte_rate",
        GAUGE,
        (),
        "Bytes a second of throttled partitions that followers fetch from this broker.",
        "kafka.server:type=LeaderReplication",
    ),
    Spec(
        "kafka_server_followerreplication_byte_rate",
        GAUGE,
        (),
        "Bytes a second of throttled partitions that this broker fetches.",
        "kafka.server:type=FollowerReplication",
    ),
    *(
        Spec(f"kafka_server_{name}", GAUGE, ("user", "client_id"), doc, f"kafka.server:type={origin}")
        for name, doc, origin in (
            ("produce_byte_rate", "Bytes a second that a client with a quota produces.", "Produce"),
            ("produce_throttle_time", "Milliseconds for which it was throttled last.", "Produce"),
            ("fetch_byte_rate", "Bytes a second that a client with a quota fetches.", "Fetch"),
            ("fetch_throttle_time", "Milliseconds for which it was throttled last.", "Fetch"),
            ("request_request_time", "Percentage of the loop's time that a client with a quota takes.", "Request"),
            ("request_throttle_time", "Milliseconds for which it was throttled last.", "Request"),
        )
    ),
    Spec(
        "kafka_server_alterlogdirsreplication_byte_rate",
        GAUGE,
        (),
        "Bytes per second that are copied between this broker's log directories.",
        "kafka.server:type=AlterLogDirsReplication",
    ),
    Spec(
        "kafka_server_kafkaserver_brokerstate",
        GAUGE,
        (),
        "1 starting, 2 recovery, 3 running, 6 pending controlled shutdown, 7 shutting down.",
        "kafka.server:type=KafkaServer,name=BrokerState",
    ),
    Spec(
        "kafka_server_delayedoperationpurgatory_purgatorysize",
        GAUGE,
        ("delayedOperation",),
        "Requests that wait: Produce requests for replicas, Fetch requests for records.",
        "kafka.server:type=DelayedOperationPurgatory",
    ),
    Spec(
        "kafka_server_socket_server_metrics_connection_count",
        GAUGE,
        ("listener",),
        "Open connections.",
        "kafka.server:type=socket-server-metrics",
    ),
    Spec(
        "kafka_server_socket_server_metrics_connection_creation_total",
        COUNTER,
        ("listener",),
        "Connections accepted.",
        "kafka.server:type=socket-server-metrics",
    ),
    Spec(
        "kafka_network_requestmetrics_requests_total",
        COUNTER,
        ("request",),
        "Requests answered, by API.",
        "kafka.network:type=RequestMetrics,name=RequestsPerSec",
    ),
    Spec(
        "kafka_network_requestmetrics_totaltimems",
        SUMMARY,
        ("request",),
        "Milliseconds from a request's last byte to its answer, waiting included; quantiles of the last minutes.",
        "kafka.network:type=RequestMetrics,name=TotalTimeMs",
    ),
    *_specs(
        GAUGE,
        "kafka.cluster:type=Partition",
        _PARTITION,
        "kafka_cluster_partition_",
        (
            "laststableoffsetlag: Offsets between the last stable offset and the high watermark of a partition led "
            "here; read_committed consumers do not see them yet.",
        ),
    ),
    *_specs(
        GAUGE,
        "kafka.log:type=Log",
        _PARTITION,
        "kafka_log_log_",
        (
            "size: Bytes of a partition's log.",
            "logstartoffset: First offset of a partition's log.",
            "logendoffset: End offset of a partition's log.",
            "numlogsegments: Segments of a partition's log.",
        ),
    ),
    Spec(
        "kafka_log_logmanager_offlinelogdirectorycount",
        GAUGE,
        (),
        "Log directories that have failed and are not used.",
        "kafka.log:type=LogManager",
    ),
    Spec(
        "kafka_log_logflushstats_logflushrateandtimems",
        SUMMARY,
        (),
        "Milliseconds that syncs of logs in the background took.",
        "kafka.log:type=LogFlushStats",
    ),
    *_specs(
        GAUGE,
        "kafka.controller:type=KafkaController",
        (),
        "kafka_controller_kafkacontroller_",
        (
            "activecontrollercount: 1 on the active controller; the sum over the cluster must be 1.",
            "activebrokercount: Brokers that are registered and not fenced. Controllers only, like all of this group.",
            "fencedbrokercount: Brokers that are registered and fenced.",
            "globaltopiccount: Topics of the cluster.",
            "globalpartitioncount: Partitions of the cluster.",
            "offlinepartitionscount: Partitions without a leader.",
            "preferredreplicaimbalancecount: Partitions whose leader is not their first replica.",
            "lastappliedrecordoffset: Offset of the metadata that this node has applied.",
        ),
    ),
    Spec(
        "kafka_controller_kafkacontroller_newactivecontrollerscount",
        GAUGE,
        (),
        "Changes of the active controller that this node has seen.",
        "kafka.controller:type=KafkaController",
    ),
    Spec(
        "kafka_controller_controllerstats_uncleanleaderelections_total",
        COUNTER,
        (),
        "Leaders elected from outside the ISR: records may be lost. Controllers only.",
        "kafka.controller:type=ControllerStats,name=UncleanLeaderElectionsPerSec",
    ),
    Spec(
        "kafka_controller_controllerstats_leaderelectionrateandtimems_count",
        COUNTER,
        (),
        "Leaders elected since this node started. Controllers only.",
        "kafka.controller:type=ControllerStats",
    ),
    *_specs(GAUGE, "kafka.server:type=raft-metrics (JMX exporter)", (), "kafka_server_raft_metrics_", _RAFT),
    *_specs(GAUGE, "kafka.server:type=raft-metrics (Strimzi)", (), "kafka_server_raftmetrics_", _RAFT),
    Spec(
        "kafka_server_raftmetrics_current_state",
        GAUGE,
        ("current_state",),
        "1, with the role in the quorum as a label.",
        "kafka.server:type=raft-metrics (Strimzi)",
    ),
    Spec("kafka_brokers", GAUGE, (), "Unfenced brokers, reported by the active controller.", "kafka_exporter"),
    Spec(
        "kafka_topic_partitions",
        GAUGE,
        _TOPIC,
        "Partitions of a topic, reported by the leader of its first one.",
        "kafka_exporter",
    ),
    *_specs(
        GAUGE,
        "kafka_exporter",
        _PARTITION,
        "kafka_topic_partition_",
        (
            "leader: Node id of the leader, reported by the leader, like all of this group.",
            "current_offset: The high watermark.",
            "oldest_offset: The first offset.",
            "replicas: Number of replicas.",
            "in_sync_replica: Number of replicas in sync.",
            "under_replicated_partition: 1 where a replica is out of sync that no reassignment is adding.",
        ),
    ),
    Spec(
        "kafka_consumergroup_members",
        GAUGE,
        ("consumergroup",),
        "Members of a group, reported by its coordinator, like all of this group.",
        "kafka_exporter",
    ),
    Spec(
        "kafka_consumergroup_current_offset",
        GAUGE,
        ("consumergroup", "topic", "partition"),
        "The committed offset.",
        "kafka_exporter",
    ),
    Spec(
        "kafka_consumergroup_lag",
        GAUGE,
        ("consumergroup", "topic", "partition"),
        "Records not consumed yet. Reported if the coordinator has a replica of the partition; otherwise subtract "
        "kafka_consumergroup_current_offset from kafka_topic_partition_current_offset.",
        "kafka_exporter",
    ),
    Spec(
        "kafka_server_broker_metadata_metrics_metadata_load_error_count",
        GAUGE,
        (),
        "Records of the metadata log or a snapshot that could not be read, and were passed over.",
        "kafka.server:type=broker-metadata-metrics,name=metadata-load-error-count",
    ),
    Spec(
        "kafka_server_broker_metadata_metrics_metadata_apply_error_count",
        GAUGE,
        (),
        "Changes of the metadata that this node could not take up everywhere, because of an unexpected error.",
        "kafka.server:type=broker-metadata-metrics,name=metadata-apply-error-count",
    ),
    Spec(
        "raftwerk_group_records_passed_over_total",
        COUNTER,
        (),
        "Records of __consumer_offsets that could not be read or applied when this broker became a coordinator.",
    ),
    Spec(
        "raftwerk_transaction_records_passed_over_total",
        COUNTER,
        (),
        "Records of __transaction_state that could not be read or applied when this broker became a coordinator.",
    ),
    Spec("raftwerk_build_info", GAUGE, ("version", "node_id", "roles"), "1, with the version as a label."),
    Spec("raftwerk_ready", GAUGE, (), "1 when /health/ready says so."),
    Spec("raftwerk_event_loop_lag_seconds", SUMMARY, (), "How much later than due the event loop ran a timer."),
    Spec("raftwerk_gc_pause_seconds", SUMMARY, (), "Pauses of the garbage collector."),
    Spec("raftwerk_log_damaged", GAUGE, ("topic", "partition"), "1 while batches of the log fail their check on disk."),
    Spec("raftwerk_log_scrubbed_bytes_total", COUNTER, (), "Bytes of logs that were read again and checked."),
    Spec("raftwerk_log_dir_free_bytes", GAUGE, ("directory",), "Space left on the file system of a log directory."),
    Spec(
        "raftwerk_connections_rejected_total", COUNTER, ("listener",), "Connections closed because of what they sent."
    ),
    Spec(
        "raftwerk_metrics_partitions_left_out",
        GAUGE,
        (),
        "Partitions here without time series of their own, beyond metrics.partition.limit.",
    ),
)

_HEADER = """# Metrics

Every node serves its metrics at `GET /metrics` if `metrics.port` is set (`raftwerk up --metrics-port 9404`, or
`KAFKA_METRICS_PORT` in a container). Without it nothing is counted, and nothing listens. On the same port:

- `GET /health/live`: 200 while the node's event loop runs and the node has not failed.
- `GET /health/ready`: 200 if the broker is registered, caught up and unfenced, and the controller knows the quorum's
  leader; otherwise 503 with the reason. `GET /health` is the same.
- `GET /`: a page with these links.

The names are those that dashboards for Apache Kafka expect: those of the JMX exporter with Strimzi's rules, and for
topics and consumer groups those of kafka_exporter. Processor time, memory and descriptors are in `process_*`, the
garbage collector in `python_gc_*`. At most `metrics.partition.limit` (4000) partitions have time series of their
own, and as many topics, groups and clients with quotas; all other labels have fixed sets of values. So the size of a
scrape is bounded: a node with 2,000 partitions has 20,000 lines.

There are no metrics for request queue and remote times (there is no request queue), and for the JVM.

| Metric | Kind | Labels | Meaning | As in |
|---|---|---|---|---|
"""


def reference_page() -> str:
    """The text of docs/metrics.md."""
    rows = [
        f"| `{one.name}` | {one.kind} | {', '.join(f'`{label}`' for label in one.labels)} | {one.doc} | {one.origin} |"
        for one in CATALOG
    ]
    return _HEADER + "\n".join(rows) + "\n"
