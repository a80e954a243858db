"""Active segments are made durable periodically; after a crash only what was appended later is checked."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Coroutine
from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import Any
from uuid import UUID

import pytest
from support.log.damaged_files import CLUSTER, NODE, PARTITION, TP, Files, Seen, damages, load, look, marker, runtime_on
from support.log.logs import NOW_MS, SMALL, append, batch, headers_of, make_runtime, open_log, read_all

from raftwerk.chaos.sim.disk.sim_disk import SimDisk
from raftwerk.chaos.sim.kernel.event_loop import ProcessLoop, Scheduler
from raftwerk.log.config import LogConfig
from raftwerk.log.manager.log_manager import LogManager
from raftwerk.log.manager.log_manager_config import LogManagerConfig, RecoveryPointConfig
from raftwerk.log.manager.meta_properties import format_dirs, random_id
from raftwerk.log.partition_log import PartitionLog
from raftwerk.log.state.transaction_verification import VERIFICATION_OFF
from raftwerk.runtime.ports import Runtime
from raftwerk.wire.errors import ProtocolError
from raftwerk.wire.types import TopicPartition

OFTEN = RecoveryPointConfig(interval_ms=100, bytes_min=1)
LARGE = LogConfig(segment_bytes=1 << 20, index_interval_bytes=100)


def run(main: Coroutine[Any, Any, None]) -> None:
    ProcessLoop(Scheduler(), "test").run_until_complete(main)


def manager_on(runtime: Runtime, points: RecoveryPointConfig = OFTEN, config: LogConfig = LARGE) -> LogManager:
    format_dirs(runtime, ("/data",), CLUSTER, 1)
    manager = LogManager(runtime, LogManagerConfig(("/data",), CLUSTER, 1, config, recovery_points=points))
    manager.load()
    return manager


def bytes_checked(runtime: Runtime, config: LogConfig = LARGE) -> tuple[int, PartitionLog]:
    """How many bytes a start checks, and the log that it opens."""
    manager = LogManager(runtime, LogManagerConfig(("/data",), CLUSTER, 1, config))
    manager.begin_load()
    checked = sum(step.done_bytes for step in manager._loader.loading())
    log = manager.get(TP)
    assert log is not None
    return checked, log


@pytest.mark.parametrize("power_loss", [False, True])
@pytest.mark.parametrize("flush_messages", [1, 1 << 40])
def test_an_unclean_start_checks_what_came_after_the_last_round(power_loss: bool, flush_messages: int) -> None:
    runtime, disk = make_runtime()
    config = replace(LARGE, flush_messages=flush_messages)
    before: list[bytes] = []

    async def main() -> None:
        manager = manager_on(runtime, config=config)
        log = manager.create(TP, UUID(int=1))
        manager.start()
        for number in range(100):
            append(log, 1, timestamp=1000 + number, producer_id=7, producer_epoch=0, base_sequence=number)
        await asyncio.sleep(0.5)
        assert log.recovery_point == 100
        assert log.durability.unchecked_bytes == 0
        before.append(read_all(log))
        for number in range(100, 105):
            append(log, 1, timestamp=1000 + number, producer_id=7, producer_epoch=0, base_sequence=number)
        before.append(read_all(log))
        disk.crash(power_loss=power_loss)

    run(main())
    checked, log = bytes_checked(runtime, config)
    durable, whole = before
    found = read_all(log)
    assert found.startswith(durable)
    assert whole.startswith(found)
    assert found == whole or (power_loss and flush_messages > 1)
    assert checked == len(found) - len(durable)
    entry = log.producers.get(7)
    assert entry is not None
    assert [one.last_sequence for one in entry.batches] == list(range(log.log_end_offset))[-5:]
    index = log.segments[0].offset_index
    headers = headers_of(found)
    for relative, position in zip(index.offsets, index.positions):
        assert position == sum(header.size_bytes for header in headers[:relative])
    gaps = [after - at for at, after in zip([0, *index.positions], [*index.positions, len(found)])]
    assert max(gaps) <= 100 + 2 * headers[0].size_bytes, "the index goes on as it was"
    for timestamp in range(1000, 1000 + log.log_end_offset):
        at = log.offset_for_timestamp(timestamp)
        assert at is not None
        assert at.offset == timestamp - 1000


def test_the_next_kill_finds_less_to_check_than_the_last_one() -> None:
    """A node that is killed again and again within its interval makes progress."""
    runtime, disk = make_runtime()
    log = manager_on(runtime).create(TP, UUID(int=1))
    for _ in range(100):
        append(log)
    log.flush()
    size = log.size_bytes
    disk.crash(power_loss=False)

    async def main() -> None:
        manager = LogManager(runtime, LogManagerConfig(("/data",), CLUSTER, 1, LARGE, recovery_points=points))
        manager.load()
        manager.start()
        await asyncio.sleep(12)
        disk.crash(power_loss=False)

    points = RecoveryPointConfig(interval_ms=60_000, bytes_min=1)
    assert bytes_checked(runtime)[0] == size
    disk.crash(power_loss=False)
    run(main())
    assert bytes_checked(runtime)[0] == 0


def test_checkpoints_do_not_block_the_loop_and_go_log_by_log() -> None:
    """The device is idle for as long as the fsyncs took."""
    runtime, disk = make_runtime()
    held: Counter[str] = Counter()
    busy: dict[str, int] = {}
    most = 0

    async def main() -> None:
        manager = manager_on(runtime, RecoveryPointConfig(interval_ms=1000, bytes_min=1000))
        logs = [manager.create(TopicPartition("t", number), UUID(int=1)) for number in range(8)]
        disk.set_sync_latency(0.05, 0.1)
        disk.on_blocking = lambda operation, path: held.update([f"{operation} {path}"])
        sync = disk.fsync_soon

        def counted(file: Any) -> asyncio.Future[None]:
            nonlocal most
            log = file.path.split("/")[2]
            busy[log] = busy.get(log, 0) + 1
            most = max(most, sum(count > 0 for count in busy.values()))
            future = sync(file)
            future.add_done_callback(lambda _: busy.update({log: busy[log] - 1}))
            return future

        disk.fsync_soon = counted  # type: ignore[method-assign]
        manager.start()
        for _ in range(1000):
            for log in logs[:6]:
                append(log)
            await asyncio.sleep(0.01)
        for log in logs[6:]:
            append(log)  # too little to be worth it
        await asyncio.sleep(10)
        assert all(log.durability.unchecked_bytes < 1000 for log in logs[:6])
        assert all(log.recovery_point > 900 for log in logs[:6])
        assert all(log.recovery_point == 0 for log in logs[6:])
        names = [name for name in disk.listdir("/data/t-0") if name.endswith(".snapshot")]
        assert 1 <= len(names) <= 2, "former snapshots go"
        asked = sum(busy.values())
        await asyncio.sleep(5)
        assert sum(busy.values()) == asked == 0, "nothing is done where nothing is new"

    run(main())
    assert held == {}
    assert most == 1


def test_a_round_begins_an_interval_after_the_beginning_of_the_last_one_however_slow_the_disk_is() -> None:
    """What a crash leaves to check is what came in an interval, and not in that and the time of the fsyncs."""
    runtime, disk = make_runtime()
    begun: list[float] = []

    async def main() -> None:
        manager = manager_on(runtime, RecoveryPointConfig(interval_ms=4000, bytes_min=1))
        log = manager.create(TP, UUID(int=1))
        disk.set_sync_latency(0.3, 0.3)
        loop, sync = asyncio.get_running_loop(), disk.fsync_soon

        def noted(file: Any) -> asyncio.Future[None]:
            if file.path.endswith(".log") and (not begun or loop.time() - begun[-1] > 2):
                begun.append(loop.time())
            return sync(file)

        disk.fsync_soon = noted  # type: ignore[method-assign]
        manager.start()
        for _ in range(200):
            append(log)
            await asyncio.sleep(0.1)

    run(main())
    assert len(begun) >= 4
    assert all(later - earlier == pytest.approx(4, abs=0.01) for earlier, later in pairwise(begun))


def test_by_default_a_log_with_little_news_is_left_alone() -> None:
    """A node may have thousands of such logs, and fsyncs for each of them would keep its disk busy."""
    runtime, _ = make_runtime()

    async def main() -> None:
        manager = manager_on(runtime, RecoveryPointConfig(interval_ms=1000))
        little, much = (manager.create(TopicPartition("t", number), UUID(int=1)) for number in range(2))
        append(little, value=bytes(100_000))
        for _ in range(11):
            append(much, value=bytes(100_000))
        manager.start()
        await asyncio.sleep(10)
        assert (little.recovery_point, little.log_end_offset) == (0, 1)
        assert much.recovery_point > 0

    run(main())


def test_a_failed_fsync_fails_the_log_and_moves_nothing() -> None:
    runtime, disk = make_runtime()

    async def main() -> None:
        manager = manager_on(runtime)
        log = manager.create(TP, UUID(int=1))
        append(log, 5)
        disk.fail_fsync("/data/t-0")
        manager.start()
        await asyncio.sleep(1)
        assert log.is_failed
        assert log.recovery_point == 0

    run(main())


def test_a_full_disk_postpones_the_checkpoint() -> None:
    runtime, disk = make_runtime()

    async def main() -> None:
        manager = manager_on(runtime)
        log = manager.create(TP, UUID(int=1))
        append(log, 5)
        disk.fill(0)
        manager.start()
        await asyncio.sleep(1)
        assert not log.is_failed
        assert log.durability.unchecked_bytes
        disk.set_capacity()
        await asyncio.sleep(1)
        assert log.recovery_point == 5
        assert log.durability.unchecked_bytes == 0

    run(main())


@pytest.mark.parametrize("turns", range(12))
@pytest.mark.parametrize("what", ["truncate", "roll", "truncate fully", "close"])
def test_a_change_during_a_checkpoint_leaves_no_wrong_snapshot(what: str, turns: int) -> None:
    runtime, disk = make_runtime(turns)

    async def main() -> None:
        log = open_log(runtime, SMALL)
        for number in range(6):
            append(log, 1, producer_id=7, producer_epoch=0, base_sequence=number)
        moving = log.checkpoint_soon()
        for _ in range(turns):
            await asyncio.sleep(0)
        match what:
            case "truncate":
                log.truncate_to(3)
                append(log, 1, producer_id=8, producer_epoch=0, base_sequence=0)
            case "truncate fully":
                log.truncate_fully_and_start_at(9)
                append(log, 1, producer_id=8, producer_epoch=0, base_sequence=0)
            case "roll":
                log.roll()
                append(log, 1, producer_id=8, producer_epoch=0, base_sequence=0)
            case _:
                log.close(clean=False)
        await moving
        disk.crash(power_loss=False)

    run(main())
    log = open_log(runtime, SMALL, recovery_point=4 if what == "truncate" else 0)
    expected = {"truncate": [2, 0], "truncate fully": [None, 0], "roll": [5, 0], "close": [5, None]}[what]
    entries = [log.producers.get(producer_id) for producer_id in (7, 8)]
    assert [None if entry is None else entry.last_sequence for entry in entries] == expected


# Damage of every byte, where recovery begins in the middle of a segment

DAMAGED = LogConfig(segment_bytes=1 << 20, index_interval_bytes=90)
POINT = 8


@cache
def killed() -> tuple[Files, Seen]:
    """One segment in three epochs, as a kill leaves it, made durable after `POINT` batches."""
    disk = SimDisk(random.Random(1))
    disk.makedirs(NODE)
    runtime = runtime_on(disk)
    format_dirs(runtime, (NODE,), CLUSTER, 1)
    config = LogManagerConfig((NODE,), CLUSTER, 1, DAMAGED, recovery_points=OFTEN)
    seen: list[Seen] = []

    async def main() -> None:
        manager = LogManager(runtime, config)
        manager.load()
        log = manager.create(TP, random_id(runtime))
        manager.start()
        sequence = 0
        for number, epoch in enumerate((0, 0, 2, 2, 2, 5, 5)):
            options: Any = {"producer_id": 8, "producer_epoch": 0, "base_sequence": sequence, "is_transactional": True}
            sequence += 2
            data = batch(2, timestamp=1000 + 10 * number, **options)
            log.append_as_leader(data, epoch, NOW_MS, guard=VERIFICATION_OFF)
            log.append_as_leader(marker(8, 1005 + 10 * number), epoch, NOW_MS, internal=True)
            if number == POINT // 2 - 1:
                await asyncio.sleep(1)
        assert log.recovery_point == headers_of(read_all(log))[POINT].base_offset
        log.segments[-1].save_indexes()
        seen.append(look(log))
        disk.crash(power_loss=False)

    run(main())
    paths = [f"{NODE}/{name}" for name in disk.listdir(NODE)] + [f"{PARTITION}/{n}" for n in disk.listdir(PARTITION)]
    return {path: disk.read_bytes(path) for path in paths if not disk.is_dir(path)}, seen[0]


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("ending", [".index", ".timeindex", ".txnindex", ".snapshot", "epoch-checkpoint"])
def test_damaged_small_files_do_not_change_the_log(ending: str) -> None:
    files, whole = killed()
    (path,) = [path for path in files if path.endswith(ending) and not path.endswith("/00000000000000000000.snapshot")]
    for what, at, damaged in damages(files[path]):
        if ending == ".txnindex" and what.startswith("cut") and at % 34 == 0:
            continue  # nothing shows that there were more
        manager, log = load({**files, path: damaged})
        found = look(log)
        if ending == "epoch-checkpoint":  # a text without a checksum: what is believed is such as can be true
            found = found._replace(epochs=whole.epochs)
        assert found == whole, what
        manager.shutdown()


@pytest.mark.usefixtures("quiet")
def test_a_damaged_batch_ends_the_log_after_the_point_and_is_refused_below() -> None:
    files, whole = killed()
    (path,) = [path for path in files if path.endswith(".log")]
    headers = headers_of(files[path])
    starts = [sum(header.size_bytes for header in headers[:at]) for at in range(len(headers) + 1)]
    ended = 0
    for what, at, damaged in damages(files[path]):
        manager, log = load({**files, path: damaged})
        number = max(n for n, start in enumerate(starts) if start <= at)
        in_epoch = 12 <= at - starts[number] < 16
        if number >= POINT and not in_epoch:
            assert look(log).batches == whole.batches[:number], what
            ended += 1
        for one in whole.batches:
            offset = headers_of(one)[0].base_offset
            if offset >= log.log_end_offset:
                break
            try:
                data = log.read(offset, 1, end_offset=log.log_end_offset)
            except ProtocolError:
                continue
            assert data in whole.batches or data in damaged, what
        manager.shutdown()
    assert ended
