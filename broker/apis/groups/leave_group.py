"""LeaveGroup: remove members before their session expires; several in one request from version 3 on."""

from __future__ import annotations

from ....wire.codec import Struct
from ....wire.errors import ErrorCode, ProtocolError
from ...api import Fields
from ...network.request import Request
from ...services import BrokerServices
from .group_requests import classic_protocol, shard_and_group

FIRST_BATCHED_VERSION = 3


def handle(services: BrokerServices, request: Request, message: Struct) -> Fields:
    """Remove the members; one code for each, or one in all before version 3."""
    batched = request.api_version >= FIRST_BATCHED_VERSION
    rows = message.members if batched else [message]
    leavers = [(row.member_id, row.get("group_instance_id")) for row in rows]
    try:
        shard, group = shard_and_group(services.groups, message.group_id)
    except ProtocolError as refused:
        if refused.code is not ErrorCode.UNKNOWN_MEMBER_ID:
            raise
        codes: list[ErrorCode] = [refused.code for _ in leavers]
    else:
        protocol = classic_protocol(group)
        codes = services.groups.run(shard, group, lambda now_ms, wall_ms: protocol.leave(leavers, now_ms, wall_ms))
    if not batched:
        return {"error_code": int(codes[0])}
    return {
        "error_code": 0,
        "members": [
            {"member_id": member_id, "group_instance_id": instance_id, "error_code": int(code)}
            for (member_id, instance_id), code in zip(leavers, codes, strict=True)
        ],
    }
