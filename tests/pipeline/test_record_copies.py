"""What an interrupted mirror repeats, which is nothing, what it counts, and which groups it moves."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupState, KafkaError, KafkaException, TopicPartition
from support.pipeline.topics import eventually

from raftwerk.pipeline.errors import PipelineError
from raftwerk.pipeline.jobs import mirror as mirror_module
from raftwerk.pipeline.jobs.copy_reader import HEADER, CopyReader, last_copied
from raftwerk.pipeline.jobs.copy_writer import CopyWriter
from raftwerk.pipeline.jobs.mirror import Mirror, MirrorOptions, summary
from raftwerk.pipeline.jobs.record_copier import CopiedRange, RecordCopier
from raftwerk.pipeline.topics import Topics
from raftwerk.testkit.process_cluster import TestCluster

pa = pytest.importorskip("pyarrow", reason="no pyarrow: copies are NOT tested")


def test_records_that_are_there_already_are_told_apart(bootstrap: str, topic: str) -> None:
    """A task copies three records; its repetition finds them and copies two more."""
    Topics(bootstrap, (topic,)).create(1, {})
    assert copied(bootstrap, topic, range(7, 10)) == [(7, 0, 3, False)]
    assert copied(bootstrap, topic, range(7, 12)) == [(10, 4, 2, False), (7, 0, 3, True)], "offset 3 has the marker"
    assert copied(bootstrap, topic, range(10, 12)) == [(10, 4, 2, True)]
    with pytest.raises(PipelineError, match="the copy of source-0 is ahead of what --state knows"):
        copied(bootstrap, topic, range(7, 11), end=11)


def row_of(offset: int) -> dict[str, Any]:
    where = {"topic": "source", "partition": 0, "offset": offset, "timestamp_ms": 1_767_225_600_000}
    return where | {"key": b"k", "value": b"v", "headers": None}


def copied(
    bootstrap: str, topic: str, offsets: Iterable[int], end: int | None = None
) -> list[tuple[int, int, int, bool]]:
    """Copy rows as a task does, in a micro-batch that ends there, and tell source, target, length and `found`."""
    copier = RecordCopier(bootstrap, {"source": topic}, ends={} if end is None else {("source", 0): end})
    (ranges,) = copier.copy(iter([pa.RecordBatch.from_pylist([row_of(one) for one in offsets])]))
    return [(row["source"], row["target"], row["length"], row["found"]) for row in ranges.to_pylist()]


def copied_record(bootstrap: str, topic: str, **fields: Any) -> Any:
    """A record with these fields, as a consumer of its copy reads it."""
    batch = pa.RecordBatch.from_pylist([row_of(0) | fields])
    assert len(list(RecordCopier(bootstrap, {"source": topic}).copy(iter([batch])))) == 1
    consumer: Any = Consumer({"bootstrap.servers": bootstrap, "group.id": "reads", "isolation.level": "read_committed"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    message = consumer.poll(30)
    consumer.close()
    assert message is not None, "no answer in 30 s"
    return message


def test_a_record_that_is_as_large_as_brokers_take_by_default_is_copied(bootstrap: str, topic: str) -> None:
    """Java's producer sends up to a mebibyte by default, and librdkafka 1,000,000 bytes."""
    Topics(bootstrap, (topic,)).create(1, {})
    value = b"x" * 1_048_000
    assert copied_record(bootstrap, topic, value=value).value() == value


@pytest.mark.parametrize(
    "timestamp_ms",
    [1, -1, *range(1_080_000_000_001, 1_080_000_000_004), pytest.param(1_700_000_000_000_000, id="the year 55840")],
)
def test_a_copy_has_the_timestamp_of_its_record(bootstrap: str, topic: str, timestamp_ms: int) -> None:
    """Some that went through a date and a float were a millisecond early, and Python's dates end with the year 9999."""
    any_time = {"retention.ms": "-1", "message.timestamp.after.max.ms": str(2**63 - 1)}
    Topics(bootstrap, (topic,)).create(1, any_time)
    assert copied_record(bootstrap, topic, timestamp_ms=timestamp_ms).timestamp()[1] == timestamp_ms


