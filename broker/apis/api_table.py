"""The table of all APIs: versions, rights, error body, handlers, forwarding, overlap.

Dispatch, ApiVersions and both kinds of listener are built from it, so an API that is not here does not exist. To add
one, write its handler in a file of its own and add a row; the handler asks for the rights in its row. Kafka's
counterparts: `ApiKeys` (what may be forwarded), the `listeners` of its message schemas, and
`AbstractRequest.getErrorResponse`.
"""

from __future__ import annotations

from collections.abc import Callable

from ...controller import error_responses
from ...controller.error_responses import top_level
from ...wire.api_keys import ApiKey
from ..api import Api, ApiRegistry, ApiSpec, ErrorFields, Forwarded, Handler, Raw
from ..network.dispatch import Dispatcher
from ..services import BrokerServices, ControllerServices
from .admin import (
    alter_configs,
    alter_replica_log_dirs,
    describe_client_quotas,
    describe_configs,
    describe_log_dirs,
    list_config_resources,
)
from .controller import handlers
from .controller.forwarding import envelope, forward
from .controller.requests import (
    describe_configs_of_controller,
    describe_controllers,
    quorum,
    quorum_fetch,
    versions_of_controller,
)
from .groups import (
    consumer_group_describe,
    consumer_group_heartbeat,
    delete_groups,
    describe_groups,
    find_coordinator,
    heartbeat,
    join_group,
    leave_group,
    list_groups,
    offset_commit,
    offset_delete,
    offset_fetch,
    sync_group,
)
from .metadata import api_versions, describe_cluster, describe_topic_partitions, metadata
from .records import (
    delete_records,
    describe_producers,
    fetch,
    list_offsets,
    offset_for_leader_epoch,
    produce,
)
from .rights import (
    ALTER_CLUSTER,
    ALTER_CLUSTER_CONFIGS,
    ALTER_GROUP_CONFIGS,
    ALTER_TOPIC,
    ALTER_TOPIC_CONFIGS,
    CLUSTER_ACTION,
    CREATE_CLUSTER,
    CREATE_TOKENS,
    CREATE_TOPIC,
    DELETE_GROUP,
    DELETE_TOPIC,
    DESCRIBE_CLUSTER,
    DESCRIBE_CLUSTER_CONFIGS,
    DESCRIBE_GROUP,
    DESCRIBE_GROUP_CONFIGS,
    DESCRIBE_TOKEN,
    DESCRIBE_TOKENS,
    DESCRIBE_TOPIC,
    DESCRIBE_TOPIC_CONFIGS,
    DESCRIBE_TRANSACTIONAL_ID,
    IDEMPOTENT_WRITE,
    READ_GROUP,
    READ_TOPIC,
    TWO_PHASE_COMMIT,
    WRITE_TOPIC,
    WRITE_TRANSACTIONAL_ID,
    Rights,
)
from .security import describe_acls, describe_delegation_tokens, describe_scram_credentials, sasl, token_requests
from .transactions import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    describe_transactions,
    end_txn,
    init_producer_id,
    list_transactions,
    txn_offset_commit,
    write_txn_markers,
)


def _on_broker(
    key: ApiKey, versions: tuple[int, int], checks: Rights, error: ErrorFields, handler: Handler[BrokerServices]
) -> ApiSpec:
    """An API that brokers answer themselves."""
    return ApiSpec(key, versions, checks, error, broker=handler)


def _forwarded(
    key: ApiKey, versions: tuple[int, int], checks: Rights, error: ErrorFields, handler: Handler[ControllerServices]
) -> ApiSpec:
    """An API that the controller answers, and that brokers forward to it."""
    return ApiSpec(key, versions, checks, error, broker=Forwarded(forward), controller=handler, is_forwarded=True)


def _about_tokens(
    key: ApiKey, versions: tuple[int, int], checks: Rights, error: ErrorFields, handler: Handler[ControllerServices]
) -> ApiSpec:
    """An API that brokers forward to the controller, unless the client itself has logged in by a delegation token."""
    broker = Forwarded(token_requests.forward_from_client)
    return ApiSpec(key, versions, checks, error, broker=broker, controller=handler, is_forwarded=True)


