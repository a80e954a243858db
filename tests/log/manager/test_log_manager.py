"""A node's log directories: their owner, the logs in them, and what a shutdown leaves."""

from __future__ import annotations

import asyncio
import json
import os
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest
from support.log.logs import SMALL, append, make_runtime, read_all, remove_deleted

from raftwerk.chaos.sim.disk.sim_disk import SimDisk
from raftwerk.log.directory_names import parse_dir_name
from raftwerk.log.errors import (
    CorruptFileError,
    DirFailedError,
    DirLockedError,
    ForeignClusterError,
    ForeignNodeError,
    LogDirError,
    StorageError,
    UnformattedDirError,
)
from raftwerk.log.manager.log_maintenance import flush_dirty
from raftwerk.log.manager.log_manager import LogManager
from raftwerk.log.manager.log_manager_config import LogManagerConfig
from raftwerk.log.manager.meta_properties import format_dirs, read_meta_properties
from raftwerk.log.partition_log import PartitionLog
from raftwerk.log.state.checkpoints import decode_uuid, encode_uuid
from raftwerk.runtime.files.real_disk import RealDisk
from raftwerk.runtime.ports import Runtime
from raftwerk.wire.errors import ErrorCode, ProtocolError
from raftwerk.wire.types import TopicPartition

A, B = TopicPartition("a", 0), TopicPartition("b.c-d", 12)
TOPIC_ID, OTHER_ID = UUID(int=77), UUID(int=78)
CLUSTER = "MkU3OEVBNTcwNTJENDM2Qg"


def formatted(*dirs: str, node_id: int = 1) -> tuple[Runtime, SimDisk]:
    runtime, disk = make_runtime()
    format_dirs(runtime, dirs or ("/data",), CLUSTER, node_id)
    return runtime, disk


def manager_of(runtime: Runtime, *dirs: str, cluster_id: str = CLUSTER, node_id: int = 1) -> LogManager:
    return LogManager(runtime, LogManagerConfig(dirs or ("/data",), cluster_id, node_id, SMALL))


def loaded(runtime: Runtime, *dirs: str) -> LogManager:
    manager = manager_of(runtime, *dirs)
    manager.load()
    return manager


def test_formatting_is_kept() -> None:
    runtime, disk = formatted()
    content = disk.read_bytes("/data/meta.properties")
    found = read_meta_properties(disk, "/data")
    assert found is not None
    assert content.decode().splitlines()[1:] == [
        f"cluster.id={CLUSTER}",
        f"directory.id={encode_uuid(found.directory_id)}",
        "node.id=1",
        "version=1",
    ]
    assert format_dirs(runtime, ("/data",), CLUSTER, 1) == [found.directory_id]
    assert disk.read_bytes("/data/meta.properties") == content
    assert manager_of(runtime).directories.ids == {}
    assert loaded(runtime).directories.ids == {"/data": found.directory_id}


def test_a_directory_of_another_cluster() -> None:
    runtime, _ = formatted()
    expected = (
        f"Log directory /data belongs to cluster {CLUSTER}, this node to cluster other: "
        "set log.dirs to this node's own directory, or empty that one, which deletes its data, and format it again."
    )
    with pytest.raises(ForeignClusterError) as refused:
        manager_of(runtime, cluster_id="other").acquire()
    assert str(refused.value) == expected
    with pytest.raises(ForeignClusterError):
        format_dirs(runtime, ("/data",), "other", 1)
    loaded(runtime)


def test_a_directory_of_another_node() -> None:
    runtime, _ = formatted()
    with pytest.raises(ForeignNodeError, match=r"/data belongs to node 1, this is node 2: correct node.id, or set"):
        manager_of(runtime, node_id=2).acquire()


def test_a_directory_in_use() -> None:
    runtime, _ = formatted()
    manager = loaded(runtime)
    with pytest.raises(DirLockedError, match="Log directory /data is in use by another process: stop that one, or"):
        manager_of(runtime).acquire()
    manager.shutdown()
    loaded(runtime)


class TickingClock:
    """Goes on by half a second each time it is read."""

    def __init__(self) -> None:
        self._now_ms = 0

    def wall_ms(self) -> int:
        self._now_ms += 500
        return self._now_ms


