"""Records of `__consumer_offsets` for consumer groups (KIP-848), to the byte as Apache Kafka writes them.

Source: ConsumerGroup*Key/Value of Apache Kafka's group coordinator; all values are of version 0.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import IntEnum
from typing import NamedTuple

from ....wire.types import by_topic
from ...coordinators.record_fields import BadRecord, CoordinatorRecord, FieldReader, FieldWriter
from ..consumer.assignors import PartitionId, PartitionIds

LEAST_MEMBER_EPOCH = -2
"""The epoch of a static member that has left and may come back."""
_HASH_TAG = 0
_CLASSIC_TAG = 0


class RecordType(IntEnum):
    """The type of a record, which its key begins with."""

    GROUP = 3
    PARTITIONS = 4
    """Only its tombstone is written; older versions of Apache Kafka wrote values."""
    MEMBER = 5
    TARGET = 6
    TARGET_MEMBER = 7
    CURRENT_MEMBER = 8


_KINDS = (
    RecordType.CURRENT_MEMBER,
    RecordType.TARGET_MEMBER,
    RecordType.TARGET,
    RecordType.MEMBER,
    RecordType.PARTITIONS,
    RecordType.GROUP,
)
_OF_MEMBERS = (RecordType.CURRENT_MEMBER, RecordType.TARGET_MEMBER, RecordType.MEMBER)


class ConsumerGroupKey(NamedTuple):
    """The key of a record. The member id is empty for types without a member."""

    kind: RecordType
    group_id: str
    member_id: str = ""


class EpochValue(NamedTuple):
    """The group epoch with a hash of the subscribed topics, or the epoch of the target assignment."""

    epoch: int
    metadata_hash: int = 0


class ClassicMemberMetadata(NamedTuple):
    """Of a member with the classic protocol: its session time-out, and its metadata for each assignor."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


class MemberMetadataValue(NamedTuple):
    """The metadata of a member, as its requests gave it."""

    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    topic_names: tuple[str, ...]
    topic_regex: str | None
    rebalance_timeout_ms: int
    assignor: str | None
    classic: ClassicMemberMetadata | None = None


class CurrentAssignmentValue(NamedTuple):
    """The current assignment of a member, and its state on the way to the target."""

    member_epoch: int
    previous_epoch: int
    state: int
    assigned: PartitionIds
    revoking: PartitionIds


_HAS_MEMBER = (RecordType.MEMBER, RecordType.TARGET_MEMBER, RecordType.CURRENT_MEMBER)


def decode_consumer_key(data: bytes) -> ConsumerGroupKey | None:
    """The key; None for other types. Raises `BadRecord`."""
    reader = FieldReader(data)
    try:
        kind = RecordType(reader.int16())
    except ValueError:
        return None
    group_id = reader.string()
    return ConsumerGroupKey(kind, group_id, reader.string() if kind in _HAS_MEMBER else "")


def tombstone(key: ConsumerGroupKey) -> CoordinatorRecord:
    """The tombstone for a key."""
    return CoordinatorRecord(_encode_key(key), None)


def member_tombstones(group_id: str, member_id: str) -> list[CoordinatorRecord]:
    """The tombstones of a member, in Kafka's order."""
    return [tombstone(ConsumerGroupKey(kind, group_id, member_id)) for kind in _OF_MEMBERS]


def group_tombstones(group_id: str, member_ids: Collection[str]) -> list[CoordinatorRecord]:
    """The tombstones of a group and its members, in Kafka's order."""
    return [
        tombstone(ConsumerGroupKey(kind, group_id, member_id))
        for kind in _KINDS
        for member_id in (member_ids if kind in _OF_MEMBERS else ("",))
    ]


def epoch_record(key: ConsumerGroupKey, value: EpochValue) -> CoordinatorRecord:
    """The record of a group epoch (GROUP) or of the epoch of a target assignment (TARGET)."""
    writer = _value().int32(value.epoch)
    if key.kind is RecordType.GROUP and value.metadata_hash:
        writer.tagged({_HASH_TAG: value.metadata_hash.to_bytes(8, "big", signed=True)})
    else:
        writer.tags()
    return CoordinatorRecord(_encode_key(key), bytes(writer.data))


