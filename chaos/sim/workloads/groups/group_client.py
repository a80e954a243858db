"""A client that asks the coordinator of one group. What it is told of the group is judged where it is answered."""

from __future__ import annotations

from typing import Any

from .....wire.api_keys import ApiKey
from .....wire.codec import Struct
from ..clients import ClientContext, TopicClient, find_coordinator

_TIMEOUT_S = 1.0


class GroupClient:
    """Asks the coordinator of a group, also what the group is."""

    def __init__(self, context: ClientContext, name: str, group_id: str) -> None:
        self.client = TopicClient(context, name)
        self.client.cluster.timeout_s = _TIMEOUT_S
        self.group_id = group_id
        self.rng = context.rng

    async def ask(self, api: ApiKey, version: int, fields: dict[str, Any]) -> Struct:
        """The answer of the coordinator. Raises `ClientError` or one of `NO_ANSWER`."""
        await self.client.refresh()
        row = await find_coordinator(self.client.cluster, self.group_id)
        return await self.client.cluster.request_at((row.host, row.port), api, version, fields)

    async def describe(self) -> None:
        """Ask what the group is."""
        fields = {"include_authorized_operations": False}
        await self.ask(ApiKey.DESCRIBE_GROUPS, 6, {"groups": [self.group_id], **fields})
        await self.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, {"group_ids": [self.group_id], **fields})

    async def listed(self) -> list[str]:
        """Whether its coordinator lists the group."""
        answer = await self.ask(ApiKey.LIST_GROUPS, 5, {"states_filter": [], "types_filter": []})
        return [one.group_id for one in answer.groups if one.group_id == self.group_id]
