"""SyncGroup: the leader sends the assignment, and each member gets its own part."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TYPE_CHECKING

from ....security.authorizer.acl_binding import AclOperation, ResourceType
from ....wire.errors import ErrorCode, ProtocolError
from ...api import Fields
from ...groups.classic.classic_events import SyncRequest
from ...groups.effects import SyncResult
from ...network.request import Request
from ...services import BrokerServices
from .group_requests import answer, classic_protocol, shard_and_group

if TYPE_CHECKING:
    from ....wire.message_types.consumer_groups import SyncGroupRequest

PROTOCOL_NAMED_SINCE = 5


def handle(services: BrokerServices, request: Request, message: SyncGroupRequest) -> Fields | Awaitable[Fields]:
    """Give the request to the group; answered when the leader's assignment is committed.

    A coordinator that loads the group has not the rebalance that the member takes part in: it has to join again.
    """
    services.authorization.check(request, AclOperation.READ, ResourceType.GROUP, message.group_id)
    names = message.get("protocol_type"), message.get("protocol_name")
    if request.api_version >= PROTOCOL_NAMED_SINCE and None in names:
        raise ProtocolError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    try:
        shard, group = shard_and_group(services.groups, message.group_id)
    except ProtocolError as refused:
        if refused.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            raise ProtocolError(ErrorCode.REBALANCE_IN_PROGRESS) from None
        raise
    protocol = classic_protocol(group)
    sync = SyncRequest(
        message.member_id,
        message.generation_id,
        message.get("group_instance_id"),
        *names,
        tuple((one.member_id, one.assignment) for one in message.assignments),
    )
    future: asyncio.Future[SyncResult] = asyncio.get_running_loop().create_future()
    services.groups.run(shard, group, lambda now_ms, wall_ms: protocol.sync(sync, future, now_ms, wall_ms))
    return answer(future, _fields)


def _fields(result: SyncResult) -> Fields:
    return {
        "error_code": int(result.error),
        "protocol_type": result.protocol_type,
        "protocol_name": result.protocol_name,
        "assignment": result.assignment,
    }


def error(message: SyncGroupRequest, code: int, text: str) -> Fields:
    """The response has the error, and no assignment."""
    return {"error_code": code, "assignment": b""}
