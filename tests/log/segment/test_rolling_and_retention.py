"""Rolling, and which segments retention deletes."""

from __future__ import annotations

import asyncio
from typing import NamedTuple
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.log.logs import DIRECTORY, NOW_MS, append, make_runtime, open_log, read_all, remove_deleted

from raftwerk.log.config import LogConfig
from raftwerk.log.hooks import LogHooks
from raftwerk.log.manager.log_maintenance import RetentionRounds
from raftwerk.log.manager.log_manager import LogManager
from raftwerk.log.manager.log_manager_config import LogManagerConfig, RetentionConfig
from raftwerk.log.manager.meta_properties import format_dirs
from raftwerk.log.partition_log import PartitionLog
from raftwerk.log.segment.rolling_and_retention import count_expired
from raftwerk.wire.types import TopicPartition

SMALL = LogConfig(segment_bytes=1500, index_interval_bytes=100, retention_ms=-1)
DAY_MS = 86_400_000


class Facts(NamedTuple):
    next_offset: int
    size_bytes: int
    timestamp: int

    def largest_timestamp(self) -> int:
        return self.timestamp


def naive(segments: list[Facts], config: LogConfig, start: int, high_watermark: int, now_ms: int) -> int:
    """Delete segments one by one by the three rules of Apache Kafka's documentation."""
    left = list(segments)
    while left:
        first = left[0]
        if first.next_offset > high_watermark or (len(left) == 1 and first.size_bytes == 0):
            break
        before_start = len(left) > 1 and first.next_offset <= start
        rest = sum(segment.size_bytes for segment in left[1:])
        too_large = config.retention_bytes >= 0 and rest >= config.retention_bytes
        too_old = config.retention_ms >= 0 and 0 <= first.timestamp < now_ms - config.retention_ms
        if not (before_start or ("delete" in config.cleanup_policy and (too_large or too_old))):
            break
        del left[0]
    return len(segments) - len(left)


@given(
    sizes=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 100), st.integers(-1, 50)), min_size=1, max_size=8),
    start=st.integers(0, 30),
    lag=st.integers(0, 10),
    retention=st.tuples(st.integers(-1, 60), st.integers(-1, 300)),
    policy=st.sampled_from([("delete",), ("compact",), ("compact", "delete")]),
)
def test_count_expired_equals_a_naive_implementation(
    sizes: list[tuple[int, int, int]], start: int, lag: int, retention: tuple[int, int], policy: tuple[str, ...]
) -> None:
    segments, offset = [], 0
    for records, size, timestamp in sizes:
        offset += records
        segments.append(Facts(offset, size if records else 0, timestamp))
    config = LogConfig(retention_ms=retention[0], retention_bytes=retention[1], cleanup_policy=policy)
    start, high_watermark = min(start, offset), max(offset - lag, 0)
    expected = naive(segments, config, start, high_watermark, 60)
    assert count_expired(segments, config, start, high_watermark, 60) == expected


def filled(log: PartitionLog, segments: int, **options: int) -> None:
    while len(log.segments) < segments:
        append(log, 2, **options)


def test_retention_by_size_deletes_the_oldest_committed_segments() -> None:
    runtime, disk = make_runtime()
    deleted: list[str] = []
    log = open_log(runtime, SMALL, hooks=LogHooks(on_files_deleted=lambda _, paths: deleted.extend(paths)))
    filled(log, 6)
    log.config = LogConfig(segment_bytes=1500, index_interval_bytes=100, retention_ms=-1, retention_bytes=3000)
    bases = [segment.base_offset for segment in log.segments]
    content = read_all(log)
    assert log.delete_expired(NOW_MS, bases[2] - 1) == 1
    assert log.delete_expired(NOW_MS, log.log_end_offset) == 1
    assert log.log_start_offset == bases[2] == log.segments[0].base_offset
    assert log.size_bytes >= 3000 > log.size_bytes - log.segments[0].size_bytes
    assert content.endswith(read_all(log))
    assert f"{DIRECTORY}/{0:020d}.log.deleted" in deleted
    assert all(disk.exists(path) and path.endswith(".deleted") for path in deleted)
    log.close()
    log = open_log(runtime, SMALL, clean_shutdown=True)
    assert log.log_start_offset == bases[2]
    assert content.endswith(read_all(log))
    assert not any(name.endswith(".deleted") for name in disk.listdir(DIRECTORY))


