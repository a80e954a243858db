"""DeleteRecords on replica managers: what is refused, and how followers follow."""

from __future__ import annotations

from support.isr.manager_cluster import Cluster, registration

from raftwerk.controller.metadata.metadata_records import ConfigRecord
from raftwerk.isr.results import DeletedRecords
from raftwerk.wire.errors import ErrorCode
from raftwerk.wire.records import encode_batch
from raftwerk.wire.types import TopicPartition

TP = TopicPartition("t", 0)


def starts(cluster: Cluster) -> list[int]:
    return [manager.partitions[TP].log.log_start_offset for manager in cluster.managers.values()]


def test_followers_raise_their_log_start_with_their_next_fetch(cluster: Cluster) -> None:
    manager = cluster.managers[1]
    assert manager.delete_records(TP, 3) == DeletedRecords(0, 0, 3)
    assert starts(cluster) == [3, 0, 0]
    cluster.sleep(1.2)
    assert starts(cluster) == [3, 3, 3]
    assert manager.low_watermark(TP) == DeletedRecords(0, 3)
    assert manager.delete_records(TP, 2) == DeletedRecords(0, 3, 2)
    assert cluster.consume(1, TP, 2).error == ErrorCode.OFFSET_OUT_OF_RANGE
    assert manager.list_offset(TP, -2).offset == 3
    assert manager.delete_records(TP, -1).required_offset == 5
    cluster.sleep(1.2)
    assert starts(cluster) == [5, 5, 5]


def test_fenced_replicas_do_not_count_and_follow_when_they_are_back(cluster: Cluster) -> None:
    cluster.stop(3)
    cluster.records.append(registration(3, fenced=True))
    cluster.tell()
    cluster.managers[1].delete_records(TP, 4)
    cluster.sleep(1.2)
    assert cluster.managers[1].low_watermark(TP).low_watermark == 4
    cluster.records.append(registration(3))
    cluster.boot(3)
    cluster.tell()
    assert cluster.managers[1].low_watermark(TP).low_watermark < 4
    cluster.sleep(2.0)
    assert starts(cluster) == [4, 4, 4]


def test_refused_deletions(cluster: Cluster) -> None:
    manager = cluster.managers[1]
    for offset in (6, -2):
        assert manager.delete_records(TP, offset).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert cluster.managers[2].delete_records(TP, 1).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert manager.delete_records(TopicPartition("x", 0), 1).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert manager.low_watermark(TopicPartition("x", 0)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    cluster.records.append(ConfigRecord(2, "t", "cleanup.policy", "compact"))
    cluster.tell()
    assert manager.delete_records(TP, 1).error_code == ErrorCode.POLICY_VIOLATION
    assert starts(cluster) == [0, 0, 0]


def test_a_follower_begins_with_the_batch_that_the_leaders_start_lies_in(cluster: Cluster) -> None:
    cluster.stop(3)
    big = memoryview(encode_batch([(b"k", b"v", (), 1000)] * 10))
    cluster.on_loop(cluster.managers[1].append, 1, 1000, [(TP, big)], lambda rows: None)
    cluster.sleep(0.1)
    leader = cluster.managers[1].partitions[TP]
    leader.log.raise_start(9)
    cluster.disks[3].remove_tree("/n3/t-0")
    cluster.boot(3)
    cluster.sleep(2.0)
    log = cluster.managers[3].partitions[TP].log
    assert (log.log_start_offset, log.log_end_offset, log.segments[0].base_offset) == (9, 15, 5)


def test_all_that_is_committed_may_be_deleted_and_no_more(cluster: Cluster) -> None:
    manager = cluster.managers[1]
    cluster.mute.update({(2, 1): None, (3, 1): None})
    cluster.produce(1, TP, acks=1)
    assert manager.delete_records(TP, 6).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert manager.delete_records(TP, 0) == DeletedRecords(0, 0, 0)
    assert manager.delete_records(TP, 5) == DeletedRecords(0, 0, 5)
    assert starts(cluster) == [5, 0, 0]
    assert manager.delete_records(TP, -1) == DeletedRecords(0, 0, 5)
    assert cluster.produce(1, TP, acks=1).row.log_start_offset == 5


def test_deletion_is_done_when_the_log_of_each_replica_begins_at_the_offset() -> None:
    assert DeletedRecords(0, 4, 5).is_behind
    assert not DeletedRecords(0, 5, 5).is_behind
    assert not DeletedRecords(int(ErrorCode.OFFSET_OUT_OF_RANGE), -1, 5).is_behind, "it was refused"
