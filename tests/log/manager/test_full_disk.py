"""A full disk, noticed at any write: nothing is lost, no log fails, and with space again everything continues."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import random
import resource
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest
from support.log.damaged_files import CLUSTER, marker
from support.log.logs import NOW_MS, SMALL, FixedClock, append, batch, make_runtime, open_files, open_log, read_all

from raftwerk.chaos.live.nemesis import machine_capabilities
from raftwerk.chaos.live.nemesis.node_filesystems import NodeFilesystems
from raftwerk.chaos.sim.disk.sim_disk import SimDisk
from raftwerk.chaos.sim.disk.sim_file import SimFile
from raftwerk.chaos.sim.kernel.event_loop import ProcessLoop, Scheduler
from raftwerk.cluster.local.layout import ClusterShape, plan_cluster
from raftwerk.isr.directories.log_dir_moves import copy_batches, truncate_copy
from raftwerk.log.config import LogConfig
from raftwerk.log.errors import NoSpaceError, StorageError
from raftwerk.log.manager.log_directory import OffsetCheckpoint
from raftwerk.log.manager.log_maintenance import RetentionRounds
from raftwerk.log.manager.log_manager import LogManager
from raftwerk.log.manager.log_manager_config import LogManagerConfig, RetentionConfig
from raftwerk.log.manager.meta_properties import format_dirs
from raftwerk.log.partition_log import PartitionLog
from raftwerk.log.state.checkpoints import read_topic_id
from raftwerk.log.state.producer_snapshots import ProducerSnapshots
from raftwerk.log.state.transaction_verification import VERIFICATION_OFF
from raftwerk.runtime.files.real_disk import RealDisk
from raftwerk.runtime.ports import Runtime
from raftwerk.wire.records import encode_batch
from raftwerk.wire.types import TopicPartition

A = TopicPartition("a", 0)
MB = 1 << 20
DAY_MS = 86_400_000


def about_to_roll(log: PartitionLog) -> None:
    """Append, with a producer's state to be snapshotted, until the next batch does not fit the segment."""
    sequence = 0
    while log.segments[-1].size_bytes + 300 <= SMALL.segment_bytes:
        data = batch(
            1, value=b"x" * 60, timestamp=1000 + sequence, producer_id=5, producer_epoch=0, base_sequence=sequence
        )
        log.append_as_leader(data, 0, NOW_MS)
        sequence += 1


@pytest.mark.parametrize("flushed", [False, True])
@pytest.mark.parametrize("left_bytes", range(0, 400, 7))
def test_no_space_at_a_roll_does_not_fail_the_log(left_bytes: int, flushed: bool) -> None:
    runtime, disk = make_runtime()
    log = open_log(runtime)
    about_to_roll(log)
    if flushed:
        log.flush()
    before, end = read_all(log), log.log_end_offset
    disk.fill(left_bytes)
    with pytest.raises(NoSpaceError):
        append(log, value=b"y" * 400)
    assert not log.is_failed and log.log_end_offset == end and read_all(log) == before
    with contextlib.suppress(NoSpaceError):
        log.roll()
    with contextlib.suppress(NoSpaceError):
        log.roll_if_due(NOW_MS * 2)
    assert read_all(log) == before
    disk.set_capacity()
    assert append(log, value=b"y" * 400) == end
    whole = read_all(log)
    assert whole.startswith(before)
    log.flush()
    recovery_point = log.recovery_point
    disk.crash()
    again = open_log(runtime, recovery_point=recovery_point)
    assert read_all(again) == whole and again.log_end_offset == end + 1
    assert again.producers.get(5) is not None


def test_a_checkpoint_on_a_full_disk_stays_and_is_written_later() -> None:
    async def main() -> None:
        _, disk = make_runtime()
        checkpoint, failures = OffsetCheckpoint(disk, "/data/x"), list[OSError]()
        await checkpoint_written(checkpoint, {A: 1}, failures)
        disk.fill(0)
        await checkpoint_written(checkpoint, {A: 1, TopicPartition("b", 0): 2}, failures)
        assert checkpoint.offsets == {A: 1} and failures == []
        disk.set_capacity()
        await checkpoint_written(checkpoint, {A: 3}, failures)
        assert checkpoint.offsets == {A: 3} and failures == []

    ProcessLoop(Scheduler(), "test").run_until_complete(main())