def test_retention_by_time_deletes_the_active_segment_and_keeps_the_end_offset() -> None:
    runtime, disk = make_runtime()
    log = open_log(runtime, SMALL, recovery_point=0)
    filled(log, 3, timestamp=NOW_MS - DAY_MS)
    log.config = LogConfig(segment_bytes=1500, index_interval_bytes=100, retention_ms=DAY_MS // 2)
    end = log.flush()
    assert log.delete_expired(NOW_MS, end) == 3
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (end, end, 0)
    assert log.delete_expired(NOW_MS, end) == 0
    disk.crash(power_loss=True)
    disk.makedirs("/data")
    log = open_log(runtime, SMALL)
    assert log.log_end_offset == end
    assert append(log, epoch=3) == end


def test_leader_epochs_begin_at_the_log_start() -> None:
    runtime, _ = make_runtime()
    log = open_log(runtime, SMALL)
    for epoch in range(5):
        append(log, 10, epoch=epoch)
    assert log.raise_start(25)
    assert not log.raise_start(20)
    assert [tuple(entry) for entry in log.epoch_cache.entries] == [(2, 25), (3, 30), (4, 40)]
    assert log.delete_expired(NOW_MS, 50) == 0
    log.roll()
    append(log, 1, epoch=4)
    log.raise_start(50)
    assert log.delete_expired(NOW_MS, 51) >= 1
    assert log.log_start_offset == 50


def test_compacted_logs_are_not_deleted_by_age() -> None:
    runtime, _ = make_runtime()
    log = open_log(runtime, LogConfig(segment_bytes=1500, cleanup_policy=("compact",), retention_ms=1))
    filled(log, 3)
    assert log.delete_expired(NOW_MS, log.log_end_offset) == 0


@pytest.mark.parametrize("seed", range(30))
def test_power_cuts_in_the_middle_of_a_deletion_leave_a_suffix(seed: int) -> None:
    runtime, disk = make_runtime(seed)
    log = open_log(runtime, SMALL)
    filled(log, 6)
    log.flush()
    content, end, recovery_point = read_all(log), log.log_end_offset, log.recovery_point
    log.config = LogConfig(segment_bytes=1500, retention_ms=-1, retention_bytes=2000 if seed % 2 else 0)
    log.delete_expired(NOW_MS, end)
    disk.crash(power_loss=True)
    log = open_log(runtime, SMALL, recovery_point=recovery_point)
    assert log.log_end_offset == end
    assert content.endswith(read_all(log))


def test_a_retention_round_visits_every_log_and_files_are_removed_after_their_delay() -> None:
    async def main() -> None:
        runtime, disk = make_runtime()
        format_dirs(runtime, ("/data",), "MkU3OEVBNTcwNTJENDM2Qg", 1)
        config = LogConfig(segment_bytes=1500, retention_ms=1000, file_delete_delay_ms=0)
        manager = LogManager(runtime, LogManagerConfig(("/data",), "MkU3OEVBNTcwNTJENDM2Qg", 1, config))
        manager.load()
        logs = [manager.create(TopicPartition("t", number), UUID(int=1)) for number in range(45)]
        for log in logs:
            filled(log, 2)
            append(log, producer_id=5, producer_epoch=0, base_sequence=0)
        manager.start()
        ends = {tp: log.log_end_offset for tp, log in manager.logs.items()}
        expired: list[TopicPartition] = []
        keeper = RetentionRounds(
            RetentionConfig(), runtime.clock, lambda: manager.logs, ends.__getitem__, expired.append
        )
        for _ in range(2):
            for tp, log in manager.logs.items():
                keeper.visit(tp, log)
        assert expired == [*manager.logs], "the second time there was nothing to delete"
        assert [log.size_bytes for log in logs] == [0] * 45
        assert [len(log.producers) for log in logs] == [1] * 45, "what its records say of the time does not count"
        keeper.config = RetentionConfig(producer_expiration_ms=0)
        for tp, log in manager.logs.items():
            keeper.visit(tp, log)
        assert [len(log.producers) for log in logs] == [0] * 45
        for _ in range(20):
            await asyncio.sleep(0)
        assert any(name.endswith(".deleted") for name in disk.listdir("/data/t-0"))
        remove_deleted(manager)
        assert not any(name.endswith(".deleted") for name in disk.listdir("/data/t-0"))
        manager.shutdown()

    asyncio.run(main())


def test_an_error_in_one_log_ends_neither_the_round_nor_those_that_follow() -> None:
    """Old segments of all logs would stay until the node starts again."""
    broken, sound = TopicPartition("a", 0), TopicPartition("b", 0)

    def high_watermark_of(tp: TopicPartition) -> int:
        return {sound: 12}[tp]

    async def main() -> None:
        runtime, _ = make_runtime()
        log = open_log(runtime, LogConfig(retention_bytes=200))
        for _ in range(4):
            append(log, 3)
            log.roll()
        rounds = RetentionRounds(
            RetentionConfig(interval_ms=0), runtime.clock, lambda: {broken: log, sound: log}, high_watermark_of
        )
        told: asyncio.Queue[BaseException] = asyncio.Queue()
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: told.put_nowait(context["exception"]))
        rounds.start()
        async with asyncio.timeout(10):
            errors = [await told.get(), await told.get()]
        rounds.stop()
        assert [type(error) for error in errors] == [KeyError, KeyError], "one in each round"
        assert log.log_start_offset > 0

    asyncio.run(main())


def test_segments_roll_by_the_wall_clock_and_not_all_at_once() -> None:
    runtime, _ = make_runtime()
    config = LogConfig(segment_ms=1000, segment_jitter_ms=500)
    log = open_log(runtime, config)
    assert not log.roll_if_due(NOW_MS)
    append(log, timestamp=NOW_MS)
    assert not log.roll_if_due(NOW_MS + 500)
    assert log.roll_if_due(NOW_MS + 1001)
    assert not log.roll_if_due(NOW_MS + 5000)
    assert len({config.draw_segment_ms(runtime.rng) for _ in range(50)}) > 10
    assert all(500 < config.draw_segment_ms(runtime.rng) <= 1000 for _ in range(50))
