"""A node's state as samples of the catalog. It is read at a scrape; nothing here is on the path of a request."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from raftwerk import __version__

from ...broker.quotas.throttling import loop_ms
from ...broker.to_controller.broker_lifecycle import BrokerState
from ...controller.metadata.metadata_image import MetadataImage
from ...isr.replica import Replica
from ...wire.api_keys import ApiKey
from ...wire.types import TopicPartition
from ..node.node import Node
from .counters import BrokerTopicStats, PartitionChanges, ProcessTimings, RequestMetrics

_MS = 1000.0
_LATE_TRANSACTION_MS = 300_000
"""A transaction counts as late so long after `transaction.max.timeout.ms`, as in Apache Kafka."""


class Samples:
    """Rows by metric: label values and the value (a `Latency` and its unit for summaries)."""

    def __init__(self) -> None:
        self.rows: dict[str, list[tuple[tuple[str, ...], Any]]] = {}

    def put(self, name: str, value: Any, *labels: str) -> None:
        """Add one sample."""
        self.rows.setdefault(name, []).append((labels, value))


@dataclass(slots=True)
class Counters:
    """What was counted; `changes` is None until the node has metadata."""

    process: ProcessTimings
    requests: RequestMetrics
    topics: BrokerTopicStats
    changes: PartitionChanges | None = None


def not_ready_because(node: Node) -> str | None:
    """Why the node does not serve; None when it does."""
    if node.has_failed:
        return "the node has failed and is about to stop"
    loader = node.loader
    if loader is None or node.raft is None:
        return "the node is starting or stopping"
    if loader.leader.leader_id is None:
        return "no leader of the metadata quorum is known"
    if not node.config.is_broker:
        return None
    broker = node.broker
    if broker is None or broker.state is not BrokerState.RUNNING:
        return f"the broker is {broker.state.name.lower().replace('_', ' ') if broker else 'starting'}"
    registration = loader.image.brokers.get(node.config.node_id)
    if registration is None or registration.fenced:
        return "the broker is fenced"
    return None


def read_all(node: Node, counters: Counters, partition_limit: int) -> Iterator[Samples]:
    """The samples, in parts; the loop may do other work between them."""
    yield _read_process(node, counters, partition_limit)
    if node.raft is None or node.loader is None:
        return
    yield _read_quorum(node)
    yield _read_scrubbers(node, partition_limit)
    if node.controller is not None:
        yield _read_controller(node, counters)
    if node.replica_manager is not None:
        yield _read_replicas(node, counters)
        yield _read_logs(node, partition_limit)
        yield _read_groups(node, partition_limit)
        yield _read_quotas(node, partition_limit)


def _read_process(node: Node, counters: Counters, limit: int) -> Samples:
    samples = Samples()
    put = samples.put
    config = node.config
    put("raftwerk_build_info", 1, __version__, str(config.node_id), ",".join(config["process.roles"]))
    put("raftwerk_ready", int(not_ready_because(node) is None))
    put("raftwerk_event_loop_lag_seconds", (counters.process.loop_lag, 1.0))
    put("raftwerk_gc_pause_seconds", (counters.process.gc_pauses, 1.0))
    put("kafka_log_logflushstats_logflushrateandtimems", (counters.process.fsyncs, _MS))
    for server in node.servers:
        put("kafka_server_socket_server_metrics_connection_count", len(server.connections), server.listener_name)
        put("kafka_server_socket_server_metrics_connection_creation_total", server.accepted_total, server.listener_name)
        put("raftwerk_connections_rejected_total", server.rejected_total, server.listener_name)
    for api_key, latency in sorted(counters.requests.by_api.items()):
        name = _api_name(api_key)
        put("kafka_network_requestmetrics_requests_total", latency.count, name)
        put("kafka_network_requestmetrics_totaltimems", (latency, _MS), name)
    for directory, free in node.free_bytes().items():
        put("raftwerk_log_dir_free_bytes", free, directory)
    if node.replica_manager is not None:
        topics = counters.topics
        put("kafka_server_brokertopicmetrics_reassignmentbytesin_total", topics.reassignment_bytes_in)
        put("kafka_server_brokertopicmetrics_reassignmentbytesout_total", topics.reassignment_bytes_out)
        for topic, stats in list(topics.by_topic.items())[:limit]:
            for name, field in _TOPIC_STATS:
                put(name, getattr(stats, field), topic)
    return samples


_TOPIC_STATS = tuple(
    (f"kafka_server_brokertopicmetrics_{name}_total", field)
    for name, field in (
        ("messagesin", "messages_in"),
        ("bytesin", "bytes_in"),
        ("bytesout", "bytes_out"),
        ("replicationbytesin", "replication_bytes_in"),
        ("replicationbytesout", "replication_bytes_out"),
        ("totalproducerequests", "produce_requests"),
        ("totalfetchrequests", "fetch_requests"),
        ("failedproducerequests", "failed_produce_requests"),
        ("failedfetchrequests", "failed_fetch_requests"),
    )
)


def _read_quorum(node: Node) -> Samples:
    samples = Samples()
    raft = node.raft
    if raft is None:
        return samples
    leader = raft.leader_and_epoch.leader_id
    role = raft.quorum_state.role
    values = {
        "current_leader": -1 if leader is None else leader,
        "current_epoch": raft.epoch,
        "current_vote": -1 if role.voted is None else role.voted.id,
        "high_watermark": raft.high_watermark,
        "log_end_offset": raft.log_end_offset,
    }
    for prefix in ("kafka_server_raft_metrics_", "kafka_server_raftmetrics_"):
        for name, value in values.items():
            samples.put(prefix + name, value)
    state = role.kind.value if node.config.is_controller else "observer"
    samples.put("kafka_server_raftmetrics_current_state", 1, state)
    if node.loader is not None:
        samples.put("kafka_server_broker_metadata_metrics_metadata_load_error_count", node.loader.load_errors)
        samples.put("kafka_server_broker_metadata_metrics_metadata_apply_error_count", node.loader.apply_errors)
    return samples


def _read_controller(node: Node, counters: Counters) -> Samples:
    samples = Samples()
    loader = node.loader
    if loader is None:
        return samples
    image: MetadataImage = loader.image
    partitions = [one for topic in image.topics_by_id.values() for one in topic.partitions.values()]
    fenced = sum(broker.fenced for broker in image.brokers.values())
    active = node.controller.active
    values = {
        "activecontrollercount": int(active),
        "activebrokercount": len(image.brokers) - fenced,
        "fencedbrokercount": fenced,
        "globaltopiccount": len(image.topics_by_id),
        "globalpartitioncount": len(partitions),
        "offlinepartitionscount": sum(one.leader < 0 for one in partitions),
        "preferredreplicaimbalancecount": sum(one.leader != one.preferred_leader for one in partitions),
        "lastappliedrecordoffset": image.offset,
    }
    for name, value in values.items():
        samples.put(f"kafka_controller_kafkacontroller_{name}", value)
    changes = counters.changes
    if changes is not None:
        samples.put("kafka_controller_kafkacontroller_newactivecontrollerscount", changes.new_controllers)
        samples.put("kafka_controller_controllerstats_uncleanleaderelections_total", changes.unclean_leader_elections)
        samples.put("kafka_controller_controllerstats_leaderelectionrateandtimems_count", changes.leader_elections)
    if active:
        samples.put("kafka_brokers", len(image.brokers) - fenced)
    return samples


def _read_replicas(node: Node, counters: Counters) -> Samples:
    samples = Samples()
    manager = node.replica_manager
    if manager is None:
        return samples
    replicas = manager.partitions.values()
    leaders = [one.partition.leader for one in replicas if one.partition.leader is not None and not one.offline]
    values = {
        "leadercount": len(leaders),
        "partitioncount": len(replicas),
        "underreplicatedpartitions": sum(one.is_under_replicated for one in leaders),
        "underminisrpartitioncount": sum(one.is_under_min_isr for one in leaders),
        "atminisrpartitioncount": sum(len(one.isr_state.isr) == one.effective_min_isr for one in leaders),
        "offlinereplicacount": sum(one.offline for one in replicas),
        "reassigningpartitions": _reassigning(node),
        "produceridcount": sum(len(one.log.producers) for one in replicas),
        "partitionswithlatetransactionscount": manager.late_transactions(
            node.config["transaction.max.timeout.ms"] + _LATE_TRANSACTION_MS
        ),
    }
    for name, value in values.items():
        samples.put(f"kafka_server_replicamanager_{name}", value)
    if counters.changes is not None:
        samples.put("kafka_server_replicamanager_isrshrinks_total", counters.changes.isr_shrinks)
        samples.put("kafka_server_replicamanager_isrexpands_total", counters.changes.isr_expands)
    produces, fetches = manager.purgatory.sizes()
    samples.put("kafka_server_delayedoperationpurgatory_purgatorysize", produces, "Produce")
    samples.put("kafka_server_delayedoperationpurgatory_purgatorysize", fetches, "Fetch")
    for name, rate in manager.throttled_rates().items():
        samples.put(f"kafka_server_{name}replication_byte_rate", rate)
    if node.broker is not None:
        samples.put("kafka_server_kafkaserver_brokerstate", node.broker.state.value)
    return samples


def _reassigning(node: Node) -> int:
    """The number of partitions led here that a reassignment changes."""
    if node.loader is None:
        return 0
    return sum(
        bool(one.adding_replicas or one.removing_replicas)
        for topic in node.loader.image.topics_by_id.values()
        for one in topic.partitions.values()
        if one.leader == node.config.node_id
    )


def _read_quotas(node: Node, limit: int) -> Samples:
    """What clients with quotas have used last."""
    samples = Samples()
    if node.broker is None:
        return samples
    quotas, now_ms = node.broker.quotas, loop_ms()
    for name, rate, manager in (
        ("produce", "byte_rate", quotas.produce),
        ("fetch", "byte_rate", quotas.fetch),
        ("request", "request_time", quotas.request),
    ):
        for bucket, used, throttle_ms in manager.usage(now_ms, limit):
            labels = bucket.user or "", bucket.client_id or ""
            samples.put(f"kafka_server_{name}_{rate}", used, *labels)
            samples.put(f"kafka_server_{name}_throttle_time", throttle_ms, *labels)
    return samples


def _read_scrubbers(node: Node, limit: int) -> Samples:
    """What is known of damage in the logs of partitions and in the metadata log."""
    samples = Samples()
    logs = node.log_manager
    found = [] if logs is None else [one for one in (logs.scrubber, logs.metadata_scrubber) if one is not None]
    samples.put("raftwerk_log_scrubbed_bytes_total", sum(one.checked_bytes for one in found))
    for scrubber in found:
        for key in list(scrubber.damaged)[:limit]:
            samples.put("raftwerk_log_damaged", 1, key.topic, str(key.partition))
    return samples


def _read_logs(node: Node, limit: int) -> Samples:
    samples = Samples()
    manager, logs = node.replica_manager, node.log_manager
    if manager is None or logs is None:
        return samples
    put = samples.put
    put("kafka_log_logmanager_offlinelogdirectorycount", len(node.config.all_dirs) - len(logs.directories.ids))
    put("raftwerk_metrics_partitions_left_out", max(0, len(manager.partitions) - limit))
    for key, replica in list(manager.partitions.items())[:limit]:
        log, labels = replica.log, (key.topic, str(key.partition))
        put("kafka_log_log_size", log.size_bytes, *labels)
        put("kafka_log_log_logstartoffset", log.log_start_offset, *labels)
        put("kafka_log_log_logendoffset", log.log_end_offset, *labels)
        put("kafka_log_log_numlogsegments", len(log.segments), *labels)
        if replica.partition.leader is not None:
            _put_led(samples, replica, labels, node.config.node_id)
    if node.loader is not None:
        topics = node.loader.image.topics_by_name
        for key, replica in manager.partitions.items():
            if key.partition == 0 and replica.is_leader and key.topic in topics:
                put("kafka_topic_partitions", len(topics[key.topic].partitions), key.topic)
    return samples


def _put_led(samples: Samples, replica: Replica, labels: tuple[str, str], node_id: int) -> None:
    leader = replica.partition.leader
    if leader is None:
        return
    in_sync = len(leader.isr_state.isr)
    lag = leader.high_watermark - replica.last_stable_offset
    samples.put("kafka_cluster_partition_laststableoffsetlag", lag, *labels)
    samples.put("kafka_topic_partition_leader", node_id, *labels)
    samples.put("kafka_topic_partition_current_offset", leader.high_watermark, *labels)
    samples.put("kafka_topic_partition_oldest_offset", replica.log.log_start_offset, *labels)
    samples.put("kafka_topic_partition_replicas", len(leader.replicas), *labels)
    samples.put("kafka_topic_partition_in_sync_replica", in_sync, *labels)
    samples.put("kafka_topic_partition_under_replicated_partition", int(leader.is_under_replicated), *labels)


def _read_groups(node: Node, limit: int) -> Samples:
    samples = Samples()
    manager, broker = node.replica_manager, node.broker
    if manager is None or broker is None or broker.groups is None:
        return samples
    samples.put("raftwerk_group_records_passed_over_total", broker.groups.partitions.passed_over)
    if broker.transactions is not None:
        passed_over = broker.transactions.partitions.passed_over
        samples.put("raftwerk_transaction_records_passed_over_total", passed_over)
    left = limit
    named = 0
    for shard in broker.groups.active_shards:
        for group_id, group in list(shard.groups.items())[: max(0, limit - named)]:
            named += 1
            samples.put("kafka_consumergroup_members", len(group.members), group_id)
        for group_id, offsets in shard.offsets.items():
            for key, value in list(offsets.items())[: max(0, left)]:
                left -= 1
                _put_offset(samples, group_id, key, value.offset, manager.high_watermark_of(key))
    return samples


def _put_offset(samples: Samples, group_id: str, key: TopicPartition, offset: int, high_watermark: int | None) -> None:
    labels = (group_id, key.topic, str(key.partition))
    samples.put("kafka_consumergroup_current_offset", offset, *labels)
    if high_watermark is not None:
        samples.put("kafka_consumergroup_lag", max(0, high_watermark - offset), *labels)


def _api_name(api_key: int) -> str:
    """The API's name as Kafka writes it: Produce, FindCoordinator."""
    try:
        return ApiKey(api_key).name.title().replace("_", "")
    except ValueError:
        return str(api_key)