async def checkpoint_written(
    checkpoint: OffsetCheckpoint, offsets: dict[TopicPartition, int], failures: list[OSError]
) -> None:
    checkpoint.write_soon(offsets, failures.append)
    await asyncio.sleep(0.1)


def test_a_flush_without_space_for_a_small_file_is_tried_again() -> None:
    async def main() -> None:
        runtime, disk = make_runtime()
        log = open_log(runtime)
        append(log, 3)
        disk.fill(0)
        with pytest.raises(NoSpaceError):
            await log.flush_soon()
        assert not log.is_failed and log.recovery_point == 0
        disk.set_capacity()
        assert await log.flush_soon() == 3
        assert disk.read_bytes("/data/t-0/leader-epoch-checkpoint") == b"0\n1\n0 0\n"

    ProcessLoop(Scheduler(), "test").run_until_complete(main())


def test_a_small_file_system_fills_and_empties(tmp_path: Path) -> None:
    """On a real file system: every roll, flush and checkpoint meets a full tmpfs at some time."""
    reasons = machine_capabilities.unmet_needs(["tmpfs"])
    if reasons:
        pytest.skip(f"no small file systems here ({reasons[0]}): NOT tested")
    plan = plan_cluster(str(tmp_path), ClusterShape(brokers=1, port=21000))
    setup = NodeFilesystems(plan, ext4=False, size_mb=4)

    async def main(directory: str) -> None:
        runtime = Runtime(RealDisk(), FixedClock(), random.Random(1))
        log = PartitionLog.open(runtime, directory, LogConfig(segment_bytes=1 << 20, index_interval_bytes=100))
        for _ in range(3):
            refused = 0
            while refused < 3:
                try:
                    append(log, value=b"x" * 9_000)
                except NoSpaceError:
                    refused += 1
                    with contextlib.suppress(NoSpaceError):
                        log.roll()
                    with contextlib.suppress(NoSpaceError):
                        await log.flush_soon()
            assert not log.is_failed
            end = log.log_end_offset
            setup.make_room(1)
            log.raise_start(end)
            for _ in range(2):
                log.delete_expired(NOW_MS, end)
                await until_arranged(log)
            assert append(log, value=b"y") == end
            assert await log.flush_soon() == end + 1
            setup.fill(1)
        setup.make_room(1)
        log.close()
        again = PartitionLog.open(runtime, directory, LogConfig(), clean_shutdown=True)
        assert again.log_end_offset == log.log_end_offset and len(read_all(again)) > 0
        again.close()

    try:
        setup.open()
        asyncio.run(main(f"{plan.nodes[0].data_dir}/t-0"))
    finally:
        setup.close()


async def until_arranged(log: PartitionLog) -> None:
    for _ in range(1000):
        if not log.is_changing_names:
            return
        await asyncio.sleep(0.01)
    raise AssertionError("files still get other names")


def test_too_many_open_files_do_not_fail_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    runtime, disk = make_runtime()
    log = open_log(runtime)
    append(log, 3)
    log.flush()
    content = read_all(log)
    log.durability.close_idle_files()

    def refuse(path: str, *, create: bool = False) -> None:
        raise OSError(errno.EMFILE, "too many open files", path)

    with monkeypatch.context() as patched:
        patched.setattr(disk, "open", refuse)
        attempts: list[Callable[[], object]] = [
            lambda: append(log, 1),
            log.roll,
            lambda: log.read(0, 1 << 20, end_offset=3),
        ]
        for attempt in attempts:
            with pytest.raises(NoSpaceError):
                attempt()
    assert not log.is_failed
    assert append(log, 1) == 3 and read_all(log).startswith(content)


