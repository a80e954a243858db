"""A replica moves to another log directory of its broker while it serves (AlterReplicaLogDirs, KIP-113)."""

from __future__ import annotations

import pytest
from support.isr.manager_cluster import Cluster
from support.log.logs import read_all

from raftwerk.controller.metadata.metadata_image import BROKER_RESOURCE
from raftwerk.controller.metadata.metadata_records import ConfigRecord
from raftwerk.isr.replica import Replica
from raftwerk.log.errors import StorageError
from raftwerk.log.manager.future_logs import FutureLogs
from raftwerk.wire.errors import ErrorCode, ProtocolError
from raftwerk.wire.records import NewRecord, encode_batch
from raftwerk.wire.types import TopicPartition

TP = TopicPartition("t", 0)
RECORD_BYTES = 20_000


def two_directories(records: int = 5) -> tuple[Cluster, Replica, str]:
    """A broker with two log directories and one replica; also the directory that the replica is not in."""
    cluster, replica, (other,) = directories("ab", records)
    return cluster, replica, other


def directories(names: str, records: int) -> tuple[Cluster, Replica, list[str]]:
    cluster = Cluster(nodes=(1,), dirs=tuple(names))
    cluster.boot(1)
    cluster.create_topic("t", 7, (1,))
    cluster.tell()
    cluster.sleep(0.1)
    for _ in range(records):
        cluster.produce(1, TP, b"x" * RECORD_BYTES)
    cluster.sleep(0.1)
    replica = cluster.managers[1].partitions[TP]
    assert replica.log_end_offset == records
    return cluster, replica, [f"/{name}1" for name in names if f"/{name}1" != directory_of(replica)]


def directory_of(replica: Replica) -> str:
    return replica.log.directory.rpartition("/")[0]


def move(cluster: Cluster, path: str, within_s: float = 1.0) -> None:
    cluster.on_loop(cluster.managers[1].move_to_dir, TP, path)
    cluster.sleep(within_s)


def throttle(cluster: Cluster, bytes_per_s: int) -> None:
    key = "replica.alter.log.dirs.io.max.bytes.per.second"
    cluster.records.append(ConfigRecord(BROKER_RESOURCE, "1", key, str(bytes_per_s)))
    cluster.tell()


def test_a_replica_that_has_moved_serves_from_the_other_directory() -> None:
    cluster, replica, target = two_directories()
    former, before = replica.log.directory, read_all(replica.log)
    move(cluster, target)
    assert directory_of(replica) == target
    assert read_all(replica.log) == before
    assert cluster.produce(1, TP).error == 0
    assert cluster.consume(1, TP, 5).row.records
    assert former.rpartition("/")[2] not in cluster.disks[1].listdir(former.rpartition("/")[0])


def test_a_replica_can_move_back() -> None:
    cluster, replica, target = two_directories()
    home = directory_of(replica)
    move(cluster, target)
    move(cluster, home)
    assert directory_of(replica) == home
    assert replica.log_end_offset == 5


def test_what_is_appended_while_it_moves_is_in_the_other_directory_too() -> None:
    cluster, replica, target = two_directories(60)
    move(cluster, target, within_s=0.001)
    while directory_of(replica) != target:
        assert cluster.produce(1, TP, b"meanwhile").error == 0
        cluster.sleep(0.0005)
    assert replica.log_end_offset > 60, "some were appended meanwhile"
    assert cluster.produce(1, TP, b"after").error == 0
    end = replica.log_end_offset
    assert replica.high_watermark == end
    assert cluster.consume(1, TP, end - 1).row.records


def test_producers_are_known_after_the_move() -> None:
    """A retry of what was written before is recognized as such."""
    cluster, replica, target = two_directories()
    data = encode_batch([NewRecord(None, b"v", (), 1)], producer_id=5, producer_epoch=0, base_sequence=0)
    assert cluster.produce_batch(1, TP, data).row.base_offset == 5
    move(cluster, target)
    again = cluster.produce_batch(1, TP, data)
    assert (again.error, again.row.base_offset) == (0, 5)
    assert replica.log_end_offset == 6


def test_a_move_copies_at_the_rate_of_its_quota() -> None:
    cluster, replica, target = two_directories(150)
    throttle(cluster, 100_000)
    move(cluster, target, within_s=15.0)
    assert directory_of(replica) != target, "3 MB at 100 kB a second"
    cluster.sleep(20.0)
    assert directory_of(replica) == target


def test_a_higher_rate_holds_for_a_move_that_waits() -> None:
    cluster, replica, target = two_directories(100)
    throttle(cluster, 1_000)
    move(cluster, target, within_s=5.0)
    assert directory_of(replica) != target
    throttle(cluster, 100_000_000)
    cluster.sleep(1.0)
    assert directory_of(replica) == target


