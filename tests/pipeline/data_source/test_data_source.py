"""What our data source does beyond the connector, and what it says of what it cannot do."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.pipeline.queries import load, output, per, rows_written, stream, to_parquet, written
from support.pipeline.topics import committed, numbers, read_back, segment_of, send, spoil, values_by_partition

from raftwerk.pipeline.errors import PipelineError, explain, sentence_of
from raftwerk.pipeline.source.arrow_columns import HEADERS_TYPE
from raftwerk.pipeline.source.options import ClientOptions, WriteOptions
from raftwerk.pipeline.source.writer import TaskProducer
from raftwerk.wire.records import compute_crc, read_header


def refusal(action: Callable[[], Any]) -> str:
    """The one sentence that an action ends in."""
    with pytest.raises(Exception) as raised:
        action()
    sentence = sentence_of(raised.value)
    assert sentence is not None, str(raised.value)[-1500:]
    return sentence


def drain(spark: Any, directory: Path, frame: Any) -> None:
    with to_parquet(frame, directory, availableNow=True) as query:
        assert query.awaitTermination(90)


# ---------------------------------------------------------------------------------------------------- what it does more


def test_the_groups_lag_is_seen(spark: Any, cluster: Any, bootstrap: str, topic: str, tmp_path: Path) -> None:
    cluster.create_topic(topic, partitions=2)
    send(bootstrap, topic, numbers(2, 30))
    drain(spark, tmp_path, stream(spark, "raftwerk", bootstrap, subscribe=topic, **{"kafka.group.id": f"g-{topic}"}))
    # Spark tells a source of a batch's end when it plans the next one: nothing follows, so this is the next run's work.
    send(bootstrap, topic, numbers(2, 10, first=30))
    drain(spark, tmp_path, stream(spark, "raftwerk", bootstrap, subscribe=topic, **{"kafka.group.id": f"g-{topic}"}))
    assert committed(bootstrap, f"g-{topic}", topic) in ({0: 30, 1: 30}, {0: 40, 1: 40})


def test_a_checkpoint_moves_from_the_connector_and_back(
    spark: Any, cluster: Any, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    cluster.create_topic(topic, partitions=2)
    for turn, form in enumerate(["kafka", "raftwerk", "kafka"]):
        send(bootstrap, topic, numbers(2, 10, first=10 * turn))
        drain(spark, tmp_path, stream(spark, form, bootstrap, subscribe=topic))
        assert written(spark, tmp_path) == {p: list(range(10 * turn + 10)) for p in range(2)}


def test_a_schema_of_ones_own_reads_those_columns(spark: Any, cluster: Any, bootstrap: str, topic: str) -> None:
    cluster.create_topic(topic)
    send(bootstrap, topic, numbers(1, 5))
    reader = spark.read.format("raftwerk").option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
    frame = reader.schema("offset bigint, value binary").load()
    assert [tuple(row) for row in frame.collect()] == [(number, b"%d" % number) for number in range(5)]


# ------------------------------------------------------------------------------------------------------------ bad input


@pytest.mark.parametrize("streaming", [False, True])
def test_a_topic_that_is_not_there(spark: Any, bootstrap: str, topic: str, tmp_path: Path, streaming: bool) -> None:
    if streaming:
        said = refusal(lambda: drain(spark, tmp_path, stream(spark, "raftwerk", bootstrap, subscribe=topic)))
    else:
        said = refusal(lambda: load(spark, "raftwerk", bootstrap, subscribe=topic).count())
    assert said == f"topic {topic} is not there: create it (raftwerk topics create {topic}), or mend subscribe."
    assert not list(tmp_path.glob("out/*.parquet"))


def test_no_broker_is_there(spark: Any, topic: str) -> None:
    nowhere = "127.0.0.1:1"
    patience = {"kafka.default.api.timeout.ms": 300}
    said = refusal(lambda: load(spark, "raftwerk", nowhere, subscribe=topic, **patience).count())
    assert said == (
        f"kafka.bootstrap.servers {nowhere}: no broker answers: {nowhere} refuses the connection; is the cluster up?"
    )
    frame = spark.sql("select 'x' as value").write.format("raftwerk").mode("append").option("topic", topic)
    frame = frame.option("kafka.bootstrap.servers", nowhere).option("kafka.delivery.timeout.ms", 500)
    assert f"topic {topic} of {nowhere} does not take a record" in refusal(frame.save)


def test_an_offset_out_of_range(spark: Any, cluster: Any, bootstrap: str, topic: str) -> None:
    cluster.create_topic(topic)
    send(bootstrap, topic, numbers(1, 10))
    beyond = {"subscribe": topic, "startingOffsets": per(topic, p0=50)}
    said = refusal(lambda: load(spark, "raftwerk", bootstrap, **beyond).count())
    assert said.startswith(f"offset 50 of {topic}-0 is not in the log, which has 0 to 10: the log is shorter")
    assert load(spark, "raftwerk", bootstrap, **beyond, failOnDataLoss=False).count() == 0


@pytest.mark.parametrize("poison", ["crc", "codec"])
def test_a_poisonous_record(spark: Any, cluster: Any, bootstrap: str, topic: str, tmp_path: Path, poison: str) -> None:
    cluster.create_topic(topic, replicas=1)
    send(bootstrap, topic, numbers(1, 5))
    if poison == "crc":
        spoil(cluster, topic)
    else:
        path = segment_of(cluster, topic)
        data = bytearray(path.read_bytes())
        data[22] |= 7
        struct.pack_into(">I", data, 17, compute_crc(data, 0, read_header(data)))
        with path.open("r+b") as file:
            file.write(data)
    reason = {"crc": "its CRC does not match its bytes", "codec": "unknown compression codec 7"}[poison]
    expected = f"{topic}-0: the records from offset 0 on cannot be read: {reason}; look at the file"
    assert refusal(lambda: load(spark, "raftwerk", bootstrap, subscribe=topic).count()).startswith(expected)
    said = refusal(lambda: drain(spark, tmp_path, stream(spark, "raftwerk", bootstrap, subscribe=topic)))
    assert said.startswith(expected)
    assert rows_written(spark, tmp_path) == 0


def test_a_checkpoint_of_another_topic(spark: Any, cluster: Any, bootstrap: str, topic: str, tmp_path: Path) -> None:
    other = f"{topic}-other"
    for name in (topic, other):
        cluster.create_topic(name)
        send(bootstrap, name, numbers(1, 10))
    drain(spark, tmp_path, stream(spark, "raftwerk", bootstrap, subscribe=other))
    said = refusal(lambda: drain(spark, tmp_path, stream(spark, "raftwerk", bootstrap, subscribe=topic)))
    assert said == (
        f"the checkpoint is of topic {other}, and this query reads {topic}: take another checkpointLocation, or "
        "subscribe what the checkpoint is of."
    )
    assert {row.topic for row in output(spark, tmp_path).collect()} == {other}


def test_a_schema_that_does_not_fit(spark: Any, bootstrap: str, topic: str) -> None:
    reader = spark.read.format("raftwerk").option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
    said = refusal(lambda: reader.schema("carrier string").load().count())
    assert said.startswith("the schema has carrier string, and a topic has key binary, value binary")


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("select 1 as number", "there is no column value among number: name what is written so, or cast to it."),
        ("select 1 as value", "column value is int, and must be string or binary: cast it."),
        ("select 'v' as value, array('x') as headers", "must be array<struct<key:string,value:binary>>: cast it."),
        ("select 'v' as value, cast(null as string) as topic", "a row has a null topic"),
        ("select 'v' as value, '{topic}' as topic, 9 as partition", "does not take a record: it has no partition 9,"),
    ],
)
def test_rows_that_cannot_be_written(
    spark: Any, cluster: Any, bootstrap: str, topic: str, query: str, sentence: str
) -> None:
    cluster.create_topic(topic, partitions=1)
    writer = spark.sql(query.format(topic=topic)).write.format("raftwerk").mode("append")
    writer = writer.option("kafka.bootstrap.servers", bootstrap).option("kafka.delivery.timeout.ms", 2000)
    if "topic" not in query:
        writer = writer.option("topic", topic)
    assert sentence in refusal(writer.save)
    assert read_back(bootstrap, topic, 1) == []


def test_a_partition_that_the_client_knows_is_not_there(cluster: Any, bootstrap: str, topic: str) -> None:
    """The client refuses the record at once when it has the topic's metadata, and in a report when it has not."""
    cluster.create_topic(topic, partitions=1)
    sender = TaskProducer(WriteOptions(ClientOptions(bootstrap), topic, {}))
    first, second = (pa.RecordBatch.from_pylist([{"value": b"v", "partition": number}]) for number in (0, 9))
    sender.send(first)
    sender.finish()
    with pytest.raises(PipelineError, match="does not take a record: it has no partition 9, which is in the column"):
        sender.send(second)


