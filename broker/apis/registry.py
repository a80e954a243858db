"""All APIs of a broker listener."""

from __future__ import annotations

from ..api import ApiRegistry
from ..services import BrokerServices
from .admin import (
    alter_configs,
    alter_replica_log_dirs,
    describe_client_quotas,
    describe_configs,
    describe_log_dirs,
    forwarded,
    list_config_resources,
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
    describe_transactions,
    fetch,
    init_producer_id,
    list_offsets,
    list_transactions,
    offset_for_leader_epoch,
    produce,
)


def broker_registry() -> ApiRegistry[BrokerServices]:
    """What a client can ask a broker."""
    return ApiRegistry(
        (
            produce.API,
            fetch.API,
            list_offsets.API,
            metadata.API,
            find_coordinator.API,
            join_group.API,
            sync_group.API,
            heartbeat.API,
            leave_group.API,
            offset_commit.API,
            offset_fetch.API,
            offset_delete.API,
            describe_groups.API,
            list_groups.API,
            delete_groups.API,
            consumer_group_heartbeat.API,
            consumer_group_describe.API,
            describe_producers.API,
            list_transactions.API,
            describe_transactions.API,
            list_config_resources.API,
            describe_client_quotas.API,
            api_versions.API,
            delete_records.API,
            init_producer_id.API,
            offset_for_leader_epoch.API,
            alter_configs.API,
            describe_configs.API,
            describe_cluster.API,
            describe_log_dirs.API,
            alter_replica_log_dirs.API,
            describe_topic_partitions.API,
            *forwarded.APIS,
        )
    )
