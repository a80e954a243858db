"""Fetch: records for consumers and followers. What is read, and when it is answered, is decided in `isr/fetching`.

A topic is named up to version 12 and identified by its id from 13 on (KIP-516). A partition that is refused because the
leader moved says where the leader is now (KIP-951).
"""

from __future__ import annotations

from ....isr.results import FetchParams
from ....wire.fetch import FetchRequest, FetchResponse, decode_fetch_request, encode_fetch_response
from ....wire.primitives import NodeEndpoint
from ...network.request import Request
from ...services import BrokerServices
from ...topic_view import node_endpoints

FIRST_VERSION_FROM_FOLLOWERS = 11
FIRST_VERSION_BY_ID = 13
FIRST_VERSION_WITH_ENDPOINTS = 16


def _params(services: BrokerServices, message: FetchRequest, request: Request) -> FetchParams:
    is_follower = message.replica_id >= 0
    sendfile_min_bytes = services.config.sendfile_min_bytes
    max_bytes = message.max_bytes if is_follower else min(message.max_bytes, services.config.fetch_max_bytes)
    return FetchParams(
        replica_id=message.replica_id,
        replica_epoch=message.replica_epoch,
        max_wait_ms=message.max_wait_ms,
        min_bytes=min(message.min_bytes, max_bytes),
        max_bytes=max_bytes,
        isolation_level=message.isolation_level,
        client_rack=message.rack_id or "",
        uses_topic_ids=request.api_version >= FIRST_VERSION_BY_ID,
        from_follower_allowed=request.api_version >= FIRST_VERSION_FROM_FOLLOWERS,
        slice_bytes_min=sendfile_min_bytes if sendfile_min_bytes >= 0 and request.sink.sends_files else None,
    )


def _endpoints(services: BrokerServices, request: Request, response: FetchResponse) -> list[NodeEndpoint]:
    """Where the leaders that the response names listen."""
    leaders = [
        row.current_leader.leader_id
        for topic in response.topics
        for row in topic.partitions
        if row.current_leader is not None
    ]
    return node_endpoints(services.metadata.image, leaders, request.sink.listener_name) if leaders else []


def handle(services: BrokerServices, request: Request) -> None:
    """Answer a fetch now, or when there is enough to read."""
    version = request.api_version
    message = decode_fetch_request(version, request.body, 0)

    def done(response: FetchResponse) -> None:
        if version >= FIRST_VERSION_WITH_ENDPOINTS:
            response.node_endpoints = _endpoints(services, request, response)
        request.respond(encode_fetch_response(version, response))

    parked = services.replicas.fetch(_params(services, message, request), message, done)
    if parked is not None:
        request.on_gone = parked.cancel
