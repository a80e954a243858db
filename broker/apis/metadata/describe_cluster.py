"""DescribeCluster: the brokers, or the controllers on a controller listener (KIP-700, KIP-919)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ....wire.errors import ErrorCode
from ...api import Fields
from ...network.request import Request
from ...services import BrokerServices
from ...topic_view import controller_id_for_clients, endpoint_of

if TYPE_CHECKING:
    from ....wire.message_types.cluster import DescribeClusterRequest

BROKERS = 1
CONTROLLERS = 2


def endpoint_type_error(asked: int, served: int) -> Fields | None:
    """The response that refuses an endpoint type which this listener does not serve; None where it does."""
    if asked == served:
        return None
    if asked in (BROKERS, CONTROLLERS):
        return {
            "error_code": int(ErrorCode.MISMATCHED_ENDPOINT_TYPE),
            "error_message": "The request was sent to an endpoint of the wrong type.",
        }
    return {
        "error_code": int(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
        "error_message": f"Unsupported endpoint type {asked}.",
    }


def handle(services: BrokerServices, request: Request, message: DescribeClusterRequest) -> Fields:
    """The brokers that the listener reaches; fenced ones only on request."""
    refusal = endpoint_type_error(message.get("endpoint_type", BROKERS), BROKERS)
    if refusal is not None:
        return refusal
    image = services.metadata.image
    with_fenced = message.get("include_fenced_brokers", False)
    rows: list[dict[str, Any]] = []
    for broker_id, broker in sorted(image.brokers.items()):
        endpoint = endpoint_of(broker, request.sink.listener_name)
        if endpoint is None or (broker.fenced and not with_fenced):
            continue
        row = {"broker_id": broker_id, "host": endpoint.host, "port": endpoint.port, "rack": broker.rack}
        rows.append(row | {"is_fenced": broker.fenced})
    asked = message.include_cluster_authorized_operations
    return {
        "error_code": 0,
        "endpoint_type": BROKERS,
        "cluster_id": services.config.cluster_id,
        "controller_id": controller_id_for_clients(image, services.metadata.leader.leader_id),
        "brokers": rows,
        "cluster_authorized_operations": services.authorization.cluster_operations(request, is_asked=asked),
    }
