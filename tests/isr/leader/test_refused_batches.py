"""A producer goes on with the batch that was refused first."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from support.isr.manager_cluster import Answer, Cluster, replicated_topic
from support.isr.replicas import make_runtime, open_log

from raftwerk.isr.leader.refused_batches import RefusedBatches, RefusedBeforeLeadership
from raftwerk.log.partition_log import PartitionLog
from raftwerk.log.state.producer_state import ProducerStateManager
from raftwerk.wire.compression import Compression
from raftwerk.wire.errors import ErrorCode, ProtocolError
from raftwerk.wire.records import NewRecord, encode_batch
from raftwerk.wire.types import TopicPartition

TP = TopicPartition("t", 0)


def _batch(sequence: int, *, producer_id: int = 5, epoch: int = 0) -> memoryview:
    records = [NewRecord(None, b"x", (), 1_700_000_000_000)]
    made = encode_batch(records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
    return memoryview(bytearray(made))


def _large_batch(sequence: int) -> memoryview:
    """It takes so long to look into that a thread does it."""
    records = [NewRecord(None, bytes(300_000), (), 1_700_000_000_000)]
    made = encode_batch(records, compression=Compression.ZSTD, producer_id=5, producer_epoch=0, base_sequence=sequence)
    return memoryview(bytearray(made))


@pytest.fixture
def refused() -> RefusedBatches:
    made = RefusedBatches(None)
    assert not made.producers
    made.note(_batch(3), ProducerStateManager(), 1_000)
    made.note(_batch(4), ProducerStateManager(), 1_001)
    assert made.producers
    return made


def _is_refused(refused: RefusedBatches, batch: memoryview, now_ms: int = 1_002) -> bool:
    try:
        refused.check(batch, now_ms)
    except ProtocolError as error:
        assert error.code == ErrorCode.NOT_ENOUGH_REPLICAS
        return True
    return False


def test_later_batches_are_refused_until_the_first_one_comes(refused: RefusedBatches) -> None:
    assert _is_refused(refused, _batch(4))
    assert _is_refused(refused, _batch(5))
    assert not _is_refused(refused, _batch(3))
    assert not refused.producers


def test_earlier_batches_are_not_refused_and_the_later_ones_still_are(refused: RefusedBatches) -> None:
    assert not _is_refused(refused, _batch(2))
    assert _is_refused(refused, _batch(4))


@pytest.mark.parametrize("batch", [_batch(0), _batch(4, epoch=1), _batch(4, producer_id=6), _batch(-1, producer_id=-1)])
def test_other_producers_and_epochs_are_not_refused(refused: RefusedBatches, batch: memoryview) -> None:
    assert not _is_refused(refused, batch)


def test_a_producer_that_gave_the_batch_up_goes_on_after_a_minute(refused: RefusedBatches) -> None:
    assert _is_refused(refused, _batch(4), 60_000)
    assert not _is_refused(refused, _batch(4), 62_000)


def _log_with(batch: memoryview) -> PartitionLog:
    runtime, _ = make_runtime()
    log = open_log(runtime)
    log.append_as_leader(batch, 0, 1_700_000_000_000)
    return log


def test_of_a_producer_that_the_log_knows_the_next_batch_is_remembered() -> None:
    refused, known = RefusedBatches(None), _log_with(_batch(3)).producers
    refused.note(_batch(3), known, 1_000)  # is in the log
    refused.note(_batch(5), known, 1_000)  # would be out of order
    assert not refused.producers
    refused.note(_batch(4), known, 1_000)
    assert not _is_refused(refused, _batch(3))
    assert _is_refused(refused, _batch(5))
    assert not _is_refused(refused, _batch(4))
    assert not _is_refused(refused, _batch(5))


def test_a_new_epoch_of_a_producer_that_the_log_knows_begins_with_the_batch_that_was_refused() -> None:
    refused, known = RefusedBatches(None), _log_with(_batch(3, epoch=1)).producers
    refused.note(_batch(4, epoch=0), known, 1_000)  # is fenced
    assert not refused.producers
    refused.note(_batch(0, epoch=2), known, 1_000)
    assert _is_refused(refused, _batch(1, epoch=2))
    assert not _is_refused(refused, _batch(0, epoch=2))


def test_sequence_numbers_wrap() -> None:
    refused = RefusedBatches(None)
    refused.note(_batch(2**31 - 1), ProducerStateManager(), 1_000)
    assert _is_refused(refused, _batch(1))
    assert not _is_refused(refused, _batch(2**31 - 2))


def test_producer_0_is_remembered_like_any_other() -> None:
    refused = RefusedBatches(None)
    refused.note(_batch(3, producer_id=0), ProducerStateManager(), 1_000)
    assert _is_refused(refused, _batch(4, producer_id=0))


def test_memory_is_bounded_and_bytes_that_are_no_batch_are_ignored() -> None:
    refused, known = RefusedBatches(None), ProducerStateManager()
    refused.note(memoryview(b"no batch at all"), known, 0)
    assert not refused.producers
    for producer_id in range(1_001):
        refused.note(_batch(3, producer_id=producer_id), known, 0)
    assert not _is_refused(refused, _batch(4, producer_id=0))
    assert _is_refused(refused, _batch(4, producer_id=1))


def _leaves_gap(refused: RefusedBatches, batch: memoryview, known: ProducerStateManager, now_ms: int = 2_000) -> bool:
    try:
        refused.check_gap(batch, known, now_ms)
    except ProtocolError as error:
        assert error.code == ErrorCode.NOT_ENOUGH_REPLICAS
        return True
    return False


def test_a_new_leader_waits_for_what_may_be_on_its_way_to_the_former_one() -> None:
    refused, known = RefusedBatches(1_000), _log_with(_batch(3, epoch=1)).producers
    for batch in (_batch(5, epoch=1), _batch(6, epoch=1), _batch(1, epoch=2), _batch(1, producer_id=6)):
        assert _leaves_gap(refused, batch, known)
        assert not _leaves_gap(RefusedBatches(None), batch, known), "no leader was before"
    for batch in (
        _batch(4, epoch=1),
        _batch(3, epoch=1),
        _batch(9, epoch=0),
        _batch(0, epoch=2),
        _batch(0, producer_id=6),
        _batch(-1, producer_id=-1),
    ):
        assert not _leaves_gap(refused, batch, known)


def test_after_half_a_minute_nothing_is_on_its_way_any_more() -> None:
    refused, known = RefusedBatches(1_000), _log_with(_batch(3)).producers
    assert _leaves_gap(refused, _batch(5), known, 31_000)
    assert not _leaves_gap(refused, _batch(5), known, 31_001)


def test_of_a_producer_whose_records_are_deleted_the_first_batch_is_appended_first() -> None:
    refused, known = RefusedBatches(1_000), ProducerStateManager()
    for sequence in (94, 95, 97):
        assert _leaves_gap(refused, _batch(sequence), known, 31_000)
    assert _is_refused(refused, _batch(97), 31_001)
    assert not _is_refused(refused, _batch(94), 31_001)
    assert not _is_refused(refused, _batch(95), 31_001)


def test_a_gap_behind_a_producer_that_is_known_is_out_of_order_afterwards() -> None:
    refused, known = RefusedBatches(1_000), _log_with(_batch(3)).producers
    assert _leaves_gap(refused, _batch(5), known, 31_000)
    assert not _is_refused(refused, _batch(6), 31_001)


# ------------------------------------------------------------------ before the replica is made


def test_what_is_refused_before_the_replica_is_made_is_handed_over_once() -> None:
    early = RefusedBeforeLeadership()
    early.note(TP, _batch(0), 1_000)
    early.note(TP, _batch(1), 1_001)
    assert _is_refused(early.take(TP), _batch(1))
    assert not early.take(TP).producers


@pytest.mark.parametrize("partitions", [1, 1_001])
def test_only_a_thousand_producers_are_remembered_before_their_replicas_are_made(partitions: int) -> None:
    early = RefusedBeforeLeadership()
    for index in range(1_001):
        early.note(TopicPartition("t", index % partitions), _batch(0, producer_id=index), 0)
    kept = [len(early.take(TopicPartition("t", index)).producers) for index in range(partitions)]
    assert kept == ([1_000] if partitions == 1 else [0] + [1] * 1_000)


def test_partitions_with_bytes_that_are_no_batch_are_bounded_too() -> None:
    early = RefusedBeforeLeadership()
    early.note(TP, _batch(0), 0)
    for index in range(1, 1_001):
        early.note(TopicPartition("t", index), memoryview(bytearray(b"no batch")), 0)
    assert not early.take(TP).producers


@pytest.mark.parametrize("is_full", [False, True])
def test_the_second_batch_for_a_new_partition_waits_for_the_first_that_came_too_early(is_full: bool) -> None:
    """The broker knows that it leads, and has taken up the role, or had space for the log, only afterwards."""
    cluster, _ = replicated_topic(replicas=(1,))
    if is_full:
        cluster.disks[1].fill(0)
    cluster.create_topic("u", 8, (1,), 400)
    cluster.tell(1)
    last = TopicPartition("u", 399)
    if is_full:
        cluster.sleep(5.0)
    refusal = ErrorCode.KAFKA_STORAGE_ERROR if is_full else ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert cluster.produce_batch(1, last, _batch(0)).error == refusal
    cluster.disks[1].set_capacity()
    cluster.sleep(5.0)
    cluster.on_loop(cluster.managers[1].set_full_dirs, [])
    assert cluster.produce_batch(1, last, _batch(1)).error == ErrorCode.NOT_ENOUGH_REPLICAS
    assert cluster.produce_batch(1, last, _batch(0)).error == 0
    assert cluster.produce_batch(1, last, _batch(1)).error == 0


# ------------------------------------------------------------------ no memory to look into a batch


class Sender:
    """An `AppendCaller` with so much memory."""

    def __init__(self, memory_bytes: int) -> None:
        self.sender = "connection"
        self.memory_bytes = memory_bytes

    def defer(self, size_bytes: int) -> Callable[[], None] | None:
        return None if size_bytes > self.memory_bytes else lambda: None


def _send(cluster: Cluster, records: memoryview, *, memory_bytes: int = 1 << 20) -> Answer:
    answer, caller = Answer(), Sender(memory_bytes)
    cluster.on_loop(partial(cluster.managers[1].append, 1, 1_000, [(TP, records)], answer, caller=caller))
    return answer


@pytest.mark.parametrize("known", [0, 1])
def test_the_next_batch_waits_for_one_that_there_was_no_memory_for(known: int) -> None:
    cluster, _ = replicated_topic(replicas=(1,))
    for sequence in range(known):
        assert _send(cluster, _batch(sequence)).error == 0
    assert _send(cluster, _large_batch(known), memory_bytes=0).error == ErrorCode.NOT_ENOUGH_REPLICAS
    assert _send(cluster, _batch(known + 1)).error == ErrorCode.NOT_ENOUGH_REPLICAS
    again = _send(cluster, _large_batch(known))
    cluster.sleep(0.1)
    assert again.error == 0
    assert _send(cluster, _batch(known + 1)).error == 0


def test_a_batch_without_memory_may_come_behind_one_that_is_looked_into() -> None:
    cluster, _ = replicated_topic(replicas=(1,))
    assert _send(cluster, _batch(0)).error == 0
    first = _send(cluster, _large_batch(1))
    assert first.rows is None
    assert _send(cluster, _large_batch(2), memory_bytes=0).error == ErrorCode.NOT_ENOUGH_REPLICAS
    third = _send(cluster, _batch(3))
    cluster.sleep(0.1)
    assert (first.error, third.error) == (0, ErrorCode.NOT_ENOUGH_REPLICAS)
    again = _send(cluster, _large_batch(2))
    cluster.sleep(0.1)
    assert again.error == 0
    assert _send(cluster, _batch(3)).error == 0
