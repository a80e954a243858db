"""DescribeGroups: classic groups with their members, metadata and assignments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ....runtime.incremental_work import Work, map_in_steps
from ....security.authorizer.acl_binding import AclOperation, ResourceType
from ....security.authorizer.authorizer import DENIED
from ....wire.codec import Rows
from ....wire.errors import ErrorCode, ProtocolError
from ...api import Fields
from ...groups.classic.classic_group_members import ClassicGroupState
from ...groups.classic.classic_group_view import ClassicGroupView
from ...network.request import Request
from ...services import BrokerServices

if TYPE_CHECKING:
    from ....wire.message_types.groups import DescribeGroupsRequest

NOT_FOUND_SINCE = 6


def handle(services: BrokerServices, request: Request, message: DescribeGroupsRequest) -> Work[Fields]:
    """One row for each group; a group that is not a classic group counts as not found."""
    rights = services.authorization
    asked = message.get("include_authorized_operations", False)

    def described(group_id: str) -> dict[str, Any]:
        if not rights.is_allowed(request, AclOperation.DESCRIBE, ResourceType.GROUP, group_id):
            return _failed(group_id, int(DENIED[ResourceType.GROUP]), None)
        row = _row(services, request, group_id)
        found = asked and not row["error_code"]
        return row | {"authorized_operations": rights.group_operations(request, group_id, is_asked=found)}

    return {"groups": (yield from map_in_steps(described, message.groups))}


def _row(services: BrokerServices, request: Request, group_id: str) -> dict[str, Any]:
    try:
        found = services.groups.shard_of(group_id).committed_group(group_id)
    except ProtocolError as refused:
        return _failed(group_id, int(refused.code), "")
    if not isinstance(found, ClassicGroupView):
        if request.api_version < NOT_FOUND_SINCE:
            return _failed(group_id, 0, None)
        text = f"Group {group_id} not found." if found is None else f"Group {group_id} is not a classic group."
        return _failed(group_id, int(ErrorCode.GROUP_ID_NOT_FOUND), text)
    group = found.group
    stable = found.state is ClassicGroupState.STABLE
    return {
        "error_code": 0,
        "error_message": None,
        "group_id": group_id,
        "group_state": str(found.state),
        "protocol_type": group.protocol_type or "",
        "protocol_data": (group.protocol or "") if stable else "",
        "members": [
            {
                "member_id": member.member_id,
                "group_instance_id": member.instance_id,
                "client_id": member.client_id,
                "client_host": member.client_host,
                "member_metadata": member.metadata(group.protocol) if stable else b"",
                "member_assignment": member.assignment if stable else b"",
            }
            for member in group.members.members.values()
        ],
    }


def _failed(group_id: str, code: int, text: str | None) -> dict[str, Any]:
    return {
        "error_code": code,
        "error_message": text,
        "group_id": group_id,
        "group_state": "" if code and code != ErrorCode.GROUP_ID_NOT_FOUND else str(ClassicGroupState.DEAD),
        "protocol_type": "",
        "protocol_data": "",
        "members": [],
    }


def error(message: DescribeGroupsRequest, code: int, text: str) -> Fields:
    """Every group asked for gets the error."""
    return {"groups": Rows(lambda group_id: _failed(group_id, code, text), message.groups)}