def test_rows_wait_for_space_in_the_queue(cluster: Any, bootstrap: str, topic: str) -> None:
    """Columns that some rows leave null are among them, and each row is there once."""
    cluster.create_topic(topic, partitions=2)
    sender = TaskProducer(WriteOptions(ClientOptions(bootstrap), topic, {"queue.buffering.max.messages": "7"}))
    header = [{"key": "h", "value": b"x"}]
    rows = [
        {"value": b"%d" % n, "partition": None if n % 3 else 1, "headers": header if n % 2 else None}
        for n in range(100)
    ]
    types = {"value": pa.binary(), "partition": pa.int32(), "headers": HEADERS_TYPE}
    sender.send(pa.RecordBatch.from_pylist(rows, schema=pa.schema(types)))
    assert sender.finish().records == 100
    found = {int(one.value()): (one.partition(), one.headers()) for one in read_back(bootstrap, topic, 2)}
    assert sorted(found) == [*range(100)]
    assert all(found[n][0] == 1 for n in range(0, 100, 3))
    assert all(found[n][1] == ([("h", b"x")] if n % 2 else None) for n in range(100))


def test_a_full_queue_ends_with_the_first_failure() -> None:
    settings = {"queue.buffering.max.messages": "3", "message.timeout.ms": "50"}
    sender = TaskProducer(WriteOptions(ClientOptions("127.0.0.1:1"), "flights", settings))
    with pytest.raises(PipelineError, match=r"topic flights of 127\.0\.0\.1:1 does not take a record"):
        sender.send(pa.RecordBatch.from_pylist([{"value": b"%d" % number} for number in range(10_000)]))


