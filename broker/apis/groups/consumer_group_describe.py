"""ConsumerGroupDescribe: consumer groups with their members, current and target assignments (KIP-848), as committed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ....controller.metadata.metadata_image import MetadataImage
from ....runtime.incremental_work import Work, map_in_steps
from ....security.authorizer.acl_binding import AclOperation, ResourceType
from ....security.authorizer.authorizer import DENIED
from ....wire.codec import Rows
from ....wire.errors import ErrorCode, ProtocolError
from ....wire.types import by_topic
from ...api import Fields
from ...groups.consumer.assignors import PartitionIds
from ...groups.consumer.consumer_group_member import ConsumerGroupMember
from ...groups.consumer.group_view import ConsumerGroupView
from ...network.request import Request
from ...services import BrokerServices

if TYPE_CHECKING:
    from ....wire.message_types.consumer_groups import ConsumerGroupDescribeRequest

CLASSIC_MEMBER_TYPE, CONSUMER_MEMBER_TYPE = 0, 1


def handle(services: BrokerServices, request: Request, message: ConsumerGroupDescribeRequest) -> Work[Fields]:
    """One row for each group; a group that is not a consumer group is an error."""
    rights = services.authorization
    may_see = rights.permission(request, AclOperation.DESCRIBE, ResourceType.TOPIC) if rights.is_on else None

    def described(group_id: str) -> dict[str, Any]:
        if not rights.is_allowed(request, AclOperation.DESCRIBE, ResourceType.GROUP, group_id):
            return _failed(group_id, int(DENIED[ResourceType.GROUP]), None)
        row = _row(services, group_id)
        if may_see is not None and not all(may_see(name) for name in _topics(row)):
            text = "The group has described topic(s) that the client is not authorized to describe."
            return _failed(group_id, int(DENIED[ResourceType.TOPIC]), text)
        if row["error_code"]:
            return row
        is_asked = message.include_authorized_operations
        return row | {"authorized_operations": rights.group_operations(request, group_id, is_asked=is_asked)}

    return {"groups": (yield from map_in_steps(described, message.group_ids))}


def _row(services: BrokerServices, group_id: str) -> dict[str, Any]:
    try:
        group = services.groups.shard_of(group_id).committed_group(group_id)
    except ProtocolError as refused:
        return _failed(group_id, int(refused.code), None)
    if not isinstance(group, ConsumerGroupView):
        return _failed(group_id, int(ErrorCode.GROUP_ID_NOT_FOUND), f"Group {group_id} is not a consumer group.")
    image = services.metadata.image
    return {
        "error_code": 0,
        "error_message": None,
        "group_id": group_id,
        "group_state": str(group.state),
        "group_epoch": group.epoch,
        "assignment_epoch": group.target_epoch,
        "assignor_name": group.assignor,
        "members": [_member(image, group, member) for member in group.members.values()],
    }


def _member(image: MetadataImage, group: ConsumerGroupView, member: ConsumerGroupMember) -> dict[str, Any]:
    metadata = member.subscription
    return {
        "member_id": member.member_id,
        "instance_id": metadata.instance_id,
        "rack_id": metadata.rack_id,
        "member_epoch": member.epoch,
        "client_id": metadata.client_id,
        "client_host": metadata.client_host,
        "subscribed_topic_names": list(metadata.topic_names),
        "subscribed_topic_regex": metadata.topic_regex,
        "assignment": _assignment(image, member.assigned),
        "target_assignment": _assignment(image, group.target.get(member.member_id, ())),
        "member_type": CONSUMER_MEMBER_TYPE if metadata.classic is None else CLASSIC_MEMBER_TYPE,
    }


def _assignment(image: MetadataImage, parts: PartitionIds) -> dict[str, Any]:
    return {
        "topic_partitions": [
            {"topic_id": topic_id, "topic_name": topic.name, "partitions": partitions}
            for topic_id, partitions in by_topic(parts).items()
            if (topic := image.topics_by_id.get(topic_id)) is not None
        ]
    }


def _topics(row: dict[str, Any]) -> set[str]:
    """The topics that members of a described group have, or are to have."""
    return {
        topic["topic_name"]
        for member in row["members"]
        for assignment in (member["assignment"], member["target_assignment"])
        for topic in assignment["topic_partitions"]
    }


def _failed(group_id: str, code: int, text: str | None) -> dict[str, Any]:
    nothing = {"group_state": "", "group_epoch": 0, "assignment_epoch": 0, "assignor_name": "", "members": []}
    return {"error_code": code, "error_message": text, "group_id": group_id, **nothing}


def error(message: ConsumerGroupDescribeRequest, code: int, text: str) -> Fields:
    """Every group asked for gets the error."""
    return {"groups": Rows(lambda group_id: _failed(group_id, code, text), message.group_ids)}
