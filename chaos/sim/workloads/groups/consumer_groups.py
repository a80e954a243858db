"""Consumer groups in the simulator, of both protocols: members that heartbeat, read their partitions, and commit.

Delivery is at least once: a member commits what it has read, so the members together read every acked record. A group's
committed offsets do not go back: the new owner of a partition starts at the last commit that was answered, or at one
whose answer was lost. A member may stall for longer than its session and then continue. Its commits must be refused
then, because another member has continued from there: once a partition has a new owner, no request of the former one is
accepted.

Each member has many incarnations: it leaves or dies, and joins again with a new member id. In a group that migrates
between the protocols, each incarnation may use either of them.

Static members (KIP-345) come back under the `group.instance.id` of an incarnation before, or under another one; the
former one is then gone for good, and its partitions go to others when its session ends. Also at the end one may die.

Members commit and heartbeat in turn, or they commit behind: a commit is in flight, on a connection of its own, while
the member goes on, gives partitions up, leaves or stalls. What its commit may do then is in `group_commits`.
"""

from __future__ import annotations

import asyncio
from typing import Any

from .....runtime.loop import TaskSet
from ...invariants.client_invariants import History
from ...invariants.group_commits import PartitionCommits
from ...invariants.invariant_broken import InvariantBroken
from ..clients import ClientContext, TopicConsumer
from .group_member import MemberIncarnation
from .member_protocols import ClassicIncarnation, ConsumerIncarnation

PROTOCOLS = ("consumer", "classic")
SETTINGS = {
    "group.consumer.session.timeout.ms": "2500",
    "group.min.session.timeout.ms": "1000",
    "group.initial.rebalance.delay.ms": "100",
}
"""Settings of the nodes: sessions that end while a member stalls."""
_LEAVE_PROBABILITY = 0.08
_SWITCH_PROBABILITY = 0.25
_MEMBERS = 2
_STATIC_PROBABILITY = 0.7
_NEW_INSTANCE_PROBABILITY = 0.3
_LOST_AT_END_PROBABILITY = 0.7


