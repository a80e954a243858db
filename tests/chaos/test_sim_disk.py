"""The disk in memory: it behaves like the real one until it loses power."""

from __future__ import annotations

import asyncio
import errno
import os
import random
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raftwerk.chaos.sim.disk.interruption import Interruption, Operation, ProcessEnded
from raftwerk.chaos.sim.disk.sim_disk import SimDisk
from raftwerk.chaos.sim.kernel.event_loop import ProcessLoop, Scheduler
from raftwerk.runtime.files.real_disk import RealDisk


def make(seed: int = 1, **options: Any) -> SimDisk:
    disk = SimDisk(random.Random(seed), **options)
    disk.makedirs("/d/t-0")
    disk.fsync_dir("/")
    disk.fsync_dir("/d")
    return disk


OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.sampled_from("abc"), st.binary(max_size=20)),
        st.tuples(st.just("pwrite"), st.sampled_from("abc"), st.integers(0, 40)),
        st.tuples(st.just("truncate"), st.sampled_from("abc"), st.integers(0, 40)),
        st.tuples(st.just("rename"), st.sampled_from("abc"), st.sampled_from("abc")),
        st.tuples(st.just("remove"), st.sampled_from("abc"), st.none()),
        st.tuples(st.just("write_atomic"), st.sampled_from("abc"), st.binary(max_size=9)),
    ),
    max_size=25,
)


def apply(disk: SimDisk | RealDisk, root: str, operation: tuple[str, str, Any]) -> object:
    name, path, argument = operation[0], f"{root}/{operation[1]}", operation[2]
    try:
        if name == "rename":
            disk.rename(path, f"{root}/{argument}")
            return None
        if name == "remove":
            disk.remove(path)
            return None
        if name == "write_atomic":
            disk.write_atomic(path, argument)
            return None
        file = disk.open(path, create=True)
        if name == "append":
            file.append([argument, b"|"])
        elif name == "pwrite":
            file.pwrite(argument, b"xyz")
        else:
            file.truncate(argument)
        size = file.size()
        file.close()
        return size
    except OSError as error:
        return type(error).__name__


@given(operations=OPERATIONS)
@settings(max_examples=100)
def test_agrees_with_the_real_disk(
    tmp_path_factory: pytest.TempPathFactory, operations: list[tuple[str, str, Any]]
) -> None:
    real, root = RealDisk(), str(tmp_path_factory.mktemp("disk"))
    sim = make()
    for operation in operations:
        assert apply(sim, "/d", operation) == apply(real, root, operation)
        names = real.listdir(root)
        assert [name for name in sim.listdir("/d") if name != "t-0"] == names
        for name in names:
            assert sim.read_bytes(f"/d/{name}") == real.read_bytes(f"{root}/{name}")


def test_a_later_write_may_reach_the_device_when_an_earlier_one_did_not() -> None:
    found = set()
    for seed in range(300):
        disk = make(seed)
        file = disk.open("/d/t-0/log", create=True)
        file.append([b"durable "])
        file.fsync()
        disk.fsync_dir("/d/t-0")
        file.append([b"early "])
        file.append([b"late"])
        disk.crash(power_loss=True)
        found.add(disk.read_bytes("/d/t-0/log"))
    assert b"durable " + bytes(6) + b"late" in found
    assert b"durable early late" in found
    assert all(content.startswith(b"durable ") for content in found)


@given(
    seed=st.integers(0, 1 << 30),
    writes=st.lists(st.binary(min_size=1, max_size=12), max_size=8),
    synced=st.integers(0, 8),
)
@settings(max_examples=200)
def test_a_power_loss_keeps_what_was_synced_and_tears_the_rest(seed: int, writes: list[bytes], synced: int) -> None:
    disk = make(seed)
    file = disk.open("/d/t-0/log", create=True)
    disk.fsync_dir("/d/t-0")
    durable = b""
    for number, data in enumerate(writes):
        file.append([data])
        if number < synced:
            file.fsync()
            durable += data
    disk.crash(power_loss=True)
    content = disk.read_bytes("/d/t-0/log")
    everything = b"".join(writes)
    assert content.startswith(durable)
    assert len(content) <= len(everything)
    assert all(byte in (everything[i], 0) for i, byte in enumerate(content))
    with pytest.raises(OSError, match="closed"):
        file.size()


