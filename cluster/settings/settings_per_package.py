"""The settings of each package, from the checked configuration of a node."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any
from uuid import UUID

from ...broker.config import AdvertisedListener, BrokerConfig, TopicDefaults
from ...broker.groups.group_config import (
    ClassicConfig,
    ConsumerConfig,
    GroupConfig,
    MigrationPolicy,
    OffsetsConfig,
    OffsetsTopicConfig,
)
from ...broker.network.connection import ConnectionLimits
from ...broker.network.listener_security import ListenerSecurity
from ...broker.network.request_memory import RequestMemory, default_limit_bytes
from ...broker.network.server import ServerConfig
from ...broker.quotas.sampled_rate import QuotaWindow
from ...broker.transactions.partition_verifier import VerifierConfig
from ...broker.transactions.transaction_config import TransactionConfig, TransactionTopicConfig
from ...controller.configs.broker_configs import BROKER_CONFIGS
from ...controller.configs.effective_configs import broker_value
from ...controller.configs.group_configs import GroupLimits
from ...controller.metadata.features import SUPPORTED_FEATURES
from ...controller.metadata.metadata_image import MetadataImage
from ...controller.metadata.metadata_loader import SnapshotPolicy
from ...controller.security.delegation_tokens import TokenSettings
from ...controller.settings import ControllerSettings
from ...isr.fetching.replica_selector import REPLICA_SELECTORS
from ...isr.ports import ReplicaManagerConfig
from ...log.cleaner.log_cleaner import CleanerConfig
from ...log.config import LogConfig
from ...log.manager.log_manager_config import (
    LogMaintenanceChange,
    LogManagerConfig,
    RecoveryPointConfig,
    RetentionConfig,
    ScrubberConfig,
)
from ...log.topic_configs import MIN_ISR_KEY, TOPIC_CONFIGS
from ...raft.quorum.config import RaftConfig, RaftTiming
from ...raft.snapshots.snapshot_store import SnapshotRetention
from ...raft.voters.voter_set import VoterEndpoint, VoterListener
from ...security.delegation_token import TokenKey
from ...wire.client import DEFAULT_MAX_FRAME_BYTES
from ..node.policies import load_policies
from .format_advice import format_rest_advice
from .node_config import Listener, NodeConfig
from .relations import QUORUM_FETCH_WAIT_MS

_MINUTE_MS = 60 * 1000
SECURITY_PROTOCOL_IDS = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}
_CONTROLLED_SHUTDOWN_TIMEOUT_MS = 10_000
_BESIDE_RECORDS_BYTES_MAX = 16 * 1024 * 1024
"""Of a response to a follower that fetches very many partitions."""


def topic_defaults(config: NodeConfig) -> dict[str, str]:
    """The values in server.properties for topics, by the topics' names."""
    found = {}
    for key in TOPIC_CONFIGS.values():
        synonym = next((one for one in key.synonyms if one.name in config.properties), None)
        if synonym is not None and synonym.unit_ms == 1:
            found[key.name] = config.properties[synonym.name]
        elif synonym is not None:
            value = config[synonym.name]
            found[key.name] = str(value * synonym.unit_ms if value >= 0 else -1)
    return found


def log_config(config: NodeConfig) -> LogConfig:
    """The configuration of logs whose topics have no values of their own."""
    return LogConfig().with_overrides(topic_defaults(config))


def log_manager_config(
    config: NodeConfig, cluster_id: str, on_dir_failed: Callable[[str, OSError], None]
) -> LogManagerConfig:
    """The settings of the node's logs."""
    return LogManagerConfig(
        config.all_dirs,
        cluster_id,
        config.node_id,
        defaults=log_config(config),
        file_delete_delay_ms=config["log.segment.delete.delay.ms"],
        on_dir_failed=on_dir_failed,
        format_advice=partial(format_rest_advice, config, cluster_id),
        retention=RetentionConfig(
            interval_ms=config["log.retention.check.interval.ms"],
            producer_expiration_ms=config["producer.id.expiration.ms"],
        ),
        cleaner=CleanerConfig(
            enabled=config["log.cleaner.enable"],
            dedupe_buffer_bytes=config["log.cleaner.dedupe.buffer.size"],
            io_bytes_per_s=config["log.cleaner.io.max.bytes.per.second"],
            backoff_ms=config["log.cleaner.backoff.ms"],
        ),
        recovery_points=RecoveryPointConfig(
            interval_ms=config["log.flush.offset.checkpoint.interval.ms"],
            bytes_min=config["log.flush.offset.checkpoint.min.bytes"],
        ),
        scrubber=ScrubberConfig(
            interval_ms=config["log.scrub.interval.ms"],
            io_bytes_per_s=config["log.scrub.io.max.bytes.per.second"],
        ),
        metadata_dir=config.metadata_log_dir,
        data_dirs=config.log_dirs,
    )


