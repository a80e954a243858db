"""Structured Streaming: the same query by Spark's own connector and by our data source; one word differs."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from support.pipeline.queries import (
    FORMATS,
    READ_COMMITTED,
    check_never_backwards,
    goes_on_with,
    output,
    positions,
    rows_written,
    stream,
    to_parquet,
    written,
)
from support.pipeline.topics import (
    PRODUCER,
    T0,
    delete_records_before,
    eventually,
    numbers,
    read_back,
    send,
)
from support.pipeline.transactional_writer import TransactionalWriter

pytestmark = pytest.mark.parametrize("form", FORMATS)


class SendingThread:
    """Numbers sent to every partition of a topic by a thread until it is told to end."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self.sent = 0
        self.failed: list[str] = []
        self._ending = threading.Event()
        self._producer = Producer({"bootstrap.servers": bootstrap, **PRODUCER})
        self._thread = threading.Thread(target=self._run, args=(topic, partitions))
        self._thread.start()

    def _run(self, topic: str, partitions: int) -> None:
        while not self._ending.is_set():
            for partition in range(partitions):
                value = b"%d" % self.sent
                self._producer.produce(topic, value, b"k", partition, on_delivery=self._on_delivery)
            self.sent += 1
            self._producer.poll(0.005)

    def _on_delivery(self, error: Any, _message: Any) -> None:
        if error:
            self.failed.append(str(error))

    def finish(self) -> int:
        self._ending.set()
        self._thread.join()
        assert self._producer.flush(60) == 0
        assert not self.failed
        return self.sent


def test_exactly_once_through_kills_and_a_restart(
    spark: Any, cluster: Any, bootstrap: str, topic: str, form: str, tmp_path: Path
) -> None:
    cluster.create_topic(topic, partitions=3, replicas=3)
    source = SendingThread(bootstrap, topic, 3)
    try:
        with to_parquet(stream(spark, form, bootstrap, subscribe=topic), tmp_path) as query:
            eventually(lambda: query.exception() or rows_written(spark, tmp_path) > 300)
            cluster.kill(cluster.leader_of(topic, 0))
            seen = rows_written(spark, tmp_path)
            eventually(lambda: query.exception() or rows_written(spark, tmp_path) > seen + 300)
            assert query.exception() is None
            check_never_backwards(positions(query, topic))
            cluster.heal()
        again = goes_on_with(spark, form)
        with to_parquet(stream(spark, again, bootstrap, subscribe=topic), tmp_path) as query:
            seen = rows_written(spark, tmp_path)
            cluster.kill(eventually(cluster.controller))
            eventually(lambda: query.exception() or rows_written(spark, tmp_path) > seen + 300)
            assert query.exception() is None
            cluster.heal()
            count = source.finish()
            eventually(lambda: query.exception() or rows_written(spark, tmp_path) >= 3 * count)
            check_never_backwards(positions(query, topic))
    finally:
        source.finish()
        cluster.heal()
    assert written(spark, tmp_path) == {partition: list(range(count)) for partition in range(3)}


def test_transactions_through_kills_and_a_restart(
    spark: Any, cluster: Any, bootstrap: str, topic: str, form: str, tmp_path: Path
) -> None:
    """A leader and the controller die in mid-read, and the stream starts again from its checkpoint in between."""
    cluster.create_topic(topic, partitions=3, replicas=3)
    writer = TransactionalWriter(bootstrap, topic, 3)
    writer.start()
    frame = stream(spark, form, bootstrap, subscribe=topic, **READ_COMMITTED)
    again = stream(spark, goes_on_with(spark, form), bootstrap, subscribe=topic, **READ_COMMITTED)

    def wait_for_rows(count: int) -> None:
        eventually(lambda: query.exception() or rows_written(spark, tmp_path) >= count)

    try:
        for role in ("leader", "controller"):
            with to_parquet(frame if role == "leader" else again, tmp_path) as query:
                wait_for_rows(rows_written(spark, tmp_path) + 50)
                cluster.kill(cluster.leader_of(topic) if role == "leader" else eventually(cluster.controller))
                wait_for_rows(rows_written(spark, tmp_path) + 50)
                check_never_backwards(positions(query, topic))
                assert query.exception() is None
            cluster.heal()
    finally:
        writer.finish()
        cluster.heal()
    writer.begin(20)
    with to_parquet(again, tmp_path) as query:
        wait_for_rows(writer.total)
        assert written(spark, tmp_path) == writer.written
        writer.end(commit=True)
        wait_for_rows(writer.total)
    assert written(spark, tmp_path) == writer.written


