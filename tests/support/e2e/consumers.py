"""Consumers of the confluent client in groups, and the topic of numbers that they read."""

from __future__ import annotations

import time
from itertools import chain
from typing import Any

from confluent_kafka import Consumer, Message, Producer, TopicPartition
from support.e2e import helpers

from raftwerk.broker.coordinators.partition_for import partition_for
from raftwerk.broker.groups.group_config import OFFSETS_TOPIC

PARTITIONS = 6
COUNT = 300
CLASSIC = {"partition.assignment.strategy": "range"}
COOPERATIVE = {"partition.assignment.strategy": "cooperative-sticky"}
CONSUMER = {"group.protocol": "consumer"}


def fill(bootstrap: str, topic: str, first: int = 0, *, create: bool = True) -> None:
    """Send `COUNT` numbers from `first` on, in turn to `PARTITIONS` partitions."""
    if create:
        helpers.create_topic(bootstrap, topic, PARTITIONS)
    producer = Producer({"bootstrap.servers": bootstrap, **helpers.PRODUCER})
    for number in range(first, first + COUNT):
        producer.produce(topic, str(number), partition=number % PARTITIONS)
    assert producer.flush(30) == 0


def confluent(bootstrap: str, group: str, **config: Any) -> Consumer:
    """A consumer that begins at the earliest record and commits when it is told to."""
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "reconnect.backoff.max.ms": 200,
    }
    return Consumer(settings | config)


def read(consumers: list[Consumer], count: int, timeout_s: float = 30.0) -> list[int]:
    """What they get together, until there are `count` different numbers."""
    numbers: dict[int, None] = {}
    deadline = time.monotonic() + timeout_s
    while len(numbers) < count and time.monotonic() < deadline:
        for consumer in consumers:
            message: Message | None = consumer.poll(0.05)
            if message is not None and message.error() is None:
                numbers[int(message.value() or b"")] = None
    return sorted(numbers)


def settle(consumers: list[Consumer], timeout_s: float = 30.0) -> list[list[int]]:
    """Poll until all partitions are shared out, each once; the partitions of each consumer."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        for consumer in consumers:
            message = consumer.poll(0.05)
            if message is not None and message.error() is None:
                topic, partition, offset = message.topic(), message.partition(), message.offset()
                assert topic is not None and partition is not None and offset is not None
                consumer.seek(TopicPartition(topic, partition, offset))
        owned = [sorted(one.partition for one in consumer.assignment()) for consumer in consumers]
        if sorted(chain.from_iterable(owned)) == list(range(PARTITIONS)) and all(owned):
            return owned
    raise AssertionError("the partitions were not shared out")


def coordinator_of(bootstrap: str, group: str) -> int:
    """The broker that coordinates a group."""
    return helpers.leader_of(bootstrap, OFFSETS_TOPIC, partition_for(group, 50))