def test_a_shutdown_says_how_far_it_is() -> None:
    runtime, _ = formatted()
    heard: list[str] = []
    manager = LogManager(
        replace(runtime, clock=TickingClock()),
        LogManagerConfig(("/data",), CLUSTER, 1, SMALL, on_progress=heard.append),
    )
    manager.load()
    for partition in range(5):
        manager.create(TopicPartition("t", partition), UUID(int=1))
    heard.clear()
    manager.shutdown()
    assert heard == ["has closed 2 of 5 logs", "has closed 4 of 5 logs"]


def test_a_directory_that_is_not_there_or_not_formatted() -> None:
    runtime, disk = make_runtime()
    with pytest.raises(UnformattedDirError, match="/nowhere does not exist: run `raftwerk format` first"):
        manager_of(runtime, "/nowhere").acquire()
    with pytest.raises(UnformattedDirError, match="/data is not formatted: run `raftwerk format` first"):
        manager_of(runtime).acquire()
    disk.write_atomic("/data/file", b"")
    with pytest.raises(DirFailedError, match="/data/file is a file, not a directory; name another directory"):
        manager_of(runtime, "/data/file").acquire()
    disk.write_atomic("/data/meta.properties", b"version=1\ncluster.id=x\n")
    with pytest.raises(CorruptFileError, match=r"/data/meta.properties does not parse"):
        manager_of(runtime).acquire()
    disk.write_atomic("/data/meta.properties", b"# \nversion=1\ngarbage\n")
    with pytest.raises(CorruptFileError, match="there is no = in the line 'garbage'"):
        manager_of(runtime).acquire()


def test_one_bad_directory_releases_the_others() -> None:
    runtime, disk = formatted("/data/one")
    disk.makedirs("/data/two")
    with pytest.raises(UnformattedDirError):
        manager_of(runtime, "/data/one", "/data/two").acquire()
    loaded(runtime, "/data/one")


@pytest.mark.parametrize("epoch", ["9223372036854775808", "-7", "true", '"1"', "null", "1e3"])
def test_a_broker_epoch_that_cannot_be_sent_is_none(epoch: str) -> None:
    """It came from the clean shutdown file, and a broker that told it when it registers would never be registered."""
    runtime, disk = formatted()
    loaded(runtime).shutdown(broker_epoch=2**63 - 1)
    assert loaded(runtime).previous_broker_epoch == 2**63 - 1
    runtime, disk = formatted()
    disk.write_atomic("/data/.kafka_cleanshutdown", f'{{"version":0,"brokerEpoch":{epoch}}}'.encode())
    assert loaded(runtime).previous_broker_epoch == -1


def test_logs_are_found_again_after_a_clean_stop() -> None:
    runtime, disk = formatted()
    manager = loaded(runtime)
    log = manager.create(A, TOPIC_ID)
    manager.create(B, OTHER_ID)
    append(log, 5)
    content = read_all(log)
    manager.note_high_watermarks({A: 4})
    manager.write_high_watermarks()
    manager.shutdown(broker_epoch=42)
    assert json.loads(disk.read_bytes("/data/.kafka_cleanshutdown")) == {"version": 0, "brokerEpoch": 42}
    assert disk.read_bytes("/data/recovery-point-offset-checkpoint") == b"0\n2\na 0 5\nb.c-d 12 0\n"
    assert disk.read_bytes("/data/replication-offset-checkpoint") == b"0\n1\na 0 4\n"
    assert disk.read_bytes("/data/a-0/partition.metadata") == f"version: 0\ntopic_id: {encode_uuid(TOPIC_ID)}".encode()
    disk.crash()

    manager = loaded(runtime)
    assert not disk.exists("/data/.kafka_cleanshutdown")
    assert manager.previous_broker_epoch == 42
    assert list(manager.logs) == [A, B]
    assert manager.directories.high_watermarks == {A: 4}
    found = manager.get(A)
    assert found is not None
    assert (found.topic_id, found.recovery_point, read_all(found)) == (TOPIC_ID, 5, content)
    assert manager.directories.id_of(A) == manager.directories.ids["/data"]


