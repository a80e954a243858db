"""Consumer groups in the simulator, of both protocols: members that heartbeat, read their partitions, and commit.

Delivery is at least once: a member commits what it has read, so the members together read every acked record. A group's
committed offsets do not go back: the new owner of a partition starts at the last commit that was answered, or at one
whose answer was lost. A member may stall for longer than its session and then continue. Its commits must be refused
then, because another member has continued from there: once a partition has a new owner, no request of the former one is
accepted.

Each member has many incarnations: it leaves or dies, and joins again with a new member id. In a group that migrates
between the protocols, each incarnation may use either of them.

Members commit and heartbeat in turn, or they commit behind: a commit is in flight, on a connection of its own, while
the member goes on, gives partitions up, leaves or stalls. What its commit may do then is in `group_commits`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from .....broker.groups.classic.consumer_protocol import (
    read_assignment,
    read_subscription,
    write_assignment,
    write_subscription,
)
from .....cluster.client.client_errors import ClientError
from .....cluster.client.cluster_client import NO_ANSWER
from .....runtime.loop import TaskSet
from .....wire.api_keys import ApiKey
from .....wire.codec import Struct
from .....wire.errors import ErrorCode
from ...invariants.client_invariants import History
from ...invariants.group_commits import Commit, PartitionCommits
from ...invariants.invariant_broken import InvariantBroken
from ..clients import ClientContext, TopicConsumer

GROUP = "g"
PROTOCOLS = ("consumer", "classic")
SETTINGS = {
    "group.consumer.session.timeout.ms": "2500",
    "group.min.session.timeout.ms": "1000",
    "group.initial.rebalance.delay.ms": "100",
}
"""Settings of the nodes: sessions that end while a member stalls."""
_FIND_COORDINATOR = 4
_HEARTBEAT = 1
_OFFSETS = 9
_HEARTBEAT_EVERY_S = 0.2
_LEAVE_PROBABILITY = 0.08
_SWITCH_PROBABILITY = 0.25
_DEATH_PROBABILITY = 0.3
STALL_PROBABILITY = 0.1
STALL_S = 4.0
_MEMBERS = 2
REBALANCE_TIMEOUT_MS = 2_000
REJOIN_CODES = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.ILLEGAL_GENERATION)
_REFUSED_CODES = (*REJOIN_CODES, ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.REBALANCE_IN_PROGRESS)
_IN_FLIGHT_PROBABILITY = 0.6
_DELAYED_PROBABILITY = 0.7
_ON_ITS_WAY_S = 1.5
_REREAD_PROBABILITY = 0.3
_OWNERSHIP_S = 1.5
"""So long after a member asked for its assignment no other has its partitions: sessions and rebalances last longer."""


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
    ) -> None:
        """`context.history` gets the records that members read; `main` holds the acked records."""
        self.commits: dict[int, PartitionCommits] = {}
        self.commits_behind = commits_behind
        self.in_flight = TaskSet()
        self.stopping = False
        self.protocols = protocols
        self.is_cooperative = context.rng.random() < 0.5
        """Whether classic members keep their partitions during a rebalance (KIP-429)."""
        self.leave_probability = _SWITCH_PROBABILITY if len(protocols) > 1 else _LEAVE_PROBABILITY
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
        return f"the group's commits: {behind}, members {[str(member) for member in self._members]}" if behind else None

    def check(self) -> None:
        """Every acked record was read by some member."""
        for (partition, producer, number), offset in self._main_history.acked.items():
            value = f"{producer}/{partition}/{number}"
            found = self._context.history.consumed.get(partition, {}).get(offset)
            if found != value:
                raise InvariantBroken("a group delivers every acked record", f"{value} at {offset}, there is {found}")

    def note_plan(self, generation: int, plan: dict[str, list[int]]) -> None:
        """A leader sends its assignments; empty for a member that does not lead."""
        if plan:
            self._plans.setdefault(generation, []).append({one: tuple(sorted(parts)) for one, parts in plan.items()})

    def check_assigned(self, member_id: str, generation: int, assigned: tuple[int, ...]) -> None:
        """A member got its part of what a leader of this generation sent; a coordinator may assign in mixed groups."""
        plans = [plan[member_id] for plan in self._plans.get(generation, ()) if member_id in plan]
        if assigned not in plans and len(self.protocols) == 1:
            detail = f"{member_id} got {assigned} in generation {generation}, the leader sent {plans}"
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

    def __str__(self) -> str:
        return f"{self._name} {self._incarnation}"

    async def run(self) -> None:
        """See `Workload`."""
        await self.reader.client.until_known()
        while True:
            protocol = self._context.rng.choice(self._group.protocols)
            self._incarnation = self._group.kinds[protocol](self._group, self._context, self.reader, self._name)
            await self._incarnation.run()


class MemberIncarnation:
    """A member from joining to leaving. The protocols differ in how it joins and how it gets its assignment."""

    protocol = ""

    def __init__(self, group: GroupLoad, context: ClientContext, reader: TopicConsumer, name: str) -> None:
        self.reader = reader
        self.group = group
        self.context = context
        self.id = ""
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
        rest = {"group_instance_id": None, "topics": [{"name": self.context.topic, "partitions": partitions}]}
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


class ConsumerIncarnation(MemberIncarnation):
    """A member by ConsumerGroupHeartbeat (KIP-848)."""

    protocol = "consumer"

    def __init__(self, group: GroupLoad, context: ClientContext, reader: TopicConsumer, name: str) -> None:
        super().__init__(group, context, reader, name)
        self.id = f"{name}-{context.rng.getrandbits(64):016x}"
        self._must_send_all_fields = True
        """After a lost answer the next heartbeat carries all fields, and is answered with the whole assignment."""

    def lose_coordinator(self) -> None:
        """The next heartbeat carries all fields again."""
        super().lose_coordinator()
        self._must_send_all_fields = True

    async def leave(self) -> bool:
        """See `MemberIncarnation`."""
        return await self._heartbeat(-1) in (ErrorCode.NONE, *REJOIN_CODES, ErrorCode.GROUP_ID_NOT_FOUND)

    async def stay(self) -> None:
        """See `MemberIncarnation`."""
        await self._heartbeat(self.epoch)

    async def _heartbeat(self, epoch: int) -> int:
        self.note_asking()
        topic_id = self.reader.client.topic_id
        owned = [{"topic_id": topic_id, "partitions": list(self.owned)}] if self.owned else []
        fields = {"group_id": GROUP, "member_id": self.id, "member_epoch": epoch, "instance_id": None}
        joining = (
            {"rebalance_timeout": REBALANCE_TIMEOUT_MS, "subscribed_topic_names": [self.context.topic]}
            if epoch == 0 or self._must_send_all_fields
            else {}
        )
        staying = {"rebalance_timeout": -1, "subscribed_topic_names": None}
        rest = {"rack_id": None, "subscribed_topic_regex": None, "server_assignor": None, "topic_partitions": owned}
        answer = await self.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, _HEARTBEAT, {**fields, **rest, **staying, **joining})
        # The group became a classic one when its last member of this protocol expired: join it again.
        if answer.error_code in (*REJOIN_CODES, ErrorCode.GROUP_ID_NOT_FOUND):
            self.rejoin()
        elif answer.error_code:
            self.lose_coordinator()
        elif epoch >= 0:
            self.epoch = answer.member_epoch
            self._must_send_all_fields = False
            if answer.assignment is not None:
                rows = answer.assignment.topic_partitions
                self.assigned = tuple(sorted(index for row in rows for index in row.partitions))
                self.give_up(tuple(index for index in self.owned if index in self.assigned))
        return int(answer.error_code)


class ClassicIncarnation(MemberIncarnation):
    """A member by JoinGroup, SyncGroup, Heartbeat and LeaveGroup; partition p goes to member p modulo their number.

    Eager members give up all partitions before they join. Cooperative members keep their partitions and name them when
    they join. The leader assigns no partition that another member owns; that member gives it up with its assignment and
    joins again.
    """

    protocol = "classic"

    def __init__(self, group: GroupLoad, context: ClientContext, reader: TopicConsumer, name: str) -> None:
        super().__init__(group, context, reader, name)
        self._must_join = True

    async def leave(self) -> bool:
        """See `MemberIncarnation`."""
        fields = {"group_id": GROUP, "members": [{"member_id": self.id}]}
        answer = await self.ask(ApiKey.LEAVE_GROUP, 5, fields)
        self._on_error(answer.error_code)
        return not answer.error_code

    def rejoin(self) -> None:
        """Join again, with a new member id."""
        super().rejoin()
        self.id = ""
        self._must_join = True

    async def stay(self) -> None:
        """See `MemberIncarnation`."""
        self.note_asking()
        if not self._must_join:
            fields = {"group_id": GROUP, "generation_id": self.epoch, "member_id": self.id}
            code = (await self.ask(ApiKey.HEARTBEAT, 4, fields)).error_code
            self._on_error(code)
            if code != ErrorCode.REBALANCE_IN_PROGRESS:
                return
            self._must_join = True
        if not self.group.is_cooperative:
            self.assigned = ()
            self.give_up(())
        await self._join()

    async def _join(self) -> None:
        fields = {
            "group_id": GROUP,
            "session_timeout": 2_500,
            "rebalance_timeout": REBALANCE_TIMEOUT_MS,
            "member_id": self.id,
            "protocol_type": "consumer",
            "protocols": [{"name": "modulo", "metadata": self._subscription()}],
        }
        answer = await self.ask(ApiKey.JOIN_GROUP, 9, fields)
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.id = answer.member_id
            return
        if answer.error_code:
            self._on_error(answer.error_code)
            return
        self.id, self.epoch = answer.member_id, answer.generation_id
        if self.group.commits_behind and self.owned:
            self._commit_in_flight()
        await self._sync(self._plan(answer.members))

    async def _sync(self, plan: dict[str, list[int]]) -> None:
        self.note_asking()
        self.group.note_plan(self.epoch, plan)
        topic = self.context.topic
        fields = {
            "group_id": GROUP,
            "generation_id": self.epoch,
            "member_id": self.id,
            "protocol_type": "consumer",
            "protocol_name": "modulo",
            "assignments": [
                {"member_id": one, "assignment": write_assignment(1, [(topic, part) for part in parts])}
                for one, parts in plan.items()
            ],
        }
        answer = await self.ask(ApiKey.SYNC_GROUP, 5, fields)
        if answer.error_code:
            self._on_error(answer.error_code)
            return
        self.assigned = tuple(sorted(part for _, part in read_assignment(answer.assignment)[0]))
        self.group.check_assigned(self.id, self.epoch, self.assigned)
        kept = tuple(index for index in self.owned if index in self.assigned)
        self._must_join = kept != self.owned
        self.give_up(kept)

    def _subscription(self) -> bytes:
        owned = [(self.context.topic, index) for index in self.owned] if self.group.is_cooperative else []
        return write_subscription((self.context.topic,), owned)

    def _plan(self, members: Sequence[Struct]) -> dict[str, list[int]]:
        """The leader's assignment for each member; empty for other members, which get no list of members."""
        ids = sorted(one.member_id for one in members)
        plan: dict[str, list[int]] = {one: [] for one in ids}
        owners = {part: one.member_id for one in members for _, part in read_subscription(one.metadata).owned}
        for index in range(len(self.reader.client.partitions)) if ids else ():
            wanted = ids[index % len(ids)]
            if owners.get(index, wanted) == wanted:
                plan[wanted].append(index)
        return plan

    def _on_error(self, code: int) -> None:
        if code in REJOIN_CODES:
            self.rejoin()
        elif code == ErrorCode.REBALANCE_IN_PROGRESS:
            self._must_join = True
        elif code:
            self.lose_coordinator()
