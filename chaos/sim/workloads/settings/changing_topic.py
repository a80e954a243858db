"""Topics with settings of their own, which an administrator changes under load.

Their leaders' appends, what their logs give up, and what nodes find in them by time are judged by the settings that
each node has applied (`invariants/settings`). Here their producers are judged by what they are told: the time of an ack
is the one that is stored, and each record is stored as it was sent, whichever codec it has then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from .....cluster.client.admin_client import NewTopic
from .....wire.compression import Compression
from .....wire.records import NewRecord, encode_batch, read_header, set_max_timestamp
from .....wire.types import TopicPartition
from ...invariants.client_invariants import check_history
from ...invariants.invariant_broken import InvariantBroken
from ...invariants.settings.told_producers import Told, check_told
from ...invariants.settings.topic_settings_checker import TopicSettingsChecker
from ..administrator import TOPIC, RetryingAdmin
from ..clients import (
    LARGE_HEADERS,
    RECORDS_MAX,
    ClientContext,
    IdempotentProducer,
    ProduceAnswer,
    SentBatch,
    TopicClient,
    TopicConsumer,
)
from ..deletion.deleted_records import SkippingConsumer
from ..workload import create_topic_until_done

CLEANER_SETTINGS = {
    "log.cleaner.backoff.ms": "100",
    "log.segment.delete.delay.ms": "100",
    "log.retention.check.interval.ms": "200",
    "log.flush.offset.checkpoint.interval.ms": "100",
    "log.flush.offset.checkpoint.min.bytes": "1",
}
"""Settings of the nodes: logs are compacted and deleted several times in each run, up to where they are durable."""
_PARTITIONS = 2
_PRODUCERS = 2
_PAUSE_S = 0.1
_CHANGES_PAUSE_S = 0.4
_KEYS = 4
_DELETION_PROBABILITY = 0.3
_LARGE_PROBABILITY = 0.08
_TYPES = {"message.timestamp.type": ("CreateTime", "LogAppendTime", "LogAppendTime")}
_CODECS = {"compression.type": ("producer", "producer", "uncompressed", "gzip", "snappy", "lz4", "zstd")}
_SEGMENTS = {"segment.ms": ("100", "400", "5000"), "index.interval.bytes": ("0", "100", "1000")}


class ChangingTopicLoad:
    """Producers, a consumer, and an administrator that changes the topic's settings. A `Workload`."""

    name = "changing topic"
    first: Mapping[str, str] = {"retention.ms": "-1"}
    """The settings of the topic at first that do not change, or not from their drawn values."""
    changes: Mapping[str, Sequence[str]] = {**_TYPES, **_CODECS, **_SEGMENTS}
    """Values that settings are changed to."""
    last: Mapping[str, str] = {}
    """Settings that the topic gets in the end, so that it comes to rest."""

    def __init__(self, context: ClientContext, checker: TopicSettingsChecker) -> None:
        self.context = context
        self.checker = checker
        self._client = TopicClient(context, self.name)
        self._admin = RetryingAdmin(context, f"{self.name} admin")
        self._producers = [self.producer(f"{self.name}{n}") for n in range(_PRODUCERS)]
        self._consumer = self.consumer()
        self._stopping = False
        self._finished = False

    def producer(self, name: str) -> TellingProducer:
        """A new producer."""
        return TellingProducer(self.context, name, self.checker)

    def consumer(self) -> TopicConsumer:
        """The consumer."""
        return TopicConsumer(self.context, f"{self.name} consumer")

    async def run(self) -> None:
        """See `Workload`."""
        context, rng = self.context, self.context.rng
        context.checker.retention.topics[context.topic] = None
        self.checker.topics[context.topic] = _PARTITIONS
        configs = {**self.first, **{key: rng.choice(values) for key, values in self.changes.items()}}
        await create_topic_until_done(self._client.cluster, NewTopic(context.topic, _PARTITIONS, -1, configs))
        await self._client.until_known()
        reader = asyncio.get_running_loop().create_task(self._consumer.run(), name=self._consumer.name)
        await asyncio.gather(self._change_settings(), *(each.run() for each in self._producers))
        self._finished = True
        await reader

    async def _change_settings(self) -> None:
        rng = self.context.rng
        while not self._stopping:
            await asyncio.sleep(rng.expovariate(1 / _CHANGES_PAUSE_S))
            key = rng.choice(list(self.changes))
            await self._set(key, rng.choice(self.changes[key]))
        for key, value in self.last.items():
            await self._set(key, value)
        for each in self._producers:
            each.stop()

    async def _set(self, key: str, value: str) -> None:
        code = await self._admin.set(TOPIC, self.context.topic, key, value)
        if code:
            raise InvariantBroken("a topic's settings may be changed", f"{key}={value}: {code.name}")

    def stop(self) -> None:
        """See `Workload`."""
        self._stopping = True

    def why_not_settled(self) -> str | None:
        """See `Workload`."""
        if not self._finished:
            return "it still sends"
        return None if self._consumer.caught_up() else f"its consumer reads: {self._consumer.describe()}"

    def check(self) -> None:
        """Every acked record was read, once and in order."""
        check_history(self.context.history)


