"""Functions that several group APIs use: check group ids, find groups and topics, answer later."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar
from uuid import UUID

from ....controller.metadata.metadata_image import MetadataImage, TopicImage
from ....security.authorizer.acl_binding import ResourceType
from ....security.authorizer.authorizer import DENIED
from ....wire.codec import Struct
from ....wire.errors import ErrorCode, ProtocolError
from ...api import Fields
from ...groups.classic.classic_group import ClassicGroup
from ...groups.consumer.classic_protocol_adapter import ClassicProtocolAdapter
from ...groups.group_coordinator import GroupCoordinator
from ...groups.group_coordinator_shard import Group, GroupCoordinatorShard
from ...network.request import Request

R = TypeVar("R")

GROUP_ID_MAX = 32_767


def check_group_id(group_id: str) -> str:
    """The group id, which must not be empty or too long. Raises INVALID_GROUP_ID."""
    if not group_id or len(group_id.encode()) > GROUP_ID_MAX:
        raise ProtocolError(ErrorCode.INVALID_GROUP_ID)
    return group_id


def client_host(request: Request) -> str:
    """The client's address, as Java prints it."""
    return f"/{request.sink.peer}"


def classic_protocol(group: Group) -> ClassicGroup | ClassicProtocolAdapter:
    """The object that serves the classic protocol for the group."""
    return group if isinstance(group, ClassicGroup) else group.classic_protocol


def shard_and_group(groups: GroupCoordinator, group_id: str) -> tuple[GroupCoordinatorShard, Group]:
    """The group of a member, and its shard. Raises UNKNOWN_MEMBER_ID if there is none, or the error of the shard."""
    shard = groups.shard_of(check_group_id(group_id))
    group = shard.groups.get(group_id)
    if group is None:
        raise ProtocolError(ErrorCode.UNKNOWN_MEMBER_ID)
    return shard, group


def answer(future: asyncio.Future[R], fields: Callable[[R], Fields]) -> Fields | Awaitable[Fields]:
    """The response at once if the future is done, else an awaitable of it."""
    return fields(future.result()) if future.done() else _later(future, fields)


def answer_once(future: asyncio.Future[R]) -> Callable[[R], None]:
    """A function that sets the result of the future, unless nobody waits for it any more."""

    def finish(result: R) -> None:
        if not future.done():
            future.set_result(result)

    return finish


async def _later(future: asyncio.Future[R], fields: Callable[[R], Fields]) -> Fields:
    return fields(await future)


def find_topic(image: MetadataImage, row: Struct, may_use: Callable[[str], bool]) -> TopicImage | ErrorCode:
    """The topic that a row of a request names, by name or id, or the error code.

    `may_use` says of which names the client may know whether they exist; an id is not a secret.
    """
    if "topic_id" in row:
        topic_id: UUID | None = row.topic_id
        by_id = None if topic_id is None else image.topics_by_id.get(topic_id)
        if by_id is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        return by_id if may_use(by_id.name) else DENIED[ResourceType.TOPIC]
    if not may_use(row.name):
        return DENIED[ResourceType.TOPIC]
    by_name = image.topics_by_name.get(row.name)
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if by_name is None else by_name


def topic_name_fields(row: Struct) -> dict[str, object]:
    """The field by which the response names the topic of a row: its name or its id."""
    return {"topic_id": row.topic_id} if "topic_id" in row else {"name": row.name}
