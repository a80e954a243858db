"""Replica managers with their fetchers, on virtual time."""

from __future__ import annotations

from collections import Counter

import pytest
from support.isr.manager_cluster import Answer, Cluster, registration, replicated_topic
from support.isr.minimum_changes import higher_minimum_with_a_smaller_isr, lower_minimum_for_a_former_leader
from support.isr.replicas import WALL_MS

from raftwerk.controller.metadata.metadata_records import BrokerChangeRecord, ConfigRecord
from raftwerk.isr.leader import isr_proposals
from raftwerk.isr.leader.isr_state import CommittedIsr
from raftwerk.isr.leader.leader_state import LeaderState
from raftwerk.isr.partition import Partition
from raftwerk.wire.errors import ErrorCode
from raftwerk.wire.records import NewRecord, encode_batch
from raftwerk.wire.types import LeaderIdAndEpoch, TopicPartition

TP = TopicPartition("t", 0)


def isr_of_leader(cluster: Cluster) -> tuple[int, ...]:
    leader = cluster.managers[1].partitions[TP].partition.leader
    assert leader is not None
    return leader.isr_state.isr


def test_acks_all_waits_for_all_and_comes_within_two_round_trips() -> None:
    cluster, _ = replicated_topic()
    answer = cluster.produce(1, TP)
    assert answer.rows is None
    assert cluster.managers[1].partitions[TP].high_watermark == 0
    cluster.sleep(0.0035)
    assert answer.error == 0 and answer.row.base_offset == 0
    assert cluster.managers[1].partitions[TP].high_watermark == 1
    cluster.sleep(1.0)
    assert [manager.partitions[TP].high_watermark for manager in cluster.managers.values()] == [1, 1, 1]


@pytest.mark.parametrize("acks", [0, 1])
def test_other_acks_are_answered_at_once(acks: int) -> None:
    cluster, _ = replicated_topic()
    assert cluster.produce(1, TP, acks=acks).error == 0


def test_one_replica_commits_at_once() -> None:
    cluster, _ = replicated_topic(replicas=(2,))
    assert cluster.produce(2, TP).error == 0


def test_requests_to_a_broker_that_does_not_lead() -> None:
    cluster, _ = replicated_topic(replicas=(1, 2))
    at_follower = cluster.produce(2, TP)
    assert at_follower.error == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert at_follower.row.current_leader == LeaderIdAndEpoch(1, 0)
    assert cluster.produce(3, TP).error == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert cluster.produce(3, TopicPartition("x", 0)).error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert cluster.consume(2, TP, 0).error == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert cluster.consume(2, TP, 0, from_follower_allowed=True).error == 0


def test_consumer_sees_committed_records_only_and_is_woken_by_them() -> None:
    cluster, _ = replicated_topic()
    waiting = cluster.consume(1, TP, 0, max_wait_ms=500)
    cluster.produce(1, TP)
    cluster.sleep(0.001)
    assert waiting.rows is None and not cluster.consume(1, TP, 0).row.records
    cluster.sleep(0.0025)
    assert waiting.row.records and waiting.row.high_watermark == 1
    assert cluster.consume(1, TP, 2).error == ErrorCode.OFFSET_OUT_OF_RANGE


def test_min_bytes_adds_up_over_appends() -> None:
    cluster, _ = replicated_topic(replicas=(1,))
    waiting = cluster.consume(1, TP, 0, max_wait_ms=500, min_bytes=200)
    cluster.produce(1, TP)
    cluster.produce(1, TP)
    assert waiting.rows is None
    cluster.produce(1, TP)
    assert len(waiting.row.records) >= 200


def test_long_poll_ends_empty_after_its_time() -> None:
    cluster, _ = replicated_topic()
    waiting = cluster.consume(1, TP, 0, max_wait_ms=300)
    cluster.sleep(0.299)
    assert waiting.rows is None
    cluster.sleep(0.003)
    assert waiting.error == 0 and not waiting.row.records


