"""LeaveGroup: remove members before their session expires; several in one request from version 3 on."""

from __future__ import annotations

import asyncio

from ....runtime.incremental_work import ITEMS_PER_STEP, PLAIN_STEP, Work
from ....security.authorizer.acl_binding import AclOperation, ResourceType
from ....wire.codec import Rows, Struct
from ....wire.errors import ErrorCode, ProtocolError
from ...api import Fields, Result
from ...groups.classic.classic_group import ClassicGroup
from ...groups.effects import LeaveResult
from ...network.request import Request
from ...services import BrokerServices
from .group_requests import classic_protocol, shard_and_group

FIRST_BATCHED_VERSION = 3


def handle(services: BrokerServices, request: Request, message: Struct) -> Work[Result]:
    """Remove the members, some at a time; one code for each, or one in all before version 3.

    Answered when the removals are committed where these are records of their own, as in a consumer group.
    """
    services.authorization.check(request, AclOperation.READ, ResourceType.GROUP, message.group_id)
    batched = request.api_version >= FIRST_BATCHED_VERSION
    rows = message.members if batched else [message]
    codes: list[ErrorCode] = []
    writes: list[asyncio.Future[LeaveResult]] = []
    for start in range(0, len(rows), ITEMS_PER_STEP):
        if start:
            yield PLAIN_STEP
        codes += _leave(services, message.group_id, rows[start : start + ITEMS_PER_STEP], writes)
    return _answer_when_committed(rows if batched else None, codes, writes)


def _leave(
    services: BrokerServices, group_id: str, rows: list[Struct], writes: list[asyncio.Future[LeaveResult]]
) -> list[ErrorCode]:
    leavers = [(row.member_id, row.get("group_instance_id")) for row in rows]
    try:
        shard, group = shard_and_group(services.groups, group_id)
    except ProtocolError as refused:
        if refused.code is not ErrorCode.UNKNOWN_MEMBER_ID:
            raise
        return [refused.code for _ in leavers]
    protocol = classic_protocol(group)
    if isinstance(protocol, ClassicGroup):
        return services.groups.run(shard, group, lambda now_ms, wall_ms: protocol.leave(leavers, now_ms, wall_ms))
    write: asyncio.Future[LeaveResult] = asyncio.get_running_loop().create_future()
    writes.append(write)
    return services.groups.run(shard, group, lambda now_ms, wall_ms: protocol.leave(leavers, write, now_ms, wall_ms))


async def _answer_when_committed(
    rows: list[Struct] | None, codes: list[ErrorCode], writes: list[asyncio.Future[LeaveResult]]
) -> Fields:
    """The response; `rows` are None before version 3."""
    failed = ErrorCode.NONE
    for write in writes:
        failed = failed or (await write).error
    if rows is None:
        return {"error_code": int(failed or codes[0])}
    if failed:
        return {"error_code": int(failed), "members": []}
    return {"error_code": 0, "members": Rows(lambda pair: _answer(*pair), list(zip(rows, codes, strict=True)))}


def _answer(row: Struct, code: ErrorCode) -> Fields:
    return {
        "member_id": row.member_id,
        "group_instance_id": row.get("group_instance_id"),
        "error_code": int(code),
    }
