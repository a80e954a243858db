"""What a follower does with the rows of an answer."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from uuid import UUID

import pytest
from support.isr.replicas import WALL_MS, FakeBrokers, Reg, make_runtime, open_log

from raftwerk.controller.metadata.metadata_image import TOPIC_RESOURCE, MetadataImage
from raftwerk.isr.fetching.dirty_partitions import DirtyPartitionTracker
from raftwerk.isr.fetching.leader_fetch_sessions import FetchSessionCache
from raftwerk.isr.follower import follower_fetch_session
from raftwerk.isr.follower.fetcher_state import FetcherState
from raftwerk.isr.follower.throttled_partitions import ThrottledPartitions
from raftwerk.isr.leader.leader_state import LeaderConfig
from raftwerk.isr.partition import Partition
from raftwerk.isr.ports import ReplicaManagerConfig
from raftwerk.isr.replica import Replica
from raftwerk.isr.throttling.replication_quota import ReplicationQuota
from raftwerk.isr.throttling.throttles import FOLLOWER, Throttle
from raftwerk.log.errors import NoSpaceError
from raftwerk.wire.errors import ErrorCode
from raftwerk.wire.fetch import FetchPartition, FetchPartitionResponse, FetchResponse, FetchTopicResponse
from raftwerk.wire.records import NewRecord, encode_batch
from raftwerk.wire.types import EpochEndOffset, TopicPartition

TOPIC_ID = UUID(int=77)
EPOCH = 5


def records(offset: int, epoch: int = EPOCH) -> bytes:
    return bytes(encode_batch([NewRecord(None, b"v", (), WALL_MS)], base_offset=offset, leader_epoch=epoch))


@dataclass
class Follower:
    """Broker 2 follows some partitions of broker 1, whose answers the test writes."""

    replicas: list[Replica] = field(default_factory=list)
    without_space: list[Replica] = field(default_factory=list)
    failed: list[Replica] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.runtime, _ = make_runtime()
        self.throttle = Throttle(FOLLOWER, 2, ReplicationQuota(11, 1000))
        self.state = FetcherState(ReplicaManagerConfig(2), self, self.throttle)

    def follow(self, index: int, own: int = 0) -> Replica:
        """Follow another partition, whose log has `own` records of epoch 4."""
        tp = TopicPartition("t", index)
        partition = Partition(tp, LeaderConfig(2, 1, 1000), FakeBrokers({1: 101, 2: 102}), 0)
        replica = Replica(TOPIC_ID, partition, open_log(self.runtime, f"t-{index}"), lambda replica: None)
        replica.make_follower(Reg((1, 2), (1,), 1, EPOCH, 10))
        for offset in range(own):
            replica.log.append_as_follower(memoryview(records(offset, 4)), 4)
        self.replicas.append(replica)
        self.state.add(replica)
        return replica

    def asked(self, now_ms: int = 0) -> list[FetchPartition]:
        """The partitions that the next request names."""
        request = self.state.next_request(102, now_ms)
        return [] if request is None else [one for topic in request.topics for one in topic.partitions]

    def answer(self, *rows: FetchPartitionResponse, now_ms: int = 0) -> None:
        response = FetchResponse(session_id=1, topics=[FetchTopicResponse(None, TOPIC_ID, list(rows))])
        self.state.on_response(response, now_ms)

    # ---- the listener

    def on_records_fetched(self, replica: Replica, size_bytes: int) -> None: ...

    def on_replica_failed(self, replica: Replica, error: Exception) -> None:
        self.failed.append(replica)

    def on_no_space(self, replica: Replica, error: NoSpaceError) -> None:
        self.without_space.append(replica)


def row(index: int, data: bytes = b"", high_watermark: int = 0, **fields: object) -> FetchPartitionResponse:
    return FetchPartitionResponse(index, 0, high_watermark, records=data, **fields)  # type: ignore[arg-type]


def test_after_records_the_next_ones_are_asked_for() -> None:
    follower = Follower()
    replica = follower.follow(0)
    assert [one.fetch_offset for one in follower.asked()] == [0]
    follower.answer(row(0, records(0), high_watermark=1))
    assert (replica.log_end_offset, replica.high_watermark) == (1, 1)
    assert [one.fetch_offset for one in follower.asked()] == [1]


def test_it_is_in_sync_once_it_has_what_is_committed() -> None:
    follower = Follower()
    follower.follow(0)
    (fetched,) = follower.state.partitions.values()
    follower.asked()
    follower.answer(row(0, records(0), high_watermark=2))
    assert not fetched.is_in_sync
    follower.asked()
    follower.answer(row(0, records(1), high_watermark=2))
    assert fetched.is_in_sync


def test_an_answer_for_a_former_role_is_not_used_and_the_partition_asked_for_again() -> None:
    follower = Follower()
    replica = follower.follow(0)
    follower.asked()
    replica.make_follower(Reg((1, 2), (1,), 1, EPOCH + 1, 11))
    follower.answer(row(0, records(0), high_watermark=1))
    assert replica.log_end_offset == 0
    follower.state.add(replica)
    assert [one.current_leader_epoch for one in follower.asked()] == [EPOCH + 1]


def test_an_answer_for_another_offset_is_not_used_and_the_partition_asked_for_again() -> None:
    follower = Follower()
    replica = follower.follow(0, own=2)
    assert [one.fetch_offset for one in follower.asked()] == [2]
    replica.truncate_to(1)
    follower.answer(row(0, records(2), high_watermark=1))
    assert replica.log_end_offset == 1
    assert [one.fetch_offset for one in follower.asked()] == [1]


def test_eight_logs_are_cut_for_one_answer_and_the_others_for_the_next() -> None:
    follower = Follower()
    replicas = [follower.follow(index, own=2) for index in range(10)]
    diverging = [row(index, diverging_epoch=EpochEndOffset(4, 1)) for index in range(10)]
    follower.asked()
    follower.answer(*diverging)
    assert [replica.log_end_offset for replica in replicas] == [1] * 8 + [2] * 2
    assert sorted(one.partition for one in follower.asked()) == list(range(10)), (
        "those with new offsets, and the others"
    )
    follower.answer(*diverging[8:])
    assert [replica.log_end_offset for replica in replicas] == [1] * 10


def test_partitions_that_the_leader_refuses_are_logged_in_one_line_for_each_reason_and_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    follower = Follower()
    for index in range(5):
        follower.follow(index)
    unknown, fenced = ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.FENCED_LEADER_EPOCH
    with caplog.at_level("INFO", "raftwerk.isr"):
        for now_ms in (0, 1000):
            follower.asked(now_ms)
            follower.answer(
                *(FetchPartitionResponse(index, unknown) for index in range(3)),
                FetchPartitionResponse(3, fenced),
                row(4),
                now_ms=now_ms,
            )
        follower.asked(3000)
        follower.answer(FetchPartitionResponse(3, unknown), FetchPartitionResponse(4, unknown), now_ms=3000)
    assert caplog.messages == [
        "the leader refused a fetch of t-0 and 2 other partitions: UNKNOWN_TOPIC_ID",
        "the leader refused a fetch of t-3: FENCED_LEADER_EPOCH",
        "the leader refused a fetch of t-3 and 1 other partition: UNKNOWN_TOPIC_ID",
    ]


def test_a_full_disk_is_told_and_tried_again_after_a_pause() -> None:
    follower = Follower()
    replica = follower.follow(0)
    follower.asked()
    replica.has_space = False
    follower.answer(row(0, records(0)), now_ms=1000)
    assert follower.without_space == [replica]
    assert follower.failed == []
    assert follower.asked(now_ms=1049) == []
    assert follower.state.next_ready_ms(1000) == 1050
    replica.has_space = True
    assert [one.fetch_offset for one in follower.asked(now_ms=1050)] == [0]


@pytest.mark.parametrize("is_refused_here", [True, False])
def test_a_partition_whose_pause_is_over_before_the_next_request_is_named_again(is_refused_here: bool) -> None:
    """A leader that believes that its last answer was taken sends nothing until something new is written."""
    follower = Follower()
    replica = follower.follow(0)
    follower.asked()
    replica.has_space = not is_refused_here
    follower.answer(row(0, records(0)) if is_refused_here else FetchPartitionResponse(0, ErrorCode.UNKNOWN_TOPIC_ID))
    replica.has_space = True
    assert [one.fetch_offset for one in follower.asked(now_ms=1050)] == [0]


def test_pauses_double_and_end_with_the_first_success() -> None:
    follower = Follower()
    follower.follow(0)
    now_ms, pauses = 1000, []
    for _ in range(7):
        assert follower.state.next_request(102, now_ms) is not None
        follower.answer(FetchPartitionResponse(0, int(ErrorCode.NOT_LEADER_OR_FOLLOWER)), now_ms=now_ms)
        ready_ms = follower.state.next_ready_ms(now_ms)
        assert ready_ms is not None
        pauses.append(ready_ms - now_ms)
        now_ms = ready_ms
    assert pauses == [50, 100, 200, 400, 800, 1000, 1000]
    follower.asked(now_ms)
    follower.answer(row(0, records(0), high_watermark=1), now_ms=now_ms)
    follower.asked(now_ms)
    follower.answer(FetchPartitionResponse(0, int(ErrorCode.NOT_LEADER_OR_FOLLOWER)), now_ms=now_ms)
    assert follower.state.next_ready_ms(now_ms) == now_ms + 50


def test_a_replica_that_cannot_be_written_is_fetched_no_more() -> None:
    follower = Follower()
    replica = follower.follow(0)
    follower.asked()
    replica.log.close(clean=True)
    follower.answer(row(0, records(0)))
    assert follower.failed == [replica]
    assert follower.state.partitions == {}


def test_what_is_removed_was_fetched_or_not() -> None:
    follower = Follower()
    follower.follow(0)
    assert follower.state.remove((TOPIC_ID, 0))
    assert not follower.state.remove((TOPIC_ID, 0))
    assert not follower.asked()


def test_a_partition_that_is_added_again_is_not_paused_as_before() -> None:
    follower = Follower()
    replica = follower.follow(0)
    assert follower.asked()
    follower.answer(FetchPartitionResponse(0, ErrorCode.KAFKA_STORAGE_ERROR, -1))
    assert follower.state.next_ready_ms(0) is not None
    follower.state.add(replica)
    assert follower.state.next_ready_ms(0) is None


def test_throttled_partitions_share_what_the_quota_allows_and_ask_for_a_byte_at_least() -> None:
    throttle = Throttle(FOLLOWER, 2, ReplicationQuota(11, 1000))
    throttle.quota.bytes_per_s = 1000
    image = MetadataImage("cluster")
    image.configs[TOPIC_RESOURCE, "t"] = {"follower.replication.throttled.replicas": "*"}
    throttle.apply_topics(image, ["t"])
    follower = Follower()
    partitions = {}
    for index in (0, 1):
        follower.follow(index)
        partitions[TOPIC_ID, index] = follower.state.partitions[TOPIC_ID, index]
    throttled = ThrottledPartitions(throttle)
    assert not throttled.update(partitions, 0), "nothing pauses while the quota allows more"
    (key, fetched), *_ = partitions.items()
    whole = throttle.quota.available_bytes(0)
    assert throttled.max_bytes(key, fetched, 10**9, 0) == int(whole / 2)
    assert throttled.max_bytes(key, fetched, 7, 0) == 7
    throttled.record(key, int(whole), 0)
    assert throttled.max_bytes(key, fetched, 10**9, 0) == 1


def test_a_follower_of_more_partitions_than_a_request_names_is_sent_nothing_twice(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(follower_fetch_session, "NAMED_AT_ONCE", 5)
    follower = Follower()
    for index in range(12):
        follower.follow(index)
    leader, sent = FetchSessionCache(10, random.Random(1), DirtyPartitionTracker()), list[tuple[int, int]]()
    for _ in range(6):
        request = follower.state.next_request(102, 0)
        assert request is not None
        context = leader.context(request, True, 0)
        answers = []
        for key, asked in context.take():
            has_more = key.partition < 3 and asked.fetch_offset < 4
            data = records(asked.fetch_offset) if has_more else b""
            sent += [(key.partition, asked.fetch_offset)] if has_more else []
            answers.append((key, row(key.partition, data)))
            if has_more and context.dirty is not None:
                context.dirty.mark(key)
        error_code, session_id = context.close()
        rows = [answer for _, answer in context.select(answers)]
        topics = [FetchTopicResponse(None, TOPIC_ID, rows)]
        follower.state.on_response(FetchResponse(error_code=error_code, session_id=session_id, topics=topics), 0)
    assert sorted(sent) == [(index, offset) for index in range(3) for offset in range(4)]
    assert not [message for message in caplog.messages if "does not take" in message]


@pytest.mark.parametrize(
    ("code", "session_id", "is_paused"),
    [
        (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0, False),
        (ErrorCode.INVALID_FETCH_SESSION_EPOCH, 1, False),
        (ErrorCode.UNKNOWN_SERVER_ERROR, 1, True),
    ],
)
def test_after_an_error_all_partitions_are_named_again_and_the_session_is_closed_if_there_may_be_one(
    code: ErrorCode, session_id: int, is_paused: bool
) -> None:
    """The id of the former session closes it; a leader that does not know it has nothing to close."""
    follower = Follower()
    for index in range(3):
        follower.follow(index)
    follower.asked()
    follower.answer()
    assert follower.asked() == []
    outcome = follower.state.on_response(FetchResponse(int(code)), 0)
    assert outcome.failed is is_paused
    request = follower.state.next_request(102, 0)
    assert request is not None
    assert (request.session_id, request.session_epoch) == (session_id, 0)
    assert [one.partition for topic in request.topics for one in topic.partitions] == [0, 1, 2]


def test_a_log_that_fails_when_it_is_cut_to_its_leaders_end_is_told_and_fetched_no_more() -> None:
    follower = Follower()
    replica = follower.follow(0, own=2)
    replica.log.close(clean=True)
    follower.state.restart((TOPIC_ID, 0), 0, 1, 0)
    assert follower.failed == [replica]
    assert follower.state.partitions == {}


def test_a_log_that_failed_with_its_directory_is_not_named_before_its_replica_is_offline() -> None:
    """One answer has records of two partitions in one directory: the second write fails, and with it the directory.

    What the first one wrote is lost with the disk. The leader, which waits for it, must not be told that it is there.
    """
    follower = Follower()
    first, second = follower.follow(0), follower.follow(1)
    follower.asked()
    second.log.close(clean=True)
    follower.answer(row(0, records(0)), row(1, records(0)))
    assert (first.log_end_offset, follower.failed) == (1, [second])
    first.log.fail("its log directory failed", OSError(5, "input/output error"))
    assert follower.asked() == []


def test_a_member_of_the_isr_is_in_sync_whatever_its_leader_has_committed_since() -> None:
    """acks=all waits for it, so a throttle must not slow it down."""
    follower = Follower()
    replica = follower.follow(0)
    (fetched,) = follower.state.partitions.values()
    follower.asked()
    follower.answer(row(0, records(0), high_watermark=5))
    assert not fetched.is_in_sync
    replica.make_follower(Reg((1, 2), (1, 2), 1, EPOCH, 11))
    assert fetched.is_in_sync


def test_a_throttled_partition_that_is_fetched_no_more_is_looked_at_no_more() -> None:
    follower = Follower()
    follower.throttle.quota.bytes_per_s = 100
    image = MetadataImage("cluster")
    image.configs[TOPIC_RESOURCE, "t"] = {"follower.replication.throttled.replicas": "*"}
    follower.throttle.apply_topics(image, ["t"])
    for index in (0, 1):
        follower.follow(index)
    assert len(follower.asked()) == 2
    follower.throttle.quota.record(1_000, 0)
    assert follower.asked() == [], "both wait until the quota allows more"
    assert follower.state.remove((TOPIC_ID, 0))
    assert follower.asked() == []
    assert [one.partition for one in follower.asked(now_ms=20_000)] == [1]


def test_a_request_says_who_asks_and_how_much_it_may_get() -> None:
    follower = Follower()
    config = ReplicaManagerConfig(
        2,
        cluster_id="cluster",
        replica_fetch_wait_max_ms=400,
        replica_fetch_min_bytes=3,
        replica_fetch_max_bytes=1_000,
        replica_fetch_response_max_bytes=5_000,
    )
    follower.state = FetcherState(config, follower, follower.throttle)
    replica = follower.follow(0, own=3)
    replica.log.raise_start(1)
    request = follower.state.next_request(102, 0)
    assert request is not None
    assert (request.replica_id, request.replica_epoch, request.cluster_id) == (2, 102, "cluster")
    assert (request.max_wait_ms, request.min_bytes, request.max_bytes) == (400, 3, 5_000)
    (topic,) = request.topics
    (row_,) = topic.partitions
    assert (topic.topic_id, row_.partition, row_.max_bytes) == (TOPIC_ID, 0, 1_000)
    assert (row_.current_leader_epoch, row_.last_fetched_epoch) == (EPOCH, 4)
    assert (row_.fetch_offset, row_.log_start_offset) == (3, 1)


def test_a_fetcher_that_could_not_name_all_its_partitions_does_not_wait_until_it_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The leader would else park a request without the others, whose followers get no records meanwhile."""
    monkeypatch.setattr(follower_fetch_session, "NAMED_AT_ONCE", 5)
    follower = Follower()
    for index in range(12):
        follower.follow(index)
    waits = []
    for _ in range(4):
        request = follower.state.next_request(102, 0)
        assert request is not None
        waits.append(request.max_wait_ms)
        follower.answer()
    assert waits == [0, 0, 500, 500]


