"""Members of a group that come, go, and do not wait long while others wait for their assignments.

The leader of each generation sends every member an assignment of its own. A member that waits too long leaves, or joins
again, so that a generation often ends before the record of its assignments is committed. What members are given is
judged where it is answered: "an assignment is what its leader has sent". So is what an observer is told of the group:
"a group is described as its log says".

In half of the runs the members speak the consumer protocol: a member then repeats its heartbeat while what the first
one has changed is not committed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Protocol
from uuid import UUID

from .....cluster.client.client_errors import ClientError
from .....cluster.client.cluster_client import NO_ANSWER
from .....wire.api_keys import ApiKey
from .....wire.codec import Struct
from .....wire.errors import ErrorCode
from .....wire.types import by_topic
from ..clients import ClientContext, TopicClient, find_coordinator
from .group_client import GroupClient

GROUP = "hasty"
_PROTOCOL_TYPE = "hasty"
_MEMBERS = 4
_WAITS_S = (0.1, 0.3, 1.0)
_PAUSE_S = 0.03
_STAYS_PROBABILITY = 0.75
ASSIGNORS = ("uniform", "range")
_LEAVES_PROBABILITY = 0.5
_REBALANCE_TIMEOUT_MS = 700
_SESSION_MS = 1_000
SETTINGS = {"group.min.session.timeout.ms": "500", "group.initial.rebalance.delay.ms": "0"}
"""Settings of the nodes."""
SHORT_SESSION_SETTINGS = {**SETTINGS, "group.consumer.session.timeout.ms": "1500"}
"""The same, with sessions of the consumer protocol that end within a run."""


class HastyGroup:
    """The members. A `Workload`."""

    name = "hasty group"
    is_described = True
    """Whether somebody asks what the group is; nobody is told of topics that do not exist any more."""

    def __init__(self, context: ClientContext) -> None:
        self.context = context
        self.stopping = False
        self.kind = context.rng.choice(self.kinds())
        self._left = _MEMBERS
        self.members = [self.kind(self, f"{self.name} {n}") for n in range(_MEMBERS)]

    def kinds(self) -> tuple[type[HastyMember], ...]:
        """The members of the two protocols, of which each run draws one."""
        return HastyClassicMember, HastyConsumerMember

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
        watching = [self._look(GroupClient(self.context, f"{self.name} observer", GROUP))] if self.is_described else []
        await asyncio.gather(*(self._act(member) for member in self.members), *watching)

    async def _look(self, observer: GroupClient) -> None:
        """Ask what the group is, again and again, while its changes are not committed yet."""
        while not self.stopping:
            try:
                await observer.describe()
                await observer.listed()
            except (ClientError, *NO_ANSWER):
                pass
            await asyncio.sleep(self.context.rng.expovariate(1 / _PAUSE_S))

    async def _act(self, member: HastyMember) -> None:
        await member.client.until_known()
        while not self.stopping:
            try:
                await member.act()
            except (ClientError, *NO_ANSWER):
                member.give_up_waiting()
            await asyncio.sleep(self.context.rng.expovariate(1 / _PAUSE_S))
        self._left -= 1


class OwnerOfMembers(Protocol):
    """The workload that members are of."""

    context: ClientContext


class HastyMember:
    """One member; it has a new id each time that it has left. `_generation` is its generation or epoch."""

    group_id = GROUP

    def __init__(self, group: OwnerOfMembers, name: str) -> None:
        self.client = TopicClient(group.context, name)
        self._rng = group.context.rng
        self._id = ""
        self._generation = -1
        self._coordinator: tuple[str, int] | None = None
        self._must_leave = False
        self._owned: tuple[tuple[UUID, int], ...] = ()
        self._waits_s: Sequence[float] = _WAITS_S

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
        at = await self._find()
        return await self.client.cluster.request_at(at, api, version, {"group_id": self.group_id, **fields})

    async def _find(self) -> tuple[str, int]:
        if self._coordinator is None:
            row = await find_coordinator(self.client.cluster, self.group_id)
            self._coordinator = row.host, row.port
        return self._coordinator


class HastyConsumerMember(HastyMember):
    """A member by ConsumerGroupHeartbeat, which gives up whatever it is told to at once."""

    _assignor: str | None = None

    async def act(self) -> None:
        """See `HastyMember`."""
        self.client.cluster.timeout_s = self._rng.choice(self._waits_s)
        if not self._id:
            self._id = f"{self.client.cluster.client_id} {self._rng.getrandbits(32):08x}"
            self._assignor = self._rng.choice((None, *ASSIGNORS))
        epoch = -1 if self._must_leave else max(self._generation, 0)
        answer = await self._heartbeat(epoch, has_all_fields=not epoch)
        self._on_code(answer.error_code)
        if answer.error_code:
            return
        if epoch < 0:
            self._forget()
            return
        self._generation = answer.member_epoch
        if answer.assignment is not None:
            self._owned = partitions_of(answer)
        self._must_leave = self._rng.random() > _STAYS_PROBABILITY

    async def _heartbeat(self, epoch: int, *, has_all_fields: bool) -> Struct:
        subscription = (
            {"rebalance_timeout": _REBALANCE_TIMEOUT_MS, **self._subscription()}
            if has_all_fields
            else {"rebalance_timeout": -1, "subscribed_topic_names": None}
        )
        owned = [{"topic_id": one, "partitions": indexes} for one, indexes in by_topic(self._owned).items()]
        fields = {"member_id": self._id, "member_epoch": epoch, "topic_partitions": owned if epoch else []}
        return await self._ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, {**fields, **subscription})

    def _subscription(self) -> dict[str, Any]:
        return {"subscribed_topic_names": [self.client.topic], "server_assignor": self._assignor}


class HastyClassicMember(HastyMember):
    """A member by JoinGroup, SyncGroup, Heartbeat and LeaveGroup."""

    session_ms = _SESSION_MS
    rebalance_timeout_ms = _REBALANCE_TIMEOUT_MS
    instance_id: str | None = None
    _protocol = ""

    async def act(self) -> None:
        """See `HastyMember`."""
        self.client.cluster.timeout_s = self._rng.choice(self._waits_s)
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
        joined = await self._ask_to_join()
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._id = joined.member_id
            joined = await self._ask_to_join()
        if joined.error_code:
            self._on_code(joined.error_code)
            return
        self._id = joined.member_id
        number = self._rng.getrandbits(32)
        assignments = [
            {"member_id": one.member_id, "assignment": f"{joined.generation_id} {one.member_id} {number}".encode()}
            for one in joined.members
        ]
        self._protocol = joined.protocol_name
        synced = await self._ask_for_assignment(joined.generation_id, assignments)
        self._on_code(synced.error_code)
        if not synced.error_code:
            self._generation = joined.generation_id

    async def _ask_to_join(self) -> Struct:
        times = {"session_timeout": self.session_ms, "rebalance_timeout": self.rebalance_timeout_ms}
        what = {"protocol_type": _PROTOCOL_TYPE, "protocols": self._protocols()}
        return await self._ask(ApiKey.JOIN_GROUP, 9, {**self._who(), **times, **what})

    def _who(self) -> dict[str, Any]:
        return {"member_id": self._id, "group_instance_id": self.instance_id}

    def _protocols(self) -> list[dict[str, Any]]:
        return [{"name": "any", "metadata": b""}]

    async def _ask_for_assignment(self, generation: int, assignments: Sequence[Mapping[str, Any]]) -> Struct:
        fields = {"generation_id": generation, **self._who(), "assignments": assignments}
        what = {"protocol_type": _PROTOCOL_TYPE, "protocol_name": self._protocol}
        return await self._ask(ApiKey.SYNC_GROUP, 5, {**fields, **what})


def partitions_of(heartbeat: Struct) -> tuple[tuple[UUID, int], ...]:
    """The partitions that the answer to a heartbeat assigns; none where it has no assignment."""
    rows = () if heartbeat.assignment is None else heartbeat.assignment.topic_partitions
    return tuple((row.topic_id, index) for row in rows for index in row.partitions)
