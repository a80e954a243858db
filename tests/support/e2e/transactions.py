"""Transactions of the confluent client: producers, what readers get, and a loop of read, process and write."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from support.e2e import helpers
from support.e2e.consumers import confluent

from raftwerk.cluster.client.cluster_client import ClusterClient
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.records import NewRecord, encode_batch

LONG_AGO_MS = 1_700_000_000_000
STRANGER = 4711
"""A producer id that no coordinator has given to a transactional id."""
TIMEOUT_S = 30.0


def producer(bootstrap: str, transactional_id: str, **config: Any) -> Producer:
    """A producer whose transactional id is its own from here on."""
    settings = {"bootstrap.servers": bootstrap, **helpers.PRODUCER, "transactional.id": transactional_id, **config}
    made = Producer(settings)
    made.init_transactions(TIMEOUT_S)
    return made


def open_transaction(bootstrap: str, topic: str) -> Producer:
    """A producer with one record in an open transaction; the topic exists."""
    writer = producer(bootstrap, f"{topic}-id")
    writer.begin_transaction()
    writer.produce(topic, b"open")
    assert writer.flush(TIMEOUT_S) == 0
    return writer


def until(condition: Callable[[], object]) -> None:
    """Return when the condition holds."""
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def values(bootstrap: str, topic: str, partitions: int = 1, isolation: str = "read_committed") -> list[list[bytes]]:
    """What a reader gets before it is told that there is no more."""
    consumer = confluent(bootstrap, f"{topic}-reader", **{"isolation.level": isolation, "enable.partition.eof": True})
    found: list[list[bytes]] = [[] for _ in range(partitions)]
    unfinished = set(range(partitions))
    deadline = time.monotonic() + TIMEOUT_S
    try:
        consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
        while unfinished:
            assert time.monotonic() < deadline
            message = consumer.poll(0.2)
            if message is None:
                continue
            partition, value, error = message.partition(), message.value(), message.error()
            assert partition is not None
            if error is None:
                assert value is not None
                found[partition].append(value)
            else:
                assert error.code() == KafkaError._PARTITION_EOF
                unfinished.discard(partition)
        return found
    finally:
        consumer.close()


def wait_for_values(bootstrap: str, topic: str, *expected: list[bytes]) -> None:
    """A commit is answered when it is decided; what it commits can be read soon after."""
    until(lambda: values(bootstrap, topic, len(expected)) == list(expected))


def numbers(bootstrap: str, topic: str, count: int) -> None:
    """Make the topic, and send numbers from 0 on to it."""
    helpers.create_topic(bootstrap, topic)
    outside = Producer({"bootstrap.servers": bootstrap, **helpers.PRODUCER})
    for number in range(count):
        outside.produce(topic, str(number))
    assert outside.flush(TIMEOUT_S) == 0


class Copier:
    """Copies the records of one topic to another, some at a time, in transactions with its own offsets."""

    def __init__(self, bootstrap: str, source: str, target: str, *, size: int = 1) -> None:
        self.copied = 0
        self._source, self._target, self._size = source, target, size
        self._producer = producer(bootstrap, f"{target}-id")
        self._consumer: Consumer = confluent(bootstrap, f"{target}-group", **{"isolation.level": "read_committed"})
        self._consumer.subscribe([source])

    def run(self, count: int, *, timeout_s: float = TIMEOUT_S, abort_first: bool = False) -> None:
        """Copy until `count` records are committed. With `abort_first`, each transaction is aborted once before."""
        deadline = time.monotonic() + timeout_s
        aborts = abort_first
        while self.copied < count:
            assert time.monotonic() < deadline, f"{self.copied} of {count} are copied"
            messages = [one for one in self._consumer.consume(self._size, 0.5) if one.error() is None]
            if not messages:
                continue
            next_offset = (messages[-1].offset() or 0) + 1
            self._producer.begin_transaction()
            try:
                for message in messages:
                    self._producer.produce(self._target, message.value())
                metadata = self._consumer.consumer_group_metadata()
                after = TopicPartition(self._source, 0, next_offset)
                self._producer.send_offsets_to_transaction([after], metadata, timeout_s)
                if not aborts:
                    self._producer.commit_transaction(timeout_s)
                    self.copied += len(messages)
            except KafkaException as error:
                if not error.args[0].txn_requires_abort():
                    raise
                aborts = True
            if aborts:
                self._producer.abort_transaction(timeout_s)
                self._consumer.seek(TopicPartition(self._source, 0, messages[0].offset() or 0))
            aborts = abort_first and not aborts

    def close(self) -> None:
        """Leave the group."""
        self._consumer.close()


def leave_hanging(bootstrap: str, topic: str) -> None:
    """Write a record in a transaction that no coordinator knows, with a timestamp of long ago."""
    batch = encode_batch(
        [NewRecord(None, b"hanging", (), LONG_AGO_MS)],
        producer_id=STRANGER,
        producer_epoch=3,
        base_sequence=0,
        is_transactional=True,
    )
    partitions = [{"index": 0, "records": bytes(batch)}]
    topic_data = [{"name": topic, "partition_data": partitions}]
    fields = {"transactional_id": "stranger", "acks": -1, "timeout": 10_000, "topic_data": topic_data}

    async def write() -> int:
        async with ClusterClient(bootstrap) as client:
            leader = (await client.metadata([topic])).topic(topic).partitions[0].leader
            answer = await client.request_node(leader, ApiKey.PRODUCE, 11, fields)
        return int(answer.responses[0].partition_responses[0].error_code)

    until(lambda: asyncio.run(write()) == 0)  # a leader may not know yet that it leads