def test_after_a_crash_logs_are_recovered_and_the_broker_epoch_unknown() -> None:
    runtime, disk = formatted()
    manager = loaded(runtime)
    log = manager.create(A, TOPIC_ID)
    append(log, 5)
    log.flush()
    append(log, 5)
    disk.crash()
    manager = loaded(runtime)
    found = manager.get(A)
    assert found is not None
    assert found.log_end_offset in (5, 10)
    assert manager.previous_broker_epoch == -1


@pytest.mark.parametrize("known", [4, 5])
def test_records_below_the_high_watermark_that_recovery_drops_are_an_error(
    known: int, caplog: pytest.LogCaptureFixture
) -> None:
    runtime, disk = formatted()
    manager = loaded(runtime)
    log = manager.create(A, TOPIC_ID)
    for _ in range(5):
        append(log, 1)
    log.flush()
    manager.note_high_watermarks({A: known})
    manager.write_high_watermarks()
    path = f"/data/{A}/{0:020d}.log"
    disk.crash()
    disk.flip_bit(path, len(disk.read_bytes(path)) - 1, 0)
    found = loaded(runtime).get(A)
    assert found is not None and found.log_end_offset == 4
    told = [one.getMessage() for one in caplog.records if one.levelname == "ERROR" and "are lost" in one.getMessage()]
    assert [one.partition(":")[0] for one in told] == [
        f"{A} ends at offset 4, below its last recovery point or high watermark, 5"
    ] * (known == 5)


def plain_files(disk: SimDisk) -> dict[str, bytes]:
    names = [name for name in disk.listdir("/data") if not disk.is_dir(f"/data/{name}")]
    return {name: disk.read_bytes(f"/data/{name}") for name in names}


def test_a_node_that_never_loaded_its_logs_leaves_the_directory_as_it_was() -> None:
    runtime, disk = formatted()
    manager = loaded(runtime)
    append(manager.create(A, TOPIC_ID), 5)
    manager.checkpoint_recovery_points()
    disk.crash(power_loss=False)
    before = {
        name: disk.read_bytes(f"/data/{name}") for name in disk.listdir("/data") if not disk.is_dir(f"/data/{name}")
    }
    manager = manager_of(runtime)
    manager.acquire()
    manager.write_high_watermarks()
    manager.shutdown(7)
    assert plain_files(disk) == before
    assert len(loaded(runtime).logs) == 1


def test_another_topic_of_the_same_name_is_not_touched() -> None:
    manager = loaded(formatted()[0])
    log = manager.create(A, TOPIC_ID)
    assert manager.create(A, TOPIC_ID) is log
    with pytest.raises(ProtocolError) as refused:
        manager.create(A, OTHER_ID)
    assert refused.value.code is ErrorCode.INCONSISTENT_TOPIC_ID


def test_a_deleted_partition_leaves_no_trace_in_its_successor() -> None:
    runtime, disk = formatted()
    manager = loaded(runtime)
    append(manager.create(A, TOPIC_ID), 5)
    manager.note_high_watermarks({A: 5})
    manager.write_high_watermarks()
    manager.checkpoint_recovery_points()
    manager.delete(A)
    assert manager.get(A) is None
    names = [name for name in disk.listdir("/data") if name.startswith("a-0")]
    assert len(names) == 1
    assert names[0].startswith("a-0.")
    assert names[0].endswith("-delete")
    assert len(names[0]) == len("a-0.") + 32 + len("-delete")
    log = manager.create(A, OTHER_ID)
    assert log.log_end_offset == 0
    assert manager.directories.high_watermarks == {}
    assert b"a 0" not in disk.read_bytes("/data/replication-offset-checkpoint")
    remove_deleted(manager)
    assert [name for name in disk.listdir("/data") if name.startswith("a-0")] == ["a-0"]


@pytest.mark.parametrize("clean", [True, False])
def test_a_log_that_is_gone_after_a_clean_stop_is_not_replaced_by_an_empty_one(clean: bool) -> None:
    runtime, disk = formatted()
    manager = loaded(runtime)
    append(manager.create(A, TOPIC_ID), 3)
    manager.create(B, TOPIC_ID)
    manager.checkpoint_recovery_points()
    if clean:
        manager.shutdown()
    else:
        disk.crash(power_loss=False)
    for tp in (A, B):
        disk.remove_tree(f"/data/{tp}")
    manager = loaded(runtime)
    manager.set_strays_aside(lambda tp: TOPIC_ID)
    assert manager.is_displaced(A, TOPIC_ID) is clean
    assert not manager.is_displaced(A, OTHER_ID)
    assert not manager.is_displaced(B, TOPIC_ID), "it had no records"
    manager.create(A, TOPIC_ID)
    assert not manager.is_displaced(A, TOPIC_ID), "the controller knows that it begins empty"
    manager.shutdown()
    manager = loaded(runtime)
    manager.set_strays_aside(lambda tp: TOPIC_ID)
    assert not manager.is_displaced(A, TOPIC_ID)


