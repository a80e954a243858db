"""What the simulator checks of transactions, on logs that only hold batches."""

from __future__ import annotations

from typing import Any, cast

import pytest
from support.chaos.led_partitions import Led, data, marker

from raftwerk.broker.transactions.transaction_coordinator_shard import TransactionCoordinatorShard
from raftwerk.broker.transactions.transaction_metadata import TransactionMetadata, TransactionState
from raftwerk.broker.transactions.transaction_records import transaction_record
from raftwerk.chaos.sim.invariants.invariant_broken import InvariantBroken
from raftwerk.chaos.sim.invariants.transactions.coordinator_log import CoordinatorLog
from raftwerk.wire.records import NewRecord, encode_batch, read_header
from raftwerk.wire.types import TopicPartition

A, B = TopicPartition("a", 0), TopicPartition("b", 3)
EMPTY = TransactionMetadata(7, 0, 1000, last_update_ms=1)
ONGOING = EMPTY.with_partitions(frozenset({A}), 2, 5)
WIDE = EMPTY.with_partitions(frozenset({A, B}), 2, 5)


def led(*values: TransactionMetadata) -> Led:
    """A cluster whose coordinator has recorded these states of one id."""
    made = Led("a", "b")
    for value in values:
        made.record("t", value)
    return made


def prepared(value: TransactionMetadata, *, is_commit: bool = True) -> TransactionMetadata:
    state = TransactionState.PREPARE_COMMIT if is_commit else TransactionState.PREPARE_ABORT
    return value.ending(state, 2, 6)


def broken(name: str) -> Any:
    return pytest.raises(InvariantBroken, match=name)


def test_a_transaction_from_its_begin_to_its_end() -> None:
    cluster = led(EMPTY, WIDE)
    for key in (A, B):
        cluster.append(key, data(7, 0))
    ending = prepared(WIDE)
    cluster.record("t", ending)
    for key in (A, B):
        cluster.append(key, marker(7, 1))
    cluster.record("t", ending.completed(7))
    cluster.checker.check_initialized("w", "t", (7, 0), is_new=True)
    cluster.checker.check_ended("w", (7, 1), is_commit=True)
    assert cluster.checker.why_unsettled(cluster.logs.values()) is None


def test_a_partition_without_its_marker() -> None:
    cluster = led(EMPTY, WIDE, prepared(WIDE))
    cluster.append(A, marker(7, 1))
    with broken("a transaction is complete when all its markers are committed"):
        cluster.record("t", prepared(WIDE).completed(7))


def test_a_marker_that_is_not_committed() -> None:
    cluster = led(EMPTY, ONGOING, prepared(ONGOING))
    cluster.append(A, marker(7, 1), is_committed=False)
    with broken("a transaction is complete when all its markers are committed"):
        cluster.record("t", prepared(ONGOING).completed(7))


def test_a_marker_of_a_former_transaction_with_the_same_epoch() -> None:
    """A client below version 2 keeps its epoch."""
    begun = EMPTY.with_partitions(frozenset({A}), 1, 5)
    ending = begun.ending(TransactionState.PREPARE_COMMIT, 1, 6)
    cluster = led(EMPTY, begun, ending)
    cluster.append(A, marker(7, 0))
    cluster.record("t", ending.completed(7))
    again = ending.completed(7).with_partitions(frozenset({A}), 1, 8)
    cluster.record("t", again)
    cluster.record("t", again.ending(TransactionState.PREPARE_COMMIT, 1, 9))
    with broken("a transaction is complete when all its markers are committed"):
        cluster.record("t", again.ending(TransactionState.PREPARE_COMMIT, 1, 9).completed(10))


def test_a_deleted_topic_needs_no_marker() -> None:
    cluster = led(EMPTY, WIDE, prepared(WIDE))
    cluster.append(A, marker(7, 1))
    cluster.show_topics("__transaction_state", "a")
    cluster.record("t", prepared(WIDE).completed(7))


def test_a_partition_with_a_later_epoch_needs_no_marker() -> None:
    cluster = led(EMPTY, WIDE)
    cluster.append(B, data(7, 5, is_transactional=False))
    cluster.record("t", prepared(WIDE))
    cluster.append(A, marker(7, 1))
    cluster.record("t", prepared(WIDE).completed(7))


