"""Truncated and damaged files, and disks that refuse: what is left is always a valid prefix."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable

import pytest
from support.log.logs import DIRECTORY, append, batch, headers_of, make_runtime, open_log, read_all

from raftwerk.chaos.sim.disk.sim_disk import SimDisk
from raftwerk.log.config import LogConfig
from raftwerk.log.errors import StorageError
from raftwerk.log.hooks import LogHooks
from raftwerk.log.partition_log import PartitionLog
from raftwerk.runtime.ports import File, Runtime
from raftwerk.wire.errors import ErrorCode, ProtocolError

FIRST = f"{DIRECTORY}/{0:020d}.log"
LARGE = LogConfig(index_interval_bytes=100)


def small_log(config: LogConfig = LARGE) -> tuple[Runtime, SimDisk, bytes]:
    """A closed log of five batches in three epochs; its bytes."""
    runtime, disk = make_runtime()
    log = open_log(runtime, config)
    for number, epoch in enumerate((0, 0, 2, 2, 5)):
        append(log, 2, epoch=epoch, producer_id=7, producer_epoch=0, base_sequence=2 * number)
    log.close()
    return runtime, disk, read_file(disk, FIRST)


def read_file(disk: SimDisk, path: str) -> bytes:
    return disk.read_bytes(path)


def ends_of(content: bytes) -> list[int]:
    ends = [0]
    for header in headers_of(content):
        ends.append(ends[-1] + header.size_bytes)
    return ends


def check_prefix(log: PartitionLog, content: bytes, valid_bytes: int) -> None:
    kept = max(end for end in ends_of(content) if end <= valid_bytes)
    assert read_all(log) == content[:kept]
    offsets = [header.next_offset for header in headers_of(content[:kept])]
    assert log.log_end_offset == (offsets[-1] if offsets else 0)
    assert all(entry.start_offset < log.log_end_offset for entry in log.epoch_cache.entries)
    producer = log.producers.get(7)
    assert (producer.batches[-1].last_offset + 1 if producer else 0) == log.log_end_offset
    log.truncate_to(0)
    assert append(log, epoch=9) == 0


def test_cut_at_every_byte() -> None:
    _, _, content = small_log()
    for length in range(len(content)):
        runtime, disk, _ = small_log()
        disk.open(FIRST).truncate(length)
        check_prefix(open_log(runtime, LARGE), content, length)


def test_every_byte_flipped() -> None:
    """The CRC does not cover offset and epoch: a flip there is detected if it breaks the order."""
    _, _, content = small_log()
    for position in range(len(content)):
        runtime, disk, _ = small_log()
        disk.open(FIRST).pwrite(position, bytes([content[position] ^ 0xFF]))
        log = open_log(runtime, LARGE)
        batch_start = max(end for end in ends_of(content) if end <= position)
        within = position - batch_start
        assert read_all(log)[:batch_start] == content[:batch_start]
        if within >= 16:
            check_prefix(log, content, batch_start)


def test_no_damaged_length_makes_a_read_return_other_bytes() -> None:
    for length in (-(2**31), -12, 0, 48, 2**31 - 1):
        runtime, disk, content = small_log()
        log = open_log(runtime, LARGE, clean_shutdown=True)
        starts = ends_of(content)
        disk.open(FIRST).pwrite(starts[1] + 8, length.to_bytes(4, "big", signed=True))
        assert log.read(0, starts[1], end_offset=10) == content[: starts[1]]
        for max_bytes in (0, 100, 10_000):
            with pytest.raises(ProtocolError) as refused:
                log.read(2, max_bytes, end_offset=4)
            assert refused.value.code is ErrorCode.CORRUPT_MESSAGE


def test_a_clean_shutdown_file_does_not_hide_a_cut_tail() -> None:
    runtime, disk, content = small_log()
    disk.open(FIRST).truncate(len(content) - 5)
    check_prefix(open_log(runtime, LARGE, clean_shutdown=True), content, len(content) - 5)


def test_a_damaged_segment_ends_the_log() -> None:
    runtime, disk = make_runtime()
    log = open_log(runtime)
    for _ in range(60):
        append(log, 2)
    bases = [segment.base_offset for segment in log.segments]
    log.close()
    disk.open(f"{DIRECTORY}/{bases[1]:020d}.log").pwrite(300, b"damage")
    log = open_log(runtime)
    assert bases[1] < log.log_end_offset < bases[2]
    assert [name for name in disk.listdir(DIRECTORY) if name.endswith(".log")] == [f"{b:020d}.log" for b in bases[:2]]
    assert append(log) == headers_of(read_all(log))[-1].base_offset


def test_nothing_below_the_recovery_point_is_read() -> None:
    runtime, disk = make_runtime()
    log = open_log(runtime)
    for _ in range(60):
        append(log, 2)
    bases = [segment.base_offset for segment in log.segments]
    log.close()
    disk.open(f"{DIRECTORY}/{bases[1]:020d}.log").pwrite(300, b"damage")
    assert open_log(runtime, recovery_point=bases[2]).log_end_offset == 120


@pytest.mark.parametrize(
    "name",
    [
        "leader-epoch-checkpoint",
        f"{10:020d}.snapshot",
        *(f"{0:020d}{suffix}" for suffix in (".index", ".timeindex", ".txnindex")),
    ],
)
@pytest.mark.parametrize(
    "content", [b"", b"0\n7\n1 1\n", b"\xff\xfe\x00", b"\xff" * 60, b"0\n1\n3000000000 0\n", b"0\n2\n5 0\n2 4\n", None]
)
@pytest.mark.parametrize("clean", [True, False])
def test_lost_or_damaged_small_files_are_rebuilt(name: str, content: bytes | None, clean: bool) -> None:
    runtime, disk, log_bytes = small_log()
    if content is None:
        if disk.exists(f"{DIRECTORY}/{name}"):
            disk.remove(f"{DIRECTORY}/{name}")
    else:
        disk.write_atomic(f"{DIRECTORY}/{name}", content)
    log = open_log(runtime, LARGE, clean_shutdown=clean, recovery_point=10)
    assert log.epoch_cache.entries == [(0, 0), (2, 4), (5, 8)]
    producer = log.producers.get(7)
    assert producer is not None
    assert [metadata.last_offset for metadata in producer.batches] == [1, 3, 5, 7, 9]
    assert read_all(log) == log_bytes
    for offset in range(10):
        assert headers_of(log.read(offset, 1, end_offset=10))[0].base_offset == offset - offset % 2
    found = log.offset_for_timestamp(1001)
    assert found is not None and found.offset == 1
    assert log.aborted_transactions(0, 10) == []


@pytest.mark.parametrize("hit", [0, 2])
@pytest.mark.parametrize("at", [8, 11, 16])
def test_producers_beyond_a_damaged_batch_are_known(at: int, hit: int, caplog: pytest.LogCaptureFixture) -> None:
    """Their snapshot is lost, and the length or the magic of a batch is damaged after a clean stop."""
    runtime, disk = make_runtime()
    log = open_log(runtime)
    for number in range(24):
        append(log, 2, producer_id=number, producer_epoch=0, base_sequence=0)
    assert len(log.segments) > 1
    size = headers_of(read_all(log))[0].size_bytes
    log.close()
    for name in disk.listdir(DIRECTORY):
        if name.endswith(".snapshot"):
            disk.remove(f"{DIRECTORY}/{name}")
    disk.flip_bit(FIRST, hit * size + at, 6)
    with caplog.at_level("ERROR"):
        log = open_log(runtime, clean_shutdown=True)
    known = [number for number in range(24) if log.producers.get(number) is not None]
    assert known == [number for number in range(24) if number != hit]
    assert f"{FIRST} is damaged at position {hit * size}" in caplog.text


def test_leftovers_of_a_crash_are_removed() -> None:
    runtime, disk, content = small_log()
    for name in ("leader-epoch-checkpoint.tmp", f"{3:020d}.index", f"{0:020d}.log.cleaned", "notes.txt"):
        disk.open(f"{DIRECTORY}/{name}", create=True)
    log = open_log(runtime, LARGE)
    assert read_all(log) == content
    left = [name for name in disk.listdir(DIRECTORY) if not name.startswith(f"{0:020d}") and "snapshot" not in name]
    assert left == ["leader-epoch-checkpoint", "notes.txt"]


def test_a_full_disk_refuses_and_leaves_no_half_batch() -> None:
    runtime, disk = make_runtime()
    log = open_log(runtime)
    append(log)
    before = read_all(log)
    for room in (0, 1, 60, 61, 80):
        disk.set_capacity(sum(len(read_file(disk, f"{DIRECTORY}/{n}")) for n in disk.listdir(DIRECTORY)) + room)
        with pytest.raises(StorageError) as refused:
            append(log)
        assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert read_file(disk, FIRST) == before
        assert log.log_end_offset == 1
    disk.set_capacity()
    assert append(log) == 1
    assert not log.is_failed


def test_a_full_disk_while_rolling() -> None:
    runtime, disk = make_runtime()
    log = open_log(runtime)
    append(log)
    disk.set_capacity(0)
    with pytest.raises(StorageError):
        log.roll()
    disk.set_capacity()
    append(log, 3)
    log.close()
    log = open_log(runtime, clean_shutdown=True)
    assert log.log_end_offset == 4
    assert len(log.segments) == 1


def test_a_repeated_batch_is_answered_on_a_full_disk() -> None:
    runtime, disk = make_runtime()
    log = open_log(runtime)
    append(log, producer_id=7, producer_epoch=0, base_sequence=0)
    disk.set_capacity(0)
    assert log.append_as_leader(batch(producer_id=7, producer_epoch=0, base_sequence=0), 0, 0).duplicate


EVERYTHING: list[tuple[str, Callable[[PartitionLog], object]]] = [
    ("append", append),
    ("read", lambda log: log.read(0, 100, end_offset=1)),
    ("flush", lambda log: log.flush()),
    ("roll", lambda log: log.roll()),
    ("truncate", lambda log: log.truncate_to(0)),
    ("truncate fully", lambda log: log.truncate_fully_and_start_at(5)),
    ("lookup", lambda log: log.offset_for_timestamp(5)),
]


@pytest.mark.parametrize(("name", "operation"), EVERYTHING, ids=[row[0] for row in EVERYTHING])
def test_after_a_failed_fsync_the_log_refuses_everything(
    name: str, operation: Callable[[PartitionLog], object]
) -> None:
    runtime, disk = make_runtime()
    failures: list[OSError] = []
    hooks = LogHooks(on_failed=failures.append)
    log = open_log(runtime, hooks=hooks)
    append(log)
    disk.fail_fsync()
    with pytest.raises(StorageError):
        log.flush()
    disk.fail_fsync(None)
    with pytest.raises(StorageError):
        operation(log)
    assert log.is_failed
    assert log.recovery_point == 0
    assert [error.errno for error in failures] == [errno.EIO]
    log.close()


def test_a_truncation_that_the_disk_refuses_fails_the_log() -> None:
    runtime, disk = make_runtime()
    log = open_log(runtime)
    append(log, 2)
    append(log, 2)
    disk.fail_fsync()
    with pytest.raises(StorageError):
        log.truncate_to(2)
    assert log.is_failed


def test_flush_soon_moves_the_recovery_point() -> None:
    async def main() -> None:
        runtime, disk = make_runtime()
        disk.set_sync_latency(0.001, 0.002)
        log = open_log(runtime)
        append(log, 3)
        first = log.flush_soon()
        append(log, 3)
        second = log.flush_soon()
        assert log.recovery_point == 0
        assert await first >= 3
        assert await second == 6
        assert log.flush_soon().done()
        disk.crash()
        assert open_log(runtime, recovery_point=6).log_end_offset == 6

    asyncio.run(main())


def test_a_truncation_during_a_flush_is_not_covered_by_it() -> None:
    """Records that are written after a truncation are not covered by an fsync that began before it."""

    async def main() -> None:
        runtime, disk = make_runtime()
        disk.set_sync_latency(0.001, 0.002)
        log = open_log(runtime)
        append(log, 3)
        flushed = log.flush_soon()
        log.truncate_to(0)
        append(log, 5)
        assert await flushed == log.recovery_point == 0

    asyncio.run(main())


def test_rolled_segments_are_flushed_without_the_active_one() -> None:
    async def main() -> None:
        runtime, disk = make_runtime()
        log = open_log(runtime)
        while len(log.segments) < 4:
            append(log, 2)
        assert log.durability.has_unsynced_segments
        assert await log.durability.flush_rolled_soon() == log.segments[-1].base_offset == log.recovery_point
        assert not log.durability.has_unsynced_segments
        disk.crash()
        assert open_log(runtime, recovery_point=log.recovery_point).log_end_offset >= log.recovery_point

    asyncio.run(main())


def test_flush_soon_fails_the_log_once() -> None:
    async def main() -> None:
        runtime, disk = make_runtime()
        failures: list[OSError] = []
        log = open_log(runtime, hooks=LogHooks(on_failed=failures.append))
        append(log)
        log.flush()
        append(log)
        disk.fail_fsync()
        waiting = [log.flush_soon(), log.flush_soon()]
        results = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(result) for result in results] == [StorageError, StorageError]
        assert len(failures) == 1
        assert isinstance(log.flush_soon().exception(), StorageError)

    asyncio.run(main())


def test_flush_messages_is_honoured() -> None:
    log = open_log(make_runtime()[0], LogConfig(flush_messages=3))
    append(log, 2)
    assert log.recovery_point == 0
    append(log)
    assert log.recovery_point == 3


def test_a_closed_log_refuses_everything() -> None:
    log = open_log(make_runtime()[0])
    log.close()
    log.close()
    with pytest.raises(ProtocolError, match="is closed"):
        append(log)


def test_an_idle_log_closes_without_touching_the_disk() -> None:
    runtime, disk, _ = small_log()
    log = open_log(runtime, LARGE, clean_shutdown=True)
    disk.set_capacity(0)
    disk.fail_fsync()
    log.close()


def test_handles_are_released() -> None:
    runtime, disk = make_runtime()
    opened: list[File] = []
    closed: list[File] = []

    class Watching:
        def __getattr__(self, name: str) -> object:
            return getattr(disk, name)

        def open(self, path: str, *, create: bool = False) -> File:
            file = disk.open(path, create=create)
            opened.append(file)
            close = file.close

            class Handle:
                def __getattr__(self, name: str) -> object:
                    return getattr(file, name)

                def close(self) -> None:
                    closed.append(file)
                    close()

            return Handle()  # type: ignore[return-value]

    log = open_log(Runtime(Watching(), runtime.clock, runtime.rng))  # type: ignore[arg-type]
    for _ in range(60):
        append(log, 2)
    log.flush()
    log.close()
    assert [file.path for file in opened if file not in closed] == []
