"""A replica whose log is not where the metadata says: an empty one must not take its place unnoticed (KIP-858)."""

from __future__ import annotations

from uuid import UUID

import pytest
from support.isr.manager_cluster import Cluster

from raftwerk.controller.metadata.metadata_records import LOST, UNASSIGNED
from raftwerk.wire.errors import ErrorCode
from raftwerk.wire.types import TopicPartition

TP = TopicPartition("t", 0)
GONE = UUID(int=4711)
"""A directory that the broker had once."""


def two_directories() -> Cluster:
    cluster = Cluster(nodes=(1,), dirs=("a", "b"))
    cluster.boot(1)
    return cluster


def register(cluster: Cluster, directory: UUID, *, elections: int = 0) -> UUID:
    """The metadata has the partition with its replica on broker 1, in that directory. Returns the topic's id."""
    topic_id = cluster.create_topic("t", 7, (1,))
    cluster.change(topic_id, 0, directories=(directory,))
    for _ in range(elections):
        cluster.change(topic_id, 0, leader=1)
    cluster.tell()
    cluster.sleep(0.1)
    return topic_id


def test_the_controller_is_told_where_a_new_log_was_made() -> None:
    cluster = two_directories()
    topic_id = register(cluster, UNASSIGNED)
    actual = cluster.logs[1].directories.id_of(TP)
    assert actual is not None
    assert cluster.assigned == [(1, {(topic_id, 0): actual})]
    cluster.change(topic_id, 0, directories=(actual,))
    cluster.tell()
    cluster.sleep(1.0)
    assert len(cluster.assigned) == 1, "the metadata has it now"


def test_a_log_that_is_gone_is_made_when_the_controller_knows_that_and_serves_like_any_other() -> None:
    cluster = two_directories()
    topic_id = register(cluster, GONE)
    assert cluster.assigned == [(1, {(topic_id, 0): LOST})]
    assert cluster.produce(1, TP).error == ErrorCode.KAFKA_STORAGE_ERROR
    cluster.change(topic_id, 0, directories=(LOST,))
    cluster.tell()
    cluster.sleep(0.1)
    assert cluster.produce(1, TP).error == 0
    replica = cluster.managers[1].partitions[TP]
    (target,) = {"/a1", "/b1"} - {replica.log.directory.rpartition("/")[0]}
    cluster.on_loop(cluster.managers[1].move_to_dir, TP, target)
    cluster.sleep(1.0)
    assert replica.log.directory == f"{target}/t-0"


@pytest.mark.parametrize(("elections", "error"), [(0, 0), (1, ErrorCode.KAFKA_STORAGE_ERROR)])
def test_while_a_directory_has_failed_a_log_is_made_only_if_there_can_be_none(elections: int, error: int) -> None:
    """A replica in sync of a partition that was led may have its records in the failed directory."""
    cluster = two_directories()
    failed = next(one for one in cluster.logs[1].directories if one.path == "/a1")
    cluster.on_loop(failed.fail, OSError(5, "Input/output error"))
    register(cluster, UNASSIGNED, elections=elections)
    assert cluster.produce(1, TP).error == error
    assert (TP in cluster.managers[1].partitions) == (error == 0)


def test_a_directory_that_fails_takes_its_replicas_offline_and_no_others() -> None:
    cluster = Cluster(nodes=(1, 2), dirs=("a", "b"))
    for node in (1, 2):
        cluster.boot(node)
    cluster.create_topic("t", 7, (1, 2), 4)
    cluster.tell()
    cluster.sleep(1.0)
    manager, directories = cluster.managers[2], cluster.logs[2].directories
    failed = [tp for tp in manager.partitions if directories.id_of(tp) == directories.id_at("/a2")]
    assert 0 < len(failed) < 4
    cluster.on_loop(manager.on_dir_failed, directories.id_at("/a2"), OSError(5, "Input/output error"))
    assert cluster.storage_errors == failed, "the broker is told of each"
    assert [tp for tp, replica in manager.partitions.items() if replica.offline] == failed
    cluster.sleep(1.0)
    cluster.fetches.clear()
    for index in range(4):
        cluster.produce(1, TopicPartition("t", index), acks=1)
    cluster.sleep(1.0)
    ends = {tp: replica.log_end_offset for tp, replica in manager.partitions.items()}
    assert ends == {tp: 0 if tp in failed else 1 for tp in ends}
    asked = {row.partition for _, _, request in cluster.fetches for topic in request.topics for row in topic.partitions}
    assert asked == {tp.partition for tp in ends if tp not in failed}, "what is offline is fetched no more"
    assert len(cluster.fetches) < 20, "nor sent again and again, to be dropped"