def _present_value(config: NodeConfig, image: MetadataImage, name: str) -> Any:
    return BROKER_CONFIGS[name].parse(broker_value(image, config.node_id, config.properties, name))


def verifies_transactions(config: NodeConfig, image: MetadataImage) -> bool:
    """The present value of `transaction.partition.verification.enable`."""
    return bool(_present_value(config, image, "transaction.partition.verification.enable"))


def log_maintenance_change(config: NodeConfig, image: MetadataImage) -> LogMaintenanceChange:
    """The present values of those settings of the logs that may change while the node runs."""

    def value(name: str) -> Any:
        return _present_value(config, image, name)

    return LogMaintenanceChange(
        producer_expiration_ms=value("producer.id.expiration.ms"),
        dedupe_buffer_bytes=value("log.cleaner.dedupe.buffer.size"),
        io_bytes_per_s=value("log.cleaner.io.max.bytes.per.second"),
        backoff_ms=value("log.cleaner.backoff.ms"),
    )


def unused_min_isr(config: NodeConfig, image: MetadataImage) -> str | None:
    """A warning where this node's file says another `min.insync.replicas` than the cluster has; None otherwise.

    With eligible leader replicas (KIP-966) all leaders and controllers go by one value, which the metadata have.
    """
    own, of_cluster = config[MIN_ISR_KEY], _present_value(config, image, MIN_ISR_KEY)
    if not image.elr_enabled or MIN_ISR_KEY not in config.properties or own == of_cluster:
        return None
    setting, change = f"{MIN_ISR_KEY}={own}", "raftwerk configs set --all-brokers"
    return f"{setting} of server.properties has no effect: the cluster has {of_cluster}; use {change} {setting}"


def voter_listeners(config: NodeConfig) -> tuple[VoterListener, ...]:
    """The controller listeners of this node, as other controllers reach them."""
    return tuple(VoterListener(one.name, one.host, one.port) for one in config.advertised_controller)


def raft_config(config: NodeConfig, cluster_id: str, directory_id: UUID) -> RaftConfig:
    """The settings of this node's part in the quorum."""
    timing = RaftTiming(
        election_timeout_ms=config["controller.quorum.election.timeout.ms"],
        fetch_timeout_ms=config["controller.quorum.fetch.timeout.ms"],
        election_backoff_max_ms=config["controller.quorum.election.backoff.max.ms"],
        request_timeout_ms=config["controller.quorum.request.timeout.ms"],
        retry_backoff_ms=config["controller.quorum.retry.backoff.ms"],
        fetch_max_wait_ms=QUORUM_FETCH_WAIT_MS,
    )
    return RaftConfig(
        node_id=config.node_id,
        cluster_id=cluster_id,
        voters={voter.node_id: VoterEndpoint(voter.host, voter.port) for voter in config.voters},
        bootstrap=tuple(VoterEndpoint(*server) for server in config.bootstrap),
        directory_id=directory_id,
        listeners=voter_listeners(config),
        can_vote=config.is_controller,
        auto_join=config["controller.quorum.auto.join.enable"],
        timing=timing,
        fetch_max_bytes=config["controller.quorum.fetch.max.bytes"],
        snapshot_fetch_max_bytes=config["controller.quorum.fetch.snapshot.max.bytes"],
        listener_name=config.controller_listener_names[0],
        snapshot_retention=SnapshotRetention(
            config["metadata.max.retention.bytes"], config["metadata.max.retention.ms"]
        ),
        spare_bytes=config["metadata.log.spare.bytes"],
    )


def snapshot_policy(config: NodeConfig) -> SnapshotPolicy:
    """When this node makes a snapshot of the metadata."""
    return SnapshotPolicy(
        max_bytes=config["metadata.log.max.record.bytes.between.snapshots"],
        max_interval_ms=config["metadata.log.max.snapshot.interval.ms"],
    )


def controller_settings(config: NodeConfig) -> ControllerSettings:
    """The settings of the controller. Raises `PolicyError`."""
    return ControllerSettings(
        node_id=config.node_id,
        broker_session_timeout_ms=config["broker.session.timeout.ms"],
        num_partitions=config["num.partitions"],
        default_replication_factor=config["default.replication.factor"],
        topic_defaults=topic_defaults(config),
        inter_broker_listener_name=config.inter_broker_listener_name or "PLAINTEXT",
        auto_leader_rebalance_enable=config["auto.leader.rebalance.enable"],
        leader_imbalance_check_interval_ms=config["leader.imbalance.check.interval.seconds"] * 1_000,
        group_limits=group_limits(config),
        delete_topic_enable=config["delete.topic.enable"],
        policies=load_policies(config.values, config.properties),
        tokens=TokenSettings(
            key=token_key(config),
            max_lifetime_ms=config["delegation.token.max.lifetime.ms"],
            expiry_time_ms=config["delegation.token.expiry.time.ms"],
            expiry_check_interval_ms=config["delegation.token.expiry.check.interval.ms"],
        ),
    )


