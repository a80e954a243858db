"""DeleteGroups: remove groups without members, and their offsets (KIP-229)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ....wire.errors import ErrorCode, ProtocolError
from ...api import Fields
from ...network.request import Request
from ...services import BrokerServices
from .group_requests import check_group_id

if TYPE_CHECKING:
    from ....wire.message_types.groups import DeleteGroupsRequest


async def handle(services: BrokerServices, request: Request, message: DeleteGroupsRequest) -> Fields:
    """Delete each group that is empty; answered when the tombstones are committed."""
    codes = await asyncio.gather(*(_delete(services, group_id) for group_id in message.groups_names))
    return {
        "results": [
            {"group_id": group_id, "error_code": int(code)}
            for group_id, code in zip(message.groups_names, codes, strict=True)
        ]
    }


async def _delete(services: BrokerServices, group_id: str) -> ErrorCode:
    groups = services.groups
    try:
        shard = groups.shard_of(check_group_id(group_id))
    except ProtocolError as refused:
        return refused.code
    group = shard.groups.get(group_id)
    if group is None:
        return ErrorCode.GROUP_ID_NOT_FOUND
    if not group.is_empty:
        return ErrorCode.NON_EMPTY_GROUP
    future: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()

    def appended(code: ErrorCode) -> None:
        if not code and group.is_empty:
            shard.forget_group(group_id)
        if not future.done():
            future.set_result(code)

    records = shard.tombstones(group_id)
    if records:
        groups.append(shard, records, appended)
    else:
        appended(ErrorCode.NONE)
    return await future


def error(message: DeleteGroupsRequest, code: int, text: str) -> Fields:
    """Every group gets the error."""
    return {"results": [{"group_id": group_id, "error_code": code} for group_id in message.groups_names]}
