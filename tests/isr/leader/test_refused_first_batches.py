"""A producer that the log does not know begins with the batch that was refused first."""

from __future__ import annotations

import pytest
from support.isr.replicas import make_runtime, open_log

from raftwerk.isr.leader.refused_first_batches import RefusedFirstBatches
from raftwerk.log.state.producer_state import ProducerStateManager
from raftwerk.wire.errors import ErrorCode, ProtocolError
from raftwerk.wire.records import NewRecord, encode_batch


def _batch(sequence: int, *, producer_id: int = 5, epoch: int = 0) -> memoryview:
    records = [NewRecord(None, b"x", (), 1_700_000_000_000)]
    made = encode_batch(records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
    return memoryview(bytearray(made))


@pytest.fixture
def refused() -> RefusedFirstBatches:
    made = RefusedFirstBatches()
    assert not made.producers
    made.note(_batch(3), ProducerStateManager(), 1_000)
    made.note(_batch(4), ProducerStateManager(), 1_001)
    assert made.producers
    return made


def _is_refused(
    refused: RefusedFirstBatches, batch: memoryview, known: ProducerStateManager, now_ms: int = 1_002
) -> bool:
    try:
        refused.check(batch, known, now_ms)
    except ProtocolError as error:
        assert error.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        return True
    return False


def test_later_batches_are_refused_until_the_first_one_comes(refused: RefusedFirstBatches) -> None:
    known = ProducerStateManager()
    assert _is_refused(refused, _batch(4), known)
    assert _is_refused(refused, _batch(5), known)
    assert not _is_refused(refused, _batch(3), known)
    assert not refused.producers


@pytest.mark.parametrize("batch", [_batch(0), _batch(4, epoch=1), _batch(4, producer_id=6), _batch(-1, producer_id=-1)])
def test_other_producers_and_epochs_are_not_refused(refused: RefusedFirstBatches, batch: memoryview) -> None:
    assert not _is_refused(refused, batch, ProducerStateManager())


def test_a_producer_that_gave_the_batch_up_goes_on_after_a_minute(refused: RefusedFirstBatches) -> None:
    assert _is_refused(refused, _batch(4), ProducerStateManager(), 60_000)
    assert not _is_refused(refused, _batch(4), ProducerStateManager(), 62_000)


def test_producers_that_the_log_knows_are_not_checked(refused: RefusedFirstBatches) -> None:
    runtime, _ = make_runtime()
    log = open_log(runtime)
    log.append_as_leader(_batch(3), 0, 1_700_000_000_000)
    assert not _is_refused(refused, _batch(4), log.producers)
    later = RefusedFirstBatches()
    later.note(_batch(4), log.producers, 1_000)
    assert not later.producers


def test_memory_is_bounded_and_bytes_that_are_no_batch_are_ignored() -> None:
    refused, known = RefusedFirstBatches(), ProducerStateManager()
    refused.note(memoryview(b"no batch at all"), known, 0)
    assert not refused.producers
    for producer_id in range(1_001):
        refused.note(_batch(3, producer_id=producer_id), known, 0)
    assert not _is_refused(refused, _batch(4, producer_id=0), known)
    assert _is_refused(refused, _batch(4, producer_id=1), known)
