"""Members of a group that come, go, and do not wait long while others wait for their assignments.

The leader of each generation sends every member an assignment of its own. A member that waits too long leaves, or joins
again, so that a generation often ends before the record of its assignments is committed. What members are given is
judged where it is answered: "an assignment is what its leader has sent".

In half of the runs the members speak the consumer protocol: a member then repeats its heartbeat while what the first
one has changed is not committed.
"""

from __future__ import annotations

import asyncio
from typing import Any

from .....cluster.client.client_errors import ClientError
from .....cluster.client.cluster_client import NO_ANSWER
from .....wire.api_keys import ApiKey
from .....wire.codec import Struct
from .....wire.errors import ErrorCode
from ..clients import ClientContext, TopicClient, find_coordinator

_GROUP = "hasty"
_PROTOCOL = {"protocol_type": "hasty", "protocol_name": "any"}
_MEMBERS = 4
_WAITS_S = (0.1, 0.3, 1.0)
_PAUSE_S = 0.03
_STAYS_PROBABILITY = 0.75
_LEAVES_PROBABILITY = 0.5
_REBALANCE_TIMEOUT_MS = 700
_SESSION_MS = 1_000
SETTINGS = {"group.min.session.timeout.ms": "500", "group.initial.rebalance.delay.ms": "0"}
"""Settings of the nodes."""


class HastyGroup:
    """The members. A `Workload`."""

    name = "hasty group"

    def __init__(self, context: ClientContext) -> None:
        self.context = context
        self.stopping = False
        self._kind = context.rng.choice((_ClassicMember, _ConsumerMember))
        self._left = _MEMBERS

    def stop(self) -> None:
        """See `Workload`."""
        self.stopping = True

    def why_not_settled(self) -> str | None:
        """See `Workload`."""
        return f"{self._left} members still act" if self._left else None

    def check(self) -> None:
        """Each answer was judged when it was given."""

    async def run(self) -> None:
        """See `Workload`."""
        await asyncio.gather(*(self._act(self._kind(self, f"{self.name} {n}")) for n in range(_MEMBERS)))

    async def _act(self, member: _Member) -> None:
        await member.client.until_known()
        while not self.stopping:
            try:
                await member.act()
            except (ClientError, *NO_ANSWER):
                member.give_up_waiting()
            await asyncio.sleep(self.context.rng.expovariate(1 / _PAUSE_S))
        self._left -= 1


class _Member:
    """One member; it has a new id each time that it has left. `_generation` is its generation or epoch."""

    def __init__(self, group: HastyGroup, name: str) -> None:
        self.client = TopicClient(group.context, name)
        self._rng = group.context.rng
        self._id = ""
        self._generation = -1
        self._coordinator: tuple[str, int] | None = None
        self._must_leave = False
        self._owned: tuple[int, ...] = ()

    async def act(self) -> None:
        """One step: leave, stay, or join and get an assignment. Raises `ClientError` or one of `NO_ANSWER`."""
        raise NotImplementedError

    def give_up_waiting(self) -> None:
        """There was no answer: find the coordinator again, and leave or join again."""
        self._coordinator = None
        self._generation = -1
        self._must_leave = self._rng.random() < _LEAVES_PROBABILITY

    def _on_code(self, code: int) -> None:
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID, ErrorCode.FENCED_MEMBER_EPOCH):
            self._forget()
        elif code in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE):
            self._coordinator = None
        if code:
            self._generation = -1

    def _forget(self) -> None:
        self._id, self._generation, self._must_leave = "", -1, False

    async def _ask(self, api: ApiKey, version: int, fields: dict[str, Any]) -> Struct:
        cluster = self.client.cluster
        if self._coordinator is None:
            row = await find_coordinator(cluster, _GROUP)
            self._coordinator = row.host, row.port
        return await cluster.request_at(self._coordinator, api, version, {"group_id": _GROUP, **fields})


class _ConsumerMember(_Member):
    """A member by ConsumerGroupHeartbeat, which gives up whatever it is told to at once."""

    async def act(self) -> None:
        """See `_Member`."""
        self.client.cluster.timeout_s = self._rng.choice(_WAITS_S)
        if not self._id:
            self._id = f"{self.client.cluster.client_id} {self._rng.getrandbits(32):08x}"
        epoch = -1 if self._must_leave else max(self._generation, 0)
        joining = {"rebalance_timeout": _REBALANCE_TIMEOUT_MS, "subscribed_topic_names": [self.client.topic]}
        staying = {"rebalance_timeout": -1, "subscribed_topic_names": None}
        owned = [{"topic_id": self.client.topic_id, "partitions": list(self._owned)}] if self._owned else []
        fields = {"member_id": self._id, "member_epoch": epoch, "topic_partitions": owned if epoch else []}
        answer = await self._ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, {**fields, **(staying if epoch else joining)})
        self._on_code(answer.error_code)
        if answer.error_code:
            return
        if epoch < 0:
            self._forget()
            return
        self._generation = answer.member_epoch
        if answer.assignment is not None:
            self._owned = tuple(index for row in answer.assignment.topic_partitions for index in row.partitions)
        self._must_leave = self._rng.random() > _STAYS_PROBABILITY


class _ClassicMember(_Member):
    """A member by JoinGroup, SyncGroup, Heartbeat and LeaveGroup."""

    async def act(self) -> None:
        """See `_Member`."""
        self.client.cluster.timeout_s = self._rng.choice(_WAITS_S)
        if self._must_leave and self._id:
            await self._ask(ApiKey.LEAVE_GROUP, 5, {"members": [{"member_id": self._id}]})
            self._forget()
        elif self._generation >= 0:
            answer = await self._ask(ApiKey.HEARTBEAT, 4, {"generation_id": self._generation, "member_id": self._id})
            self._on_code(answer.error_code)
            self._must_leave = self._rng.random() > _STAYS_PROBABILITY
        else:
            await self._join()

    async def _join(self) -> None:
        times = {"session_timeout": _SESSION_MS, "rebalance_timeout": _REBALANCE_TIMEOUT_MS}
        protocols = [{"name": _PROTOCOL["protocol_name"], "metadata": b""}]
        what = {"protocol_type": _PROTOCOL["protocol_type"], "protocols": protocols}
        joined = await self._ask(ApiKey.JOIN_GROUP, 9, {"member_id": self._id, **times, **what})
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._id = joined.member_id
            joined = await self._ask(ApiKey.JOIN_GROUP, 9, {"member_id": self._id, **times, **what})
        if joined.error_code:
            self._on_code(joined.error_code)
            return
        self._id = joined.member_id
        number = self._rng.getrandbits(32)
        assignments = [
            {"member_id": one.member_id, "assignment": f"{joined.generation_id} {one.member_id} {number}".encode()}
            for one in joined.members
        ]
        fields = {"generation_id": joined.generation_id, "member_id": self._id, "assignments": assignments}
        synced = await self._ask(ApiKey.SYNC_GROUP, 5, {**fields, **_PROTOCOL})
        self._on_code(synced.error_code)
        if not synced.error_code:
            self._generation = joined.generation_id
