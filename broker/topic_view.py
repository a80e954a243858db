"""The metadata as clients of one listener see them: brokers, partitions, leaders, endpoints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..controller.metadata.metadata_image import BrokerRegistration, MetadataImage, PartitionRegistration, TopicImage
from ..controller.metadata.metadata_records import Endpoint
from ..wire.errors import ErrorCode
from ..wire.primitives import NodeEndpoint
from ..wire.types import LeaderIdAndEpoch

OPERATIONS_NOT_ASKED = -(2**31)
INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})


def endpoint_of(broker: BrokerRegistration | None, listener_name: str) -> Endpoint | None:
    """The broker's address on that listener."""
    if broker is None:
        return None
    return next((one for one in broker.listeners if one.name == listener_name), None)


def alive_brokers(image: MetadataImage) -> list[BrokerRegistration]:
    """Unfenced brokers by id."""
    return [broker for _, broker in sorted(image.brokers.items()) if not broker.fenced]


def broker_rows(image: MetadataImage, listener_name: str, recently_fenced: Sequence[int] = ()) -> list[dict[str, Any]]:
    """The brokers of a Metadata response that have the listener: unfenced ones, and the `recently_fenced`."""
    rows = []
    for _, broker in sorted(image.brokers.items()):
        endpoint = endpoint_of(broker, listener_name)
        if endpoint is not None and (not broker.fenced or broker.broker_id in recently_fenced):
            rows.append(
                {"node_id": broker.broker_id, "host": endpoint.host, "port": endpoint.port, "rack": broker.rack}
            )
    return rows


def controller_id_for_clients(image: MetadataImage, active: int | None) -> int:
    """The controller id in responses: the active controller if it is an unfenced broker too, else another such broker.

    Apache Kafka names a random live broker in KRaft mode: a client needs only a broker that forwards its requests.
    """
    alive = alive_brokers(image)
    if active is not None and any(broker.broker_id == active for broker in alive):
        return active
    return alive[image.epoch % len(alive)].broker_id if alive else -1


def offline_replicas(image: MetadataImage, partition: PartitionRegistration, listener_name: str) -> list[int]:
    """Replicas in failed directories, and on brokers that are unregistered, fenced, or not on this listener."""
    offline = []
    for replica in partition.replicas:
        broker = image.brokers.get(replica)
        is_reached = broker is not None and not broker.fenced and endpoint_of(broker, listener_name) is not None
        if not is_reached or not image.is_replica_online(replica, partition):
            offline.append(replica)
    return offline


class PartitionRows:
    """The partition rows of one Metadata or DescribeTopicPartitions response.

    The fields that depend on brokers and directories are the same for most partitions, so they are cached.
    """

    def __init__(self, image: MetadataImage, listener_name: str) -> None:
        self._image = image
        self._listener_name = listener_name
        self._leaders: dict[int, tuple[int, int]] = {}
        self._offline: dict[tuple[object, ...], list[int]] = {}

    def row(self, index: int, partition: PartitionRegistration) -> dict[str, Any]:
        """The row of a partition."""
        leader = self._leaders.get(partition.leader)
        if leader is None:
            leader = self._leaders[partition.leader] = self._leader(partition.leader)
        place = (partition.replicas, partition.directories)
        offline = self._offline.get(place)
        if offline is None:
            offline = self._offline[place] = offline_replicas(self._image, partition, self._listener_name)
        return {
            "error_code": leader[0],
            "partition_index": index,
            "leader_id": leader[1],
            "leader_epoch": partition.leader_epoch,
            "replica_nodes": partition.replicas,
            "isr_nodes": partition.isr,
            "offline_replicas": offline,
            "eligible_leader_replicas": partition.elr,
            "last_known_elr": partition.last_known_elr,
        }

    def _leader(self, leader: int) -> tuple[int, int]:
        """The error code and the leader id of a partition with this leader."""
        broker = self._image.brokers.get(leader)
        if broker is None:
            return int(ErrorCode.LEADER_NOT_AVAILABLE), -1
        if endpoint_of(broker, self._listener_name) is None:
            return int(ErrorCode.LISTENER_NOT_FOUND), -1
        return 0, leader


def sorted_partitions(topic: TopicImage) -> list[tuple[int, PartitionRegistration]]:
    """A topic's partitions by index."""
    return sorted(topic.partitions.items())


def leader_hint(image: MetadataImage, topic: str, partition: int) -> LeaderIdAndEpoch | None:
    """Leader id and epoch of a partition, for the hints of KIP-951; None when there is no leader."""
    found = image.topics_by_name.get(topic)
    registration = found.partitions.get(partition) if found is not None else None
    if registration is None or registration.leader < 0:
        return None
    return LeaderIdAndEpoch(registration.leader, registration.leader_epoch)


def node_endpoints(image: MetadataImage, node_ids: list[int], listener_name: str) -> list[NodeEndpoint]:
    """The endpoint of each distinct node, for the hints of KIP-951."""
    rows = []
    for node_id in dict.fromkeys(node_ids):
        broker = image.brokers.get(node_id)
        endpoint = endpoint_of(broker, listener_name)
        if broker is not None and endpoint is not None:
            rows.append(NodeEndpoint(node_id, endpoint.host, endpoint.port, broker.rack))
    return rows