class TellingProducer(IdempotentProducer):
    """Sends batches of any codec, and judges what it is told of them.

    Some claim another greatest timestamp than that of their records; the leader writes the true one.
    """

    is_compacted = False
    """Whether batches may be gone by the time that they are acked."""

    def __init__(self, context: ClientContext, name: str, checker: TopicSettingsChecker) -> None:
        super().__init__(context, name, _PAUSE_S)
        self._checker = checker
        self._sent_s: dict[tuple[int, int], float] = {}
        """When a batch was made, by partition and the number of its first record."""

    def records(self, partition: int, number: int, count: int) -> list[NewRecord]:
        """The records of a batch."""
        rng = self.context.rng
        return [
            NewRecord(
                self.key_of(partition, one),
                f"{self.name}/{partition}/{one}".encode(),
                LARGE_HEADERS if rng.random() < _LARGE_PROBABILITY / count else (("number", str(one).encode()),),
                self.context.wall_ms() - rng.randrange(500),
            )
            for one in range(number, number + count)
        ]

    def make_batch(self, partition: int, number: int) -> SentBatch:
        """See `IdempotentProducer`."""
        rng = self.context.rng
        count = rng.randrange(1, RECORDS_MAX + 1)
        records = self.records(partition, number, count)
        producer_id, epoch = self.producer
        data = encode_batch(
            records,
            compression=rng.choice(list(Compression)),
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=number,
        )
        if rng.random() < 0.2:
            set_max_timestamp(data, 0, read_header(data, 0).max_timestamp + rng.choice((-700, 700)))
        self.context.history.sent += count
        self._sent_s[partition, number] = asyncio.get_running_loop().time()
        return SentBatch(number, count, bytes(data))

    def on_acked(self, partition: int, batch: SentBatch, answer: ProduceAnswer) -> None:
        """See `IdempotentProducer`."""
        super().on_acked(partition, batch, answer)
        if answer.base_offset < 0:
            return
        known = self._checker.known[TopicPartition(self.context.topic, partition)]
        sent_s, now_s = self._sent_s[partition, batch.first], asyncio.get_running_loop().time()
        told = Told(f"{self.name}/{partition}/{batch.first}", answer.base_offset, answer.append_time_ms)
        check_told(known, told, batch.data, (sent_s, now_s), is_compacted=self.is_compacted)


class KeptKeysLoad(ChangingTopicLoad):
    """A topic that is compacted, and most of the time deleted, too, with few keys and short times.

    In the end compaction is due by `max.compaction.lag.ms` alone, and nothing that is superseded stays for ever.
    """

    name = "kept keys"
    first: Mapping[str, str] = {}
    changes: Mapping[str, Sequence[str]] = {
        **_TYPES,
        **_CODECS,
        "cleanup.policy": ("compact,delete", "compact,delete", "compact"),
        "min.compaction.lag.ms": ("0", "200", "600", "1000"),
        "max.compaction.lag.ms": ("1500", "3000", "100000000"),
        "delete.retention.ms": ("0", "200", "800", "2000"),
        "retention.ms": ("-1", "1000", "3000"),
        "min.cleanable.dirty.ratio": ("0.01", "0.5", "1"),
        "segment.ms": ("100", "200", "400"),
        "index.interval.bytes": ("0", "100", "1000"),
    }
    last: Mapping[str, str] = {
        "segment.ms": "100000000",
        "cleanup.policy": "compact",
        "min.compaction.lag.ms": "200",
        "max.compaction.lag.ms": "1500",
        "min.cleanable.dirty.ratio": "1",
    }

    def producer(self, name: str) -> TellingProducer:
        """See `ChangingTopicLoad`."""
        return _KeysProducer(self.context, name, self.checker)

    def consumer(self) -> TopicConsumer:
        """See `ChangingTopicLoad`."""
        return _KeysConsumer(self.context, f"{self.name} consumer")

    def why_not_settled(self) -> str | None:
        """See `Workload`."""
        return super().why_not_settled() or self._superseded()

    def _superseded(self) -> str | None:
        """A record that a replica should have removed by now."""
        for partition in range(_PARTITIONS):
            key = TopicPartition(self.context.topic, partition)
            left = self.checker.superseded(key)
            if left is not None:
                return left
        return None

    def check(self) -> None:
        """What is acked may have been removed since; `log_losses` has judged that."""


class _KeysProducer(TellingProducer):
    """Writes a few keys again and again, and deletes some of them."""

    is_compacted = True

    def records(self, partition: int, number: int, count: int) -> list[NewRecord]:
        """See `TellingProducer`."""
        rng = self.context.rng
        return [
            record._replace(
                key=f"{self.name}-{rng.randrange(_KEYS)}".encode(),
                value=None if rng.random() < _DELETION_PROBABILITY else record.value,
                headers=(("number", str(number).encode()),),
            )
            for record in super().records(partition, number, count)
        ]


class _KeysConsumer(SkippingConsumer):
    """Accepts the gaps that compaction leaves."""

    may_skip = True
