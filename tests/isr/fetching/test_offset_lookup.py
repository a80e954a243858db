"""ListOffsets on replica managers: the special timestamps of the protocol, and what a consumer may be told."""

from __future__ import annotations

import pytest
from support.isr.manager_cluster import Cluster
from support.isr.replicas import WALL_MS

from raftwerk.isr.results import ListOffsetResult
from raftwerk.wire.errors import ErrorCode
from raftwerk.wire.records import NewRecord, encode_batch
from raftwerk.wire.types import TopicPartition

TP = TopicPartition("t", 0)
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
LATEST = -1
NOTHING = ListOffsetResult(0, -1, -1, -1)


@pytest.fixture
def leader() -> Cluster:
    """A broker that leads a partition alone; its log begins at offset 1, and an open transaction at offset 3."""
    made = Cluster(nodes=(1,))
    manager = made.boot(1)
    manager.verifies_transactions = False
    made.create_topic("t", 7, (1,))
    made.tell()
    made.sleep(0.1)
    for _ in range(3):
        made.produce(1, TP)
    record = NewRecord(None, b"v", (), WALL_MS + 1000)
    made.produce_batch(
        1, TP, encode_batch([record], producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    )
    made.on_loop(manager.delete_records, TP, 1)
    return made


@pytest.mark.parametrize(
    ("timestamp", "expected"),
    [
        (-1, ListOffsetResult(0, -1, 4, 0)),
        (-2, ListOffsetResult(0, -1, 1, 0)),
        (-3, ListOffsetResult(0, WALL_MS + 1000, 3, 0)),
        (-4, ListOffsetResult(0, -1, 1, 0)),
        (-5, NOTHING),
        (-6, NOTHING),
        (-7, ListOffsetResult(int(ErrorCode.INVALID_REQUEST), -1, -1, -1)),
    ],
)
def test_special_timestamps_mean_what_the_protocol_says(
    leader: Cluster, timestamp: int, expected: ListOffsetResult
) -> None:
    """Latest, earliest, the largest timestamp, earliest on this disk; nothing is in other storage (KIP-405)."""
    assert leader.managers[1].list_offset(TP, timestamp) == expected


@pytest.mark.parametrize(
    ("isolation_level", "replica_id", "end_offset"),
    [(READ_UNCOMMITTED, -1, 4), (READ_COMMITTED, -1, 3), (READ_COMMITTED, 2, 4)],
)
def test_a_consumer_of_committed_transactions_is_told_the_end_of_what_it_may_read(
    leader: Cluster, isolation_level: int, replica_id: int, end_offset: int
) -> None:
    """Else its lag would never be zero while a transaction is open. A replica copies all of the log."""
    manager = leader.managers[1]
    found = manager.list_offset(TP, LATEST, isolation_level=isolation_level, replica_id=replica_id)
    assert found.offset == end_offset


def test_a_record_of_an_open_transaction_is_found_by_its_time_only_by_those_who_may_read_it(leader: Cluster) -> None:
    manager = leader.managers[1]
    assert manager.list_offset(TP, WALL_MS + 1) == ListOffsetResult(0, WALL_MS + 1000, 3, 0)
    assert manager.list_offset(TP, WALL_MS + 1, isolation_level=READ_COMMITTED) == NOTHING
    assert manager.list_offset(TP, WALL_MS, isolation_level=READ_COMMITTED) == ListOffsetResult(0, WALL_MS, 1, 0)
    assert manager.list_offset(TP, WALL_MS + 1001) == NOTHING
