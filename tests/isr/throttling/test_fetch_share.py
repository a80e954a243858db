"""How much of a throttled partition one answer to a fetch may have."""

from __future__ import annotations

from support.isr.replicas import TOPIC_ID, TP, FakeBrokers, Reg, make_runtime, open_log

from raftwerk.controller.metadata.metadata_image import TOPIC_RESOURCE, MetadataImage
from raftwerk.isr.leader.leader_state import LeaderConfig
from raftwerk.isr.partition import Partition
from raftwerk.isr.replica import Replica
from raftwerk.isr.throttling.replication_quota import ReplicationQuota
from raftwerk.isr.throttling.throttles import LEADER, FetchShare, Throttle
from raftwerk.wire.types import TopicPartition

IN_SYNC, COPYING = 2, 3


def leading() -> Replica:
    """Broker 1 leads; 2 is in sync, and 3 copies."""
    runtime, _ = make_runtime()
    brokers = FakeBrokers({broker: 100 + broker for broker in (1, IN_SYNC, COPYING)})
    replica = Replica(
        TOPIC_ID, Partition(TP, LeaderConfig(1, 1, 1000), brokers, 0), open_log(runtime), lambda replica: None
    )
    replica.make_leader(Reg((1, IN_SYNC, COPYING), (1, IN_SYNC), 1, 5, 10), 0)
    return replica


def throttle(bytes_per_s: float, replicas: str = "*") -> Throttle:
    made = Throttle(LEADER, 1, ReplicationQuota(11, 1000))
    made.quota.bytes_per_s = bytes_per_s
    image = MetadataImage("c")
    image.configs[TOPIC_RESOURCE, TP.topic] = {"leader.replication.throttled.replicas": replicas}
    made.apply_topics(image, [TP.topic])
    return made


def test_a_copying_follower_gets_what_the_quota_has_left() -> None:
    share = FetchShare(throttle(100), COPYING, 0)
    assert share.limit(leading(), 60) == 60
    assert share.limit(leading(), 500) == 100, "less than it wants, and not nothing"
    assert not share.is_throttled


def test_what_it_got_of_one_partition_is_missing_for_the_next() -> None:
    replica, share = leading(), FetchShare(throttle(100), COPYING, 0)
    share.record(replica, 70)
    assert share.limit(replica, 500) == 30
    share.record(replica, 30)
    assert share.limit(replica, 500) == 0
    assert share.is_throttled


def test_a_batch_that_was_too_large_leaves_nothing() -> None:
    replica, share = leading(), FetchShare(throttle(100), COPYING, 0)
    share.record(replica, 170)
    assert share.limit(replica, 500) == 0


def test_what_is_in_sync_is_not_kept_back() -> None:
    share = FetchShare(throttle(0), IN_SYNC, 0)
    assert share.limit(leading(), 500) == 500
    assert not share.is_throttled


def test_a_partition_that_is_not_throttled_is_not_kept_back_and_not_counted() -> None:
    replica, share = leading(), FetchShare(throttle(100, "7:1,0:9"), COPYING, 0)
    share.record(replica, 100)
    assert share.limit(replica, 500) == 500
    assert not share.is_throttled


def test_who_has_looked_for_the_throttled_partitions_looks_again_only_when_there_are_others() -> None:
    made = throttle(100, "*")
    image, key = MetadataImage("c"), (TOPIC_RESOURCE, TP.topic)
    versions = [made.version]
    for replicas in ("*", "0:1,3:1", "3:1,0:1", "0:1", "", ""):
        image.configs[key] = {"leader.replication.throttled.replicas": replicas}
        made.apply_topics(image, [TP.topic])
        versions.append(made.version - versions[0])
    assert versions[1:] == [0, 1, 1, 2, 3, 3]
    assert made.is_idle


def test_one_topic_with_throttled_partitions_throttles_no_other() -> None:
    made = throttle(100, "0:1,2:1")
    assert [made.is_throttled(TopicPartition("t", index)) for index in range(3)] == [True, False, True]
    assert not made.is_throttled(TopicPartition("u", 0))
    assert throttle(100).is_throttled(TopicPartition("t", 99))


def test_the_last_byte_of_the_quota_is_given() -> None:
    replica, share = leading(), FetchShare(throttle(100), COPYING, 0)
    share.record(replica, 99)
    assert share.limit(replica, 500) == 1
    assert not share.is_throttled
