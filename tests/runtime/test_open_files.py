"""More files are open than may have a descriptor: nobody who holds one notices, whatever becomes of names, and no
failed write-back is forgotten."""

from __future__ import annotations

import asyncio
import errno
import gc
import itertools
import os
import random
import resource
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from raftwerk.chaos.sim.disk.sim_disk import SimDisk
from raftwerk.runtime.files import page_cache
from raftwerk.runtime.files.real_disk import RealDisk
from raftwerk.runtime.loop import run
from raftwerk.runtime.ports import Disk, File

NAMES = [f"{directory}/{name}" for directory in ("x", "y") for name in "abc"]
DESCRIPTORS = 4


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> Iterator[RealDisk]:
    gc.collect()  # disks of other tests count
    disk = RealDisk()
    monkeypatch.setattr(disk.open_files, "_limit", lambda: DESCRIPTORS)
    yield disk


class OpenFilesMachine(RuleBasedStateMachine):
    """Handles of files that are renamed, replaced and removed, beside a model in which handles are references."""

    disk: Disk
    root: str

    def __init__(self) -> None:
        super().__init__()
        self.names: dict[str, bytearray] = {}
        self.handles: list[tuple[File, bytearray]] = []
        self.make()
        for directory in ("x", "y"):
            self.disk.makedirs(f"{self.root}/{directory}")

    def make(self) -> None:
        raise NotImplementedError

    def path(self, name: str) -> str:
        return f"{self.root}/{name}"

    @rule(name=st.sampled_from(NAMES))
    def open(self, name: str) -> None:
        content = self.names.setdefault(name, bytearray())
        self.handles.append((self.disk.open(self.path(name), create=True), content))

    @rule(at=st.integers(0, 50), data=st.binary(min_size=1, max_size=5))
    def append(self, at: int, data: bytes) -> None:
        if self.handles:
            file, content = self.handles[at % len(self.handles)]
            file.pwrite(len(content), data)
            content += data

    @rule(at=st.integers(0, 50))
    def read(self, at: int) -> None:
        if self.handles:
            file, content = self.handles[at % len(self.handles)]
            assert file.pread(0, 1000) == bytes(content)

    @rule(at=st.integers(0, 50))
    def share(self, at: int) -> None:
        if self.handles:
            file, content = self.handles[at % len(self.handles)]
            self.handles.append((file.share(), content))

    @rule(at=st.integers(0, 50), says_so=st.booleans())
    def close(self, at: int, says_so: bool) -> None:
        if self.handles:
            file, _ = self.handles.pop(at % len(self.handles))
            if says_so:
                file.close()

    @rule(at=st.integers(0, 50))
    def fsync(self, at: int) -> None:
        if self.handles:
            self.handles[at % len(self.handles)][0].fsync()

    @rule(names=st.tuples(st.sampled_from(NAMES), st.sampled_from(NAMES)))
    def rename(self, names: tuple[str, str]) -> None:
        source, target = names
        if source in self.names and source != target:
            self.disk.rename(self.path(source), self.path(target))
            self.names[target] = self.names.pop(source)

    @rule(name=st.sampled_from(NAMES), waits=st.booleans())
    def remove(self, name: str, waits: bool) -> None:
        if self.names.pop(name, None) is not None:
            if waits:
                self.in_loop(lambda: self.disk.remove_soon(self.path(name)))
            else:
                self.disk.remove(self.path(name))

    @rule(order=st.permutations(NAMES[:3]), at_once=st.booleans())
    def rearrange(self, order: list[str], at_once: bool) -> None:
        renames = []
        for source, target in itertools.pairwise(reversed(order)):
            if source in self.names:
                self.names[target] = self.names.pop(source)
                renames.append((source, target))
        paths = [(self.path(source), self.path(target)) for source, target in renames]

        def begin() -> asyncio.Future[None]:
            rearrangement = self.disk.rename_in_order_soon(self.path("x"), paths)
            if at_once:
                rearrangement.finish()
            return rearrangement.done

        self.in_loop(begin)

    @rule()
    def rename_directory(self) -> None:
        self.disk.rename(self.path("x"), self.path("z"))
        self.disk.rename(self.path("y"), self.path("x"))
        self.disk.rename(self.path("z"), self.path("y"))
        swap = {"x": "y", "y": "x"}
        self.names = {f"{swap[name[0]]}{name[1:]}": content for name, content in self.names.items()}

    def in_loop(self, begin: Callable[[], asyncio.Future[None]]) -> None:
        async def main() -> None:
            await begin()

        asyncio.run(main())

    def teardown(self) -> None:
        for file, content in self.handles:
            assert file.pread(0, 1000) == bytes(content)
            file.close()
        self.handles.clear()
        assert self.disk.open_files.count() == (0, 0)  # type: ignore[attr-defined]


