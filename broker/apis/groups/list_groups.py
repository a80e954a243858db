"""ListGroups: the groups of this broker, filtered by state (from version 4 on) and type (from version 5 on)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...api import Fields
from ...network.request import Request
from ...services import BrokerServices

if TYPE_CHECKING:
    from ....wire.message_types.groups import ListGroupsRequest


def handle(services: BrokerServices, request: Request, message: ListGroupsRequest) -> Fields:
    """The groups that pass the filters."""
    states = [state.lower() for state in message.get("states_filter", ())]
    types = [kind.lower() for kind in message.get("types_filter", ())]
    rows = [
        {
            "group_id": group_id,
            "protocol_type": group.protocol_type or "",
            "group_state": str(group.state),
            "group_type": group.kind,
        }
        for shard in services.groups.loaded_shards()
        for group_id, group in sorted(shard.groups.items())
        if (not states or str(group.state).lower() in states) and (not types or group.kind in types)
    ]
    return {"error_code": 0, "groups": rows}
