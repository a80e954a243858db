"""A partition of `__consumer_offsets` as coordinators write it, and the simulator's replay of it."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from raftwerk.broker.coordinators.record_fields import CoordinatorRecord
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
    OffsetKey,
    classic_group_record,
    offset_record,
)
from raftwerk.chaos.sim.invariants.groups.group_log import GroupLog, Removal
from raftwerk.isr.leader.transaction_markers import TransactionMarker, encode_marker
from raftwerk.wire.records import NewRecord, encode_batch, iter_records, read_header, set_base_offset
from raftwerk.wire.types import TopicPartition

GROUP = "g"
TOPIC_ID = UUID(int=7)
KEY = OffsetKey(GROUP, TopicPartition("t", 0))


class NoTopics:
    """Consumer groups ask it for topics, which these tests do without."""

    def find(self, name: str) -> tuple[UUID, int] | None:
        return None

    def names(self) -> list[str]:
        return []

    def name_of(self, topic_id: UUID) -> str | None:
        return None


class OffsetsTopic:
    """The log and, of the same batches, a coordinator's shard."""

    def __init__(self) -> None:
        self.log = GroupLog("__consumer_offsets-0")
        self.shard = GroupCoordinatorShard(0, 0, lambda _: GroupConfig(), NoTopics())

    def append(self, *records: CoordinatorRecord, producer: int = -1, at_ms: int = 0) -> list[Removal]:
        """Append a batch, in an open transaction of the producer if there is one."""
        rows = [NewRecord(key, value, (), at_ms) for key, value in records]
        is_transactional = producer >= 0
        removals = self._feed(encode_batch(rows, producer_id=producer, is_transactional=is_transactional))
        for key, value in records:
            self.shard.replay(key, value, transaction_of=producer)
        return removals

    def commit(self, offset: int | None, producer: int = -1, at_ms: int = 0) -> list[Removal]:
        """Commit an offset of `KEY`, or remove it (None)."""
        value = None if offset is None else OffsetAndMetadata(offset, commit_timestamp_ms=at_ms)
        return self.append(offset_record(*KEY, value), producer=producer, at_ms=at_ms)

    def end(self, producer: int, *, commit: bool = True) -> None:
        """The marker of the producer's transaction."""
        self._feed(encode_marker(TransactionMarker(producer, 0, 0, commit, 2), 0))
        self.shard.end_transaction(producer, is_committed=commit)

    def load(self) -> GroupCoordinatorShard:
        """The shard, which has replayed everything."""
        self.shard.finish_loading(0, lambda what, error: None)
        return self.shard

    def _feed(self, batch: bytearray) -> list[Removal]:
        set_base_offset(batch, 0, self.log.end_offset)
        return self.log.feed(read_header(batch, 0), iter_records(batch))


def classic(generation: int, assignments: Mapping[str, bytes], leader: str | None = None) -> CoordinatorRecord:
    """The record of a classic group with these members."""
    members = tuple(MemberValue(one, None, "c", "/h", 9, 9, b"", given) for one, given in assignments.items())
    protocol = "range" if members else None
    value = GroupMetadataValue("consumer", generation, protocol, leader or next(iter(assignments), None), 0, members)
    return classic_group_record(GROUP, value)


def epochs(epoch: int) -> list[CoordinatorRecord]:
    """The records of a consumer group's epoch, which has other topics than the one before, and of its target's."""
    kinds = (RecordType.GROUP, RecordType.TARGET)
    return [epoch_record(ConsumerGroupKey(kind, GROUP), EpochValue(epoch, epoch)) for kind in kinds]


def member(name: str, epoch: int, assigned: tuple[int, ...], revoking: tuple[int, ...] = ()) -> list[CoordinatorRecord]:
    """The records of a member of a consumer group."""
    parts = [tuple((TOPIC_ID, index) for index in indexes) for indexes in (assigned, revoking)]
    value = CurrentAssignmentValue(epoch, epoch, 1 if revoking else 0, parts[0], parts[1])
    metadata = MemberMetadataValue(None, None, "c", "/h", ("t",), None, 9, None)
    return [
        member_metadata_record(GROUP, name, metadata),
        target_record(GROUP, name, parts[0]),
        current_record(GROUP, name, value),
    ]
