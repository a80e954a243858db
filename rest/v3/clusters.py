"""Clusters and brokers."""

from __future__ import annotations

from typing import Any

from ...cluster.client.cluster_client import BrokerView, ClusterView
from ..errors import RestError
from ..request import Request
from ..routes import Answer, Route
from ..services import Services
from .resources import Links, links_of
from .topics import replica_resource

_CLUSTER = "/v3/clusters/{cluster_id}"


def _cluster_resource(links: Links, view: ClusterView) -> Any:
    return links.resource(
        "KafkaCluster",
        (),
        (),
        controller=links.related("brokers", view.controller_id),
        acls=links.related("acls"),
        brokers=links.related("brokers"),
        broker_configs=links.related("broker-configs"),
        consumer_groups=links.related("consumer-groups"),
        topics=links.related("topics"),
        partition_reassignments=links.related("topics", "-", "partitions", "-", "reassignment"),
    )


def _broker_resource(links: Links, broker: BrokerView) -> Any:
    at = ("brokers", broker.node_id)
    return links.resource(
        "KafkaBroker",
        at,
        [("broker", broker.node_id)],
        broker_id=broker.node_id,
        host=broker.host,
        port=broker.port,
        rack=broker.rack,
        configs=links.related(*at, "configs"),
        partition_replicas=links.related(*at, "partition-replicas"),
    )


async def _list_clusters(services: Services, request: Request) -> Answer:
    view = await services.cluster.view()
    links = Links(request.base_url, view.cluster_id or "")
    metadata = {"self": f"{request.base_url}/v3/clusters", "next": None}
    return Answer({"kind": "KafkaClusterList", "metadata": metadata, "data": [_cluster_resource(links, view)]})


async def _get_cluster(services: Services, request: Request) -> Answer:
    links = await links_of(services, request)
    return Answer(_cluster_resource(links, await services.cluster.view()))


async def _list_brokers(services: Services, request: Request) -> Answer:
    links = await links_of(services, request)
    rows = [_broker_resource(links, one) for one in (await services.cluster.view()).brokers]
    return links.listed("KafkaBrokerList", ["brokers"], rows)


async def broker_of(services: Services, request: Request) -> BrokerView:
    """The broker that the path names. Raises `RestError` when none of this id is alive."""
    wanted = request.number("broker_id")
    for one in (await services.cluster.view()).brokers:
        if one.node_id == wanted:
            return one
    raise RestError(404, f"Broker {wanted} cannot be found.")


async def _get_broker(services: Services, request: Request) -> Answer:
    links = await links_of(services, request)
    return Answer(_broker_resource(links, await broker_of(services, request)))


async def _partition_replicas(services: Services, request: Request) -> Answer:
    links = await links_of(services, request)
    broker = (await broker_of(services, request)).node_id
    rows = [
        replica_resource(links, topic.name, partition, broker)
        for topic in (await services.cluster.view(None)).topics
        for partition in topic.partitions
        if broker in partition.replicas
    ]
    return links.listed("KafkaReplicaList", ["brokers", broker, "partition-replicas"], rows)


ROUTES = (
    Route("GET", "/v3/clusters", _list_clusters, "The clusters, of which there is one.", "ClusterDataList"),
    Route("GET", _CLUSTER, _get_cluster, "A cluster.", "ClusterData"),
    Route("GET", f"{_CLUSTER}/brokers", _list_brokers, "The brokers that are alive.", "BrokerDataList"),
    Route("GET", f"{_CLUSTER}/brokers/{{broker_id}}", _get_broker, "A broker.", "BrokerData"),
    Route(
        "GET",
        f"{_CLUSTER}/brokers/{{broker_id}}/partition-replicas",
        _partition_replicas,
        "The replicas that a broker has.",
        "ReplicaDataList",
    ),
)
