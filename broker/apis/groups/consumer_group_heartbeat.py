"""ConsumerGroupHeartbeat: join a consumer group, stay in it, leave it (KIP-848)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

from ....security.authorizer.acl_binding import AclOperation, ResourceType
from ....wire.errors import ErrorCode, ProtocolError
from ....wire.types import by_topic
from ...api import Fields
from ...groups.consumer.assignors import PartitionIds
from ...groups.consumer.consumer_group_heartbeat import HeartbeatRequest, HeartbeatResult
from ...groups.consumer.consumer_group_member import JOIN_EPOCH, LEAVE_STATIC_EPOCH
from ...groups.consumer.topics import compile_regex
from ...network.request import Request
from ...services import BrokerServices
from .group_requests import answer, check_group_id, client_host

if TYPE_CHECKING:
    from ....wire.message_types.consumer_groups import ConsumerGroupHeartbeatRequest

OWN_ID_SINCE = 1


def handle(
    services: BrokerServices, request: Request, message: ConsumerGroupHeartbeatRequest
) -> Fields | Awaitable[Fields]:
    """Check the request and give it to the group; answered when its changes are committed."""
    rights = services.authorization
    rights.check(request, AclOperation.READ, ResourceType.GROUP, message.group_id)
    if rights.is_on:
        for name in message.subscribed_topic_names or ():
            rights.check(request, AclOperation.DESCRIBE, ResourceType.TOPIC, name)
    groups = services.groups
    group_id = check_group_id(message.group_id)
    _check(request, message, groups.config.consumer.assignors)
    shard = groups.shard_of(group_id)
    heartbeat = HeartbeatRequest(
        member_id=message.member_id or groups.new_member_id(),
        member_epoch=message.member_epoch,
        client_id=request.client_id or "",
        client_host=client_host(request),
        instance_id=message.instance_id,
        rack_id=message.rack_id,
        rebalance_timeout_ms=message.rebalance_timeout,
        topic_names=None if message.subscribed_topic_names is None else tuple(message.subscribed_topic_names),
        topic_regex=message.get("subscribed_topic_regex"),
        assignor=message.server_assignor,
        owned=_owned(message),
        may_see=rights.sight_of_topics(request),
    )
    group = groups.consumer_group(shard, group_id, heartbeat)
    future: asyncio.Future[HeartbeatResult] = asyncio.get_running_loop().create_future()
    groups.run(shard, group, lambda now_ms, wall_ms: group.heartbeat(heartbeat, future, now_ms, wall_ms))
    groups.watch_expiry()
    interval_ms = group.config.consumer.heartbeat_interval_ms
    return answer(future, lambda result: _fields(result, interval_ms))


def _check(request: Request, message: ConsumerGroupHeartbeatRequest, assignors: tuple[str, ...]) -> None:
    """Raise `ProtocolError` for a request with invalid fields."""
    regex = message.get("subscribed_topic_regex")
    complaint = None
    if not message.member_id and (request.api_version >= OWN_ID_SINCE or message.member_epoch != JOIN_EPOCH):
        complaint = "MemberId can't be empty."
    elif message.instance_id == "" or message.rack_id == "":
        complaint = "InstanceId and RackId can't be empty."
    elif message.member_epoch < LEAVE_STATIC_EPOCH:
        complaint = f"MemberEpoch is invalid: {message.member_epoch}."
    elif message.member_epoch == LEAVE_STATIC_EPOCH and message.instance_id is None:
        complaint = "InstanceId can't be null."
    elif message.member_epoch == JOIN_EPOCH:
        complaint = _complaint_about_join(message, regex)
    if complaint is not None:
        raise ProtocolError(ErrorCode.INVALID_REQUEST, complaint)
    if message.server_assignor is not None and message.server_assignor not in assignors:
        known = ", ".join(assignors)
        text = f"ServerAssignor {message.server_assignor} is not supported. Supported assignors: {known}."
        raise ProtocolError(ErrorCode.UNSUPPORTED_ASSIGNOR, text)
    if regex and compile_regex(regex) is None:
        text = f"SubscribedTopicRegex `{regex}` is not a valid regular expression of RE2."
        raise ProtocolError(ErrorCode.INVALID_REGULAR_EXPRESSION, text)


def _complaint_about_join(message: ConsumerGroupHeartbeatRequest, regex: str | None) -> str | None:
    if message.rebalance_timeout == -1:
        return "RebalanceTimeoutMs must be provided in first request."
    if message.topic_partitions is None or message.topic_partitions:
        return "TopicPartitions must be empty when (re-)joining."
    if message.subscribed_topic_names is None and not regex:
        return "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
    return None


def _owned(message: ConsumerGroupHeartbeatRequest) -> PartitionIds | None:
    if message.topic_partitions is None:
        return None
    # A zero id is None here; it is equal to the id of no topic.
    return tuple(
        (cast("UUID", topic.topic_id), index) for topic in message.topic_partitions for index in topic.partitions
    )


def _fields(result: HeartbeatResult, interval_ms: int) -> Fields:
    assignment: dict[str, Any] | None = None
    if result.assignment is not None:
        rows = [{"topic_id": topic, "partitions": found} for topic, found in by_topic(result.assignment).items()]
        assignment = {"topic_partitions": rows}
    return {
        "error_code": int(result.error),
        "error_message": result.message,
        "member_id": result.member_id or None,
        "member_epoch": result.member_epoch,
        "heartbeat_interval": interval_ms,
        "assignment": assignment,
    }


def error(message: ConsumerGroupHeartbeatRequest, code: int, text: str) -> Fields:
    """The response has the error."""
    return {"error_code": code, "error_message": text or None, "member_epoch": 0, "heartbeat_interval": 0}
