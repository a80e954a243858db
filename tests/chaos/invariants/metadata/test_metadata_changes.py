"""What has changed in a node's metadata is told to its parts, by records and by snapshots."""

from __future__ import annotations

from uuid import UUID

import pytest

from raftwerk.chaos.sim.invariants.derived.metadata_changes import MetadataChangeChecker
from raftwerk.chaos.sim.invariants.derived.metadata_images import ImageChecker
from raftwerk.chaos.sim.invariants.invariant_broken import InvariantBroken
from raftwerk.controller.metadata import metadata_loader, metadata_snapshot
from raftwerk.controller.metadata.metadata_image import MetadataDelta, MetadataImage
from raftwerk.controller.metadata.metadata_loader import MetadataLoader
from raftwerk.controller.metadata.metadata_records import (
    PLAIN_RECORDS,
    ClientQuotaRecord,
    RemoveTopicRecord,
    TopicRecord,
    encode_record,
)
from raftwerk.raft.types import CommittedBatch
from raftwerk.wire.types import SnapshotId

NOT_TOLD = "a node is told of all that has changed in its metadata"
A, B = UUID(int=1), UUID(int=2)
TOPIC_A, TOPIC_B = TopicRecord("a", A), TopicRecord("b", B)
QUOTA = ClientQuotaRecord((("user", "u"),), "producer_byte_rate", 5.0)
NO_QUOTA = ClientQuotaRecord((("user", "u"),), "producer_byte_rate", None)
Record = TopicRecord | RemoveTopicRecord | ClientQuotaRecord


class Node:
    """A node whose deltas are watched."""

    def __init__(self) -> None:
        self.loader = MetadataLoader("c")
        self._images = ImageChecker()
        self._changes = MetadataChangeChecker(self._images)
        self.commit(TOPIC_A)
        self._images.after_event(1, self.loader)
        self._changes.watch(1, self.loader)

    def commit(self, *records: Record) -> None:
        """Take a committed batch, without a check."""
        first = self.loader.image.offset + 1
        payloads = [encode_record(record, PLAIN_RECORDS) for record in records]
        self.loader.on_commit([CommittedBatch(first, first + len(records) - 1, 1, 0, payloads)])

    def load(self, *records: Record) -> None:
        """Load a snapshot with these records, ten offsets on."""
        snapshot_id = SnapshotId(self.loader.image.offset + 10, 1)
        self.loader.on_snapshot(snapshot_id, [encode_record(record, PLAIN_RECORDS) for record in records])
        self.loader.on_snapshot(snapshot_id, None)

    def check(self) -> None:
        """Check what has changed since the last check. Raises `InvariantBroken`."""
        assert self._images.after_event(1, self.loader)
        self._changes.after_metadata(1)


def test_what_records_and_snapshots_change_is_told() -> None:
    node = Node()
    node.commit(TOPIC_B, QUOTA)
    node.check()
    node.load(TOPIC_B)
    node.check()
    node.commit(RemoveTopicRecord(B))
    node.commit(QUOTA)
    node.check()


@pytest.mark.parametrize("records", [(TOPIC_B,), (TOPIC_A, TOPIC_B), (TOPIC_A, QUOTA), ()])
def test_what_a_snapshot_changes_and_nobody_is_told(
    records: tuple[Record, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata_loader, "difference", lambda old, new: MetadataDelta())
    node = Node()
    node.load(*records)
    with pytest.raises(InvariantBroken, match=NOT_TOLD):
        node.check()


def test_a_quota_that_is_gone_with_a_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_snapshot, "_changed", lambda old, new: dict.fromkeys(new))
    node = Node()
    node.commit(QUOTA)
    node.check()
    node.load(TOPIC_A)
    with pytest.raises(InvariantBroken, match="changed_quotas"):
        node.check()


def test_a_record_that_notes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    replay = MetadataImage.replay

    def note_nothing(image: MetadataImage, record: Record, offset: int, delta: MetadataDelta) -> None:
        replay(image, record, offset, MetadataDelta() if record == NO_QUOTA else delta)

    monkeypatch.setattr(MetadataImage, "replay", note_nothing)
    node = Node()
    node.commit(QUOTA)
    node.check()
    node.commit(NO_QUOTA)
    with pytest.raises(InvariantBroken, match=NOT_TOLD):
        node.check()
