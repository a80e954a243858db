"""Read, process, write by the members of one group in the simulator, each with a transactional id of its own (KIP-447).

No transactional id fences the processor that had a partition before: the group does, by member and generation. A member
may stall in the middle of a transaction for longer than its session, while another one goes on from the offsets that
are committed. Whatever the first one has written for these records must then be aborted. Every record of the main topic
has exactly one effect.
"""

from __future__ import annotations

import asyncio
from uuid import UUID

from .....cluster.client.admin_client import NewTopic
from ...invariants.client_invariants import History
from ...invariants.transaction_invariants import EffectHistory
from ..clients import ClientContext, TopicConsumer
from ..groups.consumer_groups import PROTOCOLS, GroupLoad
from ..groups.group_member import GROUP, STALL_PROBABILITY, STALL_S, MemberIncarnation
from ..groups.member_protocols import ClassicIncarnation, ConsumerIncarnation
from ..workload import create_topic_until_done
from .committed_reader import CommittedReader
from .transactional_producer import AbortableError, ClientStyle, FencedError, GroupMember, TransactionalProducer

_PARTITIONS = 2
_VERSIONS = (1, 2)
_TIMEOUT_MS = 12_000
"""Longer than a stall: the coordinator does not end the transaction of a member that stalls."""


class GroupedProcessors(GroupLoad):
    """The members of one group that process the main topic. A `Workload`."""

    name = "grouped processors"

    def __init__(self, context: ClientContext, main: ClientContext) -> None:
        """`context.topic` gets the effects of the records of `main.topic`."""
        super().__init__(main, History(), context.rng.choice((("consumer",), ("classic",), PROTOCOLS)))
        self.kinds = {"consumer": _ConsumerProcessor, "classic": _ClassicProcessor}
        self.effects_context = context
        self._effects = EffectHistory()
        self._main = main
        self._reader = CommittedReader(context, "grouped effects", context.topic, self._effects.on_read)
        self._main_topic = TopicConsumer(main, "grouped input").client

    async def run(self) -> None:
        """See `Workload`."""
        topic = NewTopic(self.effects_context.topic, _PARTITIONS, -1, {})
        await create_topic_until_done(self._reader.client.cluster, topic)
        await self._main_topic.until_known()
        await asyncio.gather(self._reader.run(), super().run())

    def why_not_settled(self) -> str | None:
        """See `Workload`. Processing goes on until all input has its effect."""
        inputs = {
            index: range(log.end_offset)
            for (known, index), log in self._main.checker.committed.items()
            if known == self._topic_id
        }
        return self._effects.why_incomplete(inputs) or self._reader.why_behind()

    def check(self) -> None:
        """See `Workload`: effects are judged when they are read."""

    @property
    def _topic_id(self) -> UUID:
        return self._main_topic.topic_id


class _Processor(MemberIncarnation):
    """A member that processes what it owns. Its transactional id is that of the member."""

    group: GroupedProcessors

    def __init__(self, group: GroupLoad, context: ClientContext, reader: TopicConsumer, name: str) -> None:
        super().__init__(group, context, reader, name)
        self._producer: TransactionalProducer | None = None

    async def take_part(self) -> None:
        """One round: stay in the group, take over partitions, and process some of each in a transaction."""
        if not await self.may_go_on():
            return
        await self.stay()
        try:
            producer = self._producer
            if producer is None:
                producer = self._producer = await self._begin()
            await self._take_over_from_group(producer)
            for partition in self.owned:
                await self._process(producer, partition)
        except FencedError:
            self._producer = None
            self.owned = ()

    async def _begin(self) -> TransactionalProducer:
        effects, rng = self.group.effects_context, self.context.rng
        style = ClientStyle(rng.choice(_VERSIONS))
        producer = TransactionalProducer(effects, f"processor {self.name}", f"grouped-{self.name}", style, _TIMEOUT_MS)
        await producer.init()
        return producer

    async def _take_over_from_group(self, producer: TransactionalProducer) -> None:
        """Begin where the group has committed; waits for transactions that are about to commit offsets."""
        added = [index for index in self.assigned if index not in self.owned]
        if added:
            offsets = await producer.fetch_offsets(GROUP, self.context.topic, added)
            for index, offset in offsets.items():
                self.reader.start_at(index, offset)
            self.owned = tuple(sorted((*self.owned, *offsets)))

    async def _process(self, producer: TransactionalProducer, partition: int) -> None:
        before = self.reader.positions[partition]
        if await self.reader.fetch(partition):
            await self.reader.client.refresh()
        after = self.reader.positions[partition]
        if after == before:
            return
        try:
            await self._transact(producer, partition, range(before, after))
        except AbortableError:
            self.owned = ()  # the offsets are read again
            try:
                await producer.end(commit=False)
            except AbortableError as error:
                raise FencedError(str(error)) from error

    async def _transact(self, producer: TransactionalProducer, partition: int, offsets: range) -> None:
        """Write the effects, stall perhaps, and commit the group's offset behind them."""
        effects, rng = self.group.effects_context, self.context.rng
        member = GroupMember(self.id, self.epoch)
        await producer.send(effects.topic, rng.randrange(_PARTITIONS), [f"{partition}/{one}" for one in offsets])
        if not self.group.stopping and rng.random() < STALL_PROBABILITY:
            await asyncio.sleep(STALL_S)
        await producer.send_offsets(GROUP, self.context.topic, {partition: offsets.stop}, member)
        await producer.end(commit=True)


class _ConsumerProcessor(_Processor, ConsumerIncarnation):
    """By ConsumerGroupHeartbeat."""


class _ClassicProcessor(_Processor, ClassicIncarnation):
    """By JoinGroup and SyncGroup."""