def test_more_logs_are_written_than_files_can_be_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        monkeypatch.setattr(resource, "getrlimit", lambda which: (40, 40))
        runtime = Runtime(RealDisk(), FixedClock(), random.Random(1))
        logs = [PartitionLog.open(runtime, f"{tmp_path}/t-{number}", LogConfig()) for number in range(100)]
        for expected in range(3):
            assert [append(log, 1) for log in logs] == [expected] * 100
            assert open_files(tmp_path) <= 20
        flushed = asyncio.gather(*(log.flush_soon() for log in logs))
        most = 0
        while not flushed.done():
            most = max(most, open_files(tmp_path))
            await asyncio.sleep(0)
        assert await flushed == [3] * 100
        assert most <= 20 + 16  # directories are synced beside
        for log in logs:
            assert len(read_all(log)) > 0 and log.log_end_offset == 3
            log.close()

    asyncio.run(main())


@pytest.mark.parametrize("left_bytes", range(78, 120, 3))
def test_no_space_for_the_index_of_aborted_transactions(left_bytes: int) -> None:
    """The marker is in the log; the entry of the index is written when there is space."""
    runtime, disk = make_runtime()
    log = open_log(runtime)
    for producer in (7, 8):
        data = batch(1, producer_id=producer, producer_epoch=0, base_sequence=0, is_transactional=True)
        log.append_as_leader(data, 0, NOW_MS, guard=VERIFICATION_OFF)
    log.flush()
    log.append_as_leader(marker(7, NOW_MS), 0, NOW_MS, internal=True)
    disk.fill(left_bytes)
    log.append_as_leader(marker(8, NOW_MS), 0, NOW_MS, internal=True)
    assert not log.is_failed
    aborted = [(7, 0, 2, 1), (8, 1, 3, 4)]
    assert [tuple(one) for one in log.aborted_transactions(0, 4)] == aborted
    with contextlib.suppress(NoSpaceError):
        log.roll()
    assert not log.is_failed
    disk.set_capacity()
    log.flush()
    recovery_point = log.recovery_point
    assert recovery_point == 4
    disk.crash()
    again = open_log(runtime, recovery_point=recovery_point)
    assert [tuple(one) for one in again.aborted_transactions(0, 4)] == aborted


INDEXED = LogConfig(index_interval_bytes=100)


def with_63_index_entries(log: PartitionLog) -> bytes:
    """Append until one more entry makes the index be written; the contents of the log."""
    while len(log.segments[-1].offset_index.positions) < 63:
        append(log, value=b"v" * 100)
    log.flush()
    return read_all(log)


@pytest.mark.parametrize("left_bytes", range(100, 1400, 90))
def test_no_space_for_the_entries_of_an_index_within_an_append(left_bytes: int) -> None:
    """The batch is in the log; the entries of the indexes are written when there is space."""
    runtime, disk = make_runtime()
    log = open_log(runtime, INDEXED)
    content = with_63_index_entries(log)
    disk.fill(left_bytes)
    with contextlib.suppress(NoSpaceError):
        for _ in range(4):
            append(log, value=b"v" * 100)
    assert not log.is_failed and read_all(log).startswith(content)
    with contextlib.suppress(NoSpaceError):
        log.roll()
    assert not log.is_failed
    disk.set_capacity()
    append(log)
    segment, content = log.segments[0], read_all(log)
    log.roll()
    for index, entry_size in ((segment.offset_index, 8), (segment.time_index, 12)):
        assert len(disk.read_bytes(index.file.path)) == entry_size * len(index.offsets)
    log.close()
    assert read_all(open_log(runtime, INDEXED, clean_shutdown=True)) == content


def test_too_many_open_files_for_an_index_within_an_append(monkeypatch: pytest.MonkeyPatch) -> None:
    runtime, disk = make_runtime()
    log = open_log(runtime, INDEXED)
    with_63_index_entries(log)

    def refuse(path: str, *, create: bool = False) -> None:
        raise OSError(errno.EMFILE, "too many open files", path)

    with monkeypatch.context() as patched:
        patched.setattr(disk, "open", refuse)
        for _ in range(4):
            append(log, value=b"v" * 100)
        with pytest.raises(NoSpaceError):
            log.roll()
    assert not log.is_failed
    log.roll()
    assert len(disk.read_bytes(log.segments[0].offset_index.file.path)) == 8 * len(log.segments[0].offset_index.offsets)


