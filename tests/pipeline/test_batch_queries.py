"""Batch reads and writes: the same job by Spark's own connector and by our data source; one word differs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from support.pipeline.queries import FORMATS, READ_COMMITTED, load, per
from support.pipeline.topics import (
    T0,
    Sent,
    delete_records_before,
    eventually,
    numbers,
    read_back,
    send,
    values_by_partition,
)
from support.pipeline.transactional_writer import TransactionalWriter

from raftwerk.cluster.settings.properties import parse_properties
from raftwerk.testkit.process_cluster import TestCluster

pytestmark = pytest.mark.parametrize("form", FORMATS)


@pytest.fixture(scope="module")
def numbered(cluster: Any) -> str:
    """100 numbers in each of three partitions, never written to again."""
    topic: str = cluster.create_topic("numbered", partitions=3, replicas=3)
    send(cluster.bootstrap_servers, topic, numbers(3, 100))
    return topic


def test_every_column_is_as_it_was_sent(spark: Any, cluster: Any, bootstrap: str, topic: str, form: str) -> None:
    cluster.create_topic(topic, partitions=2)
    sent = [
        Sent(0, b"key", b"value", T0, [("a", b"1"), ("a", b"2"), ("empty", b""), ("none", None)]),
        Sent(0, None, b"\x00\xff" * 5000, T0 + 1),
        Sent(0, b"tombstone", None, T0 + 2),
        Sent(0, b"", b"", T0 + 86_400_000, [("ünïcode", "wörld".encode())]),
        Sent(1, b"other", b"partition", T0 + 3),
    ]
    send(bootstrap, topic, sent)
    frame = load(spark, form, bootstrap, subscribe=topic, includeHeaders=True)
    assert [(field.name, field.dataType.simpleString()) for field in frame.schema] == [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "int"),
        ("offset", "bigint"),
        ("timestamp", "timestamp"),
        ("timestampType", "int"),
        ("headers", "array<struct<key:string,value:binary>>"),
    ]
    rows = frame.orderBy("partition", "offset").collect()
    assert len(rows) == len(sent)
    offsets = [0, 1, 2, 3, 0]
    for row, one, offset in zip(rows, sent, offsets):
        assert (row.key, row.value, row.topic) == (one.key, one.value, topic)
        assert (row.partition, row.offset, row.timestampType) == (one.partition, offset, 0)
        assert row.timestamp.replace(tzinfo=row.timestamp.tzinfo or UTC) == utc(one.timestamp_ms)
        assert ([tuple(header) for header in row.headers] if row.headers else None) == one.headers


def utc(timestamp_ms: int) -> datetime:
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC)


def test_without_headers_there_are_seven_columns(spark: Any, bootstrap: str, numbered: str, form: str) -> None:
    frame = load(spark, form, bootstrap, subscribe=numbered)
    assert frame.columns == ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
    assert values_by_partition(frame.collect()) == {p: list(range(100)) for p in range(3)}


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_codecs(spark: Any, cluster: Any, bootstrap: str, topic: str, form: str, codec: str) -> None:
    cluster.create_topic(topic)
    send(bootstrap, topic, numbers(1, 500), **{"compression.type": codec})
    assert values_by_partition(load(spark, form, bootstrap, subscribe=topic).collect()) == {0: list(range(500))}


def test_which_topics_and_partitions(spark: Any, cluster: Any, bootstrap: str, topic: str, form: str) -> None:
    for suffix in ("a", "b", "other"):
        cluster.create_topic(f"{topic}-{suffix}", partitions=2)
        send(bootstrap, f"{topic}-{suffix}", numbers(2, 3))

    def found(**options: Any) -> dict[tuple[str, int], int]:
        rows = load(spark, form, bootstrap, **options).groupBy("topic", "partition").count().collect()
        return {(row.topic.rsplit("-", 1)[1], row.partition): row[2] for row in rows}

    assert found(subscribe=f"{topic}-a,{topic}-b") == {(name, p): 3 for name in "ab" for p in range(2)}
    assert found(subscribePattern=f"{topic}-[ab]") == {(name, p): 3 for name in "ab" for p in range(2)}
    chosen = json.dumps({f"{topic}-a": [1], f"{topic}-other": [0]})
    assert found(assign=chosen) == {("a", 1): 3, ("other", 0): 3}


def test_offsets(spark: Any, bootstrap: str, numbered: str, form: str) -> None:
    frame = load(
        spark,
        form,
        bootstrap,
        subscribe=numbered,
        startingOffsets=per(numbered, p0=10, p1=-2, p2=99),
        endingOffsets=per(numbered, p0=20, p1=5, p2=-1),
    )
    assert values_by_partition(frame.collect()) == {0: list(range(10, 20)), 1: list(range(5)), 2: [99]}


def test_an_empty_range_is_empty(spark: Any, bootstrap: str, numbered: str, form: str) -> None:
    same = per(numbered, p0=50, p1=50, p2=50)
    frame = load(spark, form, bootstrap, subscribe=numbered, startingOffsets=same, endingOffsets=same)
    assert frame.count() == 0


def test_timestamps(spark: Any, bootstrap: str, numbered: str, form: str) -> None:
    frame = load(spark, form, bootstrap, subscribe=numbered, startingTimestamp=T0 + 40_000, endingTimestamp=T0 + 45_000)
    assert values_by_partition(frame.collect()) == {p: list(range(40, 45)) for p in range(3)}
    by_partition = load(
        spark,
        form,
        bootstrap,
        subscribe=numbered,
        startingOffsetsByTimestamp=per(numbered, p0=T0 + 98_000, p1=T0 + 96_500, p2=T0 + 99_000),
    )
    assert values_by_partition(by_partition.collect()) == {0: [98, 99], 1: [97, 98, 99], 2: [99]}


def test_a_timestamp_past_the_end(spark: Any, bootstrap: str, numbered: str, form: str) -> None:
    late = {"subscribe": numbered, "startingTimestamp": T0 + 10_000_000}
    with pytest.raises(Exception, match=r"(?i)no offset|timestamp"):
        load(spark, form, bootstrap, **late).count()
    frame = load(spark, form, bootstrap, **late, startingOffsetsByTimestampStrategy="latest")
    assert frame.count() == 0


def test_partitions_are_cut(spark: Any, bootstrap: str, numbered: str, form: str) -> None:
    whole = load(spark, form, bootstrap, subscribe=numbered)
    assert whole.rdd.getNumPartitions() == 3
    cut = load(spark, form, bootstrap, subscribe=numbered, minPartitions=12)
    assert cut.rdd.getNumPartitions() == 12
    assert values_by_partition(cut.collect()) == {p: list(range(100)) for p in range(3)}
    fine = load(spark, form, bootstrap, subscribe=numbered, maxRecordsPerPartition=30, minPartitions=4)
    assert fine.rdd.getNumPartitions() == 12
    assert values_by_partition(fine.collect()) == {p: list(range(100)) for p in range(3)}


def test_records_that_are_gone(spark: Any, cluster: Any, bootstrap: str, topic: str, form: str) -> None:
    cluster.create_topic(topic)
    send(bootstrap, topic, numbers(1, 20))
    delete_records_before(bootstrap, topic, 0, 8)
    wanted = {"subscribe": topic, "startingOffsets": per(topic, p0=3)}
    assert values_by_partition(load(spark, form, bootstrap, subscribe=topic).collect()) == {0: list(range(8, 20))}
    with pytest.raises(Exception, match=r"(?i)data|out of range"):
        load(spark, form, bootstrap, **wanted, failOnDataLoss=True).collect()
    kept = load(spark, form, bootstrap, **wanted, failOnDataLoss=False)
    assert values_by_partition(kept.collect()) == {0: list(range(8, 20))}


def test_transactions(spark: Any, cluster: Any, bootstrap: str, topic: str, form: str) -> None:
    """Ranges are cut anywhere, also within transactions that were aborted. The default is read_uncommitted."""
    cluster.create_topic(topic, partitions=3, replicas=3)
    ended, undecided = (TransactionalWriter(bootstrap, topic, 3, seed=seed) for seed in (1, 2))
    ended.run(40)

    def read(**options: Any) -> dict[int, list[int]]:
        frame = load(spark, form, bootstrap, subscribe=topic, **options)
        return values_by_partition(frame.collect())

    assert read(**READ_COMMITTED) == ended.written
    assert read(**READ_COMMITTED, minPartitions=17) == ended.written
    assert read() == ended.all != ended.written
    undecided.begin(30)
    behind = ended.written
    ended.written = {partition: [] for partition in range(3)}
    ended.run(10)
    assert read(**READ_COMMITTED) == behind
    undecided.end(commit=True)
    wanted = {p: sorted([*behind[p], *undecided.written[p], *ended.written[p]]) for p in range(3)}
    found = eventually(
        lambda: (rows := read(**READ_COMMITTED)) and sum(map(len, rows.values())) == _total(wanted) and rows
    )
    assert {partition: sorted(numbers) for partition, numbers in found.items()} == wanted


def _total(numbers: dict[int, list[int]]) -> int:
    return sum(map(len, numbers.values()))


def test_write(spark: Any, cluster: Any, bootstrap: str, topic: str, form: str) -> None:
    cluster.create_topic(topic, partitions=3, replicas=3)
    cluster.create_topic(f"{topic}-2", partitions=1, replicas=3)
    frame = spark.sql(
        f"""select cast(id as string) as key, cast(id * 10 as string) as value,
                   if(id % 2 = 0, '{topic}', '{topic}-2') as topic, cast(0 as int) as partition,
                   array(named_struct('key', 'h', 'value', cast(cast(id as string) as binary))) as headers,
                   id as passed_over
            from range(100)"""
    )
    writer = frame.write.format(form).option("kafka.bootstrap.servers", bootstrap)
    writer.option("includeHeaders", "true").mode("append").save()
    for name, numbers_sent in ((topic, range(0, 100, 2)), (f"{topic}-2", range(1, 100, 2))):
        records = read_back(bootstrap, name, 1)
        assert sorted(int(one.value()) for one in records) == [10 * number for number in numbers_sent]
        assert all(int(one.key()) * 10 == int(one.value()) for one in records)
        assert all(one.headers() == [("h", one.key())] for one in records)


def test_written_keys_go_where_every_client_puts_them(
    spark: Any, cluster: Any, bootstrap: str, topic: str, form: str
) -> None:
    cluster.create_topic(topic, partitions=5, replicas=3)
    cluster.create_topic(f"{topic}-by-librdkafka", partitions=5, replicas=3)
    frame = spark.range(200).selectExpr("cast(id as string) as key", "cast(null as string) as value")
    frame.write.format(form).option("kafka.bootstrap.servers", bootstrap).option("topic", topic).mode("append").save()
    here = {one.key(): one.partition() for one in read_back(bootstrap, topic, 5)}
    theirs = f"{topic}-by-librdkafka"
    send(bootstrap, theirs, [Sent(-1, b"%d" % n, None) for n in range(200)], partitioner="murmur2_random")
    assert here == {one.key(): one.partition() for one in read_back(bootstrap, theirs, 5)}
    assert len(here) == 200


@pytest.fixture(scope="module")
def secured() -> Iterator[TestCluster]:
    with TestCluster.start(secure=True) as running:
        yield running


def test_a_secured_cluster_by_the_options_of_the_java_client(
    spark: Any, secured: TestCluster, topic: str, form: str
) -> None:
    secured.create_topic(topic)
    with open(secured.client_properties(), encoding="utf-8") as file:
        options = {f"kafka.{name}": value for name, value in parse_properties(file.read()).items()}
    frame = spark.range(50).selectExpr("cast(id as string) as value")
    frame.write.format(form).options(**options).option("topic", topic).mode("append").save()
    records = spark.read.format(form).options(**options).option("subscribe", topic).load()
    assert sorted(int(row.text) for row in records.selectExpr("cast(value as string) as text").collect()) == [
        *range(50)
    ]
    wrong = options["kafka.sasl.jaas.config"].replace('password="', 'password="x')
    refused = spark.read.format(form).options(**{**options, "kafka.sasl.jaas.config": wrong})
    with pytest.raises(Exception, match=r"[Aa]uthentication"):
        refused.option("subscribe", topic).load().count()
