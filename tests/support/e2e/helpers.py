"""What the tests of real clusters share: topics, producers and readers of the confluent client."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from raftwerk.cluster.client.admin_client import AdminClient, NewTopic
from raftwerk.cluster.client.client_errors import ClientError
from raftwerk.cluster.client.cluster_client import ClusterClient, ClusterView
from raftwerk.cluster.client.quorum_client import QuorumClient
from raftwerk.wire.api_keys import ApiKey

PRODUCER = {
    "enable.idempotence": True,
    "acks": "all",
    "linger.ms": 0,
    "message.timeout.ms": 60000,
    "retry.backoff.ms": 50,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
}

T = TypeVar("T")
ASK_LIMIT_S = 60.0
IN_SYNC_TIMEOUT_S = 30.0


def create_topic(bootstrap: str, name: str, partitions: int = 1, replicas: int = 3, **configs: str) -> None:
    async def run() -> None:
        async with ClusterClient(bootstrap) as client:
            settings = {key.replace("_", "."): value for key, value in configs.items()}
            await AdminClient(client).create_topic(NewTopic(name, partitions, replicas, settings))

    asyncio.run(run())


def ask(bootstrap: str, question: Callable[[ClusterClient], Coroutine[Any, Any, T]]) -> T:
    """The answer to `question`, which is asked again while the cluster has none."""

    async def run() -> T:
        async with ClusterClient(bootstrap) as client:
            return await question(client)

    deadline = time.monotonic() + ASK_LIMIT_S
    while True:
        try:
            return asyncio.run(run())
        except ClientError:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def create_on(bootstrap: str, topic: str, assignments: list[list[int]], min_isr: str = "2") -> None:
    """Create a topic whose partitions have the replicas of `assignments`."""

    async def create(client: ClusterClient) -> None:
        rows = [{"partition_index": index, "broker_ids": ids} for index, ids in enumerate(assignments)]
        wanted = {
            "name": topic,
            "num_partitions": -1,
            "replication_factor": -1,
            "assignments": rows,
            "configs": [{"name": "min.insync.replicas", "value": min_isr}],
        }
        fields = {"topics": [wanted], "timeout_ms": 10_000, "timeout": 10_000, "validate_only": False}
        answer = await client.request(ApiKey.CREATE_TOPICS, 7, fields)
        assert not answer.topics[0].error_code, answer.topics[0].error_message

    ask(bootstrap, create)


def describe(bootstrap: str, name: str) -> ClusterView:
    async def run() -> ClusterView:
        async with ClusterClient(bootstrap) as client:
            return await client.metadata([name])

    return asyncio.run(run())


def leader_of(bootstrap: str, name: str, partition: int = 0) -> int:
    return describe(bootstrap, name).topic(name).partitions[partition].leader


def active_controller(bootstrap: str) -> int:
    async def run() -> int | None:
        async with ClusterClient(bootstrap) as client:
            return await QuorumClient(client).leader_id()

    leader = asyncio.run(run())
    assert leader is not None
    return leader


def end_of(consumer: Consumer, partition: TopicPartition) -> int:
    """The end of a partition, asked again while its leadership moves back to a node that was restarted."""
    deadline = time.monotonic() + 30
    while True:
        try:
            return int(consumer.get_watermark_offsets(partition, timeout=20)[1])
        except KafkaException:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def read_all(bootstrap: str, name: str, partitions: int = 1, **config: Any) -> list[list[bytes]]:
    """The values of every partition, read by assignment to the end as it is now."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "e2e", "enable.auto.commit": False, **config}
    consumer = Consumer(settings)
    try:
        ends = [end_of(consumer, TopicPartition(name, p)) for p in range(partitions)]
        consumer.assign([TopicPartition(name, p, 0) for p in range(partitions)])
        values: list[list[bytes]] = [[] for _ in range(partitions)]
        positions = [0] * partitions
        deadline = time.monotonic() + 30
        while any(at < end for at, end in zip(positions, ends)) and time.monotonic() < deadline:
            for message in consumer.consume(5000, 0.2):
                assert message.error() is None, message.error()
                partition, offset = message.partition(), message.offset()
                value = message.value()
                assert partition is not None and offset is not None and value is not None
                values[partition].append(value)
                positions[partition] = offset + 1
        assert positions == ends
        return values
    finally:
        consumer.close()


def wait_in_sync(bootstrap: str, name: str, replicas: int, partition: int = 0) -> None:
    """Until the ISR has as many replicas."""
    deadline = time.monotonic() + IN_SYNC_TIMEOUT_S
    while len(describe(bootstrap, name).topic(name).partitions[partition].isr) < replicas:
        assert time.monotonic() < deadline, describe(bootstrap, name)
        time.sleep(0.05)


def _longest_gap_s(times: list[float]) -> float:
    return max((after - before for before, after in pairwise(times)), default=0.0)


@dataclass
class Load:
    """A paced stream of numbers to one partition; remembers acks and the gaps between them."""

    bootstrap: str
    topic: str
    rate: int = 500
    sent: int = 0
    acked: list[int] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    ack_times: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._producer = Producer({"bootstrap.servers": self.bootstrap, **PRODUCER})

    def run(self, seconds: float) -> None:
        """Send at the rate for so long."""
        until = time.monotonic() + seconds
        next_at = time.monotonic()
        while (now := time.monotonic()) < until:
            if now >= next_at:
                next_at += 1 / self.rate
                number = self.sent
                self.sent += 1
                self._producer.produce(self.topic, str(number).encode(), on_delivery=self._on_delivery(number))
            self._producer.poll(0.001)

    def finish(self) -> None:
        assert self._producer.flush(60) == 0

    def longest_gap_s(self) -> float:
        """The longest time between two acks."""
        return _longest_gap_s(self.ack_times)

    def longest_gap_since_s(self, ack: int) -> float:
        """The longest time without an ack from the given ack on until now."""
        return _longest_gap_s([*self.ack_times[ack - 1 :], time.monotonic()])

    def check(self, bootstrap: str | None = None) -> None:
        """Everything acked is there once and in order, and nothing failed."""
        (values,) = read_all(bootstrap or self.bootstrap, self.topic)
        numbers = [int(value) for value in values]
        assert not self.failed
        assert sorted(set(self.acked) - set(numbers)) == [], "acked records are lost"
        assert len(numbers) == len(set(numbers)), "records are doubled"
        assert numbers == sorted(numbers), "records are out of order"

    def _on_delivery(self, number: int) -> Any:
        def on_delivery(error: Any, _message: Any) -> None:
            if error is None:
                self.acked.append(number)
                self.ack_times.append(time.monotonic())
            else:
                self.failed.append(str(error))

        return on_delivery
