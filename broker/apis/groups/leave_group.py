"""LeaveGroup: remove members before their session expires; several in one request from version 3 on."""

from __future__ import annotations

from ....runtime.incremental_work import ITEMS_PER_STEP, PLAIN_STEP, Work
from ....security.authorizer.acl_binding import AclOperation, ResourceType
from ....wire.codec import Rows, Struct
from ....wire.errors import ErrorCode, ProtocolError
from ...api import Fields
from ...network.request import Request
from ...services import BrokerServices
from .group_requests import classic_protocol, shard_and_group

FIRST_BATCHED_VERSION = 3


def handle(services: BrokerServices, request: Request, message: Struct) -> Work[Fields]:
    """Remove the members, some at a time; one code for each, or one in all before version 3."""
    services.authorization.check(request, AclOperation.READ, ResourceType.GROUP, message.group_id)
    batched = request.api_version >= FIRST_BATCHED_VERSION
    rows = message.members if batched else [message]
    codes: list[ErrorCode] = []
    for start in range(0, len(rows), ITEMS_PER_STEP):
        if start:
            yield PLAIN_STEP
        codes += _leave(services, message.group_id, rows[start : start + ITEMS_PER_STEP])
    if not batched:
        return {"error_code": int(codes[0])}
    pairs = list(zip(rows, codes, strict=True))
    return {"error_code": 0, "members": Rows(lambda pair: _answer(*pair), pairs)}


def _leave(services: BrokerServices, group_id: str, rows: list[Struct]) -> list[ErrorCode]:
    leavers = [(row.member_id, row.get("group_instance_id")) for row in rows]
    try:
        shard, group = shard_and_group(services.groups, group_id)
    except ProtocolError as refused:
        if refused.code is not ErrorCode.UNKNOWN_MEMBER_ID:
            raise
        return [refused.code for _ in leavers]
    protocol = classic_protocol(group)
    return services.groups.run(shard, group, lambda now_ms, wall_ms: protocol.leave(leavers, now_ms, wall_ms))


def _answer(row: Struct, code: ErrorCode) -> Fields:
    return {
        "member_id": row.member_id,
        "group_instance_id": row.get("group_instance_id"),
        "error_code": int(code),
    }
