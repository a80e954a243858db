"""Fetches of bytes that are not in the page cache: they wait for a thread, and delay no other request."""

from __future__ import annotations

import asyncio
import gc

from support.isr.manager_cluster import Cluster, replicated_topic

from raftwerk.chaos.sim.disk.sim_disk import SimDisk
from raftwerk.chaos.sim.kernel.event_loop import ProcessLoop, Scheduler
from raftwerk.isr.fetching.cold_reads import ColdReads
from raftwerk.log.errors import ColdReadError
from raftwerk.wire.types import TopicPartition

TP = TopicPartition("t", 0)
OTHER = TopicPartition("t", 1)
LARGE = b"v" * 400_000
WARMING_S = 0.05


def cold_cluster(batches: int = 6, partitions: int = 1) -> tuple[Cluster, SimDisk]:
    """A log much longer than what is taken to be in memory, on a disk that reads slowly."""
    cluster, _ = replicated_topic((1,), partitions)
    for _ in range(batches):
        cluster.produce(1, TP, LARGE)
        cluster.sleep(0.1)  # a large batch is validated in a thread
    disk: SimDisk = cluster.disks[1]
    disk.set_sync_latency(WARMING_S, WARMING_S)
    disk.make_cold()
    return cluster, disk


def test_a_cold_fetch_waits_for_its_thread_and_no_longer() -> None:
    cluster, _ = cold_cluster()
    waiting = cluster.consume(1, TP, 0, max_wait_ms=500, max_bytes=1 << 20)
    assert waiting.rows is None
    assert cluster.consume(1, TP, 5).row.records, "the log's end is not asked for"
    cluster.sleep(WARMING_S - 0.001)
    assert waiting.rows is None
    cluster.sleep(0.06)
    assert len(waiting.row.records) > 2 * len(LARGE)
    assert len(cluster.consume(1, TP, 0, max_bytes=1 << 20).row.records) > 2 * len(LARGE), "at once from now on"


def test_a_fetch_that_times_out_gets_nothing_and_the_next_one_reads() -> None:
    cluster, _ = cold_cluster()
    first = cluster.consume(1, TP, 0, max_wait_ms=10)
    cluster.sleep(0.02)
    assert (first.error, first.row.records, first.row.high_watermark) == (0, b"", 6)
    assert cluster.consume(1, TP, 0, max_wait_ms=0).row.records == b""
    cluster.sleep(0.2)
    assert cluster.consume(1, TP, 0, max_wait_ms=0).row.records


def test_a_client_that_disappears_is_not_answered() -> None:
    cluster, _ = cold_cluster()
    waiting = cluster.consume(1, TP, 0, max_wait_ms=500)
    assert waiting.forget()
    cluster.sleep(1.0)
    assert waiting.rows is None


def test_new_records_are_read_while_older_ones_are_warmed() -> None:
    cluster, _ = cold_cluster()
    waiting = cluster.consume(1, TP, 0, max_wait_ms=500)
    assert cluster.produce(1, TP).error == 0
    assert cluster.consume(1, TP, 6).row.records
    assert waiting.rows is None, "they are not what it waits for"
    cluster.sleep(0.2)
    assert waiting.row.records


def test_partitions_in_memory_are_answered_at_once() -> None:
    cluster, _ = cold_cluster(partitions=2)
    cluster.produce(1, OTHER)
    answer = cluster.consume_all(1, {TP: 0, OTHER: 0}, max_wait_ms=500)
    assert answer.rows is not None
    assert [bool(row.records) for row in answer.rows] == [False, True]


def test_a_segment_that_is_deleted_while_it_is_warmed() -> None:
    cluster, _ = cold_cluster()
    waiting = cluster.consume(1, TP, 0, max_wait_ms=500)
    log = cluster.managers[1].partitions[TP].log
    cluster.on_loop(log.roll)
    cluster.on_loop(log.raise_start, 6)
    assert cluster.on_loop(log.delete_expired, 0, 6) == 1
    cluster.sleep(0.3)
    assert waiting.error == 1  # OFFSET_OUT_OF_RANGE


def test_a_log_that_closes_while_it_is_warmed() -> None:
    cluster, _ = cold_cluster()
    waiting = cluster.consume(1, TP, 0, max_wait_ms=500)
    cluster.on_loop(cluster.managers[1].partitions[TP].log.close)
    cluster.sleep(0.3)
    assert waiting.error == 56  # KAFKA_STORAGE_ERROR


def test_a_thread_that_could_not_read_ends_the_wait_and_the_fetch_tells_the_error() -> None:
    """The fetch reads again itself, and meets the error of the disk then: the loop has nothing to complain about."""

    async def wait() -> None:
        warming: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        cold, read_again = ColdReads(), list[bool]()
        cold.add(ColdReadError(warming), TP)
        cold.then(lambda: read_again.append(cold.is_over))
        assert read_again == []
        warming.set_exception(OSError(5, "Input/output error"))
        await asyncio.sleep(0)
        assert read_again == [True]

    scheduler = Scheduler()
    ProcessLoop(scheduler, "reader").run_until_complete(wait(), 1.0)
    gc.collect()
    assert scheduler.errors == []


def test_a_thread_that_is_cancelled_ends_the_wait_too() -> None:
    """The broker stops, and nobody must wait for its threads."""

    async def wait() -> None:
        warming: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        cold, read_again = ColdReads(), list[bool]()
        cold.add(ColdReadError(warming), TP)
        cold.then(lambda: read_again.append(cold.is_over))
        warming.cancel()
        await asyncio.sleep(0)
        assert read_again == [True]

    scheduler = Scheduler()
    ProcessLoop(scheduler, "reader").run_until_complete(wait(), 1.0)
    assert scheduler.errors == []