def test_cancelled_fetch_is_never_answered() -> None:
    cluster, _ = replicated_topic()
    waiting = cluster.consume(1, TP, 0, max_wait_ms=300)
    assert waiting.forget()
    assert not waiting.forget()
    cluster.produce(1, TP)
    cluster.sleep(1.0)
    assert waiting.rows is None


@pytest.mark.parametrize("slots", [1_000, 1, 0])
def test_idle_followers_with_a_session_or_without_fetch_twice_a_second(slots: int) -> None:
    cluster, _ = replicated_topic(partitions=20, fetch_session_slots=slots)
    cluster.fetches.clear()
    cluster.sleep(10.0)
    assert len(cluster.fetches) <= 2 * 21


def test_only_what_changed_is_asked_for() -> None:
    cluster, _ = replicated_topic(partitions=20)
    cluster.fetches.clear()
    for index in (3, 5):
        cluster.produce(1, TopicPartition("t", index))
        cluster.sleep(0.1)
    named = [
        [p.partition for topic in request.topics for p in topic.partitions]
        for source, target, request in cluster.fetches
        if (source, target) == (2, 1)
    ]
    assert [3] in named and [5] in named
    assert all(len(partitions) <= 1 for partitions in named)


def test_partition_in_error_leaves_the_session_until_its_pause_is_over() -> None:
    cluster, topic_id = replicated_topic(partitions=2)
    cluster.change(topic_id, 0, isr=(1, 2, 3), leader=1)
    cluster.tell(2)
    cluster.fetches.clear()
    cluster.sleep(1.0)
    assert any(request.forgotten for source, target, request in cluster.fetches if (source, target) == (2, 1))
    cluster.tell()
    answer = cluster.produce(1, TP)
    cluster.sleep(1.5)
    assert answer.error == 0


def test_follower_of_a_dead_leader_backs_off_and_then_costs_nothing() -> None:
    cluster, topic_id = replicated_topic()
    cluster.stop(1)
    cluster.connects = 0
    cluster.sleep(10.0)
    assert 15 <= cluster.connects <= 40, "50 ms doubling to 1 s"
    cluster.change(topic_id, 0, isr=(2, 3), leader=-1)
    cluster.tell()
    cluster.sleep(1.5)
    cluster.connects = 0
    cluster.sleep(10.0)
    assert cluster.connects == 0


def test_leader_change_reaches_parked_fetchers_at_once() -> None:
    """Brokers 2 and 3 hold fetches parked at each other; the partition that moves to 2 must not wait for them."""
    cluster, topic_id = replicated_topic()
    others = [cluster.create_topic("a", 8, (2, 3, 1)), cluster.create_topic("b", 9, (3, 2, 1))]
    cluster.tell()
    cluster.sleep(2.3)
    assert others
    cluster.stop(1)
    cluster.change(topic_id, 0, isr=(2, 3), leader=2)
    cluster.tell()
    answer = cluster.produce(2, TP)
    cluster.sleep(0.03)
    assert answer.error == 0


def test_loss_of_leadership_answers_delayed_operations() -> None:
    cluster, topic_id = replicated_topic()
    cluster.mute[(2, 1)] = None
    cluster.sleep(1.0)
    produced = cluster.produce(1, TP)
    waiting = cluster.consume(1, TP, 0, max_wait_ms=5000)
    cluster.change(topic_id, 0, leader=3)
    cluster.tell(1)
    for answer in (produced, waiting):
        assert answer.error == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert answer.row.current_leader == LeaderIdAndEpoch(3, 1)


def test_produce_times_out() -> None:
    cluster, _ = replicated_topic()
    cluster.mute[(2, 1)] = None
    cluster.sleep(1.0)
    answer = cluster.produce(1, TP, timeout_ms=700)
    cluster.sleep(0.69)
    assert answer.rows is None
    cluster.sleep(0.02)
    assert answer.error == ErrorCode.REQUEST_TIMED_OUT
    assert cluster.managers[1].purgatory.sizes()[0] == 0


