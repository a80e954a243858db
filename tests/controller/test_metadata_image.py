from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftwerk.controller.metadata.metadata_image import MetadataDelta, MetadataImage
from raftwerk.controller.metadata.metadata_loader import MetadataLoader
from raftwerk.controller.metadata.metadata_records import (
    _RECORD_TYPES,
    UNASSIGNED,
    BrokerChangeRecord,
    ConfigRecord,
    Endpoint,
    FeatureLevelRecord,
    MalformedRecordError,
    NewerMetadataError,
    PartitionChangeRecord,
    PartitionRecord,
    Record,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
    decode_record,
    encode_record,
)
from raftwerk.raft.types import CommittedBatch
from raftwerk.runtime.invariants import InvariantViolation

TOPIC = UUID(int=7)


def records_strategy() -> st.SearchStrategy[Record]:
    st.register_type_strategy(int, st.integers(-(2**63), 2**63 - 1))
    return st.one_of([st.builds(record_class) for record_class in _RECORD_TYPES])


@given(records_strategy(), st.sampled_from((0, 1)))
def test_codec_round_trip(record: Record, level: int) -> None:
    payload = encode_record(record, level)
    assert decode_record(payload, level) == record
    assert decode_record(payload) == record, "what an older node wrote is read too"


@given(st.binary(max_size=60), st.sampled_from((4, 5)))
def test_malformed_records_are_refused(tail: bytes, kind: int) -> None:
    """Random bytes, alone and after the mask of a compact record."""
    for payload in (tail, bytes((0x9F, kind, 1)) + tail, bytes((0x96, kind, 1, 0, 0, 0x91, 1)) + tail):
        try:
            decode_record(payload)
        except (MalformedRecordError, NewerMetadataError):
            pass


ONE, TWO, THREE = (UUID(int=2**127 + each) for each in (1, 2, 3))


def test_compact_records_are_much_smaller() -> None:
    made = PartitionRecord(ONE, 0, (1, 2, 3), (1, 2, 3), 1, directories=(UNASSIGNED,) * 3)
    kept = PartitionRecord(ONE, 0, (1, 2, 3), (1, 2, 3), 1, 4, 9, directories=(ONE, TWO, THREE))
    moved = PartitionChangeRecord(ONE, 7, isr=(1, 2), leader=1)
    sizes = [[len(encode_record(record, level)) for level in (0, 1)] for record in (made, kept, moved)]
    assert sizes == [[93, 33], [93, 86], [33, 27]]


def test_older_software_stops_at_compact_records() -> None:
    with pytest.raises(NewerMetadataError, match=r"PartitionChangeRecord version 1 .* upgrade this one"):
        decode_record(encode_record(PartitionChangeRecord(TOPIC, 0, leader=1), 1), 0)
    assert decode_record(encode_record(TopicRecord("t", TOPIC), 1), 0) == TopicRecord("t", TOPIC)


def test_an_unknown_feature_level_stops_the_node() -> None:
    for name, level in (("metadata.version", 30), ("raftwerk.record.version", 3), ("new.version", 1)):
        loader = MetadataLoader("c")
        with pytest.raises(NewerMetadataError, match=f"{name} at level {level}.*upgrade this node"):
            loader.on_commit([CommittedBatch(0, 0, 1, 0, [encode_record(FeatureLevelRecord(name, level), 0)])])


@pytest.mark.parametrize("payload", [b"", b"\xc1", b"\x01", b"\x92\x06\x00"])
def test_what_is_no_record(payload: bytes) -> None:
    with pytest.raises(MalformedRecordError):
        decode_record(payload)


@pytest.mark.parametrize("payload", [b"\x93\xcc\xff\x00\x00", b"\x93\x06\x01\x00"])
def test_unknown_records_stop_the_node(payload: bytes) -> None:
    with pytest.raises(NewerMetadataError):
        decode_record(payload)


