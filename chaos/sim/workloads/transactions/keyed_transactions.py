"""Transactions in a compacted topic, which last over several of its segments, and readers that begin again and again.

Each writer has keys of its own, of which it writes some again and again and others seldom, in transactions that are
long beside the time for which a segment is written, and which it commits or aborts. So a batch, the others of its
transaction and its marker are in different segments, and compaction finds them in different passes, or makes
different segments of them in one. Meanwhile readers at both isolation levels read all or some of it, in small
fetches, again and again. A reader at read_committed is shown nothing that was aborted; and from the beginning on, for
each key the last value whose commit was reported by then, or a later one, unless that may be a deletion.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from .....cluster.client.admin_client import NewTopic
from .....isr.results import READ_COMMITTED
from .....wire.records import NewRecord, Record
from ...invariants.invariant_broken import InvariantBroken
from ...invariants.transaction_invariants import Outcome, Place, TransactionHistory
from ..clients import ClientContext
from ..workload import create_topic_until_done
from .committed_reader import CommittedReader
from .transactional_producer import AbortableError, ClientStyle, FencedError, TransactionalProducer

_TOPIC_CONFIGS = {
    "cleanup.policy": "compact",
    "segment.ms": "100",
    "index.interval.bytes": "0",
    "min.cleanable.dirty.ratio": "0.01",
}
_PARTITIONS = 2
_WRITERS = 3
_KEYS = (1, 2, 12)
"""Among so many keys each is drawn: some are written again at once, others stay for long."""
_BATCHES_MAX = 5
_PAUSE_S = 0.12
_DELETION_PROBABILITY = 0.15
_ABORT_PROBABILITY = 0.4
_LEAVE_OPEN_PROBABILITY = 0.05
_TIMEOUT_MS = 4_000
_BYTES_MAX = (300, 1000, 1 << 20)
_READ_PAUSE_S = 0.3
_WHO = "who"
_READ_UNCOMMITTED = 0


class _Written(NamedTuple):
    """A record that was sent, the name of its transaction, and whether it deletes its key."""

    text: str
    transaction: str
    is_deletion: bool


class KeyedHistory(TransactionHistory):
    """What was written under each key, in the order of sending."""

    def __init__(self) -> None:
        super().__init__()
        self._written: dict[tuple[int, str], list[_Written]] = {}

    def on_sent(self, partition: int, key: str, written: _Written) -> None:
        """A record is about to be sent."""
        self._written.setdefault((partition, key), []).append(written)

    def reported(self, partition: int) -> dict[str, int]:
        """The place of the last value of each key whose commit was reported by now."""
        found: dict[str, int] = {}
        for (index, key), values in self._written.items():
            for number, one in enumerate(values):
                if index == partition and self.transactions[one.transaction].outcome is Outcome.COMMITTED:
                    found[key] = number
        return found

    def check_newest(self, partition: int, reported: dict[str, int], shown: dict[str, None]) -> None:
        """A reader was shown these from the beginning on, the end as it was when these were `reported`, or later.

        Raises `InvariantBroken`.
        """
        for key, number in reported.items():
            later = self._written[partition, key][number:]
            may_be_gone = any(one.is_deletion and self._may_be_committed(one) for one in later)
            if not may_be_gone and not any(one.text in shown for one in later):
                detail = f"{key} in {partition}: {later[0].text} was committed, it and all after it are gone"
                raise InvariantBroken("the newest record of each key stays", detail)

    def _may_be_committed(self, one: _Written) -> bool:
        return self.transactions[one.transaction].outcome in (Outcome.ASKED, Outcome.COMMITTED)


class KeyedTransactions:
    """The writers, and a reader at either isolation level. A `Workload`."""

    name = "keyed transactions"

    def __init__(self, context: ClientContext, style: Callable[[], ClientStyle]) -> None:
        """`style` says how a new incarnation of a writer acts."""
        self.history = KeyedHistory()
        self.style = style
        self.stopping = False
        self.context = context
        self._readers = [_Reader(context, self.history, level) for level in (READ_COMMITTED, _READ_UNCOMMITTED)]
        self._writers = [_Writer(self, f"k{n}") for n in range(_WRITERS)]

    def stop(self) -> None:
        """See `Workload`."""
        self.stopping = True

    async def run(self) -> None:
        """See `Workload`."""
        topic = NewTopic(self.context.topic, _PARTITIONS, -1, _TOPIC_CONFIGS)
        await create_topic_until_done(self._readers[0].client.cluster, topic)
        readers = [asyncio.ensure_future(reader.run()) for reader in self._readers]
        await asyncio.gather(*(writer.run() for writer in self._writers))
        for reader in self._readers:
            reader.is_last = True
        await asyncio.gather(*readers)

    def why_not_settled(self) -> str | None:
        """See `Workload`."""
        acting = [writer.name for writer in self._writers if writer.is_acting]
        if acting:
            return f"still acting: {acting}"
        return next((why for reader in self._readers if (why := reader.why_not_whole()) is not None), None)

    def check(self) -> None:
        """All was judged as it was read."""


class _Writer:
    """One transactional id, whose incarnations follow each other."""

    def __init__(self, load: KeyedTransactions, name: str) -> None:
        self.name = name
        self.is_acting = True
        self._load = load
        self._incarnation = 0

    async def run(self) -> None:
        """Act until the load stops; the last incarnation ends what is open."""
        while not self._load.stopping:
            await self._act()
        while not await self._act(is_last=True):
            pass
        self.is_acting = False

    async def _act(self, *, is_last: bool = False) -> bool:
        """Act as a new incarnation until it ends; returns whether it could begin."""
        load = self._load
        self._incarnation += 1
        name = f"{self.name}/{self._incarnation}"
        producer = TransactionalProducer(load.context, name, self.name, load.style(), _TIMEOUT_MS)
        try:
            await producer.init()
            number = 0
            while not (load.stopping or is_last):
                number += 1
                if not await self._transact(producer, f"{name}/{number}"):
                    break
        except (FencedError, AbortableError):
            return False
        return True

    async def _transact(self, producer: TransactionalProducer, name: str) -> bool:
        """One transaction; False if it is left open."""
        rng = self._load.context.rng
        transaction = self._load.history.begin(name)
        try:
            for index in range(rng.randrange(1, _BATCHES_MAX + 1)):
                await self._write(producer, f"{name}/{index}")
                await asyncio.sleep(rng.expovariate(1 / _PAUSE_S))
        except AbortableError:
            transaction.outcome = Outcome.ABORTED
            await producer.end(commit=False)
            return True
        draw = rng.random()
        if draw < _LEAVE_OPEN_PROBABILITY:
            return False
        is_commit = draw > _LEAVE_OPEN_PROBABILITY + _ABORT_PROBABILITY
        transaction.outcome = Outcome.ASKED if is_commit else Outcome.ABORTED
        await producer.end(commit=is_commit)
        if is_commit:
            transaction.outcome = Outcome.COMMITTED
        return True

    async def _write(self, producer: TransactionalProducer, text: str) -> None:
        context, history = self._load.context, self._load.history
        rng, now_ms, partition = context.rng, context.wall_ms(), context.rng.randrange(_PARTITIONS)
        transaction, _, index = text.rpartition("/")
        records = []
        for number in range(rng.randrange(1, 3)):
            key, is_deletion = f"{self.name}-{rng.randrange(rng.choice(_KEYS))}", rng.random() < _DELETION_PROBABILITY
            who = f"{transaction}/{index}.{number}"
            history.on_sent(partition, key, _Written(who, transaction, is_deletion))
            value = None if is_deletion else b"v" * 20
            records.append(NewRecord(key.encode(), value, ((_WHO, who.encode()),), now_ms))
        await producer.send_records(context.topic, partition, records)


class _Reader(CommittedReader):
    """Reads each partition again and again, from its beginning or from somewhere in it, to where it ended then."""

    def __init__(self, context: ClientContext, history: KeyedHistory, isolation_level: int) -> None:
        super().__init__(context, f"keys at isolation level {isolation_level}", context.topic, self._on_shown)
        self.isolation_level = isolation_level
        self.is_last = False
        """The writers have ended."""
        self._context = context
        self._history = history
        self._passes: dict[int, _Pass] = {}
        self._whole: dict[int, None] = {}
        """The partitions that were read as a whole since the writers have ended."""

    def text_of(self, record: Record) -> str:
        """See `CommittedReader`."""
        return next(bytes(value or b"").decode() for key, value in record.headers if key == _WHO)

    def draw_bytes_max(self) -> int:
        """See `CommittedReader`."""
        return self._context.rng.choice(_BYTES_MAX)

    def check_is_ended(self, partition: int, producer_id: int, offset: int) -> None:
        """The marker may be gone; `CleanedAnswers` knows what was committed."""

    def _on_shown(self, place: Place, offset: int, text: str) -> None:
        if self.isolation_level == READ_COMMITTED:
            self._history.on_read(place, offset, text)
        one = self._passes.get(place[1])
        if one is not None:
            one.shown[text] = None

    async def pause(self, partition: int) -> None:
        """See `CommittedReader`."""
        one = self._passes.get(partition)
        if one is not None and self.positions[partition] < one.end_offset:
            return
        if one is not None and one.is_whole:
            self._history.check_newest(partition, one.reported, one.shown)
            if one.is_last:
                self._whole[partition] = None
        rng = self._context.rng
        await asyncio.sleep(rng.expovariate(1 / _READ_PAUSE_S))
        log = self._context.checker.committed.get((self.client.topic_id, partition))
        end_offset = 0 if log is None else log.promised_end_offset
        start = 0 if rng.random() < 0.5 else rng.randrange(end_offset + 1)
        reported = self._history.reported(partition)
        self._passes[partition] = _Pass(end_offset, start == 0, self.is_last, reported, {})
        self.positions[partition] = start

    def why_not_whole(self) -> str | None:
        """A partition that was not read as a whole since the writers have ended; None if there is none."""
        left = [index for index in range(_PARTITIONS) if index not in self._whole]
        return f"{left} were not read from the beginning at level {self.isolation_level}" if left else None


class _Pass(NamedTuple):
    """Reading a partition once: to where it ended when that began, what was reported then, and what was shown."""

    end_offset: int
    is_whole: bool
    is_last: bool
    reported: dict[str, int]
    shown: dict[str, None]
