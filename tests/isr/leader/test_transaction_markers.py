"""Transactions on replica managers: markers with acks=all, the last stable offset, and what read_committed reads."""

from __future__ import annotations

from typing import Any

import pytest
from support.isr.manager_cluster import Answer, Cluster, replicated_topic
from support.isr.replicas import WALL_MS

from raftwerk.isr.leader.transaction_markers import TransactionMarker
from raftwerk.log.state.transaction_verification import VerificationGuard
from raftwerk.wire.compression import Compression
from raftwerk.wire.errors import ErrorCode
from raftwerk.wire.records import encode_batch
from raftwerk.wire.types import TopicPartition

TP = TopicPartition("t", 0)
READ_COMMITTED = {"isolation_level": 1}


@pytest.fixture
def cluster() -> Cluster:
    return replicated_topic()[0]


def begin(cluster: Cluster, producer: int, sequence: int = 0, epoch: int = 0) -> VerificationGuard | None:
    replica = cluster.managers[1].partitions[TP]
    return replica.begin_verification(producer, epoch, sequence, supports_epoch_bump=False)


def write(cluster: Cluster, producer: int, sequence: int = 0, epoch: int = 0, value: bytes = b"v") -> Answer:
    guard = begin(cluster, producer, sequence, epoch)
    data = memoryview(
        encode_batch(
            [(None, value, (), WALL_MS)],
            producer_id=producer,
            producer_epoch=epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
    )
    answer = Answer()
    guards = {} if guard is None else {TP: guard}
    cluster.on_loop(cluster.managers[1].append, -1, 1000, [(TP, data)], answer, guards)
    return answer


def end(
    cluster: Cluster, producer: int, *, commit: bool = True, epoch: int = 0, node: int = 1, version: int = 0
) -> list[ErrorCode]:
    """The answers so far; one that is still to come is missing."""
    answers: list[ErrorCode] = []
    marker = TransactionMarker(producer, epoch, 1, commit, version)
    cluster.on_loop(cluster.managers[node].write_markers, 1000, [(TP, marker)], answers.extend)
    return answers


def test_markers_are_answered_when_they_are_committed(cluster: Cluster) -> None:
    write(cluster, 7)
    answers = end(cluster, 7)
    assert answers == []
    cluster.sleep(0.7)
    assert answers == [ErrorCode.NONE]
    logs = [manager.partitions[TP].log for manager in cluster.managers.values()]
    contents = [log.read(0, 10_000, end_offset=log.log_end_offset) for log in logs]
    assert contents[0] == contents[1] == contents[2]
    for log in logs:
        entry = log.producers.get(7)
        assert entry is not None
        assert (entry.coordinator_epoch, entry.transaction_first_offset) == (1, -1)


def test_a_marker_that_timed_out_is_told_of_when_it_is_committed(cluster: Cluster) -> None:
    write(cluster, 7)
    cluster.sleep(0.7)
    cluster.held[(2, 1)] = []
    cluster.sleep(0.7)
    events: list[Any] = []
    entry = TP, TransactionMarker(7, 0, 1, True, 0)
    unknown = TopicPartition("nowhere", 0), TransactionMarker(7, 0, 1, True, 0)
    cluster.on_loop(cluster.managers[1].write_markers, 700, [unknown, entry], events.append, events.append)
    cluster.sleep(0.8)
    assert events == [[ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.REQUEST_TIMED_OUT]]
    cluster.release(2, 1)
    cluster.sleep(1.5)
    assert events[1:] == [entry]


def test_markers_are_refused_one_by_one(cluster: Cluster) -> None:
    write(cluster, 7, epoch=3)
    answers: list[ErrorCode] = []
    entries = [
        (TP, TransactionMarker(7, 2, 1, True, 0)),
        (TP, TransactionMarker(7, 3, 1, True, 0)),
        (TopicPartition("nowhere", 0), TransactionMarker(7, 3, 1, True, 0)),
        (TP, TransactionMarker(7, 3, 0, True, 0)),
    ]
    cluster.on_loop(cluster.managers[1].write_markers, 1000, entries, answers.extend)
    cluster.sleep(0.7)
    assert answers == [
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.TRANSACTION_COORDINATOR_FENCED,
    ]
    assert end(cluster, -1) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING]
    assert end(cluster, 9, epoch=-1) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    assert end(cluster, 7, node=2) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


def test_the_last_stable_offset_stops_at_the_first_open_transaction(cluster: Cluster) -> None:
    cluster.produce(1, TP)
    write(cluster, 7)
    write(cluster, 8)
    cluster.sleep(0.7)
    stable = [manager.partitions[TP] for manager in cluster.managers.values()]
    assert [(one.last_stable_offset, one.high_watermark) for one in stable] == [(1, 3)] * 3
    end(cluster, 8)
    cluster.sleep(0.7)
    assert [one.last_stable_offset for one in stable] == [1] * 3
    end(cluster, 7)
    assert stable[0].last_stable_offset == 1, "until the marker is committed"
    cluster.sleep(0.7)
    assert [one.last_stable_offset for one in stable] == [5] * 3


def test_read_committed_reads_up_to_the_last_stable_offset(cluster: Cluster) -> None:
    cluster.produce(1, TP, b"plain")
    write(cluster, 7)
    cluster.sleep(0.7)
    row = cluster.consume(1, TP, 0, **READ_COMMITTED).row
    assert (row.high_watermark, row.last_stable_offset, row.aborted_transactions) == (2, 1, [])
    assert len(row.records) == len(cluster.managers[1].partitions[TP].log.read(0, 1, end_offset=9))
    assert not cluster.consume(1, TP, 1, **READ_COMMITTED).row.records
    row = cluster.consume(1, TP, 1).row
    assert (row.last_stable_offset, row.aborted_transactions) == (1, None)
    assert row.records
    assert cluster.managers[1].list_offset(TP, -1, isolation_level=1).offset == 1
    assert cluster.managers[1].list_offset(TP, -1).offset == 2
    assert cluster.managers[1].list_offset(TP, -1, replica_id=2).offset == 2


