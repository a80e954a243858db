"""Metadata states of a few records, for tests of what is compared with them."""

from __future__ import annotations

from uuid import UUID

from raftwerk.chaos.specification.metadata.metadata_state import MetadataState
from raftwerk.controller.metadata.metadata_records import (
    COMPACT_RECORDS,
    BrokerChangeRecord,
    Record,
    RegisterBrokerRecord,
    encode_record,
)
from raftwerk.raft.types import CommittedBatch


def batch_of(offset: int, *records: Record, epoch: int = 1) -> CommittedBatch:
    """A committed batch that begins at this offset."""
    payloads = [encode_record(record, COMPACT_RECORDS) for record in records]
    return CommittedBatch(offset, offset + len(records) - 1, epoch, 0, payloads)


def registered_broker(broker_id: int, *, fenced: bool) -> MetadataState:
    """The metadata of one broker, whose epoch is 0."""
    state = MetadataState()
    state.replay(
        batch_of(
            0, RegisterBrokerRecord(broker_id, UUID(int=broker_id), ()), BrokerChangeRecord(broker_id, 0, fenced=fenced)
        )
    )
    return state
