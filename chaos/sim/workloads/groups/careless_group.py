"""A hasty group whose members repeat their requests, and whose requests overtake each other or come much too late.

A member repeats a request as it does whose answer is lost: by another connection, so that either may come first, or
after it has sent the first one. Some copies of JoinGroup, SyncGroup, LeaveGroup, heartbeats and commits come seconds
later, when the member that they are of was thought dead, or has another generation, epoch or id. What such a request
changes, and what it is answered, is judged where it is answered: "a request of a former epoch is refused", "who commits
is in the present epoch", "a repeated request has the answer of the first".

In the end nothing is late any more. Then the members join, and repeat each of their requests: none may change anything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from .....broker.groups.group_config import OFFSETS_TOPIC
from .....cluster.client.client_errors import ClientError
from .....cluster.client.cluster_client import NO_ANSWER
from .....cluster.client.requests.coordinator_requests import MOVED
from .....runtime.loop import TaskSet
from .....wire.api_keys import ApiKey
from .....wire.codec import Struct
from .....wire.errors import ErrorCode
from ...invariants.invariant_broken import InvariantBroken
from ..clients import ClientContext
from .hasty_group import GROUP, HastyClassicMember, HastyConsumerMember, HastyGroup, HastyMember, partitions_of

_BEHIND_PROBABILITY = 0.35
_LOST_PROBABILITY = 0.15
_COMMIT_PROBABILITY = 0.5
_DELAYS_S = (0.0, 0.0, 0.02, 0.3, 1.2, 2.0)
_LATEST_S = 3.0
"""So long after the last request none is on its way any more, and no session of a member that is gone lasts."""
_FIRST_ANSWER_S = 0.05
_TIMEOUT_S = 0.9
"""Shorter than a session: a member that has answers within this time is not removed meanwhile."""
_PAUSE_S = 0.05
_NOT_OWNED = 99
"""A partition that no topic has."""


class CarelessGroup(HastyGroup):
    """The members. A `Workload`."""

    name = "careless group"

    def __init__(self, context: ClientContext) -> None:
        super().__init__(context)
        self._waits_for = "its members act"
        self._careless = [one for one in self.members if isinstance(one, CarelessMember)]

    def kinds(self) -> tuple[type[HastyMember], ...]:
        """See `HastyGroup`."""
        return CarelessClassicMember, CarelessConsumerMember

    def why_not_settled(self) -> str | None:
        """See `Workload`."""
        return self._waits_for or None

    async def run(self) -> None:
        """See `Workload`."""
        await super().run()
        await asyncio.sleep(_LATEST_S)
        for member in self._careless:  # nobody has heard them for longer than their sessions
            member.lose()
        while self._waits_for:
            try:
                await self._repeat_all()
            except (ClientError, *NO_ANSWER) as error:
                self._waits_for = f"its members repeat their requests: {error!r}"
                for member in self._careless:
                    member.lose()
                await asyncio.sleep(_LATEST_S)

    async def _repeat_all(self) -> None:
        """Join, repeat every request, and leave. It is judged if the group had one coordinator and nobody was slow."""
        loop, members = asyncio.get_running_loop(), self._careless
        while not self._are_stable():
            await asyncio.gather(*(self._until_stable(member) for member in members))
        before, began_s = await self._coordinator(), loop.time()
        for member in members:
            member.was_elsewhere = False
        found = [await member.why_not_repeatable() for member in members]
        found += [await member.why_not_leaving() for member in members]
        is_late = loop.time() - began_s > _TIMEOUT_S
        if is_late or any(one.was_elsewhere for one in members) or before != await self._coordinator():
            raise ClientError("the group was disturbed")
        for why in found:
            if why is not None:
                raise InvariantBroken("a repeated request has the answer of the first", why)
        self._waits_for = ""

    async def _until_stable(self, member: CarelessMember) -> None:
        """Each member goes on by itself: one that joins waits for the others, which hear of it by their heartbeats."""
        while not self._are_stable():
            self._waits_for = f"its members join: {[str(one) for one in self._careless]}"
            await member.stay()
            await asyncio.sleep(_PAUSE_S)

    def _are_stable(self) -> bool:
        """Whether all members are in one generation or epoch, and each partition is assigned to one of them."""
        if len({member.generation for member in self._careless}) > 1 or self._careless[0].generation <= 0:
            return False
        assigned = sorted(index for member in self._careless for index in member.assigned)
        partitions = list(range(len(self._careless[0].client.partitions)))
        return assigned == partitions or self.kind is CarelessClassicMember  # these assign no partitions

    async def _coordinator(self) -> tuple[int, int]:
        """The coordinator and its leader epoch. Raises `ClientError`."""
        view = (await self._careless[0].client.cluster.metadata([OFFSETS_TOPIC])).topic(OFFSETS_TOPIC)
        return view.partitions[0].leader, view.partitions[0].leader_epoch


class CarelessMember(HastyMember):
    """What members of both protocols do: send requests twice, and commit."""

    commit_version = 9

    def __init__(self, group: HastyGroup, name: str) -> None:
        super().__init__(group, name)
        self._group = group
        self._behind = self.client.cluster.apart()
        """For copies of requests."""
        self._copies = TaskSet()
        self._offset = 0
        self.was_elsewhere = False
        """Whether a broker that was asked is not the coordinator, or not yet."""

    def __str__(self) -> str:
        return f"{self._id} in {self._generation}"

    @property
    def generation(self) -> int:
        """Its generation or epoch; -1 before it has joined."""
        return self._generation

    @property
    def assigned(self) -> tuple[int, ...]:
        """The partitions that it was told to read."""
        return tuple(index for _, index in self._owned)

    async def act(self) -> None:
        """See `HastyMember`."""
        await super().act()
        if self._generation > 0 and self._rng.random() < _COMMIT_PROBABILITY:
            self._on_code(await self._commit(self._generation))

    async def stay(self) -> None:
        """Join or heartbeat, and wait long for the answer."""
        self._must_leave, self._waits_s = False, (_LATEST_S,)
        try:
            await self.act()
        except (ClientError, *NO_ANSWER):
            self.lose()
        self._must_leave = False

    def lose(self) -> None:
        """Begin as another member."""
        self._forget()
        self._coordinator, self._owned = None, ()

    async def why_not_repeatable(self) -> str | None:
        """Repeat each request; what is answered that should not be, None for nothing."""
        raise NotImplementedError

    async def why_not_leaving(self) -> str | None:
        """Leave twice, as `why_not_repeatable`."""
        who, codes = str(self), [await self._leave(), await self._leave()]
        self.lose()
        is_right = codes == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]
        return None if is_right else f"{who} leaves twice, and is answered {codes}"

    async def _leave(self) -> int:
        """Leave the group; the error code."""
        raise NotImplementedError

    async def _commit(self, generation: int) -> int:
        """Commit in a generation or epoch; the error code."""
        self._offset += 1
        index = self._rng.randrange(len(self.client.partitions))
        partitions = [{"partition_index": index, "committed_offset": self._offset, "committed_metadata": self._id}]
        who = {"generation_id_or_member_epoch": generation, "member_id": self._id, "group_instance_id": None}
        topics = [{"name": self.client.topic, "partitions": partitions}]
        answer = await self._ask(ApiKey.OFFSET_COMMIT, self.commit_version, {**who, "topics": topics})
        return int(answer.topics[0].partitions[0].error_code)

    async def _ask(self, api: ApiKey, version: int, fields: dict[str, Any]) -> Struct:
        """As its base class; before that, the request may be sent by another connection, at once or some time later."""
        if not self._group.stopping:
            at, draw = await self._find(), self._rng.random()
            whole = {"group_id": GROUP, **fields}
            if draw < _BEHIND_PROBABILITY:
                self._copies.spawn(self._send_copy(at, api, version, whole, self._rng.choice(_DELAYS_S)), "copy")
            elif draw < _BEHIND_PROBABILITY + _LOST_PROBABILITY:
                self._copies.spawn(self._send_copy(at, api, version, whole, 0.0), "lost")
                await asyncio.sleep(_FIRST_ANSWER_S)
        answer = await super()._ask(api, version, fields)
        row = answer.topics[0].partitions[0] if api is ApiKey.OFFSET_COMMIT else answer
        self.was_elsewhere |= row.error_code in MOVED
        return answer

    async def _send_copy(
        self, at: tuple[str, int], api: ApiKey, version: int, fields: dict[str, Any], delay_s: float
    ) -> None:
        await asyncio.sleep(delay_s)
        try:
            await self._behind.request_at(at, api, version, fields)
        except (ClientError, *NO_ANSWER):
            pass


class CarelessConsumerMember(CarelessMember, HastyConsumerMember):
    """A member by ConsumerGroupHeartbeat."""

    async def why_not_repeatable(self) -> str | None:
        """See `CarelessMember`. A member that joins again with its id is the same one (KIP-848)."""
        epoch, owned = self._generation, self._owned
        wanted = epoch, sorted(owned)
        answers = [
            await self._heartbeat(epoch, has_all_fields=True),
            await self._heartbeat(0, has_all_fields=True),
            await self._heartbeat(epoch, has_all_fields=True),
        ]
        found = [(one.member_epoch, sorted(partitions_of(one))) for one in answers]
        codes = [await self._commit(epoch), await self._commit(epoch - 1)]
        self._owned = (*owned, (self.client.topic_id, _NOT_OWNED))
        codes.append((await self._heartbeat(epoch - 1, has_all_fields=True)).error_code if epoch > 1 else 0)
        self._owned = owned
        codes.append((await self._heartbeat(epoch, has_all_fields=False)).error_code)
        stale, fenced = ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.FENCED_MEMBER_EPOCH if epoch > 1 else 0
        is_right = found == [wanted] * len(found) and codes == [0, stale, fenced, 0]
        return None if is_right else f"{self} with {wanted}: heartbeats tell it {found}, other requests {codes}"

    async def _leave(self) -> int:
        return int((await self._heartbeat(-1, has_all_fields=False)).error_code)


class CarelessClassicMember(CarelessMember, HastyClassicMember):
    """A member by JoinGroup, SyncGroup, Heartbeat and LeaveGroup."""

    commit_version = 8

    def __init__(self, group: HastyGroup, name: str) -> None:
        super().__init__(group, name)
        self._leader = ""
        self._assignment = b""

    async def why_not_repeatable(self) -> str | None:
        """See `CarelessMember`. A leader that joins again begins a rebalance, so it does not."""
        generation, assignment, leads = self._generation, self._assignment, self._leader == self._id
        joined = generation if leads else (await self._ask_to_join()).generation_id
        other = [{"member_id": self._id, "assignment": b"another one"}] if leads else []
        synced = await self._ask_for_assignment(generation, other)
        codes = [synced.error_code, await self._commit(generation), await self._commit(generation - 1)]
        codes += [await self._heartbeat_in(generation - 1), await self._heartbeat_in(generation)]
        former = ErrorCode.ILLEGAL_GENERATION
        is_same = (joined, bytes(synced.assignment)) == (generation, assignment)
        if is_same and codes == [0, 0, former, former, 0]:
            return None
        return f"{self}, leader {leads}, with {assignment!r}: {joined}, {bytes(synced.assignment)!r}, {codes}"

    async def _heartbeat_in(self, generation: int) -> int:
        fields = {"generation_id": generation, "member_id": self._id}
        return int((await self._ask(ApiKey.HEARTBEAT, 4, fields)).error_code)

    async def _ask_to_join(self) -> Struct:
        joined = await super()._ask_to_join()
        self._leader = joined.leader
        return joined

    async def _ask_for_assignment(self, generation: int, assignments: Sequence[Mapping[str, Any]]) -> Struct:
        synced = await super()._ask_for_assignment(generation, assignments)
        self._assignment = bytes(synced.assignment)
        return synced

    async def _leave(self) -> int:
        answer = await self._ask(ApiKey.LEAVE_GROUP, 5, {"members": [{"member_id": self._id}]})
        return int(answer.error_code or answer.members[0].error_code)
