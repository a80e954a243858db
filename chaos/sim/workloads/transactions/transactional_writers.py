"""Transactions over several partitions in the simulator: commits, aborts, zombies, transactions that nobody ends.

Writers that are often idle lose their transactional ids, which expire, and their state in the partitions. In the end
all their ids are removed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from .....cluster.client.admin_client import NewTopic
from ...invariants.transaction_invariants import Outcome, TransactionHistory
from ..clients import ClientContext
from ..workload import create_topic_until_done
from .committed_reader import CommittedReader
from .transactional_producer import AbortableError, ClientStyle, FencedError, TransactionalProducer

SETTINGS = {
    "transaction.state.log.num.partitions": "2",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "300",
}
"""Settings of the nodes: transactions that time out end within the run."""
EXPIRATION_SETTINGS = {
    "transactional.id.expiration.ms": "900",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "200",
}
"""Transactional ids expire within the run."""
_WRITERS = 2
_NAME = "w"
_PARTITIONS = 2
_ABORT_PROBABILITY = 0.25
_LEAVE_OPEN_PROBABILITY = 0.07
_ZOMBIE_PROBABILITY = 0.12
_CARELESS_PROBABILITY = 0.15
_IDLE_STALL_PROBABILITY = 0.5
_NEW_ID_PROBABILITY = 0.2
_STALL_MAX_S = 4.0
_PAUSE_S = 0.05
_TIMEOUT_MS = 2_500
_LONG_TIMEOUT_MS = 8_000
_IDLE_PROBABILITY = 0.15
_IDLE_S = (0.5, 3.0)
_IDLE_IN_TRANSACTION_PROBABILITY = 0.08
_IDLE_IN_TRANSACTION_S = (1.0, 7.0)


class TransactionalWriters:
    """Writers with an id each, and a reader at read_committed. A `Workload`."""

    name = "transactions"

    def __init__(self, context: ClientContext, style: Callable[[], ClientStyle], *, ids_expire: bool = False) -> None:
        """`style` says how a new incarnation acts. `ids_expire`: at rest, no transactional id is known any more."""
        self._ids_expire = ids_expire
        self.history = TransactionHistory()
        self.stopping = False
        self.style = style
        self._context = context
        self._reader = CommittedReader(context, "committed reader", context.topic, self.history.on_read)
        self._writers = [_Writer(self, context, f"{_NAME}{n}") for n in range(_WRITERS)]

    def stop(self) -> None:
        """See `Workload`."""
        self.stopping = True

    async def run(self) -> None:
        """See `Workload`."""
        topic = NewTopic(self._context.topic, _PARTITIONS, -1, {})
        await create_topic_until_done(self._reader.client.cluster, topic)
        await asyncio.gather(self._reader.run(), *(writer.run() for writer in self._writers))

    def why_not_settled(self) -> str | None:
        """See `Workload`."""
        acting = [str(writer) for writer in self._writers if writer.acting]
        if acting:
            return f"still acting: {acting}"
        known = self._context.checker.transactions.ids_in_use(_NAME) if self._ids_expire else []
        return f"not removed: {known}" if known else self._reader.why_behind()

    def check(self) -> None:
        """See `Workload`."""
        self.history.check()


class _Writer:
    """A sequence of incarnations, of which two may act at a time; mostly the next one has the same transactional id.

    If it has another one, nobody but the coordinator's clock ends what was left open.
    """

    def __init__(self, load: TransactionalWriters, context: ClientContext, name: str) -> None:
        self.acting = 1
        self._load = load
        self._context = context
        self._name = self._transactional_id = name
        self._incarnation = 0

    def __str__(self) -> str:
        return f"{self._name}, incarnation {self._incarnation}"

    async def run(self) -> None:
        """Act until the load stops; the last incarnation ends its transaction."""
        zombies: list[asyncio.Task[None]] = []
        while not self._load.stopping:
            self._incarnation += 1
            if self._context.rng.random() < _NEW_ID_PROBABILITY:
                self._transactional_id = f"{self._name}-{self._incarnation}"
            name = f"{self._name}/{self._incarnation}"
            becomes_zombie = await self._act(name)
            if becomes_zombie is not None:
                zombies.append(asyncio.ensure_future(becomes_zombie.go_on()))
        self._incarnation += 1
        last = self._new(f"{self._name}/{self._incarnation}")
        while not await last.begin() or not await last.transact(must_commit=True):
            self._incarnation += 1
            last = self._new(f"{self._name}/{self._incarnation}")
        await asyncio.gather(*zombies)
        self.acting = 0

    def _new(self, name: str) -> _Incarnation:
        return _Incarnation(self._load, self._context, self._transactional_id, name)

    async def _act(self, name: str) -> _Incarnation | None:
        """Act as an incarnation until it ends; returns it if it stalls, and goes on after another has begun."""
        one = self._new(name)
        if not await one.begin():
            return None
        rng = self._context.rng
        while not self._load.stopping:
            if rng.random() < _ZOMBIE_PROBABILITY:
                return one
            if not await one.transact(stall_s=one.draw_stall_s()):
                return None
            is_idle = one.is_often_idle and rng.random() < _IDLE_PROBABILITY
            await asyncio.sleep(rng.uniform(*_IDLE_S) if is_idle else rng.expovariate(1 / _PAUSE_S))
        return None


class _Incarnation:
    """One run of a writer."""

    def __init__(self, load: TransactionalWriters, context: ClientContext, transactional_id: str, name: str) -> None:
        self._load = load
        self._context = context
        self._name = name
        self._number = 0
        style = load.style()
        self.is_often_idle = style.is_often_idle
        timeout_ms = _LONG_TIMEOUT_MS if self.is_often_idle else _TIMEOUT_MS
        self._producer = TransactionalProducer(context, name, transactional_id, style, timeout_ms)

    def draw_stall_s(self) -> float:
        """For how long to stall in the next transaction."""
        rng = self._context.rng
        is_idle = self.is_often_idle and rng.random() < _IDLE_IN_TRANSACTION_PROBABILITY
        return rng.uniform(*_IDLE_IN_TRANSACTION_S) if is_idle else 0.0

    async def begin(self) -> bool:
        """Get the producer id; False if another incarnation was faster."""
        try:
            await self._producer.init()
        except (FencedError, AbortableError):
            return False
        return True

    async def go_on(self) -> None:
        """As a zombie: stall in the middle of a transaction, and then go on until the cluster says no.

        One that is careless may stall without a transaction, and then asks for its next epoch.
        """
        rng = self._context.rng
        stall_s = rng.uniform(0.1, _STALL_MAX_S)
        if self._producer.is_careless and rng.random() < _IDLE_STALL_PROBABILITY:
            await asyncio.sleep(stall_s)
            is_alive = await self._renew()
        else:
            is_alive = await self.transact(stall_s=stall_s)
        while is_alive and not self._load.stopping:
            is_alive = await self.transact()

    async def _renew(self) -> bool:
        """Ask for the next epoch; False if another incarnation has taken over."""
        try:
            await self._producer.next_producer()
        except (FencedError, AbortableError):
            return False
        return True

    async def transact(self, *, stall_s: float = 0.0, must_commit: bool = False) -> bool:
        """One transaction; False when this incarnation is over."""
        rng = self._context.rng
        self._number += 1
        transaction = self._load.history.begin(f"{self._name}/{self._number}")
        try:
            if self._producer.is_careless:
                await self._act_carelessly()
            try:
                await self._write(transaction.written, stall_s)
            except AbortableError:
                transaction.outcome = Outcome.ABORTED
                await self._producer.end(commit=False)
                return not must_commit
            draw = rng.random()
            if draw < _LEAVE_OPEN_PROBABILITY and not must_commit:
                return False  # the next incarnation, or the coordinator's clock, aborts it
            if draw < _ABORT_PROBABILITY and not must_commit:
                transaction.outcome = Outcome.ABORTED
                await self._producer.end(commit=False)
                return True
            transaction.outcome = Outcome.ASKED
            await self._producer.end(commit=True)
            transaction.outcome = Outcome.COMMITTED
        except (FencedError, AbortableError):
            return False
        return True

    async def _act_carelessly(self) -> None:
        """Ask for what a client may ask for, though this one has no reason to."""
        draw = self._context.rng.random()
        if draw < _CARELESS_PROBABILITY:
            await self._producer.next_producer()
        elif draw < 2 * _CARELESS_PROBABILITY:
            await self._producer.end(commit=True)

    async def _write(self, written: dict[str, tuple[str, int]], stall_s: float) -> None:
        rng, topic = self._context.rng, self._context.topic
        places = [rng.randrange(_PARTITIONS) for _ in range(rng.randrange(1, 4))]
        for index, partition in enumerate(places):
            values = [f"{self._name}/{self._number}/{index}.{n}" for n in range(rng.randrange(1, 4))]
            await self._producer.send(topic, partition, values)
            written.update((value, (topic, partition)) for value in values)
            if stall_s and index == len(places) - 1:
                await asyncio.sleep(stall_s)
