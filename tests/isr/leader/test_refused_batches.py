"""A producer goes on with the batch that was refused first."""

from __future__ import annotations

import pytest
from support.isr.replicas import make_runtime, open_log

from raftwerk.isr.leader.refused_batches import RefusedBatches
from raftwerk.log.partition_log import PartitionLog
from raftwerk.log.state.producer_state import ProducerStateManager
from raftwerk.wire.errors import ErrorCode, ProtocolError
from raftwerk.wire.records import NewRecord, encode_batch


def _batch(sequence: int, *, producer_id: int = 5, epoch: int = 0) -> memoryview:
    records = [NewRecord(None, b"x", (), 1_700_000_000_000)]
    made = encode_batch(records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
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
