"""A consumer group in the simulator (KIP-848): members that heartbeat, read what they are given, and commit.

At-least-once: a member commits what it has read, so the union of what all members read covers every acked record. What
a group has committed does not go back: whoever takes a partition over starts at the last commit that was answered, or
at one whose answer was lost.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from ..cluster.admin import LOST
from ..cluster.client_errors import ClientError
from ..wire.apis import ApiKey
from ..wire.codec import Struct
from ..wire.errors import ErrorCode
from .quorum_checks import InvariantBroken
from .sim_client import History, SimConsumer, Surroundings

GROUP = "g"
_FIND_COORDINATOR = 4
_HEARTBEAT = 1
_OFFSETS = 9
_HEARTBEAT_EVERY_S = 0.2
_REJOIN_PROBABILITY = 0.08
_MEMBERS = 2
_REJOIN_CODES = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH)
_REFUSED_CODES = (*_REJOIN_CODES, ErrorCode.STALE_MEMBER_EPOCH)


@dataclass(slots=True)
class _Commits:
    """Of one partition: the highest offset whose commit was answered, and those of lost answers."""

    answered: int = 0
    in_doubt: list[int] = field(default_factory=list)

    def allows(self, offset: int) -> bool:
        """Whether a new owner may be told this offset."""
        return offset >= self.answered or any(offset >= doubtful for doubtful in self.in_doubt)


class GroupLoad:
    """An `Actor`: members of one group that read the main topic."""

    name = "group"

    def __init__(self, given: Surroundings, main: History) -> None:
        """`given.history` is where the members' deliveries go; `main` knows what was acked."""
        self.commits: dict[int, _Commits] = {}
        self.stopping = False
        self._given = given
        self._main = main
        self._members = [_Member(self, given, f"m{n}") for n in range(_MEMBERS)]

    def stop(self) -> None:
        self.stopping = True

    async def run(self) -> None:
        await asyncio.gather(*(member.run() for member in self._members))

    def why_not_settled(self) -> str | None:
        ends = {index: log.end_offset for (_, index), log in self._partitions() if log.end_offset}
        behind = {
            index: f"{self.commits[index].answered if index in self.commits else 0} of {end}"
            for index, end in ends.items()
            if index not in self.commits or self.commits[index].answered < end
        }
        return f"the group's commits: {behind}, members {[str(member) for member in self._members]}" if behind else None

    def check(self) -> None:
        """Every acked record was delivered to some member."""
        for (partition, producer, number), offset in self._main.acked.items():
            value = f"{producer}/{partition}/{number}"
            found = self._given.history.consumed.get(partition, {}).get(offset)
            if found != value:
                raise InvariantBroken("a group delivers every acked record", f"{value} at {offset}, there is {found}")

    def _partitions(self) -> list[tuple[Any, Any]]:
        known = self._members[0].reader.client.topic_id
        return [(key, log) for key, log in self._given.checker.committed.items() if key[0] == known]


