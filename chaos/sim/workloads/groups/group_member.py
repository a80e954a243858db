"""One incarnation of a group's member, from joining to leaving, whatever its protocol. See `consumer_groups`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .....cluster.client.client_errors import ClientError
from .....cluster.client.cluster_client import NO_ANSWER
from .....wire.api_keys import ApiKey
from .....wire.codec import Struct
from .....wire.errors import ErrorCode
from ...invariants.group_commits import Commit, PartitionCommits
from ..clients import ClientContext, TopicConsumer

if TYPE_CHECKING:
    from .consumer_groups import GroupLoad

GROUP = "g"
STALL_PROBABILITY = 0.1
STALL_S = 4.0
REJOIN_CODES = (
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.FENCED_INSTANCE_ID,
)
_FIND_COORDINATOR = 4
_OFFSETS = 9
_HEARTBEAT_EVERY_S = 0.2
_DEATH_PROBABILITY = 0.3
_REFUSED_CODES = (*REJOIN_CODES, ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.REBALANCE_IN_PROGRESS)
_IN_FLIGHT_PROBABILITY = 0.6
_DELAYED_PROBABILITY = 0.7
_ON_ITS_WAY_S = 1.5
_REREAD_PROBABILITY = 0.3
_OWNERSHIP_S = 1.5
"""So long after a member asked for its assignment no other has its partitions: sessions and rebalances last longer."""


class MemberIncarnation:
    """A member from joining to leaving. The protocols differ in how it joins and how it gets its assignment."""

    protocol = ""

    def __init__(self, group: GroupLoad, context: ClientContext, reader: TopicConsumer, name: str) -> None:
        self.reader = reader
        self.group = group
        self.context = context
        self.id = ""
        self.instance_id = group.instance_ids.get(name)
        self.epoch = 0
        self.assigned: tuple[int, ...] = ()
        self.owned: tuple[int, ...] = ()
        self.name = name
        self.coordinator: int | None = None
        self._coordinator_at = ("", 0)
        self.has_left = False
        self._asked_at = 0.0
        """When it asked for its assignment, on the loop's clock."""
        self._behind = reader.client.cluster.apart()
        """For commits that are in flight while the member goes on."""
        self._has_commit_in_flight = False

    @property
    def key(self) -> str:
        """What stays the same when the member comes back: its instance id, or the member id of one without."""
        return self.instance_id or self.id

    def __str__(self) -> str:
        return f"{self.protocol} epoch {self.epoch} owns {list(self.owned)}"

    async def run(self) -> None:
        """Take part in the group until the member has left."""
        while not self.has_left:
            try:
                await self.take_part()
            except (ClientError, *NO_ANSWER):
                self.lose_coordinator()
                await self.reader.client.refresh()
            await asyncio.sleep(_HEARTBEAT_EVERY_S)

    async def stay(self) -> None:
        """Heartbeat, join if necessary, and take the assignment."""
        raise NotImplementedError

    async def leave(self) -> bool:
        """Leave the group; whether the coordinator confirmed it."""
        raise NotImplementedError

    def rejoin(self) -> None:
        """The member was removed from the group: it owns nothing and must join again."""
        self.epoch = 0
        self.assigned = self.owned = ()

    def note_asking(self) -> None:
        """The member is about to ask for its assignment."""
        self._asked_at = asyncio.get_running_loop().time()

    def lose_coordinator(self) -> None:
        """The coordinator does not answer, or is not the coordinator: find it again."""
        self.coordinator = None

    async def may_go_on(self) -> bool:
        """Find the coordinator if it is not known, or leave the group now and then; False when that was this round."""
        if self.coordinator is None:
            self.coordinator = await self.find_coordinator()
            return False
        if self.epoch > 0 and self.group.stopping and self.name == self.group.dies_at_end:
            self.has_left = True
            return False
        if self.epoch > 0 and not self.group.stopping and self.context.rng.random() < self.group.leave_probability:
            if self.group.commits_behind and self.owned:
                self._commit_in_flight()
            # One that dies without a word stays in the group until its session ends, also with the next coordinator.
            self.has_left = self.context.rng.random() < _DEATH_PROBABILITY or await self.leave()
            return False
        return True

    async def take_part(self) -> None:
        """One round: stay in the group, read, and commit. Raises `ClientError` or one of `NO_ANSWER`."""
        if not await self.may_go_on():
            return
        rng = self.context.rng
        if self.owned and not self.group.stopping and rng.random() < STALL_PROBABILITY:
            await asyncio.sleep(STALL_S)
            await self._commit(self._new_commits())
        await self.stay()
        await self._take_over()
        for partition in self.owned:
            code = await self.reader.fetch(partition)
            if code:
                await self.reader.client.refresh()
        if self.group.commits_behind:
            await self._commit_behind()
        else:
            await self._commit(self._new_commits())

    async def _commit_behind(self) -> None:
        """Commit and go on, unless a commit is in flight; sometimes look which commit is in force."""
        rng = self.context.rng
        if self.owned and rng.random() < _REREAD_PROBABILITY:
            await self._read_committed(self.owned, is_owner=True)
        if self._has_commit_in_flight or not self.owned:
            return
        if self.group.stopping or rng.random() > _IN_FLIGHT_PROBABILITY:
            await self._commit(self._new_commits())
        else:
            self._commit_in_flight()

    async def find_coordinator(self) -> int | None:
        """The node that coordinates the group; None if there is none now."""
        cluster = self.reader.client.cluster
        await cluster.metadata([self.context.topic])
        fields = {"key_type": 0, "coordinator_keys": [GROUP]}
        row = (await cluster.request(ApiKey.FIND_COORDINATOR, _FIND_COORDINATOR, fields)).coordinators[0]
        self._coordinator_at = (row.host, row.port)
        return None if row.error_code else int(row.node_id)

    async def ask(self, api: ApiKey, version: int, fields: dict[str, Any], *, behind: bool = False) -> Struct:
        """Send a request to the coordinator; its answer. Raises `ClientError` when no coordinator is known.

        `behind`: on the connection for commits that are in flight while the member goes on.
        """
        if self.coordinator is None:
            raise ClientError("no coordinator")
        if behind:
            return await self._behind.request_at(self._coordinator_at, api, version, fields)
        return await self.reader.client.cluster.request_node(self.coordinator, api, version, fields)

    async def _take_over(self) -> None:
        added = [index for index in self.assigned if index not in self.owned]
        if added:
            await self._read_committed(added, is_owner=False)

    async def _read_committed(self, wanted: Sequence[int], *, is_owner: bool) -> None:
        """Look which commits are in force; a member that is not the owner yet begins to read there."""
        commits = {index: self.group.commits.setdefault(index, PartitionCommits(index)) for index in wanted}
        before = {index: one.possible() for index, one in commits.items()}
        topics = [{"name": self.context.topic, "partition_indexes": list(wanted)}]
        member = {"member_id": self.id, "member_epoch": self.epoch}
        anonymous = {"member_id": None, "member_epoch": -1}
        who = member if self.protocol == "consumer" else anonymous
        group = {"group_id": GROUP, "topics": topics, **who}
        answer = await self.ask(ApiKey.OFFSET_FETCH, _OFFSETS, {"groups": [group], "require_stable": True})
        found = answer.groups[0]
        if found.error_code:
            if found.error_code in REJOIN_CODES:
                self.rejoin()
            elif found.error_code != ErrorCode.STALE_MEMBER_EPOCH:
                self.lose_coordinator()
            return
        is_late = asyncio.get_running_loop().time() > self._asked_at + _OWNERSHIP_S
        for row in found.topics[0].partitions:
            index, offset = row.partition_index, max(0, row.committed_offset)
            if row.error_code or is_late or (is_owner and commits[index].owner is not self):
                continue
            in_force = commits[index].on_read(offset, row.metadata, before[index])
            if not is_owner:
                commits[index].take_over(self, self.id, self.epoch, in_force)
                self.reader.start_at(index, offset)
                self.owned = tuple(sorted((*self.owned, index)))

    def give_up(self, kept: tuple[int, ...]) -> None:
        """Own only these partitions from now on; who commits behind sends a last commit for all that it owned."""
        if self.group.commits_behind and kept != self.owned:
            self._commit_in_flight()
        self.owned = kept

    def _commit_in_flight(self) -> None:
        """Send a commit that arrives some time later, and go on."""
        if not self._has_commit_in_flight:
            self._has_commit_in_flight = True
            self.group.in_flight.spawn(self._end_in_flight(self._new_commits()), f"commit of {self.name}")

    async def _end_in_flight(self, commits: dict[int, Commit]) -> None:
        rng = self.context.rng
        if rng.random() < _DELAYED_PROBABILITY:
            await asyncio.sleep(rng.random() * _ON_ITS_WAY_S)
        try:
            await self._commit(commits, behind=True)
        except (ClientError, *NO_ANSWER):
            pass
        finally:
            self._has_commit_in_flight = False

    def _new_commits(self) -> dict[int, Commit]:
        """A commit of each owned partition, as far as it was read."""
        positions = self.reader.positions
        return {
            index: self.group.commits[index].new(self, self.id, self.epoch, positions[index]) for index in self.owned
        }

    async def _commit(self, commits: dict[int, Commit], *, behind: bool = False) -> None:
        if not commits:
            return
        partitions = [
            {"partition_index": index, "committed_offset": one.offset, "committed_metadata": str(one.number)}
            for index, one in commits.items()
        ]
        first = next(iter(commits.values()))
        fields = {"group_id": GROUP, "generation_id_or_member_epoch": first.epoch, "member_id": first.member_id}
        topics = [{"name": self.context.topic, "partitions": partitions}]
        rest = {"group_instance_id": self.instance_id, "topics": topics}
        was_owner = {index: self.group.commits[index].owner is self for index in commits}
        answer = await self.ask(ApiKey.OFFSET_COMMIT, _OFFSETS, {**fields, **rest}, behind=behind)
        for row in answer.topics[0].partitions:
            known, commit = self.group.commits[row.partition_index], commits[row.partition_index]
            if not row.error_code:
                known.on_accepted(commit, was_owner=was_owner[row.partition_index])
            elif row.error_code in _REFUSED_CODES:
                known.on_refused(commit)
            else:
                self.lose_coordinator()
            if row.error_code in REJOIN_CODES and (first.member_id, first.epoch) == (self.id, self.epoch):
                self.rejoin()
