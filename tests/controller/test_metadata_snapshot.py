"""Snapshots of the image: when they are made, their records, and the delta of a node that loads one."""

from __future__ import annotations

import asyncio
from itertools import chain
from uuid import UUID

from support.controller.controller_harness import restore_image

from raftwerk.controller.metadata.metadata_image import MetadataDelta, MetadataImage
from raftwerk.controller.metadata.metadata_loader import MetadataLoader, SnapshotPolicy
from raftwerk.controller.metadata.metadata_records import (
    BrokerChangeRecord,
    ConfigRecord,
    Endpoint,
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    Record,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnregisterBrokerRecord,
    decode_record,
    encode_record,
)
from raftwerk.controller.metadata.metadata_snapshot import RECORDS_A_BATCH, difference, snapshot_batches
from raftwerk.raft.snapshots.snapshot_writer import SnapshotContents
from raftwerk.raft.types import CommittedBatch
from raftwerk.wire.types import SnapshotId

FIRST, SECOND, THIRD = UUID(int=1), UUID(int=2), UUID(int=3)
DIRECTORY = UUID(int=77)


def broker(broker_id: int, *, fenced: bool = False) -> RegisterBrokerRecord:
    endpoints = (Endpoint("PLAINTEXT", "h", 9092),)
    return RegisterBrokerRecord(broker_id, UUID(int=broker_id), endpoints, "r1", fenced, False, (DIRECTORY,))


HISTORY: list[Record] = [
    FeatureLevelRecord("metadata.version", 29),
    RegisterControllerRecord(3000, UUID(int=9), (Endpoint("CONTROLLER", "h", 9093),), (("f", 0, 1),)),
    broker(3),
    broker(1),
    broker(2),
    TopicRecord("b", SECOND),
    PartitionRecord(SECOND, 0, (1, 2), (1, 2), 1, directories=(DIRECTORY, DIRECTORY)),
    PartitionRecord(SECOND, 1, (3,), (3,), 3),
    TopicRecord("a", FIRST),
    PartitionRecord(FIRST, 0, (1, 2, 3), (1, 2), 2, adding_replicas=(3,)),
    ConfigRecord(2, "b", "segment.bytes", "2097152"),
    ConfigRecord(4, "", "message.max.bytes", "5"),
    ProducerIdsRecord(1, 3, 2000),
    PartitionChangeRecord(SECOND, 1, leader=-1),
    BrokerChangeRecord(3, 2, fenced=True),
    PartitionChangeRecord(FIRST, 0, isr=(2,), elr=(1,), last_known_elr=()),
]


def image_of(records: list[Record]) -> MetadataImage:
    image, delta = MetadataImage("c"), MetadataDelta()
    for offset, record in enumerate(records):
        image.replay(record, offset, delta)
    return image


def restored(image: MetadataImage) -> MetadataImage:
    return restore_image(
        "c", map(decode_record, chain.from_iterable(snapshot_batches(image))), image.offset, image.epoch
    )


def test_a_snapshot_gives_the_same_image_in_the_same_order() -> None:
    image = image_of(HISTORY)
    twin = restored(image)
    assert twin == image
    assert twin.brokers[3].epoch == 2 and twin.brokers[3].fenced, "broker epochs are kept, fenced members of an ISR too"
    for name in ("brokers", "topics_by_id", "topics_by_name", "configs", "features"):
        assert list(getattr(twin, name)) == list(getattr(image, name))
    assert list(snapshot_batches(twin)) == list(snapshot_batches(image)), "nodes make the same snapshot, to the byte"


def test_large_images_come_in_batches() -> None:
    many: list[Record] = [broker(1), TopicRecord("t", FIRST)]
    many += [PartitionRecord(FIRST, index, (1,), (1,), 1) for index in range(2 * RECORDS_A_BATCH)]
    assert [len(batch) for batch in snapshot_batches(image_of(many))] == [RECORDS_A_BATCH, RECORDS_A_BATCH, 2]


