"""A fetch that names more partitions than one step looks at: it is read in steps, and waits like any other fetch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from support.isr.manager_cluster import Cluster

from raftwerk.isr.fetching import fetch_requests, leader_fetch_sessions
from raftwerk.isr.purgatory import purgatory
from raftwerk.isr.replica import Replica
from raftwerk.isr.results import FetchParams
from raftwerk.runtime.incremental_work import Work, run_at_once
from raftwerk.wire.errors import ErrorCode
from raftwerk.wire.fetch import FetchPartition, FetchPartitionResponse, FetchRequest, FetchResponse, FetchTopic
from raftwerk.wire.types import TopicPartition

PER_STEP = 18
"""Fewer than in the product, so that a broker with some more is made quickly."""
COUNT = 30
FIRST, LAST = TopicPartition("t", 0), TopicPartition("t", COUNT - 1)
STEPS_UNTIL_FIRST_READ = 5
"""Two steps find the partitions, two list them, and one reads the first of them."""


class Fetching:
    """A fetch of many partitions as its `FetchCaller`, which does a step of the work when the test says so."""

    on_gone: Callable[[], object] | None = None
    is_gone = False

    def __init__(self, cluster: Cluster, request: FetchRequest, *, in_steps: bool = False, **params: Any) -> None:
        self._cluster = cluster
        self._work: list[Work[None]] = []
        self.charged = 0
        self.response: FetchResponse | None = None
        manager = cluster.managers[1]
        fetch = manager.fetch_in_steps if in_steps else manager.fetch
        work = cluster.on_loop(fetch, FetchParams(**params), request, self._answered, self)
        if work is not None:
            self._work.append(work)

    def run_in_steps(self, work: Work[None]) -> None:
        self._work.append(work)

    def lose_connection(self) -> None:
        """As a connection does that ends."""
        self.is_gone = True
        if self.on_gone is not None:
            self.on_gone()

    def charge(self, items: int) -> None:
        self.charged += items

    def _answered(self, response: FetchResponse) -> None:
        assert self.response is None, "answered twice"
        self.response = response

    def steps(self, count: int) -> None:
        for _ in range(count):
            self._cluster.on_loop(next, self._work[0])

    def finish_first(self) -> None:
        """Do all of the work that was begun first."""
        self._cluster.on_loop(run_at_once, self._work.pop(0))

    def finish(self) -> None:
        """Do all the work that is left."""
        while self._work:
            self.finish_first()

    @property
    def rows(self) -> list[FetchPartitionResponse]:
        assert self.response is not None, "not answered"
        return [row for topic in self.response.topics for row in topic.partitions]

    @property
    def with_records(self) -> list[int]:
        return [row.partition for row in self.rows if row.records]


@pytest.fixture
def one(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """A broker that leads all partitions of `t`, and has no others."""
    for module in (fetch_requests, leader_fetch_sessions, purgatory):
        monkeypatch.setattr(module, "ITEMS_PER_STEP", PER_STEP)
    cluster = Cluster(nodes=(1,))
    cluster.boot(1)
    cluster.create_topic("t", 7, (1,), COUNT)
    cluster.tell()
    cluster.sleep(0.1)
    return cluster


def of_all(count: int = COUNT, topic: str = "t") -> FetchRequest:
    return FetchRequest(topics=[FetchTopic(topic, None, [FetchPartition(index) for index in range(count)])])


@pytest.mark.parametrize("in_steps", [True, False])
def test_all_partitions_are_answered_in_the_order_of_the_request(one: Cluster, in_steps: bool) -> None:
    for index in (3, COUNT - 1):
        one.produce(1, TopicPartition("t", index))
    fetch = Fetching(one, of_all(), in_steps=in_steps)
    fetch.finish()
    assert [row.partition for row in fetch.rows] == list(range(COUNT))
    assert fetch.with_records == [3, COUNT - 1]
    assert fetch.response is not None and fetch.response.is_long, "it is encoded in steps, too"


def test_a_record_in_any_partition_answers_a_fetch_that_waits(one: Cluster) -> None:
    fetch = Fetching(one, of_all(), max_wait_ms=500)
    fetch.finish()
    assert fetch.response is None
    one.produce(1, LAST)
    fetch.finish()
    assert fetch.with_records == [LAST.partition]
    assert [row.partition for row in fetch.rows] == list(range(COUNT))


def test_a_record_that_comes_behind_the_reader_ends_the_wait(one: Cluster) -> None:
    """Its partition has been read already. The consumer fetches again at once, and does not wait for more."""
    fetch = Fetching(one, of_all(), max_wait_ms=500)
    fetch.steps(STEPS_UNTIL_FIRST_READ)
    one.produce(1, FIRST)
    fetch.finish()
    assert fetch.response is not None
    assert one.managers[1].purgatory.sizes() == (0, 0)


def test_a_fetch_without_news_is_answered_when_its_time_is_over(one: Cluster) -> None:
    fetch = Fetching(one, of_all(), max_wait_ms=300)
    fetch.finish()
    one.sleep(0.299)
    fetch.finish()
    assert fetch.response is None
    one.sleep(0.003)
    fetch.finish()
    assert len(fetch.rows) == COUNT and not fetch.with_records
    assert one.managers[1].purgatory.sizes() == (0, 0)


@pytest.mark.parametrize("steps", [1, STEPS_UNTIL_FIRST_READ - 2, STEPS_UNTIL_FIRST_READ, None])
@pytest.mark.parametrize("in_steps", [True, False])
def test_a_client_that_disappears_is_not_answered(one: Cluster, steps: int | None, in_steps: bool) -> None:
    """While the request is prepared, while the fetch is listed, while it is read, or while it waits."""
    fetch = Fetching(one, of_all(), in_steps=in_steps, max_wait_ms=2**31 - 1)
    if steps is None:
        fetch.finish()
    else:
        fetch.steps(steps)
    fetch.lose_connection()
    fetch.finish()
    one.produce(1, FIRST)
    one.sleep(1.0)
    fetch.finish()
    assert fetch.response is None
    assert one.managers[1].purgatory.sizes() == (0, 0)


class GoneFetching(Fetching):
    """One whose connection was lost while its request was decoded in steps."""

    is_gone = True


@pytest.mark.parametrize("count", [3, COUNT])
def test_a_client_that_is_gone_before_its_fetch_is_looked_at_does_not_wait(one: Cluster, count: int) -> None:
    fetch = GoneFetching(one, of_all(count), max_wait_ms=2**31 - 1)
    fetch.finish()
    assert one.managers[1].purgatory.sizes() == (0, 0)


@pytest.mark.parametrize("steps_before", [0, STEPS_UNTIL_FIRST_READ])
def test_a_cold_read_that_is_over_before_the_last_partition_is_looked_at_is_not_waited_for(
    one: Cluster, steps_before: int
) -> None:
    for _ in range(6):
        one.produce(1, FIRST, b"v" * 400_000)
        one.sleep(0.1)
    one.disks[1].set_sync_latency(0.05, 0.05)
    one.disks[1].make_cold()
    fetch = Fetching(one, of_all(), max_wait_ms=500, max_bytes=1 << 20)
    fetch.steps(steps_before)
    one.sleep(0.2)
    fetch.finish()
    one.sleep(0.2)
    fetch.finish()
    assert fetch.with_records == [FIRST.partition]


def test_an_error_in_one_partition_does_not_wait(one: Cluster) -> None:
    request = of_all()
    request.topics[0].partitions[5].fetch_offset = 99
    fetch = Fetching(one, request, max_wait_ms=500)
    fetch.finish()
    assert [(row.partition, row.error_code) for row in fetch.rows if row.error_code] == [
        (5, ErrorCode.OFFSET_OUT_OF_RANGE)
    ]


def test_unknown_partitions_do_not_wait(one: Cluster) -> None:
    fetch = Fetching(one, of_all(topic="other"), max_wait_ms=500)
    fetch.finish()
    assert {row.error_code for row in fetch.rows} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert len(fetch.rows) == COUNT


def test_what_was_there_before_counts_towards_the_bytes_that_are_waited_for(one: Cluster) -> None:
    one.produce(1, FIRST)
    size_bytes = one.managers[1].partitions[FIRST].log.size_bytes
    fetch = Fetching(one, of_all(), max_wait_ms=500, min_bytes=2 * size_bytes)
    fetch.finish()
    assert fetch.response is None, "it is half of that"
    one.produce(1, LAST)
    fetch.finish()
    assert fetch.with_records == [FIRST.partition, LAST.partition]


def test_enough_bytes_are_answered_at_once(one: Cluster) -> None:
    one.produce(1, FIRST)
    fetch = Fetching(one, of_all(), max_wait_ms=500, min_bytes=one.managers[1].partitions[FIRST].log.size_bytes)
    fetch.finish()
    assert fetch.with_records == [FIRST.partition]


@pytest.mark.parametrize(("partitions", "charged"), [(3, 0), (PER_STEP, PER_STEP)])
def test_the_caller_is_charged_for_many_partitions_that_are_read_at_once(
    one: Cluster, partitions: int, charged: int
) -> None:
    fetch = Fetching(one, of_all(partitions))
    assert len(fetch.rows) == partitions
    assert fetch.charged == charged


def test_a_large_session_is_read_in_steps_and_sends_only_news(one: Cluster) -> None:
    opening = of_all()
    opening.session_epoch = 0
    first = Fetching(one, opening)
    first.finish()
    assert first.response is not None and first.response.session_id
    one.produce(1, LAST)
    second = Fetching(one, FetchRequest(session_id=first.response.session_id, session_epoch=1), max_wait_ms=500)
    second.finish()
    assert [row.partition for row in second.rows] == [LAST.partition]


def test_a_session_that_went_on_meanwhile_refuses_the_former_fetch(one: Cluster) -> None:
    """The client has sent its next fetch without waiting for the answer, and would miss what this one says."""
    opening = of_all()
    opening.session_epoch = 0
    first = Fetching(one, opening)
    first.finish()
    assert first.response is not None
    session_id = first.response.session_id
    second = Fetching(one, FetchRequest(session_id=session_id, session_epoch=1))
    second.steps(1)
    third = Fetching(one, FetchRequest(session_id=session_id, session_epoch=2))
    second.finish()
    third.finish()
    assert second.response is not None and second.response.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert not second.rows
    assert third.response is not None and third.response.error_code == ErrorCode.NONE


def test_a_topic_that_is_made_anew_while_a_fetch_by_its_id_is_read_gives_nothing_of_the_new_one(one: Cluster) -> None:
    """The consumer would take the records of another topic for those that it has subscribed to."""
    former = UUID(int=7)
    partitions = [FetchPartition(index) for index in range(COUNT)]
    fetch = Fetching(one, FetchRequest(topics=[FetchTopic(None, former, partitions)]), uses_topic_ids=True)
    fetch.steps(2)  # the partitions are found, and none is read
    one.delete_topic(former)
    one.create_topic("t", 9, (1,), COUNT)
    one.tell()
    one.sleep(0.1)
    assert one.produce(1, FIRST).error == 0
    fetch.finish()
    assert {row.error_code for row in fetch.rows} == {ErrorCode.INCONSISTENT_TOPIC_ID}
    assert not fetch.with_records


def test_the_answer_after_a_wait_is_made_in_steps_too(one: Cluster) -> None:
    """Each partition is read again, and then looked at again: that takes as long as before the wait."""
    fetch = Fetching(one, of_all(), max_wait_ms=500)
    fetch.finish()
    one.produce(1, LAST)
    fetch.finish_first()  # it leaves the lists of its partitions
    fetch.steps(4)  # two read, and two put into the answer what is to be sent
    assert fetch.response is None
    fetch.finish()
    assert fetch.with_records == [LAST.partition]


def test_a_bug_while_many_partitions_are_read_is_an_error_of_those_only(
    one: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of other steps have their records."""
    read = Replica.read

    def fail_at_last(self: Replica, *args: Any, **others: Any) -> FetchPartitionResponse:
        if self.topic_partition == LAST:
            raise ZeroDivisionError
        return read(self, *args, **others)

    for tp in (FIRST, LAST):
        one.produce(1, tp)
    monkeypatch.setattr(Replica, "read", fail_at_last)
    fetch = Fetching(one, of_all(), max_wait_ms=500)
    fetch.finish()
    assert fetch.with_records == [FIRST.partition]
    assert [row.partition for row in fetch.rows] == list(range(COUNT))
    codes = [row.error_code for row in fetch.rows]
    assert codes == [0] * PER_STEP + [int(ErrorCode.UNKNOWN_SERVER_ERROR)] * (COUNT - PER_STEP)