def test_a_fetcher_without_partitions_asks_for_nothing() -> None:
    follower = Follower()
    assert follower.state.next_request(102, 0) is None
    assert follower.state.next_ready_ms(0) is None
    follower.follow(0)
    follower.asked()
    follower.state.remove((TOPIC_ID, 0))
    assert follower.state.next_request(102, 0) is None


def test_pauses_end_when_the_leader_may_answer_otherwise() -> None:
    follower = Follower()
    for index in range(2):
        follower.follow(index)
    follower.asked()
    follower.answer(*(FetchPartitionResponse(index, int(ErrorCode.UNKNOWN_TOPIC_ID)) for index in range(2)))
    assert follower.asked() == []
    follower.state.retry_now()
    assert follower.state.next_ready_ms(0) == 0
    assert [one.partition for one in follower.asked()] == [0, 1]


def test_a_follower_deletes_what_its_leader_has_deleted_as_far_as_it_is_committed() -> None:
    """What is not committed may be in no other log: the leader's start is above it only by an error."""
    follower = Follower()
    replica = follower.follow(0, own=4)
    for high_watermark, leader_start, own_start in ((2, 1, 1), (2, 4, 2), (4, 2, 2), (4, 3, 3)):
        follower.state.add(replica)
        follower.asked()
        follower.answer(row(0, high_watermark=high_watermark, log_start_offset=leader_start))
        assert (replica.high_watermark, replica.log.log_start_offset) == (high_watermark, own_start)


