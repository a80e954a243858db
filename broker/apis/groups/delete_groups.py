"""DeleteGroups: remove groups without members, and their offsets (KIP-229)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ....runtime.incremental_work import PLAIN_STEP, Pace, Work
from ....security.authorizer.acl_binding import AclOperation, ResourceType
from ....security.authorizer.authorizer import DENIED
from ....wire.codec import Rows
from ....wire.errors import ErrorCode, ProtocolError
from ...api import Fields, Result
from ...network.request import Request
from ...services import BrokerServices
from .group_requests import answer_once, check_group_id

if TYPE_CHECKING:
    from ....wire.message_types.groups import DeleteGroupsRequest

_ITEMS_PER_DELETION = 32
"""To write the tombstones of a group takes as long as so many other rows."""


def handle(services: BrokerServices, request: Request, message: DeleteGroupsRequest) -> Work[Result]:
    """Delete each group that is empty; answered when the tombstones are committed."""
    pace = Pace()
    codes: list[ErrorCode | asyncio.Future[ErrorCode]] = []
    for group_id in message.groups_names:
        code: ErrorCode | asyncio.Future[ErrorCode] = DENIED[ResourceType.GROUP]
        if services.authorization.is_allowed(request, AclOperation.DELETE, ResourceType.GROUP, group_id):
            code = _delete(services, group_id)
        codes.append(code)
        if pace.ends_step(_ITEMS_PER_DELETION if isinstance(code, asyncio.Future) else 1):
            yield PLAIN_STEP
    return _answer_when_committed(message, codes)


async def _answer_when_committed(
    message: DeleteGroupsRequest, codes: list[ErrorCode | asyncio.Future[ErrorCode]]
) -> Result:
    for code in codes:
        if isinstance(code, asyncio.Future):
            await code
    return {"results": Rows(_row, list(zip(message.groups_names, codes, strict=True)))}


def _row(deleted: tuple[str, ErrorCode | asyncio.Future[ErrorCode]]) -> Fields:
    group_id, code = deleted
    return {"group_id": group_id, "error_code": int(code.result() if isinstance(code, asyncio.Future) else code)}


def _delete(services: BrokerServices, group_id: str) -> ErrorCode | asyncio.Future[ErrorCode]:
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
    groups.remove_group(shard, group, answer_once(future))
    return future


def error(message: DeleteGroupsRequest, code: int, text: str) -> Fields:
    """Every group gets the error."""
    return {"results": Rows(lambda group_id: {"group_id": group_id, "error_code": code}, message.groups_names)}
