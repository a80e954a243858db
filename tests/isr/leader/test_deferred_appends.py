"""Batches whose records are validated in a thread: order, answers, and what happens meanwhile."""

from __future__ import annotations

import asyncio
import gc
import random
import tracemalloc
from collections.abc import Callable
from functools import partial
from typing import Any
from uuid import UUID

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from support.isr.manager_cluster import Answer, Cluster, replicated_topic
from support.isr.replicas import WALL_MS, batch
from support.log.raw_batches import raw_batch

from raftwerk.isr.leader import deferred_appends
from raftwerk.isr.leader.deferred_appends import DeferredAppends, DeferredBatches
from raftwerk.log import record_validation
from raftwerk.log.config import LogConfig
from raftwerk.wire.compression import Compression
from raftwerk.wire.errors import ErrorCode, ProtocolError
from raftwerk.wire.records import TimestampType, encode_batch, read_header, set_max_timestamp
from raftwerk.wire.types import TopicPartition

TOPIC = UUID(int=1)
ONE, TWO = TopicPartition("t", 0), TopicPartition("t", 1)


def large(value: bytes = b"large", key: bytes | None = None) -> memoryview:
    """A batch of few bytes whose records are too large for the event loop."""
    filler = [(key, bytes(300_000), (), WALL_MS)]
    return memoryview(encode_batch([(key, value, (), WALL_MS), *filler], compression=Compression.ZSTD))


def send(cluster: Cluster, *entries: tuple[TopicPartition, memoryview | None], acks: int = 1) -> Answer:
    answer = Answer()
    cluster.on_loop(cluster.managers[1].append, acks, 1000, entries, answer)
    return answer


def offsets(answer: Answer) -> list[int]:
    assert answer.rows is not None
    return [row.base_offset for row in answer.rows]


def test_an_append_that_fails_does_not_hold_up_those_behind_it() -> None:
    cluster, _ = replicated_topic(replicas=(1,))

    def answered(rows: list[Any]) -> None:
        raise RuntimeError("the connection has a bug")

    cluster.on_loop(cluster.managers[1].append, 1, 1000, [(ONE, large())], answered)
    second = send(cluster, (ONE, large()))
    cluster.sleep(0.1)
    assert offsets(second) == [2]
    assert offsets(send(cluster, (ONE, batch()))) == [4]
    errors, cluster.scheduler.errors[:] = list(cluster.scheduler.errors), []
    assert len(errors) == 1 and "a deferred append failed" in str(errors[0])


def test_batches_of_a_partition_keep_their_order_and_others_overtake() -> None:
    cluster, _ = replicated_topic(replicas=(1,), partitions=2)
    first, second = send(cluster, (ONE, large())), send(cluster, (ONE, batch()))
    assert offsets(send(cluster, (TWO, batch()))) == [0]
    assert first.rows is None and second.rows is None
    cluster.sleep(0.01)
    assert (offsets(first), offsets(second)) == ([0], [2])
    assert offsets(send(cluster, (ONE, batch()))) == [3]


def test_a_coordinators_batch_does_not_wait() -> None:
    """It is not validated, and a transactional one has no sequence number, with which a client's would be refused."""
    cluster, _ = replicated_topic(replicas=(1,))
    cluster.managers[1].verifies_transactions = False
    first = send(cluster, (ONE, large()))
    data = encode_batch([(b"k", b"v", (), WALL_MS)], producer_id=7, producer_epoch=0, is_transactional=True)
    answer = Answer()
    entries = [(ONE, memoryview(data))]
    cluster.on_loop(cluster.managers[1].append, 1, 1000, entries, answer, {}, True)
    assert (answer.error, offsets(answer)) == (0, [0])
    cluster.sleep(0.01)
    assert offsets(first) == [1]


class Sender:
    """An `AppendCaller` with memory for so many bytes."""

    def __init__(self, memory_bytes: int = 1 << 20) -> None:
        self.sender = self
        self.free_bytes = memory_bytes

    def defer(self, size_bytes: int) -> Callable[[], None] | None:
        if size_bytes > self.free_bytes:
            return None
        self.free_bytes -= size_bytes
        return partial(self._release, size_bytes)

    def _release(self, size_bytes: int) -> None:
        self.free_bytes += size_bytes