def test_too_many_open_files_do_not_fail_a_log_in_a_round_of_retention(monkeypatch: pytest.MonkeyPatch) -> None:
    """The timestamps of segments that were rolled before a restart are in their indexes."""
    runtime, disk = make_runtime()
    log = open_log(runtime, LogConfig(retention_ms=1000))
    append(log, 3, timestamp=NOW_MS)
    log.roll()
    append(log, 3, timestamp=NOW_MS)
    log.close()
    again = open_log(runtime, LogConfig(retention_ms=1000), clean_shutdown=True, recovery_point=6)

    def refuse(path: str) -> bytes:
        raise OSError(errno.EMFILE, "too many open files", path)

    with monkeypatch.context() as patched:
        patched.setattr(disk, "read_bytes", refuse)
        with pytest.raises(NoSpaceError):
            again.delete_expired(NOW_MS + 2000, 6)
    assert not again.is_failed
    assert again.delete_expired(NOW_MS + 2000, 6) == 2


def test_a_full_disk_on_which_no_segment_can_be_rolled_does_not_keep_retention_from_deleting() -> None:
    async def main() -> None:
        runtime, disk = make_runtime()
        log = open_log(runtime, LogConfig(retention_bytes=200, segment_ms=DAY_MS))
        for _ in range(3):
            append(log, 3, timestamp=NOW_MS - 2 * DAY_MS)
            log.roll()
        append(log, 3, timestamp=NOW_MS - 2 * DAY_MS)
        disk.fill(0)
        rounds = RetentionRounds(RetentionConfig(), runtime.clock, lambda: {A: log}, lambda tp: 12)
        rounds.visit(A, log)
        assert log.log_start_offset == 6 and len(log.segments) == 2 and not log.is_failed

    asyncio.run(main())


def test_no_space_to_note_that_offsets_are_missing_does_not_fail_the_directory() -> None:
    """A follower's fetcher tries again what its leader's compaction has left."""
    runtime, disk = make_runtime()
    format_dirs(runtime, ("/data",), CLUSTER, 1)
    manager = LogManager(runtime, LogManagerConfig(("/data",), CLUSTER, 1, LogConfig()))
    manager.load()
    log = manager.create(A, UUID(int=1))
    after_a_gap = memoryview(encode_batch([(b"k", b"v", (), NOW_MS)], base_offset=5, leader_epoch=0))
    disk.fill(0)
    with pytest.raises(NoSpaceError):
        log.append_as_follower(after_a_gap, may_skip=True)
    assert not log.is_failed and log.log_end_offset == 0
    disk.set_capacity()
    log.append_as_follower(after_a_gap, may_skip=True)
    assert log.log_end_offset == 6
    assert disk.read_bytes("/data/cleaner-offset-checkpoint") == b"0\n1\na 0 0\n"


def two_directories(monkeypatch: pytest.MonkeyPatch, *without_space: str) -> tuple[LogManager, SimDisk]:
    """A manager of /one, which has a log, and /two, which has two; no file can be made in those without space."""
    runtime, disk = make_runtime()
    dirs = ("/one", "/two")
    format_dirs(runtime, dirs, CLUSTER, 1)
    manager = LogManager(runtime, LogManagerConfig(dirs, CLUSTER, 1, SMALL))
    manager.load()
    for index, path in enumerate(("/one", "/two", "/two")):
        manager.create(TopicPartition("old", index), UUID(int=7), directory_id=manager.directories.ids[path])
    makes = disk.open

    def refused(path: str, *, create: bool = False) -> object:
        if path.startswith(tuple(f"{one}/" for one in without_space)):
            raise OSError(errno.ENOSPC, "No space left on device", path)
        return makes(path, create=create)

    monkeypatch.setattr(disk, "open", refused)
    return manager, disk


