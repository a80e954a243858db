"""Failed directories and assignments, request by request. Random histories are in test_directory_histories.py."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from support.controller.controller_harness import Harness, decoded, scenario

from raftwerk.controller.metadata.metadata_records import LOST, UNASSIGNED, BrokerChangeRecord, PartitionChangeRecord
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.errors import ErrorCode

A, B, C, D = (UUID(int=number) for number in (501, 502, 503, 504))


async def three_brokers() -> Harness:
    """Broker 1 has two directories, the others one; `t` is on all of them."""
    harness = Harness()
    await harness.add_broker(1, log_dirs=[A, B])
    await harness.add_broker(2, log_dirs=[C])
    await harness.add_broker(3, log_dirs=[D])
    await harness.create("t", [1, 2, 3], [2, 1, 3])
    return harness


async def assign(
    harness: Harness, directory: UUID | None, *keys: tuple[Any, int], broker_id: int = 1
) -> list[ErrorCode]:
    topics = [{"topic_id": topic_id, "partitions": [{"partition_index": index}]} for topic_id, index in keys]
    epoch = harness.image.brokers[broker_id].epoch
    request = decoded(
        ApiKey.ASSIGN_REPLICAS_TO_DIRS,
        broker_id=broker_id,
        broker_epoch=epoch,
        directories=[{"id": directory, "topics": topics}],
    )
    response = await harness.controller.assign_replicas_to_dirs(request)
    assert response["error_code"] == 0
    rows = [row for one in response["directories"] for topic in one["topics"] for row in topic["partitions"]]
    return [ErrorCode(row["error_code"]) for row in rows]


def id_of(harness: Harness) -> Any:
    return harness.image.topics_by_name["t"].topic_id


@scenario
async def test_the_directory_of_a_new_replica_is_known_for_brokers_with_one_directory() -> None:
    harness = await three_brokers()
    assert harness.partition("t", 0).directories == (UNASSIGNED, C, D)
    assert harness.partition("t", 1).directories == (C, UNASSIGNED, D)


@scenario
async def test_replicas_in_a_failed_directory_leave_isrs_and_leaderships() -> None:
    harness = await three_brokers()
    topic_id = id_of(harness)
    assert await assign(harness, A, (topic_id, 0)) == [ErrorCode.NONE]
    assert await assign(harness, B, (topic_id, 1)) == [ErrorCode.NONE]
    before = len(harness.quorum.records())
    assert await assign(harness, B, (topic_id, 1)) == [ErrorCode.NONE]
    assert len(harness.quorum.records()) == before  # it is known
    beat = harness.heartbeat(1, offline_log_dirs=[A])
    assert (await harness.controller.broker_heartbeat(beat))["is_fenced"] is False
    first, second = harness.partition("t", 0), harness.partition("t", 1)
    assert (first.leader, first.isr, second.leader, second.isr) == (2, (2, 3), 2, (2, 1, 3))
    assert harness.image.brokers[1].log_dirs == (B,)
    told = [record for _, record in harness.quorum.records()[before:]]
    assert [type(record) for record in told] == [PartitionChangeRecord, BrokerChangeRecord]
    await harness.controller.broker_heartbeat(harness.heartbeat(1, offline_log_dirs=[A]))
    assert len(harness.quorum.records()) == before + 2  # the same again is no news


@scenario
async def test_a_broker_without_a_directory_is_fenced() -> None:
    harness = await three_brokers()
    answer = await harness.controller.broker_heartbeat(harness.heartbeat(2, offline_log_dirs=[C]))
    assert answer["is_fenced"] is True
    assert harness.partition("t", 1).leader == 1
    assert (await harness.controller.broker_heartbeat(harness.heartbeat(2, offline_log_dirs=[C])))["is_fenced"] is True


@scenario
async def test_a_replica_assigned_to_a_failed_directory_leaves_the_isr() -> None:
    """The failure was reported before the assignment. Until then the directory of the replica was unknown."""
    harness = await three_brokers()
    await harness.controller.broker_heartbeat(harness.heartbeat(1, offline_log_dirs=[A]))
    assert harness.partition("t", 0).leader == 1
    assert await assign(harness, A, (id_of(harness), 0)) == [ErrorCode.NONE]
    assert (harness.partition("t", 0).leader, harness.partition("t", 0).isr) == (2, (2, 3))


@scenario
async def test_an_assignment_that_completes_a_reassignment_names_the_directories_of_the_replicas_that_stay() -> None:
    """The move waits for 1 or 2 in the ISR. An assignment of 3 to a failed directory elects one of them, uncleanly."""
    harness = Harness()
    await harness.add_broker(1, log_dirs=[C])
    await harness.add_broker(2, log_dirs=[D])
    await harness.add_broker(3, log_dirs=[A, B])
    await harness.create("t", [1, 2, 3], configs={"unclean.leader.election.enable": "true"})
    for broker_id in (1, 2):
        await harness.controller.broker_heartbeat(harness.heartbeat(broker_id, want_fence=True))
        await harness.controller.broker_heartbeat(harness.heartbeat(broker_id))
    move = {"name": "t", "partitions": [{"partition_index": 0, "replicas": [1, 2]}]}
    await harness.controller.alter_partition_reassignments(decoded(ApiKey.ALTER_PARTITION_REASSIGNMENTS, topics=[move]))
    assert (harness.partition("t").isr, harness.partition("t").removing_replicas) == ((3,), (3,))
    await harness.controller.broker_heartbeat(harness.heartbeat(3, offline_log_dirs=[B]))
    assert await assign(harness, B, (id_of(harness), 0), broker_id=3) == [ErrorCode.NONE]
    partition = harness.partition("t")
    assert (partition.replicas, partition.directories, partition.isr) == ((1, 2), (C, D), (1,))


@scenario
async def test_a_replica_in_a_failed_directory_cannot_enter_the_isr() -> None:
    harness = await three_brokers()
    await assign(harness, A, (id_of(harness), 0))
    await harness.controller.broker_heartbeat(harness.heartbeat(1, offline_log_dirs=[A]))
    partition = harness.partition("t", 0)
    members = [{"broker_id": b, "broker_epoch": harness.image.brokers[b].epoch} for b in (1, 2, 3)]
    row = {
        "partition_index": 0,
        "leader_epoch": partition.leader_epoch,
        "partition_epoch": partition.partition_epoch,
        "new_isr_with_epochs": members,
        "leader_recovery_state": 0,
    }
    topics = [{"topic_id": id_of(harness), "partitions": [row]}]
    request = decoded(ApiKey.ALTER_PARTITION, broker_id=2, broker_epoch=harness.image.brokers[2].epoch, topics=topics)
    answer = await harness.controller.alter_partition(request)
    assert answer["topics"][0]["partitions"][0]["error_code"] == ErrorCode.INELIGIBLE_REPLICA
    assert await assign(harness, B, (id_of(harness), 0)) == [ErrorCode.NONE]  # made anew, and caught up
    row["partition_epoch"] = harness.partition("t", 0).partition_epoch
    answer = await harness.controller.alter_partition(
        decoded(
            ApiKey.ALTER_PARTITION,
            broker_id=2,
            broker_epoch=harness.image.brokers[2].epoch,
            topics=[{**topics[0], "partitions": [row]}],
        )
    )
    assert answer["topics"][0]["partitions"][0]["error_code"] == 0


@scenario
async def test_invalid_assignments() -> None:
    harness = await three_brokers()
    topic_id = id_of(harness)
    await harness.create("other", [2])
    other = harness.image.topics_by_name["other"].topic_id
    assert await assign(harness, A, (UUID(int=99), 0)) == [ErrorCode.UNKNOWN_TOPIC_ID]
    assert await assign(harness, A, (None, 0)) == [ErrorCode.UNKNOWN_TOPIC_ID]
    assert await assign(harness, A, (topic_id, 7)) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert await assign(harness, A, (other, 0)) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert await assign(harness, None, (topic_id, 0)) == [ErrorCode.INVALID_REQUEST]
    assert await assign(harness, UNASSIGNED, (topic_id, 0)) == [ErrorCode.INVALID_REQUEST]
    assert await assign(harness, A, (topic_id, 0), (topic_id, 0)) == [ErrorCode.NONE, ErrorCode.INVALID_REQUEST]
    stale = decoded(ApiKey.ASSIGN_REPLICAS_TO_DIRS, broker_id=1, broker_epoch=-5, directories=[])
    answer = await harness.controller.assign_replicas_to_dirs(stale)
    assert answer == {"error_code": ErrorCode.STALE_BROKER_EPOCH, "directories": []}


@scenario
async def test_a_found_replica_may_lead_and_a_lost_one_may_not() -> None:
    """The only member of the ISR stopped cleanly. It leads again only if its log is found in another directory."""
    for is_lost in (False, True):
        harness = Harness()
        await harness.add_broker(1, log_dirs=[A, B])
        topic_id = await harness.create("t", [1])
        await assign(harness, A, (topic_id, 0))
        await harness.controller.broker_heartbeat(harness.heartbeat(1, want_fence=True, want_shut_down=True))
        epoch = harness.image.brokers[1].epoch
        assert (harness.partition("t").leader, harness.partition("t").elr) == (-1, (1,))
        again = harness.registration(1, 2, log_dirs=[B, C], previous_broker_epoch=epoch)
        assert (await harness.controller.register_broker(again))["error_code"] == 0
        await harness.controller.broker_heartbeat(harness.heartbeat(1))
        assert harness.partition("t").leader == -1  # where is it?
        if is_lost:
            assert await assign(harness, LOST, (topic_id, 0)) == [ErrorCode.NONE]
        assert await assign(harness, B, (topic_id, 0)) == [ErrorCode.NONE]
        assert harness.partition("t").leader == (-1 if is_lost else 1)


@pytest.mark.parametrize(
    ("directories", "accepted"),
    [([A, A], False), ([UUID(int=1)], False), ([None], False), ([C], False), ([A, B], True)],
)
def test_directories_of_a_registration_are_checked(directories: list[UUID | None], accepted: bool) -> None:
    async def body() -> None:
        harness = Harness()
        await harness.add_broker(2, log_dirs=[C])
        answer = await harness.controller.register_broker(harness.registration(1, log_dirs=directories))
        assert answer["error_code"] == (0 if accepted else ErrorCode.INVALID_REGISTRATION)

    scenario(body)()
