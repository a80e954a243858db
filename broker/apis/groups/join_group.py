"""JoinGroup: become a member of a classic group, or take part in a rebalance."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any

from ....security.authorizer.acl_binding import AclOperation, ResourceType
from ....wire.errors import ErrorCode, ProtocolError
from ...api import Fields
from ...groups.classic.classic_events import JoinRequest
from ...groups.effects import JoinResult
from ...network.request import Request
from ...services import BrokerServices
from .group_requests import answer, check_group_id, classic_protocol, client_host

if TYPE_CHECKING:
    from ....wire.message_types.consumer_groups import JoinGroupRequest

KNOWN_ID_REQUIRED_SINCE = 4
PROTOCOL_NULLABLE_SINCE = 7
SKIPPING_SINCE = 9


def handle(services: BrokerServices, request: Request, message: JoinGroupRequest) -> Fields | Awaitable[Fields]:
    """Check the request and give it to the group; answered when the new generation begins."""
    services.authorization.check(request, AclOperation.READ, ResourceType.GROUP, message.group_id)
    groups = services.groups
    group_id = check_group_id(message.group_id)
    limits = groups.config.classic
    if not limits.min_session_timeout_ms <= message.session_timeout <= limits.max_session_timeout_ms:
        raise ProtocolError(ErrorCode.INVALID_SESSION_TIMEOUT)
    shard = groups.shard_of(group_id)
    if group_id not in shard.groups and message.member_id:
        raise ProtocolError(ErrorCode.UNKNOWN_MEMBER_ID)
    group = groups.group_to_join(shard, group_id)
    protocol = classic_protocol(group)
    join = _join_request(request, message, groups.new_member_id())
    future: asyncio.Future[JoinResult] = asyncio.get_running_loop().create_future()
    groups.run(shard, group, lambda now_ms, wall_ms: protocol.join(join, future, now_ms, wall_ms))
    groups.watch_expiry()
    return answer(future, lambda result: _fields(request, result))


def _join_request(request: Request, message: JoinGroupRequest, unique_id: str) -> JoinRequest:
    instance_id = message.get("group_instance_id")
    client_id = request.client_id or ""
    return JoinRequest(
        member_id=message.member_id,
        new_member_id=f"{client_id if instance_id is None else instance_id}-{unique_id}",
        instance_id=instance_id,
        client_id=client_id,
        client_host=client_host(request),
        session_timeout_ms=message.session_timeout,
        rebalance_timeout_ms=message.get("rebalance_timeout", message.session_timeout),
        protocol_type=message.protocol_type,
        protocols=tuple((one.name, one.metadata) for one in message.protocols),
        requires_known_id=request.api_version >= KNOWN_ID_REQUIRED_SINCE,
        can_skip_assignment=request.api_version >= SKIPPING_SINCE,
    )


def _fields(request: Request, result: JoinResult) -> Fields:
    name = result.protocol_name
    members: list[dict[str, Any]] = [
        {"member_id": member_id, "group_instance_id": instance_id, "metadata": metadata}
        for member_id, instance_id, metadata in result.members
    ]
    return {
        "error_code": int(result.error),
        "generation_id": result.generation,
        "protocol_type": result.protocol_type,
        "protocol_name": name if name is not None or request.api_version >= PROTOCOL_NULLABLE_SINCE else "",
        "leader": result.leader,
        "skip_assignment": result.skip_assignment,
        "member_id": result.member_id,
        "members": members,
    }


def error(message: JoinGroupRequest, code: int, text: str) -> Fields:
    """The response has the error, and no generation."""
    return {"error_code": code, "generation_id": -1, "protocol_name": "", "member_id": message.member_id}
