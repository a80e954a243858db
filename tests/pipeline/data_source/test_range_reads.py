"""What a task reads of a partition with holes, markers and large records, beside what librdkafka's consumer reads."""

from __future__ import annotations

import json
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition
from support.confluent import headers_of
from support.e2e import transactions

pytest.importorskip("pyarrow", reason="no pyarrow: the data source is NOT tested")

from support.pipeline.topics import Sent, add_partitions, eventually, send

from raftwerk.pipeline.errors import PipelineError
from raftwerk.pipeline.source.kafka_client import KafkaClient
from raftwerk.pipeline.source.options import parse_read
from raftwerk.pipeline.source.reader import BatchReader, StreamReader
from raftwerk.pipeline.topics import Topics

pytestmark = pytest.mark.process
COLUMNS = ("offset", "key", "value", "headers")


def read(bootstrap: str, topic: str, **options: Any) -> list[tuple[Any, ...]]:
    """Every row that the tasks of a batch read, in the order of their offsets."""
    given = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, **options}
    reader = BatchReader(parse_read({name: str(value) for name, value in given.items()}, streaming=False), COLUMNS)
    rows = []
    for partition in reader.partitions():
        for batch in reader.read(partition):
            rows += [tuple(row[name] for name in COLUMNS) for row in batch.to_pylist()]
    return sorted(rows)


def consumed(bootstrap: str, topic: str) -> list[tuple[Any, ...]]:
    """The same by a consumer."""
    config = {"group.id": "c", "enable.auto.commit": False, "enable.partition.eof": True}
    consumer = Consumer({"bootstrap.servers": bootstrap, **config})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    rows = []
    while (message := consumer.poll(30)) is not None:
        error = message.error()
        if error is not None:
            assert error.code() == KafkaError._PARTITION_EOF, error
            break
        headers = [{"key": name, "value": value} for name, value in headers_of(message)] or None
        rows.append((message.offset(), message.key(), message.value(), headers))
    consumer.close()
    return rows


@pytest.fixture(scope="module")
def compacted(cluster: Any) -> str:
    """A topic whose one partition the log cleaner has compacted."""
    topic = "compacted"
    bootstrap = cluster.bootstrap_servers
    small = {"cleanup.policy": "compact", "segment.bytes": "1048576", "min.cleanable.dirty.ratio": "0.01"}
    cluster.create_topic(topic, config={**small, "max.compaction.lag.ms": "100"})
    sent = [Sent(0, b"k%d" % (0 if n % 20 else n), b"%d" % n + b"." * 2000) for n in range(1500)]
    send(bootstrap, topic, sent, **{"batch.num.messages": 20})
    send(bootstrap, topic, [Sent(0, b"last", None)])
    eventually(lambda: len(consumed(bootstrap, topic)) < 1000, 60)
    return topic


@pytest.mark.parametrize("parts", [1, 7])
def test_a_compacted_partition_has_holes(bootstrap: str, compacted: str, parts: int) -> None:
    # The cleaner may run again between two reads: the records after it are a subset of those before.
    before = consumed(bootstrap, compacted)
    found = read(bootstrap, compacted, minPartitions=parts, includeHeaders=True)
    after = consumed(bootstrap, compacted)
    assert [row for row in before if row in found] == found
    assert [row for row in found if row in after] == after
    assert found[-1][:3] == (1500, b"last", None)
    assert any(later[0] - earlier[0] > 5 for earlier, later in pairwise(found))


def test_large_records_and_nothing(cluster: Any, bootstrap: str, topic: str) -> None:
    cluster.create_topic(topic, config={"max.message.bytes": "3000000"})
    sent = [
        Sent(0, b"k", bytes([n]) * 2_000_000, -1, [("h", None), ("", b""), ("long", b"x" * 100_000)]) for n in range(5)
    ]
    send(bootstrap, topic, [*sent, Sent(0, None, None), Sent(0, b"", b"")], **{"message.max.bytes": 3_000_000})
    options = {"kafka.fetch.max.bytes": 1000, "includeHeaders": True}
    assert read(bootstrap, topic, **options) == consumed(bootstrap, topic)


def test_a_range_past_an_open_transaction(cluster: Any, bootstrap: str, topic: str) -> None:
    """With read_committed its records may never come, and the reader is told what it waits for."""
    cluster.create_topic(topic)
    send(bootstrap, topic, [Sent(0, None, b"before")] * 3)
    writer = transactions.open_transaction(bootstrap, topic)
    send(bootstrap, topic, [Sent(0, None, b"behind")])
    options = {
        "kafka.isolation.level": "read_committed",
        "endingOffsets": json.dumps({topic: {"0": 5}}),
        "kafkaConsumer.pollTimeoutMs": 600,
    }
    with pytest.raises(PipelineError, match="records 3 to 5 have not come in 600 ms, a transaction is open from 3 on"):
        read(bootstrap, topic, **options)
    writer.abort_transaction(30)
    assert [row[2] for row in read(bootstrap, topic, **options)] == [b"before"] * 3 + [b"behind"]


