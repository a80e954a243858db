"""A conversation with a transaction coordinator, to compare the answers of Apache Kafka's with those of ours."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.codec import Struct
from raftwerk.wire.errors import ErrorCode

Ask = Callable[[str, ApiKey, int, Any], Awaitable[Struct]]
"""Sends a request to the coordinator of a transactional id."""
Pause = Callable[[float], Awaitable[None]]

_AGAIN = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)
TOPIC = "flights"
"""It has two partitions."""
CLIENTS = ((1, 3, 1), (4, 4, 3), (5, 5, 4), (5, 5, 5))
"""Versions of EndTxn, InitProducerId and AddPartitionsToTxn that a client uses."""
Producer = tuple[int, int]


class Conversation:
    """One client; `lines` has what it was answered, with producer ids counted from its first one."""

    def __init__(self, ask: Ask, pause: Pause, transactional_id: str) -> None:
        self._ask = ask
        self._pause = pause
        self._id = transactional_id
        self._first_id: int | None = None
        self.lines: list[str] = []

    async def init(self, version: int, what: str = "", *, patient: bool = True, **more: Any) -> Producer:
        fields = {"transactional_id": self._id, "transaction_timeout": 60_000, "producer_id": -1, "producer_epoch": -1}

        async def once() -> tuple[int, ...]:
            answer = await self._ask(self._id, ApiKey.INIT_PRODUCER_ID, version, {**fields, **more})
            return answer.error_code, answer.producer_id, answer.producer_epoch

        code, producer_id, epoch = await (self._again(once) if patient else once())
        if self._first_id is None:
            self._first_id = producer_id
        self._say(f"InitProducerId v{version} {what}", code, producer_id, epoch)
        return producer_id, epoch

    async def add(
        self,
        version: int,
        producer: Producer,
        what: str = "",
        *,
        partitions: tuple[int, ...] = (0,),
        topic: str = TOPIC,
        transactional_id: str | None = None,
        verify_only: bool = False,
    ) -> None:
        name = self._id if transactional_id is None else transactional_id
        topics = [{"name": topic, "partitions": list(partitions)}]

        async def once() -> tuple[int, ...]:
            if version < 4:
                fields: dict[str, Any] = {
                    "v3_and_below_transactional_id": name,
                    "v3_and_below_producer_id": producer[0],
                    "v3_and_below_producer_epoch": producer[1],
                    "v3_and_below_topics": topics,
                }
                answer = await self._ask(self._id, ApiKey.ADD_PARTITIONS_TO_TXN, version, fields)
                found = answer.results_by_topic_v3_and_below
            else:
                one = {
                    "transactional_id": name,
                    "producer_id": producer[0],
                    "producer_epoch": producer[1],
                    "verify_only": verify_only,
                    "topics": topics,
                }
                answer = await self._ask(self._id, ApiKey.ADD_PARTITIONS_TO_TXN, version, {"transactions": [one]})
                found = answer.results_by_transaction[0].topic_results
            return tuple(sorted(row.partition_error_code for one in found for row in one.results_by_partition))

        kind = "verify" if verify_only else "AddPartitionsToTxn"
        codes = await self._again(once)
        self.lines.append(f"{kind} v{version} {what}: {' '.join(ErrorCode(code).name for code in codes)}")

    async def add_offsets(self, version: int, producer: Producer, what: str, name: str | None = None) -> None:
        fields = {
            "transactional_id": self._id if name is None else name,
            "producer_id": producer[0],
            "producer_epoch": producer[1],
            "group_id": "g",
        }

        async def once() -> tuple[int, ...]:
            return ((await self._ask(self._id, ApiKey.ADD_OFFSETS_TO_TXN, version, fields)).error_code,)

        self._say(f"AddOffsetsToTxn v{version} {what}", *await self._again(once))

    async def end(
        self, version: int, producer: Producer, what: str = "", *, commit: bool = True, name: str | None = None
    ) -> Producer:
        fields = {
            "transactional_id": self._id if name is None else name,
            "producer_id": producer[0],
            "producer_epoch": producer[1],
            "committed": commit,
        }

        async def once() -> tuple[int, ...]:
            answer = await self._ask(self._id, ApiKey.END_TXN, version, fields)
            return answer.error_code, answer.get("producer_id", -1), answer.get("producer_epoch", -1)

        code, producer_id, epoch = await self._again(once)
        self._say(f"EndTxn v{version} {'commit' if commit else 'abort'} {what}", code, producer_id, epoch)
        return producer if producer_id < 0 else (producer_id, epoch)

    async def describe(self) -> None:
        answer = await self._ask(self._id, ApiKey.DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": [self._id]})
        row = answer.transaction_states[0]
        partitions = [f"{topic.topic}-{index}" for topic in row.topics for index in sorted(topic.partitions)]
        self.lines.append(f"DescribeTransactions: {row.transaction_state} epoch {row.producer_epoch} {partitions}")

    async def pause(self, seconds: float) -> None:
        """Let time pass."""
        await self._pause(seconds)

    async def _again(self, once: Callable[[], Awaitable[tuple[int, ...]]]) -> tuple[int, ...]:
        """As clients do: ask again while the coordinator asks for patience."""
        for _ in range(400):
            answer = await once()
            if answer[0] not in _AGAIN:
                return answer
            await asyncio.sleep(0.05)
        return answer

    def _say(self, what: str, code: int, producer_id: int = -1, epoch: int = -1) -> None:
        number = producer_id if producer_id < 0 or self._first_id is None else producer_id - self._first_id
        granted = f" producer {number} epoch {epoch}" if producer_id >= 0 else ""
        self.lines.append(f"{what}: {ErrorCode(code).name}{granted}")


async def converse(ask: Ask, pause: Pause) -> list[str]:
    """The whole conversation, with clients of each generation."""
    lines: list[str] = []
    for number, versions in enumerate(CLIENTS):
        one = Conversation(ask, pause, f"t{number}")
        await _life(one, *versions)
        lines += [
            f"== EndTxn {versions[0]}, InitProducerId {versions[1]}, AddPartitionsToTxn {versions[2]}",
            *one.lines,
        ]
    for number, (end_version, add_version) in enumerate(((4, 3), (5, 4))):
        one = Conversation(ask, pause, f"late{number}")
        await _late(one, end_version, add_version)
        lines += [f"== time-outs, EndTxn {end_version}", *one.lines]
    return lines


async def _life(one: Conversation, end_version: int, init_version: int, add_version: int) -> None:
    me = await one.init(init_version)
    await one.end(end_version, me, "of nothing")
    me = await one.end(end_version, me, "of nothing", commit=False)
    await _refusals(one, me)
    await one.add(add_version, me)
    await one.add(add_version, me, partitions=(0, 1))
    await one.describe()
    await one.add(4, me, verify_only=True)
    for version in range(6):
        await one.end(version, (me[0] + 777, me[1]), "of another producer")
        await one.end(version, (me[0], me[1] + 1), "of a later epoch")
        await one.end(version, (me[0], me[1] - 1), "of an earlier epoch")
        await one.end(version, me, "of an unknown id", name="nobody")
        await one.end(version, me, "of no id", name="")
    old, me = me, await one.end(end_version, me)
    await one.end(end_version, old, "again")
    await one.end(end_version, old, "after the commit", commit=False)
    await one.describe()
    await one.end(end_version, me, "of nothing more")
    me = await one.end(end_version, me, "of nothing more", commit=False)
    await one.end(end_version, old, "late")
    await one.add(add_version, old, "late")
    await one.add(add_version, me)
    old, me = me, await one.end(end_version, me, commit=False)
    await one.end(end_version, old, "again", commit=False)
    await one.end(end_version, old, "after the abort")
    await _initializations(one, me, end_version, max(init_version, 3), add_version)


async def _refusals(one: Conversation, me: Producer) -> None:
    for version in range(6):
        await one.add(version, me, "of an unknown id", transactional_id="nobody")
        await one.add(version, me, "of no id", transactional_id="")
        await one.add(version, (me[0] + 777, me[1]), "of another producer")
        await one.add(version, (me[0], me[1] + 1), "of a later epoch")
        await one.add(version, (me[0], me[1] - 1), "of an earlier epoch")
        await one.add(version, me, "of an unknown partition", partitions=(0, 77))
        await one.add(version, me, "of an unknown topic", topic="nothing")
    for version in (4, 5):
        await one.add(version, me, "of nothing", verify_only=True)
        await one.add(version, (me[0], me[1] + 1), "of a later epoch", verify_only=True)
        await one.add(version, (me[0] + 777, me[1]), "of another producer", verify_only=True)
        await one.add(version, me, "of an unknown id", transactional_id="nobody", verify_only=True)
    for version in range(5):
        await one.add_offsets(version, (me[0], me[1] + 1), "of a later epoch")
        await one.add_offsets(version, me, "of an unknown id", "nobody")
        await one.add_offsets(version, me, "of no id", "")


async def _initializations(
    one: Conversation, me: Producer, end_version: int, init_version: int, add_version: int
) -> None:
    known: dict[str, Any] = {"producer_id": me[0], "producer_epoch": me[1]}
    await one.init(init_version, "by the last producer", **known)
    await one.init(init_version, "by the last producer, again", **known)
    await one.init(init_version, "by an earlier epoch", producer_id=me[0], producer_epoch=me[1] - 2)
    await one.init(init_version, "by another producer", producer_id=me[0] + 777, producer_epoch=me[1])
    me = await one.init(init_version)
    await one.add(add_version, me)
    await one.init(init_version, "while a transaction is open", patient=False)
    zombie, me = me, await one.init(init_version, "while a transaction is open")
    await one.add(add_version, zombie, "by a zombie")
    await one.end(end_version, zombie, "by a zombie")
    await one.end(end_version, zombie, "by a zombie", commit=False)
    for version in range(6):
        if version >= 3:
            fenced: dict[str, Any] = {"producer_id": zombie[0], "producer_epoch": zombie[1] - 1}
            await one.init(version, "by a zombie", **fenced)
            await one.init(version, "with half a producer", producer_id=5)
        for timeout_ms in (0, -1, 900_001):
            await one.init(version, f"with a time-out of {timeout_ms}", transaction_timeout=timeout_ms)
        await one.init(version, "of no id", transactional_id="")


async def _late(one: Conversation, end_version: int, add_version: int) -> None:
    me = await one.init(4, transaction_timeout=1_000)
    await one.add(add_version, me)
    await one.pause(12)
    await one.describe()
    await one.end(end_version, me)
    await one.end(end_version, me, commit=False)
    await one.init(4, "by the last producer", producer_id=me[0], producer_epoch=me[1])
