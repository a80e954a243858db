"""A classic group whose rebalances are slow, as its members join and sync late, vanish, or come back as static ones.

Sessions and rebalance time-outs are of different lengths, so that members wait in JoinGroup and SyncGroup for longer
than their sessions last. What happens is one incident after the other, each in a group that has come to rest. While
there are faults, an incident may end as it likes. Then some incidents are judged, unless the coordinator was another
one meanwhile: nobody is removed who is there, nobody is kept who is gone, and the last generation begins when the
time-outs of the members say so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from math import inf
from typing import TypeAlias

from .....broker.groups.group_config import OFFSETS_TOPIC
from .....cluster.client.client_errors import ClientError
from .....cluster.client.cluster_client import NO_ANSWER
from .....runtime.loop import TaskSet
from .....wire.errors import ErrorCode
from ...invariants.invariant_broken import InvariantBroken
from ..clients import ClientContext, TopicClient
from .slow_member import HEARTBEAT_S, Habits, SlowMember, Vanishes

_GROUP = "slow"
_SIZE_MAX = 5
_FEW, _MANY = 3, 4
_INITIAL_DELAY_S = 0.2
_SESSIONS_MS = (600, 1_000, 1_700)
_REBALANCES_MS = (800, 1_400, 2_300)
_STATIC_PROBABILITY = 0.4
_IN_TIME_PROBABILITY = 0.5
_JUDGED = 5
_TICK_S = 0.02
_EARLY_S = 0.05
"""A client sees a generation begin so much later than its coordinator, at most, where nothing is slow."""
_LATE_S = 2 * HEARTBEAT_S + 0.25
"""Everybody has heard of a rebalance, and joined, so long after it began."""
_LIMIT_S = 7.0
"""Longer than any incident lasts."""
SETTINGS = {
    "group.min.session.timeout.ms": "500",
    "group.initial.rebalance.delay.ms": str(int(_INITIAL_DELAY_S * 1_000)),
    "group.max.size": str(_SIZE_MAX),
}
"""Settings of the nodes."""
_Incident: TypeAlias = "Callable[[], Awaitable[Incident]]"


@dataclass(slots=True)
class Incident:
    """What has been done, and what must come of it."""

    what: str
    window: tuple[float, float] | None
    """Between which times the last generation must begin; None: the one before goes on."""
    gone: tuple[SlowMember, ...] = ()
    """Members that the group must remove."""
    fenced: SlowMember | None = None
    """A static member in whose place another one has come."""


class SlowRebalances:
    """The members and what befalls them. A `Workload`."""

    name = "slow rebalances"

    def __init__(self, context: ClientContext) -> None:
        self.context = context
        self._rng = context.rng
        self._admin = TopicClient(context, f"{self.name} admin")
        self._stopping = False
        self._waits_for = "it acts"
        self._group_id = _GROUP
        self._made: list[SlowMember] = []
        self._present: list[SlowMember] = []
        """The members that live, and whom the group must keep."""
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._living = TaskSet()
        self._incidents: tuple[_Incident, ...] = (
            self._newcomer_vanishes,
            self._joins_late,
            self._syncs_late,
            self._vanishes_unsynced,
            self._dies,
            self._vanishes_when_told,
            self._comes_back,
            self._comes_back_in_rebalance,
            self._too_many_come,
        )

    def stop(self) -> None:
        """See `Workload`."""
        self._stopping = True

    def why_not_settled(self) -> str | None:
        """See `Workload`."""
        return self._waits_for or None

    def check(self) -> None:
        """Each incident was judged when it was over."""

    async def run(self) -> None:
        """See `Workload`."""
        await self._admin.until_known()
        while not self._stopping:
            await self._happens(self._rng.choice(self._incidents), is_judged=False)
        for incident in (*self._rng.sample(self._incidents, _JUDGED), self._begins):
            is_done = False
            while not is_done:
                is_done = await self._happens(incident, is_judged=True)
        self._end(*self._present)
        self._waits_for = ""

    # ---------------------------------------------------------------- one incident

    async def _happens(self, incident: _Incident, *, is_judged: bool) -> bool:
        """Let it happen, in a group at rest; whether it was judged."""
        is_static = [one.instance_id is not None for one in self._present]
        while len(is_static) < _FEW or not any(is_static):
            is_static.append(not any(is_static) or self._rng.random() < _STATIC_PROBABILITY)
            self._add(is_static=is_static[-1])
        self._waits_for = f"the group comes to rest: {[str(one) for one in self._present]}"
        if not await self._until(lambda: self._generation() >= 0 or self._is_over(is_judged=is_judged)):
            self._end(*self._present)
            return False
        for member in self._present:
            member.removed = None
        try:
            if self._is_over(is_judged=is_judged) or (is_judged and await self._why_not_alone() is not None):
                await asyncio.sleep(HEARTBEAT_S)
                return False
            before, group_id, generation = await self._state(), self._group_id, self._generation()
            done = await incident()
            generation = generation if self._group_id == group_id else 0
            self._waits_for = f"{done.what}: {[str(one) for one in self._present]}"
            await self._until(lambda: self._is_over(is_judged=is_judged) or self._is_after(done, generation))
            await asyncio.sleep(HEARTBEAT_S)
            found = await self._what_is_wrong(done, generation) if is_judged else None
            is_calm = is_judged and before == await self._state()
        except (ClientError, *NO_ANSWER):
            self._end(*self._present)
            return False
        if is_calm and found is not None:
            raise InvariantBroken(*found)
        self._end(*done.gone)
        for member in self._present:
            member.habits = Habits()
        return is_calm

    async def _what_is_wrong(self, done: Incident, generation: int) -> tuple[str, str] | None:
        """The invariant that does not hold, and why. Raises `ClientError` or one of `NO_ANSWER`."""
        members = [str(one) for one in self._present]
        told = [one.removed for one in self._present if one.removed is not None]
        if told:
            return "a member that is there stays in its group", f"{done.what}: {told}"
        if not self._is_after(done, generation):
            return "a group comes to rest when its time-outs are over", f"{done.what}: {members}"
        if done.window is not None:
            began_s, (low_s, high_s) = self._began_s(), done.window
            if not low_s - _EARLY_S <= began_s <= high_s + _LATE_S:
                detail = f"{done.what}: at {began_s:.3f}, not from {low_s:.3f} to {high_s:.3f}; {members}"
                return "a generation begins when its time-outs say so", detail
        why_not = await self._why_not_alone()
        if why_not is not None:
            return "a group has the members that are there", f"{done.what}: {why_not}"
        if done.fenced is not None:
            code = await done.fenced.beats_in(self._generation())
            if code != ErrorCode.FENCED_INSTANCE_ID:
                detail = f"{done.what}: {done.fenced} is answered {ErrorCode(code).name}"
                return "a static member that was replaced is fenced", detail
        return None

    async def _why_not_alone(self) -> str | None:
        """How the group is described if its members are others, or are assigned something else."""
        row = await self._present[0].described()
        described = sorted((one.member_id, bytes(one.member_assignment)) for one in row.members)
        known = sorted((one.id, one.assignment) for one in self._present)
        why_not = None if described == known else f"{row.group_state} with {described}, there are {known}"
        self._waits_for = why_not or self._waits_for
        return why_not

    def _is_over(self, *, is_judged: bool) -> bool:
        """Whether an incident that is not judged need not end."""
        return self._stopping and not is_judged

    def _is_after(self, done: Incident, generation: int) -> bool:
        """Whether all that was to come has come, or is late."""
        now = self._generation()
        if done.window is None:
            return now == generation
        low_s, high_s = done.window
        is_last = self._began_s() >= low_s - _EARLY_S or self._now_s() > high_s + _LATE_S
        return now > generation and is_last

    def _began_s(self) -> float:
        return min(one.joined_s for one in self._present)

    def _generation(self) -> int:
        """The generation in which all that are present have assignments; -1 if there is none."""
        found = {one.generation: None for one in self._present}
        return next(iter(found)) if len(found) == 1 else -1

    async def _state(self) -> tuple[int, int, int]:
        """The coordinator, its leader epoch, and how often members were disturbed. Raises `ClientError`."""
        view = (await self._admin.cluster.metadata([OFFSETS_TOPIC])).topic(OFFSETS_TOPIC)
        disturbances = sum(one.disturbances for one in self._made)
        return view.partitions[0].leader, view.partitions[0].leader_epoch, disturbances

    def _now_s(self) -> float:
        return asyncio.get_running_loop().time()

    async def _until(self, condition: Callable[[], bool]) -> bool:
        """Wait; whether it holds in time."""
        ends_s = self._now_s() + _LIMIT_S
        holds = condition()
        while not holds and self._now_s() < ends_s:
            await asyncio.sleep(_TICK_S)
            holds = condition()
        return holds

    async def _must(self, condition: Callable[[], bool]) -> None:
        """Wait. Raises `ClientError` if it does not hold in time."""
        if not await self._until(condition):
            raise ClientError("the incident was disturbed")

    # ---------------------------------------------------------------- members

    def _make(self, instance_id: str | None = None, habits: Habits | None = None) -> SlowMember:
        """A member that begins to live."""
        times_ms = self._rng.choice(_SESSIONS_MS), self._rng.choice(_REBALANCES_MS)
        member = SlowMember(self, f"{self.name} {len(self._made)}", self._group_id, times_ms)
        member.instance_id = instance_id
        member.habits = habits or Habits()
        self._made.append(member)
        self._tasks[member.name] = self._living.spawn(member.live(), member.name)
        return member

    def _add(self, *, is_static: bool) -> SlowMember:
        """A member that comes to stay."""
        member = self._make(f"instance {len(self._made)}" if is_static else None)
        self._present.append(member)
        return member

    def _end(self, *members: SlowMember) -> None:
        """These are not heard any more."""
        for member in members:
            self._tasks[member.name].cancel()
        self._present = [one for one in self._present if one not in members]

    def _longest_s(self) -> float:
        return max(one.rebalance_timeout_ms for one in self._present) / 1000

    async def _rebalance(self, *keeps: SlowMember) -> float:
        """Begin a rebalance, as one member leaves that is none of these, or one comes; when it has begun."""
        if len(self._present) >= _MANY:
            leaving = self._rng.choice([one for one in self._present if one not in keeps])
            self._end(leaving)
            began_s = self._now_s()
            await leaving.leave()
            return began_s
        coming = self._add(is_static=self._rng.random() < _STATIC_PROBABILITY)
        await self._must(lambda: coming.waits_since_s > 0)
        return coming.waits_since_s

    # ---------------------------------------------------------------- incidents

    async def _newcomer_vanishes(self) -> Incident:
        """One has got an id and is not heard again: the group waits for it as long as for the session of a member."""
        lost = self._make(habits=Habits(vanishes=Vanishes.UNJOINED))
        asked_s = self._now_s()
        await self._must(lambda: bool(lost.id))
        answered_s = self._now_s()
        began_s = await self._rebalance()
        session_s, over_s = lost.session_ms / 1000, began_s + self._longest_s()
        window = min(asked_s + session_s, over_s), min(answered_s + session_s, over_s)
        return Incident(f"{lost} vanishes before it joins", window, (lost,))

    async def _joins_late(self) -> Incident:
        """One joins late, or never: the group waits for it as long as the longest rebalance may take."""
        late = self._rng.choice(self._present)
        late.habits.joins_after_s = inf
        began_s = await self._rebalance(late)
        longest_s = self._longest_s()
        if self._rng.random() < _IN_TIME_PROBABILITY:
            late_s = late.habits.joins_after_s = self._rng.uniform(_EARLY_S, longest_s - _LATE_S)
            return Incident(f"{late} joins {late_s:.3f} s later", (began_s + late_s, began_s + late_s))
        window = began_s + longest_s, began_s + longest_s
        if late.instance_id is not None:  # it stays: it is not in the next generation, of which it hears, and joins
            return Incident(f"static {late} does not join", window)
        self._leave_to_be_removed(late)
        return Incident(f"{late} does not join", window, (late,))

    async def _syncs_late(self) -> Incident:
        """One asks late, or never, for its assignment. Others wait for it if it is the leader."""
        late = self._rng.choice(self._present)
        late.habits.syncs_after_s = inf
        began_s = await self._rebalance(late)
        longest_s = self._longest_s()
        await self._must(lambda: late.joined_s > began_s)
        if self._rng.random() < _IN_TIME_PROBABILITY:
            late_s = late.habits.syncs_after_s = self._rng.uniform(_EARLY_S, longest_s - _LATE_S)
            return Incident(f"{late} syncs {late_s:.3f} s later", (late.joined_s, late.joined_s))
        over_s = late.joined_s + longest_s
        self._leave_to_be_removed(late)
        return Incident(f"{late} does not sync", (over_s, over_s), (late,))

    async def _vanishes_unsynced(self) -> Incident:
        """One is not heard any more when it has joined; the others wait for the assignment if it is the leader."""
        lost = self._rng.choice(self._present)
        lost.habits.vanishes = Vanishes.UNSYNCED
        began_s = await self._rebalance(lost)
        longest_s = self._longest_s()
        await self._must(lambda: lost.joined_s > began_s)
        self._leave_to_be_removed(lost)
        over_s = lost.joined_s + min(lost.session_ms / 1000, longest_s)
        return Incident(f"{lost} vanishes when it has joined", (over_s, over_s), (lost,))

    async def _dies(self) -> Incident:
        """One is not heard any more while nothing happens."""
        lost = self._rng.choice(self._present)
        self._end(lost)
        session_s = lost.session_ms / 1000
        return Incident(f"{lost} dies", (lost.heard_s + session_s, self._now_s() + session_s), (lost,))

    async def _vanishes_when_told(self) -> Incident:
        """One hears of the rebalance and does not join. A static one is kept until its session is over."""
        lost = self._rng.choice(self._present)
        lost.habits.vanishes = Vanishes.WHEN_TOLD
        began_s = await self._rebalance(lost)
        longest_s = self._longest_s()
        await self._must(lambda: lost.told_s is not None)
        self._leave_to_be_removed(lost)
        ends_s = lost.heard_s + lost.session_ms / 1000
        # A static one is in the next generation without having joined, and does not ask for its assignment either.
        over_s = began_s + longest_s * (1 if lost.instance_id is None else 2)
        window = min(ends_s, over_s), min(ends_s + HEARTBEAT_S, over_s)
        return Incident(f"{lost} vanishes as it hears of the rebalance", window, (lost,))

    async def _comes_back(self) -> Incident:
        """A static member dies and comes back at once: nothing changes for the others."""
        former = self._static_member()
        back = await self._replaced(former)
        return Incident(f"{former} comes back as {back}", None, fenced=former)

    async def _comes_back_in_rebalance(self) -> Incident:
        """A static member comes back while it and others wait for one that joins late."""
        former = self._static_member()
        late = self._rng.choice([one for one in self._present if one is not former])
        late.habits.joins_after_s = inf
        began_s = await self._rebalance(late, former)
        longest_s = self._longest_s()
        await self._must(lambda: former.waits_since_s > began_s)
        await asyncio.sleep(self._rng.uniform(0.0, 2 * HEARTBEAT_S))
        back = await self._replaced(former)
        late_s = late.habits.joins_after_s = self._rng.uniform(5 * HEARTBEAT_S, longest_s - _LATE_S)
        what = f"{former} comes back as {back} while the group waits for {late}, {late_s:.3f} s later"
        return Incident(what, (began_s + late_s, began_s + late_s), fenced=former)

    async def _too_many_come(self) -> Incident:
        """More come than the group may have members: it takes as many as it may."""
        began_s = self._now_s()
        coming = [self._add(is_static=False) for _ in range(_SIZE_MAX + 1 - len(self._present))]
        what = f"{[str(one) for one in coming]} come at once"
        await self._must(lambda: any(one.is_refused for one in self._present))
        refused = [one for one in self._present if one.is_refused]
        self._end(*refused)
        return Incident(what, (began_s, self._now_s()), tuple(refused))

    async def _begins(self) -> Incident:
        """A group begins: it waits for more members for a while after each that has come, within a rebalance."""
        self._end(*self._present)
        self._group_id = f"{_GROUP} {len(self._made)}"
        for _ in range(_MANY):
            self._add(is_static=False)
            await asyncio.sleep(self._rng.uniform(0.0, _INITIAL_DELAY_S))
        await self._must(lambda: all(one.waits_since_s for one in self._present))
        joined_s = sorted(one.waits_since_s for one in self._present)
        ends_s = _end_of_initial_delay(joined_s, self._first_timeout_s())
        if any(abs(one - ends_s) < _EARLY_S for one in joined_s) or joined_s[-1] > ends_s:
            raise ClientError("some come as the delay ends, and some later")
        return Incident(f"the group begins at {joined_s}", (ends_s, ends_s))

    def _first_timeout_s(self) -> float:
        first = min(self._present, key=lambda one: one.waits_since_s)
        return first.rebalance_timeout_ms / 1000

    def _leave_to_be_removed(self, member: SlowMember) -> None:
        """It goes on as it does, and the group must remove it."""
        member.habits.comes_back = False
        self._present.remove(member)

    def _static_member(self) -> SlowMember:
        return self._rng.choice([one for one in self._present if one.instance_id is not None])

    async def _replaced(self, former: SlowMember) -> SlowMember:
        """Let a static member die and come back; the new one, which has the assignment when it has it again."""
        self._end(former)
        back = self._make(former.instance_id)
        self._present.append(back)
        await self._must(lambda: back.waits_since_s > 0)
        return back


def _end_of_initial_delay(joined_s: Sequence[float], rebalance_s: float) -> float:
    """When the first generation of a group begins, by the times at which its members have come."""
    ends_s, left_s = joined_s[0] + _INITIAL_DELAY_S, max(rebalance_s - _INITIAL_DELAY_S, 0.0)
    since_s = joined_s[0]
    while left_s > 0 and any(since_s < one <= ends_s for one in joined_s):
        delay_s = min(_INITIAL_DELAY_S, left_s)
        since_s, ends_s, left_s = ends_s, ends_s + delay_s, left_s - delay_s
    return ends_s
