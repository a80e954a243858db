"""An unexpected error while a partition is read is told to who fetches it, and to nobody else."""

from __future__ import annotations

import logging

import pytest
from support.isr.manager_cluster import Answer, Cluster

from raftwerk.isr.fetching import fetch_requests
from raftwerk.wire.errors import ErrorCode
from raftwerk.wire.types import TopicPartition

ONE, TWO = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def leader() -> Cluster:
    """A broker that leads two partitions alone."""
    made = Cluster(nodes=(1,))
    made.boot(1)
    made.create_topic("t", 7, (1,), 2)
    made.tell()
    made.sleep(0.1)
    return made


def break_log(cluster: Cluster, key: TopicPartition) -> None:
    """Every read of the partition's log fails from now on."""

    def fail(*_: object, **__: object) -> bytes:
        raise ValueError("what nobody expects")

    cluster.managers[1].partitions[key].log.read = fail  # type: ignore[method-assign]


def codes(fetched: Answer) -> list[int]:
    assert fetched.rows is not None, "not answered"
    return [row.error_code for row in fetched.rows]


def test_a_fetch_that_cannot_be_read_is_answered_at_once(leader: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    leader.produce(1, ONE)
    break_log(leader, ONE)
    assert codes(leader.consume(1, ONE, 0, max_wait_ms=5_000)) == [ErrorCode.UNKNOWN_SERVER_ERROR]
    assert [(record.levelno, record.getMessage()) for record in caplog.records] == [(logging.ERROR, "fetch failed")]


@pytest.mark.parametrize("per_step", [1_000, 1])
def test_a_fetch_that_cannot_be_read_again_concerns_no_produce(
    leader: Cluster, per_step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch is in the log; its producer would take it for refused, and write it twice.

    With one partition for each step, the fetch of two is read in steps.
    """
    monkeypatch.setattr(fetch_requests, "ITEMS_PER_STEP", per_step)
    monkeypatch.setattr(fetch_requests, "_FREE_OF_CHARGE", 1)
    fetched = leader.consume_all(1, {ONE: 0, TWO: 0}, max_wait_ms=5_000)
    assert fetched.rows is None
    break_log(leader, ONE)
    assert leader.produce(1, ONE).error == 0
    assert codes(fetched)[0] == ErrorCode.UNKNOWN_SERVER_ERROR


def test_an_unexpected_error_ends_no_followers_session() -> None:
    cluster = Cluster(nodes=(1, 2))
    for node in (1, 2):
        cluster.boot(node)
    cluster.create_topic("t", 7, (1, 2))
    cluster.tell()
    cluster.sleep(1.0)
    log = cluster.managers[1].partitions[ONE].log
    read = log.read
    break_log(cluster, ONE)
    produced = cluster.produce(1, ONE, timeout_ms=60_000)
    cluster.sleep(0.5)
    assert produced.rows is None
    log.read = read  # type: ignore[method-assign]
    cluster.sleep(2.0)
    assert produced.error == 0
