"""`writeStream.format("raftwerk")` with a transactional id: what Spark repeats is in the topic once."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.pipeline.topics import committed_values

from raftwerk.pipeline.errors import PipelineError
from raftwerk.pipeline.source.exactly_once.transactional_writer import TransactionalTaskProducer
from raftwerk.pipeline.source.options import parse_write

FILES, LINES, STOPS = 3, 40, 3


@pytest.mark.parametrize("is_known", [False, True])
def test_a_task_that_was_fenced_says_so(bootstrap: str, cluster: Any, topic: str, is_known: bool) -> None:
    """It is told while it waits for acknowledgements, or by the next record."""
    cluster.create_topic(topic, replicas=1)
    settings = {"kafka.bootstrap.servers": bootstrap, "topic": topic, "kafka.transactional.id": topic}
    options = parse_write(settings, streaming=True)
    rows = pa.RecordBatch.from_pydict({"key": [b"k"], "value": [b"v"]})
    fenced, newer = (TransactionalTaskProducer(options, f"{topic}-0") for _ in range(2))
    with pytest.raises(PipelineError, match=r"was fenced by a newer producer .*: start this query again"):
        while is_known:
            fenced.send(rows)
        fenced.send(rows)
        fenced.finish()
    fenced.abort()
    newer.send(rows)
    assert newer.finish().records == 1
    newer.abort()


def fill(directory: Path, numbers: range) -> list[bytes]:
    directory.mkdir(exist_ok=True)
    lines = [f"file {number}, line {line}" for number in numbers for line in range(LINES)]
    for number in numbers:
        text = "\n".join(one for one in lines if one.startswith(f"file {number},"))
        (directory / f"{number}.txt").write_text(text)
    return [one.encode() for one in lines]


def query(spark: Any, tmp_path: Path, bootstrap: str, topic: str, column: str = "value") -> Any:
    """Append the files that are not in the topic yet, one in a batch, by two tasks."""
    rows = spark.readStream.option("maxFilesPerTrigger", "1").text(str(tmp_path / "source"))
    writer = rows.selectExpr(f"{column} AS value").repartition(2).writeStream.format("raftwerk")
    writer = writer.option("kafka.bootstrap.servers", bootstrap).option("topic", topic)
    writer = writer.option("kafka.transactional.id", f"sink-{topic}")
    return writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()


def test_a_batch_that_spark_repeats_is_there_once(
    spark: Any, bootstrap: str, cluster: Any, topic: str, tmp_path: Path
) -> None:
    """The kill comes between the commit of the batch and Spark's note that it is done."""
    cluster.create_topic(topic, partitions=3, replicas=3)
    expected = fill(tmp_path / "source", range(FILES))
    query(spark, tmp_path, bootstrap, topic).awaitTermination()
    assert sorted(committed_values(bootstrap, topic, 3)) == sorted(expected)
    for name in (f"{FILES - 1}", f".{FILES - 1}.crc"):
        os.unlink(tmp_path / "checkpoint" / "commits" / name)
    expected += fill(tmp_path / "source", range(FILES, FILES + 2))
    query(spark, tmp_path, bootstrap, topic).awaitTermination()
    assert sorted(committed_values(bootstrap, topic, 3)) == sorted(expected)


def test_a_task_that_fails_leaves_nothing(spark: Any, bootstrap: str, cluster: Any, topic: str, tmp_path: Path) -> None:
    """Half of the batch is written when a row ends the other task, and the query."""
    cluster.create_topic(topic, partitions=3, replicas=3)
    expected = fill(tmp_path / "source", range(1))
    bad = "if(value like '%line 39', cast(raise_error('a bad row') AS string), value)"
    failing = query(spark, tmp_path, bootstrap, topic, bad)
    with pytest.raises(Exception, match="a bad row"):
        failing.awaitTermination()
    assert committed_values(bootstrap, topic, 3) == []
    query(spark, tmp_path, bootstrap, topic).awaitTermination()
    assert sorted(committed_values(bootstrap, topic, 3)) == sorted(expected)


def run_to_its_end(spark: Any, tmp_path: Path, bootstrap: str, topic: str) -> None:
    """A task of a query that was stopped may begin its transaction late, and fence the task of the next query."""
    from pyspark.errors import StreamingQueryException

    for _ in range(STOPS):
        try:
            query(spark, tmp_path, bootstrap, topic).awaitTermination()
            return
        except StreamingQueryException as error:
            assert "the task was fenced by a newer producer of its transactional id" in str(error)
    raise AssertionError("a task was fenced more often than queries were stopped")


def test_a_leader_that_is_killed_and_queries_that_are_stopped(
    spark: Any, bootstrap: str, cluster: Any, topic: str, tmp_path: Path
) -> None:
    """A broker dies, and the query is stopped in the middle of batches, and started again until all is there."""
    cluster.create_topic(topic, partitions=3, replicas=3)
    expected = fill(tmp_path / "source", range(8))
    cluster.kill(cluster.leader_of(topic))
    try:
        for _ in range(STOPS):
            running = query(spark, tmp_path, bootstrap, topic)
            while running.isActive and not running.recentProgress:
                running.awaitTermination(0.05)
            running.stop()
        run_to_its_end(spark, tmp_path, bootstrap, topic)
    finally:
        cluster.heal()
    assert sorted(committed_values(bootstrap, topic, 3)) == sorted(expected)
