"""A shard of the transaction coordinator, and what is late: markers of former transactions, ends of former writes."""

from __future__ import annotations

import pytest

from raftwerk.broker.coordinators.effects import Persist
from raftwerk.broker.transactions.transaction_coordinator_shard import (
    Effect,
    PendingWrite,
    RetryCompletion,
    TransactionCoordinatorShard,
    WriteMarkers,
)
from raftwerk.broker.transactions.transaction_decisions import InitRequest, Producer
from raftwerk.broker.transactions.transaction_metadata import TransactionState
from raftwerk.wire.errors import ErrorCode
from raftwerk.wire.types import TopicPartition

A, B = TopicPartition("flights", 0), TopicPartition("flights", 1)
STATE = TransactionState


class Written:
    """A shard whose writes are committed one by one; `value` is the last durable state of the id `t`."""

    def __init__(self) -> None:
        self.shard = TransactionCoordinatorShard(0, 1, lambda: 7)
        self.shard.transaction_version = 2
        self.shard.finish_loading(0)
        self.effects: list[Effect] = []

    def state(self) -> TransactionState | None:
        value = self.shard.current("t")
        return None if value is None else value.state

    @property
    def producer(self) -> Producer:
        value = self.shard.current("t")
        assert value is not None
        return Producer(value.producer_id, value.producer_epoch)

    def commit(self, error: ErrorCode = ErrorCode.NONE) -> None:
        """The end of the write under way."""
        (write,) = [effect for effect in self.shard.drain() if isinstance(effect, Persist)]
        self.shard.on_persisted(write.tag, error, 0)

    def end(self) -> Producer:
        """Begin a transaction, and decide its end; returns whom the markers carry."""
        if self.state() is None:
            self.shard.init_producer_id("init", "t", InitRequest(60_000), 0)
            self.commit()
        client = self.producer
        self.shard.add_partitions("add", "t", client, frozenset({A, B}), 2, 0)
        self.commit()
        self.shard.end("end", "t", client, True, 2, 0)
        self.commit()
        assert self.state() is STATE.PREPARE_COMMIT
        return self.producer


@pytest.fixture
def written() -> Written:
    return Written()


def test_a_transaction_is_complete_when_each_partition_has_its_marker(written: Written) -> None:
    producer = written.end()
    (markers,) = [effect for effect in written.shard.drain() if isinstance(effect, WriteMarkers)]
    assert markers.value.partitions == {A, B}
    for _ in range(2):
        written.shard.on_marked("t", producer, [A], 0)
        assert not written.shard.drain()
    written.shard.on_marked("t", producer, [B], 0)
    written.commit()
    assert written.state() is STATE.COMPLETE_COMMIT
    written.shard.on_marked("t", producer, [A, B], 0)
    assert not written.shard.drain(), "markers are answered twice"


def test_late_markers_of_a_former_transaction_do_not_complete_the_next_one(written: Written) -> None:
    """They were sent twice, and the second answer comes while the next transaction is ending."""
    former = written.end()
    written.shard.drain()
    written.shard.on_marked("t", former, [A, B], 0)
    written.commit()
    producer = written.end()
    written.shard.drain()
    assert producer != former
    written.shard.on_marked("t", former, [A, B], 0)
    assert not written.shard.drain()
    written.shard.on_marked("unknown", producer, [A, B], 0)
    assert not written.shard.drain()
    written.shard.on_marked("t", producer, [A, B], 0)
    written.commit()
    assert written.state() is STATE.COMPLETE_COMMIT


def test_the_end_that_cannot_be_recorded_is_recorded_later(written: Written) -> None:
    producer = written.end()
    written.shard.drain()
    written.shard.on_marked("t", producer, [A, B], 0)
    written.commit(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert [effect for effect in written.shard.drain() if isinstance(effect, RetryCompletion)]
    assert written.state() is STATE.PREPARE_COMMIT
    written.shard.complete("t", 0)
    written.shard.complete("t", 0)
    written.commit()
    assert written.state() is STATE.COMPLETE_COMMIT
    written.shard.complete("t", 0)
    assert not written.shard.drain()


def test_a_first_write_that_fails_leaves_no_id(written: Written) -> None:
    written.shard.init_producer_id("init", "t", InitRequest(60_000), 0)
    written.commit(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert written.shard.entries == {}


def test_a_write_that_ends_after_the_shard_was_closed_changes_nothing(written: Written) -> None:
    written.shard.init_producer_id("init", "t", InitRequest(60_000), 0)
    (write,) = [effect for effect in written.shard.drain() if isinstance(effect, Persist)]
    written.shard.close(ErrorCode.NOT_COORDINATOR)
    assert isinstance(write.tag, PendingWrite)
    written.shard.on_persisted(write.tag, ErrorCode.NONE, 0)
    assert written.shard.entries == {}
    assert written.state() is None
