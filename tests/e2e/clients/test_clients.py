"""The clients people use create topics, produce with every codec and read by assigned partitions."""

from __future__ import annotations

import asyncio
import subprocess

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin import NewTopic as ConfluentTopic
from support.confluent import collect_errors
from support.e2e import helpers

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
VALUES = [b"%d " % number + b"flight " * 20 for number in range(300)]


@pytest.mark.parametrize("codec", CODECS)
def test_confluent(bootstrap: str, topic: str, codec: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([ConfluentTopic(topic, 3, 3)])[topic].result(10)
    producer = Producer({"bootstrap.servers": bootstrap, **helpers.PRODUCER, "compression.type": codec, "linger.ms": 5})
    errors: list[str] = []
    for number, value in enumerate(VALUES):
        producer.produce(topic, value, partition=number % 3, on_delivery=collect_errors(errors))
    assert producer.flush(20) == 0
    assert not errors
    assert helpers.read_all(bootstrap, topic, 3) == [VALUES[p::3] for p in range(3)]
    described = admin.list_topics(topic, timeout=10).topics[topic]
    assert sorted(described.partitions[0].replicas) == [1, 2, 3]
    admin.delete_topics([topic])[topic].result(10)


@pytest.mark.parametrize("codec", CODECS)
def test_kafka_python(bootstrap: str, topic: str, codec: str) -> None:
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.admin import KafkaAdminClient, NewTopic

    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    admin.create_topics([NewTopic(topic, 2, 3)])
    admin.close()
    producer = KafkaProducer(
        bootstrap_servers=bootstrap, acks="all", compression_type=None if codec == "none" else codec, linger_ms=5
    )
    for number, value in enumerate(VALUES):
        producer.send(topic, value, partition=number % 2)
    producer.flush(20)
    producer.close()
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, consumer_timeout_ms=10000)
    consumer.assign([TopicPartition(topic, 0), TopicPartition(topic, 1)])
    consumer.seek_to_beginning()
    got: dict[int, list[bytes]] = {0: [], 1: []}
    for message in consumer:
        got[message.partition].append(message.value)
        if sum(map(len, got.values())) == len(VALUES):
            break
    consumer.close()
    assert got == {0: VALUES[0::2], 1: VALUES[1::2]}


@pytest.mark.parametrize("codec", CODECS)
def test_aiokafka(bootstrap: str, topic: str, codec: str) -> None:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
    from aiokafka.admin import AIOKafkaAdminClient, NewTopic

    async def run() -> list[bytes]:
        admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await admin.start()
        await admin.create_topics([NewTopic(topic, 1, 3)])
        await admin.close()
        compression = None if codec == "none" else codec
        async with AIOKafkaProducer(
            bootstrap_servers=bootstrap, enable_idempotence=True, compression_type=compression
        ) as producer:
            for future in [await producer.send(topic, value) for value in VALUES]:
                await future
        async with AIOKafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False) as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            await consumer.seek_to_beginning()
            return [(await asyncio.wait_for(consumer.getone(), 10)).value for _ in VALUES]

    assert asyncio.run(run()) == VALUES


@pytest.mark.parametrize("codec", CODECS)
def test_kcat(bootstrap: str, topic: str, codec: str, kcat: str) -> None:
    helpers.create_topic(bootstrap, topic, 2)
    lines = b"".join(value + b"\n" for value in VALUES)
    command = [kcat, "-b", bootstrap, "-t", topic]
    subprocess.run([*command, "-P", "-p", "1", "-z", codec, "-X", "acks=all"], input=lines, check=True, timeout=30)
    read = subprocess.run(
        [*command, "-C", "-p", "1", "-o", "beginning", "-e", "-q"], capture_output=True, check=False, timeout=30
    )
    assert read.stdout == lines
    listed = subprocess.run(
        [kcat, "-b", bootstrap, "-L", "-t", topic], capture_output=True, check=False, text=True, timeout=30
    )
    assert f'topic "{topic}" with 2 partitions' in listed.stdout


def test_a_topic_is_made_when_a_producer_names_it(bootstrap: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, **helpers.PRODUCER})
    producer.produce(topic, b"first")
    assert producer.flush(20) == 0
    assert helpers.read_all(bootstrap, topic) == [[b"first"]]


def test_reading_from_a_time(bootstrap: str, topic: str) -> None:
    from confluent_kafka import Consumer, TopicPartition

    helpers.create_topic(bootstrap, topic)
    producer = Producer({"bootstrap.servers": bootstrap, **helpers.PRODUCER})
    for number in range(100):
        producer.produce(topic, str(number), timestamp=1_000_000 + number * 1000)
    assert producer.flush(20) == 0
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "times"})
    (found,) = consumer.offsets_for_times([TopicPartition(topic, 0, 1_000_000 + 41_500)], timeout=10)
    consumer.close()
    assert found.offset == 42
