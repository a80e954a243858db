"""How much a fetch gets, and what it waits for."""

from __future__ import annotations

import pytest
from support.isr.manager_cluster import Cluster
from support.isr.replicas import WALL_MS

from raftwerk.log.config import LogConfig
from raftwerk.wire.records import NewRecord, encode_batch
from raftwerk.wire.types import TopicPartition

ONE, TWO = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def leader() -> Cluster:
    """A broker that leads two partitions alone, and lets producers open transactions."""
    return alone_with_segments_of(1 << 30)


def alone_with_segments_of(size_bytes: int) -> Cluster:
    made = Cluster(nodes=(1,), default_log_config=LogConfig(segment_bytes=size_bytes))
    made.boot(1)
    made.managers[1].verifies_transactions = False
    made.create_topic("t", 7, (1,), 2)
    made.tell()
    made.sleep(0.1)
    return made


def transactional(sequence: int) -> bytearray:
    record = NewRecord(None, b"v", (), WALL_MS)
    return encode_batch([record], producer_id=7, producer_epoch=0, base_sequence=sequence, is_transactional=True)


def test_one_batch_is_always_sent_and_the_limit_holds_for_the_rest(leader: Cluster) -> None:
    """Else a consumer with a small limit would never get past a large batch (KIP-74)."""
    for key in (ONE, TWO):
        leader.produce(1, key, b"x" * 1_000)
    answer = leader.consume_all(1, {ONE: 0, TWO: 0}, max_bytes=100)
    assert answer.rows is not None
    assert [bool(row.records) for row in answer.rows] == [True, False]


def test_a_consumer_of_committed_transactions_does_not_wait_for_open_ones(leader: Cluster) -> None:
    leader.produce_batch(1, ONE, transactional(0))
    committed = leader.consume(1, ONE, 0, max_wait_ms=300, isolation_level=1)
    anything = leader.consume(1, ONE, 1, max_wait_ms=300)
    assert leader.produce_batch(1, ONE, transactional(1)).error == 0
    assert anything.row.records
    assert committed.rows is None
    leader.sleep(0.31)
    assert not committed.row.records
    assert (committed.row.high_watermark, committed.row.last_stable_offset) == (2, 0)


@pytest.mark.parametrize(
    ("batches", "open_transaction", "is_answered"),
    [
        (10, False, True),
        (4, False, False),  # all are in the first segment
        (5, True, False),  # the second one begins with the transaction
        (6, True, True),
    ],
)
def test_a_fetch_does_not_wait_for_more_than_the_rest_of_a_segment(
    batches: int, open_transaction: bool, is_answered: bool
) -> None:
    """An answer holds records of one segment, and it does not grow any more if there are committed ones behind it."""
    leader = alone_with_segments_of(5_000)
    for _ in range(batches - open_transaction):
        leader.produce(1, ONE, b"x" * 1_000)
    if open_transaction:
        leader.produce_batch(1, ONE, transactional(0))
    answer = leader.consume(1, ONE, 0, max_wait_ms=30_000, min_bytes=50_000, isolation_level=1)
    assert bool(answer.rows) is is_answered


def test_what_is_appended_to_the_next_segment_counts_for_a_fetch_that_waits() -> None:
    """At the end of a segment, and in front of its last batch."""
    leader = alone_with_segments_of(5_000)
    for _ in range(4):
        leader.produce(1, ONE, b"x" * 1_000)
    at_end = leader.consume(1, ONE, 4, max_wait_ms=30_000, min_bytes=1_500)
    before_it = leader.consume(1, ONE, 3, max_wait_ms=30_000, min_bytes=2_500)
    leader.produce(1, ONE, b"x" * 1_000)
    assert leader.managers[1].find(ONE).log.has_later_segment(0, 5)
    assert at_end.rows is None and before_it.rows is None
    leader.produce(1, ONE, b"x" * 1_000)
    assert len(at_end.row.records or b"") > 2_000
    assert 1_000 < len(before_it.row.records or b"") < 2_000


def test_the_beginning_of_a_transaction_is_no_news_for_a_consumer_of_committed_ones(leader: Cluster) -> None:
    """It would get an empty answer, and fetch again, for each transaction of the topic."""
    leader.produce(1, ONE)
    committed = leader.consume(1, ONE, 1, max_wait_ms=300, isolation_level=1)
    assert leader.produce_batch(1, ONE, transactional(0)).error == 0
    assert committed.rows is None


def test_whether_transactions_are_verified_is_a_setting(leader: Cluster) -> None:
    manager = leader.managers[1]
    assert not manager.verifies_transactions
    manager.verifies_transactions = True
    assert manager.verifies_transactions
    assert leader.produce_batch(1, ONE, transactional(0)).error != 0


def test_what_is_not_known_is_minus_one(leader: Cluster) -> None:
    """As clients expect it beside an error."""
    manager, unknown, code = leader.managers[1], TopicPartition("nowhere", 0), 3
    assert tuple(manager.list_offset(unknown, -1)) == (code, -1, -1, -1)
    assert tuple(manager.offset_for_leader_epoch(unknown, -1, 0)) == (code, -1, -1)
    assert tuple(leader.on_loop(manager.delete_records, unknown, 0)) == (code, -1, -1)
    assert tuple(manager.low_watermark(unknown)) == (code, -1, -1)