def member_metadata_record(group_id: str, member_id: str, value: MemberMetadataValue) -> CoordinatorRecord:
    """The record of a member's metadata."""
    writer = _value().string(value.instance_id).string(value.rack_id).string(value.client_id).string(value.client_host)
    writer.count(len(value.topic_names))
    for name in value.topic_names:
        writer.string(name)
    writer.string(value.topic_regex).int32(value.rebalance_timeout_ms).string(value.assignor)
    if value.classic is None:
        writer.tags()
    else:
        inner = FieldWriter(compact=True).int8(1).int32(value.classic.session_timeout_ms)
        inner.count(len(value.classic.protocols))
        for name, metadata in value.classic.protocols:
            inner.string(name).blob(metadata).tags()
        writer.tagged({_CLASSIC_TAG: bytes(inner.tags().data)})
    return CoordinatorRecord(_encode_key(ConsumerGroupKey(RecordType.MEMBER, group_id, member_id)), bytes(writer.data))


def target_record(group_id: str, member_id: str, parts: PartitionIds) -> CoordinatorRecord:
    """The record of a member's target assignment."""
    writer = _value()
    _write_parts(writer, parts)
    key = ConsumerGroupKey(RecordType.TARGET_MEMBER, group_id, member_id)
    return CoordinatorRecord(_encode_key(key), bytes(writer.tags().data))


def current_record(group_id: str, member_id: str, value: CurrentAssignmentValue) -> CoordinatorRecord:
    """The record of a member's current assignment."""
    writer = _value().int32(value.member_epoch).int32(value.previous_epoch).int8(value.state)
    _write_parts(writer, value.assigned)
    _write_parts(writer, value.revoking)
    key = ConsumerGroupKey(RecordType.CURRENT_MEMBER, group_id, member_id)
    return CoordinatorRecord(_encode_key(key), bytes(writer.tags().data))


def decode_epoch(data: bytes) -> EpochValue:
    """The value of `epoch_record`. Raises `BadRecord`."""
    reader = _reader(data)
    epoch = reader.epoch()
    tagged = reader.tags().get(_HASH_TAG, b"")
    if len(tagged) not in (0, 8):
        raise BadRecord(f"a hash of {len(tagged)} bytes")
    return EpochValue(epoch, int.from_bytes(tagged, "big", signed=True))


def decode_member_metadata(data: bytes) -> MemberMetadataValue:
    """The value of `member_metadata_record`. Raises `BadRecord`."""
    reader = _reader(data)
    identity = reader.nullable_string(), reader.nullable_string(), reader.string(), reader.string()
    names = tuple(reader.array(reader.string))
    rest = reader.nullable_string(), reader.int32(), reader.nullable_string()
    classic = _read_classic(reader.tags().get(_CLASSIC_TAG, b""))
    return MemberMetadataValue(*identity, names, *rest, classic)


def _read_classic(data: bytes) -> ClassicMemberMetadata | None:
    reader = FieldReader(data, compact=True)
    if not data or reader.int8() < 0:
        return None

    def protocol() -> tuple[str, bytes]:
        found = reader.string(), reader.blob()
        reader.tags()
        return found

    return ClassicMemberMetadata(reader.int32(), tuple(reader.array(protocol)))


def decode_target(data: bytes) -> PartitionIds:
    """The value of `target_record`. Raises `BadRecord`."""
    return _read_parts(_reader(data))


def decode_current(data: bytes) -> CurrentAssignmentValue:
    """The value of `current_record`. Raises `BadRecord`."""
    reader = _reader(data)
    return CurrentAssignmentValue(
        reader.epoch(LEAST_MEMBER_EPOCH),
        reader.epoch(LEAST_MEMBER_EPOCH),
        reader.int8(),
        _read_parts(reader),
        _read_parts(reader),
    )


def _encode_key(key: ConsumerGroupKey) -> bytes:
    writer = FieldWriter().int16(key.kind).string(key.group_id)
    if key.kind in _HAS_MEMBER:
        writer.string(key.member_id)
    return bytes(writer.data)


def _value() -> FieldWriter:
    return FieldWriter(compact=True).int16(0)


def _reader(data: bytes) -> FieldReader:
    if FieldReader(data).int16() != 0:
        raise BadRecord("a value of a version other than 0")
    return FieldReader(data, compact=True, position=2)


def _write_parts(writer: FieldWriter, parts: PartitionIds) -> None:
    topics = by_topic(parts)
    writer.count(len(topics))
    for topic, partitions in topics.items():
        writer.uuid(topic).count(len(partitions))
        for partition in partitions:
            writer.int32(partition)
        writer.tags()


def _read_parts(reader: FieldReader) -> PartitionIds:
    def topic() -> list[PartitionId]:
        topic_id = reader.uuid()
        found = [(topic_id, partition) for partition in reader.array(reader.int32)]
        reader.tags()
        return found

    return tuple(sorted(part for row in reader.array(topic) for part in row))