def test_a_topic_is_not_overwritten(spark: Any, bootstrap: str, topic: str) -> None:
    writer = spark.sql("select 'v' as value").write.format("raftwerk").mode("overwrite")
    writer = writer.option("kafka.bootstrap.servers", bootstrap).option("topic", topic)
    assert refusal(writer.save) == "a topic cannot be overwritten: say mode append."


def test_a_write_says_that_it_appends(spark: Any, bootstrap: str, topic: str) -> None:
    writer = spark.sql("select 'v' as value").write.format("raftwerk")
    writer = writer.option("kafka.bootstrap.servers", bootstrap).option("topic", topic)
    with pytest.raises(Exception, match="UNSUPPORTED_DATA_SOURCE_SAVE_MODE") as raised:
        writer.save()
    assert str(explain(raised.value)) == 'a topic is appended to: say .mode("append") before save().'


def test_a_topic_made_anew_under_a_stream(spark: Any, cluster: Any, bootstrap: str, topic: str, tmp_path: Path) -> None:
    cluster.create_topic(topic)
    send(bootstrap, topic, numbers(1, 10))
    drain(spark, tmp_path, stream(spark, "raftwerk", bootstrap, subscribe=topic))
    cluster.delete_topic(topic)
    cluster.create_topic(topic)
    send(bootstrap, topic, numbers(1, 4))
    said = refusal(lambda: drain(spark, tmp_path, stream(spark, "raftwerk", bootstrap, subscribe=topic)))
    assert said.startswith(f"offset 10 of {topic}-0 is not in the log, which has 0 to 4: the log is shorter")
    assert json.loads((tmp_path / "checkpoint" / "offsets" / "0").read_text().splitlines()[-1]) == {topic: {"0": 10}}
    assert values_by_partition(output(spark, tmp_path).collect()) == {0: list(range(10))}
