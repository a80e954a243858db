"""The task that compacts the logs of a node: it goes on whatever one log does to it."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Coroutine
from dataclasses import replace
from uuid import UUID

import pytest
from support.log.compacted_logs import CLUSTER, COMPACT, TP, Writer, carry_out, drive, plan_of, records_of
from support.log.logs import NOW_MS, make_runtime, open_log

from raftwerk.chaos.sim.disk.sim_disk import SimDisk
from raftwerk.chaos.sim.kernel.event_loop import ProcessLoop, Scheduler
from raftwerk.log.cleaner import compaction
from raftwerk.log.cleaner.compaction import CleanAbortedError, clean
from raftwerk.log.cleaner.log_cleaner import CleanerConfig, LogCleaner
from raftwerk.log.config import MAX_INT64, LogConfig
from raftwerk.log.manager.log_manager import LogManager
from raftwerk.log.manager.log_manager_config import LogManagerConfig
from raftwerk.log.manager.meta_properties import format_dirs
from raftwerk.log.partition_log import PartitionLog
from raftwerk.log.recovery.segment_mending import SegmentMending
from raftwerk.log.segment.segment import Segment
from raftwerk.log.segment.segment_replacement import StagedRenames
from raftwerk.runtime.incremental_work import PLAIN_STEP
from raftwerk.runtime.ports import Runtime
from raftwerk.wire.records import encode_batch
from raftwerk.wire.types import TopicPartition

OTHER = TopicPartition("u", 0)
FOREVER = replace(COMPACT, delete_retention_ms=MAX_INT64)
BOTH = replace(COMPACT, cleanup_policy=("compact", "delete"), retention_ms=1000)
DIRS = ("/data/a", "/data/b")


class Logs:
    """The logs of a node in two directories, and their cleaner."""

    def __init__(self) -> None:
        self.runtime, self.disk = made = make_runtime()
        self.failed: list[str] = []
        self.manager = manager_on(*made, on_dir_failed=lambda path, error: self.failed.append(path))
        self.cleaner = LogCleaner(CleanerConfig(backoff_ms=200), self.runtime, self.manager.directories, self.end_of)

    def end_of(self, tp: TopicPartition) -> int:
        log = self.manager.get(tp)
        return log.log_end_offset if log is not None else 0

    def add(self, tp: TopicPartition, config: LogConfig = COMPACT) -> PartitionLog:
        """A log with much to compact."""
        log = self.manager.create(tp, UUID(int=len(self.manager.logs) + 1), config)
        Writer(log, 5).fill(7)
        log.note_gaps(at_once=True)
        self.manager.checkpoint_recovery_points()
        return log

    async def until_clean(self, tp: TopicPartition) -> None:
        directories, cleaned = self.manager.directories, asyncio.Event()
        note_clean = directories.note_clean

        def note(noted: TopicPartition, offset: int) -> None:
            note_clean(noted, offset)
            if noted == tp:
                cleaned.set()

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(directories, "note_clean", note)
            await cleaned.wait()


def manager_on(runtime: Runtime, disk: SimDisk, **options: object) -> LogManager:
    for path in DIRS:
        disk.makedirs(path)
    format_dirs(runtime, DIRS, CLUSTER, 1)
    manager = LogManager(runtime, LogManagerConfig(DIRS, CLUSTER, 1, COMPACT, **options))  # type: ignore[arg-type]
    manager.load()
    return manager


def run(main: Coroutine[None, None, None], within_s: float = 1000.0) -> None:
    ProcessLoop(Scheduler(), "test").run_until_complete(main, within_s)


def test_tombstones_that_stay_for_ever_are_compacted() -> None:
    runtime, disk = make_runtime()
    log = open_log(runtime, FOREVER)
    writer = Writer(log, 5)
    writer.fill(6)
    end = log.segments[-1].base_offset
    for _ in range(2):
        assert drive(clean(log, disk, plan_of(log, now_ms=MAX_INT64 - 1))) is not None
        assert records_of(log) == writer.expected(end, tombstones=True)


def test_a_log_on_a_disk_that_fails_while_it_is_looked_at_keeps_no_other_from_being_compacted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main() -> None:
        logs = Logs()
        failing, sound = logs.add(TP), logs.add(OTHER)
        assert [one.directory.rpartition("/")[0] for one in (failing, sound)] == list(DIRS)
        largest_timestamp = Segment.largest_timestamp

        def refuse(segment: Segment) -> int:
            if segment in failing.segments:
                raise OSError(errno.EIO, "I/O error")
            return largest_timestamp(segment)

        monkeypatch.setattr(Segment, "largest_timestamp", refuse)
        logs.cleaner.start()
        await logs.until_clean(OTHER)
        assert logs.failed == ["/data/a"] and failing.is_failed and not sound.is_failed
        logs.cleaner.stop()

    run(main())


def test_a_log_for_which_no_file_can_be_opened_is_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        logs = Logs()
        log = logs.add(TP)
        largest_timestamp, refused = Segment.largest_timestamp, 0

        def refuse(segment: Segment) -> int:
            nonlocal refused
            if not refused:
                refused += 1
                raise OSError(errno.EMFILE, "too many open files")
            return largest_timestamp(segment)

        monkeypatch.setattr(Segment, "largest_timestamp", refuse)
        logs.cleaner.start()
        await logs.until_clean(TP)
        assert refused and not logs.failed and not log.is_failed
        logs.cleaner.stop()

    run(main())


def test_a_disk_that_fails_within_a_compaction_fails_its_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        logs = Logs()
        log = logs.add(TP)
        found = logs.cleaner.filthiest()
        assert found is not None

        def refuse(*args: object) -> None:
            raise OSError(errno.EIO, "I/O error")

        monkeypatch.setattr(Segment, "create", refuse)
        assert await logs.cleaner.clean(*found) is None
        assert logs.failed == ["/data/a"] and log.is_failed

    run(main())


@pytest.mark.parametrize("change", ["truncated", "created again", "moved"])
def test_a_log_that_is_cut_while_the_last_segment_is_put_in_place_is_not_noted_as_clean(
    change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        logs = Logs()
        manager, log = logs.manager, logs.add(TP)
        found = logs.cleaner.filthiest()
        assert found is not None
        last_is_placed, replace_segments = asyncio.Event(), log.replace_segments

        def replacing(group: list[Segment], cleaned: Segment) -> StagedRenames:
            begun = replace_segments(group, cleaned)
            if group[-1] is log.segments[-2]:
                last_is_placed.set()
            return begun

        monkeypatch.setattr(log, "replace_segments", replacing)
        compaction = asyncio.ensure_future(logs.cleaner.clean(*found))
        await last_is_placed.wait()
        if change == "truncated":
            log.truncate_to(3)
        elif change == "created again":
            manager.delete(TP)
            manager.create(TP, UUID(int=7))
        else:
            manager.future_logs.begin(TP, "/data/b")
            manager.future_logs.finish(TP)
        assert await compaction is None
        assert manager.directories.clean_offset(TP) <= logs.end_of(TP) <= 3 and not logs.failed

    run(main())


def test_a_log_that_is_being_mended_is_compacted_afterwards() -> None:
    async def main() -> None:
        logs = Logs()
        log = logs.add(TP)
        mending = SegmentMending(log, logs.disk, 0)
        assert logs.cleaner.filthiest() is None
        mending.end()
        assert logs.cleaner.filthiest() is not None

    run(main())


def test_a_pass_is_given_up_when_retention_deletes_all_that_it_has_read() -> None:
    runtime, disk = make_runtime()
    log = open_log(runtime, BOTH)
    Writer(log, 1).fill(3)
    work, read_bytes = clean(log, disk, plan_of(log)), 0
    while read_bytes < log.size_bytes:
        read_bytes += next(work).done_bytes
    assert log.delete_expired(NOW_MS + 10_000, log.log_end_offset) == len(log.segments) + 2
    with pytest.raises(CleanAbortedError):
        drive(work)


def test_an_error_that_nobody_expected_in_one_log_keeps_no_other_from_being_compacted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main() -> None:
        logs = Logs()
        failing, other = logs.add(TP), logs.add(OTHER)
        told: list[str] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context["message"]))
        note_gaps = PartitionLog.note_gaps

        def fail(log: PartitionLog, *, at_once: bool) -> None:
            if log is failing:
                raise IndexError("an error of ours")
            note_gaps(log, at_once=at_once)

        monkeypatch.setattr(PartitionLog, "note_gaps", fail)
        logs.cleaner.start()
        await logs.until_clean(OTHER)
        assert told == ["compaction of t-0 has failed"] and not failing.is_failed and not other.is_failed
        logs.cleaner.stop()

    run(main())


def test_an_error_that_nobody_expected_in_a_log_that_is_looked_at_keeps_no_other_from_being_compacted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main() -> None:
        logs = Logs()
        failing, _ = logs.add(TP), logs.add(OTHER)
        told: list[str] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context["message"]))
        largest_timestamp = Segment.largest_timestamp

        def fail(segment: Segment) -> int:
            if segment in failing.segments:
                raise IndexError("an error of ours")
            return largest_timestamp(segment)

        monkeypatch.setattr(Segment, "largest_timestamp", fail)
        logs.cleaner.start()
        await logs.until_clean(OTHER)
        assert told == ["compaction of t-0 has failed"]
        logs.cleaner.stop()

    run(main())


@pytest.mark.parametrize(("records", "pauses"), [(3, 0), (4, 1), (5, 1), (11, 2)])
def test_compaction_gives_way_after_some_records_of_a_batch(
    records: int, pauses: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch may have a hundred thousand of them; one that has few takes no longer than it must."""
    monkeypatch.setattr(compaction, "_RECORDS_PER_STEP", 4)
    runtime, disk = make_runtime()
    log = open_log(runtime, COMPACT)
    data = encode_batch([(b"key%d" % number, b"v", (), NOW_MS) for number in range(records)])
    log.append_as_leader(memoryview(data), 0, NOW_MS)
    log.roll()
    log.flush()
    steps = clean(log, disk, plan_of(log))
    seen = 0
    while True:
        try:
            step = next(steps)
        except StopIteration:
            break
        seen += step is PLAIN_STEP
        carry_out(step)
    assert seen == 2 * pauses, "in the reading of the keys, and in the copy"


def test_the_first_dirty_record_replaces_the_one_before_it() -> None:
    """What comes before it is clean, and is copied without what the dirty part has newer."""
    runtime, disk = make_runtime()
    log = open_log(runtime, COMPACT)
    for value in (b"old", b"new"):
        log.append_as_leader(memoryview(encode_batch([(b"key", value, (), NOW_MS)])), 0, NOW_MS)
        log.roll()
    log.flush()
    drive(clean(log, disk, plan_of(log, start=1)))
    assert [record[3] for record in records_of(log)] == [b"new"]


def test_batches_may_lie_across_the_pieces_that_are_read_and_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Segments are larger than a piece."""
    monkeypatch.setattr(compaction, "_READ_BYTES", 300)
    monkeypatch.setattr(compaction, "_WRITE_BYTES", 500)
    runtime, disk = make_runtime()
    log = open_log(runtime, FOREVER)
    writer = Writer(log, 3)
    writer.fill(6)
    end = log.segments[-1].base_offset
    drive(clean(log, disk, plan_of(log)))
    assert records_of(log) == writer.expected(end, tombstones=True)
