"""Values of configurations that an earlier build recorded and this one refuses end no node that reads them."""

from __future__ import annotations

import logging
from uuid import UUID

import pytest

from raftwerk.controller.configs.effective_configs import dynamic_overrides
from raftwerk.controller.metadata.metadata_image import (
    BROKER_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
    MetadataDelta,
)
from raftwerk.controller.metadata.metadata_loader import MetadataLoader
from raftwerk.controller.metadata.metadata_records import ConfigRecord, Record, TopicRecord, encode_record
from raftwerk.log.config import LogConfig
from raftwerk.raft.types import CommittedBatch
from raftwerk.wire.types import SnapshotId

TOPIC = TopicRecord("flights", UUID(int=1))
BAD = [
    ConfigRecord(TOPIC_RESOURCE, "flights", "retention.ms", "1_000"),
    ConfigRecord(TOPIC_RESOURCE, "flights", "min.insync.replicas", "1_0"),
    ConfigRecord(TOPIC_RESOURCE, "flights", "segment.bytes", str(2**63)),
    ConfigRecord(TOPIC_RESOURCE, "flights", "compression.type", "middling"),
    ConfigRecord(TOPIC_RESOURCE, "flights", "leader.replication.throttled.replicas", "\u00b2:1"),
    ConfigRecord(BROKER_RESOURCE, "", "log.retention.ms", "\u0661"),
    ConfigRecord(BROKER_RESOURCE, "1", "max.connections", "1_000"),
    ConfigRecord(BROKER_RESOURCE, "1", "leader.replication.throttled.rate", "1_000"),
    ConfigRecord(GROUP_RESOURCE, "g", "consumer.session.timeout.ms", "45_000"),
]


def commit(loader: MetadataLoader, *records: Record) -> None:
    start = loader.image.offset + 1
    rows = [encode_record(record, 1) for record in records]
    loader.on_commit([CommittedBatch(start, start + len(rows) - 1, 1, 5, rows, 100)])


@pytest.mark.parametrize("bad", BAD, ids=lambda record: record.name)
def test_a_value_that_is_no_longer_taken_is_passed_over(bad: ConfigRecord, caplog: pytest.LogCaptureFixture) -> None:
    loader = MetadataLoader("c")
    published: list[MetadataDelta] = []
    loader.subscribe(lambda _, delta: published.append(delta))
    with caplog.at_level(logging.WARNING, "raftwerk.controller"):
        commit(loader, TOPIC, bad)
    (line,) = caplog.records
    assert bad.name in line.getMessage()
    assert str(bad.value) not in line.getMessage()
    assert loader.image.configs == {}
    assert loader.image.offset == 1
    assert published[0].changed_configs == {}


def test_the_former_value_holds() -> None:
    loader = MetadataLoader("c")
    good = ConfigRecord(TOPIC_RESOURCE, "flights", "retention.ms", "2000")
    commit(loader, TOPIC, good, *BAD)
    overrides = dynamic_overrides(loader.image, "flights", 1)
    assert LogConfig().with_overrides(overrides).retention_ms == 2000
    commit(loader, ConfigRecord(TOPIC_RESOURCE, "flights", "retention.ms", None))
    assert loader.image.configs == {}


def test_a_snapshot_may_hold_such_values() -> None:
    loader = MetadataLoader("c")
    records: tuple[Record, ...] = (TOPIC, *BAD)
    loader.on_snapshot(SnapshotId(10, 1), [encode_record(record, 1) for record in records])
    loader.on_snapshot(SnapshotId(10, 1), None)
    assert loader.image.configs == {}
    assert list(loader.image.topics_by_name) == ["flights"]


def test_names_that_this_build_does_not_know_are_kept() -> None:
    loader = MetadataLoader("c")
    commit(loader, TOPIC, ConfigRecord(TOPIC_RESOURCE, "flights", "of.another.build", "1_000"))
    assert loader.image.configs == {(TOPIC_RESOURCE, "flights"): {"of.another.build": "1_000"}}


@pytest.mark.parametrize(
    "payload", [b"", b"\xc1", b"\x92\x01", b"\x93\x80\x00\x01", b"\x93\xa1x\x00\x01", b"\x92\x04\x01"]
)
def test_what_is_no_record_is_passed_over(payload: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """In the log and in a snapshot."""
    loader = MetadataLoader("c")
    rows = [payload, encode_record(TOPIC, 1)]
    loader.on_commit([CommittedBatch(0, 1, 1, 5, rows, 100)])
    assert list(loader.image.topics_by_name) == ["flights"]
    assert (loader.image.offset, loader.load_errors) == (1, 1)
    (line,) = caplog.records
    assert "a record at offset 0 of the metadata log cannot be read, and is passed over" in line.getMessage()
    restored = MetadataLoader("c")
    restored.on_snapshot(SnapshotId(10, 1), rows)
    restored.on_snapshot(SnapshotId(10, 1), None)
    assert list(restored.image.topics_by_name) == ["flights"] and restored.load_errors == 1
