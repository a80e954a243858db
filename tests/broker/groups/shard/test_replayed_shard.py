"""What a shard makes of the records of its partition: groups of both protocols, and offsets."""

from __future__ import annotations

from uuid import UUID

import pytest
from support.broker.consumer_transcript import FakeTopics

from raftwerk.broker.coordinators.record_fields import BadRecord, CoordinatorRecord
from raftwerk.broker.groups.classic.classic_group import ClassicGroup
from raftwerk.broker.groups.consumer.consumer_group import ConsumerGroup
from raftwerk.broker.groups.consumer.consumer_group_member import MemberState
from raftwerk.broker.groups.group_config import GroupConfig
from raftwerk.broker.groups.group_coordinator_shard import GroupCoordinatorShard
from raftwerk.broker.groups.records.consumer_group_records import (
    ConsumerGroupKey,
    CurrentAssignmentValue,
    EpochValue,
    MemberMetadataValue,
    RecordType,
    current_record,
    epoch_record,
    member_metadata_record,
    target_record,
)
from raftwerk.broker.groups.records.offset_and_classic_records import (
    GroupMetadataValue,
    MemberValue,
    OffsetAndMetadata,
    classic_group_record,
    offset_record,
)
from raftwerk.wire.types import TopicPartition

FLIGHTS, HOTELS = TopicPartition("flights", 0), TopicPartition("hotels", 0)
T0, T1 = (UUID(int=ord("t")), 0), (UUID(int=ord("t")), 1)
OFFSET = OffsetAndMetadata(7, -1, "", 1_000)
METADATA = MemberMetadataValue(None, None, "c", "/h", ("t",), None, 60_000, None)
CLASSIC_MEMBER = MemberValue("classic", None, "c", "/h", 60_000, 10_000, b"", b"")
CLASSIC = classic_group_record("g", GroupMetadataValue("consumer", 3, "range", "classic", 0, (CLASSIC_MEMBER,)))
MEMBER = member_metadata_record("g", "m", METADATA)
EPOCH = epoch_record(ConsumerGroupKey(RecordType.GROUP, "g"), EpochValue(5, 99))
TARGET = epoch_record(ConsumerGroupKey(RecordType.TARGET, "g"), EpochValue(4))
TARGET_OF_MEMBER = target_record("g", "m", (T0, T1))
CURRENT = current_record("g", "m", CurrentAssignmentValue(4, 3, MemberState.UNREVOKED, (T0,), (T1,)))
CONSUMER = (MEMBER, EPOCH, TARGET_OF_MEMBER, TARGET, CURRENT)


def tombstone(record: CoordinatorRecord) -> CoordinatorRecord:
    return CoordinatorRecord(record.key, None)


def replayed(*records: CoordinatorRecord) -> GroupCoordinatorShard:
    shard = GroupCoordinatorShard(3, 1, lambda _: GroupConfig(), FakeTopics())
    for key, value in records:
        shard.replay(key, value)
    return shard


def loaded(*records: CoordinatorRecord) -> GroupCoordinatorShard:
    shard = replayed(*records)
    passed_over: list[str] = []
    shard.finish_loading(0, lambda what, _: passed_over.append(what))
    assert not passed_over
    return shard


def consumer_group(*records: CoordinatorRecord) -> ConsumerGroup:
    group = loaded(*records).groups["g"]
    assert isinstance(group, ConsumerGroup)
    return group


def test_a_consumer_group_is_what_its_records_say() -> None:
    group = consumer_group(*CONSUMER)
    assert (group.epoch, group.metadata_hash, group.target_epoch) == (5, 99, 4)
    assert group.target == {"m": (T0, T1)}
    member = group.members["m"]
    assert (member.epoch, member.previous_epoch, member.state) == (4, 3, MemberState.UNREVOKED)
    assert (member.assigned, member.revoking, member.subscription) == ((T0,), (T1,), METADATA)


@pytest.mark.parametrize("first", [CURRENT, TARGET_OF_MEMBER, TARGET, EPOCH])
def test_compaction_may_leave_any_record_of_a_group_first(first: CoordinatorRecord) -> None:
    records = (first, *(one for one in CONSUMER if one is not first))
    assert consumer_group(*records).members == consumer_group(*CONSUMER).members