def send_as(cluster: Cluster, caller: Sender, *entries: tuple[TopicPartition, memoryview]) -> Answer:
    answer = Answer()
    cluster.on_loop(partial(cluster.managers[1].append, 1, 1000, entries, answer, caller=caller))
    return answer


def test_other_senders_do_not_wait_for_a_partition() -> None:
    cluster, _ = replicated_topic(replicas=(1,))
    one, other = Sender(), Sender()
    first, second = send_as(cluster, one, (ONE, large())), send_as(cluster, one, (ONE, batch()))
    assert offsets(send_as(cluster, other, (ONE, batch()))) == [0]
    assert first.rows is None and second.rows is None
    cluster.sleep(0.01)
    assert (offsets(first), offsets(second)) == ([1], [3])
    assert offsets(send_as(cluster, one, (ONE, batch()))) == [4]


def test_a_sender_is_charged_until_its_batches_are_appended() -> None:
    cluster, _ = replicated_topic(replicas=(1,), partitions=2)
    records = large()
    sender = Sender(len(records) + len(batch()))
    answers = [send_as(cluster, sender, (ONE, records)), send_as(cluster, sender, (ONE, batch()))]
    assert sender.free_bytes == 0
    refused = send_as(cluster, sender, (TWO, batch()), (ONE, batch()), (TWO, batch()))
    assert refused.rows is not None
    codes = [(row.partition, row.error_code, row.base_offset) for row in refused.rows]
    assert codes == [(1, 0, 0), (0, ErrorCode.NOT_ENOUGH_REPLICAS, -1), (1, 0, 1)]
    assert "queued.max.request.bytes" in (refused.rows[1].error_message or "")
    cluster.sleep(0.01)
    assert [offsets(answer) for answer in answers] == [[0], [2]]
    assert sender.free_bytes == len(records) + len(batch())