def token_key(config: NodeConfig) -> TokenKey | None:
    """The key of delegation tokens; None where they are not served."""
    secret = config["delegation.token.secret.key"]
    return TokenKey(secret) if secret else None


def group_limits(config: NodeConfig) -> GroupLimits:
    """The limits of what a group may set."""

    def limits(name: str) -> tuple[int, int]:
        return config[f"group.consumer.min.{name}"], config[f"group.consumer.max.{name}"]

    return GroupLimits(
        session_ms=limits("session.timeout.ms"),
        interval_ms=limits("heartbeat.interval.ms"),
        default_session_ms=config["group.consumer.session.timeout.ms"],
        default_interval_ms=config["group.consumer.heartbeat.interval.ms"],
    )


def replica_manager_config(config: NodeConfig, cluster_id: str) -> ReplicaManagerConfig:
    """The settings of this broker's replicas."""
    return ReplicaManagerConfig(
        node_id=config.node_id,
        cluster_id=cluster_id,
        default_min_isr=config["min.insync.replicas"],
        default_log_config=log_config(config),
        replica_lag_time_max_ms=config["replica.lag.time.max.ms"],
        replica_fetch_wait_max_ms=config["replica.fetch.wait.max.ms"],
        replica_fetch_min_bytes=config["replica.fetch.min.bytes"],
        replica_fetch_max_bytes=config["replica.fetch.max.bytes"],
        replica_fetch_response_max_bytes=config["replica.fetch.response.max.bytes"],
        replica_fetch_backoff_max_ms=config["replica.fetch.backoff.ms"],
        replica_socket_timeout_ms=config["replica.socket.timeout.ms"],
        fetch_session_slots=config["max.incremental.fetch.session.cache.slots"],
        high_watermark_checkpoint_interval_ms=config["replica.high.watermark.checkpoint.interval.ms"],
        replication_quota_window_num=config["replication.quota.window.num"],
        replication_quota_window_size_ms=config["replication.quota.window.size.seconds"] * 1000,
        dirs_quota_window_num=config["alter.log.dirs.replication.quota.window.num"],
        dirs_quota_window_size_ms=config["alter.log.dirs.replication.quota.window.size.seconds"] * 1000,
        replica_selector=REPLICA_SELECTORS[config["replica.selector.class"]],
    )


def broker_config(config: NodeConfig, cluster_id: str, log_dir_ids: tuple[UUID, ...]) -> BrokerConfig:
    """The settings of the broker; its advertised ports are those that the configuration names."""
    return BrokerConfig(
        node_id=config.node_id,
        cluster_id=cluster_id,
        listeners=tuple(advertised(one) for one in config.advertised),
        inter_broker_listener=config.inter_broker_listener_name,
        rack=config["broker.rack"] or None,
        topics=TopicDefaults(
            auto_create=config["auto.create.topics.enable"],
            partitions=config["num.partitions"],
            replication_factor=config["default.replication.factor"],
            configs=topic_defaults(config),
        ),
        values=dict(config.properties),
        supported_features=SUPPORTED_FEATURES,
        log_dir_ids=log_dir_ids,
        log_dirs=config.log_dirs,
        groups=group_config(config),
        transactions=transaction_config(config),
        verifier=VerifierConfig(
            retry_backoff_ms=config["add.partitions.to.txn.retry.backoff.ms"],
            retry_backoff_max_ms=config["add.partitions.to.txn.retry.backoff.max.ms"],
        ),
        heartbeat_interval_ms=config["broker.heartbeat.interval.ms"],
        log_dir_failure_timeout_ms=config["log.dir.failure.timeout.ms"],
        controlled_shutdown_timeout_ms=_CONTROLLED_SHUTDOWN_TIMEOUT_MS,
        fetch_max_bytes=config["fetch.max.bytes"],
        fetched_frame_bytes_max=_fetched_frame_bytes_max(config),
        sendfile_min_bytes=config["fetch.sendfile.min.bytes"],
        quota_window=QuotaWindow(config["quota.window.num"], config["quota.window.size.seconds"] * 1000),
        token_key=token_key(config),
    )


