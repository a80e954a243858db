"""The consumers' embedded protocol: subscriptions and assignments in the metadata of classic members.

The coordinator of a classic group does not need to understand them. It reads topics to expire offsets, and everything
to change a group's protocol. Both messages ("ConsumerProtocolSubscription" and "ConsumerProtocolAssignment") begin with
a version; later versions add fields at the end. Source: KIP-429, KIP-792, KIP-881, Apache Kafka's ConsumerProtocol.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ....wire.types import by_topic
from ...coordinators.record_fields import BadRecord, FieldReader, FieldWriter

CONSUMER_PROTOCOL_TYPE = "consumer"
_NEWEST_VERSION = 3
_OWNED_SINCE, _GENERATION_SINCE, _RACK_SINCE = 1, 2, 3

NamedPartitions = tuple[tuple[str, int], ...]
"""Partitions, each with the name of its topic."""


class Subscription(NamedTuple):
    """The subscription that a consumer sends when it joins."""

    version: int
    topics: tuple[str, ...]
    owned: NamedPartitions
    rack_id: str | None


def subscribed_topics(metadata: bytes) -> tuple[str, ...] | None:
    """The topics; None where the bytes are no subscription."""
    try:
        reader = FieldReader(metadata)
        return tuple(reader.array(reader.string)) if reader.int16() >= 0 else None
    except BadRecord:
        return None


def read_subscription(metadata: bytes) -> Subscription:
    """The whole subscription. Raises `BadRecord`."""
    reader = FieldReader(metadata)
    version = _version(reader)
    topics = tuple(reader.array(reader.string))
    reader.blob()  # user data of the assignor
    owned = _read_parts(reader) if version >= _OWNED_SINCE else ()
    if version >= _GENERATION_SINCE:
        reader.int32()
    return Subscription(version, topics, owned, reader.nullable_string() if version >= _RACK_SINCE else None)


def write_subscription(topics: Iterable[str], owned: Iterable[tuple[str, int]]) -> bytes:
    """A subscription in version 1, the first one with owned partitions."""
    names = list(topics)
    writer = FieldWriter().int16(_OWNED_SINCE).count(len(names))
    for name in names:
        writer.string(name)
    return bytes(_write_parts(writer.int32(-1), owned).data)


def read_assignment(assignment: bytes) -> tuple[NamedPartitions, bytes]:
    """The partitions and the assignor's user data; both are empty for no bytes. Raises `BadRecord`."""
    if not assignment:
        return (), b""
    reader = FieldReader(assignment)
    _version(reader)
    return _read_parts(reader), reader.blob()


def write_assignment(version: int, parts: Iterable[tuple[str, int]]) -> bytes:
    """An assignment, in the version of the member's subscription."""
    writer = _write_parts(FieldWriter().int16(min(version, _NEWEST_VERSION)), parts)
    return bytes(writer.int32(-1).data)  # no user data


def _version(reader: FieldReader) -> int:
    version = reader.int16()
    if version < 0:
        raise BadRecord(f"consumer protocol of version {version}")
    return version


def _write_parts(writer: FieldWriter, parts: Iterable[tuple[str, int]]) -> FieldWriter:
    topics = by_topic(parts)
    writer.count(len(topics))
    for topic, partitions in topics.items():
        writer.string(topic).count(len(partitions))
        for partition in partitions:
            writer.int32(partition)
    return writer


def _read_parts(reader: FieldReader) -> NamedPartitions:
    def topic() -> list[tuple[str, int]]:
        name = reader.string()
        return [(name, partition) for partition in reader.array(reader.int32)]

    return tuple(part for row in reader.array(topic) for part in row)