def test_tombstones_remove_what_their_records_said() -> None:
    assert consumer_group(*CONSUMER, tombstone(TARGET_OF_MEMBER)).target == {}
    assert consumer_group(*CONSUMER, tombstone(TARGET)).target_epoch == 0
    assert consumer_group(*CONSUMER, tombstone(CURRENT)).members["m"].epoch == 0
    assert consumer_group(*CONSUMER, tombstone(MEMBER)).members == {}
    assert loaded(*CONSUMER, tombstone(EPOCH)).groups == {}
    assert loaded(CLASSIC, tombstone(CLASSIC)).groups == {}
    for record in CONSUMER:
        assert loaded(tombstone(record)).groups == {}, "of a group that is not there"


def test_a_group_that_begins_again_after_its_tombstone_has_nothing_of_the_former_one() -> None:
    group = consumer_group(*CONSUMER, tombstone(EPOCH), MEMBER, epoch_record(
        ConsumerGroupKey(RecordType.GROUP, "g"), EpochValue(1)))  # fmt: skip
    assert (group.epoch, group.target_epoch, group.target, group.members["m"].epoch) == (1, 0, {}, 0)


@pytest.mark.parametrize(("records", "kind"), [
    ((CLASSIC, *CONSUMER), "consumer"), ((*CONSUMER, CLASSIC), "consumer"),
    ((CLASSIC, EPOCH), "classic"), ((CLASSIC, TARGET), "classic"),
    ((EPOCH,), "consumer"),
])  # fmt: skip
def test_of_two_groups_with_one_id_the_consumer_group_counts_if_it_has_members(
    records: tuple[CoordinatorRecord, ...], kind: str
) -> None:
    """A change of the protocol writes tombstones of the former group, and a part of them may have been compacted."""
    assert loaded(*records).groups["g"].kind == kind


def test_a_target_without_a_group_and_without_members_is_no_group() -> None:
    assert loaded(TARGET, TARGET_OF_MEMBER).groups == {}


def test_a_record_without_a_key_or_with_a_state_that_no_member_has_is_bad() -> None:
    """It is passed over alone, and the group has the records before it."""
    shard = replayed(MEMBER, EPOCH)
    with pytest.raises(BadRecord):
        shard.replay(None, b"value")
    with pytest.raises(BadRecord):
        shard.replay(*current_record("g", "m", CurrentAssignmentValue(4, 3, 99, (T0,), ())))
    shard.finish_loading(0, lambda what, _: pytest.fail(what))
    group = shard.groups["g"]
    assert isinstance(group, ConsumerGroup)
    assert group.members["m"].epoch == 0


def test_offsets_without_a_group_have_a_simple_one() -> None:
    """So they are listed, and expire. Offsets of a transaction that is open count, too."""
    shard = replayed(offset_record("g", FLIGHTS, OFFSET))
    key, value = offset_record("h", FLIGHTS, OFFSET)
    shard.replay(key, value, transaction_of=9)
    shard.finish_loading(0, lambda what, _: pytest.fail(what))
    assert sorted(shard.groups) == ["g", "h"]
    for group in shard.groups.values():
        assert isinstance(group, ClassicGroup) and group.is_simple
    assert (shard.offsets_of("g"), shard.offsets_of("h")) == ({FLIGHTS: OFFSET}, {})
    assert shard.partitions_with_offsets("h") == shard.unsettled_partitions("h") == [FLIGHTS]
    assert shard.groups_with_offsets == ["g", "h"]
    shard.end_transaction(9, is_committed=True)
    assert shard.offsets_of("h") == {FLIGHTS: OFFSET}
    assert shard.unsettled_partitions("h") == []


def test_the_tombstone_of_an_offset_removes_that_one() -> None:
    """Also in a transaction: Apache Kafka writes none there, and takes one at once."""
    shard = replayed(offset_record("g", FLIGHTS, OFFSET), offset_record("g", HOTELS, OFFSET))
    shard.replay(offset_record("g", FLIGHTS, None).key, None, transaction_of=9)
    assert shard.offsets_of("g") == {HOTELS: OFFSET}
    shard.replay(*offset_record("g", HOTELS, None))
    assert (shard.offsets_of("g"), shard.groups_with_offsets) == ({}, [])


def test_log_lines_name_the_partition() -> None:
    assert replayed().name == "group partition 3"
