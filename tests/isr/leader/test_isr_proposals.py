"""What a leader looks at from time to time, without a fetch or a record."""

from __future__ import annotations

from support.isr.manager_cluster import replicated_topic

from raftwerk.wire.errors import ErrorCode
from raftwerk.wire.types import TopicPartition

TP = TopicPartition("t", 0)


def test_records_are_committed_though_a_replica_dies_that_was_about_to_join() -> None:
    """The high watermark waits for it a while after its last fetch, and nobody else fetches or writes after that."""
    cluster, topic_id = replicated_topic(replicas=(1, 2))
    cluster.alter_error = int(ErrorCode.INELIGIBLE_REPLICA)
    cluster.change(topic_id, 0, isr=(1,))
    cluster.tell()
    cluster.sleep(1.0)
    cluster.stop(2)
    answer = cluster.produce(1, TP, timeout_ms=60_000)
    cluster.sleep(1.0)
    assert answer.rows is None
    cluster.sleep(20.0)
    assert answer.error == 0
