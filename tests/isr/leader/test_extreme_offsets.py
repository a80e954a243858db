"""Offsets and leader epochs at the ends of their ranges: answered as by Apache Kafka, and the partition is served."""

from __future__ import annotations

from support.isr.manager_cluster import Cluster

from raftwerk.wire.errors import ErrorCode
from raftwerk.wire.types import TopicPartition

TP = TopicPartition("t", 0)


def test_extreme_numbers_hold_no_partition(cluster: Cluster) -> None:
    manager = cluster.managers[1]
    for offset in (-(2**63), -2, 2**63 - 1):
        assert manager.delete_records(TP, offset).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert cluster.consume(1, TP, offset).error == ErrorCode.OFFSET_OUT_OF_RANGE
    assert manager.list_offset(TP, 2**63 - 1).offset == -1
    assert manager.list_offset(TP, -1, 2**31 - 1).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    for epoch in (-(2**31), -2):
        assert manager.list_offset(TP, -1, epoch).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert manager.list_offset(TP, -1, -1).offset == 5
    for epoch in (-(2**31), -1, 2**31 - 1):
        assert manager.offset_for_leader_epoch(TP, -1, epoch).error_code == 0
    cluster.produce(1, TP)
    cluster.sleep(1.0)
    assert manager.high_watermark_of(TP) == 6
