"""Interleavings of `min.insync.replicas` with changes of a partition, in the same metadata.

In whole simulated clusters they are so rare that hundreds of seeds may not show one of them. What must hold after each:
the replica that is returned has committed nothing, since somebody may be elected who does not have its record
(KIP-966).
"""

from __future__ import annotations

from support.isr.manager_cluster import Answer, replicated_topic

from raftwerk.controller.metadata.metadata_records import ConfigRecord
from raftwerk.isr.replica import Replica
from raftwerk.wire.types import TopicPartition

TP = TopicPartition("t", 0)
_KEY = "min.insync.replicas"


def lower_minimum_for_a_former_leader(leader: int) -> Replica:
    """A leader that is alone in its ISR learns that `leader` (-1: nobody) leads, and of a lower minimum.

    Its record was not committed by the former minimum.
    """
    cluster, topic_id = replicated_topic()
    cluster.mute.update({(2, 1): None, (3, 1): None})
    cluster.records.append(ConfigRecord(2, TP.topic, _KEY, "2"))
    cluster.change(topic_id, TP.partition, isr=(1,))
    cluster.tell()
    cluster.produce(1, TP, acks=1)
    cluster.change(topic_id, TP.partition, isr=(leader,) if leader > 0 else (), leader=leader)
    cluster.records.append(ConfigRecord(2, TP.topic, _KEY, "1"))
    cluster.tell(1)
    return cluster.managers[1].partitions[TP]


def higher_minimum_with_a_smaller_isr() -> tuple[Replica, Answer]:
    """A leader learns that it is alone in its ISR, and of a higher minimum; with the answer to a producer who waits."""
    cluster, topic_id = replicated_topic()
    cluster.records.append(ConfigRecord(2, TP.topic, _KEY, "1"))
    cluster.mute.update({(2, 1): None, (3, 1): None})
    cluster.tell()
    answer = cluster.produce(1, TP, timeout_ms=60_000)
    cluster.records.append(ConfigRecord(2, TP.topic, _KEY, "2"))
    cluster.change(topic_id, TP.partition, isr=(1,))
    cluster.tell()
    cluster.sleep(0.5)
    return cluster.managers[1].partitions[TP], answer