def broker(broker_id: int, fenced: bool = False) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(broker_id, UUID(int=broker_id), (Endpoint("PLAINTEXT", "h", 9092),), fenced=fenced)


def image_of(*records: Record) -> MetadataImage:
    image = MetadataImage("c")
    delta = MetadataDelta()
    for offset, record in enumerate(records):
        image.replay(record, offset, delta)
    return image


def small() -> MetadataImage:
    return image_of(
        broker(1),
        broker(2),
        broker(3, fenced=True),
        TopicRecord("t", TOPIC),
        PartitionRecord(TOPIC, 0, (1, 2, 3), (1, 2), 1),
    )


def test_epochs_grow_with_changes() -> None:
    image, delta = small(), MetadataDelta()
    image.replay(PartitionChangeRecord(TOPIC, 0, isr=(1,)), 5, delta)
    image.replay(PartitionChangeRecord(TOPIC, 0, leader=-1), 6, delta)
    partition = image.partition(TOPIC, 0)
    assert partition is not None
    assert (partition.leader, partition.leader_epoch, partition.partition_epoch) == (-1, 1, 2)
    assert delta.changed_partitions == {(TOPIC, 0): None}


@pytest.mark.parametrize(
    ("change", "broken"),
    [
        (PartitionChangeRecord(TOPIC, 0, isr=(2,)), "leader is in the ISR"),
        (PartitionChangeRecord(TOPIC, 0, isr=(1, 4)), "subset"),
        (PartitionChangeRecord(TOPIC, 0, isr=(1, 2, 3)), "fenced"),
        (PartitionChangeRecord(TOPIC, 0, elr=(2,)), "ELR"),
        (PartitionChangeRecord(TOPIC, 1, isr=(1,)), "known partition"),
        (BrokerChangeRecord(1, 99, fenced=True), "live epoch"),
        (TopicRecord("t", UUID(int=8)), "its own"),
    ],
)
def test_invariants(change: Record, broken: str) -> None:
    with pytest.raises(InvariantViolation, match=broken):
        small().replay(change, 5, MetadataDelta())


def test_copies_do_not_see_each_other() -> None:
    image = small()
    before = small()
    twin = image.copy()
    twin.replay(PartitionChangeRecord(TOPIC, 0, isr=(1,)), 5, MetadataDelta())
    twin.replay(ConfigRecord(2, "t", "retention.ms", "1"), 6, MetadataDelta())
    assert image == before
    image.replay(BrokerChangeRecord(2, 1, fenced=True), 5, MetadataDelta())
    image.replay(RemoveTopicRecord(TOPIC), 6, MetadataDelta())
    assert "t" in twin.topics_by_name and twin.brokers[2].fenced is False


def test_a_topic_created_and_deleted_in_one_delta_is_not_in_it() -> None:
    image, delta = small(), MetadataDelta()
    other = UUID(int=9)
    records: list[Record] = [
        TopicRecord("u", other),
        PartitionRecord(other, 0, (1,), (1,), 1),
        RemoveTopicRecord(other),
    ]
    for offset, record in enumerate(records, start=5):
        image.replay(record, offset, delta)
    assert delta == MetadataDelta()
    image.replay(RemoveTopicRecord(TOPIC), 8, delta)
    assert list(delta.deleted_topics) == [TOPIC]


def test_loader_publishes_once_a_commit_and_counts_control_batches() -> None:
    loader = MetadataLoader("c")
    seen: list[tuple[int, int]] = []
    loader.subscribe(lambda image, delta: seen.append((image.offset, len(delta.changed_brokers))))
    loader.on_commit(
        [
            CommittedBatch(0, 0, 1, 0, []),
            CommittedBatch(1, 2, 1, 0, [encode_record(broker(1), 1), encode_record(broker(2), 1)]),
            CommittedBatch(3, 3, 2, 0, []),
        ]
    )
    assert seen == [(3, 2)]
    assert loader.image.epoch == 2 and loader.image.brokers[2].epoch == 2