def test_a_transaction_that_no_coordinator_knows() -> None:
    with broken("only a transaction that its coordinator knows is opened in a partition"):
        led(EMPTY, ONGOING).append(B, data(7, 0))
    with broken("only a transaction that its coordinator knows is opened in a partition"):
        led().append(A, data(7, 0))
    ended = led(EMPTY, ONGOING, prepared(ONGOING))
    ended.append(A, marker(7, 1))
    ended.record("t", prepared(ONGOING).completed(7))
    with broken("only a transaction that its coordinator knows is opened in a partition"):
        ended.append(A, data(7, 1))


def test_a_late_marker_does_not_end_the_next_transaction() -> None:
    begun = EMPTY.with_partitions(frozenset({A}), 1, 5)
    ending = begun.ending(TransactionState.PREPARE_COMMIT, 1, 6)
    cluster = led(EMPTY, begun, ending)
    cluster.append(A, marker(7, 0))
    cluster.record("t", ending.completed(7))
    cluster.record("t", ending.completed(7).with_partitions(frozenset({A}), 1, 8))
    cluster.append(A, data(7, 0))
    with broken("a marker ends the transaction that it is of"):
        cluster.append(A, marker(7, 0))


def test_a_producer_of_a_former_epoch() -> None:
    cluster = led()
    cluster.append(A, data(7, 2, is_transactional=False))
    with broken("a producer of a former epoch writes nothing"):
        cluster.append(A, data(7, 1, is_transactional=False))
    cluster = led(EMPTY, ONGOING, prepared(ONGOING))
    cluster.append(A, marker(7, 1))
    with broken("a producer of a former epoch writes nothing"):
        cluster.append(A, data(7, 0))


def test_a_gap_in_the_sequence() -> None:
    cluster = led(EMPTY, ONGOING)
    cluster.append(A, data(7, 0))
    with broken("a producer's batches follow each other"):
        cluster.append(A, data(7, 0, 2))


def test_a_batch_outside_of_the_open_transaction() -> None:
    cluster = led(EMPTY, ONGOING)
    cluster.append(A, data(7, 0))
    with broken("what belongs to an open transaction is in it"):
        cluster.append(A, data(7, 0, 1, is_transactional=False))


def test_a_marker_of_another_epoch() -> None:
    cluster = led(EMPTY, ONGOING, prepared(ONGOING))
    cluster.append(A, data(7, 0))
    cluster.checker.decisions._marked[(7, 5), True] = {A: None}
    with broken("a marker is of the epoch of its transaction"):
        cluster.append(A, marker(7, 5))


def test_a_marker_of_a_former_coordinator() -> None:
    cluster = led(EMPTY, ONGOING, prepared(ONGOING))
    cluster.append(A, marker(7, 1, coordinator_epoch=3))
    with broken("a marker of a former coordinator is not written"):
        cluster.append(A, marker(7, 1, coordinator_epoch=2))


def test_a_last_stable_offset_that_is_wrong() -> None:
    cluster = led(EMPTY, ONGOING)
    cluster.append(A, data(7, 0))
    log = cluster.logs[A]
    log.check_stable_offset()
    cast(Any, log.replica).last_stable_offset = 1
    with broken("records are stable up to the first open transaction"):
        log.check_stable_offset()


def test_a_record_that_does_not_follow_the_one_before() -> None:
    with broken("each record of a transactional id follows the one before by the protocol"):
        led(EMPTY, ONGOING, prepared(ONGOING), prepared(ONGOING, is_commit=False))


def test_a_producer_id_that_another_id_has() -> None:
    with broken("a producer id has one transactional id"):
        led(EMPTY).record("u", EMPTY)