def test_new_logs_are_made_where_there_is_space(monkeypatch: pytest.MonkeyPatch) -> None:
    manager, _ = two_directories(monkeypatch)
    assert manager.directories.set_full(["/one"])
    assert not manager.directories.set_full(["/one"]), "it was full before"
    assert manager.directories.has_space
    assert manager.create(A, UUID(int=8)).directory == "/two/a-0"
    assert manager.directories.set_full(["/two"])
    assert manager.create(TopicPartition("a", 1), UUID(int=8)).directory == "/one/a-1"
    manager.directories.set_full(["/one", "/two"])
    assert not manager.directories.has_space
    assert manager.create(TopicPartition("a", 2), UUID(int=8)).directory == "/one/a-2", "it has fewer logs"


@pytest.mark.parametrize("is_asked", [True, False])
def test_a_directory_that_turns_out_to_have_no_space_is_passed_over(
    monkeypatch: pytest.MonkeyPatch, is_asked: bool
) -> None:
    """Nothing of the log stays there: else the node would not start, as a partition was in two directories."""
    manager, disk = two_directories(monkeypatch, "/one")
    asked = manager.directories.ids["/one"] if is_asked else None
    assert manager.create(A, UUID(int=8), directory_id=asked).directory == "/two/a-0"
    assert "a-0" not in disk.listdir("/one")


def test_a_log_for_which_no_directory_has_space_is_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    manager, disk = two_directories(monkeypatch, "/one", "/two")
    with pytest.raises(NoSpaceError):
        manager.create(A, UUID(int=8))
    assert manager.get(A) is None
    assert not any("a-0" in disk.listdir(path) for path in ("/one", "/two"))


@pytest.mark.parametrize("left_bytes", [0, 1, 20])
def test_a_log_whose_topic_id_cannot_be_written_for_want_of_space_is_not_made(left_bytes: int) -> None:
    """Else it stayed where there is no space, and took no records there while another directory had some."""
    runtime, disk = make_runtime()
    format_dirs(runtime, ("/one", "/two"), CLUSTER, 1)
    manager = LogManager(runtime, LogManagerConfig(("/one", "/two"), CLUSTER, 1, SMALL))
    manager.load()
    disk.fill(left_bytes)
    with pytest.raises(NoSpaceError):
        manager.create(A, UUID(int=8))
    assert manager.get(A) is None
    assert not any("a-0" in disk.listdir(path) for path in ("/one", "/two"))
    disk.set_capacity()
    manager.directories.set_full(["/one"])
    log = manager.create(A, UUID(int=8))
    assert (log.directory, log.topic_id) == ("/two/a-0", UUID(int=8))


@pytest.mark.parametrize("left_bytes", [0, 1, 20])
def test_a_copy_that_cannot_be_made_for_want_of_space_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch, left_bytes: int
) -> None:
    manager, disk = two_directories(monkeypatch)
    before = disk.listdir("/two")
    disk.fill(left_bytes)
    with pytest.raises(NoSpaceError):
        manager.future_logs.begin(TopicPartition("old", 0), "/two")
    assert not manager.directories.failures
    assert disk.listdir("/two") == before
    disk.set_capacity()
    assert manager.future_logs.begin(TopicPartition("old", 0), "/two")


