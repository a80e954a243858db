"""All APIs of a broker listener."""

from __future__ import annotations

from ..api import ApiRegistry
from ..services import BrokerServices
from . import (
    api_versions,
    describe_cluster,
    describe_configs,
    describe_topic_partitions,
    fetch,
    find_coordinator,
    forwarded,
    init_producer_id,
    list_offsets,
    list_partition_reassignments,
    metadata,
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
            api_versions.API,
            init_producer_id.API,
            offset_for_leader_epoch.API,
            describe_configs.API,
            list_partition_reassignments.API,
            describe_cluster.API,
            describe_topic_partitions.API,
            *forwarded.APIS,
        )
    )
