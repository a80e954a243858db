"""What a replica manager says of its replicas: for diagnostics, metrics and other parts of the broker."""

from __future__ import annotations

from uuid import UUID

import pytest
from support.isr.manager_cluster import replicated_topic
from support.isr.replicas import WALL_MS

from raftwerk.controller.metadata.metadata_records import ConfigRecord
from raftwerk.isr import replica_manager
from raftwerk.wire.errors import ErrorCode, ProtocolError
from raftwerk.wire.records import NewRecord, encode_batch
from raftwerk.wire.types import LeaderIdAndEpoch, TopicPartition

TP, NOWHERE = TopicPartition("t", 0), TopicPartition("nowhere", 0)


def test_a_replica_is_described_with_all_that_an_operator_asks_for_first() -> None:
    """Which offsets are committed, who is in sync, and how far each follower is."""
    cluster, topic_id = replicated_topic()
    cluster.managers[1].verifies_transactions = False
    for _ in range(3):
        cluster.produce(1, TP)
        cluster.sleep(0.1)
    record = NewRecord(None, b"v", (), WALL_MS)
    cluster.produce_batch(
        1, TP, encode_batch([record], producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    )
    cluster.sleep(0.1)
    cluster.on_loop(cluster.managers[1].delete_records, TP, 1)
    cluster.records.append(ConfigRecord(2, "t", "min.insync.replicas", "3"))
    cluster.mute[3, 1] = None
    cluster.change(topic_id, 0, isr=(1, 2))
    cluster.tell()
    cluster.sleep(0.6)
    cluster.produce(1, TP, acks=1)
    cluster.sleep(0.1)
    (leader,) = cluster.managers[1].describe()
    assert leader == {
        "topic": "t",
        "partition": 0,
        "topic_id": str(UUID(int=7)),
        "role": "leader",
        "leader": 1,
        "leader_epoch": 0,
        "partition_epoch": 1,
        "high_watermark": 4,
        "last_stable_offset": 3,
        "log_start_offset": 1,
        "log_end_offset": 5,
        "isr": [1, 2],
        "under_min_isr": True,
        "followers": {2: 5, 3: 4},
    }
    (follower,) = cluster.managers[2].describe()
    assert follower == {**leader, "role": "follower", "isr": [], "under_min_isr": False, "followers": {}}
    cluster.on_loop(
        cluster.managers[2].on_replica_failed, cluster.managers[2].partitions[TP], OSError(5, "Input/output error")
    )
    assert cluster.managers[2].describe()[0]["role"] == "offline"


def test_the_high_watermark_of_a_replica_that_is_not_here_is_not_known() -> None:
    cluster, _ = replicated_topic(replicas=(1, 2))
    cluster.produce(1, TP)
    cluster.sleep(1.0)
    assert [cluster.managers[node].high_watermark_of(TP) for node in (1, 2, 3)] == [1, 1, None]


def test_a_replica_that_cannot_be_used_is_not_found_and_the_reason_is_told() -> None:
    cluster, _ = replicated_topic(replicas=(1, 2))
    manager = cluster.managers[1]
    assert manager.find(TP) is manager.partitions[TP]
    cluster.on_loop(manager.on_replica_failed, manager.partitions[TP], OSError(5, "Input/output error"))
    for node, tp, code in (
        (1, TP, ErrorCode.KAFKA_STORAGE_ERROR),
        (3, TP, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (1, NOWHERE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ):
        with pytest.raises(ProtocolError) as refused:
            cluster.managers[node].find(tp)
        assert refused.value.code is code


def test_a_log_that_has_failed_is_told_to_the_broker_once_and_answers_with_the_same_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster, _ = replicated_topic()
    manager = cluster.managers[1]

    def fail(*_: object, **__: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(manager.partitions[TP].log, "append_as_leader", fail)
    code = ErrorCode.KAFKA_STORAGE_ERROR
    assert [cluster.produce(1, TP).error for _ in range(2)] == [code, code]
    assert cluster.consume(1, TP, 0).error == code
    assert manager.list_offset(TP, -1).error_code == code
    assert manager.offset_for_leader_epoch(TP, 0, 0).error_code == code
    assert cluster.on_loop(manager.delete_records, TP, 0).error_code == code
    assert manager.low_watermark(TP).error_code == code
    assert cluster.storage_errors == [TP]


def test_a_log_that_cannot_tell_an_offset_is_taken_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """ListOffsets reads the log's indexes: it may be the first to meet a broken disk."""
    cluster, _ = replicated_topic()
    cluster.produce(1, TP)
    cluster.sleep(0.1)
    manager = cluster.managers[1]

    def fail(*_: object, **__: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(manager.partitions[TP].log, "offset_for_timestamp", fail)
    assert cluster.on_loop(manager.list_offset, TP, 0).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert manager.partitions[TP].offline
    assert cluster.storage_errors == [TP]


def test_all_high_watermarks_are_written_from_time_to_time_however_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are collected in steps; a partition that is left out would begin far behind after a restart."""
    monkeypatch.setattr(replica_manager, "ITEMS_PER_STEP", 2)
    cluster, _ = replicated_topic(replicas=(1,), partitions=11)
    for index in range(11):
        for _ in range(index):
            cluster.produce(1, TopicPartition("t", index))
    offline = TopicPartition("t", 3)
    cluster.managers[1].partitions[offline].offline = True
    cluster.sleep(6.0)
    written = cluster.logs[1].directories.high_watermarks
    assert {tp.partition: offset for tp, offset in written.items()} == {
        index: index for index in range(11) if index != offline.partition
    }


def test_who_is_refused_is_told_why_and_who_leads() -> None:
    cluster, _ = replicated_topic(replicas=(1, 2))
    at_follower = cluster.produce(2, TP).row
    assert at_follower.error_message == "not the leader of t-0"
    assert at_follower.current_leader == LeaderIdAndEpoch(1, 0)
    nowhere = cluster.produce(1, NOWHERE).row
    assert nowhere.error_message == "there is no nowhere-0" and nowhere.current_leader is None
    taken = cluster.produce(1, TP, acks=1).row
    assert (taken.error_message, taken.current_leader, taken.log_append_time_ms) == (None, None, -1)