def test_power_losses_differ_by_seed() -> None:
    outcomes = set()
    for seed in range(300):
        disk = make(seed)
        file = disk.open("/d/f", create=True)
        disk.fsync_dir("/d")
        file.append([b"12"])
        file.append([b"34"])
        disk.crash()
        outcomes.add(disk.read_bytes("/d/f"))
    assert {b"", b"1", b"12", b"123", b"1234", b"12\0"} <= outcomes


def test_a_killed_process_leaves_the_page_cache() -> None:
    disk = make()
    lock = disk.lock_dir("/d")
    file = disk.open("/d/f", create=True)
    file.append([b"data"])
    with pytest.raises(BlockingIOError):
        disk.lock_dir("/d")
    disk.crash(power_loss=False)
    assert disk.read_bytes("/d/f") == b"data"
    disk.lock_dir("/d")
    lock.release()
    with pytest.raises(BlockingIOError):
        disk.lock_dir("/d")


def test_names_are_durable_after_a_sync_of_their_directory() -> None:
    survived = []
    for seed in range(40):
        disk = make(seed)
        disk.open("/d/kept", create=True).fsync()
        disk.fsync_dir("/d")
        disk.open("/d/unsynced", create=True).fsync()
        disk.rename("/d/kept", "/d/renamed")
        disk.crash()
        survived.append(tuple(disk.listdir("/d")))
    assert set(survived) == {("kept", "t-0"), ("kept", "t-0", "unsynced"), ("renamed", "t-0", "unsynced")}


def test_write_atomic_is_all_or_nothing_and_durable() -> None:
    for seed in range(20):
        disk = make(seed)
        disk.write_atomic("/d/state", b"one")
        disk.write_atomic("/d/state", b"two")
        disk.crash()
        assert disk.read_bytes("/d/state") == b"two"


def test_a_removed_file_may_come_back_until_the_directory_is_synced() -> None:
    outcomes = set()
    for seed in range(20):
        disk = make(seed)
        disk.write_atomic("/d/f", b"x")
        disk.remove("/d/f")
        disk.crash()
        outcomes.add(disk.exists("/d/f"))
    assert outcomes == {True, False}
    disk = make()
    disk.write_atomic("/d/f", b"x")
    disk.remove("/d/f")
    disk.fsync_dir("/d")
    disk.crash()
    assert not disk.exists("/d/f")


def test_a_loss_of_power_while_a_directory_is_removed_leaves_some_of_its_files() -> None:
    left = set()
    for seed in range(60):
        disk = make(seed)
        for name in "abc":
            disk.open(f"/d/t-0/{name}", create=True).fsync()
        disk.fsync_dir("/d/t-0")
        disk.remove_tree("/d/t-0")
        assert not disk.exists("/d/t-0")
        disk.crash()
        left.add("".join(disk.listdir("/d/t-0")) if disk.is_dir("/d/t-0") else None)
    assert left == {"abc", "ab", "ac", "bc", "a", "b", "c", "", None}


def test_each_file_system_has_its_own_journal() -> None:
    outcomes = set()
    for seed in range(60):
        disk = make(seed)
        disk.makedirs("/e")
        disk.fsync_dir("/")
        disk.open("/d/old", create=True)
        disk.fsync_dir("/d")
        disk.open("/e/new", create=True)
        disk.remove("/d/old")
        disk.crash()
        outcomes.add((disk.exists("/e/new"), disk.exists("/d/old")))
    assert outcomes == {(True, True), (True, False), (False, True), (False, False)}
    with pytest.raises(OSError, match="cross-device"):
        disk.rename("/d/t-0", "/e/t-0")


