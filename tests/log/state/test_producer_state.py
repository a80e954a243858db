"""Sequences of idempotent producers: wrap, epochs, restarts, followers."""

from __future__ import annotations

import struct

import pytest
from support.log.logs import NOW_MS, append, batch, make_runtime, open_log

from raftwerk.log.append_info import AppendInfo
from raftwerk.log.config import LogConfig
from raftwerk.log.partition_log import PartitionLog
from raftwerk.log.state.producer_state import CorruptSnapshotError, ProducerStateManager
from raftwerk.wire.errors import ErrorCode, ProtocolError
from raftwerk.wire.records import read_header, set_base_offset

LAST = 2**31 - 1


def produce(log: PartitionLog, sequence: int, count: int = 1, *, epoch: int = 0, producer_id: int = 7) -> AppendInfo:
    data = batch(count, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
    return log.append_as_leader(data, 0, NOW_MS)


def refusal(log: PartitionLog, sequence: int, count: int = 1, *, epoch: int = 0) -> ErrorCode:
    with pytest.raises(ProtocolError) as refused:
        produce(log, sequence, count, epoch=epoch)
    return refused.value.code


def test_the_last_five_batches_are_known_again() -> None:
    log = open_log(make_runtime()[0])
    for number in range(7):
        produce(log, 2 * number, 2)
    for number in range(2, 7):
        info = produce(log, 2 * number, 2)
        assert (info.first_offset, info.last_offset, info.duplicate) == (2 * number, 2 * number + 1, True)
    assert refusal(log, 12, 1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.log_end_offset == 14


def is_forgotten(info: AppendInfo) -> bool:
    return info.duplicate and info.first_offset == -1


def test_older_batches_are_known_without_their_offsets() -> None:
    log = open_log(make_runtime()[0])
    for number in range(9):
        produce(log, 2 * number, 2)
    for sequence, count in ((0, 2), (6, 2), (0, 8), (3, 1)):
        info = produce(log, sequence, count)
        assert is_forgotten(info)
        assert info.last_offset == 7, "no later than the oldest that is remembered"
    assert refusal(log, 6, 4) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "some of it may not be there"
    assert refusal(log, 19) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.log_end_offset == 18
    produce(log, 0, epoch=1)
    assert refusal(log, 3, epoch=1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "that was another epoch"


def test_batches_before_the_first_known_one_may_be_missing() -> None:
    log = open_log(make_runtime()[0])
    for sequence in range(100, 110):
        produce(log, sequence)
    assert is_forgotten(produce(log, 100))
    assert refusal(log, 99) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    states = ProducerStateManager()
    states.load_snapshot(log.producers.encode_snapshot())
    entry = states.get(7)
    assert entry is not None
    assert not entry.is_long_written(104, 104), "a snapshot tells of five batches"


def test_after_a_gap_no_older_batch_is_known() -> None:
    """A follower appends what its leader did, which may have forgotten the producer in between."""
    log = open_log(make_runtime()[0])
    for sequence in (0, 1, 2, 7, 8):
        data = batch(1, producer_id=7, producer_epoch=0, base_sequence=sequence)
        set_base_offset(data, 0, log.log_end_offset)
        log.append_as_follower(data)
    assert refusal(log, 5) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    for sequence in (9, 10, 11, 12, 13):
        assert not produce(log, sequence).duplicate
    assert is_forgotten(produce(log, 8))
    assert refusal(log, 6) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refusal(log, 1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_older_batches_are_known_across_the_wrap_of_sequence_numbers() -> None:
    log = open_log(make_runtime()[0])
    for number in range(10):
        produce(log, (LAST - 2 + number) & LAST)
    assert is_forgotten(produce(log, LAST - 2))
    assert is_forgotten(produce(log, 1))
    assert refusal(log, LAST - 3) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refusal(log, 9) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_sequences_wrap_to_zero() -> None:
    log = open_log(make_runtime()[0])
    produce(log, LAST - 1, 1)
    assert refusal(log, 0) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    produce(log, LAST, 3)
    assert produce(log, LAST, 3).duplicate
    assert not produce(log, 2).duplicate
    assert refusal(log, LAST) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_new_epoch_starts_at_zero_and_fences_the_old_one() -> None:
    log = open_log(make_runtime()[0])
    produce(log, 0, 5)
    assert refusal(log, 5, epoch=1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    produce(log, 0, epoch=1)
    assert refusal(log, 5, epoch=0) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert refusal(log, 0, 5, epoch=0) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert produce(log, 0, epoch=1).duplicate


def test_an_unknown_producer_may_start_anywhere() -> None:
    log = open_log(make_runtime()[0])
    assert not produce(log, 500).duplicate
    assert not produce(log, 501).duplicate


def test_several_batches_of_one_call_are_checked_in_order() -> None:
    log = open_log(make_runtime()[0])

    def two(first: int, second: int) -> memoryview:
        both = [batch(2, producer_id=7, producer_epoch=0, base_sequence=sequence) for sequence in (first, second)]
        return memoryview(bytearray(b"".join(both)))

    assert log.append_as_leader(two(0, 2), 0, NOW_MS).last_offset == 3
    with pytest.raises(ProtocolError):
        log.append_as_leader(two(4, 5), 0, NOW_MS)
    assert log.log_end_offset == 4


@pytest.mark.parametrize("stop", ["clean", "kill", "roll and kill"])
def test_duplicates_are_known_after_a_restart(stop: str) -> None:
    runtime, disk = make_runtime()
    log = open_log(runtime, LogConfig())
    for number in range(6):
        produce(log, 3 * number, 3)
    if stop == "clean":
        log.close()
    else:
        if stop == "roll and kill":
            log.roll()
            log.flush()
        disk.crash(power_loss=False)
    log = open_log(runtime, LogConfig(), clean_shutdown=stop == "clean", recovery_point=log.recovery_point)
    for number in range(1, 6):
        info = produce(log, 3 * number, 3)
        assert (info.first_offset, info.duplicate) == (3 * number, True)
    assert not produce(log, 18).duplicate


def test_a_follower_that_becomes_leader_knows_the_duplicates() -> None:
    log = open_log(make_runtime()[0])
    for number in range(6):
        data = batch(producer_id=7, producer_epoch=0, base_sequence=number)
        set_base_offset(data, 0, number)
        data[12:16] = b"\0\0\0\1"
        log.append_as_follower(data)
    info = log.append_as_leader(batch(producer_id=7, producer_epoch=0, base_sequence=3), 2, NOW_MS)
    assert (info.first_offset, info.duplicate) == (3, True)
    assert log.append_as_leader(batch(producer_id=7, producer_epoch=0, base_sequence=6), 2, NOW_MS).first_offset == 6


def test_truncation_forgets_the_batches_that_it_removes() -> None:
    runtime, _ = make_runtime()
    log = open_log(runtime)
    for number in range(40):
        produce(log, number)
    log.truncate_to(20)
    assert produce(log, 19).duplicate
    assert refusal(log, 25) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert produce(log, 20).first_offset == 20
    log.truncate_fully_and_start_at(100)
    assert produce(log, 77).first_offset == 100


def test_a_snapshot_has_the_whole_state() -> None:
    log = open_log(make_runtime()[0])
    for number in range(6):
        produce(log, number, producer_id=1)
        produce(log, number, producer_id=2, epoch=3)
    copy = ProducerStateManager()
    copy.load_snapshot(log.producers.encode_snapshot())
    assert copy.encode_snapshot() == log.producers.encode_snapshot()
    assert [(pid, entry.epoch, entry.batches) for pid, entry in copy.items()] == [
        (pid, entry.epoch, entry.batches) for pid, entry in log.producers.items()
    ]


def test_a_snapshot_with_one_flipped_byte_is_refused() -> None:
    log = open_log(make_runtime()[0])
    produce(log, 0)
    data = log.producers.encode_snapshot()
    for position in range(len(data)):
        broken = bytearray(data)
        broken[position] ^= 1
        with pytest.raises(CorruptSnapshotError):
            ProducerStateManager().load_snapshot(bytes(broken))
    for length in range(len(data)):
        with pytest.raises(CorruptSnapshotError):
            ProducerStateManager().load_snapshot(data[:length])


def test_batches_without_producer_leave_no_trace() -> None:
    log = open_log(make_runtime()[0])
    append(log, 3)
    assert len(log.producers) == 0


def test_a_producer_of_old_records_does_not_expire() -> None:
    """A producer of old records is not forgotten between a batch and its retry; an idle producer is, later."""
    log = open_log(make_runtime()[0])
    for number in range(3):
        produce(log, number)
        assert log.producers.expire(1_000 * number, 1_500) == 0
        assert produce(log, number).duplicate
    assert log.producers.expire(3_400, 1_500) == 0
    assert produce(log, 2).duplicate
    assert log.producers.expire(3_500, 1_500) == 1
    assert len(log.producers) == 0


def test_a_producer_without_a_marker_has_no_coordinator_epoch() -> None:
    """DescribeProducers says -1 then, and so do the snapshots of Apache Kafka."""
    runtime, _ = make_runtime()
    log = open_log(runtime)
    append(log, producer_id=0, producer_epoch=0, base_sequence=0)
    log.close()
    for found in (log, open_log(runtime, clean_shutdown=True)):
        entry = found.producers.get(0)
        assert entry is not None
        assert (entry.coordinator_epoch, entry.transaction_first_offset) == (-1, -1)


def test_a_producer_without_a_batch_is_in_a_snapshot_as_apache_kafka_writes_it() -> None:
    """Its last batch may have been deleted with its segment, and its epoch counts on."""
    producers = ProducerStateManager()
    data = batch(producer_id=7, producer_epoch=3, base_sequence=0)
    producers.update(read_header(data))
    entry = producers.get(7)
    assert entry is not None
    entry.batches.clear()
    snapshot = producers.encode_snapshot()
    (row,) = struct.iter_unpack(">qhiqiqiq", snapshot[10:])
    assert row == (7, 3, -1, -1, 0, 1000, -1, -1)
    again = ProducerStateManager()
    again.load_snapshot(snapshot)
    found = again.get(7)
    assert found is not None and (found.epoch, found.batches, found.last_timestamp) == (3, [], 1000)
