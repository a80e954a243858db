"""Groups that begin, commit, end and begin anew, while administrators delete them and their offsets, and look at them.

Each group has a member that joins, commits offsets of a topic that it subscribes to and of one that it does not, and
leaves; sometimes it commits without being a member. Administrators ask for OffsetDelete, DeleteGroups, and what the
groups are, while requests of the members are on their way. The wall clocks of all nodes jump, so that offsets expire.

What administrators are answered, and what is removed, is judged by the log where it is answered: "what was deleted is
gone", "a group of the log is known", "a group is described as its log says", "an offset of a subscribed topic stays".
In the end the groups are deleted; then nobody knows them, and they begin anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from .....broker.groups.classic.consumer_protocol import write_assignment, write_subscription
from .....cluster.client.admin_client import NewTopic
from .....cluster.client.client_errors import ClientError
from .....cluster.client.cluster_client import NO_ANSWER
from .....wire.api_keys import ApiKey
from .....wire.errors import ErrorCode
from ...invariants.invariant_broken import InvariantBroken
from ..clients import ClientContext
from ..workload import create_topic_until_done
from .group_client import GroupClient

_GROUPS = ("adm-consumer", "adm-classic")
_UNREAD = "unread"
_PARTITIONS = 2
_PAUSE_S = 0.06
_ADMIN_PAUSE_S = 0.12
_JUMPS_EVERY_S = 1.5
_JUMP_S = 40.0
_MEMBERS_LAST_S = 2.5
"""A session, and a rebalance: so long after the last request no group has members."""
_LEAVES_PROBABILITY = 0.15
SETTINGS = {
    "group.min.session.timeout.ms": "500",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.session.timeout.ms": "1000",
    "offsets.retention.minutes": "1",
    "offsets.retention.check.interval.ms": "200",
}
"""Settings of the nodes."""


class AdministeredGroups:
    """The members and the administrators. A `Workload`. `jump` as in `QuietGroup`."""

    name = "administered groups"

    def __init__(self, context: ClientContext, jump: Callable[[float], None]) -> None:
        self._context = context
        self._jump = jump
        self._stopping = False
        self._waits_for = "it acts"

    def stop(self) -> None:
        """See `Workload`."""
        self._stopping = True

    def why_not_settled(self) -> str | None:
        """See `Workload`."""
        return self._waits_for or None

    def check(self) -> None:
        """Each answer was judged when it was given."""

    async def run(self) -> None:
        """See `Workload`."""
        admin = GroupClient(self._context, "group admin", "")
        await create_topic_until_done(admin.client.cluster, NewTopic(_UNREAD, _PARTITIONS, -1, {}))
        members = [_Member(self._context, f"member of {group_id}", group_id) for group_id in _GROUPS]
        admins = [_Administrator(self._context, f"admin of {group_id}", group_id) for group_id in _GROUPS]
        acting = [self._repeat(one.act, _PAUSE_S) for one in members]
        acting += [self._repeat(one.act, _ADMIN_PAUSE_S) for one in admins]
        await asyncio.gather(self._jump_often(), *acting)
        await asyncio.sleep(_MEMBERS_LAST_S)
        for member, one in zip(members, admins, strict=True):
            self._waits_for = f"{one.group_id} ends"
            has_ended = False
            while not has_ended:
                has_ended = await self._ends(one, member)
                await asyncio.sleep(_PAUSE_S)
        self._waits_for = ""

    async def _repeat(self, act: Callable[[], Awaitable[None]], pause_s: float) -> None:
        while not self._stopping:
            try:
                await act()
            except (ClientError, *NO_ANSWER):
                pass
            await asyncio.sleep(self._context.rng.expovariate(1 / pause_s))

    async def _jump_often(self) -> None:
        while not self._stopping:
            await asyncio.sleep(self._context.rng.expovariate(1 / _JUMPS_EVERY_S))
            self._jump(_JUMP_S)

    async def _ends(self, admin: _Administrator, member: _Member) -> bool:
        """Delete the group, look for it, and begin it anew; False to try again."""
        try:
            code = await admin.delete_group()
            if code not in (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND):
                return False
            found = [*await admin.listed(), *await admin.committed()]
            generation = await member.begins_in()
        except (ClientError, *NO_ANSWER):
            return False
        if found or generation not in (None, 1):
            detail = f"{admin.group_id} was deleted; there are {found}, it goes on in {generation}"
            raise InvariantBroken("a deleted group begins anew", detail)
        return generation is not None


class _Member(GroupClient):
    """A member of its group, or one who commits without being one."""

    def __init__(self, context: ClientContext, name: str, group_id: str) -> None:
        super().__init__(context, name, group_id)
        self._is_consumer = group_id == _GROUPS[0]
        self._id = ""
        self._epoch = -1
        self._offset = 0

    async def act(self) -> None:
        """Join, commit, stay, or leave."""
        rng = self.rng
        if self._epoch < 0 and rng.random() < 0.4:
            await self._commit("", -1)
        elif self._epoch < 0:
            await self._join()
        elif rng.random() < _LEAVES_PROBABILITY:
            leaving, self._epoch = self._epoch, -1
            await self._leave(leaving)
        elif rng.random() < 0.7:
            await self._commit(self._id, self._epoch)
        else:
            await self._stay()

    async def begins_in(self) -> int | None:
        """Join the group as a new member: the generation or epoch; None if it was refused."""
        self._id, self._epoch = "", -1
        await self._join()
        return self._epoch if self._epoch > 0 else None

    async def _join(self) -> None:
        if self._is_consumer:
            self._id = f"{self.client.cluster.client_id} {self.rng.getrandbits(32):08x}"
            await self._heartbeat(0)
            return
        protocols = [{"name": "range", "metadata": write_subscription((self.client.topic,), [])}]
        times = {"session_timeout": 1000, "rebalance_timeout": 700}
        fields = {"group_id": self.group_id, "protocol_type": "consumer", "protocols": protocols, **times}
        joined = await self.ask(ApiKey.JOIN_GROUP, 9, {**fields, "member_id": self._id})
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._id = joined.member_id
            joined = await self.ask(ApiKey.JOIN_GROUP, 9, {**fields, "member_id": self._id})
        if joined.error_code:
            self._id = ""
            return
        self._id = joined.member_id
        parts = [(self.client.topic, index) for index in range(_PARTITIONS)]
        rows = [{"member_id": one.member_id, "assignment": write_assignment(1, parts)} for one in joined.members]
        what = {"protocol_type": "consumer", "protocol_name": "range", "assignments": rows}
        who = {"group_id": self.group_id, "generation_id": joined.generation_id, "member_id": self._id}
        synced = await self.ask(ApiKey.SYNC_GROUP, 5, {**who, **what})
        self._epoch = -1 if synced.error_code else joined.generation_id

    async def _heartbeat(self, epoch: int) -> None:
        joining = {"rebalance_timeout": 700, "subscribed_topic_names": [self.client.topic]}
        staying = {"rebalance_timeout": -1, "subscribed_topic_names": None}
        fields = {"group_id": self.group_id, "member_id": self._id, "member_epoch": epoch, "topic_partitions": []}
        rest = staying if epoch else joining
        answer = await self.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, {**fields, **rest})
        self._epoch = -1 if answer.error_code else answer.member_epoch

    async def _stay(self) -> None:
        if self._is_consumer:
            await self._heartbeat(self._epoch)
            return
        fields = {"group_id": self.group_id, "generation_id": self._epoch, "member_id": self._id}
        if (await self.ask(ApiKey.HEARTBEAT, 4, fields)).error_code:
            self._id, self._epoch = "", -1

    async def _leave(self, epoch: int) -> None:
        if self._is_consumer:
            await self._heartbeat(-1)
        else:
            await self.ask(ApiKey.LEAVE_GROUP, 5, {"group_id": self.group_id, "members": [{"member_id": self._id}]})
            self._id = ""

    async def _commit(self, member_id: str, epoch: int) -> None:
        self._offset += 1
        rows = [{"partition_index": index, "committed_offset": self._offset} for index in range(_PARTITIONS)]
        topics = [
            {"name": name, "partitions": rows} for name in (self.client.topic, _UNREAD) if self.rng.random() < 0.7
        ]
        who = {"group_id": self.group_id, "generation_id_or_member_epoch": epoch, "member_id": member_id}
        answer = await self.ask(ApiKey.OFFSET_COMMIT, 9, {**who, "group_instance_id": None, "topics": topics})
        if any(row.error_code for topic in answer.topics for row in topic.partitions):
            self._id, self._epoch = "", -1


class _Administrator(GroupClient):
    """Deletes and describes one group, and lists all."""

    async def act(self) -> None:
        """One request."""
        steps = (self.delete_group, self._delete_offsets, self._delete_offsets, self.describe, self.listed)
        await self.rng.choice(steps)()

    async def delete_group(self) -> int:
        """Delete the group; the error code."""
        answer = await self.ask(ApiKey.DELETE_GROUPS, 2, {"groups_names": [self.group_id]})
        return int(answer.results[0].error_code)

    async def _delete_offsets(self) -> None:
        rows = [{"partition_index": index} for index in range(_PARTITIONS) if self.rng.random() < 0.7]
        topics = [{"name": name, "partitions": rows} for name in (self.client.topic, _UNREAD)]
        await self.ask(ApiKey.OFFSET_DELETE, 0, {"group_id": self.group_id, "topics": topics})

    async def committed(self) -> list[int]:
        """The committed offsets of the group."""
        topics = [
            {"name": name, "partition_indexes": list(range(_PARTITIONS))} for name in (self.client.topic, _UNREAD)
        ]
        group = {"group_id": self.group_id, "topics": topics, "member_id": None, "member_epoch": -1}
        answer = await self.ask(ApiKey.OFFSET_FETCH, 9, {"groups": [group], "require_stable": True})
        rows = [row for topic in answer.groups[0].topics for row in topic.partitions]
        return [row.committed_offset for row in rows if row.committed_offset >= 0]
