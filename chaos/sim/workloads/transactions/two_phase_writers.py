"""Two-phase commit in the simulator: an outside coordinator decides how transactions end (KIP-939).

A writer writes its transaction, stores the producer id and epoch of it outside, together with the decision, and may die
at any moment before and after that. The next incarnation keeps what is open, and ends it as it was decided. The
outside store never fails. What was decided there is what is read in the end.
"""

from __future__ import annotations

import asyncio

from .....cluster.client.admin_client import NewTopic
from ...invariants.invariant_broken import InvariantBroken
from ...invariants.transaction_invariants import Outcome, Transaction, TransactionHistory
from ..clients import ClientContext
from ..workload import create_topic_until_done
from .committed_reader import CommittedReader
from .transactional_producer import AbortableError, ClientStyle, FencedError, TransactionalProducer

SETTINGS = {"transaction.two.phase.commit.enable": "true"}
"""Settings of the nodes."""
_WRITERS = 2
_PARTITIONS = 2
_DEATH_PROBABILITY = 0.15
_ABORT_PROBABILITY = 0.3
_ZOMBIE_PROBABILITY = 0.3
_PAUSE_S = 0.1
_STALL_S = 1.0
_STYLE = ClientStyle(2)


class TwoPhaseWriters:
    """Writers with an id each, and a reader at read_committed. A `Workload`."""

    name = "two-phase commits"

    def __init__(self, context: ClientContext) -> None:
        self.history = TransactionHistory()
        self.stopping = False
        self.context = context
        self._reader = CommittedReader(context, "two-phase reader", context.topic, self.history.on_read)
        self._writers = [_Writer(self, f"two-phase-{number}") for number in range(_WRITERS)]

    def stop(self) -> None:
        """See `Workload`."""
        self.stopping = True

    async def run(self) -> None:
        """See `Workload`."""
        topic = NewTopic(self.context.topic, _PARTITIONS, -1, {})
        await create_topic_until_done(self._reader.client.cluster, topic)
        await asyncio.gather(self._reader.run(), *(writer.run() for writer in self._writers))

    def why_not_settled(self) -> str | None:
        """See `Workload`."""
        acting = [writer.name for writer in self._writers if writer.is_acting]
        return f"still acting: {acting}" if acting else self._reader.why_behind()

    def check(self) -> None:
        """See `Workload`."""
        self.history.check()


class _Writer:
    """One transactional id, and what its outside coordinator knows."""

    def __init__(self, load: TwoPhaseWriters, name: str) -> None:
        self.name = name
        self.is_acting = True
        self._load = load
        self._incarnation = 0
        self._number = 0
        self._producer: TransactionalProducer | None = None
        self._former: TransactionalProducer | None = None
        self._zombies: list[asyncio.Task[None]] = []
        self._prepared: tuple[tuple[int, int], Transaction] | None = None
        """The producer of the transaction that was prepared last, until its end was answered."""

    async def run(self) -> None:
        """Act until the load stops, and end what is open then."""
        while not self._load.stopping:
            await self._act()
        await self._recover(self._new_producer())
        await asyncio.gather(*self._zombies)
        self.is_acting = False

    async def _act(self) -> None:
        """One incarnation."""
        self._producer = self._new_producer()
        try:
            await self._recover(self._producer)
            goes_on = True
            while goes_on and not self._load.stopping:
                goes_on = await self._transact(self._producer)
                await asyncio.sleep(self._load.context.rng.expovariate(1 / _PAUSE_S))
        except (FencedError, AbortableError) as error:
            detail = f"{self._producer.name}: {error}"
            raise InvariantBroken("a prepared transaction has no time-out, and one producer", detail) from error

    def _new_producer(self) -> TransactionalProducer:
        self._former = self._producer
        self._incarnation += 1
        return TransactionalProducer(self._load.context, f"{self.name}/{self._incarnation}", self.name, _STYLE)

    async def _recover(self, producer: TransactionalProducer) -> None:
        """End what an earlier incarnation left open, as it was decided; what was not prepared is aborted."""
        ongoing = await producer.recover()
        if self._former is not None and self._load.context.rng.random() < _ZOMBIE_PROBABILITY:
            self._zombies.append(asyncio.ensure_future(self._end_as_zombie(self._former)))
        prepared, self._prepared = self._prepared, None
        is_prepared = prepared is not None and prepared[0] == ongoing
        if prepared is not None and not is_prepared and prepared[1].outcome is Outcome.ASKED:
            prepared[1].outcome = Outcome.COMMITTED  # its end was recorded, and only the answer lost
        if ongoing is None:
            return
        transaction = prepared[1] if prepared is not None and is_prepared else None
        is_commit = transaction is not None and transaction.outcome is Outcome.ASKED
        self._prepared = prepared if is_prepared else None
        await producer.end(commit=is_commit)
        self._prepared = None
        if transaction is not None and is_commit:
            transaction.outcome = Outcome.COMMITTED

    async def _transact(self, producer: TransactionalProducer) -> bool:
        """One transaction; False when the writer dies."""
        rng, topic = self._load.context.rng, self._load.context.topic
        self._number += 1
        name = f"{self.name}/{self._incarnation}/{self._number}"
        transaction = self._load.history.begin(name)
        owner = producer.producer
        for index in range(rng.randrange(1, 4)):
            partition = rng.randrange(_PARTITIONS)
            values = [f"{name}/{index}.{number}" for number in range(rng.randrange(1, 3))]
            await producer.send(topic, partition, values)
            transaction.written.update((value, (topic, partition)) for value in values)
            if self._dies():
                transaction.outcome = Outcome.ABORTED
                return False
        is_commit = rng.random() >= _ABORT_PROBABILITY
        transaction.outcome = Outcome.ASKED if is_commit else Outcome.ABORTED
        self._prepared = owner, transaction
        if self._dies():
            return False
        await producer.end(commit=is_commit)
        self._prepared = None
        if is_commit:
            transaction.outcome = Outcome.COMMITTED
        return not self._dies()

    def _dies(self) -> bool:
        return self._load.context.rng.random() < _DEATH_PROBABILITY

    async def _end_as_zombie(self, producer: TransactionalProducer) -> None:
        """What an incarnation that is not dead asks for later, against every decision, must be refused."""
        rng = self._load.context.rng
        before = producer.producer
        await asyncio.sleep(rng.expovariate(1 / _STALL_S))
        try:
            await producer.end(commit=rng.random() < 0.5)
        except (FencedError, AbortableError):
            return
        raise InvariantBroken("a producer that was replaced ends nothing", f"{producer.name}, {before}")