@pytest.mark.parametrize(("least", "left"), [(Operation.DATA, ["a"]), (Operation.NAMES, ["a", "b"])])
def test_a_process_that_ends_between_two_operations_does_no_more(least: Operation, left: list[str]) -> None:
    disk = make()
    ends: list[bool] = []

    def end_process() -> None:
        disk.crash(power_loss=False)
        ends.append(True)

    disk.interruption = Interruption(2, least, end_process)
    file = disk.open("/d/t-0/a", create=True)
    file.append([b"x"])
    with pytest.raises(ProcessEnded):
        for name in "bc":
            disk.open(f"/d/t-0/{name}", create=True)
    with pytest.raises(ProcessEnded):
        disk.remove("/d/t-0/a")
    assert disk.listdir("/d/t-0") == left
    assert disk.read_bytes("/d/t-0/a") == b"x"
    assert disk.interrupted_at == f"/d/t-0/{'b' if least is Operation.DATA else 'c'}"
    assert len(ends) == 1


def test_a_renamed_directory_takes_its_files_along() -> None:
    disk = make()
    file = disk.open("/d/t-0/log", create=True)
    file.append([b"x"])
    file.fsync()
    disk.fsync_dir("/d/t-0")
    disk.rename("/d/t-0", "/d/t-0.1-delete")
    disk.fsync_dir("/d")
    disk.crash()
    assert disk.read_bytes("/d/t-0.1-delete/log") == b"x"


def test_a_failed_fsync_loses_the_pages_for_good() -> None:
    disk = make()
    file = disk.open("/d/f", create=True)
    disk.fsync_dir("/d")
    file.append([b"lost"])
    disk.fail_fsync("/d/f")
    with pytest.raises(OSError, match="input/output") as raised:
        file.fsync()
    assert raised.value.errno == errno.EIO
    disk.fail_fsync(None)
    with pytest.raises(OSError, match="input/output"):
        file.fsync()
    disk.open("/d/f").fsync()
    assert disk.read_bytes("/d/f") == b"lost"
    disk.crash()
    assert disk.read_bytes("/d/f") == b""


def test_a_disk_that_lies_has_nothing_of_what_it_said_it_had_synced() -> None:
    kept: set[bytes] = set()
    for seed in range(60):
        disk = make(seed)
        disk.lies = True
        file = disk.open("/d/t-0/a", create=True)
        file.append([b"said to be synced"])
        file.fsync()
        disk.fsync_dir("/d/t-0")
        disk.crash()
        kept.add(disk.read_bytes("/d/t-0/a") if disk.exists("/d/t-0/a") else b"-")
    assert {b"-", b""} <= kept
    disk = make()
    disk.lies = True
    disk.write_atomic("/d/t-0/a", b"first")
    disk.lies = False
    disk.write_atomic("/d/t-0/b", b"second")
    disk.crash()
    assert disk.read_bytes("/d/t-0/b") == b"second"


def test_a_full_disk_takes_what_fits() -> None:
    disk = make(capacity_bytes=10)
    file = disk.open("/d/f", create=True)
    file.append([b"1234567"])
    with pytest.raises(OSError, match="no space") as raised:
        file.append([b"89abc"])
    assert raised.value.errno == errno.ENOSPC
    assert (file.size(), disk.free_bytes("/d")) == (10, 0)
    file.pwrite(0, b"0")
    file.truncate(4)
    assert disk.free_bytes("/d") == 6
    disk.remove("/d/f")
    assert disk.free_bytes("/d") == 10


def test_fsync_soon_covers_what_was_written_before_the_call() -> None:
    async def main() -> None:
        disk = make(sync_latency_s=(0.001, 0.001))
        file = disk.open("/d/f", create=True)
        disk.fsync_dir("/d")
        file.append([b"before"])
        future = disk.fsync_soon(file)
        file.append([b"after"])
        await future
        file.inode.unsynced.clear()
        disk.crash()
        assert disk.read_bytes("/d/f") == b"before"

    asyncio.run(main())