def test_aborted_transactions_are_named_where_they_have_records(cluster: Cluster) -> None:
    for producer in (7, 8):
        write(cluster, producer)
    end(cluster, 7, commit=False)
    end(cluster, 8, commit=False)
    cluster.produce(1, TP, b"plain")
    cluster.sleep(0.7)
    for node in (1, 2):

        def aborted(offset: int, max_bytes: int = 100_000) -> list[tuple[int, int]]:
            follower = {"from_follower_allowed": True}
            row = cluster.consume(node, TP, offset, max_bytes=max_bytes, **READ_COMMITTED, **follower).row  # noqa: B023
            return [tuple(one) for one in row.aborted_transactions]

        assert aborted(0) == [(7, 0), (8, 1)]
        assert aborted(0, max_bytes=1) == [(7, 0)], "the first batch only"
        assert aborted(3) == [(8, 1)]
        assert aborted(4) == aborted(5) == []


def test_a_fetch_that_waits_is_answered_when_the_transaction_ends(cluster: Cluster) -> None:
    write(cluster, 7)
    cluster.sleep(0.7)
    waiting = cluster.consume(1, TP, 0, max_wait_ms=60_000, **READ_COMMITTED)
    cluster.produce(1, TP)
    cluster.sleep(0.7)
    assert waiting.rows is None, "what was appended behind the transaction is no news"
    end(cluster, 7)
    cluster.sleep(0.7)
    row = waiting.row
    assert row.last_stable_offset == 3
    assert len(row.records) > 0


def test_a_marker_that_too_few_replicas_would_get_is_refused() -> None:
    cluster, topic_id = replicated_topic(default_min_isr=2)
    write(cluster, 7)
    cluster.sleep(0.7)
    cluster.change(topic_id, 0, isr=(1,))
    cluster.tell()
    assert end(cluster, 7) == [ErrorCode.NOT_ENOUGH_REPLICAS]
    assert cluster.managers[1].partitions[TP].last_stable_offset == 0


def test_without_verification_a_batch_needs_no_guard(cluster: Cluster) -> None:
    cluster.managers[1].verifies_transactions = False
    data = encode_batch(
        [(None, b"v", (), WALL_MS)], producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True
    )
    answer = Answer()
    cluster.on_loop(cluster.managers[1].append, 1, 1000, [(TP, memoryview(data))], answer)
    assert answer.error == 0
    cluster.managers[1].verifies_transactions = True
    data = encode_batch(
        [(None, b"v", (), WALL_MS)], producer_id=8, producer_epoch=0, base_sequence=0, is_transactional=True
    )
    answer = Answer()
    cluster.on_loop(cluster.managers[1].append, 1, 1000, [(TP, memoryview(data))], answer)
    assert answer.error == ErrorCode.INVALID_TXN_STATE


def test_a_move_to_another_directory_keeps_what_is_open_and_what_is_asked() -> None:
    cluster, _ = replicated_topic(dirs=("n", "m"))
    write(cluster, 7)
    cluster.sleep(0.7)
    cluster.mute = {(2, 1): None, (3, 1): None}
    guard = begin(cluster, 8)
    answers = end(cluster, 7)
    manager = cluster.managers[1]
    replica = manager.partitions[TP]
    before = replica.log.directory
    cluster.on_loop(manager.move_to_dir, TP, "/m1" if before.startswith("/n1") else "/n1")
    cluster.sleep(0.7)
    assert replica.log.directory != before
    assert (replica.last_stable_offset, replica.high_watermark) == (0, 1), "the marker is not committed yet"
    assert begin(cluster, 8) is guard
    write(cluster, 9)
    cluster.mute.clear()
    cluster.kill_links(2)
    cluster.kill_links(3)
    cluster.sleep(2.0)
    assert answers == [ErrorCode.NONE]
    assert replica.last_stable_offset == 2, "producer 9 has a transaction open there"


@pytest.mark.parametrize("ends_meanwhile", [False, True])
def test_a_guard_waits_for_the_thread_that_validates_its_batch(cluster: Cluster, ends_meanwhile: bool) -> None:
    guard = begin(cluster, 7)
    assert guard is not None
    data = encode_batch(
        [(None, bytes(300_000), (), WALL_MS)],
        compression=Compression.ZSTD,
        producer_id=7,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )
    answer = Answer()
    cluster.on_loop(cluster.managers[1].append, 1, 1000, [(TP, memoryview(data))], answer, {TP: guard})
    assert answer.rows is None
    if ends_meanwhile:
        end(cluster, 7, commit=False)
    cluster.sleep(0.7)
    assert answer.error == (ErrorCode.INVALID_TXN_STATE if ends_meanwhile else 0)
    assert cluster.managers[1].partitions[TP].log.producers.has_open_transaction(7, 0) != ends_meanwhile


def test_late_transactions_are_counted(cluster: Cluster) -> None:
    write(cluster, 7)
    cluster.sleep(0.7)
    manager = cluster.managers[1]
    assert manager.late_transactions(0) == 0
    assert manager.late_transactions(-1) == 1, "the clock stands still here"
    assert cluster.managers[2].late_transactions(-1) == 0, "it does not lead"
    end(cluster, 7)
    assert manager.late_transactions(-1) == 0
