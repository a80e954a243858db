"""What the coordinator reads and writes of the clients' own protocol: what a consumer subscribes to, owns and is given.

The metadata and the assignment of a classic member are the clients' affair ("ConsumerProtocolSubscription" and
"ConsumerProtocolAssignment"); both begin with a version and are read alike in every version, later ones say more at
the end. Source: KIP-429, KIP-792, KIP-881, and Apache Kafka's ConsumerProtocol.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ..records.record_fields import BadRecord, FieldReader, FieldWriter

CONSUMER_PROTOCOL_TYPE = "consumer"
_NEWEST_VERSION = 3
_OWNED_SINCE, _GENERATION_SINCE, _RACK_SINCE = 1, 2, 3

NamedPartitions = tuple[tuple[str, int], ...]
"""Partitions by the names of their topics."""


class Subscription(NamedTuple):
    """What a consumer says of itself when it joins."""

    version: int
    topics: tuple[str, ...]
    owned: NamedPartitions
    rack_id: str | None


def subscribed_topics(metadata: bytes) -> tuple[str, ...] | None:
    """The topics, None where the bytes are something else."""
    try:
        reader = FieldReader(metadata)
        return tuple(reader.array(reader.string)) if reader.int16() >= 0 else None
    except BadRecord:
        return None


def read_subscription(metadata: bytes) -> Subscription:
    """All of it. `BadRecord`."""
    reader = FieldReader(metadata)
    version = _version(reader)
    topics = tuple(reader.array(reader.string))
    reader.blob()  # the assignor's own
    owned = _read_parts(reader) if version >= _OWNED_SINCE else ()
    if version >= _GENERATION_SINCE:
        reader.int32()
    return Subscription(version, topics, owned, reader.nullable_string() if version >= _RACK_SINCE else None)


def write_subscription(topics: Iterable[str], owned: Iterable[tuple[str, int]]) -> bytes:
    """A subscription of the first version that tells what is owned."""
    names = list(topics)
    writer = FieldWriter().int16(_OWNED_SINCE).count(len(names))
    for name in names:
        writer.string(name)
    return bytes(_write_parts(writer.int32(-1), owned).data)


def read_assignment(assignment: bytes) -> tuple[NamedPartitions, bytes]:
    """The partitions, and what an assignor of the clients' own told besides. Nothing for no bytes. `BadRecord`."""
    if not assignment:
        return (), b""
    reader = FieldReader(assignment)
    _version(reader)
    return _read_parts(reader), reader.blob()


def write_assignment(version: int, parts: Iterable[tuple[str, int]]) -> bytes:
    """An assignment in the version of the subscription it answers."""
    writer = _write_parts(FieldWriter().int16(min(version, _NEWEST_VERSION)), parts)
    return bytes(writer.int32(-1).data)  # no data of an assignor


def _version(reader: FieldReader) -> int:
    version = reader.int16()
    if version < 0:
        raise BadRecord(f"consumer protocol of version {version}")
    return version


def _write_parts(writer: FieldWriter, parts: Iterable[tuple[str, int]]) -> FieldWriter:
    topics: dict[str, list[int]] = {}
    for topic, partition in parts:
        topics.setdefault(topic, []).append(partition)
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
