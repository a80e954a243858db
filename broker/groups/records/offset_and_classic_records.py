"""Records of `__consumer_offsets` for committed offsets and classic groups, to the byte as Apache Kafka writes them.

A key begins with its type (Kafka calls it the key's version): 0 and 1 a committed offset, 2 a classic group. A null
value is a tombstone. Offsets are written in value version 4 (1 where they carry a time of expiry of their own) and
groups in version 3, as Apache Kafka 4.2 does; all versions are read.
Source: OffsetCommitKey/Value and GroupMetadataKey/Value of Apache Kafka's group coordinator.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias
from uuid import UUID

from ....wire.types import TopicPartition
from ...coordinators.record_fields import EPOCH_MAX, BadRecord, CoordinatorRecord, FieldReader, FieldWriter

NO_EXPIRY = -1
_OFFSET_KEY = 1
_GROUP_KEY = 2
_FIRST_COMPACT_VERSION = 4
_TOPIC_ID_TAG = 0


class OffsetKey(NamedTuple):
    """The key of a committed offset: group and partition."""

    group_id: str
    topic_partition: TopicPartition


class ClassicGroupKey(NamedTuple):
    """The key of a classic group."""

    group_id: str


class OffsetAndMetadata(NamedTuple):
    """A committed offset: the offset of the next record to read. Times are wall-clock milliseconds, -1 for none.

    `topic_id` shows whether a topic of that name is still the same one; None where the commit has none.
    """

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    commit_timestamp_ms: int = -1
    expire_timestamp_ms: int = NO_EXPIRY
    topic_id: UUID | None = None


class MemberValue(NamedTuple):
    """A member of a classic group, with its subscription for the chosen protocol and its assignment."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


class GroupMetadataValue(NamedTuple):
    """A classic group at one generation. `state_timestamp_ms` is the time of its last state change."""

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    state_timestamp_ms: int
    members: tuple[MemberValue, ...]


Key: TypeAlias = "OffsetKey | ClassicGroupKey"


def offset_record(group_id: str, topic_partition: TopicPartition, value: OffsetAndMetadata | None) -> CoordinatorRecord:
    """The record of a committed offset, or its tombstone."""
    topic, partition = topic_partition
    key = FieldWriter().int16(_OFFSET_KEY).string(group_id).string(topic).int32(partition)
    return CoordinatorRecord(bytes(key.data), None if value is None else _encode_offset(value))


def classic_group_record(group_id: str, value: GroupMetadataValue | None) -> CoordinatorRecord:
    """The record of a classic group, or its tombstone."""
    key = FieldWriter().int16(_GROUP_KEY).string(group_id)
    return CoordinatorRecord(bytes(key.data), None if value is None else _encode_group(value))


def decode_key(data: bytes) -> Key | None:
    """The key; None for other types. Raises `BadRecord`."""
    reader = FieldReader(data)
    kind = reader.int16()
    if kind in (0, _OFFSET_KEY):
        return OffsetKey(reader.string(), TopicPartition(reader.string(), reader.int32()))
    if kind == _GROUP_KEY:
        return ClassicGroupKey(reader.string())
    return None


def decode_offset(data: bytes) -> OffsetAndMetadata:
    """The value of a committed offset, of any version. Raises `BadRecord`."""
    version = FieldReader(data).int16()
    if not 0 <= version <= 4:
        raise BadRecord(f"offset of version {version}")
    reader = FieldReader(data, compact=version >= _FIRST_COMPACT_VERSION, position=2)
    offset = reader.int64()
    leader_epoch = reader.int32() if version >= 3 else -1
    metadata = reader.string()
    commit_timestamp_ms = reader.int64()
    expire_timestamp_ms = reader.int64() if version == 1 else NO_EXPIRY
    raw_id = reader.tags().get(_TOPIC_ID_TAG, b"")
    topic_id = UUID(bytes=raw_id) if len(raw_id) == 16 and any(raw_id) else None
    return OffsetAndMetadata(offset, leader_epoch, metadata, commit_timestamp_ms, expire_timestamp_ms, topic_id)


def decode_classic_group(data: bytes) -> GroupMetadataValue:
    """The value of a classic group, of any version. Raises `BadRecord`."""
    version = FieldReader(data).int16()
    if not 0 <= version <= 4:
        raise BadRecord(f"group of version {version}")
    reader = FieldReader(data, compact=version >= _FIRST_COMPACT_VERSION, position=2)

    def member() -> MemberValue:
        member_id = reader.string()
        instance_id = reader.nullable_string() if version >= 3 else None
        client_id, client_host = reader.string(), reader.string()
        rebalance_timeout_ms = reader.int32()
        session_timeout_ms = reader.int32() if version >= 1 else rebalance_timeout_ms
        times = rebalance_timeout_ms, session_timeout_ms
        value = MemberValue(member_id, instance_id, client_id, client_host, *times, reader.blob(), reader.blob())
        reader.tags()
        return value

    protocol_type, generation = reader.string(), reader.int32()
    protocol, leader = reader.nullable_string(), reader.nullable_string()
    state_timestamp_ms = reader.int64() if version >= 2 else -1
    return GroupMetadataValue(
        protocol_type, generation, protocol, leader, state_timestamp_ms, tuple(reader.array(member))
    )


def check_classic_group(value: GroupMetadataValue) -> None:
    """Raise `BadRecord` where no group could go on from the value."""
    if not 0 <= value.generation <= EPOCH_MAX:
        raise BadRecord(f"generation {value.generation}, which must be between 0 and {EPOCH_MAX}")
    if value.members and value.protocol is None:
        raise BadRecord("members without a protocol")
    if len({member.member_id for member in value.members}) < len(value.members):
        raise BadRecord("two members with one id")


def _encode_offset(value: OffsetAndMetadata) -> bytes:
    if value.expire_timestamp_ms != NO_EXPIRY:
        writer = FieldWriter().int16(1).int64(value.offset).string(value.metadata)
        writer.int64(value.commit_timestamp_ms).int64(value.expire_timestamp_ms)
    else:
        writer = FieldWriter(compact=True).int16(4).int64(value.offset).int32(value.leader_epoch)
        writer.string(value.metadata).int64(value.commit_timestamp_ms)
        if value.topic_id is None:
            writer.tags()
        else:
            writer.tagged({_TOPIC_ID_TAG: value.topic_id.bytes})
    return bytes(writer.data)


def _encode_group(value: GroupMetadataValue) -> bytes:
    writer = FieldWriter().int16(3).string(value.protocol_type).int32(value.generation)
    writer.string(value.protocol).string(value.leader).int64(value.state_timestamp_ms)
    writer.count(len(value.members))
    for member in value.members:
        writer.string(member.member_id).string(member.instance_id)
        writer.string(member.client_id).string(member.client_host)
        writer.int32(member.rebalance_timeout_ms).int32(member.session_timeout_ms)
        writer.blob(member.subscription).blob(member.assignment)
    return bytes(writer.data)
