"""Heartbeat: keeps the session of a member of a classic group alive."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....security.authorizer.acl_binding import AclOperation, ResourceType
from ....wire.errors import ErrorCode, ProtocolError
from ...api import Fields
from ...network.request import Request
from ...services import BrokerServices
from .group_requests import classic_protocol, shard_and_group

if TYPE_CHECKING:
    from ....wire.message_types.consumer_groups import HeartbeatRequest


def handle(services: BrokerServices, request: Request, message: HeartbeatRequest) -> Fields:
    """NONE, or REBALANCE_IN_PROGRESS when the member must join again.

    NONE also while the coordinator loads the group, as in Apache Kafka: clients expect no such error of a heartbeat.
    """
    services.authorization.check(request, AclOperation.READ, ResourceType.GROUP, message.group_id)
    try:
        shard, group = shard_and_group(services.groups, message.group_id)
    except ProtocolError as error:
        if error.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return {"error_code": int(ErrorCode.NONE)}
        raise
    protocol = classic_protocol(group)
    member = message.member_id, message.get("group_instance_id"), message.generation_id
    code = services.groups.run(shard, group, lambda now_ms, _: protocol.heartbeat(*member, now_ms))
    return {"error_code": int(code)}