def test_strays_are_set_aside_and_kept() -> None:
    runtime, disk = formatted()
    manager = loaded(runtime)
    for tp in (A, B):
        append(manager.create(tp, TOPIC_ID), 3)
    manager.shutdown()
    manager = loaded(runtime)
    assert manager.set_strays_aside(lambda tp: TOPIC_ID if tp == B else None) == [A]
    assert not manager.is_displaced(A, TOPIC_ID)
    assert list(manager.logs) == [B]
    remove_deleted(manager)
    manager.shutdown()
    manager = loaded(runtime)
    (name,) = [name for name in disk.listdir("/data") if name.endswith("-stray")]
    assert name.startswith("a-0.")
    assert list(manager.logs) == [B]
    assert manager.create(A, OTHER_ID).log_end_offset == 0
    log = PartitionLog.open(runtime, f"/data/{name}", SMALL)
    assert log.log_end_offset == 3


def test_deleted_partitions_are_removed_after_a_restart() -> None:
    runtime, disk = formatted()
    manager = loaded(runtime)
    manager.create(TopicPartition("x" * 249, 0), TOPIC_ID)
    manager.delete(TopicPartition("x" * 249, 0))
    assert all(len(name) <= 255 for name in disk.listdir("/data"))
    manager.shutdown()

    async def start_and_stop() -> None:
        manager = loaded(runtime)
        manager.start()
        remove_deleted(manager)
        manager.shutdown()

    asyncio.run(start_and_stop())
    assert [name for name in disk.listdir("/data") if name.startswith("x")] == []


def test_the_metadata_log_and_other_files_are_left_alone() -> None:
    runtime, disk = formatted()
    for name in ("__cluster_metadata-0", "lost+found", "notes", "x-01", "-1"):
        disk.makedirs(f"/data/{name}")
    assert list(loaded(runtime).logs) == []
    assert disk.is_dir("/data/__cluster_metadata-0")
    assert parse_dir_name("b.c-d-12") == B
    assert parse_dir_name("x-01") is None


def test_partitions_go_to_the_directory_with_the_fewest() -> None:
    runtime, disk = formatted("/data/one", "/data/two")
    manager = loaded(runtime, "/data/one", "/data/two")
    for number in range(5):
        manager.create(TopicPartition("t", number), TOPIC_ID)
    counts = [sum(name.startswith("t-") for name in disk.listdir(path)) for path in ("/data/one", "/data/two")]
    assert counts == [3, 2]
    assert len(set(manager.directories.ids.values())) == 2
    manager.shutdown()
    disk.makedirs("/data/two/t-0")
    with pytest.raises(LogDirError, match="Partition t-0 is in /data/one and in /data/two"):
        loaded(runtime, "/data/one", "/data/two")


def test_a_failed_disk_fails_only_its_own_logs() -> None:
    runtime, disk = formatted("/data/one", "/data/two")
    failed: list[str] = []
    config = LogManagerConfig(
        ("/data/one", "/data/two"), CLUSTER, 1, SMALL, on_dir_failed=lambda path, error: failed.append(path)
    )
    manager = LogManager(runtime, config)
    manager.load()
    logs = [manager.create(TopicPartition("t", number), TOPIC_ID) for number in range(4)]
    disk.fail_fsync("/data/one")
    append(logs[0])
    with pytest.raises(StorageError):
        logs[0].flush()
    with pytest.raises(StorageError):
        append(logs[2])
    append(logs[1])
    append(logs[3])
    assert failed == ["/data/one"]
    assert list(manager.directories.ids) == ["/data/two"]
    manager.create(TopicPartition("t", 9), TOPIC_ID)
    assert disk.exists("/data/two/t-9")
    manager.shutdown()
    assert not disk.exists("/data/one/.kafka_cleanshutdown")
    assert disk.exists("/data/two/.kafka_cleanshutdown")


