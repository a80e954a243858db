"""How a member of a group takes part by each of the two protocols: what it sends, and how it gets its assignment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .....broker.groups.classic.consumer_protocol import (
    read_assignment,
    read_subscription,
    write_assignment,
    write_subscription,
)
from .....broker.groups.consumer.consumer_group_member import LEAVE_EPOCH, LEAVE_STATIC_EPOCH
from .....wire.api_keys import ApiKey
from .....wire.codec import Struct
from .....wire.errors import ErrorCode
from ..clients import ClientContext, TopicConsumer
from .group_member import GROUP, REJOIN_CODES, MemberIncarnation

if TYPE_CHECKING:
    from .consumer_groups import GroupLoad

REBALANCE_TIMEOUT_MS = 2_000
_HEARTBEAT = 1
_COMES_BACK_PROBABILITY = 0.7


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
        """See `MemberIncarnation`. A static member says whether it will come back."""
        comes_back = self.instance_id is not None and self.context.rng.random() < _COMES_BACK_PROBABILITY
        epoch = LEAVE_STATIC_EPOCH if comes_back else LEAVE_EPOCH
        return await self._heartbeat(epoch) in (ErrorCode.NONE, *REJOIN_CODES, ErrorCode.GROUP_ID_NOT_FOUND)

    async def stay(self) -> None:
        """See `MemberIncarnation`."""
        await self._heartbeat(self.epoch)

    async def _heartbeat(self, epoch: int) -> int:
        self.note_asking()
        topic_id = self.reader.client.topic_id
        owned = [{"topic_id": topic_id, "partitions": list(self.owned)}] if self.owned else []
        fields = {"group_id": GROUP, "member_id": self.id, "member_epoch": epoch}
        joining = (
            {"rebalance_timeout": REBALANCE_TIMEOUT_MS, "subscribed_topic_names": [self.context.topic]}
            if epoch == 0 or self._must_send_all_fields
            else {}
        )
        staying = {"instance_id": self.instance_id, "rebalance_timeout": -1, "subscribed_topic_names": None}
        rest = {"rack_id": None, "subscribed_topic_regex": None, "server_assignor": None, "topic_partitions": owned}
        answer = await self.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, _HEARTBEAT, {**fields, **rest, **staying, **joining})
        # The group became a classic one when its last member of this protocol expired: join it again.
        if answer.error_code in (*REJOIN_CODES, ErrorCode.GROUP_ID_NOT_FOUND):
            self.rejoin()
        elif answer.error_code == ErrorCode.UNRELEASED_INSTANCE_ID:
            self._must_send_all_fields = True  # it can join when the session of the incarnation before has ended
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
        """See `MemberIncarnation`. As in Java, a static member mostly ends without a word."""
        if self.instance_id is not None and self.context.rng.random() < _COMES_BACK_PROBABILITY:
            return True
        fields = {"group_id": GROUP, "members": [{"member_id": self.id, "group_instance_id": self.instance_id}]}
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
            code = (await self.ask(ApiKey.HEARTBEAT, 4, self._who())).error_code
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
            "group_instance_id": self.instance_id,
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
        # Who comes back as the leader is told of the members, and that their assignments stand (KIP-814).
        members = () if answer.skip_assignment else answer.members
        plan = self._plan(members)
        keys = {one.member_id: one.group_instance_id or one.member_id for one in members}
        self.group.note_plan(self.epoch, {keys[one]: parts for one, parts in plan.items()})
        await self._sync(plan)

    async def _sync(self, plan: dict[str, list[int]]) -> None:
        self.note_asking()
        topic = self.context.topic
        fields = {
            **self._who(),
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
        self.group.check_assigned(self.key, self.epoch, self.assigned)
        kept = tuple(index for index in self.owned if index in self.assigned)
        self._must_join = kept != self.owned
        self.give_up(kept)

    def _who(self) -> dict[str, Any]:
        who = {"group_id": GROUP, "generation_id": self.epoch, "member_id": self.id}
        return {**who, "group_instance_id": self.instance_id}

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