def _fetched_frame_bytes_max(config: NodeConfig) -> int:
    """More than the default, if a follower asks for more, or if one batch may be larger, which came in a request."""
    records_bytes = max(config["replica.fetch.response.max.bytes"], config["socket.request.max.bytes"])
    return max(DEFAULT_MAX_FRAME_BYTES, int(records_bytes) + _BESIDE_RECORDS_BYTES_MAX)


def group_config(config: NodeConfig) -> GroupConfig:
    """The settings of the group coordinator."""
    return GroupConfig(
        topic=OffsetsTopicConfig(
            partitions=config["offsets.topic.num.partitions"],
            replication_factor=config["offsets.topic.replication.factor"],
            segment_bytes=config["offsets.topic.segment.bytes"],
        ),
        classic=ClassicConfig(
            min_session_timeout_ms=config["group.min.session.timeout.ms"],
            max_session_timeout_ms=config["group.max.session.timeout.ms"],
            initial_rebalance_delay_ms=config["group.initial.rebalance.delay.ms"],
            max_size=config["group.max.size"],
        ),
        consumer=ConsumerConfig(
            session_timeout_ms=config["group.consumer.session.timeout.ms"],
            min_session_timeout_ms=config["group.consumer.min.session.timeout.ms"],
            max_session_timeout_ms=config["group.consumer.max.session.timeout.ms"],
            heartbeat_interval_ms=config["group.consumer.heartbeat.interval.ms"],
            min_heartbeat_interval_ms=config["group.consumer.min.heartbeat.interval.ms"],
            max_heartbeat_interval_ms=config["group.consumer.max.heartbeat.interval.ms"],
            max_size=config["group.consumer.max.size"],
            assignors=tuple(config["group.consumer.assignors"]),
            migration_policy=MigrationPolicy(config["group.consumer.migration.policy"].lower()),
        ),
        offsets=OffsetsConfig(
            metadata_max_bytes=config["offset.metadata.max.bytes"],
            commit_timeout_ms=config["offsets.commit.timeout.ms"],
            retention_ms=config["offsets.retention.minutes"] * _MINUTE_MS,
            retention_check_interval_ms=config["offsets.retention.check.interval.ms"],
        ),
    )


def transaction_config(config: NodeConfig) -> TransactionConfig:
    """The settings of the transaction coordinator."""
    return TransactionConfig(
        topic=TransactionTopicConfig(
            partitions=config["transaction.state.log.num.partitions"],
            replication_factor=config["transaction.state.log.replication.factor"],
            min_isr=config["transaction.state.log.min.isr"],
            segment_bytes=config["transaction.state.log.segment.bytes"],
        ),
        max_timeout_ms=config["transaction.max.timeout.ms"],
        is_two_phase_commit_enabled=config["transaction.two.phase.commit.enable"],
        abort_interval_ms=config["transaction.abort.timed.out.transaction.cleanup.interval.ms"],
        id_expiration_ms=config["transactional.id.expiration.ms"],
        expiration_interval_ms=config["transaction.remove.expired.transaction.cleanup.interval.ms"],
    )


def advertised(listener: Listener) -> AdvertisedListener:
    """A listener as it is registered."""
    protocol = SECURITY_PROTOCOL_IDS[listener.protocol]
    return AdvertisedListener(listener.name, listener.host, listener.port, protocol)


def request_memory(config: NodeConfig) -> RequestMemory:
    """The memory for large requests of some listeners of one role."""
    limit, largest = config["queued.max.request.bytes"], config["socket.request.max.bytes"]
    return RequestMemory(limit if limit > 0 else default_limit_bytes(largest), largest)


def request_memories(config: NodeConfig) -> dict[str, RequestMemory]:
    """The memory for large requests of each of a broker's listeners, by name.

    Those of clients share it. A separate listener between brokers has its own: followers wait for no client's requests.
    """
    shared = request_memory(config)
    return {
        one.name: request_memory(config) if _is_for_brokers_only(config, one) else shared
        for one in config.broker_listeners
    }


def _is_for_brokers_only(config: NodeConfig, listener: Listener) -> bool:
    return len(config.broker_listeners) > 1 and listener.name == config.inter_broker_listener_name


def server_config(config: NodeConfig, listener: Listener, security: ListenerSecurity | None) -> ServerConfig:
    """The settings of the server of one listener."""
    return ServerConfig(
        listener_name=listener.name,
        host=listener.host,
        port=listener.port,
        limits=ConnectionLimits(max_frame_bytes=config["socket.request.max.bytes"]),
        max_idle_ms=config["connections.max.idle.ms"],
        send_buffer_bytes=config["socket.send.buffer.bytes"],
        receive_buffer_bytes=config["socket.receive.buffer.bytes"],
        is_protected=_is_for_brokers_only(config, listener),
        security=security,
    )