def test_silent_follower_leaves_the_isr_and_comes_back() -> None:
    cluster, _ = replicated_topic(replica_lag_time_max_ms=2000, replica_socket_timeout_ms=1000)
    cluster.mute[(2, 1)] = None
    cluster.sleep(1.0)
    answer = cluster.produce(1, TP, timeout_ms=60_000)
    cluster.sleep(1.0)
    assert answer.rows is None
    cluster.sleep(3.0)
    assert answer.rows is None
    cluster.tell()
    assert answer.error == 0
    assert isr_of_leader(cluster) == (1, 3)
    cluster.mute.clear()
    cluster.sleep(2.0)
    assert sorted(isr_of_leader(cluster)) == [1, 2, 3]


def test_silent_follower_leaves_many_isrs_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isr_proposals, "SHRINKS_PER_SLICE", 10)
    cluster = Cluster(replica_lag_time_max_ms=100_000)
    for node in (1, 2, 3):
        cluster.boot(node)
    cluster.create_topic("t", 7, (1, 2, 3), 40)
    cluster.tell()
    cluster.sleep(3)
    cluster.mute[(2, 1)] = None
    for index in range(40):
        assert cluster.produce(1, TopicPartition("t", index), acks=1).error == 0
    cluster.sleep(101)
    manager = cluster.managers[1]

    def proposed() -> int:
        leaders = [replica.partition.leader for replica in manager.partitions.values()]
        return sum(
            isinstance(leader, LeaderState) and not isinstance(leader.isr_state, CommittedIsr) for leader in leaders
        )

    assert proposed() == 0
    cluster.on_loop(manager.shrink_isrs)
    assert 0 < proposed() <= 10
    cluster.sleep(0.0001)
    assert proposed() == 40


def test_too_few_in_sync_refuse_acks_all_only() -> None:
    cluster, topic_id = replicated_topic(replica_lag_time_max_ms=900)
    cluster.records.append(ConfigRecord(2, "t", "min.insync.replicas", "3"))
    cluster.mute.update({(2, 1): None})
    cluster.change(topic_id, 0, isr=(1, 3))
    cluster.tell()
    assert cluster.produce(1, TP).error == ErrorCode.NOT_ENOUGH_REPLICAS
    assert cluster.produce(1, TP, acks=1).error == 0
    cluster.sleep(1.0)
    assert cluster.managers[1].partitions[TP].high_watermark == 0
    cluster.records.append(ConfigRecord(2, "t", "min.insync.replicas", "2"))
    cluster.tell()
    assert cluster.managers[1].partitions[TP].high_watermark == 1