def test_the_difference_is_what_a_replay_would_have_changed() -> None:
    old = image_of(HISTORY)
    new = image_of(
        [
            *HISTORY,
            RemoveTopicRecord(SECOND),
            TopicRecord("b", THIRD),
            PartitionRecord(THIRD, 0, (1,), (1,), 1),
            PartitionChangeRecord(FIRST, 0, leader=2),
            UnregisterBrokerRecord(3, 2),
        ]
    )
    delta = difference(old, new)
    assert list(delta.deleted_topics) == [SECOND]
    assert list(delta.created_topics) == [THIRD]
    assert list(delta.changed_partitions) == [(FIRST, 0), (THIRD, 0)]
    assert list(delta.changed_brokers) == [3]
    assert list(delta.changed_configs) == [(2, "b")]
    assert difference(new, new) == MetadataDelta()


def batch(offset: int, record: Record, size_bytes: int = 100) -> CommittedBatch:
    return CommittedBatch(offset, offset, 1, 5, [encode_record(record, 1)], size_bytes)


def test_a_snapshot_is_made_when_enough_was_committed() -> None:
    async def scenario() -> None:
        loader = MetadataLoader("c", SnapshotPolicy(max_bytes=250))
        taken: list[SnapshotContents] = []

        def take(contents: SnapshotContents) -> bool:
            taken.append(contents)
            return True

        loader.set_snapshot_sink(take)
        for offset, record in enumerate(HISTORY):
            loader.on_commit([batch(offset, record)])
        assert [contents.id for contents in taken] == [SnapshotId(end, 1) for end in (3, 6, 9, 12, 15)]
        kept = [record for contents in taken[:1] for part in contents.batches for record in part]
        assert restore_image("c", map(decode_record, kept), 2, 1) == image_at(3), "what came later is not in it"

    asyncio.run(scenario())


def image_at(end: int) -> MetadataImage:
    image = image_of(HISTORY[:end])
    image.advance(end - 1, 1)
    return image


def test_no_snapshot_is_made_without_new_records() -> None:
    policy = SnapshotPolicy(max_bytes=100, max_interval_ms=1_000)
    assert policy.is_due(1, 1_000) and policy.is_due(100, 0)
    assert not policy.is_due(99, 999)
    assert not SnapshotPolicy(max_bytes=100, max_interval_ms=0).is_due(99, 10**9)


def test_a_refused_snapshot_is_made_later() -> None:
    async def scenario() -> None:
        loader = MetadataLoader("c", SnapshotPolicy(max_bytes=100))
        answers = iter([False, True])
        asked: list[SnapshotId] = []

        def ask(contents: SnapshotContents) -> bool:
            asked.append(contents.id)
            return next(answers)

        loader.set_snapshot_sink(ask)
        loader.on_commit([batch(0, HISTORY[0])])
        loader.on_commit([batch(1, HISTORY[1], 1)])
        loader.on_commit([batch(2, HISTORY[2], 1)])
        assert asked == [SnapshotId(1, 1), SnapshotId(2, 1)]

    asyncio.run(scenario())


def test_references_to_the_image_see_the_snapshot() -> None:
    loader = MetadataLoader("c")
    held, seen = loader.image, []
    loader.subscribe(lambda image, delta: seen.append((image.offset, list(delta.created_topics))))
    image = image_of(HISTORY)
    batches = list(snapshot_batches(image))
    loader.on_snapshot(SnapshotId(14, 0), batches[0])  # one that is not told to its end
    for part in (*batches, None):
        assert not seen and loader.image.offset == -1
        loader.on_snapshot(SnapshotId(16, 0), part)
    assert seen == [(15, [SECOND, FIRST])]
    assert held == image
    loader.on_commit([batch(16, RemoveTopicRecord(FIRST))])
    assert FIRST not in held.topics_by_id