class GroupLoad:
    """The members of one group, which reads the main topic. A `Workload`."""

    name = "group"

    def __init__(
        self,
        context: ClientContext,
        main: History,
        protocols: tuple[str, ...] = ("consumer",),
        *,
        commits_behind: bool = False,
        has_static_members: bool = False,
    ) -> None:
        """`context.history` gets the records that members read; `main` holds the acked records."""
        self.commits: dict[int, PartitionCommits] = {}
        self.commits_behind = commits_behind
        self.has_static_members = has_static_members
        self.instance_ids: dict[str, str] = {}
        """By member, the `group.instance.id` of its present incarnation, if it is static."""
        is_one_lost = has_static_members and context.rng.random() < _LOST_AT_END_PROBABILITY
        self.dies_at_end = "m0" if is_one_lost else None
        """The member that comes back once more when the load stops, and then dies: the others must notice."""
        self.in_flight = TaskSet()
        self.stopping = False
        self.protocols = protocols
        self.is_cooperative = context.rng.random() < 0.5
        """Whether classic members keep their partitions during a rebalance (KIP-429)."""
        switches = len(protocols) > 1 or has_static_members
        self.leave_probability = _SWITCH_PROBABILITY if switches else _LEAVE_PROBABILITY
        self._context = context
        self._main_history = main
        self.kinds: dict[str, type[MemberIncarnation]] = {
            "consumer": ConsumerIncarnation,
            "classic": ClassicIncarnation,
        }
        """How members of each protocol act."""
        self._plans: dict[int, list[dict[str, tuple[int, ...]]]] = {}
        """By generation, the assignments that its leaders have sent; another coordinator may use a number again."""
        self._members = [_Member(self, context, f"m{n}") for n in range(_MEMBERS)]

    def stop(self) -> None:
        """See `Workload`."""
        self.stopping = True

    async def run(self) -> None:
        """See `Workload`."""
        await asyncio.gather(*(member.run() for member in self._members))

    def why_not_settled(self) -> str | None:
        """See `Workload`."""
        ends = {index: log.end_offset for (_, index), log in self._partitions() if log.end_offset}
        behind = {
            index: f"{self.commits[index].answered if index in self.commits else 0} of {end}"
            for index, end in ends.items()
            if index not in self.commits or self.commits[index].answered < end
        }
        members = [str(member) for member in self._members]
        if self.dies_at_end is not None and not self._have_noticed_death():
            return f"the partitions of {self.dies_at_end} have no reader: {members}"
        return f"the group's commits: {behind}, members {members}" if behind else None

    def _have_noticed_death(self) -> bool:
        """Whether the member has died, and those that live own all partitions."""
        owned = {index for member in self._members for index in member.owned}
        return any(member.has_died for member in self._members) and owned >= {
            index for (_, index), _ in self._partitions()
        }

    def check(self) -> None:
        """Every acked record was read by some member."""
        for (partition, producer, number), offset in self._main_history.acked.items():
            value = f"{producer}/{partition}/{number}"
            found = self._context.history.consumed.get(partition, {}).get(offset)
            if found != value:
                raise InvariantBroken("a group delivers every acked record", f"{value} at {offset}, there is {found}")

    def note_plan(self, generation: int, plan: dict[str, list[int]]) -> None:
        """A leader sends its assignments, by `MemberIncarnation.key`; empty for a member that does not lead."""
        if plan:
            self._plans.setdefault(generation, []).append({one: tuple(sorted(parts)) for one, parts in plan.items()})

    def check_assigned(self, key: str, generation: int, assigned: tuple[int, ...]) -> None:
        """A member got its part of what a leader of this generation sent; a coordinator may assign in mixed groups."""
        plans = [plan[key] for plan in self._plans.get(generation, ()) if key in plan]
        if assigned not in plans and len(self.protocols) == 1:
            detail = f"{key} got {assigned} in generation {generation}, the leader sent {plans}"
            raise InvariantBroken("a member gets what its leader has assigned in its generation", detail)

    def _partitions(self) -> list[tuple[Any, Any]]:
        known = self._members[0].reader.client.topic_id
        return [(key, log) for key, log in self._context.checker.committed.items() if key[0] == known]


class _Member:
    """One member, as a sequence of incarnations."""

    def __init__(self, group: GroupLoad, context: ClientContext, name: str) -> None:
        self.reader = TopicConsumer(context, f"group {name}")
        self._group = group
        self._context = context
        self._name = name
        self._incarnation: MemberIncarnation | None = None
        self.has_died = False

    def __str__(self) -> str:
        return f"{self._name} {self._incarnation}"

    @property
    def owned(self) -> tuple[int, ...]:
        """What it reads; a dead member reads nothing."""
        return () if self._incarnation is None or self.has_died else self._incarnation.owned

    async def run(self) -> None:
        """See `Workload`."""
        await self.reader.client.until_known()
        is_last = False
        while not is_last:
            is_last = self._group.stopping and self._name == self._group.dies_at_end
            protocol = self._context.rng.choice(self._group.protocols)
            if self._group.has_static_members:
                self._draw_instance()
            self._incarnation = self._group.kinds[protocol](self._group, self._context, self.reader, self._name)
            await self._incarnation.run()
        self.has_died = True

    def _draw_instance(self) -> None:
        """Come back as the static member that it was, or as another one, or as one that is not static."""
        rng, known = self._context.rng, self._group.instance_ids
        if self._name not in known or rng.random() < _NEW_INSTANCE_PROBABILITY:
            known.pop(self._name, None)
            if rng.random() < _STATIC_PROBABILITY:
                known[self._name] = f"{self._name}-instance-{rng.getrandbits(32):08x}"