def test_batches_behind_a_refused_one_are_refused_alike_until_it_comes_again() -> None:
    """Else librdkafka takes a new epoch, and writes twice what is in the logs of other partitions unacknowledged."""
    cluster, topic_id = replicated_topic(replica_lag_time_max_ms=900)
    assert cluster.produce_batch(1, TP, idempotent_batch(0), acks=1).error == 0
    cluster.records.append(ConfigRecord(2, "t", "min.insync.replicas", "3"))
    cluster.mute.update({(2, 1): None})
    cluster.change(topic_id, 0, isr=(1, 3))
    cluster.tell()
    assert cluster.produce_batch(1, TP, idempotent_batch(1)).error == ErrorCode.NOT_ENOUGH_REPLICAS
    cluster.records.append(ConfigRecord(2, "t", "min.insync.replicas", "2"))
    cluster.tell()
    assert cluster.produce_batch(1, TP, idempotent_batch(2)).error == ErrorCode.NOT_ENOUGH_REPLICAS
    for sequence in (1, 2):
        answer = cluster.produce_batch(1, TP, idempotent_batch(sequence))
        cluster.sleep(1.0)
        assert answer.error == 0
    assert cluster.produce_batch(1, TP, idempotent_batch(9)).error == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_batch_that_overtakes_one_on_its_way_to_the_former_leader_waits_for_it() -> None:
    """Else librdkafka takes a new epoch. It hears of each of several batches at another time."""
    cluster, topic_id = replicated_topic()
    assert cluster.produce_batch(1, TP, idempotent_batch(0), acks=1).error == 0
    cluster.sleep(1.0)
    cluster.change(topic_id, 0, leader=2)
    cluster.tell()
    for overtaking in (2, 3):
        assert cluster.produce_batch(2, TP, idempotent_batch(overtaking)).error == ErrorCode.NOT_ENOUGH_REPLICAS
    for sequence in (1, 2):
        answer = cluster.produce_batch(2, TP, idempotent_batch(sequence))
        cluster.sleep(1.0)
        assert answer.error == 0
    assert cluster.produce_batch(2, TP, idempotent_batch(9)).error == ErrorCode.NOT_ENOUGH_REPLICAS

    cluster.change(topic_id, 0, leader=3)
    cluster.tell()
    assert cluster.produce_batch(3, TP, idempotent_batch(4)).error == ErrorCode.NOT_ENOUGH_REPLICAS
    cluster.sleep(31.0)
    assert cluster.produce_batch(3, TP, idempotent_batch(4)).error == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_batch_that_overtakes_one_to_a_leader_of_a_missed_epoch_waits_for_it() -> None:
    """The broker has not heard that another one led meanwhile, and a producer has: its first batch went there."""
    cluster, topic_id = replicated_topic()
    assert cluster.produce_batch(1, TP, idempotent_batch(0), acks=1).error == 0
    cluster.sleep(1.0)
    cluster.change(topic_id, 0, leader=2)
    cluster.tell(2, 3)
    cluster.change(topic_id, 0, leader=1)
    cluster.tell()
    assert cluster.managers[1].partitions[TP].partition.leader_epoch == 2
    assert cluster.produce_batch(1, TP, idempotent_batch(2)).error == ErrorCode.NOT_ENOUGH_REPLICAS
    for sequence in (1, 2):
        answer = cluster.produce_batch(1, TP, idempotent_batch(sequence))
        cluster.sleep(1.0)
        assert answer.error == 0


def idempotent_batch(sequence: int) -> bytearray:
    return encode_batch([NewRecord(None, b"v", (), 1)], producer_id=5, producer_epoch=0, base_sequence=sequence)


def test_an_isr_that_shrinks_together_with_a_higher_minimum_commits_nothing() -> None:
    """By the new minimum the controller may let those lead that the smaller ISR does not wait for (KIP-966)."""
    replica, answer = higher_minimum_with_a_smaller_isr()
    assert replica.high_watermark == 0
    assert answer.rows is None


@pytest.mark.parametrize("leader", [3, -1])
def test_a_former_leader_commits_nothing_by_a_lower_minimum_of_the_same_metadata(leader: int) -> None:
    """By the old minimum another was eligible who does not have its records."""
    replica = lower_minimum_for_a_former_leader(leader)
    assert replica.log_end_offset == 1
    assert replica.partition.leader is None
    assert replica.high_watermark == 0


