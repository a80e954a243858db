"""What the metadata says of brokers and partitions, as the leaders of this broker ask for it."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from raftwerk.controller.metadata.metadata_image import MetadataDelta, MetadataImage
from raftwerk.controller.metadata.metadata_records import (
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from raftwerk.isr.hosted_partitions import BrokersOfPartition, HostedPartitions
from raftwerk.wire.errors import ErrorCode, ProtocolError
from raftwerk.wire.records import NewRecord, encode_batch
from raftwerk.wire.types import LeaderIdAndEpoch, TopicPartition

TP, UNKNOWN = TopicPartition("t", 0), TopicPartition("nowhere", 0)
TOPIC_ID = UUID(int=7)
LOCAL, OTHER, FENCED, NOBODY = 1, 2, 3, 4
GOOD, BAD = UUID(int=101), UUID(int=102)
OWN_EPOCH = 77


@pytest.fixture
def hosted() -> HostedPartitions:
    """Broker 1's; broker 2 is active in the epoch that is its record's offset, 3 is fenced, and 4 is not registered."""
    made = HostedPartitions(LOCAL, lambda: OWN_EPOCH)
    records: list[Any] = [
        RegisterBrokerRecord(LOCAL, UUID(int=1), (), fenced=False),
        RegisterBrokerRecord(OTHER, UUID(int=2), (), fenced=False, log_dirs=(GOOD,)),
        RegisterBrokerRecord(FENCED, UUID(int=3), (), fenced=True),
        TopicRecord("t", TOPIC_ID),
        PartitionRecord(TOPIC_ID, 0, (LOCAL, OTHER, FENCED), (LOCAL, OTHER), OTHER, leader_epoch=4, elr=(FENCED,)),
    ]
    image = MetadataImage("cluster")
    for offset, record in enumerate(records, start=10):
        image.replay(record, offset, MetadataDelta())
    made.image = image
    return made


def test_only_the_present_incarnation_of_an_active_broker_may_join_an_isr(hosted: HostedPartitions) -> None:
    """-1 stands for an epoch that is not known: the follower runs a version that does not tell it (KIP-903)."""
    brokers = BrokersOfPartition(hosted, TP)
    assert brokers.is_isr_eligible(OTHER, 11)
    assert brokers.is_isr_eligible(OTHER, -1)
    assert not any(brokers.is_isr_eligible(OTHER, epoch) for epoch in (10, 12, 0, -2))
    assert not brokers.is_isr_eligible(FENCED, 12)
    assert not any(brokers.is_isr_eligible(NOBODY, epoch) for epoch in (-1, 11))
    assert BrokersOfPartition(hosted, UNKNOWN).is_isr_eligible(OTHER, 11), "the metadata of the partition is to come"


@pytest.mark.parametrize(("directory", "may_join"), [(GOOD, True), (BAD, False)])
def test_a_replica_whose_directory_has_failed_may_not_join_an_isr(
    hosted: HostedPartitions, directory: UUID, may_join: bool
) -> None:
    hosted.image.replay(PartitionChangeRecord(TOPIC_ID, 0, directories=(GOOD, directory, GOOD)), 20, MetadataDelta())
    assert BrokersOfPartition(hosted, TP).is_isr_eligible(OTHER, 11) is may_join


def test_the_own_epoch_is_known_before_the_metadata_has_it(hosted: HostedPartitions) -> None:
    """The leader proposes itself with each ISR, and the controller has accepted its registration."""
    brokers = BrokersOfPartition(hosted, TP)
    assert brokers.broker_epoch(LOCAL) == OWN_EPOCH
    assert brokers.broker_epoch(OTHER) == 11
    assert brokers.broker_epoch(FENCED) == 12, "its former incarnations have ended"
    assert brokers.broker_epoch(NOBODY) is None


def test_the_leader_is_named_with_the_errors_that_clients_look_for_it_in(hosted: HostedPartitions) -> None:
    """KIP-951: they need not ask for metadata. With any other error the field has no meaning."""
    for code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH):
        assert hosted.leader_hint(TP, int(code)) == LeaderIdAndEpoch(OTHER, 4)
        assert hosted.leader_hint(UNKNOWN, int(code)) is None
    assert hosted.leader_hint(TP, int(ErrorCode.UNKNOWN_LEADER_EPOCH)) is None


def test_who_may_be_elected_besides_the_isr_is_known_by_the_metadata(hosted: HostedPartitions) -> None:
    assert hosted.elr_of(TP) == (FENCED,)
    assert hosted.elr_of(UNKNOWN) == ()
    assert hosted.elr_of(TopicPartition("t", 1)) == ()


def test_why_a_partition_cannot_be_served_here(hosted: HostedPartitions) -> None:
    """A client looks for the leader, waits, or gives up by the code: each reason has its own."""

    def reason(topic_partition: TopicPartition) -> ErrorCode:
        with pytest.raises(ProtocolError) as refused:
            hosted.find(topic_partition)
        return refused.value.code

    assert reason(TP) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert reason(UNKNOWN) is reason(TopicPartition("t", 1)) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    for waiting in (hosted.unusable, hosted.without_space):
        waiting[TP] = TOPIC_ID
        assert reason(TP) is ErrorCode.KAFKA_STORAGE_ERROR
        del waiting[TP]


@pytest.mark.parametrize(("leader", "remembered"), [(LOCAL, [7]), (OTHER, [])])
def test_batches_that_come_too_early_are_remembered_where_this_broker_shall_lead(
    hosted: HostedPartitions, leader: int, remembered: list[int]
) -> None:
    hosted.image.replay(PartitionChangeRecord(TOPIC_ID, 0, leader=leader), 20, MetadataDelta())
    records = encode_batch([NewRecord(None, b"v", (), 1)], producer_id=7, producer_epoch=0, base_sequence=0)
    for topic_partition in (TP, UNKNOWN):
        hosted.note_refused(topic_partition, memoryview(records), 0)
    assert list(hosted.refused_before.take(TP).producers) == remembered
    assert list(hosted.refused_before.take(UNKNOWN).producers) == []
