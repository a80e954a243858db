"""Workloads of one librdkafka client, unchanged for every Kafka-compatible cluster.

Each workload returns a `Figure`. A figure with errors or missing records is no measurement, and is marked.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

PARTITIONS = 6


@dataclass(frozen=True, slots=True)
class Figure:
    """A measured number: `value` in `unit`. `bad` counts errors and lost records."""

    name: str
    value: float
    unit: str
    bad: int = 0
    bigger_is_better: bool = True


def create_topic(bootstrap: str, name: str, replication_factor: int, partitions: int = PARTITIONS) -> str:
    """Create a topic, and wait up to 60 s until each partition has a leader."""
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 4})
    config = {"min.insync.replicas": "2"} if replication_factor > 1 else {}
    for future in admin.create_topics([NewTopic(name, partitions, replication_factor, config=config)]).values():
        future.result()
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        topic = admin.list_topics(name, timeout=5).topics[name]
        leaders = [partition.leader for partition in topic.partitions.values()]
        if topic.error is None and len(leaders) == partitions and min(leaders) >= 0:
            return name
        time.sleep(0.02)
    raise TimeoutError(f"topic {name} has no leader for every partition after 60 s: look at the brokers' logs")


def new_producer(bootstrap: str, acks: int, **more: Any) -> Any:
    """A producer with large queues; `more` are settings of librdkafka."""
    from confluent_kafka import Producer

    base: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "log_level": 4,  # warnings
        "acks": acks,
        "linger.ms": 5,
        "batch.num.messages": 100_000,
        "batch.size": 1_000_000,
        "queue.buffering.max.messages": 1_000_000,
        "queue.buffering.max.kbytes": 512_000,
    }
    return Producer(base | more)


def _send_all(producer: Any, topic: str, count: int, value: bytes) -> tuple[float, int]:
    failed = [0]

    def delivered(error: Any, _message: Any) -> None:
        failed[0] += error is not None

    started = time.perf_counter()
    for i in range(count):
        while True:
            try:
                producer.produce(topic, value, on_delivery=delivered if i % 1000 == 0 else None)
                break
            except BufferError:
                producer.poll(0.01)
        if i % 1000 == 0:
            producer.poll(0)
    left = producer.flush(120)
    return time.perf_counter() - started, failed[0] + left


def produce(bootstrap: str, topic: str, count: int, size_bytes: int, acks: int, **more: Any) -> Figure:
    """The throughput of one producer with large batches, in MB/s of values; `more` are settings of librdkafka."""
    seconds, bad = _send_all(new_producer(bootstrap, acks, **more), topic, count, os.urandom(size_bytes))
    return Figure(f"produce {size_bytes} B acks={acks}", count * size_bytes / seconds / 1e6, "MB/s", bad)


def produce_single(bootstrap: str, topic: str, count: int, acks: int, **more: Any) -> Figure:
    """The requests a second if each carries one record of 100 bytes; `more` are settings of librdkafka."""
    producer = new_producer(bootstrap, acks, **{"linger.ms": 0, "batch.num.messages": 1}, **more)
    seconds, bad = _send_all(producer, topic, count, os.urandom(100))
    return Figure(f"one-record requests acks={acks}", count / seconds, "req/s", bad)


def consume(bootstrap: str, topic: str, count: int, size_bytes: int, **more: Any) -> Figure:
    """The throughput of one consumer that reads the whole topic, from its assignment on, in MB/s of values.

    A rate from the first batch on would contain what librdkafka had fetched before. `more` are settings of librdkafka.
    It queues 64 MB of fetched records, its default. A longer queue takes gigabytes with ten consumers, and the rate
    then depends on how fast the client gets memory from the system.
    """
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "log_level": 4,
            "group.id": f"{topic}-bench",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",  # the default of librdkafka
            "fetch.max.bytes": 52_428_800,
            "max.partition.fetch.bytes": 4_194_304,
            "fetch.queue.backoff.ms": 5,  # by default a client that was served too fast pauses for a second
            **more,
        }
    )
    got, started = 0, time.perf_counter()
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    while got < count:
        messages = consumer.consume(10_000, 5)
        if not messages:
            break
        got += len(messages)
    seconds = time.perf_counter() - started
    consumer.close()
    return Figure(f"consume {size_bytes} B", got * size_bytes / seconds / 1e6, "MB/s", count - got)


def ack_latency(bootstrap: str, topic: str, rate: int, seconds: float, acks: int) -> list[Figure]:
    """Percentiles of the time from send to ack at a steady `rate` a second, in ms.

    A thread takes the answers, and this one sleeps between sends: librdkafka's `poll` counts in whole milliseconds, so
    a shorter wait in it spins, and takes one of a small machine's cores from the brokers.
    """
    producer = new_producer(bootstrap, acks, **{"linger.ms": 0})
    value, times, is_over = os.urandom(100), list[float](), threading.Event()

    def timed(sent: float) -> Callable[[Any, Any], None]:
        return lambda error, _message: times.append(time.perf_counter() - sent) if error is None else None

    def take_answers() -> None:
        while not is_over.is_set():
            producer.poll(0.1)

    taker = threading.Thread(target=take_answers, name="answers")
    taker.start()
    sent_count, begin = 0, time.perf_counter()
    while (now := time.perf_counter()) < begin + seconds:
        due = begin + sent_count / rate
        if now < due:
            time.sleep(due - now)
            continue
        producer.produce(topic, value, on_delivery=timed(time.perf_counter()))
        sent_count += 1
    producer.flush(20)
    is_over.set()
    taker.join()
    times.sort()
    bad = sent_count - len(times)
    return [
        Figure(name, times[int(len(times) * q)] * 1e3 if times else math.nan, "ms", bad, False)
        for name, q in (("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999))
    ]