def test_maintenance_flushes_rolled_segments_and_checkpoints_them() -> None:
    async def main() -> None:
        runtime, disk = formatted()
        manager = loaded(runtime)
        log = manager.create(A, TOPIC_ID)
        while len(log.segments) < 3:
            append(log, 2)
        flush_dirty(manager.logs)
        await log.durability.flush_rolled_soon()
        assert not log.durability.has_unsynced_segments
        manager.checkpoint_recovery_points()
        point = log.segments[-1].base_offset
        assert disk.read_bytes("/data/recovery-point-offset-checkpoint") == b"0\n1\na 0 %d\n" % point
        log.truncate_to(1)
        assert disk.read_bytes("/data/recovery-point-offset-checkpoint") == b"0\n1\na 0 0\n"

    asyncio.run(main())


def test_unreadable_offset_checkpoints_count_as_empty() -> None:
    runtime, disk = formatted()
    manager = loaded(runtime)
    append(manager.create(A, TOPIC_ID), 5)
    manager.shutdown()
    for name in ("recovery-point", "replication", "log-start"):
        disk.write_atomic(f"/data/{name}-offset-checkpoint", b"0\n1\ngarbage\n")
    found = loaded(runtime).get(A)
    assert found is not None
    assert found.log_end_offset == 5


def test_ids_as_text() -> None:
    assert encode_uuid(TOPIC_ID) == "AAAAAAAAAAAAAAAAAAAATQ"
    assert decode_uuid("AAAAAAAAAAAAAAAAAAAATQ") == TOPIC_ID
    for text in ("", "x", "AAAA"):
        with pytest.raises(ValueError):
            decode_uuid(text)


def test_on_the_real_disk(tmp_path: Path) -> None:
    simulated, _ = make_runtime()
    runtime = Runtime(RealDisk(), simulated.clock, simulated.rng)
    path = str(tmp_path / "node")
    format_dirs(runtime, (path,), CLUSTER, 1)

    async def main() -> None:
        manager = loaded(runtime, path)
        log = manager.create(A, TOPIC_ID)
        while len(log.segments) < 3:
            append(log, 2)
        assert await log.flush_soon() == log.log_end_offset
        with pytest.raises(DirLockedError):
            manager_of(runtime, path).acquire()
        append(log, 3)
        content = read_all(log)
        manager.shutdown()
        manager = loaded(runtime, path)
        found = manager.get(A)
        assert found is not None
        assert read_all(found) == content
        manager.delete(A)
        remove_deleted(manager)
        manager.shutdown()

    asyncio.run(main())
    assert sorted(entry.name for entry in Path(path).iterdir() if entry.is_dir()) == []


def test_rolled_segments_keep_no_descriptors(tmp_path: Path) -> None:
    simulated, _ = make_runtime()
    runtime = Runtime(RealDisk(), simulated.clock, simulated.rng)

    def descriptors() -> int:
        return sum(str(tmp_path) in os.path.realpath(entry) for entry in Path("/proc/self/fd").iterdir())

    directory = str(tmp_path / "t-0")
    log = PartitionLog.open(runtime, directory, SMALL)
    while len(log.segments) < 20:
        append(log, 3)
    content = read_all(log)
    log.flush()
    assert descriptors() <= 4
    assert read_all(log) == content
    assert descriptors() >= 20
    log.durability.close_idle_files()
    assert descriptors() <= 4
    log.close()
    assert descriptors() == 0
    log = PartitionLog.open(runtime, directory, SMALL, clean_shutdown=True)
    assert descriptors() <= 4
    assert read_all(log) == content
    log.close()


def test_a_log_without_records_costs_no_fsync_and_no_descriptor() -> None:
    runtime, disk = formatted()
    manager = loaded(runtime)
    disk.fail_fsync("/data")
    log = manager.create(A, TOPIC_ID)
    assert log.topic_id == TOPIC_ID and manager.get(A) is log
    manager.delete(A)
    manager.create(A, OTHER_ID)


