"""The real disk: short writes, many buffers, group commit, locks, and an fsync that failed."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from pathlib import Path

import pytest

from raftwerk.runtime.files import page_cache
from raftwerk.runtime.files.real_disk import RealDisk
from raftwerk.runtime.loop import run


@pytest.fixture
def disk() -> RealDisk:
    return RealDisk()


def test_append_returns_bytes_written_and_pread_stops_at_the_end(disk: RealDisk, tmp_path: Path) -> None:
    file = disk.open(str(tmp_path / "a"), create=True)
    assert file.append([b"abc", b"", bytearray(b"de"), memoryview(b"f")]) == 6
    assert file.size() == 6
    assert file.pread(2, 100) == b"cdef"
    assert file.pread(6, 100) == b""
    file.close()
    file.close()


def test_more_buffers_than_one_call_takes(disk: RealDisk, tmp_path: Path) -> None:
    file = disk.open(str(tmp_path / "a"), create=True)
    buffers = [bytes([i % 251]) * (i % 5) for i in range(5000)]
    file.append(buffers)
    assert file.pread(0, 1 << 20) == b"".join(buffers)


def test_short_writes_are_continued(disk: RealDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def pwritev_of_three_bytes(fd: int, buffers: list[memoryview], offset: int) -> int:
        return os.pwrite(fd, b"".join(bytes(buffer) for buffer in buffers)[:3], offset)

    file = disk.open(str(tmp_path / "a"), create=True)
    monkeypatch.setattr(os, "pwritev", pwritev_of_three_bytes)
    assert file.append([b"0123456", b"78", b"9"]) == 10
    assert file.pread(0, 100) == b"0123456789"


def test_a_failed_append_leaves_the_size_that_was_reached(
    disk: RealDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []

    def full_after_four_bytes(fd: int, buffers: list[memoryview], offset: int) -> int:
        calls.append(offset)
        if len(calls) > 1:
            raise OSError(errno.ENOSPC, "no space left")
        return os.pwrite(fd, bytes(buffers[0])[:4], offset)

    file = disk.open(str(tmp_path / "a"), create=True)
    monkeypatch.setattr(os, "pwritev", full_after_four_bytes)
    with pytest.raises(OSError, match="no space"):
        file.append([b"0123456"])
    assert file.size() == 4


def test_pwrite_and_truncate(disk: RealDisk, tmp_path: Path) -> None:
    file = disk.open(str(tmp_path / "a"), create=True)
    file.append([b"0123456789"])
    file.pwrite(8, b"abcd")
    assert (file.size(), file.pread(0, 20)) == (12, b"01234567abcd")
    file.truncate(3)
    file.append([b"z"])
    assert disk.read_bytes(file.path) == b"012z"


def test_only_a_regular_file_of_a_bounded_size_is_read_where_the_path_is_not_trusted(
    disk: RealDisk, tmp_path: Path
) -> None:
    (tmp_path / "a").write_bytes(b"0123")
    assert disk.read_bytes(str(tmp_path / "a"), size_bytes_max=4) == b"0123"
    with pytest.raises(OSError, match="more than 3 bytes"):
        disk.read_bytes(str(tmp_path / "a"), size_bytes_max=3)
    os.mkfifo(tmp_path / "fifo")  # nobody writes to it
    for path in (str(tmp_path / "fifo"), "/dev/zero"):
        with pytest.raises(OSError, match="not a regular file"):
            disk.read_bytes(path, size_bytes_max=4)


def test_directories(disk: RealDisk, tmp_path: Path) -> None:
    root = str(tmp_path / "x" / "y")
    disk.makedirs(root)
    disk.makedirs(root)
    disk.write_atomic(f"{root}/b", b"1")
    disk.write_atomic(f"{root}/b", b"22")
    disk.rename(f"{root}/b", f"{root}/a")
    disk.write_atomic(f"{root}/c", b"3")
    assert disk.listdir(root) == ["a", "c"]
    assert disk.read_bytes(f"{root}/a") == b"22"
    assert disk.is_dir(root)
    assert disk.free_bytes(root) > 0
    disk.remove(f"{root}/a")
    disk.remove_tree(root)
    assert not disk.exists(root)
    with pytest.raises(FileNotFoundError):
        disk.open(f"{root}/a")


def test_a_directory_is_locked_once(disk: RealDisk, tmp_path: Path) -> None:
    lock = disk.lock_dir(str(tmp_path))
    with pytest.raises(BlockingIOError):
        RealDisk().lock_dir(str(tmp_path))
    lock.release()
    RealDisk().lock_dir(str(tmp_path)).release()


def test_syncs_of_one_file_run_one_at_a_time_and_share(
    disk: RealDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = os.fdatasync, []

    def counting(fd: int) -> None:
        calls.append(fd)
        real(fd)

    async def main() -> None:
        file = disk.open(str(tmp_path / "a"), create=True)
        monkeypatch.setattr(os, "fdatasync", counting)
        file.append([b"x"])
        await asyncio.gather(*(disk.fsync_soon(file) for _ in range(50)))
        file.close()

    run(main())
    assert len(calls) == 2


def test_close_waits_for_the_sync_under_way(disk: RealDisk, tmp_path: Path) -> None:
    async def main() -> None:
        file = disk.open(str(tmp_path / "a"), create=True)
        file.append([b"x"])
        pending = disk.fsync_soon(file)
        descriptor = file.reference().file().fd
        file.close()
        os.fstat(descriptor)
        await pending
        with pytest.raises(OSError, match="closed"):
            file.append([b"y"])
        with pytest.raises(OSError, match="closed"):
            await disk.fsync_soon(file)
        with pytest.raises(OSError, match="Bad file"):
            os.fstat(descriptor)

    run(main())


def test_a_failed_fsync_is_never_retried(disk: RealDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(fd: int) -> None:
        raise OSError(errno.EIO, "lost the page")

    async def main() -> None:
        file = disk.open(str(tmp_path / "a"), create=True)
        real = os.fdatasync
        monkeypatch.setattr(os, "fdatasync", failing)
        first, second = disk.fsync_soon(file), disk.fsync_soon(file)
        for future in (first, second):
            with pytest.raises(OSError, match="lost the page"):
                await future
        monkeypatch.setattr(os, "fdatasync", real)
        with pytest.raises(OSError, match="lost the page"):
            await disk.fsync_soon(file)
        with pytest.raises(OSError, match="lost the page"):
            file.fsync()

    run(main())


@pytest.mark.parametrize("is_begun", [True, False], ids=["runs", "waits"])
def test_an_fsync_fails_when_another_one_of_the_file_has_failed_meanwhile(
    disk: RealDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_begun: bool
) -> None:
    """Linux tells a failed write-back once: the next fsync of the same description would report success wrongly."""
    real, others_may_end, has_begun = os.fdatasync, threading.Event(), threading.Event()
    main_thread = threading.current_thread()

    def failing_once(fd: int) -> None:
        if threading.current_thread() is main_thread:
            raise OSError(errno.EIO, "lost the page")
        has_begun.set()
        others_may_end.wait(10)
        real(fd)

    async def main() -> None:
        count = 0 if is_begun else 8  # so many are begun at once
        others = [disk.open(str(tmp_path / f"other{number}"), create=True) for number in range(count)]
        busy = [disk.fsync_soon(other) for other in others]
        file = disk.open(str(tmp_path / "a"), create=True)
        file.append([b"x"])
        pending = disk.fsync_soon(file)
        has_begun.wait(10)
        with pytest.raises(OSError, match="lost the page"):
            file.fsync()
        others_may_end.set()
        await asyncio.gather(*busy)
        with pytest.raises(OSError, match="lost the page"):
            await pending
        with pytest.raises(OSError, match="lost the page"):
            await disk.fsync_soon(file)

    monkeypatch.setattr(os, "fdatasync", failing_once)
    run(main())


@pytest.mark.parametrize("is_ended", [True, False], ids=["has ended", "is about to end"])
def test_a_blocking_fsync_fails_when_that_of_a_thread_has_failed(
    disk: RealDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_ended: bool
) -> None:
    """Before the loop has heard of it, too."""
    main_thread, has_begun, may_fail = threading.current_thread(), threading.Event(), threading.Event()

    def failing_in_thread(fd: int) -> None:
        if threading.current_thread() is main_thread:
            may_fail.set()
            return
        has_begun.set()
        may_fail.wait(10)
        raise OSError(errno.EIO, "lost the page")

    async def main() -> None:
        file = disk.open(str(tmp_path / "a"), create=True)
        file.append([b"x"])
        if is_ended:
            may_fail.set()
        pending = disk.fsync_soon(file)
        has_begun.wait(10)
        with pytest.raises(OSError, match="lost the page"):
            file.fsync()
        with pytest.raises(OSError, match="lost the page"):
            await pending

    monkeypatch.setattr(os, "fdatasync", failing_in_thread)
    run(main())


def test_a_replacement_in_a_thread_gives_way_to_a_later_one(disk: RealDisk, tmp_path: Path) -> None:
    path = str(tmp_path / "checkpoint")

    async def main() -> None:
        begun = [disk.write_atomic_soon(path, b"%d" % number) for number in range(20)]
        disk.write_atomic(path, b"last")
        await asyncio.gather(*begun)
        assert disk.read_bytes(path) == b"last"
        await disk.write_atomic_soon(path, b"newer")
        assert disk.read_bytes(path) == b"newer"

    asyncio.run(main())


def test_what_is_not_in_the_page_cache_is_known_and_fetched_by_a_thread(disk: RealDisk, tmp_path: Path) -> None:
    path = str(tmp_path / "a")
    file = disk.open(path, create=True)
    content = os.urandom(3_000_000)
    file.append([content])
    assert file.is_cached(0, len(content))
    assert file.is_cached(100, 0)
    file.fsync()
    fd = os.open(path, os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)
    if file.is_cached(0, len(content)):
        pytest.skip("this file system keeps its files in memory")
    assert not file.is_cached(1_000_000, 10)

    async def main() -> None:
        warming = disk.warm_soon(file, 500_000, 1_000_000)
        os.unlink(path)
        file.close()  # neither matters to who reads on
        await warming

    again = disk.open(path)
    run(main())
    assert again.is_cached(500_000, 1_000_000)
    assert again.pread(500_000, 10) == content[500_000:500_010]


def test_both_ways_to_look_into_the_page_cache_agree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a"
    path.write_bytes(os.urandom(2_000_000))
    fd = os.open(path, os.O_RDWR)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    page_cache.disable_read_ahead(fd)
    os.pread(fd, 300_000, 1_000_000)
    ranges = [(start, size) for start in range(0, 2_100_000, 30_011) for size in (1, 4_095, 4_097, 40_000, 300_000)]
    found = [page_cache.is_cached(fd, *one) for one in ranges]
    monkeypatch.setattr(page_cache, "_SYS_CACHESTAT", 99_999)  # as before Linux 6.5
    assert [page_cache.is_cached(fd, *one) for one in ranges] == found
    assert True in found and False in found
    os.close(fd)
