"""Records of a topic by confluent-kafka, beside those of a proxy."""

from __future__ import annotations

from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from raftwerk.testkit.process_cluster import TestCluster


def produce(cluster: TestCluster, topic: str, values: list[bytes], *, partition: int = 0) -> None:
    """Produce these values; returns when all are acked."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    for value in values:
        producer.produce(topic, value, partition=partition)
    assert producer.flush(30) == 0


def consume(cluster: TestCluster, topic: str, count: int, *, partitions: int = 1) -> list[Any]:
    """The first so many records of a topic."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": f"{topic}-reader"})
    consumer.assign([TopicPartition(topic, one, 0) for one in range(partitions)])
    found: list[Any] = []
    try:
        while len(found) < count:  # the test's limit of time ends it if too few come
            found += [one for one in consumer.consume(count - len(found), 1.0) if one.error() is None]
    finally:
        consumer.close()
    return found
