"""Transactional ids in the simulator that one producer takes over from another, while both act at full speed.

The successor begins at any moment of the former producer's transaction, which goes on until it is told that it is
over. When the successor is answered, requests of the former one are still being sent: to the partitions, the group and
the coordinator to which the successor writes first, within the same round trip, and in either version of the protocol.

"A producer that has a successor is refused": whatever it sends after its successor's InitProducerId was answered, in
every partition of the request. "A producer without a successor is not refused": with a time-out that never comes, it
is told nothing but to ask again. A client that got no answer may have sent a request that arrives later, after the
next ones: then it is not judged. Offsets that a former producer sends are never seen.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from .....cluster.client.admin_client import NewTopic
from .....cluster.client.client_errors import ClientError
from .....cluster.client.cluster_client import NO_ANSWER
from .....wire.api_keys import ApiKey
from .....wire.errors import ErrorCode
from ...invariants.invariant_broken import InvariantBroken
from ...invariants.transaction_invariants import Outcome, Transaction, TransactionHistory
from ..clients import ClientContext, TopicClient, find_coordinator
from ..workload import create_topic_until_done
from .committed_reader import CommittedReader
from .transactional_producer import (
    GROUP_KEY,
    TRANSACTION_KEY,
    AbortableError,
    ClientStyle,
    FencedError,
    TransactionalProducer,
    produce_fields,
    records_of,
    transactional_batch,
)

_IDS = 2
_PARTITIONS = 3
_TIMEOUT_MS = 600_000
_ABORT_PROBABILITY = 0.25
_OFFSETS_PROBABILITY = 0.7
_PAUSE_S = 0.02
_ALONE_S = 0.25
_LATE_S = (0.0, 0.0, 0.0, 0.001, 0.002, 0.003, 0.005, 0.01, 0.02, 0.1)
"""When a request of the former producer is sent, after its successor was answered."""
_LATE_REQUESTS = 16
_LATE_RECORDS = 5
"""More than a batch of the former producer had, so that it is not taken for one of them."""
_OFFSETS_OF_FORMER = 1_000_000
_PATIENCE_S = 3.0


class ContestedTransactions:
    """Some transactional ids with their producers, and a reader at read_committed. A `Workload`."""

    name = "contested transactions"

    def __init__(self, context: ClientContext, style: Callable[[], ClientStyle]) -> None:
        self.history = TransactionHistory()
        self.stopping = False
        self.style = style
        self.context = context
        self._reader = CommittedReader(context, "contested reader", context.topic, self.history.on_read)
        self._ids = [_ContestedId(self, f"contested-{number}") for number in range(_IDS)]

    def stop(self) -> None:
        """See `Workload`."""
        self.stopping = True

    async def run(self) -> None:
        """See `Workload`."""
        topic = NewTopic(self.context.topic, _PARTITIONS, -1, {})
        await create_topic_until_done(self._reader.client.cluster, topic)
        await asyncio.gather(self._reader.run(), *(one.run() for one in self._ids))

    def why_not_settled(self) -> str | None:
        """See `Workload`."""
        acting = [one.name for one in self._ids if one.is_acting]
        return f"still acting: {acting}" if acting else self._reader.why_behind()

    def check(self) -> None:
        """See `Workload`."""
        self.history.check()


class _ContestedId:
    """A transactional id, and its producers one after the other."""

    def __init__(self, load: ContestedTransactions, name: str) -> None:
        self.name = name
        self.is_acting = True
        self.group = name
        self.offset = 0
        """The last offset that any producer of the id has sent for its group."""
        self._load = load
        self._count = 0
        self._late: list[asyncio.Task[None]] = []

    async def run(self) -> None:
        """Act until the load stops; the last producer commits."""
        rng = self._load.context.rng
        holder = await self._next(None)
        while not self._load.stopping:
            acting = asyncio.get_running_loop().create_task(holder.act(), name=holder.name)
            await asyncio.sleep(rng.expovariate(1 / _ALONE_S))
            following = await self._next(holder)
            self._late.append(acting)
            holder = following
        await asyncio.gather(*self._late)
        await holder.transact(must_commit=True)
        self.is_acting = False

    async def _next(self, former: _Holder | None) -> _Holder:
        """The next producer, once it is answered. Requests of the former one are on their way then."""
        self._count += 1
        following = _Holder(self._load, self, f"{self.name}/{self._count}")
        late = None
        if former is not None:
            late = LateRequests(self._load, former.producer, self.name, self.group, f"{former.name}/late")
            await late.connect()
        await following.producer.connect(self._load.context.topic, self.group)
        if former is not None:
            former.has_successor = True
        await following.begin()
        if late is not None:
            late.begin()
            spawn = asyncio.get_running_loop().create_task
            self._late.extend(spawn(late.send_one(), name=late.name) for _ in range(_LATE_REQUESTS))
        return following


class _Holder:
    """One producer of the id."""

    def __init__(self, load: ContestedTransactions, owner: _ContestedId, name: str) -> None:
        self.name = name
        self.has_successor = False
        self.producer = TransactionalProducer(load.context, name, owner.name, load.style(), _TIMEOUT_MS)
        self._load = load
        self._owner = owner
        self._number = 0

    async def begin(self) -> None:
        """Get the producer id and epoch, which nobody contests."""
        try:
            await self.producer.init()
        except (FencedError, AbortableError) as error:
            raise InvariantBroken("a producer without a successor is not refused", str(error)) from error

    async def act(self) -> None:
        """One transaction after the other, until there is a successor and this producer is told so."""
        is_alive = True
        while is_alive:
            is_alive = await self.transact()
            await asyncio.sleep(self._load.context.rng.expovariate(1 / _PAUSE_S))

    async def transact(self, *, must_commit: bool = False) -> bool:
        """One transaction; False when this producer is over."""
        self._number += 1
        transaction = self._load.history.begin(f"{self.name}/{self._number}")
        try:
            offset = await self._write(transaction)
            is_commit = must_commit or self._load.context.rng.random() >= _ABORT_PROBABILITY
            transaction.outcome = Outcome.ASKED if is_commit else Outcome.ABORTED
            await self.producer.end(commit=is_commit)
            if is_commit:
                transaction.outcome = Outcome.COMMITTED
                await self._check_offset(offset)
        except (FencedError, AbortableError) as error:
            if not self.has_successor and not self._may_have_been_late():
                raise InvariantBroken("a producer without a successor is not refused", str(error)) from error
            return False
        return True

    def _may_have_been_late(self) -> bool:
        """Whether a request that was not answered may have arrived after later ones."""
        return bool(self.producer.lost_answers or self.producer.lost_batches)

    async def _write(self, transaction: Transaction) -> int | None:
        """Write to some partitions, and perhaps send an offset at the same time; returns it."""
        rng, topic, offset = self._load.context.rng, self._load.context.topic, None
        for index in range(rng.randrange(1, 3)):
            places = rng.sample(range(_PARTITIONS), rng.randrange(1, _PARTITIONS + 1))
            name = f"{self.name}/{self._number}/{index}"
            values = {one: [f"{name}.{one}.{n}" for n in range(rng.randrange(1, 4))] for one in places}
            requests = [self.producer.send_together(topic, values)]
            if rng.random() < _OFFSETS_PROBABILITY and offset is None:
                self._owner.offset += 1
                offset = self._owner.offset
                requests.append(self.producer.send_offsets(self._owner.group, topic, {0: offset}))
            for result in await asyncio.gather(*requests, return_exceptions=True):
                if result is not None:
                    raise result
            transaction.written.update((value, (topic, one)) for one, some in values.items() for value in some)
        return offset

    async def _check_offset(self, offset: int | None) -> None:
        """What this producer has committed is the group's offset, as long as it has no successor."""
        if offset is None or self.has_successor:
            return
        found = await self.producer.fetch_offsets(self._owner.group, self._load.context.topic, [0])
        if not self.has_successor and found[0] != offset:
            detail = f"{self.name}: {found[0]} instead of {offset}"
            raise InvariantBroken("the offset that the last producer committed is the group's", detail)