def test_a_move_goes_on_after_a_restart() -> None:
    cluster, replica, target = two_directories(100)
    throttle(cluster, 1_000)
    move(cluster, target, within_s=2.0)
    assert directory_of(replica) != target
    cluster.stop(1)
    throttle(cluster, 100_000_000)
    again = cluster.boot(1).partitions[TP]
    cluster.sleep(1.0)
    assert directory_of(again) == target
    assert again.log_end_offset == 100


def test_a_log_that_cannot_be_copied_stays_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, replica, target = two_directories()
    home, read = directory_of(replica), replica.log.read

    def fail(*_: object, **__: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(replica.log, "read", fail)
    move(cluster, target)
    assert directory_of(replica) == home and not replica.offline
    monkeypatch.setattr(replica.log, "read", read)
    move(cluster, target)
    assert directory_of(replica) == target, "it may be tried again"


def test_a_cold_log_is_read_by_a_thread_first() -> None:
    cluster, replica, target = two_directories(60)
    disk = cluster.disks[1]
    disk.set_sync_latency(0.05, 0.05)
    disk.make_cold()
    move(cluster, target, within_s=0.04)
    assert directory_of(replica) != target
    cluster.sleep(2.0)
    assert directory_of(replica) == target
    assert replica.log_end_offset == 60


def test_a_log_that_is_cut_while_a_thread_reads_it_is_copied_as_it_is_afterwards() -> None:
    """Else the copy would have records of the former epoch below those of the new one."""
    cluster, replica, target = two_directories(60)
    disk = cluster.disks[1]
    disk.set_sync_latency(0.05, 0.05)
    disk.make_cold()
    move(cluster, target, within_s=0)
    wait_for_copy(cluster, 1)
    cluster.sleep(0.02)
    cut = wait_for_copy(cluster, 1) - 2
    replica.truncate_to(cut)
    cluster.change(replica.topic_id, 0, leader=1)
    cluster.tell()
    for _ in range(40):
        assert cluster.produce(1, TP, b"new" * 5_000).error == 0
    assert directory_of(replica) != target
    cluster.sleep(3.0)
    assert directory_of(replica) == target
    assert [(entry.epoch, entry.start_offset) for entry in replica.log.epoch_cache.entries] == [(0, 0), (1, cut)]


def wait_for_copy(cluster: Cluster, end_offset: int) -> int:
    """Returns how far the copy is, when it has come to the offset."""
    for _ in range(1_000):
        copy = cluster.logs[1].future_logs.get(TP)
        if copy is not None and copy.log_end_offset >= end_offset:
            return copy.log_end_offset
        cluster.sleep(0.001)
    raise AssertionError("nothing is copied")


def test_a_move_that_is_sent_elsewhere_while_its_copy_is_made_durable_goes_there() -> None:
    cluster, replica, (first, second) = directories("abc", 5)
    cluster.disks[1].set_sync_latency(0.05, 0.05)
    move(cluster, first, within_s=0)
    wait_for_copy(cluster, 5)
    move(cluster, second)
    assert directory_of(replica) == second


def test_a_directory_that_the_broker_does_not_have_is_refused() -> None:
    cluster, replica, _ = two_directories()
    with pytest.raises(ProtocolError) as refused:
        move(cluster, "/elsewhere")
    assert refused.value.code is ErrorCode.LOG_DIR_NOT_FOUND
    assert not replica.offline


def test_a_replica_that_is_not_here_is_created_in_that_directory_later() -> None:
    cluster, _, target = two_directories()
    with pytest.raises(ProtocolError) as refused:
        cluster.on_loop(cluster.managers[1].move_to_dir, TopicPartition("new", 0), target)
    assert refused.value.code is ErrorCode.REPLICA_NOT_AVAILABLE
    cluster.create_topic("new", 8, (1,))
    cluster.tell()
    cluster.sleep(0.1)
    assert directory_of(cluster.managers[1].partitions[TopicPartition("new", 0)]) == target


def interrupted_move(records: int = 100) -> Cluster:
    """The broker stops when part of the log is copied, and its topic is deleted meanwhile."""
    cluster, replica, target = two_directories(records)
    throttle(cluster, 1_000)
    move(cluster, target)
    wait_for_copy(cluster, 1)
    assert directory_of(replica) != target
    cluster.stop(1)
    cluster.delete_topic(replica.topic_id)
    throttle(cluster, 100_000_000)
    return cluster


def test_the_copy_of_a_former_topics_log_does_not_take_over_a_topic_of_the_same_name() -> None:
    """Its records were lost at the next start, when the log turned out to be that of the former topic."""
    cluster = interrupted_move()
    topic_id = cluster.create_topic("t", 8, (1,))
    cluster.boot(1)
    cluster.sleep(1.0)
    for _ in range(3):
        assert cluster.produce(1, TP, b"new").error == 0
    cluster.sleep(1.0)
    before = read_all(cluster.managers[1].partitions[TP].log)
    cluster.stop(1)
    again = cluster.boot(1).partitions[TP]
    assert (again.topic_id, again.log.topic_id, again.log_end_offset) == (topic_id, topic_id, 3)
    assert read_all(again.log) == before


def test_the_copy_of_a_deleted_topics_log_is_removed_at_the_next_start() -> None:
    cluster = interrupted_move()
    cluster.boot(1)
    assert cluster.logs[1].future_logs.get(TP) is None
    assert not [name for path in ("/a1", "/b1") for name in cluster.disks[1].listdir(path) if name.endswith("-future")]


def test_a_copy_whose_topic_is_not_known_does_not_take_over() -> None:
    """The log had lost its topic id when the move began, and got it again with its role."""
    cluster, replica, target = two_directories()
    home, topic_id = directory_of(replica), replica.topic_id
    replica.log.topic_id = None
    move(cluster, target)
    assert (directory_of(replica), replica.log.topic_id) == (home, None)
    replica.log.topic_id = topic_id
    move(cluster, target)
    assert (directory_of(replica), replica.log.topic_id) == (target, topic_id)
    assert replica.log_end_offset == 5


def test_a_move_goes_on_when_its_replica_has_waited_for_space() -> None:
    """At the start the lost topic id of its log could not be written again."""
    cluster, replica, target = two_directories(60)
    throttle(cluster, 1)
    move(cluster, target)
    home = directory_of(replica)
    assert home != target
    cluster.stop(1)
    disk = cluster.disks[1]
    disk.remove(f"{home}/t-0/partition.metadata")
    disk.fill(-1_000)  # the start removes small files
    manager = cluster.boot(1)
    cluster.sleep(1)
    assert TP not in manager.partitions
    disk.set_capacity()
    throttle(cluster, 1 << 30)
    cluster.on_loop(manager.set_full_dirs, [])
    cluster.sleep(1)
    assert directory_of(manager.partitions[TP]) == target


def test_a_throttled_move_goes_on_as_soon_as_its_quota_allows_more() -> None:
    """It looks again after half a second at most, and when it needs less than that, then."""
    cluster, replica, target = two_directories(72)  # the last of six pieces comes after the quota of a second
    throttle(cluster, 1_000_000)
    cluster.sleep(1 - cluster.loop.time() % 1 + 0.001)  # a window of the quota begins
    move(cluster, target, within_s=1.2)
    assert directory_of(replica) != target
    cluster.sleep(0.2)
    assert directory_of(replica) == target


def test_the_controller_is_told_in_which_directory_a_replica_is_after_a_move() -> None:
    cluster, replica, target = two_directories()
    cluster.assigned.clear()
    move(cluster, target)
    target_id = cluster.logs[1].directories.id_at(target)
    assert cluster.assigned == [(1, {(replica.topic_id, 0): target_id})]


def test_a_replica_that_is_where_it_shall_go_stays_there() -> None:
    cluster, replica, _ = two_directories()
    log = replica.log
    move(cluster, directory_of(replica))
    assert replica.log is log
    assert cluster.logs[1].future_logs.get(TP) is None


def test_a_replica_that_is_offline_is_not_moved() -> None:
    """Its log cannot be read."""
    cluster, replica, target = two_directories()
    cluster.on_loop(cluster.managers[1].on_replica_failed, replica, OSError(5, "Input/output error"))
    with pytest.raises(ProtocolError) as refused:
        move(cluster, target)
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert cluster.logs[1].future_logs.get(TP) is None


def test_a_move_ends_when_its_replica_goes_offline() -> None:
    cluster, replica, target = two_directories(100)
    throttle(cluster, 1_000)
    move(cluster, target)
    wait_for_copy(cluster, 1)
    cluster.on_loop(cluster.managers[1].on_replica_failed, replica, OSError(5, "Input/output error"))
    copied = wait_for_copy(cluster, 1)
    throttle(cluster, 100_000_000)
    cluster.sleep(2.0)
    assert wait_for_copy(cluster, 1) == copied
    assert directory_of(replica) != target


@pytest.mark.parametrize("is_swapped", [False, True])
def test_a_move_that_fails_at_its_end_leaves_a_replica_that_serves_or_is_offline(
    is_swapped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its log is in use as before, or closed: then the copy has taken its place, and is opened with the next start."""
    cluster, replica, target = two_directories()
    home, finish = directory_of(replica), FutureLogs.finish

    def fail(self: FutureLogs, topic_partition: TopicPartition) -> None:
        if is_swapped:
            finish(self, topic_partition)
        raise StorageError("the disk is broken")

    monkeypatch.setattr(FutureLogs, "finish", fail)
    cluster.assigned.clear()
    move(cluster, target)
    assert replica.offline is is_swapped
    assert cluster.logs[1].future_logs.get(TP) is None
    told = [directory for _, assignments in cluster.assigned for directory in assignments.values()]
    if is_swapped:
        assert cluster.storage_errors == [TP]
        assert told == [cluster.logs[1].directories.id_at(target)], "the controller knows where it will be"
    else:
        assert (directory_of(replica), told) == (home, [])
        assert cluster.produce(1, TP).error == 0
        monkeypatch.undo()
        move(cluster, target)
        assert directory_of(replica) == target, "it may be tried again"
