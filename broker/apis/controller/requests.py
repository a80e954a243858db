"""What a controller listener serves by itself: the requests of the quorum, versions, the controllers, settings."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from ....security.authorizer.acl_binding import AclOperation, ResourceType
from ....security.authorizer.authorizer import DENIED
from ....wire.api_keys import ApiKey
from ....wire.codec import Struct
from ....wire.errors import ErrorCode
from ....wire.fetch import FetchResponse, decode_fetch_request, encode_fetch_response
from ...api import Fields, Result
from ...network.request import Request
from ...services import ControllerServices
from ..admin.describe_configs import describe
from ..metadata.api_versions import api_versions_fields
from ..metadata.describe_cluster import CONTROLLERS, endpoint_type_error

_QUORUM_FETCH_BYTES_MAX = 16 * 1024
"""The metadata log has one partition, and a request that names it is small."""

_RIGHTS_OF_CLIENTS = {
    ApiKey.DESCRIBE_QUORUM: AclOperation.DESCRIBE,
    ApiKey.ADD_RAFT_VOTER: AclOperation.ALTER,
    ApiKey.REMOVE_RAFT_VOTER: AclOperation.ALTER,
}
"""The rights to the cluster that the APIs of tools need; only nodes use the others."""


def quorum(services: ControllerServices, request: Request, message: Struct) -> Awaitable[Fields]:
    """A request of the Raft protocol, or about its voters."""
    needed = _RIGHTS_OF_CLIENTS.get(ApiKey(request.api_key), AclOperation.CLUSTER_ACTION)
    services.authorization.check_cluster(request, needed)
    return services.quorum.handle_request(request.api_key, request.api_version, message)


def quorum_fetch(services: ControllerServices, request: Request) -> None:
    """Fetch of the metadata log."""
    version = request.api_version
    if not services.authorization.is_allowed_on_cluster(request, AclOperation.CLUSTER_ACTION):
        refusal = FetchResponse(int(DENIED[ResourceType.CLUSTER]))
        request.respond(encode_fetch_response(version, refusal))
        return
    if len(request.body) > _QUORUM_FETCH_BYTES_MAX:
        request.respond(encode_fetch_response(version, FetchResponse(int(ErrorCode.INVALID_REQUEST))))
        return
    message = decode_fetch_request(version, request.body, 0)
    task = asyncio.ensure_future(services.quorum.handle_fetch(version, message))

    def done(finished: asyncio.Future[FetchResponse]) -> None:
        if finished.cancelled() or finished.exception() is not None:
            request.reject("the metadata quorum cannot be read")
            return
        request.respond(encode_fetch_response(version, finished.result()))

    task.add_done_callback(done)


def versions_of_controller(services: ControllerServices, request: Request, message: Struct) -> Fields:
    """ApiVersions of a controller listener."""
    loader = services.metadata
    finalized = loader.image.offset, loader.finalized_features
    return api_versions_fields(request, message, services.version_rows(), services.supported_features, finalized)


def describe_controllers(services: ControllerServices, request: Request, message: Struct) -> Fields:
    """DescribeCluster of a controller listener: the controllers (KIP-919)."""
    refusal = endpoint_type_error(message.get("endpoint_type", 1), CONTROLLERS)
    if refusal is not None:
        return refusal
    leader = services.metadata.leader.leader_id
    asked = message.include_cluster_authorized_operations
    return {
        "error_code": 0,
        "endpoint_type": CONTROLLERS,
        "cluster_id": services.cluster_id,
        "controller_id": -1 if leader is None else leader,
        "brokers": [
            {"broker_id": node_id, "host": host, "port": port, "rack": None, "is_fenced": False}
            for node_id, (host, port) in sorted(services.endpoints().items())
        ],
        "cluster_authorized_operations": services.authorization.cluster_operations(request, is_asked=asked),
    }


def describe_configs_of_controller(services: ControllerServices, request: Request, message: Struct) -> Result:
    """DescribeConfigs of a controller listener: this node's own settings (KIP-919)."""
    return describe(services, request, message)