def test_a_retry_of_what_was_written_long_ago_is_a_success_when_that_is_committed() -> None:
    """The client waited for a node that was gone, and sent on to the next leader meanwhile."""
    cluster, _ = replicated_topic()
    cluster.mute.update({(2, 1): None, (3, 1): None})
    cluster.sleep(1.0)

    def send(sequence: int) -> Answer:
        data = encode_batch(
            [NewRecord(None, b"v", (), WALL_MS)], producer_id=9, producer_epoch=0, base_sequence=sequence
        )
        answer = Answer()
        cluster.on_loop(cluster.managers[1].append, -1, 60_000, [(TP, memoryview(bytearray(data)))], answer)
        return answer

    for sequence in range(8):
        send(sequence)
    again = send(1)
    assert again.rows is None, "nothing is committed"
    cluster.mute.clear()
    cluster.sleep(3.0)
    assert again.error == ErrorCode.DUPLICATE_SEQUENCE_NUMBER
    assert again.row.base_offset == -1
    assert send(1).error == ErrorCode.DUPLICATE_SEQUENCE_NUMBER
    assert send(20).error == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert cluster.managers[1].partitions[TP].log.log_end_offset == 8


def test_alter_partition_is_tried_again_until_it_is_answered() -> None:
    cluster, topic_id = replicated_topic()
    cluster.alter_error = int(ErrorCode.NOT_CONTROLLER)
    cluster.change(topic_id, 0, isr=(1, 2))
    cluster.tell()
    cluster.sleep(2.0)
    assert 10 <= len(cluster.alterations) <= 60
    cluster.alter_error = None
    cluster.sleep(0.2)
    assert isr_of_leader(cluster) == (1, 2, 3)


def test_unfenced_broker_joins_at_once() -> None:
    cluster, topic_id = replicated_topic()
    cluster.records.append(BrokerChangeRecord(3, 2, fenced=True))
    cluster.change(topic_id, 0, isr=(1, 2))
    cluster.tell()
    cluster.sleep(2.0)
    assert not cluster.alterations
    cluster.records.append(BrokerChangeRecord(3, 2, fenced=False))
    cluster.tell()
    cluster.sleep(0.01)
    assert isr_of_leader(cluster) == (1, 2, 3)


def test_deleting_a_topic_answers_its_produces_and_fetches() -> None:
    cluster, topic_id = replicated_topic()
    waiting = cluster.consume(1, TP, 0, max_wait_ms=5000)
    cluster.delete_topic(topic_id)
    cluster.tell()
    assert waiting.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    for node in (1, 2, 3):
        assert TP not in cluster.managers[node].partitions
        assert cluster.logs[node].get(TP) is None
    cluster.fetches.clear()
    cluster.sleep(2.0)
    assert not cluster.fetches


def test_topic_created_again_under_its_name_starts_empty() -> None:
    cluster, topic_id = replicated_topic()
    cluster.produce(1, TP)
    cluster.sleep(0.1)
    cluster.stop(3)
    cluster.delete_topic(topic_id)
    new_id = cluster.create_topic("t", 99)
    cluster.tell()
    cluster.boot(3)
    cluster.sleep(1.0)
    for manager in cluster.managers.values():
        assert manager.partitions[TP].topic_id == new_id
        assert manager.partitions[TP].log_end_offset == 0
    answer = cluster.produce(1, TP)
    cluster.sleep(0.01)
    assert answer.error == 0


def test_high_watermark_survives_a_restart_of_all() -> None:
    cluster, _ = replicated_topic()
    for _ in range(5):
        cluster.produce(1, TP)
    cluster.sleep(6.0)
    for node in (1, 2, 3):
        assert cluster.logs[node].directories.high_watermarks[TP] == 5
    cluster.produce(1, TP)
    cluster.sleep(1.0)
    cluster.stop(2)
    assert cluster.logs[2].directories.high_watermarks[TP] == 6
    replica = cluster.boot(2).partitions[TP]
    assert replica.high_watermark == 6


def test_metadata_before_the_start_is_not_acted_on() -> None:
    cluster, topic_id = replicated_topic()
    cluster.produce(1, TP)
    cluster.sleep(0.1)
    cluster.stop(1)
    first = cluster.records
    cluster.records = [*first]
    manager = cluster.boot(1)
    assert manager.partitions[TP].log_end_offset == 1, topic_id