def test_fsync_soon_fails_with_the_disk() -> None:
    async def main() -> None:
        disk = make()
        file = disk.open("/d/f", create=True)
        disk.fail_fsync()
        for _ in range(2):
            with pytest.raises(OSError, match="input/output"):
                await disk.fsync_soon(file)

    asyncio.run(main())


def test_a_file_that_was_cut_ends_early_even_after_a_loss_of_power() -> None:
    disk = make()
    file = disk.open("/d/t-0/a", create=True)
    file.append([b"0123456789"])
    free = disk.free_space
    disk.crash(power_loss=False)
    disk.cut("/d/t-0/a", 4)
    assert (disk.read_bytes("/d/t-0/a"), disk.free_space - free) == (b"0123", 6)
    disk.fsync_dir("/d/t-0")
    disk.crash(power_loss=True)
    assert disk.read_bytes("/d/t-0/a") == b"0123"


def test_paths_are_the_same_with_and_without_dots(tmp_path: Path) -> None:
    disk = make()
    disk.write_atomic("d/./x", b"1")
    assert disk.read_bytes("/d//x") == b"1"


@pytest.mark.parametrize("change", ["renamed", "renamed twice", "removed"])
@pytest.mark.parametrize("kind", ["real", "simulated"])
def test_a_write_that_waits_stays_in_the_directory_that_it_was_begun_in(kind: str, change: str, tmp_path: Path) -> None:
    """A later directory of the same name is another topic's: its `partition.metadata` is not to be replaced."""
    root = str(tmp_path) if kind == "real" else "/d"
    directory, former = f"{root}/t-1", f"{root}/t-1.x-delete"

    async def main() -> None:
        disk: RealDisk | SimDisk
        busy = threading.Event()
        if kind == "real":
            disk = RealDisk()
            loop, threads = asyncio.get_running_loop(), disk._threads()
            slow = [loop.run_in_executor(threads, busy.wait) for _ in range(4)]
        else:
            disk, slow = make(sync_latency_s=(0.001, 0.001)), []
        disk.makedirs(directory)
        disk.write_atomic(f"{directory}/id", b"none")
        late = disk.write_atomic_soon(f"{directory}/id", b"former")
        if change == "removed":
            disk.remove_tree(directory)
        else:
            disk.rename(directory, former)
            if change == "renamed twice":
                disk.rename(former, f"{former}d")
        disk.makedirs(directory)
        later = disk.write_atomic_soon(f"{directory}/id", b"later")
        busy.set()
        results = await asyncio.gather(late, later, return_exceptions=True)
        await asyncio.gather(*slow)
        assert disk.read_bytes(f"{directory}/id") == b"later"
        assert disk.listdir(directory) == ["id"]
        if change == "removed":
            assert isinstance(results[0], FileNotFoundError)
        else:
            assert disk.read_bytes(f"{former}{'d' if change == 'renamed twice' else ''}/id") == b"former"

    if kind == "real":
        asyncio.run(main())
    else:
        ProcessLoop(Scheduler(), "test").run_until_complete(main())


def test_a_write_whose_directory_is_open_already_stays_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The directory is renamed while a thread writes the temporary file."""
    directory, former = str(tmp_path / "t-1"), str(tmp_path / "t-1.x-delete")
    writing, go_on = threading.Event(), threading.Event()
    fdatasync = os.fdatasync

    def slow(fd: int) -> None:
        writing.set()
        go_on.wait()
        fdatasync(fd)

    async def main() -> None:
        disk = RealDisk()
        disk.makedirs(directory)
        monkeypatch.setattr(os, "fdatasync", slow)
        late = disk.write_atomic_soon(f"{directory}/id", b"former")
        await asyncio.to_thread(writing.wait)
        disk.rename(directory, former)
        disk.makedirs(directory)
        go_on.set()
        await late
        assert disk.listdir(directory) == [] and disk.read_bytes(f"{former}/id") == b"former"

    asyncio.run(main())
