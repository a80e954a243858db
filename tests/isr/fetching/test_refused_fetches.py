"""What a fetch is told of partitions that it may not read, that are not there, or whose reader has a bug."""

from __future__ import annotations

from uuid import UUID

import pytest
from support.isr.manager_cluster import Answer, Cluster

from raftwerk.isr.replica import Replica
from raftwerk.isr.results import FetchParams
from raftwerk.runtime.invariants import InvariantViolation
from raftwerk.wire.errors import ErrorCode
from raftwerk.wire.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from raftwerk.wire.types import TopicPartition

OPEN, SECRET, UNKNOWN = UUID(int=7), UUID(int=8), UUID(int=99)
TP = TopicPartition("open", 0)


@pytest.fixture
def broker() -> Cluster:
    """A broker that leads a partition of the topics `open` and `secret`, each with a record."""
    cluster = Cluster(nodes=(1,))
    cluster.boot(1)
    for name, topic_id in (("open", OPEN), ("secret", SECRET)):
        cluster.create_topic(name, topic_id.int, (1,))
    cluster.tell()
    cluster.sleep(0.1)
    for name in ("open", "secret"):
        cluster.produce(1, TopicPartition(name, 0))
    return cluster


def fetch(cluster: Cluster, *topics: tuple[str | None, UUID | None], params: FetchParams) -> FetchResponse:
    """The answer to a fetch of partition 0 of these topics, which must come at once."""
    answers: list[FetchResponse] = []
    request = FetchRequest(topics=[FetchTopic(name, topic_id, [FetchPartition(0)]) for name, topic_id in topics])
    cluster.on_loop(Answer().caller.fetch, cluster.managers[1], params, request, answers.append)
    (response,) = answers
    return response


def test_who_may_not_read_a_topic_gets_none_of_it_and_does_not_learn_whether_it_exists(broker: Cluster) -> None:
    """By its name or by its id. Only an id that stands for no topic says so: nobody can guess a topic from it."""
    topics = [("open", None), ("secret", None), (None, SECRET), ("nowhere", None), (None, UNKNOWN)]
    params = FetchParams(may_read=lambda name: name == "open")
    answered = fetch(broker, *topics, params=params).topics
    refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    codes = [row.error_code for topic in answered for row in topic.partitions]
    assert codes == [0, refused, refused, refused, ErrorCode.UNKNOWN_TOPIC_ID]
    assert [bool(row.records) for topic in answered for row in topic.partitions] == [True] + [False] * 4


@pytest.mark.parametrize(
    ("name", "topic_id", "code"),
    [
        ("nowhere", None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (None, UNKNOWN, ErrorCode.UNKNOWN_TOPIC_ID),
        (None, None, ErrorCode.UNKNOWN_TOPIC_ID),
    ],
)
def test_a_topic_that_is_not_there_is_answered_by_what_it_was_called(
    broker: Cluster, name: str | None, topic_id: UUID | None, code: ErrorCode
) -> None:
    """A request of a version with ids that has none means the zero id."""
    (topic,) = fetch(broker, (name, topic_id), params=FetchParams(max_wait_ms=500)).topics
    assert (topic.name, topic.topic_id) == (name, None if name else topic_id or UUID(int=0))
    assert [row.error_code for row in topic.partitions] == [code]


def test_a_bug_in_a_reader_is_an_error_in_the_answer_and_the_broker_goes_on(
    broker: Cluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The client would else wait for its answer until its request times out. What has an error keeps its own."""

    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(Replica, "read", fail)
    wanted = {TopicPartition("nowhere", 0): 0, TP: 0}
    answer = broker.consume_all(1, wanted, max_wait_ms=500)
    assert answer.rows is not None
    codes = [row.error_code for row in answer.rows]
    assert codes == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_SERVER_ERROR]
    assert "fetch failed" in caplog.text
    monkeypatch.undo()
    assert broker.consume(1, TP, 0).row.records


def test_a_broken_invariant_in_a_reader_is_not_an_answer(broker: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The node stops, since what it would tell may be wrong."""

    def fail(*_: object, **__: object) -> None:
        raise InvariantViolation("it must hold")

    monkeypatch.setattr(Replica, "read", fail)
    with pytest.raises(InvariantViolation):
        broker.consume(1, TP, 0, max_wait_ms=500)


def test_the_rows_of_a_topic_stand_together_in_the_order_of_the_request(broker: Cluster) -> None:
    """A topic that is named twice in a row is one; one that comes again later is another."""
    topics = [("open", None), ("open", None), ("secret", None), ("open", None)]
    answered = fetch(broker, *topics, params=FetchParams()).topics
    assert [(topic.name, len(topic.partitions)) for topic in answered] == [("open", 2), ("secret", 1), ("open", 1)]
    by_id = fetch(broker, (None, OPEN), (None, SECRET), params=FetchParams(uses_topic_ids=True)).topics
    assert [(topic.name, topic.topic_id) for topic in by_id] == [(None, OPEN), (None, SECRET)]


def test_a_fetch_of_partitions_that_are_all_unknown_is_answered_at_once(broker: Cluster) -> None:
    """None of them can get records. One that is known may, and the fetch waits for it."""
    unknown, other = TopicPartition("nowhere", 0), TopicPartition("nowhere", 1)
    assert broker.consume_all(1, {unknown: 0, other: 0}, max_wait_ms=500).rows is not None
    waiting = broker.consume_all(1, {unknown: 0, TP: 1}, max_wait_ms=500)
    assert waiting.rows is None
    broker.produce(1, TP)
    assert waiting.rows is not None
    assert [row.error_code for row in waiting.rows] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0]
