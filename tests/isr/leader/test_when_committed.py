"""Waiting until what a leader has in its log is committed."""

from __future__ import annotations

from support.isr.manager_cluster import Cluster, replicated_topic
from support.isr.replicas import WALL_MS

from raftwerk.wire.records import encode_batch
from raftwerk.wire.types import TopicPartition

TP = TopicPartition("t", 0)


def wait(cluster: Cluster, offset: int, node: int = 1, timeout_ms: int = 10_000) -> list[bool]:
    """The answer, when there is one."""
    answers: list[bool] = []
    cluster.on_loop(cluster.managers[node].when_committed, TP, offset, timeout_ms, answers.append)
    return answers


def append(cluster: Cluster) -> None:
    data = memoryview(encode_batch([(None, b"v", (), WALL_MS)]))
    cluster.on_loop(cluster.managers[1].append, 1, 1000, [(TP, data)], lambda _: None)


def test_it_is_true_when_all_below_the_offset_is_committed() -> None:
    cluster, _ = replicated_topic()
    assert wait(cluster, 0) == [True]
    append(cluster)
    answers = wait(cluster, 1)
    assert answers == []
    cluster.sleep(0.7)
    assert answers == [True]
    assert wait(cluster, 1) == [True]


def test_it_is_false_where_another_broker_leads_and_after_the_time_out() -> None:
    cluster, topic_id = replicated_topic()
    assert wait(cluster, 0, node=2) == [False]
    late = wait(cluster, 5, timeout_ms=100)
    cluster.sleep(0.3)
    assert late == [False]
    waiting = wait(cluster, 5)
    cluster.change(topic_id, 0, leader=2)
    cluster.tell(1, 2, 3)
    cluster.sleep(0.1)
    assert waiting == [False]