def test_records_of_several_partitions_in_one_answer_are_all_taken() -> None:
    follower = Follower()
    replicas = [follower.follow(index) for index in range(3)]
    follower.asked()
    follower.answer(row(0, records(0), 1), row(1, b"", 0), row(2, records(0), 1))
    assert [replica.log_end_offset for replica in replicas] == [1, 0, 1]
    assert [(one.partition, one.fetch_offset) for one in follower.asked()] == [(0, 1), (2, 1)]


def test_an_answer_by_topic_names_or_for_what_was_not_asked_is_ignored() -> None:
    follower = Follower()
    replica = follower.follow(0)
    follower.asked()
    named = FetchResponse(session_id=1, topics=[FetchTopicResponse("t", None, [row(0, records(0), 1)])])
    follower.state.on_response(named, 0)
    follower.answer(row(7, records(0), 1))
    assert replica.log_end_offset == 0


def test_a_log_that_ends_where_its_leaders_begins_is_kept() -> None:
    """Nothing is missing between the two. The leader has refused an offset that it has: it is asked again."""
    follower = Follower()
    replica = follower.follow(0, own=2)
    follower.state.restart((TOPIC_ID, 0), 2, 9, 0)
    assert (replica.log.log_start_offset, replica.log_end_offset) == (0, 2)
    assert follower.state.next_ready_ms(0) == 50
