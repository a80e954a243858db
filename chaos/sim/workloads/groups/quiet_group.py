"""A group of one classic member that commits once, lives on, and leaves: how long its offset stays (KIP-211).

An offset stays for `offsets.retention.minutes` after the group became empty, however old the commit is, and is removed
after that. The wall clocks of all nodes jump, so that these minutes take seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from .....broker.groups.classic.consumer_protocol import write_assignment, write_subscription
from .....cluster.client.client_errors import ClientError
from .....cluster.client.cluster_client import NO_ANSWER, ClusterClient
from .....wire.api_keys import ApiKey
from .....wire.codec import Struct
from .....wire.errors import ErrorCode
from ...invariants.invariant_broken import InvariantBroken
from ..administrator import TIMEOUT_S
from ..clients import ClientContext, find_coordinator

SETTINGS = {
    "offsets.retention.minutes": "1",
    "offsets.retention.check.interval.ms": "200",
    "group.initial.rebalance.delay.ms": "0",
}
"""Settings of the nodes."""
_GROUP = "quiet"
_OFFSET = 7
_RETENTION_S = 60.0
_MOST_OF_IT_S = 45.0
_CHECKS_S = 1.0
"""In this time every coordinator looks for expired offsets, if it does not fail."""
_PAUSE_S = 0.1
_SESSION_MS = 30_000


class QuietGroup:
    """The member of the group. A `Workload`. `jump` sets the wall clocks of all nodes forward by so many seconds."""

    name = "quiet group"

    def __init__(self, context: ClientContext, jump: Callable[[float], None]) -> None:
        self._topic = context.topic
        self._jump = jump
        self._cluster = ClusterClient(context.bootstrap, client_id=self.name, timeout_s=TIMEOUT_S, probe_timeout_s=None)
        self._member_id = ""
        self._generation = -1
        self._waits_for = "it acts"

    def stop(self) -> None:
        """It ends by itself."""

    def why_not_settled(self) -> str | None:
        """See `Workload`."""
        return self._waits_for or None

    def check(self) -> None:
        """What it saw was judged at once."""

    async def run(self) -> None:
        """See `Workload`."""
        loop = asyncio.get_running_loop()
        await self._until(self._commit)
        self._jump(_MOST_OF_IT_S)
        await asyncio.sleep(_CHECKS_S)
        await self._until(self._join)
        asked_s = loop.time()
        await self._until(self._leave)
        self._jump(_MOST_OF_IT_S)
        await asyncio.sleep(_CHECKS_S)
        found = await self._committed()
        if found != _OFFSET and loop.time() - asked_s < _RETENTION_S - _MOST_OF_IT_S:
            detail = f"{found} instead of {_OFFSET}, {loop.time() - asked_s + _MOST_OF_IT_S:.1f} s after it had members"
            raise InvariantBroken("a group's offsets stay for their retention after it became empty", detail)
        self._jump(_RETENTION_S)
        self._waits_for = "its offset has expired and is still there"
        await self._until(self._has_expired)
        self._waits_for = ""

    async def _until(self, step: Callable[[], Awaitable[bool]]) -> None:
        """Repeat a step until it is done."""
        while True:
            try:
                if await step():
                    return
            except (ClientError, *NO_ANSWER):
                pass
            await asyncio.sleep(_PAUSE_S)

    async def _ask(self, api: ApiKey, version: int, fields: dict[str, Any]) -> Struct:
        """Send a request to the coordinator of the group. Raises `ClientError` and what is in `NO_ANSWER`."""
        await self._cluster.metadata([self._topic])
        row = await find_coordinator(self._cluster, _GROUP)
        return await self._cluster.request_node(row.node_id, api, version, {"group_id": _GROUP, **fields})

    async def _join(self) -> bool:
        """Be a member, with an assignment."""
        rest = {"member_id": self._member_id, "group_instance_id": None}
        if self._generation >= 0:
            code = (await self._ask(ApiKey.HEARTBEAT, 4, {"generation_id": self._generation, **rest})).error_code
            if not code:
                return True
            self._forget(code)
            return False
        protocols = [{"name": "range", "metadata": write_subscription((self._topic,), [])}]
        times = {"session_timeout": _SESSION_MS, "rebalance_timeout": _SESSION_MS}
        joining = {"protocol_type": "consumer", "protocols": protocols, **times, **rest}
        joined = await self._ask(ApiKey.JOIN_GROUP, 9, joining)
        if joined.error_code:
            self._forget(joined.error_code)
            if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                self._member_id = joined.member_id
            return False
        self._member_id = rest["member_id"] = joined.member_id
        assignment = {"member_id": self._member_id, "assignment": write_assignment(1, [(self._topic, 0)])}
        what = {"generation_id": joined.generation_id, "protocol_type": "consumer", "protocol_name": "range"}
        synced = await self._ask(ApiKey.SYNC_GROUP, 5, {**what, **rest, "assignments": [assignment]})
        if synced.error_code:
            self._forget(synced.error_code)
            return False
        self._generation = joined.generation_id
        return True

    def _forget(self, code: int) -> None:
        """Join again; as another member if the coordinator does not know this one."""
        self._generation = -1
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            self._member_id = ""

    async def _commit(self) -> bool:
        if not await self._join():
            return False
        partitions = [{"partition_index": 0, "committed_offset": _OFFSET, "committed_metadata": ""}]
        who = {"generation_id_or_member_epoch": self._generation, "member_id": self._member_id}
        topics = [{"name": self._topic, "partitions": partitions}]
        answer = await self._ask(ApiKey.OFFSET_COMMIT, 9, {**who, "group_instance_id": None, "topics": topics})
        return not answer.topics[0].partitions[0].error_code

    async def _leave(self) -> bool:
        return await self._asked_to_leave() in (ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID)

    async def _asked_to_leave(self) -> int:
        answer = await self._ask(ApiKey.LEAVE_GROUP, 5, {"members": [{"member_id": self._member_id}]})
        return int(answer.error_code or answer.members[0].error_code)

    async def _has_expired(self) -> bool:
        """Whether the offset is gone. A coordinator that has taken over knows the member again if the log had refused
        the record of its leaving; the member leaves again then, and the retention begins.
        """
        if await self._committed() == -1:
            return True
        if await self._asked_to_leave() == ErrorCode.NONE:
            self._jump(_RETENTION_S)
        return False

    async def _committed(self) -> int:
        """The committed offset, -1 for none."""
        while True:
            try:
                topics = [{"name": self._topic, "partition_indexes": [0]}]
                group = {"group_id": _GROUP, "topics": topics, "member_id": None, "member_epoch": -1}
                fields = {"groups": [group], "require_stable": True}
                found = (await self._ask(ApiKey.OFFSET_FETCH, 9, fields)).groups[0]
                if not found.error_code and not found.topics[0].partitions[0].error_code:
                    return int(found.topics[0].partitions[0].committed_offset)
            except (ClientError, *NO_ANSWER):
                pass
            await asyncio.sleep(_PAUSE_S)