def test_max_offsets_per_trigger(
    spark: Any, cluster: Any, bootstrap: str, topic: str, form: str, tmp_path: Path
) -> None:
    cluster.create_topic(topic, partitions=3)
    send(bootstrap, topic, numbers(3, 100))
    limited = {"subscribe": topic, "maxOffsetsPerTrigger": 90}
    with to_parquet(stream(spark, form, bootstrap, **limited), tmp_path) as query:
        eventually(lambda: query.exception() or rows_written(spark, tmp_path) >= 180)
        # Also the first batch, for which Spark asks where it ends before it asks where it begins.
        assert all(progress["numInputRows"] <= 90 for progress in query.recentProgress)
    send(bootstrap, topic, numbers(3, 20, first=100))
    with to_parquet(stream(spark, goes_on_with(spark, form), bootstrap, **limited), tmp_path) as query:
        query.processAllAvailable()
        assert all(progress["numInputRows"] <= 90 for progress in query.recentProgress)
        check_never_backwards(positions(query, topic))
    assert written(spark, tmp_path) == {p: list(range(120)) for p in range(3)}


def test_available_now_and_again(
    spark: Any, cluster: Any, bootstrap: str, topic: str, form: str, tmp_path: Path
) -> None:
    cluster.create_topic(topic, partitions=2)
    for first in (0, 50):
        send(bootstrap, topic, numbers(2, 50, first=first))
        with to_parquet(stream(spark, form, bootstrap, subscribe=topic), tmp_path, availableNow=True) as query:
            assert query.awaitTermination(60)
        assert written(spark, tmp_path) == {p: list(range(first + 50)) for p in range(2)}


def test_topics_that_appear_are_found(
    spark: Any, cluster: Any, bootstrap: str, topic: str, form: str, tmp_path: Path
) -> None:
    cluster.create_topic(f"{topic}-a")
    send(bootstrap, f"{topic}-a", numbers(1, 10))
    with to_parquet(stream(spark, form, bootstrap, subscribePattern=f"{topic}-.*"), tmp_path) as query:
        query.processAllAvailable()
        cluster.create_topic(f"{topic}-b")
        send(bootstrap, f"{topic}-b", numbers(1, 10))
        eventually(lambda: query.exception() or rows_written(spark, tmp_path) >= 20)
    rows = output(spark, tmp_path).groupBy("topic").count().collect()
    assert {row.topic: row[1] for row in rows} == {f"{topic}-a": 10, f"{topic}-b": 10}


@pytest.mark.parametrize(
    ("option", "value", "first"),
    [("startingOffsets", "latest", 30), ("startingOffsets", "json", 12), ("startingTimestamp", T0 + 7_000, 7)],
)
def test_where_a_stream_starts(
    spark: Any, cluster: Any, bootstrap: str, topic: str, form: str, tmp_path: Path, option: str, value: Any, first: int
) -> None:
    cluster.create_topic(topic)
    send(bootstrap, topic, numbers(1, 30))
    chosen = json.dumps({topic: {"0": 12}}) if value == "json" else value
    with to_parquet(stream(spark, form, bootstrap, subscribe=topic, **{option: chosen}), tmp_path) as query:
        eventually(lambda: (tmp_path / "checkpoint" / "offsets" / "0").exists() or query.exception())
        send(bootstrap, topic, numbers(1, 5, first=30))
        query.processAllAvailable()
    (column,) = output(spark, tmp_path).selectExpr("min(offset)").collect()
    assert column[0] == first
    assert rows_written(spark, tmp_path) == 35 - first


def test_records_gone_under_a_stopped_stream(
    spark: Any, cluster: Any, bootstrap: str, topic: str, form: str, tmp_path: Path
) -> None:
    cluster.create_topic(topic)
    send(bootstrap, topic, numbers(1, 10))
    with to_parquet(stream(spark, form, bootstrap, subscribe=topic), tmp_path, availableNow=True) as query:
        assert query.awaitTermination(60)
    send(bootstrap, topic, numbers(1, 20, first=10))
    delete_records_before(bootstrap, topic, 0, 15)
    with to_parquet(stream(spark, form, bootstrap, subscribe=topic), tmp_path) as query:
        error = eventually(query.exception)
        assert "failOnDataLoss" in str(error)
    assert written(spark, tmp_path) == {0: list(range(10))}
    careless = stream(spark, goes_on_with(spark, form), bootstrap, subscribe=topic, failOnDataLoss=False)
    with to_parquet(careless, tmp_path, availableNow=True) as query:
        assert query.awaitTermination(60)
        assert query.exception() is None
    assert written(spark, tmp_path) == {0: [*range(10), *range(15, 30)]}


def test_from_topic_to_topic(spark: Any, cluster: Any, bootstrap: str, topic: str, form: str, tmp_path: Path) -> None:
    cluster.create_topic(topic, partitions=2)
    cluster.create_topic(f"{topic}-copy", partitions=2)
    for first in (0, 100):
        send(bootstrap, topic, numbers(2, 100, first=first))
        frame = stream(spark, form, bootstrap, subscribe=topic).select("key", "value", "partition")
        writer = frame.writeStream.format(form).option("kafka.bootstrap.servers", bootstrap)
        query = (
            writer.option("topic", f"{topic}-copy")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(60)
        assert query.exception() is None
    copies: dict[int, list[int]] = {0: [], 1: []}
    for record in read_back(bootstrap, f"{topic}-copy", 2):
        copies[record.partition()].append(int(record.value()))
    assert copies == {0: list(range(200)), 1: list(range(200))}
