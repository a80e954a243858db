"""All APIs of a broker listener."""

from __future__ import annotations

from ..api import ApiRegistry
from ..services import BrokerServices
from . import (
    alter_configs,
    alter_replica_log_dirs,
    api_versions,
    consumer_group_describe,
    consumer_group_heartbeat,
    delete_groups,
    delete_records,
    describe_client_quotas,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_topic_partitions,
    describe_transactions,
    fetch,
    find_coordinator,
    forwarded,
    heartbeat,
    init_producer_id,
    join_group,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    sync_group,
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
