"""A follower's fetch that is under way for long, while its sender takes over the partition.

The former leader does not learn that. The fetch was sent before a stable read came, and arrives after it: it does not
prove that its sender still follows, and the read must not be confirmed (`isr/leader/read_confirmations.py`).
"""

from __future__ import annotations

from support.isr.manager_cluster import Cluster

from raftwerk.wire.types import TopicPartition

TP = TopicPartition("offsets", 0)


def late_fetch() -> str | None:
    """Play it; returns what is broken, None if the read is not confirmed."""
    cluster = Cluster(replica_lag_time_max_ms=60_000, replica_fetch_wait_max_ms=50)
    topic_id = cluster.create_topic(TP.topic, 1, replicas=(1, 2))
    cluster.create_topic("other", 2, replicas=(1, 2))  # it is fetched on the same connection, which stays open
    for node in (1, 2):
        cluster.boot(node)
    cluster.sleep(0.2)
    cluster.held[2, 1] = []
    cluster.sleep(0.2)
    assert cluster.held[2, 1], "a fetch is under way"
    cluster.change(topic_id, TP.partition, leader=2, isr=(2,))
    cluster.tell(2)
    taken_over = cluster.produce(2, TP)
    assert not taken_over.error, "the new leader has acknowledged a record"
    answers: list[bool] = []
    cluster.on_loop(cluster.managers[1].confirm_leadership, TP, 0, 1_000, answers.append)
    cluster.release(2, 1)
    cluster.sleep(2.0)
    assert cluster.managers[1].partitions[TP].is_leader, "it knows nothing of the new leader"
    return "a stable read was confirmed after another broker had taken over" if answers == [True] else None