@pytest.mark.parametrize("seed", range(20))
def test_the_topic_id_is_durable_before_anything_else_is(seed: int) -> None:
    runtime, disk = make_runtime(seed)
    format_dirs(runtime, ("/data",), CLUSTER, 1)
    manager = loaded(runtime)
    synced, unsynced = manager.create(A, TOPIC_ID), manager.create(B, TOPIC_ID)
    append(synced, 3)
    synced.flush()
    append(synced, 2)
    append(unsynced, 4)
    disk.crash()
    again = loaded(runtime)
    kept = again.get(A)
    assert kept is not None and kept.topic_id == TOPIC_ID and 3 <= kept.log_end_offset <= 5
    other = again.get(B)
    assert other is None or other.topic_id == TOPIC_ID or other.log_end_offset == 0


def test_empty_logs_are_there_after_a_clean_restart() -> None:
    runtime, disk = formatted()
    manager = loaded(runtime)
    manager.create(A, TOPIC_ID)
    manager.shutdown()
    disk.crash()
    again = loaded(runtime)
    left = again.get(A)
    log = again.create(A, OTHER_ID if left is None or left.topic_id is None else left.topic_id)
    append(log, 2)
    log.flush()
    topic_id = log.topic_id
    disk.crash()
    last = loaded(runtime).get(A)
    assert last is not None and last.topic_id == topic_id and last.log_end_offset == 2


def test_two_directories_with_the_same_id_are_refused() -> None:
    runtime, disk = formatted("/one", "/two")
    disk.write_atomic("/two/meta.properties", disk.read_bytes("/one/meta.properties"))
    with pytest.raises(LogDirError, match=r"/one and /two have the same directory\.id .* format it again"):
        manager_of(runtime, "/one", "/two").acquire()
    disk.write_atomic(
        "/two/meta.properties", b"version=1\ncluster.id=x\nnode.id=1\ndirectory.id=AAAAAAAAAAAAAAAAAAAAAQ\n"
    )
    with pytest.raises(CorruptFileError, match=r"AAAAAAAAAAAAAAAAAAAAAQ is reserved"):
        manager_of(runtime, "/one", "/two").acquire()
    disk.write_atomic("/two/meta.properties", b"version=2\ncluster.id=x\n")
    with pytest.raises(CorruptFileError, match="says version=2, and 1 is known"):
        manager_of(runtime, "/one", "/two").acquire()


def test_a_node_starts_without_a_directory_whose_disk_refuses() -> None:
    runtime, disk = formatted("/one", "/two")
    first = loaded(runtime, "/one", "/two")
    ids = first.directories.ids
    first.create(A, TOPIC_ID, directory_id=ids["/one"])
    first.create(B, TOPIC_ID, directory_id=ids["/two"])
    first.shutdown(5)
    disk.fail_dir("/two")
    second = loaded(runtime, "/one", "/two")
    assert (second.directories.online_ids, list(second.directories.failures), second.directories.has_failed) == (
        [ids["/one"]],
        ["/two"],
        True,
    )
    assert (set(second.logs), second.previous_broker_epoch) == ({A}, -1)
    views = second.directories.describe()
    assert [view.is_failed for view in views] == [False, True]
    assert (views[1].total_bytes, views[1].usable_bytes) == (-1, -1), "as DescribeLogDirs says what is unknown"
    second.shutdown(6)
    disk.repair_dirs()
    third = loaded(runtime, "/one", "/two")
    assert (set(third.logs), third.previous_broker_epoch, third.directories.failures) == ({A, B}, 5, {})
    third.shutdown(7)
    disk.fail_dir("/one")  # the metadata's
    with pytest.raises(LogDirError, match="/one cannot be used"):
        manager_of(runtime, "/one", "/two").load()


def test_the_metadatas_directory_gets_no_partitions_unless_it_is_a_log_dir() -> None:
    runtime, _ = formatted("/meta", "/one")
    config = LogManagerConfig(("/one", "/meta"), CLUSTER, 1, SMALL, metadata_dir="/meta", data_dirs=("/one",))
    manager = LogManager(runtime, config)
    manager.load()
    for number in range(3):
        assert manager.create(TopicPartition("t", number), TOPIC_ID).directory == f"/one/t-{number}"
    assert manager.directories.online_ids == [manager.directories.ids["/one"]]
    assert [view.path for view in manager.directories.describe()] == ["/one"]
