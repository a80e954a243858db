"""A member of a classic group that takes its time: it rejoins or syncs late, vanishes, or is static and comes back.

See `slow_rebalances`, which says to each member what it does in the next rebalance, and judges what comes of it.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from .....cluster.client.client_errors import ClientError
from .....cluster.client.cluster_client import NO_ANSWER
from .....wire.api_keys import ApiKey
from .....wire.codec import Struct
from .....wire.errors import ErrorCode
from .hasty_group import HastyClassicMember, OwnerOfMembers

HEARTBEAT_S = 0.1
_ANSWER_S = 6.0
"""Longer than any rebalance: so long a member waits in JoinGroup and SyncGroup."""
_REMOVED = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID)


class Vanishes(Enum):
    """Where a member is heard for the last time."""

    UNJOINED = auto()
    """It has asked for its id."""
    UNSYNCED = auto()
    """It has got its generation."""
    WHEN_TOLD = auto()
    """It has heard that the group rebalances."""


@dataclass(slots=True)
class Habits:
    """What the member does in the next rebalance."""

    joins_after_s: float = 0.0
    """So long after it has heard of the rebalance it joins; until then it sends heartbeats."""
    syncs_after_s: float = 0.0
    """So long after the beginning of the generation it asks for its assignment; until then it sends heartbeats."""
    vanishes: Vanishes | None = None
    comes_back: bool = True
    """Whether it joins anew when the group does not know it any more."""


class SlowMember(HastyClassicMember):
    """One incarnation. Times are those of the loop."""

    def __init__(self, group: OwnerOfMembers, name: str, group_id: str, times_ms: tuple[int, int]) -> None:
        """`times_ms` are those of its session and of a rebalance."""
        super().__init__(group, name)
        self.client.cluster.timeout_s = _ANSWER_S
        self.name = name
        self.group_id = group_id
        self.session_ms, self.rebalance_timeout_ms = times_ms
        self.habits = Habits()
        self.removed: str | None = None
        """How it was told that the group does not know it any more; None if it was not."""
        self.is_refused = False
        self.disturbances = 0
        """How often the coordinator did not answer, or was another one."""
        self.waits_since_s = 0.0
        """Since when it waits in JoinGroup with its id, or has waited last."""
        self.joined_s = 0.0
        """When its generation began."""
        self.heard_s = 0.0
        """When it was heard last, at the earliest: its last request that was answered was sent then."""
        self.told_s: float | None = None
        """Since when it knows of the rebalance that it has not joined yet."""
        self.members_told: tuple[str, ...] = ()
        """The members of its generation, if it leads it."""
        self.assignment = b""
        self._joined = -1
        self._plan: list[dict[str, Any]] = []

    def __str__(self) -> str:
        times = f"session {self.session_ms}, rebalance {self.rebalance_timeout_ms}"
        return f"{self.name} ({self._id}, {self.instance_id}, {times}) in {self._generation}"

    @property
    def id(self) -> str:
        """Its member id; empty before it has one."""
        return self._id

    @property
    def generation(self) -> int:
        """The generation in which it has an assignment, and of whose end it does not know; -1 for none."""
        return self._generation if self.told_s is None else -1

    async def live(self) -> None:
        """Join, stay and rejoin, until it vanishes or is cancelled."""
        while not self.is_refused:
            try:
                await self._step()
            except (ClientError, *NO_ANSWER):
                self._disturbed()
            if self._has_vanished() or (self.removed is not None and not self.habits.comes_back):
                return
            await asyncio.sleep(HEARTBEAT_S)

    async def leave(self) -> None:
        """Leave the group. Raises `ClientError` or one of `NO_ANSWER`."""
        await self._ask(ApiKey.LEAVE_GROUP, 5, {"members": [self._who()]})

    async def beats_in(self, generation: int) -> int:
        """Send a heartbeat in a generation; the error code. Raises `ClientError` or one of `NO_ANSWER`."""
        answer = await self._ask(ApiKey.HEARTBEAT, 4, {**self._who(), "generation_id": generation})
        return int(answer.error_code)

    async def described(self) -> Struct:
        """The group as its coordinator describes it. Raises `ClientError` or one of `NO_ANSWER`."""
        fields = {"groups": [self.group_id], "include_authorized_operations": False}
        answer = await self.client.cluster.request_at(await self._find(), ApiKey.DESCRIBE_GROUPS, 6, fields)
        row: Struct = answer.groups[0]
        return row

    # ---------------------------------------------------------------- steps

    async def _step(self) -> None:
        now_s = asyncio.get_running_loop().time()
        if self._joined >= 0:  # it has a generation, and no assignment
            if now_s >= self.joined_s + self.habits.syncs_after_s:
                await self._sync()
            else:
                await self._beat(self._joined)
        elif self._generation >= 0 and (self.told_s is None or now_s < self.told_s + self.habits.joins_after_s):
            await self._beat(self._generation)
        else:
            await self._enter()

    async def _beat(self, generation: int) -> None:
        loop = asyncio.get_running_loop()
        sent_s = loop.time()
        code = await self.beats_in(generation)
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            self.heard_s = sent_s
            if self.told_s is None:
                self.told_s = loop.time()
        elif code:
            self._on_code(code)
        else:
            self.heard_s = sent_s

    async def _enter(self) -> None:
        loop = asyncio.get_running_loop()
        self._joined = self._generation = -1
        if self._id or self.instance_id is not None:
            self.waits_since_s = loop.time()
        joined = await self._ask_to_join()
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._id = joined.member_id
            if self.habits.vanishes is Vanishes.UNJOINED:
                return
            self.waits_since_s = loop.time()
            joined = await self._ask_to_join()
        if joined.error_code:
            self._on_code(joined.error_code)
            return
        self.told_s = None
        self.heard_s = self.joined_s = loop.time()
        self._id, self._joined, self._protocol = joined.member_id, joined.generation_id, joined.protocol_name
        self._take_members(joined)
        if self.habits.vanishes is not Vanishes.UNSYNCED and not self.habits.syncs_after_s:
            await self._sync()

    def _take_members(self, joined: Struct) -> None:
        number = self._rng.getrandbits(32)
        self.members_told = tuple(sorted(one.member_id for one in joined.members))
        self._plan = (
            []
            if joined.skip_assignment
            else [
                {"member_id": one, "assignment": f"{joined.generation_id} {one} {number}".encode()}
                for one in self.members_told
            ]
        )

    async def _sync(self) -> None:
        generation = self._joined
        answer = await self._ask_for_assignment(generation, self._plan)
        self._joined = -1
        if answer.error_code:
            self._on_code(answer.error_code)
            return
        self._generation, self.assignment = generation, bytes(answer.assignment)
        self.heard_s = asyncio.get_running_loop().time()

    def _has_vanished(self) -> bool:
        vanishes = self.habits.vanishes
        return (
            (vanishes is Vanishes.UNJOINED and bool(self._id))
            or (vanishes is Vanishes.UNSYNCED and self._joined >= 0)
            or (vanishes is Vanishes.WHEN_TOLD and self.told_s is not None)
        )

    def _on_code(self, code: int) -> None:
        self._joined = self._generation = -1
        if code in _REMOVED:
            self.removed = f"{self} was told {ErrorCode(code).name}"
            self._id, self.told_s = "", None
        elif code == ErrorCode.GROUP_MAX_SIZE_REACHED:
            self.is_refused = True
        elif code not in (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION):
            self._disturbed()

    def _disturbed(self) -> None:
        """The coordinator was lost: find it again, and join with the same id."""
        self.disturbances += 1
        self._coordinator = None
        self._joined = self._generation = -1