class RealMachine(OpenFilesMachine):
    def make(self) -> None:
        self.disk = disk = RealDisk()
        disk.open_files._limit = lambda: DESCRIPTORS
        self.root = subprocess.check_output(["mktemp", "-d"], text=True).strip()

    @invariant()
    def few_have_descriptors(self) -> None:
        """Those that have lost their name keep theirs, so there may be more than the limit."""
        nameless = sum(not file._reference.file(is_used=False).has_name for file, _ in self.handles)  # type: ignore[attr-defined]
        assert self.disk.open_files.count()[0] <= DESCRIPTORS + nameless  # type: ignore[attr-defined]

    def teardown(self) -> None:
        super().teardown()
        self.disk.remove_tree(self.root)


class SimMachine(OpenFilesMachine):
    def make(self) -> None:
        self.disk = disk = SimDisk(random.Random(1))
        disk.descriptors_max = DESCRIPTORS
        self.root = "/root"


TestReal = RealMachine.TestCase
TestReal.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestSim = SimMachine.TestCase
TestSim.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_files_that_were_pinned_for_a_rename_are_above_the_limit_no_longer_than_that(
    few: RealDisk, tmp_path: Path
) -> None:
    handles = [few.open(str(tmp_path / "a"), create=True) for _ in range(DESCRIPTORS + 1)]

    async def rename() -> None:
        await few.rename_in_order_soon(str(tmp_path), [(str(tmp_path / "a"), str(tmp_path / "b"))]).done

    asyncio.run(rename())
    assert few.open_files.count() == (DESCRIPTORS, len(handles))


def test_files_in_use_go_last(few: RealDisk, tmp_path: Path) -> None:
    busy = few.open(str(tmp_path / "busy"), create=True)
    others = []
    for number in range(100):
        others.append(few.open(str(tmp_path / str(number)), create=True))
        busy.append([b"x"])
        assert busy.reference().file(is_used=False).has_descriptor
    assert few.open_files.count() == (DESCRIPTORS, 101)


def test_what_another_program_puts_in_the_place_of_a_file_is_not_taken_for_it(few: RealDisk, tmp_path: Path) -> None:
    file = few.open(str(tmp_path / "a"), create=True)
    file.append([b"mine"])
    others = [few.open(str(tmp_path / str(number)), create=True) for number in range(20)]
    (tmp_path / "other").write_bytes(b"theirs")
    os.replace(tmp_path / "other", tmp_path / "a")
    with pytest.raises(OSError, match="another file") as caught:
        file.pread(0, 4)
    assert caught.value.errno == errno.ESTALE and len(others) == 20


def test_when_the_process_has_no_more_files_others_lose_theirs(tmp_path: Path) -> None:
    disk = RealDisk()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = len(os.listdir("/dev/fd"))
    foreign = []
    try:
        files = [disk.open(str(tmp_path / str(number)), create=True) for number in range(60)]
        resource.setrlimit(resource.RLIMIT_NOFILE, (used + 80, hard))
        disk.open_files._limit = lambda: 1000
        with pytest.raises(OSError, match="Too many"):
            while True:
                foreign.append(os.open("/dev/null", os.O_RDONLY))
        for number, file in enumerate(files):
            file.append([b"%d" % number])
        more = [disk.open(str(tmp_path / f"more {number}"), create=True) for number in range(60)]
        assert [file.pread(0, 9) for file in files] == [b"%d" % number for number in range(60)]
        assert len(more) == 60
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for fd in foreign:
            os.close(fd)


def test_fsyncs_and_cold_reads_that_wait_need_no_descriptor(few: RealDisk, tmp_path: Path) -> None:
    async def main() -> None:
        files = [few.open(str(tmp_path / str(number)), create=True) for number in range(50)]
        for file in files:
            file.append([b"content"])
        waiting = [few.fsync_soon(file) for file in files] + [few.warm_soon(file, 0, 7) for file in files]
        waiting += [few.fsync_dir_soon(str(tmp_path)) for _ in range(50)]
        most = 0
        while not all(one.done() for one in waiting):
            most = max(most, few.open_files.count()[0])
            await asyncio.sleep(0)
        await asyncio.gather(*waiting)
        assert most <= 16 + DESCRIPTORS
        for file in files:
            file.pread(0, 1)
        assert few.open_files.count() == (DESCRIPTORS, 50)

    run(main())


