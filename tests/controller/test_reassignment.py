"""Reassignments step by step: plans, completion, cancellation, refusals, and ListPartitionReassignments."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.controller.controller_harness import decided, decoded

from raftwerk.controller.metadata.metadata_image import MetadataDelta, MetadataImage, PartitionRegistration
from raftwerk.controller.metadata.metadata_records import (
    Endpoint,
    PartitionChangeRecord,
    PartitionRecord,
    Record,
    RegisterBrokerRecord,
    TopicRecord,
)
from raftwerk.controller.partitions.partition_change import ReplicaSets, complete
from raftwerk.controller.partitions.reassignment import (
    alter_partition_reassignments,
    list_partition_reassignments,
    plan,
)
from raftwerk.controller.settings import ControllerSettings
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.errors import ErrorCode

TOPIC = UUID(int=1)
BROKERS = range(1, 7)


class Cluster:
    """Six brokers and one partition."""

    def __init__(self, replicas: tuple[int, ...], isr: tuple[int, ...], **settings: str) -> None:
        self.settings = ControllerSettings(1, topic_defaults={key.replace("_", "."): v for key, v in settings.items()})
        self.image = MetadataImage("c")
        endpoint = (Endpoint("PLAINTEXT", "h", 9092),)
        self.apply(RegisterBrokerRecord(b, UUID(int=b), endpoint, fenced=False) for b in BROKERS)
        self.apply([TopicRecord("t", TOPIC), PartitionRecord(TOPIC, 0, replicas, isr, isr[0])])

    def apply(self, records: Iterable[Record]) -> list[Record]:
        applied = list(records)
        for record in applied:
            self.image.replay(record, self.image.offset + 1, MetadataDelta())
        return applied

    @property
    def partition(self) -> PartitionRegistration:
        return self.image.topics_by_id[TOPIC].partitions[0]

    def ask(self, replicas: list[int] | None, **more: Any) -> tuple[int, str | None]:
        partitions = [{"partition_index": 0, "replicas": replicas}]
        request = decoded(
            ApiKey.ALTER_PARTITION_REASSIGNMENTS, topics=[{"name": "t", "partitions": partitions}], **more
        )
        result = decided(alter_partition_reassignments(self.image, self.settings, request))
        self.apply(result.records)
        row = result.response["responses"][0]["partitions"][0]
        return row["error_code"], row["error_message"]

    def joins(self, *isr: int) -> None:
        """The leader changes the ISR to `isr`."""
        from raftwerk.controller.partitions.partition_change import Goal, decide_partition_change

        goal = Goal(isr, self.image.is_active, self.settings.min_insync_replicas(self.image, "t"), elr_enabled=True)
        record = decide_partition_change(TOPIC, 0, self.partition, goal)
        assert isinstance(record, PartitionChangeRecord)
        self.apply([record])

    def sets(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        one = self.partition
        return one.replicas, one.adding_replicas, one.removing_replicas


def test_a_reassignment_from_beginning_to_end() -> None:
    cluster = Cluster((1, 2), (1, 2))
    assert cluster.ask([3, 4]) == (0, None)
    assert cluster.sets() == ((3, 4, 1, 2), (3, 4), (1, 2))
    assert (cluster.partition.leader, cluster.partition.leader_epoch) == (1, 0), "nothing changes for clients yet"
    cluster.joins(1, 2, 3)
    assert cluster.sets() == ((3, 4, 1, 2), (3, 4), (1, 2))
    cluster.joins(1, 2, 3, 4)
    assert cluster.sets() == ((3, 4), (), ())
    assert cluster.partition.isr == (3, 4)
    assert (cluster.partition.leader, cluster.partition.leader_epoch) == (3, 1)


def test_removing_replicas_completes_at_once_and_raises_the_leader_epoch() -> None:
    cluster = Cluster((1, 2, 3), (1, 2, 3))
    assert cluster.ask([1, 2]) == (0, None)
    assert cluster.sets() == ((1, 2), (), ())
    assert (cluster.partition.leader, cluster.partition.leader_epoch) == (1, 1), "the epoch grows: 3 is cut off"


def test_another_order_of_replicas_completes_at_once() -> None:
    cluster = Cluster((1, 2, 3), (1, 2, 3))
    assert cluster.ask([3, 1, 2]) == (0, None)
    assert (cluster.sets(), cluster.partition.leader) == (((3, 1, 2), (), ()), 1)


def test_completion_waits_for_enough_replicas_in_sync() -> None:
    cluster = Cluster((1, 2, 3), (1, 2), min_insync_replicas="2")
    assert cluster.ask([1, 3]) == (0, None)
    assert cluster.sets() == ((1, 3, 2), (), (2,)), "1 alone could not be written to"
    cluster.joins(1, 2, 3)
    assert (cluster.sets(), cluster.partition.isr) == (((1, 3), (), ()), (1, 3))


def test_cancelling() -> None:
    cluster = Cluster((1, 2), (1, 2))
    cluster.ask([3, 4])
    cluster.joins(1, 2, 3)
    assert cluster.ask(None) == (0, None)
    assert cluster.sets() == ((1, 2), (), ())
    assert cluster.partition.isr == (1, 2)
    assert cluster.ask(None) == (ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, None)


def test_cancelling_never_needs_an_unclean_election() -> None:
    cluster = Cluster((1,), (1,))
    cluster.ask([3, 4])
    cluster.joins(1, 3)
    cluster.joins(3)
    code, message = cluster.ask(None)
    assert code == ErrorCode.INVALID_REPLICA_ASSIGNMENT and "unclean" in str(message)
    assert cluster.sets() == ((3, 4, 1), (3, 4), (1,))


def test_a_reassignment_replaces_one_under_way() -> None:
    cluster = Cluster((1, 2), (1, 2))
    cluster.ask([3, 4])
    cluster.ask([3, 5])
    assert cluster.sets() == ((3, 5, 1, 2, 4), (3, 5), (1, 2, 4))
    cluster.ask([1, 2])
    assert cluster.sets() == ((1, 2), (), ())


@pytest.mark.parametrize(
    ("replicas", "more", "code", "says"),
    [
        ([], {}, ErrorCode.INVALID_REPLICA_ASSIGNMENT, "an empty replica list"),
        ([3, 3], {}, ErrorCode.INVALID_REPLICA_ASSIGNMENT, "the broker 3 more than once"),
        ([3, 9], {}, ErrorCode.INVALID_REPLICA_ASSIGNMENT, "broker 9, but no such broker"),
        ([-3], {}, ErrorCode.INVALID_REPLICA_ASSIGNMENT, "an invalid broker id -3"),
        ([3], {"allow_replication_factor_change": False}, ErrorCode.INVALID_REPLICATION_FACTOR, "from 2 to 1"),
    ],
)
def test_refusals(replicas: list[int], more: dict[str, Any], code: ErrorCode, says: str) -> None:
    cluster = Cluster((1, 2), (1, 2))
    found, message = cluster.ask(replicas, **more)
    assert found == code and says in str(message)
    assert cluster.sets() == ((1, 2), (), ())


def test_listing() -> None:
    cluster = Cluster((1, 2), (1, 2))
    everything = decoded(ApiKey.LIST_PARTITION_REASSIGNMENTS, topics=None)
    named = decoded(ApiKey.LIST_PARTITION_REASSIGNMENTS, topics=[{"name": "t", "partition_indexes": [0, 7]}])
    assert decided(list_partition_reassignments(cluster.image, everything)).response["topics"] == []
    cluster.ask([3, 1])
    row = {"partition_index": 0, "replicas": [3, 1, 2], "adding_replicas": [3], "removing_replicas": [2]}
    for request in (everything, named):
        topics = decided(list_partition_reassignments(cluster.image, request)).response["topics"]
        assert topics == [{"name": "t", "partitions": [row]}]


SOME = st.lists(st.sampled_from(list(BROKERS)), min_size=1, max_size=4, unique=True).map(tuple)


@given(SOME, SOME, SOME, SOME, st.integers(1, 3))
def test_plans_and_completion_against_sets(
    first: tuple[int, ...], second: tuple[int, ...], third: tuple[int, ...], isr: tuple[int, ...], min_isr: int
) -> None:
    """The second plan begins during the first. In the end only the last target counts."""
    start = PartitionRegistration(first, first, (), (), (), (), first[0], 0, 0)
    way = plan(start, second)
    on_the_way = start._replace(replicas=way.replicas, adding_replicas=way.adding, removing_replicas=way.removing)
    way = plan(on_the_way, third)
    assert way.replicas[: len(third)] == third and len(set(way.replicas)) == len(way.replicas)
    assert set(way.adding) == set(third) - set(first), "what the partition did not have before it all began"
    assert set(way.removing) == (set(first) | set(second)) - set(third)
    in_sync = tuple(replica for replica in way.replicas if replica in isr)
    sets, left = complete(way, in_sync, min_isr)
    if sets != way:
        assert sets == ReplicaSets(third, (), ()) and left and set(way.adding) <= set(left)
        assert len(left) == len(in_sync) or len(left) >= min(min_isr, len(third))
    elif way.adding or way.removing:
        staying = set(in_sync) - set(way.removing)
        assert not staying or not set(way.adding) <= staying or len(staying) < min(min_isr, len(third))