def sources_in(bootstrap: str, topic: str) -> list[int]:
    """The offsets at the source of all records that a consumer of the copy reads, at read_committed."""
    config = {"bootstrap.servers": bootstrap, "group.id": "reads", "enable.partition.eof": True}
    consumer: Any = Consumer({**config, "isolation.level": "read_committed"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = []
    while (message := consumer.poll(30)) is not None and message.error() is None:
        found.append(int(dict(message.headers())[HEADER]))
    consumer.close()
    assert message is not None, "no answer in 30 s"
    return found


def test_records_that_the_leader_has_and_no_follower_yet_are_not_copied_again(cluster: TestCluster, topic: str) -> None:
    """An attempt dies while its records wait for a follower that is frozen; the next one must not miss them."""
    cluster.create_topic(topic, replicas=3)
    leader = cluster.leader_of(topic)
    follower = next(one for one in cluster.node_ids if one not in (leader, cluster.controller()))
    bootstrap = cluster.bootstrap_of(*(one for one in cluster.node_ids if one != follower))
    assert copied(bootstrap, topic, range(2)) == [(0, 0, 2, False)]

    def sizes() -> list[int]:
        """The bytes that each replica has."""
        replicas = Path(cluster.plan.directory).glob(f"node-*/{topic}-0")
        return [sum(one.stat().st_size for one in replica.glob("*.log")) for replica in replicas]

    failed: list[BaseException] = []

    def again() -> None:
        try:
            copied(cluster.bootstrap_servers, topic, range(5))
        except BaseException as error:
            failed.append(error)

    with CopyWriter(bootstrap, topic, 0) as dying:
        before = max(sizes())
        dying.send(row_of(2), lambda *_: None)
        eventually(lambda: min(sizes()) > before, 30, 0.05)
        cluster.pause(follower)
        try:
            before = max(sizes())
            dying.send(row_of(3), lambda *_: None)
            eventually(lambda: max(sizes()) > before, 30, 0.05)
            second = threading.Thread(target=again)
            second.start()
        finally:
            cluster.resume(follower)
        second.join(120)
        assert not failed, failed
        with pytest.raises(PipelineError, match=f"another mirror has begun to copy to {topic}-0 at .*: let one of the"):
            dying.commit()
    assert sources_in(bootstrap, topic) == [0, 1, 2, 3, 4]


def test_a_range_that_is_found_again_names_the_copies_by_their_headers(bootstrap: str, topic: str) -> None:
    """The source was compacted between two attempts: records that were copied are not in the repeated batch."""
    Topics(bootstrap, (topic,)).create(1, {})
    copied(bootstrap, topic, range(3))
    copied(bootstrap, topic, range(3, 8))
    assert copied(bootstrap, topic, [4, 6], end=8) == [(4, 5, 4, True)], "in the middle and at the end"


def test_the_last_copy_is_found_before_records_of_attempts_that_failed(bootstrap: str, topic: str) -> None:
    Topics(bootstrap, (topic,)).create(1, {})
    copied(bootstrap, topic, range(5))
    with pytest.raises(PipelineError, match="the lights went out"), CopyWriter(bootstrap, topic, 0) as writer:
        acks: list[int] = []

        def on_delivery(error: Any, message: Any) -> None:
            if error is None:
                acks.append(message.offset())

        for offset in itertools.count(5):
            writer.send(row_of(offset), on_delivery)
            if len(acks) > 100:
                raise PipelineError("the lights went out")
    assert last_copied(bootstrap, topic, 0) == (4, 4)
    with CopyReader(bootstrap, topic, 0) as reader:
        assert [list(reader.copies_from(source)) for source in (3, 5)] == [[(3, 3), (4, 4)], []]
    new, old = copied(bootstrap, topic, range(4, 7))
    assert (new[0], new[2:], old) == (5, (2, False), (4, 4, 1, True)) and new[1] > acks[-1]


def test_a_large_batch_is_committed_in_parts(bootstrap: str, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Consumers at read_committed would wait for all of it otherwise, and the transaction would time out."""
    Topics(bootstrap, (topic,)).create(1, {})
    monkeypatch.setattr("raftwerk.pipeline.jobs.copy_writer._COMMIT_EVERY_S", -1.0)
    assert copied(bootstrap, topic, range(3)) == [(0, 0, 1, False), (1, 2, 1, False), (2, 4, 1, False)]


def test_a_copy_that_cannot_be_read_is_named(bootstrap: str, topic: str) -> None:
    with pytest.raises(PipelineError, match=f"the end of the copy, {topic}-0 at .* could not be read: .* doctor -b"):
        last_copied(bootstrap, topic, 0)


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ({}, {"rows": 7, "rows_found": 0}, "7 records copied"),
        ({}, {"rows": 7, "rows_found": 7}, "0 records copied (7 were there already, 7 in all)"),
        ({}, {"rows": 7, "rows_found": 1}, "6 records copied (1 was there already, 7 in all)"),
        ({"rows": 7}, {"rows": 8, "rows_found": 0}, "1 record copied (8 in all)"),
        ({"rows": 7, "rows_found": 3}, {"rows": 7, "rows_found": 3}, "0 records copied (7 in all)"),
        ({}, {}, "0 records copied"),
    ],
)
def test_a_mirror_tells_what_it_copied_in_this_run(before: dict[str, int], after: dict[str, int], said: str) -> None:
    result, sentence = summary(before, after, 0)
    assert sentence == f"{said}, 0 offsets of groups moved"
    assert result["rows_of_this_run"] == int(said.split()[0])
    assert result["rows"] == after.get("rows", 0)


class Answered:
    """A future that is done, with a value or an exception."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def result(self, _timeout_s: float = 0.0) -> Any:
        if isinstance(self.value, Exception):
            raise self.value
        return self.value


class OneGroup:
    """The admin client of a cluster with one group, which has committed an offset of t-0.

    With `offset` None the user may not read the group.
    """

    def __init__(self, offset: int | None, *, is_listed: bool = True, list_errors: Iterable[KafkaError] = ()) -> None:
        self.offset = offset
        self.listed = [SimpleNamespace(group_id="g", state=ConsumerGroupState.EMPTY)] if is_listed else []
        self.list_errors = list(list_errors)
        self.altered: list[int] = []

    def list_consumer_groups(self, **_: Any) -> Answered:
        return Answered(SimpleNamespace(valid=self.listed, errors=self.list_errors))

    def list_consumer_group_offsets(self, requests: list[Any]) -> dict[str, Answered]:
        (request,) = requests
        if self.offset is None:
            return {request.group_id: Answered(KafkaException(KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED)))}
        places = [TopicPartition("t", 0, self.offset)]
        return {request.group_id: Answered(SimpleNamespace(topic_partitions=places))}

    def alter_consumer_group_offsets(self, requests: list[Any]) -> dict[str, Answered]:
        (request,) = requests
        self.altered += [one.offset for one in request.topic_partitions]
        accepted = [SimpleNamespace(error=None) for _ in request.topic_partitions]
        return {request.group_id: Answered(SimpleNamespace(topic_partitions=accepted))}


def translated(monkeypatch: pytest.MonkeyPatch, source: OneGroup, target: OneGroup) -> tuple[int, list[str]]:
    """Translate the offsets of a copy of a hundred records once; returns the number of moved offsets, and the log."""
    mirror = object.__new__(Mirror)  # the constructor opens the directory of the state with Spark
    mirror.topics, mirror.options = Topics("source:1", ("t",)), MirrorOptions("target:1", "state")
    mirror.copy_names = {"t": "t"}
    copied_ranges: Any = SimpleNamespace(by_place=lambda: {("t", 0): [CopiedRange("t", 0, 0, 0, 100)]})
    mirror.copied, mirror.moved = copied_ranges, 0
    clients = {"source:1": source, "target:1": target}
    monkeypatch.setattr(mirror_module, "_admin", lambda bootstrap_servers, _login: clients[bootstrap_servers])
    told: list[str] = []
    return mirror.translate_group_offsets(told.append), told


def test_a_group_that_the_target_does_not_list_is_not_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """While the partition of its coordinator has no leader, a group is in no list, and there is no error either."""
    target = OneGroup(57, is_listed=False)
    assert translated(monkeypatch, OneGroup(50), target) == (0, [])
    assert target.altered == [], "it had gone on to 57"
    assert translated(monkeypatch, OneGroup(60), target) == (1, [])
    assert target.altered == [60]


def test_no_group_is_moved_while_a_coordinator_of_the_target_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    loading = KafkaError(KafkaError.COORDINATOR_LOAD_IN_PROGRESS)
    target = OneGroup(10, is_listed=False, list_errors=[loading])
    moved, told = translated(monkeypatch, OneGroup(50), target)
    assert (moved, target.altered) == (0, [])
    assert len(told) == 1 and "since target:1 does not list all groups (" in told[0]


def test_a_group_that_the_mirror_may_not_read_at_the_target_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    target = OneGroup(None, is_listed=False)
    assert translated(monkeypatch, OneGroup(50), target) == (0, [])
    assert target.altered == []


def test_a_copy_that_a_broker_does_not_know_yet_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    unknown = KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
    answers: list[Any] = [unknown, unknown, (0, 0)]

    def watermarks(*_: Any, **__: Any) -> Any:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr("raftwerk.pipeline.jobs.copy_reader._POLL_S", 0.0)
    with CopyReader("localhost:1", "copy", 0) as reader:
        reader._consumer.close()
        reader._consumer = SimpleNamespace(get_watermark_offsets=watermarks, close=list)
        assert reader.last() == (-1, -1)
        answers[:] = [unknown] * 2
        monkeypatch.setattr("raftwerk.pipeline.jobs.copy_reader._UNKNOWN_S", 0.0)
        with pytest.raises(PipelineError, match="could not be read"):
            reader.last()
