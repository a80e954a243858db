"""ListGroups: the groups of this broker, filtered by state (from version 4 on) and type (from version 5 on)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....runtime.incremental_work import PLAIN_STEP, Pace, Work, map_in_steps, sort_in_steps
from ....security.authorizer.acl_binding import AclOperation, ResourceType
from ...api import Fields
from ...network.request import Request
from ...services import BrokerServices

if TYPE_CHECKING:
    from ....wire.message_types.groups import ListGroupsRequest


def handle(services: BrokerServices, request: Request, message: ListGroupsRequest) -> Work[Fields]:
    """The groups that pass the filters."""
    rights = services.authorization
    sees_all = rights.is_allowed_on_cluster(request, AclOperation.DESCRIBE, logs_denial=False)
    may_see = rights.permission(request, AclOperation.DESCRIBE, ResourceType.GROUP, logs_denial=False)
    pace = Pace()
    states = frozenset((yield from map_in_steps(str.lower, message.get("states_filter", ()), pace)))
    types = frozenset((yield from map_in_steps(str.lower, message.get("types_filter", ()), pace)))
    rows = []
    for shard in list(services.groups.loaded_shards()):
        for group_id in (yield from sort_in_steps(list(shard.groups), pace)):
            group = shard.committed_group(group_id)
            if pace.ends_step():
                yield PLAIN_STEP
            if group is None or (states and str(group.state).lower() not in states):
                continue
            if (not types or group.kind in types) and (sees_all or may_see(group_id)):
                rows.append(
                    {
                        "group_id": group_id,
                        "protocol_type": group.protocol_type or "",
                        "group_state": str(group.state),
                        "group_type": group.kind,
                    }
                )
    return {"error_code": 0, "groups": rows}
