"""Changes of file names that cannot be made, and files that are gone when their names are to change."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from support.log.compacted_logs import COMPACT, Writer, drive, plan_of, records_of
from support.log.logs import DIRECTORY, append, batch, make_runtime, open_log

from raftwerk.chaos.sim.kernel.event_loop import ProcessLoop, Scheduler
from raftwerk.log.availability import LogAvailability
from raftwerk.log.cleaner.compaction import clean
from raftwerk.log.errors import StorageError
from raftwerk.log.segment.segment import Segment
from raftwerk.log.segment.segment_replacement import Stage, StagedRenames
from raftwerk.wire.records import iter_headers


def run(main: Coroutine[Any, Any, None]) -> None:
    ProcessLoop(Scheduler(), "test").run_until_complete(main, 60.0)


def test_who_asks_for_a_change_that_has_failed_is_told_so() -> None:
    async def main() -> None:
        _, disk = make_runtime()
        stage = Stage(lambda: [("/data/missing", "/data/other")], lambda: None)
        change = StagedRenames(disk, "/data", [stage], LogAvailability("/data", lambda _: None), "it failed")
        with pytest.raises(StorageError):
            change.finish()
        with pytest.raises(StorageError):
            await change.soon()

    run(main())


@pytest.mark.parametrize("then", ["compacted", "truncated"])
def test_a_snapshot_that_was_written_while_an_older_one_of_its_name_was_being_removed(
    then: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread that removes files may come to it late; the new file is gone then, and the log goes on without it."""

    async def main() -> None:
        runtime, disk = make_runtime()
        log = open_log(runtime, COMPACT)
        writer = Writer(log, 5)
        writer.fill(4)
        start = log.log_end_offset
        late: list[Callable[[], asyncio.Future[None]]] = []
        remove_soon = disk.remove_soon

        def hold(path: str) -> asyncio.Future[None]:
            late.append(lambda: remove_soon(path))
            return asyncio.get_running_loop().create_future()

        with monkeypatch.context() as patched:
            patched.setattr(disk, "remove_soon", hold)
            for _ in range(3):
                append(log, epoch=50)
                await log.checkpoint_soon()
            log.truncate_to(start + 1)
            await log.checkpoint_soon()
        for remove in late:
            await remove()
        assert not disk.exists(f"{log.directory}/{start + 1:020d}.snapshot")
        append(log, epoch=50)
        if then == "truncated":
            log.truncate_to(start)
        else:
            log.roll()
            log.flush()
            drive(clean(log, disk, plan_of(log)))
        assert not log.is_failed and records_of(log)

    run(main())


def test_a_segment_that_cannot_be_made_leaves_no_snapshot_inside_the_active_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Such a snapshot tells recovery that the indexes below it are durable."""
    runtime, disk = make_runtime()
    log = open_log(runtime)
    append(log, 3)
    open_file = disk.open

    def refuse(ending: str) -> Callable[..., object]:
        def opened(path: str, *, create: bool = False) -> object:
            if path.endswith(ending):
                raise OSError(errno.ENOSPC, "no space left on device", path)
            return open_file(path, create=create)

        return opened

    before = disk.listdir(log.directory)
    for ending in ("3.log", "3.snapshot"):
        with monkeypatch.context() as patched:
            patched.setattr(disk, "open", refuse(ending))
            with pytest.raises(StorageError):
                log.roll()
        left = [name for name in disk.listdir(log.directory) if name not in before]
        assert not [name for name in left if name.startswith(f"{3:020d}")], ending
    log.roll()
    assert [segment.base_offset for segment in log.segments] == [0, 3]


def test_a_pinned_segment_is_read_without_its_name_until_it_has_a_new_one() -> None:
    """While names change, the one of its file may be that of another file. Later its descriptors are free again."""
    _, disk = make_runtime()
    disk.makedirs(DIRECTORY)
    segment = Segment.create(disk, DIRECTORY, 0)
    data = batch(3)
    segment.append(data, [header for _, header in iter_headers(data)], 100)
    segment.close_idle_files()
    segment.pin()
    disk.rename(segment.file.path, f"{DIRECTORY}/elsewhere")
    segment.close_idle_files()
    assert segment.read(0, 3, 1 << 20, True) == bytes(data)
    segment.renamed_to("")
    segment.close_idle_files()
    with pytest.raises(FileNotFoundError):
        segment.read(0, 3, 1 << 20, True)


def test_a_segment_that_is_made_has_nothing_of_an_older_file_of_its_name() -> None:
    """An unfinished compaction may have left it."""
    _, disk = make_runtime()
    disk.makedirs(DIRECTORY)
    for suffix in (".log", ".index", ".timeindex", ".txnindex"):
        disk.write_atomic(f"{DIRECTORY}/{0:020d}{suffix}.cleaned", bytes(34))
    segment = Segment.create(disk, DIRECTORY, 0, ".cleaned")
    assert (segment.size_bytes, segment.file.size()) == (0, 0)
    assert not segment.offset_index.positions and not segment.transaction_index.entries
