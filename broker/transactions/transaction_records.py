"""The records of `__transaction_state`, to the byte as Apache Kafka writes them.

The key is a transactional id; a null value removes it. Values have version 0, or, from `transaction.version` 1 on,
version 1, which has tagged fields: the previous (0) and the next producer id (1), the client's transaction version (2),
and the next producer epoch (3) of a transaction that was kept (KIP-939). Apache Kafka 4.2 reads the two producer ids
and never writes them, and reads past the epoch. Here they are written when there is one, since otherwise the next
coordinator would not know which producer a client was told to be. A transaction that was kept is written in version 1
at any level.
Source: TransactionLogKey and TransactionLogValue of Apache Kafka.
"""

from __future__ import annotations

from ...wire.types import TopicPartition, by_topic
from ..coordinators.record_fields import BadRecord, CoordinatorRecord, FieldReader, FieldWriter
from .transaction_metadata import EPOCH_MAX, NO_EPOCH, NO_PRODUCER_ID, TransactionMetadata, TransactionState

_KEY_VERSION = 0
_PLAIN_VERSION, _COMPACT_VERSION = 0, 1
_PREVIOUS_TAG, _NEXT_TAG, _CLIENT_VERSION_TAG, _NEXT_EPOCH_TAG = 0, 1, 2, 3
_CLIENT_VERSIONS = range(-128, 128)
"""WriteTxnMarkers has one byte for what a record has two for."""
_RECORDED = frozenset(TransactionState) - {TransactionState.DEAD, TransactionState.PREPARE_EPOCH_FENCE}


def transaction_record(
    transactional_id: str, value: TransactionMetadata | None, transaction_version: int
) -> CoordinatorRecord:
    """The record of a transactional id at the finalized `transaction.version`, or its tombstone."""
    key = FieldWriter().int16(_KEY_VERSION).string(transactional_id)
    return CoordinatorRecord(bytes(key.data), None if value is None else _encode(value, transaction_version))


def decode_key(data: bytes) -> str | None:
    """The transactional id; None for keys of other types. Raises `BadRecord`."""
    reader = FieldReader(data)
    return reader.string() if reader.int16() == _KEY_VERSION else None


def decode_value(data: bytes) -> TransactionMetadata:
    """The value, of any version. Raises `BadRecord`."""
    version = FieldReader(data).int16()
    if version not in (_PLAIN_VERSION, _COMPACT_VERSION):
        raise BadRecord(f"transaction of version {version}")
    reader = FieldReader(data, compact=version >= _COMPACT_VERSION, position=2)

    def topic() -> list[TopicPartition]:
        name = reader.string()
        found = [TopicPartition(name, index) for index in reader.array(reader.int32)]
        reader.tags()
        return found

    producer_id, producer_epoch, timeout_ms = reader.int64(), reader.int16(), reader.int32()
    state = _state(reader.int8())
    partitions = frozenset(one for topic_partitions in reader.array(topic) for one in topic_partitions)
    last_update_ms, start_ms = reader.int64(), reader.int64()
    tags = reader.tags()
    value = TransactionMetadata(
        producer_id,
        producer_epoch,
        timeout_ms,
        state,
        frozenset() if state is TransactionState.EMPTY else partitions,
        start_ms,
        last_update_ms,
        _tagged(tags, _PREVIOUS_TAG, 8, NO_PRODUCER_ID),
        _tagged(tags, _NEXT_TAG, 8, NO_PRODUCER_ID),
        _tagged(tags, _CLIENT_VERSION_TAG, 2, 0),
        next_producer_epoch=_tagged(tags, _NEXT_EPOCH_TAG, 2, NO_EPOCH),
    )
    _check(value)
    return value


def _check(value: TransactionMetadata) -> None:
    """Raise `BadRecord` where no coordinator could go on from the value."""
    if value.producer_id < 0 or value.producer_epoch < 0 or value.next_producer_id < NO_PRODUCER_ID:
        raise BadRecord(f"producer id {value.producer_id} with epoch {value.producer_epoch}")
    if value.client_version not in _CLIENT_VERSIONS:
        raise BadRecord(f"transaction.version {value.client_version} of the client")
    if value.is_kept and not _may_be_kept(value):
        raise BadRecord(f"producer id {value.next_producer_id} with epoch {value.next_producer_epoch} comes next")
    if value.state is TransactionState.ONGOING and EPOCH_MAX in (value.producer_epoch, value.next_producer_epoch):
        raise BadRecord(f"an open transaction with epoch {EPOCH_MAX}, which no producer has")


def _may_be_kept(value: TransactionMetadata) -> bool:
    has_producer = value.next_producer_id >= 0 and value.next_producer_epoch >= 0
    return has_producer and not value.state.is_idle


def _state(number: int) -> TransactionState:
    try:
        state = TransactionState(number)
    except ValueError as error:
        raise BadRecord(str(error)) from error
    if state not in _RECORDED:
        raise BadRecord(f"state {state.label}, which is never recorded")
    return state


def _tagged(tags: dict[int, bytes], tag: int, size_bytes: int, default: int) -> int:
    raw = tags.get(tag)
    if raw is None:
        return default
    if len(raw) != size_bytes:
        raise BadRecord(f"tagged field {tag} of {len(raw)} bytes")
    return int.from_bytes(raw, "big", signed=True)


def _encode(value: TransactionMetadata, transaction_version: int) -> bytes:
    version = _COMPACT_VERSION if transaction_version >= 1 or value.is_kept else _PLAIN_VERSION
    writer = FieldWriter(compact=version >= _COMPACT_VERSION).int16(version)
    writer.int64(value.producer_id).int16(value.producer_epoch).int32(value.timeout_ms).int8(value.state)
    if value.state is TransactionState.EMPTY:
        writer.null_array()
    else:
        _write_partitions(writer, value.partitions)
    writer.int64(value.last_update_ms).int64(value.start_ms)
    return bytes(writer.tagged(_tags(value)).data)


def _write_partitions(writer: FieldWriter, partitions: frozenset[TopicPartition]) -> None:
    topics = by_topic(sorted(partitions))
    writer.count(len(topics))
    for name, indexes in topics.items():
        writer.string(name).count(len(indexes))
        for index in indexes:
            writer.int32(index)
        writer.tags()


def _tags(value: TransactionMetadata) -> dict[int, bytes]:
    """The tagged fields that differ from their defaults."""
    tags = {}
    if value.previous_producer_id != NO_PRODUCER_ID:
        tags[_PREVIOUS_TAG] = value.previous_producer_id.to_bytes(8, "big", signed=True)
    if value.next_producer_id != NO_PRODUCER_ID:
        tags[_NEXT_TAG] = value.next_producer_id.to_bytes(8, "big", signed=True)
    if value.client_version:
        tags[_CLIENT_VERSION_TAG] = value.client_version.to_bytes(2, "big", signed=True)
    if value.is_kept:
        tags[_NEXT_EPOCH_TAG] = value.next_producer_epoch.to_bytes(2, "big", signed=True)
    return tags