def test_a_topic_that_is_made_anew_while_it_is_read(cluster: Any, bootstrap: str, topic: str) -> None:
    """With as many records as were read and more, its offsets alone would not show it."""

    def reader(**more: str) -> StreamReader:
        given = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest", **more}
        return StreamReader(parse_read(given, streaming=True), COLUMNS)

    cluster.create_topic(topic)
    send(bootstrap, topic, [Sent(0, None, b"old")] * 10)
    careful, careless = reader(), reader(failOnDataLoss="false")
    for one in (careful, careless):
        one.partitions(one.initialOffset(), one.latestOffset())
    cluster.delete_topic(topic)
    cluster.create_topic(topic)
    send(bootstrap, topic, [Sent(0, None, b"new")] * 30)
    assert "was deleted and made anew while it was read" in eventually(lambda: _refusal(careful), 30)
    assert eventually(lambda: careless.latestOffset()[topic]["0"] == 30, 30)
    for one in (careful, careless):
        one.stop()


def test_a_first_batch_that_is_run_again_loses_nothing(cluster: Any, bootstrap: str, topic: str) -> None:
    """It has begun at the end, which is elsewhere by then, and Spark writes down only where it ended."""

    def reader() -> StreamReader:
        return StreamReader(
            parse_read({"kafka.bootstrap.servers": bootstrap, "subscribe": topic}, streaming=True), COLUMNS
        )

    cluster.create_topic(topic)
    send(bootstrap, topic, [Sent(0, None, b"old")] * 10)
    before = reader()
    end = before.latestOffset()
    before.partitions(before.initialOffset(), end)
    send(bootstrap, topic, [Sent(0, None, b"new")] * 5)
    after = reader()
    after.partitions(end, end)
    assert after.partitions(after.initialOffset(), end) == []
    (task,) = after.partitions(end, after.latestOffset())
    assert str(task) == f"{topic}-0[10,15)"
    for one in (before, after):
        one.stop()


def _refusal(reader: StreamReader) -> str | None:
    try:
        reader.latestOffset()
    except PipelineError as error:
        return str(error)
    return None


def has_partitions(server: str, topic: str, count: int) -> bool:
    return Topics(server, (topic,)).partitions()[topic] == count


def test_partitions_that_are_added_are_read_from_their_begin(cluster: Any, bootstrap: str, topic: str) -> None:
    cluster.create_topic(topic, partitions=1)
    send(bootstrap, topic, [Sent(0, None, b"a")] * 4)
    given = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "latest"}
    reader = StreamReader(parse_read(given, streaming=True), COLUMNS)
    begin = reader.initialOffset()
    assert reader.partitions(begin, reader.latestOffset()) == []
    add_partitions(bootstrap, topic, 3)
    for server in bootstrap.split(","):  # a producer asks any of them
        eventually(partial(has_partitions, server, topic, 3), 30)
    send(bootstrap, topic, [Sent(2, None, b"b")] * 5)
    wanted = {topic: {"0": 4, "1": 0, "2": 5}}
    eventually(lambda: reader.latestOffset() == wanted, 30)
    (task,) = reader.partitions(begin, json.loads(json.dumps(wanted)))
    assert str(task) == f"{topic}-2[0,5)"
    reader.stop()


def test_a_pattern_selects_no_internal_topic(cluster: Any, bootstrap: str, topic: str) -> None:
    """As Spark's connector and Kafka's consumers; a topic that is named is read."""
    cluster.create_topic(topic)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": topic, "enable.auto.commit": False})
    consumer.commit(offsets=[TopicPartition(topic, 0, 0)], asynchronous=False)
    consumer.close()

    def selected(**option: str) -> set[str]:
        options = parse_read({"kafka.bootstrap.servers": bootstrap, **option}, streaming=False)
        with KafkaClient(options.client) as client:
            found = {key.topic for key in client.partitions(options.strategy)}
            assert set(client.topic_ids(options.strategy)) == found
        return found

    by_pattern = selected(subscribePattern=".*")
    assert topic in by_pattern and not any(name.startswith("__") for name in by_pattern)
    assert selected(subscribe="__consumer_offsets") == {"__consumer_offsets"}