def _on_controller(
    key: ApiKey, versions: tuple[int, int], checks: Rights, handler: Handler[ControllerServices]
) -> ApiSpec:
    """An API that only nodes of the cluster use, at the controller."""
    return ApiSpec(key, versions, checks, top_level, controller=handler)


API_TABLE: tuple[ApiSpec, ...] = (
    # Records
    ApiSpec(
        ApiKey.PRODUCE,
        (3, 13),
        (WRITE_TOPIC, WRITE_TRANSACTIONAL_ID),
        None,
        broker=Raw(produce.handle),
        overlaps=True,
        announced_from=0,  # else librdkafka up to 2.11.0 does not compress by gzip, snappy and lz4 (KAFKA-18659)
    ),
    ApiSpec(
        ApiKey.FETCH,
        (4, 18),
        (READ_TOPIC, CLUSTER_ACTION),
        None,
        broker=Raw(fetch.handle),
        controller=Raw(quorum_fetch),
        overlaps=True,
    ),
    _on_broker(ApiKey.LIST_OFFSETS, (1, 11), (DESCRIBE_TOPIC,), list_offsets.error, list_offsets.handle),
    _on_broker(
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        (2, 4),
        (DESCRIBE_TOPIC, CLUSTER_ACTION),
        offset_for_leader_epoch.error,
        offset_for_leader_epoch.handle,
    ),
    _on_broker(ApiKey.DELETE_RECORDS, (0, 2), (DELETE_TOPIC,), delete_records.error, delete_records.handle),
    _on_broker(ApiKey.DESCRIBE_PRODUCERS, (0, 0), (READ_TOPIC,), describe_producers.error, describe_producers.handle),
    # Metadata
    ApiSpec(ApiKey.API_VERSIONS, (0, 4), (), top_level, broker=api_versions.handle, controller=versions_of_controller),
    ApiSpec(
        ApiKey.DESCRIBE_CLUSTER,
        (0, 2),
        (DESCRIBE_CLUSTER,),
        top_level,
        broker=describe_cluster.handle,
        controller=describe_controllers,
    ),
    _on_broker(
        ApiKey.METADATA,
        (0, 13),
        (DESCRIBE_TOPIC, CREATE_TOPIC, CREATE_CLUSTER, DESCRIBE_CLUSTER),
        metadata.error,
        metadata.handle,
    ),
    _on_broker(
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        (0, 0),
        (DESCRIBE_TOPIC,),
        describe_topic_partitions.error,
        describe_topic_partitions.handle,
    ),
    # Authentication
    ApiSpec(ApiKey.SASL_HANDSHAKE, (0, 1), (), None, broker=Raw(sasl.handshake), controller=Raw(sasl.handshake)),
    ApiSpec(
        ApiKey.SASL_AUTHENTICATE, (0, 2), (), None, broker=Raw(sasl.authenticate), controller=Raw(sasl.authenticate)
    ),
    _on_broker(
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        (0, 0),
        (DESCRIBE_CLUSTER,),
        describe_scram_credentials.error,
        describe_scram_credentials.handle,
    ),
    _forwarded(
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        (0, 0),
        (ALTER_CLUSTER,),
        error_responses.scram_credentials,
        handlers.alter_scram_credentials,
    ),
    ApiSpec(
        ApiKey.DESCRIBE_ACLS,
        (1, 3),
        (DESCRIBE_CLUSTER,),
        top_level,
        broker=describe_acls.handle,
        controller=describe_acls.of_controller,
    ),
    _forwarded(ApiKey.CREATE_ACLS, (1, 3), (ALTER_CLUSTER,), error_responses.create_acls, handlers.create_acls),
    _forwarded(ApiKey.DELETE_ACLS, (1, 3), (ALTER_CLUSTER,), error_responses.delete_acls, handlers.delete_acls),
    _about_tokens(
        ApiKey.CREATE_DELEGATION_TOKEN, (1, 3), (CREATE_TOKENS,), error_responses.create_token, handlers.create_token
    ),
    _about_tokens(ApiKey.RENEW_DELEGATION_TOKEN, (1, 2), (), error_responses.change_token, handlers.renew_token),
    _about_tokens(ApiKey.EXPIRE_DELEGATION_TOKEN, (1, 2), (), error_responses.change_token, handlers.expire_token),
    _on_broker(
        ApiKey.DESCRIBE_DELEGATION_TOKEN,
        (1, 3),
        (DESCRIBE_TOKEN, DESCRIBE_TOKENS),
        describe_delegation_tokens.error,
        describe_delegation_tokens.handle,
    ),
    # Groups
    _on_broker(
        ApiKey.FIND_COORDINATOR,
        (0, 6),
        (DESCRIBE_GROUP, DESCRIBE_TRANSACTIONAL_ID),
        find_coordinator.error,
        find_coordinator.handle,
    ),
    _on_broker(ApiKey.JOIN_GROUP, (0, 9), (READ_GROUP,), join_group.error, join_group.handle),
    _on_broker(ApiKey.SYNC_GROUP, (0, 5), (READ_GROUP,), sync_group.error, sync_group.handle),
    _on_broker(ApiKey.HEARTBEAT, (0, 4), (READ_GROUP,), top_level, heartbeat.handle),
    _on_broker(ApiKey.LEAVE_GROUP, (0, 5), (READ_GROUP,), top_level, leave_group.handle),
    _on_broker(
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        (0, 1),
        (READ_GROUP, DESCRIBE_TOPIC),
        consumer_group_heartbeat.error,
        consumer_group_heartbeat.handle,
    ),
    _on_broker(
        ApiKey.OFFSET_COMMIT,
        (2, 10),
        (READ_GROUP, READ_TOPIC),
        offset_commit.error,
        offset_commit.handle,
    ),
    _on_broker(
        ApiKey.OFFSET_FETCH,
        (1, 10),
        (DESCRIBE_GROUP, DESCRIBE_TOPIC),
        offset_fetch.error,
        offset_fetch.handle,
    ),
    _on_broker(
        ApiKey.OFFSET_DELETE,
        (0, 0),
        (DELETE_GROUP, READ_TOPIC),
        top_level,
        offset_delete.handle,
    ),
    _on_broker(
        ApiKey.LIST_GROUPS,
        (0, 5),
        (DESCRIBE_GROUP, DESCRIBE_CLUSTER),
        top_level,
        list_groups.handle,
    ),
    _on_broker(ApiKey.DESCRIBE_GROUPS, (0, 6), (DESCRIBE_GROUP,), describe_groups.error, describe_groups.handle),
    _on_broker(
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        (0, 1),
        (DESCRIBE_GROUP, DESCRIBE_TOPIC),
        consumer_group_describe.error,
        consumer_group_describe.handle,
    ),
    _on_broker(ApiKey.DELETE_GROUPS, (0, 2), (DELETE_GROUP,), delete_groups.error, delete_groups.handle),
    # Transactions
    _on_broker(
        ApiKey.INIT_PRODUCER_ID,
        (0, 6),
        (WRITE_TRANSACTIONAL_ID, TWO_PHASE_COMMIT, IDEMPOTENT_WRITE, WRITE_TOPIC),
        init_producer_id.error,
        init_producer_id.handle,
    ),
    ApiSpec(
        ApiKey.ADD_PARTITIONS_TO_TXN,
        (0, 5),
        (WRITE_TRANSACTIONAL_ID, WRITE_TOPIC, CLUSTER_ACTION),
        add_partitions_to_txn.error,
        broker=add_partitions_to_txn.handle,
        overlaps=True,
    ),
    _on_broker(
        ApiKey.ADD_OFFSETS_TO_TXN,
        (0, 4),
        (WRITE_TRANSACTIONAL_ID, READ_GROUP),
        add_offsets_to_txn.error,
        add_offsets_to_txn.handle,
    ),
    _on_broker(ApiKey.END_TXN, (0, 5), (WRITE_TRANSACTIONAL_ID,), end_txn.error, end_txn.handle),
    ApiSpec(
        ApiKey.WRITE_TXN_MARKERS,
        (1, 2),
        (ALTER_CLUSTER, CLUSTER_ACTION),
        write_txn_markers.error,
        broker=write_txn_markers.handle,
        overlaps=True,
    ),
    _on_broker(
        ApiKey.TXN_OFFSET_COMMIT,
        (0, 5),
        (WRITE_TRANSACTIONAL_ID, READ_GROUP, READ_TOPIC),
        txn_offset_commit.error,
        txn_offset_commit.handle,
    ),
    _on_broker(ApiKey.LIST_TRANSACTIONS, (0, 2), (DESCRIBE_TRANSACTIONAL_ID,), top_level, list_transactions.handle),
    _on_broker(
        ApiKey.DESCRIBE_TRANSACTIONS,
        (0, 0),
        (DESCRIBE_TRANSACTIONAL_ID, DESCRIBE_TOPIC),
        describe_transactions.error,
        describe_transactions.handle,
    ),
    # Settings, directories and quotas
    ApiSpec(
        ApiKey.DESCRIBE_CONFIGS,
        (1, 4),
        (DESCRIBE_TOPIC_CONFIGS, DESCRIBE_GROUP_CONFIGS, DESCRIBE_CLUSTER_CONFIGS),
        describe_configs.error,
        broker=describe_configs.handle,
        controller=describe_configs_of_controller,
    ),
    ApiSpec(
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        (0, 1),
        (ALTER_TOPIC_CONFIGS, ALTER_GROUP_CONFIGS, ALTER_CLUSTER_CONFIGS),
        error_responses.alter_configs,
        broker=alter_configs.handle,
        controller=handlers.incremental_alter_configs,
        is_forwarded=True,
    ),
    ApiSpec(
        ApiKey.ALTER_CONFIGS,
        (0, 2),
        (ALTER_TOPIC_CONFIGS, ALTER_GROUP_CONFIGS, ALTER_CLUSTER_CONFIGS),
        error_responses.alter_configs,
        broker=alter_configs.handle_replacement,
        controller=handlers.alter_configs,
        is_forwarded=True,
    ),
    _on_broker(
        ApiKey.LIST_CONFIG_RESOURCES, (0, 1), (DESCRIBE_CLUSTER_CONFIGS,), top_level, list_config_resources.handle
    ),
    _on_broker(ApiKey.DESCRIBE_LOG_DIRS, (1, 4), (DESCRIBE_CLUSTER,), top_level, describe_log_dirs.handle),
    _on_broker(
        ApiKey.ALTER_REPLICA_LOG_DIRS,
        (1, 2),
        (ALTER_CLUSTER,),
        alter_replica_log_dirs.error,
        alter_replica_log_dirs.handle,
    ),
    _on_broker(
        ApiKey.DESCRIBE_CLIENT_QUOTAS,
        (0, 1),
        (DESCRIBE_CLUSTER_CONFIGS,),
        describe_client_quotas.error,
        describe_client_quotas.handle,
    ),
    _forwarded(
        ApiKey.ALTER_CLIENT_QUOTAS,
        (0, 1),
        (ALTER_CLUSTER_CONFIGS,),
        error_responses.client_quotas,
        handlers.alter_client_quotas,
    ),
    # Topics, partitions and features: the controller decides
    _forwarded(
        ApiKey.CREATE_TOPICS,
        (2, 7),
        (CREATE_CLUSTER, CREATE_TOPIC, DESCRIBE_TOPIC_CONFIGS),
        error_responses.create_topics,
        handlers.create_topics,
    ),
    _forwarded(
        ApiKey.DELETE_TOPICS,
        (1, 6),
        (DELETE_TOPIC, DESCRIBE_TOPIC),
        error_responses.delete_topics,
        handlers.delete_topics,
    ),
    _forwarded(
        ApiKey.CREATE_PARTITIONS, (0, 3), (ALTER_TOPIC,), error_responses.create_partitions, handlers.create_partitions
    ),
    _forwarded(ApiKey.ELECT_LEADERS, (0, 2), (ALTER_CLUSTER,), error_responses.elect_leaders, handlers.elect_leaders),
    _forwarded(
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        (0, 1),
        (ALTER_CLUSTER,),
        error_responses.reassignments,
        handlers.alter_reassignments,
    ),
    _forwarded(
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        (0, 0),
        (DESCRIBE_CLUSTER,),
        error_responses.list_reassignments,
        handlers.list_reassignments,
    ),
    _forwarded(ApiKey.UPDATE_FEATURES, (0, 2), (ALTER_CLUSTER,), top_level, handlers.update_features),
    _forwarded(ApiKey.UNREGISTER_BROKER, (0, 0), (ALTER_CLUSTER,), top_level, handlers.unregister_broker),
    # The quorum
    _forwarded(ApiKey.DESCRIBE_QUORUM, (0, 2), (DESCRIBE_CLUSTER,), top_level, quorum),
    _forwarded(ApiKey.ADD_RAFT_VOTER, (0, 1), (ALTER_CLUSTER,), top_level, quorum),
    _forwarded(ApiKey.REMOVE_RAFT_VOTER, (0, 0), (ALTER_CLUSTER,), top_level, quorum),
    _on_controller(ApiKey.UPDATE_RAFT_VOTER, (0, 0), (CLUSTER_ACTION,), quorum),
    _on_controller(ApiKey.VOTE, (0, 2), (CLUSTER_ACTION,), quorum),
    _on_controller(ApiKey.BEGIN_QUORUM_EPOCH, (0, 1), (CLUSTER_ACTION,), quorum),
    _on_controller(ApiKey.END_QUORUM_EPOCH, (0, 1), (CLUSTER_ACTION,), quorum),
    _on_controller(ApiKey.FETCH_SNAPSHOT, (0, 1), (CLUSTER_ACTION,), quorum),
    # From brokers and controllers to the active controller
    _on_controller(ApiKey.ENVELOPE, (0, 0), (CLUSTER_ACTION,), envelope),
    _on_controller(ApiKey.BROKER_REGISTRATION, (0, 4), (CLUSTER_ACTION,), handlers.register_broker),
    _on_controller(ApiKey.BROKER_HEARTBEAT, (0, 1), (CLUSTER_ACTION,), handlers.broker_heartbeat),
    _on_controller(ApiKey.CONTROLLER_REGISTRATION, (0, 0), (CLUSTER_ACTION,), handlers.register_controller),
    _on_controller(ApiKey.ALTER_PARTITION, (2, 3), (CLUSTER_ACTION,), handlers.alter_partition),
    _on_controller(ApiKey.ASSIGN_REPLICAS_TO_DIRS, (0, 0), (CLUSTER_ACTION,), handlers.assign_replicas),
    _on_controller(ApiKey.ALLOCATE_PRODUCER_IDS, (0, 0), (CLUSTER_ACTION,), handlers.allocate_producer_ids),
)


def broker_registry() -> ApiRegistry[BrokerServices]:
    """The APIs of a broker listener."""
    return ApiRegistry(Api(spec, spec.broker) for spec in API_TABLE if spec.broker is not None)


def controller_registry() -> ApiRegistry[ControllerServices]:
    """The APIs of a controller listener."""
    return ApiRegistry(Api(spec, spec.controller) for spec in API_TABLE if spec.controller is not None)


def controller_dispatcher(
    services: ControllerServices, on_fatal: Callable[[BaseException], None]
) -> Dispatcher[ControllerServices]:
    """The dispatcher of the controller listeners. Their servers need `ordered_start=False`."""
    services.dispatcher = Dispatcher(controller_registry(), services, on_fatal)
    return services.dispatcher