def test_fsyncs_of_one_directory_share_and_follow_its_name(
    few: RealDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, synced = os.fsync, []

    def counting(fd: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{fd}"))
        real(fd)

    async def main() -> None:
        monkeypatch.setattr(os, "fsync", counting)
        for name in ("renamed", "removed"):
            few.makedirs(str(tmp_path / name))
        busy = [few.fsync_dir_soon(few_of) for few_of in directories]
        first, gone = few.fsync_dir_soon(str(tmp_path / "renamed")), few.fsync_dir_soon(str(tmp_path / "removed"))
        second = few.fsync_dir_soon(str(tmp_path / "renamed"))
        few.rename(str(tmp_path / "renamed"), str(tmp_path / "new"))
        few.remove_tree(str(tmp_path / "removed"))
        await asyncio.gather(first, second, gone, *busy)
        with pytest.raises(FileNotFoundError):
            few.fsync_dir_soon(str(tmp_path / "renamed"))

    directories = [str(tmp_path / f"d{number}") for number in range(20)]
    for path in directories:
        few.makedirs(path)
    run(main())
    assert [path for path in synced if not path.startswith(f"{tmp_path}/d")] == [str(tmp_path / "new")]
    assert len(synced) == 21


@pytest.mark.parametrize("is_kept", [True, False])
def test_what_was_written_is_not_closed_before_somebody_asks_after_it(
    few: RealDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_kept: bool
) -> None:
    """By a mapping that keeps the description until the next fsync has asked it; or by an fsync before."""
    if not is_kept:
        monkeypatch.setattr(page_cache, "keep_description", lambda fd: None)
    asked: list[str] = []
    real_msync, real_fsync = page_cache.sync_description, os.fdatasync

    def sync_description(kept: Any) -> None:
        asked.append("kept")
        real_msync(kept)

    def fdatasync(fd: int) -> None:
        asked.append("new")
        real_fsync(fd)

    monkeypatch.setattr(page_cache, "sync_description", sync_description)
    monkeypatch.setattr(os, "fdatasync", fdatasync)
    file = few.open(str(tmp_path / "a"), create=True)
    file.append([b"x" * 10_000])
    others = [few.open(str(tmp_path / str(number)), create=True) for number in range(20)]
    assert not file.reference().file(is_used=False).has_descriptor and len(others) == 20
    assert asked == ([] if is_kept else ["new"])
    run(fsync(few, file))
    assert asked == (["new", "kept"] if is_kept else ["new", "new"])
    file.fsync()
    assert asked[2:] == ["new"]


async def fsync(disk: RealDisk, file: File) -> None:
    await disk.fsync_soon(file)


def test_the_error_of_a_kept_description_fails_the_file_for_good(
    few: RealDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(kept: int) -> None:
        raise OSError(errno.EIO, "lost the page")

    file = few.open(str(tmp_path / "a"), create=True)
    file.append([b"x"])
    for number in range(20):
        few.open(str(tmp_path / str(number)), create=True).close()
    others = [few.open(str(tmp_path / str(number)), create=True) for number in range(20)]
    monkeypatch.setattr(page_cache, "sync_description", fail)
    for _ in range(2):
        with pytest.raises(OSError, match="lost the page"):
            run(fsync(few, file))
    with pytest.raises(OSError, match="lost the page"):
        file.fsync()
    assert len(others) == 20


def test_a_failed_write_back_of_a_file_that_lost_its_descriptor_is_reported(few: RealDisk, tmp_path: Path) -> None:
    """On a file system whose device has no room for what it was promised: the kernel fails the write-back."""
    if os.geteuid():
        pytest.skip("mounts file systems")
    backing, mounted = tmp_path / "backing", tmp_path / "mounted"
    for path in (backing, mounted):
        path.mkdir()
    script = f"""set -e
        mount -t tmpfs -o size=6m raftwerk-test {backing}
        truncate -s 64m {backing}/image
        mkfs.ext2 -q -F {backing}/image
        mount -o loop {backing}/image {mounted}"""
    if subprocess.run(["bash", "-c", script], check=False, capture_output=True).returncode:
        subprocess.run(["umount", "-l", str(backing)], check=False, capture_output=True)
        pytest.skip("no loop devices here")
    try:
        file = few.open(str(mounted / "a"), create=True)
        file.append([os.urandom(16 << 20)])
        others = [few.open(str(tmp_path / str(number)), create=True) for number in range(20)]
        assert not file.reference().file(is_used=False).has_descriptor and len(others) == 20
        os.sync()
        reader = os.open(mounted / "a", os.O_RDWR)
        with pytest.raises(OSError, match=r"rror|space"):
            os.fsync(reader)  # somebody else has seen the error: who opens the file now is told of none
        os.close(reader)
        with pytest.raises(OSError):
            run(fsync(few, file))
        file.close()
    finally:
        subprocess.run(["umount", "-l", str(mounted)], check=False)
        subprocess.run(["umount", "-l", str(backing)], check=False)