class LateRequests:
    """Requests of a producer that has a successor, each sent once on connections of their own."""

    def __init__(
        self, load: ContestedTransactions, former: TransactionalProducer, transactional_id: str, group: str, name: str
    ) -> None:
        self.name = name
        self._context = load.context
        self._history = load.history
        self._former = former
        self._transactional_id = transactional_id
        self._group = group
        self._producer = (-1, -1)
        self._client = TopicClient(load.context, name)
        self._client.topic = load.context.topic
        self._client.cluster.timeout_s = _PATIENCE_S
        self._coordinators: dict[str, tuple[str, int]] = {}
        self._count = 0

    async def connect(self) -> None:
        """Find everybody whom the requests go to, so that these are not later than those of the successor."""
        await self._client.until_known()
        try:
            for leader in dict.fromkeys(each.leader for each in self._client.partitions):
                await self._client.cluster.connection(leader)
            await self._coordinator(GROUP_KEY, self._group)
            await self._coordinator(TRANSACTION_KEY, self._transactional_id)
        except (ClientError, *NO_ANSWER):
            return

    def begin(self) -> None:
        """The successor was answered: go by the last epoch that the former producer had."""
        self._producer = self._former.producer

    async def send_one(self) -> None:
        """Send one request a moment after the successor was answered: it must be refused."""
        rng = self._context.rng
        asks: list[Callable[[], Awaitable[tuple[str, list[int]]]]] = [
            *(self._produce,) * 5,
            *(self._commit_offset,) * 4,
            self._add_partitions,
            self._end,
            self._ask_for_epoch,
        ]
        ask = rng.choice(asks)
        await asyncio.sleep(rng.choice(_LATE_S))
        try:
            what, codes = await ask()
        except (ClientError, *NO_ANSWER):
            return
        if ErrorCode.NONE in codes or ErrorCode.DUPLICATE_SEQUENCE_NUMBER in codes:
            detail = f"{self.name}, {self._producer}: {what} is answered with {codes}"
            raise InvariantBroken("a producer that has a successor is refused", detail)

    async def _produce(self) -> tuple[str, list[int]]:
        rng, topic = self._context.rng, self._context.topic
        self._count += 1
        name = f"{self.name}/{self._count}"
        self._history.begin(name)
        await self._client.until_known()
        leader = rng.choice(self._client.partitions).leader
        batches = {}
        for each in self._client.partitions:
            if each.leader == leader:
                values = [f"{name}/{each.partition}.{n}" for n in range(_LATE_RECORDS)]
                sequence = rng.choice((0, self._former.next_sequence(topic, each.partition)))
                records = records_of(values, self._context.wall_ms())
                batches[each.partition] = transactional_batch(records, self._producer, sequence)
        version = rng.choice((11, 12))
        fields = produce_fields(self._transactional_id, topic, batches)
        answer = await self._client.cluster.request_node(leader, ApiKey.PRODUCE, version, fields)
        rows = answer.responses[0].partition_responses
        return f"Produce {version} to {[*batches]}", [row.error_code for row in rows]

    async def _commit_offset(self) -> tuple[str, list[int]]:
        version = self._context.rng.choice((3, 5))
        self._count += 1
        row = {"partition_index": 0, "committed_offset": _OFFSETS_OF_FORMER + self._count, "committed_metadata": ""}
        fields = {
            **self._who(),
            "group_id": self._group,
            "generation_id": -1,
            "member_id": "",
            "group_instance_id": None,
            "topics": [{"name": self._context.topic, "partitions": [row]}],
        }
        answer = await self._ask(GROUP_KEY, self._group, ApiKey.TXN_OFFSET_COMMIT, version, fields)
        return f"TxnOffsetCommit {version}", [answer.topics[0].partitions[0].error_code]

    async def _add_partitions(self) -> tuple[str, list[int]]:
        partition = self._context.rng.randrange(_PARTITIONS)
        producer_id, epoch = self._producer
        fields = {
            "v3_and_below_transactional_id": self._transactional_id,
            "v3_and_below_producer_id": producer_id,
            "v3_and_below_producer_epoch": epoch,
            "v3_and_below_topics": [{"name": self._context.topic, "partitions": [partition]}],
        }
        answer = await self._ask_coordinator(ApiKey.ADD_PARTITIONS_TO_TXN, 3, fields)
        row = answer.results_by_topic_v3_and_below[0].results_by_partition[0]
        return "AddPartitionsToTxn", [row.partition_error_code]

    async def _end(self) -> tuple[str, list[int]]:
        rng = self._context.rng
        version = rng.choice((3, 5))
        answer = await self._ask_coordinator(ApiKey.END_TXN, version, {**self._who(), "committed": rng.random() < 0.5})
        return f"EndTxn {version}", [answer.error_code]

    async def _ask_for_epoch(self) -> tuple[str, list[int]]:
        fields = {**self._who(), "transaction_timeout": _TIMEOUT_MS}
        answer = await self._ask_coordinator(ApiKey.INIT_PRODUCER_ID, 4, fields)
        return "InitProducerId", [answer.error_code]

    def _who(self) -> dict[str, Any]:
        producer_id, epoch = self._producer
        return {"transactional_id": self._transactional_id, "producer_id": producer_id, "producer_epoch": epoch}

    async def _ask_coordinator(self, api: ApiKey, version: int, fields: dict[str, Any]) -> Any:
        return await self._ask(TRANSACTION_KEY, self._transactional_id, api, version, fields)

    async def _ask(self, key_type: int, key: str, api: ApiKey, version: int, fields: dict[str, Any]) -> Any:
        address = await self._coordinator(key_type, key)
        return await self._client.cluster.request_at(address, api, version, fields)

    async def _coordinator(self, key_type: int, key: str) -> tuple[str, int]:
        found = self._coordinators.get(f"{key_type}/{key}")
        if found is None:
            row = await find_coordinator(self._client.cluster, key, key_type=key_type)
            found = self._coordinators[f"{key_type}/{key}"] = row.host, row.port
        return found
