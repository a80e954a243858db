"""The records of `__consumer_offsets` and `__transaction_state` as JSON values, for people who look into them."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from enum import Enum
from typing import Any, NamedTuple
from uuid import UUID

from ..wire.types import TopicPartition
from .coordinators.record_fields import BadRecord
from .groups.classic.consumer_protocol import CONSUMER_PROTOCOL_TYPE, read_assignment, read_subscription
from .groups.records import consumer_group_records, offset_and_classic_records
from .groups.records.consumer_group_records import ConsumerGroupKey, RecordType
from .groups.records.offset_and_classic_records import ClassicGroupKey, GroupMetadataValue, MemberValue, OffsetKey
from .transactions import transaction_records
from .transactions.transaction_metadata import TransactionMetadata

OFFSETS_TOPIC, TRANSACTIONS_TOPIC = "__consumer_offsets", "__transaction_state"
INTERNAL_TOPICS = (OFFSETS_TOPIC, TRANSACTIONS_TOPIC)
_TYPES: Mapping[RecordType, str] = {
    RecordType.GROUP: "consumer group",
    RecordType.PARTITIONS: "consumer group partitions",
    RecordType.MEMBER: "consumer group member",
    RecordType.TARGET: "consumer group target assignment",
    RecordType.TARGET_MEMBER: "consumer group member target assignment",
    RecordType.CURRENT_MEMBER: "consumer group member current assignment",
}
_UNRECORDED = "last_producer_epoch"


class ReadableRecord(NamedTuple):
    """The key and the value of a record as JSON values. The value of a tombstone is None."""

    key: Any
    value: Any


def readable_record(topic: str, key: bytes | None, value: bytes | None) -> ReadableRecord | None:
    """A record of one of `INTERNAL_TOPICS`; None for one of a type or version that is not known."""
    if key is None:
        return None
    try:
        if topic == TRANSACTIONS_TOPIC:
            return _transaction(key, value)
        return _of_groups(key, value) if topic == OFFSETS_TOPIC else None
    except BadRecord:
        return None


def _of_groups(key: bytes, value: bytes | None) -> ReadableRecord | None:
    found = offset_and_classic_records.decode_key(key)
    if isinstance(found, OffsetKey):
        topic, partition = found.topic_partition
        shown = {"type": "offset", "group": found.group_id, "topic": topic, "partition": partition}
        return ReadableRecord(shown, _plain(offset_and_classic_records.decode_offset(value)) if value else None)
    if isinstance(found, ClassicGroupKey):
        shown = {"type": "classic group", "group": found.group_id}
        return ReadableRecord(
            shown, _classic(offset_and_classic_records.decode_classic_group(value)) if value else None
        )
    consumer = consumer_group_records.decode_consumer_key(key)
    return None if consumer is None else _of_consumer_group(consumer, value)


def _of_consumer_group(key: ConsumerGroupKey, value: bytes | None) -> ReadableRecord | None:
    shown = {"type": _TYPES[key.kind], "group": key.group_id}
    if key.member_id:
        shown["member"] = key.member_id
    if not value:
        return ReadableRecord(shown, None)
    match key.kind:
        case RecordType.GROUP | RecordType.TARGET:
            return ReadableRecord(shown, _plain(consumer_group_records.decode_epoch(value)))
        case RecordType.MEMBER:
            return ReadableRecord(shown, _plain(consumer_group_records.decode_member_metadata(value)))
        case RecordType.TARGET_MEMBER:
            return ReadableRecord(shown, {"assigned": _plain(consumer_group_records.decode_target(value))})
        case RecordType.CURRENT_MEMBER:
            return ReadableRecord(shown, _plain(consumer_group_records.decode_current(value)))
    return None


def _classic(group: GroupMetadataValue) -> dict[str, Any]:
    shown: dict[str, Any] = _plain(group)
    if group.protocol_type == CONSUMER_PROTOCOL_TYPE:
        shown["members"] = [_classic_member(one) for one in group.members]
    return shown


def _classic_member(member: MemberValue) -> dict[str, Any]:
    """A member of a group of consumers. What cannot be read of its metadata stays in Base64."""
    shown: dict[str, Any] = _plain(member)
    for name, data, read in (
        ("subscription", member.subscription, read_subscription),
        ("assignment", member.assignment, lambda data: read_assignment(data)[0]),
    ):
        try:
            shown[name] = _plain(read(data)) if data else None
        except BadRecord:
            continue
    return shown


def _transaction(key: bytes, value: bytes | None) -> ReadableRecord | None:
    name = transaction_records.decode_key(key)
    if name is None:
        return None
    if not value:
        return ReadableRecord({"transactional_id": name}, None)
    found = transaction_records.decode_value(value)
    return ReadableRecord({"transactional_id": name}, _plain_transaction(found))


def _plain_transaction(found: TransactionMetadata) -> dict[str, Any]:
    shown: dict[str, Any] = _plain(found)
    del shown[_UNRECORDED]
    return {**shown, "state": found.state.label, "partitions": [_plain(one) for one in sorted(found.partitions)]}


def _plain(value: Any) -> Any:
    """The value with objects for named tuples, texts for what JSON has not, bytes in Base64."""
    if isinstance(value, TopicPartition):
        return f"{value.topic}-{value.partition}"
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {name: _plain(one) for name, one in value._asdict().items()}
    if isinstance(value, tuple | list | frozenset | set):
        return [_plain(one) for one in value]
    if isinstance(value, Mapping):
        return {str(name): _plain(one) for name, one in value.items()}
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if isinstance(value, Enum):
        return value.name
    return str(value) if isinstance(value, UUID) else value
