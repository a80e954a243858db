"""Consumers are told to read from a replica in their rack (KIP-392)."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import pytest
from support.isr.manager_cluster import Cluster, registration

from raftwerk.isr.fetching.replica_selector import ReplicaSelector, ReplicaView, select_in_rack
from raftwerk.wire.errors import ErrorCode
from raftwerk.wire.types import TopicPartition

ONE = TopicPartition("t", 0)
RACKS = {1: "a", 2: "b", 3: "b"}


def view(broker_id: int, rack: str, end: int = 10, caught_up: int = 0) -> ReplicaView:
    return ReplicaView(end, caught_up, broker_id, rack)


@pytest.mark.parametrize(
    ("client_rack", "followers", "selected"),
    [
        ("b", [view(2, "b"), view(3, "a")], 2),
        ("a", [view(2, "a")], None),  # the leader is there
        ("c", [view(2, "b")], None),
        ("", [view(2, "")], None),  # no rack is not a rack
        ("b", [], None),
        ("b", [view(2, "b", 10), view(3, "b", 11), view(4, "b", 9)], 3),
        ("b", [view(2, "b", 10, 7), view(3, "b", 10, 5)], 2),
        ("b", [view(2, "b", 10, 7), view(3, "b", 10, 7)], 3),
    ],
)
def test_the_replica_in_the_rack_that_is_caught_up_best(
    client_rack: str, followers: Sequence[ReplicaView], selected: int | None
) -> None:
    found = select_in_rack(client_rack, followers, "a")
    assert (found and found.broker_id) == selected


def cluster(select: ReplicaSelector | None = select_in_rack) -> tuple[Cluster, UUID]:
    """Partition 0 of `t` with ten records: its leader is in rack a, its followers in rack b."""
    made = Cluster(replica_selector=select)
    made.records[:] = [registration(node, rack=rack) for node, rack in RACKS.items()]
    for node in RACKS:
        made.boot(node)
    topic_id = made.create_topic("t", 7)
    made.tell()
    made.sleep(1.0)
    for _ in range(10):
        made.produce(1, ONE)
        made.sleep(0.1)
    return made, topic_id


def preferred(made: Cluster, offset: int, rack: str = "b", node: int = 1) -> int:
    answer = made.consume(node, ONE, offset, 1_000, client_rack=rack, from_follower_allowed=True)
    if answer.rows is None:
        made.sleep(1.1)
    assert answer.error == ErrorCode.NONE
    return int(answer.row.preferred_read_replica)


def test_a_leader_names_the_replica_at_once_instead_of_records() -> None:
    made, _ = cluster()
    answer = made.consume(1, ONE, 4, 30_000, client_rack="b", from_follower_allowed=True)
    row = answer.row
    assert (row.preferred_read_replica, row.records, row.error_code) == (3, b"", ErrorCode.NONE)
    assert (row.high_watermark, row.log_start_offset) == (10, 0)
    there = made.consume(3, ONE, 4, client_rack="b", from_follower_allowed=True)
    assert there.row.records
    assert there.row.preferred_read_replica == -1


def test_who_is_at_the_end_of_the_log_is_sent_to_the_replica_too() -> None:
    made, _ = cluster()
    assert preferred(made, 10) == 3
    made.sleep(1.0)  # until the follower knows the high watermark
    answer = made.consume(3, ONE, 10, 30_000, client_rack="b", from_follower_allowed=True)
    assert answer.rows is None
    made.produce(1, ONE)
    made.sleep(1.0)
    assert answer.row.records


@pytest.mark.parametrize("rack", ["a", "c", ""])
def test_the_leader_answers_who_has_no_nearer_replica(rack: str) -> None:
    made, _ = cluster()
    assert preferred(made, 4, rack) == -1
    assert made.consume(1, ONE, 4, client_rack=rack, from_follower_allowed=True).row.records


def test_consumers_that_know_no_preferred_replica_and_all_where_nothing_is_set_read_from_the_leader() -> None:
    made, _ = cluster()
    old = made.consume(1, ONE, 4, client_rack="b")
    assert old.row.records
    made, _ = cluster(None)
    assert preferred(made, 4) == -1


def test_a_replica_that_left_the_isr_is_not_named() -> None:
    made, topic_id = cluster()
    made.change(topic_id, 0, isr=(1, 2))
    made.tell(1)
    assert preferred(made, 4) == 2


def test_a_fenced_broker_is_not_named() -> None:
    made, _ = cluster()
    made.records += [registration(3, rack="b", fenced=True)]
    made.tell(1)
    assert preferred(made, 4) == 2


def test_a_replica_that_lacks_the_offset_is_not_named() -> None:
    made, _ = cluster()
    for follower in (2, 3):
        made.mute[follower, 1] = None
    made.sleep(0.1)
    made.produce(1, ONE, acks=1)
    assert preferred(made, 10) == 3
    assert preferred(made, 11) == -1


def test_a_replica_whose_log_begins_later_is_not_named() -> None:
    made, _ = cluster()
    leader = made.managers[1].partitions[ONE].partition.leader
    assert leader is not None
    leader.followers[3].log_start_offset = 5
    assert preferred(made, 4) == 2
    assert preferred(made, 5) == 3
