"""Guards of transactional batches, and markers, as the log of a leader takes or refuses them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.log.logs import NOW_MS, batch, headers_of, make_runtime, open_log, read_all

from raftwerk.isr.leader.transaction_markers import TransactionMarker, encode_marker
from raftwerk.log.append_info import AppendInfo
from raftwerk.log.config import LogConfig
from raftwerk.log.partition_log import PartitionLog
from raftwerk.log.state.transaction_verification import VERIFICATION_OFF, VerificationGuard
from raftwerk.wire.compression import Compression
from raftwerk.wire.errors import ErrorCode, ProtocolError
from raftwerk.wire.records import TimestampType, encode_batch


@pytest.fixture
def log() -> PartitionLog:
    return open_log(make_runtime()[0])


def begin(log: PartitionLog, sequence: int = 0, epoch: int = 0, *, bumps: bool = True) -> VerificationGuard | None:
    return log.producers.begin_verification(7, epoch, sequence, supports_epoch_bump=bumps)


def write(
    log: PartitionLog, sequence: int, guard: VerificationGuard | None = None, epoch: int = 0, count: int = 1
) -> AppendInfo:
    data = batch(count, producer_id=7, producer_epoch=epoch, base_sequence=sequence, is_transactional=True)
    return log.append_as_leader(data, 0, NOW_MS, guard=guard)


def end(log: PartitionLog, *, epoch: int = 0, coordinator: int = 1, commit: bool = True, version: int = 0) -> None:
    marker = TransactionMarker(7, epoch, coordinator, commit, version)
    data = memoryview(encode_marker(marker, NOW_MS))
    log.append_as_leader(data, 0, NOW_MS, internal=True, transaction_version=marker.transaction_version)


class Refused:
    """A context in which an append must be refused with a code."""

    def __init__(self, code: ErrorCode) -> None:
        self.code = code

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> bool:
        assert isinstance(error, ProtocolError), "it was not refused"
        assert error.code is self.code
        return True


def test_a_transaction_is_opened_with_a_guard_only(log: PartitionLog) -> None:
    with Refused(ErrorCode.INVALID_TXN_STATE):
        write(log, 0)
    with Refused(ErrorCode.INVALID_TXN_STATE):
        write(log, 0, VerificationGuard())
    guard = begin(log)
    write(log, 0, guard)
    assert begin(log, 1) is None, "it is open: nothing needs to be asked"
    write(log, 1)
    assert not len(log.producers.verifications)


def test_a_batch_that_is_in_the_log_needs_no_guard(log: PartitionLog) -> None:
    write(log, 0, begin(log))
    end(log)
    assert write(log, 0).duplicate


@pytest.mark.parametrize("version", [0, 2])
def test_an_answer_that_comes_after_the_marker_lets_nothing_in(log: PartitionLog, version: int) -> None:
    """From version 2 on the marker has the next epoch."""
    bumps, epoch = version == 2, version // 2
    guard = begin(log, bumps=bumps)
    end(log, epoch=epoch, version=version)
    with Refused(ErrorCode.INVALID_TXN_STATE):
        write(log, 0, guard)
    again = begin(log, epoch=epoch, bumps=bumps)
    assert again is not guard
    with Refused(ErrorCode.INVALID_TXN_STATE):
        write(log, 0, guard, epoch=epoch)
    write(log, 0, again, epoch=epoch)


def test_the_marker_of_a_former_transaction_leaves_the_guard_of_the_next(log: PartitionLog) -> None:
    """A client is told of the end before its markers are written, and writes to its next transaction."""
    write(log, 0, begin(log))
    guard = begin(log, epoch=1)
    end(log, epoch=1, version=2)
    write(log, 0, guard, epoch=1)
    guard = begin(log, epoch=2)
    end(log, epoch=2, version=2)
    end(log, epoch=3, version=2, commit=False)  # the next transaction itself is aborted
    with Refused(ErrorCode.INVALID_TXN_STATE):
        write(log, 0, guard, epoch=2)
    assert not len(log.producers.verifications)


def test_a_guard_that_a_late_batch_shares_with_the_next_transaction_lets_it_not_in(log: PartitionLog) -> None:
    guard = begin(log)
    assert begin(log, epoch=1) is guard
    end(log, epoch=1, version=2)
    with Refused(ErrorCode.INVALID_PRODUCER_EPOCH):
        write(log, 0, guard)
    write(log, 0, guard, epoch=1)


def test_batches_that_wait_share_a_guard_and_the_first_must_come_first(log: PartitionLog) -> None:
    guard = begin(log, 3, bumps=False)
    assert begin(log, 0, bumps=False) is guard
    with Refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        write(log, 3, guard)
    write(log, 0, guard, count=3)
    write(log, 3)


@pytest.mark.parametrize("bumps", [False, True])
def test_a_batch_of_a_former_producer_that_waits_is_not_expected_before_those_of_its_successor(
    log: PartitionLog, bumps: bool
) -> None:
    """It comes while the transaction of the successor is open, and will be refused."""
    write(log, 0, begin(log, epoch=1, bumps=bumps), epoch=1)
    assert begin(log, 0, epoch=0, bumps=bumps) is not None
    write(log, 1, epoch=1)


def test_a_client_that_knows_of_epoch_bumps_begins_with_0_whatever_another_epoch_has_asked_for(
    log: PartitionLog,
) -> None:
    assert begin(log, 0, epoch=1, bumps=True) is not None
    guard = begin(log, 3, epoch=0, bumps=True)
    with pytest.raises(ProtocolError) as refused:
        write(log, 3, guard, epoch=0)
    assert refused.value.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    write(log, 0, guard, epoch=0)


def test_a_batch_that_is_in_the_log_and_comes_again_is_not_expected_once_more(log: PartitionLog) -> None:
    """With `transaction.version` 1 the next transaction has the same epoch."""
    write(log, 0, begin(log, 0, bumps=False))
    write(log, 1)
    end(log)
    late = begin(log, 0, bumps=False)
    assert begin(log, 2, bumps=False) is late
    write(log, 2, late)


def test_a_producer_without_batches_begins_with_0_where_epochs_are_bumped(log: PartitionLog) -> None:
    with Refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        write(log, 5, begin(log, 5))
    log.producers.clear()
    write(log, 5, begin(log, 5, bumps=False))


def test_without_verification_every_batch_may_open_a_transaction(log: PartitionLog) -> None:
    write(log, 0, VERIFICATION_OFF)
    end(log)
    write(log, 1, VERIFICATION_OFF)
    assert log.producers.has_open_transaction(7, 0)


def test_a_guard_expires(log: PartitionLog) -> None:
    guard = begin(log)
    log.producers.expire(1_000, 500)
    log.producers.expire(1_499, 500)
    assert begin(log) is guard
    log.producers.expire(1_500, 500)
    assert begin(log) is not guard


def test_a_batch_outside_of_the_open_transaction_is_refused(log: PartitionLog) -> None:
    write(log, 0, begin(log))
    with Refused(ErrorCode.INVALID_TXN_STATE):
        log.append_as_leader(batch(1, producer_id=7, producer_epoch=0, base_sequence=1), 0, NOW_MS)
    end(log)
    log.append_as_leader(batch(1, producer_id=7, producer_epoch=0, base_sequence=1), 0, NOW_MS)


@pytest.mark.parametrize(("version", "epoch"), [(0, 0), (1, 0), (1, 1), (2, 1)])
def test_markers_end_the_transaction(log: PartitionLog, version: int, epoch: int) -> None:
    write(log, 0, begin(log))
    end(log, epoch=epoch, version=version)
    assert log.producers.first_open_offset() is None
    entry = log.producers.get(7)
    assert entry is not None
    assert (entry.epoch, entry.coordinator_epoch) == (epoch, 1)
    assert entry.last_sequence == (0 if epoch == 0 else -1)


def test_markers_of_an_older_epoch_are_refused(log: PartitionLog) -> None:
    write(log, 0, begin(log, epoch=3), epoch=3)
    for version in (0, 1, 2):
        with Refused(ErrorCode.INVALID_PRODUCER_EPOCH):
            end(log, epoch=2, version=version)
    assert log.producers.first_open_offset() == 0


def test_a_late_marker_of_version_2_does_not_end_the_next_transaction(log: PartitionLog) -> None:
    write(log, 0, begin(log))
    end(log, epoch=1, version=2)
    write(log, 0, begin(log, epoch=1), epoch=1)
    with Refused(ErrorCode.INVALID_PRODUCER_EPOCH):
        end(log, epoch=1, version=2)
    end(log, epoch=2, version=2)


def test_a_marker_of_version_2_that_is_sent_again_is_taken_again(log: PartitionLog) -> None:
    write(log, 0, begin(log))
    end(log, epoch=1, version=2)
    end(log, epoch=1, version=2)
    assert log.log_end_offset == 3


def test_markers_of_an_older_coordinator_are_refused(log: PartitionLog) -> None:
    end(log, coordinator=5)
    write(log, 0, begin(log))
    with Refused(ErrorCode.TRANSACTION_COORDINATOR_FENCED):
        end(log, coordinator=4)
    end(log, coordinator=5)
    end(log, coordinator=6)


def test_a_coordinators_batches_have_no_sequence_numbers(log: PartitionLog) -> None:
    for _ in range(2):
        data = batch(2, producer_id=7, producer_epoch=0, is_transactional=True)
        log.append_as_leader(data, 0, NOW_MS, internal=True, guard=begin(log, -1))
    end(log)
    with Refused(ErrorCode.INVALID_TXN_STATE):
        log.append_as_leader(batch(1, producer_id=7, producer_epoch=0, is_transactional=True), 0, NOW_MS, internal=True)
    assert log.log_end_offset == 5


def test_a_marker_is_taken_however_small_batches_must_be(log: PartitionLog) -> None:
    """Otherwise a setting could leave a transaction open for ever."""
    log.config = replace(log.config, max_message_bytes=75)
    data = memoryview(
        encode_batch([(None, None, (), 0)], producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    )
    assert len(data) <= 75
    log.append_as_leader(data, 0, NOW_MS, guard=begin(log))
    end(log)
    assert log.producers.is_stable or log.producers.first_unstable_offset(2) is None


def test_guards_are_bounded(log: PartitionLog) -> None:
    """A client may name any number of producers that never write."""
    guards = [log.producers.begin_verification(producer, 0, 0, supports_epoch_bump=True) for producer in range(10_007)]
    assert len(log.producers.verifications) == 10_000
    assert begin(log) is guards[7]
    assert log.producers.begin_verification(6, 0, 0, supports_epoch_bump=True) is not guards[6]


def test_markers_of_a_topic_with_the_brokers_timestamps_and_a_codec() -> None:
    config = LogConfig(message_timestamp_type=TimestampType.LOG_APPEND_TIME, compression_type=Compression.ZSTD)
    log = open_log(make_runtime()[0], config)
    write(log, 0, begin(log))
    end(log, commit=False)
    assert log.producers.first_open_offset() is None
    assert [tuple(one) for one in log.aborted_transactions(0, 9)] == [(7, 0, 1, 2)]
    header = headers_of(read_all(log))[1]
    assert (header.is_control, header.compression, header.timestamp_type) == (True, 0, TimestampType.LOG_APPEND_TIME)
    entry = log.producers.get(7)
    assert entry is not None
    assert entry.last_timestamp == NOW_MS


def test_the_first_of_the_waiting_batches_may_have_the_last_sequence_number(log: PartitionLog) -> None:
    """Sequence numbers go on at 0. A client that does not know KIP-890 keeps them, also where the log has forgotten."""
    guard = begin(log, 0x7FFFFFFF, bumps=False)
    assert begin(log, 0, bumps=False) is guard
    with Refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        write(log, 0, guard)
    write(log, 0x7FFFFFFF, guard)
    write(log, 0)
    assert [header.base_sequence for header in headers_of(read_all(log))] == [0x7FFFFFFF, 0]
