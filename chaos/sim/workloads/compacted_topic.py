"""A compacted topic: the newest record of every key stays, through every change of leaders.

Idempotent producers write a few keys again and again, and delete some of them. A header of each record, tombstones too,
names its producer and its number. In the end a new consumer reads the topic from its beginning. For each key and
producer it finds the last acked record or a newer one. That may be a tombstone, which stays for delete.retention.ms,
longer than any run: a reader of the deleted record may not have read the tombstone yet.
"""

from __future__ import annotations

import asyncio

from ....cluster.client.admin_client import NewTopic
from ....wire.records import NewRecord, Record, encode_batch
from ..invariants.invariant_broken import InvariantBroken
from .clients import RECORDS_MAX, ClientContext, IdempotentProducer, SentBatch, TopicClient, TopicConsumer
from .workload import create_topic_until_done

SETTINGS = {
    "log.roll.ms": "150",
    "log.cleaner.backoff.ms": "100",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "log.segment.delete.delay.ms": "100",
    "log.retention.check.interval.ms": "300",
}
"""Settings of the nodes: compaction runs several times in each run, also on `__consumer_offsets`."""
_TOPIC_CONFIGS = {"cleanup.policy": "compact", "index.interval.bytes": "100"}
_KEYS = 4
_PRODUCERS = 2
_PAUSE_S = 0.1
_DELETION_PROBABILITY = 0.2
_WHO = "who"


class CompactedTopicLoad:
    """The producers, a consumer that follows them, and a last consumer that reads everything. A `Workload`."""

    name = "keys"

    def __init__(self, context: ClientContext) -> None:
        self.finished = False
        self._context = context
        self._client = TopicClient(context, self.name)
        self._producers = [_KeysProducer(context, f"keys{n}", _PAUSE_S) for n in range(_PRODUCERS)]
        self._consumer = _KeysConsumer(context, "keys consumer")
        self._last: _KeysConsumer | None = None

    async def run(self) -> None:
        """See `Workload`."""
        await create_topic_until_done(self._client.cluster, NewTopic(self._context.topic, 2, -1, _TOPIC_CONFIGS))
        await self._client.until_known()
        reader = asyncio.get_running_loop().create_task(self._consumer.run(), name=self._consumer.name)
        await asyncio.gather(*(each.run() for each in self._producers))
        self._context.history.consumed.clear()
        self._last = _KeysConsumer(self._context, "keys last consumer")
        self.finished = True
        reader.cancel()
        await self._last.run()

    def stop(self) -> None:
        """See `Workload`."""
        for each in self._producers:
            each.stop()

    def why_not_settled(self) -> str | None:
        """See `Workload`."""
        if self._last is None:
            return "it still sends"
        return None if self._last.caught_up() else f"its last consumer reads: {self._last.describe()}"

    def check(self) -> None:
        """The promises at the top of this module hold."""
        acked: dict[tuple[int, str], dict[str, int]] = {}
        for partition, producer, number in self._context.history.acked:
            key = self._producer(producer).keys[partition, number]
            newest = acked.setdefault((partition, producer), {})
            newest[key] = max(newest.get(key, -1), number)
        for (partition, producer), keys in acked.items():
            found = self._found(partition, producer)
            for key, number in keys.items():
                left = found.get(key)
                if left is None or left < number:
                    detail = f"{producer}/{partition} key {key}: {number} was acked, {left} is left"
                    raise InvariantBroken("the newest record of each key stays", detail)

    def _producer(self, name: str) -> _KeysProducer:
        return next(each for each in self._producers if each.name == name)

    def _found(self, partition: int, producer: str) -> dict[str, int]:
        """The newest number of each of the producer's keys."""
        numbers: dict[str, int] = {}
        latest = -1
        for _, text in sorted(self._context.history.consumed.get(partition, {}).items()):
            name, _, number = text.split("/")
            if name != producer:
                continue
            if int(number) <= latest:
                raise InvariantBroken("records are there once and in order", f"{text} after {latest}")
            latest = int(number)
            numbers[self._producer(name).keys[partition, latest]] = latest
        return numbers


class _KeysProducer(IdempotentProducer):
    """Remembers the keys of what it wrote, by partition and number."""

    def __init__(self, context: ClientContext, name: str, pause_s: float) -> None:
        super().__init__(context, name, pause_s)
        self.keys: dict[tuple[int, int], str] = {}

    def make_batch(self, partition: int, number: int) -> SentBatch:
        """Records of a few keys, some of them tombstones."""
        rng, now_ms = self.context.rng, self.context.wall_ms()
        records = []
        for one in range(number, number + rng.randrange(1, RECORDS_MAX + 1)):
            key = self.keys[partition, one] = f"{self.name}-{rng.randrange(_KEYS)}"
            who = f"{self.name}/{partition}/{one}".encode()
            is_deletion = rng.random() < _DELETION_PROBABILITY
            records.append(NewRecord(key.encode(), None if is_deletion else b"v" * 20, ((_WHO, who),), now_ms))
        producer_id, epoch = self.producer
        data = encode_batch(records, producer_id=producer_id, producer_epoch=epoch, base_sequence=number)
        return SentBatch(number, len(records), bytes(data))


class _KeysConsumer(TopicConsumer):
    """Keeps each record's producer and number, and accepts the gaps that compaction leaves."""

    may_skip = True

    def text_of(self, record: Record) -> str:
        """The header that names the producer and the number."""
        return next(bytes(value or b"").decode() for key, value in record.headers if key == _WHO)
