"""What a coordinator learns of the records that it writes, on replicas of three brokers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import pytest
from support.isr.manager_cluster import Cluster, dispose_clusters, replicated_topic

from raftwerk.broker.coordinators.coordinator_partition_writer import (
    ProducerTransaction,
    coordinator_error,
    write_records,
)
from raftwerk.broker.coordinators.record_fields import CoordinatorRecord
from raftwerk.controller.metadata.metadata_records import ConfigRecord
from raftwerk.isr.replica import Replica
from raftwerk.log.config import LogConfig
from raftwerk.wire.errors import ErrorCode
from raftwerk.wire.records import iter_records, read_header
from raftwerk.wire.types import TopicPartition

TP = TopicPartition("t", 0)
WALL_MS = 1_700_000_000_000
RECORDS = (CoordinatorRecord(b"key", b"value"), CoordinatorRecord(b"gone", None))
TOO_LARGE = ErrorCode.INVALID_COMMIT_OFFSET_SIZE
COMMITTED = "committed"


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """Broker 1 leads t-0, which 2 and 3 follow."""
    yield replicated_topic()[0]
    dispose_clusters()


def write(
    cluster: Cluster, *records: CoordinatorRecord, node: int = 1, timeout_ms: int = 500,
    transaction: ProducerTransaction | None = None, tells_commit: bool = True,
) -> list[Any]:  # fmt: skip
    """What is told of the write, in order: that it is committed, and its error code."""
    events: list[Any] = []
    committed: Callable[[], None] | None = (lambda: events.append(COMMITTED)) if tells_commit else None
    cluster.on_loop(
        write_records, cluster.managers[node], TP, records or RECORDS, (WALL_MS, timeout_ms), events.append,
        transaction, committed,
    )  # fmt: skip
    return events


def replica(cluster: Cluster, node: int = 1) -> Replica:
    return cluster.managers[node].partitions[TP]


def test_records_are_told_when_all_in_sync_have_them_first_that_they_are_committed(cluster: Cluster) -> None:
    """What is committed is applied before the request is answered: its client may read at once."""
    events = write(cluster)
    assert events == []
    cluster.sleep(0.1)
    assert events == [COMMITTED, ErrorCode.NONE]
    log = replica(cluster, 3).log
    data = log.read(0, 10_000, end_offset=log.log_end_offset)
    found = [(bytes(one.key or b""), one.value, one.timestamp) for one in iter_records(data)]
    assert found == [(b"key", b"value", WALL_MS), (b"gone", None, WALL_MS)]
    assert not read_header(data).is_transactional
    without = write(cluster, tells_commit=False)
    cluster.sleep(0.1)
    assert without == [ErrorCode.NONE]


def test_records_that_are_not_committed_in_time_are_told_of_later(cluster: Cluster) -> None:
    """They are in the log, and the coordinator's memory has to have them when they are committed."""
    cluster.sleep(0.7)
    cluster.held[2, 1] = []
    cluster.sleep(0.7)
    first, second = write(cluster), write(cluster, timeout_ms=100)
    cluster.sleep(0.2)
    assert (first, second) == ([], [ErrorCode.REQUEST_TIMED_OUT])
    cluster.sleep(0.4)
    assert first == [ErrorCode.REQUEST_TIMED_OUT]
    cluster.release(2, 1)
    cluster.sleep(1.5)
    assert first == second == [ErrorCode.REQUEST_TIMED_OUT, COMMITTED]


def test_records_of_a_former_leader_are_not_told_to_be_committed(cluster: Cluster) -> None:
    """Another coordinator decides what becomes of them."""
    cluster.held.update({(2, 1): [], (3, 1): []})
    cluster.sleep(0.7)
    late, waiting = write(cluster, timeout_ms=100), write(cluster, timeout_ms=5_000)
    cluster.sleep(0.2)
    cluster.change(UUID(int=7), 0, leader=2)
    cluster.tell()
    cluster.held.clear()
    cluster.sleep(3.0)
    assert late == [ErrorCode.REQUEST_TIMED_OUT]
    assert waiting == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert write(cluster) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


def test_records_that_are_refused_are_not_committed(cluster: Cluster) -> None:
    cluster.records.append(ConfigRecord(2, "t", "min.insync.replicas", "3"))
    cluster.change(UUID(int=7), 0, isr=(1, 2))
    cluster.mute[3, 1] = None
    cluster.tell()
    assert write(cluster) == [ErrorCode.NOT_ENOUGH_REPLICAS]
    assert replica(cluster).log_end_offset == 0


@pytest.mark.parametrize(("limit", "is_taken"), [(1_000, True), (50, False), (11, False)])
def test_records_that_are_too_large_for_the_topic_are_not_appended(
    cluster: Cluster, limit: int, is_taken: bool
) -> None:
    """Their keys and values have twelve bytes, and their batch some eighty more."""
    replica(cluster).log.config = LogConfig(max_message_bytes=limit)
    events = write(cluster)
    assert events == ([] if is_taken else [ErrorCode.MESSAGE_TOO_LARGE])
    assert replica(cluster).log_end_offset == (2 if is_taken else 0)


def test_records_in_a_transaction_open_it_with_their_guard(cluster: Cluster) -> None:
    assert write(cluster, transaction=ProducerTransaction(7, 3)) == [ErrorCode.INVALID_TXN_STATE]
    guard = replica(cluster).begin_verification(7, 3, -1, supports_epoch_bump=False)
    assert guard is not None
    events = write(cluster, transaction=ProducerTransaction(7, 3, guard))
    cluster.sleep(0.1)
    assert events == [COMMITTED, ErrorCode.NONE]
    assert dict(replica(cluster).log.producers.open_transactions) == {7: 0}
    more = write(cluster, transaction=ProducerTransaction(7, 3))
    cluster.sleep(0.1)
    assert more == [COMMITTED, ErrorCode.NONE], "it is open"
    log = replica(cluster).log
    header = read_header(log.read(0, 10_000, end_offset=log.log_end_offset))
    assert (header.producer_id, header.producer_epoch, header.is_transactional) == (7, 3, True)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (ErrorCode.NONE, ErrorCode.NONE),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, TOO_LARGE),
        (ErrorCode.RECORD_LIST_TOO_LARGE, TOO_LARGE),
        (ErrorCode.INVALID_FETCH_SIZE, TOO_LARGE),
        (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_EPOCH),
    ],
)
def test_a_client_is_told_to_try_again_to_look_for_the_coordinator_or_what_is_wrong(
    code: ErrorCode, expected: ErrorCode
) -> None:
    """As Apache Kafka translates the errors of its log."""
    found = coordinator_error(int(code), TOO_LARGE)
    assert found is expected
