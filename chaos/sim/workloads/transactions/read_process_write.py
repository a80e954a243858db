"""Read, process, write in the simulator: offsets are committed in the transactions that write their effects (KIP-447).

Every record of the main topic has exactly one effect, whatever dies in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from uuid import UUID

from .....cluster.client.admin_client import NewTopic
from .....cluster.client.cluster_client import NO_ANSWER
from ...invariants.transaction_invariants import EffectHistory, ReportedOffsets
from ..clients import ClientContext, TopicConsumer
from ..workload import create_topic_until_done
from .committed_reader import CommittedReader
from .transactional_producer import AbortableError, ClientStyle, FencedError, TransactionalProducer

_GROUP = "exactly-once"
_ID = "processor"
_PARTITIONS = 2
_ABORT_PROBABILITY = 0.1
_LONG_ABORT_PROBABILITY = 0.7
_RESTART_PROBABILITY = 0.1
_ZOMBIE_PROBABILITY = 0.05
_LONG_PROBABILITY = 0.15
_STALL_S = 1.0
_RETRY_PAUSE_S = 0.05
_TIMEOUT_MS = 2_500


class ReadProcessWrite:
    """A processor with one transactional id, of which two incarnations may act at a time. A `Workload`."""

    name = "read-process-write"

    def __init__(self, context: ClientContext, main: ClientContext, style: Callable[[], ClientStyle]) -> None:
        """`context.topic` gets the effects of the records of `main.topic`."""
        self.effects = EffectHistory()
        self.offsets = ReportedOffsets()
        self.stopping = False
        self.style = style
        self.context = context
        self.main = main
        self._incarnations = 0
        self._main_topic_id: UUID | None = None
        self._reader = CommittedReader(context, "effects", context.topic, self.effects.on_read)

    def stop(self) -> None:
        """See `Workload`. Processing goes on until all input has its effect."""
        self.stopping = True

    async def run(self) -> None:
        """See `Workload`."""
        await create_topic_until_done(self._reader.client.cluster, NewTopic(self.context.topic, _PARTITIONS, -1, {}))
        await asyncio.gather(self._reader.run(), self._process())

    def why_not_settled(self) -> str | None:
        """See `Workload`."""
        return self.effects.why_incomplete(self._inputs()) or self._reader.why_behind()

    def check(self) -> None:
        """See `Workload`: effects are judged when they are read."""

    def _inputs(self) -> dict[int, range]:
        """The offsets of the main topic, which holds nothing but records."""
        return {
            index: range(log.end_offset)
            for (known, index), log in self.context.checker.committed.items()
            if known == self._main_topic_id
        }

    async def _process(self) -> None:
        zombies: list[asyncio.Task[bool]] = []
        while True:
            self._incarnations += 1
            one = _Processor(self, f"{_ID}/{self._incarnations}")
            try:
                await one.begin()
                self._main_topic_id = one.input.client.topic_id
                while await one.step():
                    if not self.stopping and self.context.rng.random() < _ZOMBIE_PROBABILITY:
                        zombies.append(asyncio.ensure_future(one.stall_and_go_on()))
                        break
            except FencedError:
                continue


class _Processor:
    """One incarnation of the processor."""

    def __init__(self, load: ReadProcessWrite, name: str) -> None:
        self.input = TopicConsumer(load.main, name)
        self._load = load
        self._producer = TransactionalProducer(load.context, name, _ID, load.style(), _TIMEOUT_MS)
        self._must_fetch_offsets = True

    async def begin(self) -> None:
        """Fence the incarnation before, and learn the input's partitions."""
        await self.input.client.until_known()
        await self._producer.init()

    async def stall_and_go_on(self) -> bool:
        """As a zombie: go on after a while, until the cluster says no."""
        await asyncio.sleep(self._load.context.rng.expovariate(1 / _STALL_S))
        try:
            while await self.step() and not self._load.stopping:
                pass
        except FencedError:
            return False
        return True

    async def step(self) -> bool:
        """Process what can be read of one partition in a transaction; False when this incarnation stops by itself."""
        rng, topic = self._load.context.rng, self._load.main.topic
        partitions = [each.partition for each in self.input.client.partitions]
        try:
            if self._must_fetch_offsets:
                reported = self._load.offsets.by_now()
                offsets = await self._producer.fetch_offsets(_GROUP, topic, partitions)
                self._load.offsets.check(reported, offsets)
                for index, offset in offsets.items():
                    self.input.start_at(index, offset)
                self._must_fetch_offsets = False
            partition = rng.choice(partitions)
            before = self.input.positions[partition]
            try:
                code = await self.input.fetch(partition)
            except NO_ANSWER:
                code = 1
            if code:
                await asyncio.sleep(_RETRY_PAUSE_S)
                await self.input.client.refresh()
            after = self.input.positions[partition]
            if after == before:
                return True
            await self._transact(topic, partition, range(before, after))
        except AbortableError:
            self._must_fetch_offsets = True
            try:
                await self._producer.end(commit=False)
            except AbortableError as error:
                raise FencedError(str(error)) from error
            return True
        return self._load.stopping or rng.random() >= _RESTART_PROBABILITY

    async def _transact(self, topic: str, partition: int, offsets: range) -> None:
        """The effects of these input records, and the group's offset behind them, in either order."""
        load, rng = self._load, self._load.context.rng
        values = [f"{partition}/{offset}" for offset in offsets]
        is_offset_first = rng.random() < 0.3
        if is_offset_first:
            await self._producer.send_offsets(_GROUP, topic, {partition: offsets.stop})
        await self._producer.send(load.context.topic, rng.randrange(_PARTITIONS), values)
        if not is_offset_first:
            await self._producer.send_offsets(_GROUP, topic, {partition: offsets.stop})
        is_long = not load.stopping and rng.random() < _LONG_PROBABILITY
        if is_long:  # offsets that will not take effect are the newest in the log meanwhile, which may be compacted
            await asyncio.sleep(rng.expovariate(1 / _STALL_S))
        is_committed = load.stopping or rng.random() >= (_LONG_ABORT_PROBABILITY if is_long else _ABORT_PROBABILITY)
        self._must_fetch_offsets = not is_committed
        await self._producer.end(commit=is_committed)
        if is_committed:
            load.offsets.on_reported(partition, offsets.stop)