class _Member:
    """One member: a loop that heartbeats, reads and commits in turn."""

    def __init__(self, group: GroupLoad, given: Surroundings, name: str) -> None:
        self.reader = SimConsumer(given, f"group {name}")
        self._group = group
        self._given = given
        self._name = name
        self._id = f"{name}-{given.rng.getrandbits(64):016x}"
        self._epoch = 0
        self._assigned: tuple[int, ...] = ()
        self._owned: tuple[int, ...] = ()
        self._coordinator: int | None = None

    def __str__(self) -> str:
        return f"{self._name} epoch {self._epoch} owns {list(self._owned)}"

    async def run(self) -> None:
        await self.reader.client.until_known()
        while True:
            try:
                await self._turn()
            except (ClientError, *LOST):
                self._coordinator = None
                await self.reader.client.refresh()
            await asyncio.sleep(_HEARTBEAT_EVERY_S)

    def _rejoin(self) -> None:
        self._epoch = 0
        self._assigned = self._owned = ()

    async def _turn(self) -> None:
        if self._coordinator is None:
            self._coordinator = await self._find_coordinator()
            return
        if self._epoch > 0 and not self._group.stopping and self._given.rng.random() < _REJOIN_PROBABILITY:
            await self._heartbeat(-1)
            self._rejoin()
        await self._heartbeat(self._epoch)
        await self._take_over()
        for partition in self._owned:
            code = await self.reader.fetch(partition)
            if code:
                await self.reader.client.refresh()
        if self._owned:
            await self._commit()

    async def _find_coordinator(self) -> int | None:
        cluster = self.reader.client.cluster
        await cluster.metadata([self._given.topic])
        fields = {"key_type": 0, "coordinator_keys": [GROUP]}
        row = (await cluster.request(ApiKey.FIND_COORDINATOR, _FIND_COORDINATOR, fields)).coordinators[0]
        return None if row.error_code else int(row.node_id)

    async def _ask(self, api: ApiKey, version: int, fields: dict[str, Any]) -> Struct:
        if self._coordinator is None:
            raise ClientError("no coordinator")
        return await self.reader.client.cluster.request_node(self._coordinator, api, version, fields)

    async def _heartbeat(self, epoch: int) -> None:
        topic_id = self.reader.client.topic_id
        owned = [{"topic_id": topic_id, "partitions": list(self._owned)}] if self._owned else []
        fields = {"group_id": GROUP, "member_id": self._id, "member_epoch": epoch, "instance_id": None}
        joining = {"rebalance_timeout": 5000, "subscribed_topic_names": [self._given.topic]} if epoch == 0 else {}
        staying = {"rebalance_timeout": -1, "subscribed_topic_names": None}
        rest = {"rack_id": None, "subscribed_topic_regex": None, "server_assignor": None, "topic_partitions": owned}
        answer = await self._ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, _HEARTBEAT, {**fields, **rest, **staying, **joining})
        if answer.error_code in _REJOIN_CODES:
            self._rejoin()
        elif answer.error_code:
            self._coordinator = None
        elif epoch >= 0:
            self._epoch = answer.member_epoch
            if answer.assignment is not None:
                rows = answer.assignment.topic_partitions
                self._assigned = tuple(sorted(index for row in rows for index in row.partitions))
                self._owned = tuple(index for index in self._owned if index in self._assigned)

    async def _take_over(self) -> None:
        added = [index for index in self._assigned if index not in self._owned]
        if not added:
            return
        topics = [{"name": self._given.topic, "partition_indexes": added}]
        group = {"group_id": GROUP, "member_id": self._id, "member_epoch": self._epoch, "topics": topics}
        answer = await self._ask(ApiKey.OFFSET_FETCH, _OFFSETS, {"groups": [group], "require_stable": True})
        found = answer.groups[0]
        if found.error_code:
            if found.error_code in _REJOIN_CODES:
                self._rejoin()
            elif found.error_code != ErrorCode.STALE_MEMBER_EPOCH:
                self._coordinator = None
            return
        for row in found.topics[0].partitions:
            offset = max(0, row.committed_offset)
            commits = self._group.commits.setdefault(row.partition_index, _Commits())
            if row.error_code:
                continue
            if not commits.allows(offset):
                detail = f"partition {row.partition_index}: {offset} after {commits.answered} was committed"
                raise InvariantBroken("a group's commits do not go back", detail)
            self.reader.start_at(row.partition_index, offset)
            self._owned = tuple(sorted((*self._owned, row.partition_index)))

    async def _commit(self) -> None:
        offsets = {index: self.reader.positions[index] for index in self._owned}
        partitions = [
            {"partition_index": index, "committed_offset": offset, "committed_metadata": ""}
            for index, offset in offsets.items()
        ]
        fields = {"group_id": GROUP, "generation_id_or_member_epoch": self._epoch, "member_id": self._id}
        rest = {"group_instance_id": None, "topics": [{"name": self._given.topic, "partitions": partitions}]}
        for index, offset in offsets.items():
            self._group.commits[index].in_doubt.append(offset)
        answer = await self._ask(ApiKey.OFFSET_COMMIT, _OFFSETS, {**fields, **rest})
        rows = answer.topics[0].partitions
        for row in rows:
            commits, offset = self._group.commits[row.partition_index], offsets[row.partition_index]
            if row.error_code in (ErrorCode.NONE, *_REFUSED_CODES):
                commits.in_doubt.remove(offset)
            else:
                self._coordinator = None
            if not row.error_code:
                commits.answered = max(commits.answered, offset)
            if row.error_code in _REJOIN_CODES:
                self._rejoin()