def test_a_split_request_has_one_answer_with_its_rows_in_order() -> None:
    cluster, _ = replicated_topic(partitions=2)
    unknown = TopicPartition("x", 0)
    answer = send(cluster, (TWO, batch()), (ONE, large()), (unknown, batch()), (ONE, batch()), (TWO, batch()), acks=-1)
    assert answer.rows is None
    cluster.sleep(0.05)
    assert answer.rows is not None
    assert [(row.partition, row.error_code, row.base_offset) for row in answer.rows] == [
        (1, 0, 0),
        (0, 0, 0),
        (0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
        (0, 0, 2),
        (1, 0, 1),
    ]
    cluster.sleep(1.0)
    assert [manager.partitions[ONE].high_watermark for manager in cluster.managers.values()] == [3, 3, 3]


def test_a_partition_without_a_batch_is_refused_and_the_others_are_appended() -> None:
    """Also where it would have to wait for a batch that a thread looks into."""
    cluster, _ = replicated_topic(replicas=(1,), partitions=2)
    answer = send(cluster, (ONE, None), (TWO, batch()), (ONE, large()), (ONE, None))
    cluster.sleep(0.01)
    assert answer.rows is not None
    codes = [(row.partition, row.error_code) for row in answer.rows]
    assert codes == [(0, ErrorCode.INVALID_RECORD), (1, 0), (0, 0), (0, ErrorCode.INVALID_RECORD)]


def test_the_requests_memory_may_be_used_again() -> None:
    cluster, _ = replicated_topic(replicas=(1,))
    records = large()
    answer = send(cluster, (ONE, records))
    records[:] = bytes(len(records))
    cluster.sleep(0.01)
    assert answer.error == 0


def test_records_that_are_refused_are_named() -> None:
    cluster, _ = replicated_topic(replicas=(1,))
    log = cluster.managers[1].partitions[ONE].log
    log.config = LogConfig(cleanup_policy=("compact",))
    for records in (batch(count=2), large()):
        answer = send(cluster, (ONE, records))
        cluster.sleep(0.01)
        assert answer.error == ErrorCode.INVALID_RECORD
        assert [error.batch_index for error in answer.row.record_errors] == [0, 1]
        assert "key" in answer.row.error_message
    assert log.log_end_offset == 0


def test_a_leader_that_resigns_meanwhile_appends_nothing() -> None:
    cluster, topic_id = replicated_topic()
    answer = send(cluster, (ONE, large()), acks=-1)
    cluster.change(topic_id, 0, leader=2)
    cluster.tell()
    cluster.sleep(0.01)
    assert answer.error == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert cluster.managers[1].partitions[ONE].log_end_offset == 0


def test_an_unexpected_error_is_an_answer(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def fail(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(deferred_appends, "validate", fail)
    cluster, _ = replicated_topic(replicas=(1,))
    answer = send(cluster, (ONE, large()))
    cluster.sleep(0.01)
    assert answer.error == ErrorCode.UNKNOWN_SERVER_ERROR
    assert "could not be looked into" in caplog.text


@pytest.mark.parametrize("is_stamped", [True, False])
def test_batches_are_stored_by_the_settings_by_which_they_were_validated(is_stamped: bool) -> None:
    """Nobody looks at the timestamps of records where the leader writes its own: what a client claims was believed."""
    cluster, _ = replicated_topic(replicas=(1,))
    log = cluster.managers[1].partitions[ONE].log
    kinds = [LogConfig(message_timestamp_type=kind) for kind in TimestampType]
    log.config, later = reversed(kinds) if is_stamped else kinds
    sent = large()
    set_max_timestamp(sent, 0, WALL_MS * 2)
    answer = send(cluster, (ONE, sent))
    log.config = later
    cluster.sleep(0.1)
    assert offsets(answer) == [0]
    header = read_header(log.read(0, 1, end_offset=2))
    assert (header.timestamp_type is TimestampType.LOG_APPEND_TIME) == is_stamped
    assert header.max_timestamp < WALL_MS * 2


def test_a_topic_that_is_created_anew_meanwhile_does_not_get_the_records() -> None:
    cluster, topic_id = replicated_topic(replicas=(1,))
    answer = send(cluster, (ONE, large()))
    cluster.delete_topic(topic_id)
    cluster.tell()
    cluster.create_topic("t", 8, (1,), 1)
    cluster.tell()
    cluster.sleep(0.01)
    assert answer.error in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    cluster.sleep(1.0)
    assert cluster.managers[1].partitions[ONE].log_end_offset == 0


def test_refused_batches_leave_nothing_in_memory() -> None:
    """An error refers to the frames that it came through, and these to what was decompressed."""
    plain = bytes(encode_batch([(b"k", bytes(110_000_000), (), WALL_MS)])[61:])
    bomb = raw_batch(zstandard.ZstdCompressor(write_content_size=False).compress(plain), 1, Compression.ZSTD)
    batches = [DeferredBatches(ONE, TOPIC, memoryview(bytearray(bomb)), LogConfig())] * 3
    del plain
    gc.disable()
    tracemalloc.start()
    try:
        results = deferred_appends._validate_all(batches, WALL_MS)
        left, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        gc.enable()
    assert [getattr(result, "code", None) for result in results] == [ErrorCode.MESSAGE_TOO_LARGE] * 3
    assert left < 100_000 and peak < 1.3 * record_validation.DECOMPRESSED_BYTES_MAX


class ManualThreads:
    """Work ends when the test says so, in any order."""

    def __init__(self) -> None:
        self.running: list[tuple[asyncio.Future[Any], Callable[[], Any]]] = []

    def run_soon(self, work: Callable[[], Any], owner: object = None) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.running.append((future, work))
        return future

    def close(self) -> None:
        """Nothing: there are no threads."""


@given(st.lists(st.sets(st.integers(0, 3), min_size=1), min_size=1, max_size=12), st.randoms(use_true_random=False))
def test_any_order_of_threads_keeps_the_order_of_each_partition(requests: list[set[int]], rng: random.Random) -> None:
    async def main() -> None:
        threads = ManualThreads()
        deferred = DeferredAppends(threads)
        appended: dict[int, list[int]] = {}
        for number, partitions in enumerate(requests):
            batches = [
                DeferredBatches(TopicPartition("t", one), TOPIC, batch(), LogConfig()) for one in sorted(partitions)
            ]

            def append(results: Any, number: int = number, partitions: set[int] = partitions) -> None:
                assert not any(isinstance(result, ProtocolError) for result in results)
                for partition in partitions:
                    appended.setdefault(partition, []).append(number)

            deferred.submit(batches, WALL_MS, append)
            assert all(one.topic_partition in deferred.queues[None] for one in batches)
        rng.shuffle(threads.running)
        for future, work in threads.running:
            future.set_result(work())
            await asyncio.sleep(0)
        assert not deferred.queues
        for partition, numbers in appended.items():
            assert numbers == [number for number, partitions in enumerate(requests) if partition in partitions]

    asyncio.run(main())
