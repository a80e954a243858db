"""A copy of an image is independent of it, and a delta names all that a record changed."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import pytest

from raftwerk.controller.metadata.metadata_image import MetadataDelta, MetadataImage
from raftwerk.controller.metadata.metadata_loader import SnapshotPolicy
from raftwerk.controller.metadata.metadata_records import (
    MIGRATING,
    UNASSIGNED,
    AccessControlEntryRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    Endpoint,
    FeatureLevelRecord,
    PartitionRecord,
    ProducerIdsRecord,
    Record,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UserScramCredentialRecord,
)

AT = (Endpoint("PLAINTEXT", "h", 1),)
TOPIC, OTHER = UUID(int=1), UUID(int=2)
BEFORE: tuple[Record, ...] = (
    RegisterBrokerRecord(1, UUID(int=5), AT, fenced=False),
    TopicRecord("t", TOPIC),
    PartitionRecord(TOPIC, 0, (1,), (1,), 1),
    ConfigRecord(2, "t", "retention.ms", "5"),
)
CHANGES: list[Record] = [
    RegisterBrokerRecord(2, UUID(int=6), AT, fenced=False),
    RegisterControllerRecord(9, UUID(int=9), AT),
    TopicRecord("u", OTHER),
    PartitionRecord(TOPIC, 1, (1,), (1,), 1),
    RemoveTopicRecord(TOPIC),
    ConfigRecord(2, "t", "retention.ms", "6"),
    ConfigRecord(2, "t", "retention.ms", None),
    ConfigRecord(4, "1", "log.retention.ms", "6"),
    FeatureLevelRecord("metadata.version", 29),
    ProducerIdsRecord(1, 1, 1000),
    UserScramCredentialRecord("alice", 1, b"salt", b"stored", b"server", 4096),
    AccessControlEntryRecord(UUID(int=3), 2, "t", 3, "User:a", "*", 2, 3),
    ClientQuotaRecord((("user", "alice"),), "producer_byte_rate", 5.0),
    DelegationTokenRecord("id", "User:a", "User:a", (), 1, 3, 2),
]


def image_of(*records: Record) -> MetadataImage:
    image = MetadataImage("c")
    for record in records:
        image.replay(record, image.offset + 1, MetadataDelta())
    return image


@pytest.mark.parametrize("record", CHANGES, ids=lambda record: type(record).__name__)
def test_a_copy_and_its_image_change_apart(record: Record) -> None:
    image = image_of(*BEFORE)
    copy = image.copy()
    assert copy == image == image_of(*BEFORE)
    copy.replay(record, copy.offset + 1, MetadataDelta())
    assert image == image_of(*BEFORE), "the image does not see what its copy learns"
    copy = image.copy()
    image.replay(record, image.offset + 1, MetadataDelta())
    assert copy == image_of(*BEFORE), "nor the other way round"


def test_a_copy_has_all_that_its_image_has() -> None:
    image = image_of(*BEFORE, *(record for record in CHANGES if not isinstance(record, RemoveTopicRecord)))
    assert image.copy() == image
    assert image.client_quotas and image.acls and image.scram_credentials and image.delegation_tokens


def test_the_ids_of_directories_that_are_none() -> None:
    """As in Apache Kafka's records."""
    assert (MIGRATING.int, UNASSIGNED.int) == (0, 1)


def test_a_snapshot_is_due_after_twenty_mebibytes_or_an_hour() -> None:
    schedule = SnapshotPolicy()
    assert not schedule.is_due(20_971_519, 3_599_999)
    assert schedule.is_due(20_971_520, 0)
    assert schedule.is_due(0, 3_600_000)
    assert not SnapshotPolicy(max_interval_ms=0).is_due(0, 3_600_000), "0 is for never"


@pytest.mark.parametrize(
    ("record", "changed"),
    [
        (ConfigRecord(2, "t", "retention.ms", "6"), lambda delta: list(delta.changed_configs) == [(2, "t")]),
        (ConfigRecord(2, "t", "retention.ms", None), lambda delta: list(delta.changed_configs) == [(2, "t")]),
        (
            FeatureLevelRecord("metadata.version", 29),
            lambda delta: list(delta.changed_features) == ["metadata.version"],
        ),
    ],
)
def test_a_delta_names_what_was_changed(record: Record, changed: Callable[[MetadataDelta], bool]) -> None:
    image, delta = image_of(*BEFORE), MetadataDelta()
    image.replay(record, image.offset + 1, delta)
    assert changed(delta)
