"""OffsetDelete: remove committed offsets of topics that the group does not subscribe to (KIP-496)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from ....runtime.incremental_work import PLAIN_STEP, Pace, Work, map_in_steps
from ....security.authorizer.acl_binding import AclOperation, ResourceType
from ....security.authorizer.authorizer import DENIED
from ....wire.errors import ErrorCode, ProtocolError
from ....wire.types import TopicPartition
from ...api import Result
from ...groups.classic.consumer_protocol import CONSUMER_PROTOCOL_TYPE
from ...groups.group_coordinator_shard import Group, GroupCoordinatorShard
from ...groups.records.offset_and_classic_records import OffsetKey, offset_record
from ...network.request import Request
from ...services import BrokerServices
from .group_requests import answer, answer_once, check_group_id

if TYPE_CHECKING:
    from ....wire.message_types.groups import OffsetDeleteRequest


def handle(services: BrokerServices, request: Request, message: OffsetDeleteRequest) -> Work[Result]:
    """Write the tombstones, and answer when they are committed."""
    pace = Pace()
    services.authorization.check(request, AclOperation.DELETE, ResourceType.GROUP, message.group_id)
    may_read = services.authorization.permission(request, AclOperation.READ, ResourceType.TOPIC)
    shard = services.groups.shard_of(check_group_id(message.group_id))
    group = _deletable(shard, message.group_id)
    image = services.metadata.image
    offsets = shard.offsets_of(message.group_id)
    gone: dict[TopicPartition, None] = {}
    topics: list[dict[str, Any]] = []
    for topic in message.topics:
        known = image.topics_by_name.get(topic.name)
        is_allowed = may_read(topic.name)
        rows: list[dict[str, Any]] = []
        for one in topic.partitions:
            key = TopicPartition(topic.name, one.partition_index)
            code = ErrorCode.NONE
            if not is_allowed:
                code = DENIED[ResourceType.TOPIC]
            elif known is None or one.partition_index not in known.partitions:
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif _is_subscribed(group, topic.name):
                code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            elif key in offsets or shard.pending.is_unstable(OffsetKey(message.group_id, key)):
                gone[key] = None
            rows.append({"partition_index": one.partition_index, "error_code": int(code)})
            if pace.ends_step():
                yield PLAIN_STEP
        topics.append({"name": topic.name, "partitions": rows})
        if pace.ends_step():
            yield PLAIN_STEP
    response = {"error_code": 0, "topics": topics}
    if not gone:
        return response
    future: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
    records = yield from map_in_steps(lambda key: offset_record(message.group_id, key, None), gone, pace)
    if services.groups.shard_of(message.group_id) is not shard:
        raise ProtocolError(ErrorCode.NOT_COORDINATOR)
    _deletable(shard, message.group_id)
    services.groups.append(shard, records, answer_once(future), lambda: shard.forget(message.group_id, gone))
    return answer(future, lambda code: {"error_code": int(code), "topics": [] if code else topics})


def _deletable(shard: GroupCoordinatorShard, group_id: str) -> Group:
    """The group, of which offsets may be deleted."""
    group = shard.groups.get(group_id)
    if group is None:
        raise ProtocolError(ErrorCode.GROUP_ID_NOT_FOUND)
    if not group.is_empty and group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        raise ProtocolError(ErrorCode.NON_EMPTY_GROUP)
    return group


def _is_subscribed(group: Group, topic: str) -> bool:
    if group.is_empty:
        return False
    topics = group.subscribed_topics()
    return topics is None or topic in topics