def test_follower_below_the_leaders_log_start_begins_there() -> None:
    cluster, _ = replicated_topic(replicas=(1, 2))
    replica = cluster.managers[1].partitions[TP]
    cluster.stop(2)
    replica.log.truncate_fully_and_start_at(50)
    replica.partition.watermark.reset(50)
    cluster.produce(1, TP, acks=1)
    cluster.boot(2)
    cluster.sleep(2.0)
    follower = cluster.managers[2].partitions[TP]
    assert (follower.log.log_start_offset, follower.log_end_offset, follower.high_watermark) == (50, 51, 51)


def test_storage_error_takes_one_partition_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, _ = replicated_topic(partitions=2)
    other = TopicPartition("t", 1)
    log = cluster.managers[1].partitions[TP].log
    waiting = cluster.produce(1, TP, timeout_ms=9000)

    def fail(*_: object, **__: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(log, "append_as_leader", fail)
    assert cluster.produce(1, TP).error == ErrorCode.KAFKA_STORAGE_ERROR
    assert waiting.error == ErrorCode.KAFKA_STORAGE_ERROR
    assert cluster.storage_errors == [TP]
    assert cluster.consume(1, TP, 0).error == ErrorCode.KAFKA_STORAGE_ERROR
    answer = cluster.produce(1, other)
    cluster.sleep(0.01)
    assert answer.error == 0


def test_stop_answers_all_delayed_operations() -> None:
    cluster, _ = replicated_topic()
    cluster.mute[(2, 1)] = None
    cluster.sleep(1.0)
    produced, waiting = cluster.produce(1, TP), cluster.consume(1, TP, 1, max_wait_ms=90_000)
    cluster.stop(1)
    assert produced.error == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert waiting.rows is not None


def test_list_offsets_is_bounded_for_consumers() -> None:
    cluster, _ = replicated_topic()
    manager = cluster.managers[1]
    cluster.produce(1, TP, acks=1)
    assert manager.list_offset(TP, -1).offset == 0
    assert manager.list_offset(TP, -1, replica_id=2).offset == 1
    assert manager.list_offset(TP, 0).offset == -1
    cluster.sleep(0.01)
    assert manager.list_offset(TP, -1) == (0, -1, 1, 0)
    assert manager.list_offset(TP, -2).offset == 0
    assert manager.list_offset(TP, 0).offset == 0
    assert manager.list_offset(TP, -3).offset == 0
    assert manager.list_offset(TP, -5).offset == -1
    assert manager.list_offset(TP, -99).error_code == ErrorCode.INVALID_REQUEST
    assert manager.list_offset(TP, -1, 5).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert cluster.managers[2].list_offset(TP, -1).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert cluster.managers[2].list_offset(TP, -1, replica_id=-2).error_code == 0


def test_new_leader_does_not_show_an_end_below_its_predecessors() -> None:
    """KIP-207."""
    cluster, topic_id = replicated_topic()
    cluster.produce(1, TP)
    cluster.sleep(0.0035)
    cluster.change(topic_id, 0, leader=2)
    cluster.mute.update({(1, 2): None, (3, 2): None})
    follower = cluster.managers[2].partitions[TP]
    assert (follower.high_watermark, follower.log_end_offset) == (0, 1)
    cluster.tell()
    assert cluster.managers[2].list_offset(TP, -1).error_code == ErrorCode.OFFSET_NOT_AVAILABLE


@pytest.mark.parametrize("reads_dirty_only", [True, False])
def test_diverging_logs_are_truncated_some_at_a_time(reads_dirty_only: bool) -> None:
    """Each cut waits for the device."""
    cluster, topic_id = replicated_topic((1, 2), 100)
    cluster.reads_dirty_only = reads_dirty_only
    partitions = [TopicPartition("t", index) for index in range(100)]
    cluster.mute[(2, 1)] = None
    for tp in partitions:
        cluster.produce(1, tp, b"lost", acks=1)
        cluster.change(topic_id, tp.partition, leader=2)
    cut_at: Counter[float] = Counter()

    def on_blocking(operation: str, path: str) -> None:
        if operation == "fsync" and path.endswith(".log"):
            cut_at[cluster.loop.time()] += 1

    cluster.disks[1].on_blocking = on_blocking
    cluster.tell(2)
    cluster.sleep(0.2)
    answers = [cluster.produce(2, tp, b"kept", acks=1) for tp in partitions]
    assert [answer.error for answer in answers] == [0] * 100
    cluster.tell()
    cluster.sleep(1.0)
    assert cut_at.total() == 100 and max(cut_at.values()) <= 8
    for tp in partitions:
        mine, theirs = (cluster.managers[node].partitions[tp].log for node in (1, 2))
        assert mine.read(0, 1 << 20, end_offset=1) == theirs.read(0, 1 << 20, end_offset=1)
        assert mine.log_end_offset == 1


def test_offset_for_leader_epoch() -> None:
    cluster, topic_id = replicated_topic()
    cluster.produce(1, TP)
    cluster.sleep(0.1)
    for leader in (2, 1):
        cluster.change(topic_id, 0, leader=leader)
    cluster.tell()
    manager = cluster.managers[1]
    assert manager.offset_for_leader_epoch(TP, 2, 0) == (0, 0, 1)
    assert manager.offset_for_leader_epoch(TP, 2, 1) == (0, 0, 1)
    assert manager.offset_for_leader_epoch(TP, 2, 2) == (0, 2, 1)
    assert manager.offset_for_leader_epoch(TP, 2, 3) == (0, -1, -1)
    assert manager.offset_for_leader_epoch(TP, 1, 0)[0] == ErrorCode.FENCED_LEADER_EPOCH


def test_describe_names_the_roles() -> None:
    cluster, _ = replicated_topic()
    assert [manager.describe()[0]["role"] for manager in cluster.managers.values()] == [
        "leader",
        "follower",
        "follower",
    ]
    assert isinstance(cluster.managers[1].partitions[TP].partition, Partition)
    assert registration(1).broker_id == 1


def test_a_follower_says_that_its_own_disk_is_full(caplog: pytest.LogCaptureFixture) -> None:
    cluster, _ = replicated_topic()
    cluster.sleep(1.0)
    directory = cluster.managers[2].partitions[TP].log.directory.rpartition("/")[0]
    with caplog.at_level("INFO", "raftwerk.isr"):
        cluster.managers[2].set_full_dirs([directory])
        cluster.produce(1, TP, b"one")
        cluster.sleep(2.0)
    lines = [line for line in caplog.messages if line.startswith("t-0 does not take what its leader sent")]
    assert len(lines) == 1 and "on this broker the log directory of t-0 is full" in lines[0]
    assert not any("the leader refused a fetch" in line for line in caplog.messages)


def test_a_follower_refuses_what_its_leader_cannot_have(caplog: pytest.LogCaptureFixture) -> None:
    """A flipped bit in the epoch of a batch, which no CRC covers, on the leader's disk."""
    cluster, _ = replicated_topic()
    cluster.produce(1, TP, b"sound")
    cluster.sleep(1.0)
    cluster.stop(2)
    cluster.produce(1, TP, b"damaged")
    log = cluster.managers[1].partitions[TP].log
    segment = log.segments[0]
    cluster.disks[1].flip_bit(segment.file.path, segment.locate(1) + 12, 4)
    with caplog.at_level("WARNING", "raftwerk.isr"):
        cluster.boot(2)
        cluster.tell()
        cluster.sleep(5.0)
    assert cluster.managers[2].partitions[TP].log_end_offset == 1
    lines = [line for line in caplog.messages if "does not take what its leader sent" in line]
    assert len(lines) == 1 and "t-0 does not" in lines[0] and "The batch at offset 1 is of leader epoch" in lines[0]