def test_a_move_back_to_a_directory_that_is_full_by_now_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its checkpoints name the log that was there before, and cannot be written."""
    manager, disk = two_directories(monkeypatch)
    moved = TopicPartition("old", 1)
    append(manager.logs[moved], 5)
    manager.checkpoint_recovery_points()
    manager.future_logs.begin(moved, "/one")
    manager.future_logs.finish(moved)
    disk.fill(0)
    with pytest.raises(NoSpaceError):
        manager.future_logs.begin(moved, "/two")
    assert not manager.directories.failures and manager.future_logs.get(moved) is None
    disk.set_capacity()
    assert manager.future_logs.begin(moved, "/two")


@pytest.mark.parametrize("left_bytes", range(0, 150, 10))
def test_a_move_that_cannot_be_finished_for_want_of_space_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, left_bytes: int
) -> None:
    manager, disk = two_directories(monkeypatch)
    moved = TopicPartition("old", 0)
    log = manager.logs[moved]
    append(log, 5)
    log.raise_start(2)
    before = read_all(log)
    manager.future_logs.begin(moved, "/two")
    copy = manager.future_logs.get(moved)
    assert copy is not None
    truncate_copy(log, copy)
    copy_batches(log, copy)
    copy.flush()
    disk.fill(left_bytes)
    try:
        found = manager.future_logs.finish(moved)
    except NoSpaceError:
        assert manager.get(moved) is log
        manager.future_logs.discard(moved)
        assert not [name for name in disk.listdir("/two") if moved.topic in name and "future" in name]
        found = log
    assert not manager.directories.failures
    assert (read_all(found), found.log_start_offset) == (before, 2)


@pytest.mark.parametrize("crash_at", [None, 0, 1, 3])
def test_a_log_is_deleted_where_there_is_no_space_for_its_new_name(
    monkeypatch: pytest.MonkeyPatch, crash_at: int | None
) -> None:
    """The topic is deleted to make space. What a kill leaves of the log still says of which topic it is."""
    manager, disk = two_directories(monkeypatch)
    deleted = TopicPartition("old", 0)
    append(manager.logs[deleted], 5)
    removes, left = disk.remove, crash_at

    def no_space(source: str, target: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", target)

    def killed(path: str) -> None:
        nonlocal left
        if left is not None:
            left -= 1
            if left < 0:
                raise KeyboardInterrupt
        removes(path)

    monkeypatch.setattr(disk, "rename", no_space)
    monkeypatch.setattr(disk, "remove", killed)
    with contextlib.suppress(KeyboardInterrupt):
        manager.delete(deleted)
    assert not manager.directories.failures
    if left is not None and left < 0:
        assert read_topic_id(disk, "/one/old-0") == UUID(int=7)
    else:
        assert not disk.exists("/one/old-0")
        monkeypatch.undo()
        assert manager.create(deleted, UUID(int=9)).log_end_offset == 0


@pytest.mark.parametrize("way", ["by age", "by retention"])
def test_too_many_open_files_at_a_roll_leave_no_file_of_a_segment_that_is_not_there(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No index of the rolled segment can be opened when the next one has its file."""

    async def main() -> None:
        runtime, disk = make_runtime()
        log = open_log(runtime, replace(SMALL, retention_ms=1000))
        while len(log.segments[0].offset_index.positions) < 3:
            append(log, 3)
        await log.checkpoint_soon()
        log.durability.close_idle_files()
        next_file, opened = f"{log.directory}/{log.log_end_offset:020d}.log", disk.open

        def refuse(path: str, *, create: bool = False) -> SimFile:
            if path.endswith(".index") and disk.exists(next_file):
                raise OSError(errno.EMFILE, "too many open files", path)
            return opened(path, create=create)

        with monkeypatch.context() as patched, contextlib.suppress(NoSpaceError):
            patched.setattr(disk, "open", refuse)
            if way == "by age":
                log.roll_if_due(NOW_MS * 2)
            else:
                log.delete_expired(NOW_MS * 2, log.log_end_offset)
        await until_arranged(log)
        for _ in range(3):
            append(log, 3)
        await log.flush_soon()
        content, end, point = read_all(log), log.log_end_offset, log.recovery_point
        disk.crash(power_loss=False)
        again = open_log(runtime, SMALL, recovery_point=point)
        assert again.log_end_offset == end and read_all(again) == content

    ProcessLoop(Scheduler(), "test").run_until_complete(main())


def test_a_log_fails_when_the_file_of_a_segment_that_could_not_be_started_cannot_be_removed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runtime, disk = make_runtime()
    log = open_log(runtime)
    append(log, 3)
    log.flush()

    def refuse(*_: object) -> None:
        raise OSError(errno.EIO, "I/O error")

    with monkeypatch.context() as patched, pytest.raises(StorageError):
        patched.setattr(disk, "remove", refuse)
        patched.setattr(ProducerSnapshots, "write", refuse)
        log.roll()
    assert log.is_failed