def test_epochs_that_are_granted() -> None:
    cluster = led(EMPTY)
    with broken("a granted epoch is recorded, and nobody had it before"):
        cluster.checker.check_initialized("w", "t", (7, 1), is_new=True)
    cluster.checker.check_initialized("w", "t", (7, 0), is_new=True)
    cluster.checker.check_initialized("w", "t", (7, 0), is_new=False)
    with broken("a granted epoch is recorded, and nobody had it before"):
        cluster.checker.check_initialized("another", "t", (7, 0), is_new=False)
    with broken("a granted epoch is recorded, and nobody had it before"):
        cluster.checker.check_initialized("w", "t", (7, 0), is_new=True)


def test_an_end_that_gives_the_epoch_of_another_client() -> None:
    cluster = led(EMPTY, EMPTY.with_epoch(1, -1, 1000, 2))
    cluster.checker.check_initialized("successor", "t", (7, 1), is_new=True)
    with broken("a granted epoch is recorded, and nobody had it before"):
        cluster.checker.check_ended("zombie", (7, 1), is_commit=False)


def test_a_producer_whose_successor_was_answered() -> None:
    cluster = led(EMPTY, ONGOING, prepared(ONGOING, is_commit=False))
    cluster.append(A, data(7, 0))
    cluster.append(A, marker(7, 1, is_commit=False))
    cluster.record("t", prepared(ONGOING, is_commit=False).completed(7))
    cluster.record("t", EMPTY.with_epoch(2, -1, 1000, 8))
    cluster.checker.check_initialized("successor", "t", (7, 2), is_new=True)
    with broken("a producer whose successor was answered writes nothing"):
        cluster.append(B, data(7, 1))


def test_what_is_open_for_too_long() -> None:
    cluster = led(EMPTY, ONGOING)
    cluster.append(A, data(7, 0))
    assert cluster.checker.why_unsettled(cluster.logs.values()) is None
    cluster.now_s = 5.0
    assert cluster.checker.why_unsettled(cluster.logs.values()) == (
        "t is in ONGOING of 7 epoch 0, client 2 [a-0] since 5"
    )
    cluster = led(EMPTY)
    cluster.checker.is_blind = True
    cluster.append(A, data(7, 0))
    assert cluster.checker.why_unsettled(cluster.logs.values()) is None


def test_data_of_a_transaction_that_is_complete() -> None:
    cluster = led(EMPTY)
    cluster.checker._is_verified = False
    cluster.append(A, data(7, 0))
    assert cluster.checker.why_unsettled(cluster.logs.values()) == (
        "a-0: open since 0 is 7 epoch 0, its coordinator has EMPTY of 7 epoch 0, client 0 [] since -1"
    )


def shard(*values: TransactionMetadata) -> TransactionCoordinatorShard:
    made = TransactionCoordinatorShard(0, 0, lambda: 7)
    for value in values:
        record = transaction_record("t", value, 2)
        made.replay(record.key, record.value)
    return made


def batch_of(value: TransactionMetadata) -> bytes:
    record = transaction_record("t", value, 2)
    return bytes(encode_batch([NewRecord(record.key, record.value, (), 0)]))


def test_the_memory_of_a_coordinator() -> None:
    log = CoordinatorLog()
    log.load(batch_of(EMPTY))
    log.check_memory(shard(EMPTY), "here")
    for wrong in (shard(), shard(EMPTY, EMPTY._replace(timeout_ms=1))):
        with broken("the memory of a coordinator is what its log says"):
            log.check_memory(wrong, "here")


def test_a_write_that_was_not_committed_in_time_may_be_passed_over() -> None:
    """The coordinator goes on from the state before; but not once it has taken the record up."""
    for committed_s, is_taken_up in ((0.5, True), (6.0, False)):
        log = CoordinatorLog()
        for value in (EMPTY, ONGOING):
            log.load(batch_of(value))
        commits, aborts = (prepared(ONGOING, is_commit=one) for one in (True, False))
        log.append(read_header(batch_of(commits)), batch_of(commits), 0.0, None, "here")
        log.on_committed(1, committed_s)
        if is_taken_up:
            with broken("each record of a transactional id follows the one before by the protocol"):
                log.append(read_header(batch_of(aborts)), batch_of(aborts), 7.0, None, "here")
        else:
            log.append(read_header(batch_of(aborts)), batch_of(aborts), 7.0, shard(ONGOING), "here")
