"""Topics with known records, and what Spark makes of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions
from support.confluent import collect_errors

T0 = 1_700_000_000_000
"""The timestamp of the first record, in milliseconds; the next is a second later."""

PRODUCER = {
    "enable.idempotence": True,
    "acks": "all",
    "linger.ms": 5,
    "message.timeout.ms": 60000,
    "retry.backoff.ms": 50,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
}


@dataclass(frozen=True)
class Sent:
    """A record as it was sent, in the columns of the Kafka connector."""

    partition: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int = -1
    headers: list[tuple[str, bytes | None]] | None = None


def send(bootstrap: str, topic: str, records: Iterable[Sent], **config: Any) -> None:
    """Send and wait for every ack."""
    failed: list[str] = []
    producer = Producer({"bootstrap.servers": bootstrap, **PRODUCER, **config})
    for one in records:
        producer.produce(
            topic,
            one.value,
            one.key,
            one.partition,
            timestamp=max(one.timestamp_ms, 0),
            headers=[*one.headers] if one.headers else None,
            on_delivery=collect_errors(failed),
        )
        producer.poll(0)
    assert producer.flush(60) == 0
    assert not failed, failed[:3]


def numbers(partitions: int, count: int, first: int = 0) -> list[Sent]:
    """`count` records by partition whose values are their offsets, a second apart from `T0` on."""
    return [
        Sent(partition, b"k%d" % (number % 7), b"%d" % number, T0 + 1000 * number)
        for number in range(first, first + count)
        for partition in range(partitions)
    ]


def values_by_partition(rows: Iterable[Any]) -> dict[int, list[int]]:
    """The numbers of each partition in the order of their offsets, which must be the numbers themselves."""
    found: dict[int, dict[int, int]] = {}
    for row in rows:
        column = found.setdefault(row.partition, {})
        assert row.offset not in column, f"offset {row.offset} of partition {row.partition} came twice"
        column[row.offset] = int(bytes(row.value))
    return {partition: [column[offset] for offset in sorted(column)] for partition, column in sorted(found.items())}


def eventually(holds: Callable[[], Any], timeout_s: float = 180.0, pause_s: float = 0.2) -> Any:
    """What `holds` gives once it is true."""
    deadline = time.monotonic() + timeout_s
    while not (result := holds()):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(pause_s)
    return result


def delete_records_before(bootstrap: str, topic: str, partition: int, offset: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.delete_records([TopicPartition(topic, partition, offset)]).values():
        future.result(30)


def add_partitions(bootstrap: str, topic: str, total: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_partitions([NewPartitions(topic, total)]).values():
        future.result(30)


def committed(bootstrap: str, group: str, topic: str) -> dict[int, int]:
    """What a group has committed, as any tool sees it."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    (future,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
    found = {one.partition: one.offset for one in future.result(30).topic_partitions if one.topic == topic}
    return dict(sorted(found.items()))


def read_back(bootstrap: str, topic: str, partitions: int) -> list[Any]:
    """Every record of the topic, by a client that is not Spark."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "t", "enable.auto.commit": False})
    try:
        ends = {p: consumer.get_watermark_offsets(TopicPartition(topic, p), 20)[1] for p in range(partitions)}
        consumer.assign([TopicPartition(topic, p, 0) for p in range(partitions)])
        records: list[Any] = []
        deadline = time.monotonic() + 30
        while len(records) < sum(ends.values()) and time.monotonic() < deadline:
            records += consumer.consume(1000, 0.2)
        assert len(records) == sum(ends.values())
        return records
    finally:
        consumer.close()


def committed_values(bootstrap: str, topic: str, partitions: int) -> list[bytes]:
    """The values that a consumer with read_committed gets before it comes to the end of each partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "t",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, one, 0) for one in range(partitions)])
        found: list[bytes] = []
        left = set(range(partitions))
        while left:
            message = consumer.poll(30)
            assert message is not None, f"no end of {sorted(left)}"
            error = message.error()
            if error is None:
                found.append(message.value() or b"")
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                left.discard(message.partition())
        return found
    finally:
        consumer.close()


def segment_of(cluster: Any, topic: str) -> Path:
    """The one segment of partition 0, at its leader."""
    leader = cluster.plan.node(cluster.leader_of(topic))
    (path,) = Path(leader.directory).rglob(f"{topic}-0/*.log")
    return path


def spoil(cluster: Any, topic: str) -> None:
    """Damage the first batch of partition 0, of which there must be one replica."""
    path = segment_of(cluster, topic)
    with path.open("r+b") as file:
        file.seek(70)
        byte = file.read(1)
        file.seek(70)
        file.write(bytes([byte[0] ^ 0xFF]))
