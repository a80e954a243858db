"""Heartbeat: a member lives; the answer tells whether it has to join again."""

from __future__ import annotations

from ....wire.codec import Struct
from ...api import Fields
from ...groups.requests import classic_side, group_of_member
from ...network.request import Request
from ...services import BrokerServices


def handle(services: BrokerServices, request: Request, message: Struct) -> Fields:
    shard, group = group_of_member(services.groups, message.group_id)
    side = classic_side(group)
    member = message.member_id, message.get("group_instance_id"), message.generation_id
    code = services.groups.run(shard, group, lambda now_ms, _: side.heartbeat(*member, now_ms))
    return {"error_code": int(code)}
