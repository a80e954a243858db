"""Metadata records: what the controller decided, as it stands in the log of `__cluster_metadata-0`.

A record is a frozen dataclass; on disk it is one msgpack array `[type, version, fields...]`. Fields are appended, never
reordered: a reader fills fields that an older writer did not know with the dataclass's defaults. A type or version
that this node does not know means that a newer node wrote it; replaying on without it would fork the image, so the
node stops instead.

Which form is written is a matter of the whole cluster: the level of the feature `raftwerk.record.version`. At 0 every
field is there; at 1 the records of partitions, which are nearly all there is, have a mask and the fields that it
names, the rest being as usual. Both forms say the same, so either way is open at any time; see `features.py`.

The broker epoch of a registration and the offset of its record are the same number, so only snapshots store it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple, TypeAlias
from uuid import UUID

import msgpack  # type: ignore[import-untyped,unused-ignore]

from ...runtime.invariants import InvariantViolation

NO_LEADER = -1

PLAIN_RECORDS = 0
"""Level of `raftwerk.record.version`: every record has all of its fields."""
COMPACT_RECORDS = 1
"""Level of `raftwerk.record.version`: partitions' records have the fields that are not as usual."""


class NewerMetadataError(Exception):
    """The metadata hold what only newer software understands: this node has to stop. The message says the way out."""


MIGRATING = UUID(int=0)
"""Directory of a replica (KIP-858): some directory, chosen before directories were registered."""
UNASSIGNED = UUID(int=1)
"""Directory of a replica: its broker has not said yet where it put it."""
LOST = UUID(int=2)
"""Directory of a replica: what its broker held of it is gone for good."""

RECOVERED = 0
"""Leader recovery state (KIP-704): the leader was elected cleanly, or has recovered."""
RECOVERING = 1
"""Leader recovery state: elected uncleanly; the ISR is the leader alone until it reports RECOVERED."""


class Endpoint(NamedTuple):
    """Where a listener is reached. `security_protocol` is Kafka's id: 0 PLAINTEXT, 1 SSL, 2 and 3 with SASL."""

    name: str
    host: str
    port: int
    security_protocol: int = 0


@dataclass(frozen=True, slots=True)
class RegisterBrokerRecord:
    """A new incarnation of a broker. Starts fenced; its epoch is this record's offset, in a snapshot `epoch`."""

    TYPE: ClassVar[int] = 0
    VERSION: ClassVar[int] = 0
    broker_id: int
    incarnation_id: UUID
    listeners: tuple[Endpoint, ...]
    rack: str | None = None
    fenced: bool = True
    in_controlled_shutdown: bool = False
    log_dirs: tuple[UUID, ...] = ()
    features: tuple[tuple[str, int, int], ...] = ()
    epoch: int | None = None


@dataclass(frozen=True, slots=True)
class UnregisterBrokerRecord:
    """The broker is forgotten. `broker_epoch` is the registration that ends."""

    TYPE: ClassVar[int] = 1
    VERSION: ClassVar[int] = 0
    broker_id: int
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class BrokerChangeRecord:
    """A registration's mutable part; None leaves a field as it is."""

    TYPE: ClassVar[int] = 2
    VERSION: ClassVar[int] = 0
    broker_id: int
    broker_epoch: int
    fenced: bool | None = None
    in_controlled_shutdown: bool | None = None
    log_dirs: tuple[UUID, ...] | None = None
    """The directories that are left, when one has failed."""


@dataclass(frozen=True, slots=True)
class TopicRecord:
    """A new topic; its partitions follow in the same batch."""

    TYPE: ClassVar[int] = 3
    VERSION: ClassVar[int] = 0
    name: str
    topic_id: UUID


@dataclass(frozen=True, slots=True)
class PartitionRecord:
    """A new partition, whole. Epochs start at 0."""

    TYPE: ClassVar[int] = 4
    VERSION: ClassVar[int] = 1
    topic_id: UUID
    partition: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int = 0
    partition_epoch: int = 0
    leader_recovery_state: int = RECOVERED
    elr: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()
    directories: tuple[UUID, ...] = ()


@dataclass(frozen=True, slots=True)
class PartitionChangeRecord:
    """The changed fields of a partition; None is unchanged. Any `leader`, even the same one, bumps the leader epoch."""

    TYPE: ClassVar[int] = 5
    VERSION: ClassVar[int] = 1
    topic_id: UUID
    partition: int
    isr: tuple[int, ...] | None = None
    leader: int | None = None
    elr: tuple[int, ...] | None = None
    last_known_elr: tuple[int, ...] | None = None
    leader_recovery_state: int | None = None
    replicas: tuple[int, ...] | None = None
    adding_replicas: tuple[int, ...] | None = None
    removing_replicas: tuple[int, ...] | None = None
    directories: tuple[UUID, ...] | None = None


@dataclass(frozen=True, slots=True)
class RemoveTopicRecord:
    """The topic, its partitions and its configuration are gone."""

    TYPE: ClassVar[int] = 6
    VERSION: ClassVar[int] = 0
    topic_id: UUID


@dataclass(frozen=True, slots=True)
class ConfigRecord:
    """One dynamic configuration value of a resource; None removes it. Types are Kafka's: 2 topic, 4 broker."""

    TYPE: ClassVar[int] = 7
    VERSION: ClassVar[int] = 0
    resource_type: int
    resource_name: str
    name: str
    value: str | None


@dataclass(frozen=True, slots=True)
class ProducerIdsRecord:
    """Producer ids below `next_producer_id` are handed out for ever."""

    TYPE: ClassVar[int] = 8
    VERSION: ClassVar[int] = 0
    broker_id: int
    broker_epoch: int
    next_producer_id: int


@dataclass(frozen=True, slots=True)
class FeatureLevelRecord:
    """A finalized feature; level 0 takes it away."""

    TYPE: ClassVar[int] = 9
    VERSION: ClassVar[int] = 0
    name: str
    level: int


@dataclass(frozen=True, slots=True)
class RegisterControllerRecord:
    """A controller's endpoints and features (KIP-919)."""

    TYPE: ClassVar[int] = 10
    VERSION: ClassVar[int] = 0
    controller_id: int
    incarnation_id: UUID
    listeners: tuple[Endpoint, ...]
    features: tuple[tuple[str, int, int], ...] = ()


Record: TypeAlias = (
    RegisterBrokerRecord
    | UnregisterBrokerRecord
    | BrokerChangeRecord
    | TopicRecord
    | PartitionRecord
    | PartitionChangeRecord
    | RemoveTopicRecord
    | ConfigRecord
    | ProducerIdsRecord
    | FeatureLevelRecord
    | RegisterControllerRecord
)


def _uuid(raw: bytes | int) -> UUID:
    return UUID(int=raw) if isinstance(raw, int) else UUID(bytes=raw)


@lru_cache(maxsize=4096)
def _uuids(raw: tuple[bytes | int, ...] | None) -> tuple[UUID, ...] | None:
    """Shared by all who have the same: thousands of partitions have the same few directories."""
    return None if raw is None else tuple(_uuid(one) for one in raw)


def _endpoints(raw: tuple[tuple[Any, ...], ...]) -> tuple[Endpoint, ...]:
    return tuple(Endpoint(*one) for one in raw)


_RECORD_TYPES: tuple[type[Record], ...] = (
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
    BrokerChangeRecord,
    TopicRecord,
    PartitionRecord,
    PartitionChangeRecord,
    RemoveTopicRecord,
    ConfigRecord,
    ProducerIdsRecord,
    FeatureLevelRecord,
    RegisterControllerRecord,
)
# Fields that msgpack does not give back as they went in; all others are ints, strings, bools, None or tuples of them.
_DECODERS: Mapping[str, Callable[[Any], Any]] = {
    "topic_id": _uuid,
    "incarnation_id": _uuid,
    "log_dirs": _uuids,
    "directories": _uuids,
    "listeners": _endpoints,
}


class _Schema(NamedTuple):
    record_class: type[Record]
    names: tuple[str, ...]
    decoders: tuple[tuple[int, Callable[[Any], Any]], ...]


def _schema(record_class: type[Record]) -> _Schema:
    names = tuple(field.name for field in fields(record_class))
    decoders = tuple((i, _DECODERS[name]) for i, name in enumerate(names) if name in _DECODERS)
    return _Schema(record_class, names, decoders)


_SCHEMAS: Mapping[int, _Schema] = {record_class.TYPE: _schema(record_class) for record_class in _RECORD_TYPES}


class _Compact(NamedTuple):
    """How a record is written at level 1: the first fields always, of the others those that are not as usual."""

    fixed: int
    usual: Callable[..., tuple[Any, ...]]
    """The values of the other fields as they mostly are, given the first ones."""


def _default_partition(topic_id: object, partition: int, replicas: tuple[int, ...]) -> tuple[Any, ...]:
    preferred = replicas[0] if replicas else NO_LEADER
    return replicas, preferred, 0, 0, RECOVERED, (), (), (), (), ()


def _default_change(topic_id: object, partition: int) -> tuple[Any, ...]:
    return (None,) * 9


_COMPACT: Mapping[int, _Compact] = {
    PartitionRecord.TYPE: _Compact(3, _default_partition),
    PartitionChangeRecord.TYPE: _Compact(2, _default_change),
}


def _pack_uuid(value: object) -> bytes:
    if isinstance(value, UUID):
        return value.bytes
    raise TypeError(f"{type(value).__name__} has no place in a metadata record")


def _pack_uuid_compactly(value: object) -> bytes | int:
    """The reserved ids, which most directories have for a while, are one byte."""
    return value.int if isinstance(value, UUID) and value.int < 128 else _pack_uuid(value)


def encode_record(record: Record, level: int) -> bytes:
    """The record's payload in the metadata log at a level of `raftwerk.record.version`."""
    schema, compact = _SCHEMAS[record.TYPE], _COMPACT.get(record.TYPE)
    values = [getattr(record, name) for name in schema.names]
    if compact is None or level < COMPACT_RECORDS:
        plain: bytes = msgpack.packb([record.TYPE, PLAIN_RECORDS, *values], default=_pack_uuid)
        return plain
    fixed, others = values[: compact.fixed], values[compact.fixed :]
    mask, told = 0, []
    for bit, (value, usual) in enumerate(zip(others, compact.usual(*fixed), strict=True)):
        if value != usual:
            mask |= 1 << bit
            told.append(value)
    row = [record.TYPE, COMPACT_RECORDS, *fixed, mask, *told]
    packed: bytes = msgpack.packb(row, default=_pack_uuid_compactly)
    return packed


def _expanded(compact: _Compact, row: list[Any]) -> list[Any]:
    """All fields of a record that was written at level 1. Raises ValueError and its like when it is none."""
    fixed, mask, told = row[: compact.fixed], row[compact.fixed], row[compact.fixed + 1 :]
    usual = compact.usual(*fixed)
    if mask.bit_count() != len(told) or mask >> len(usual):
        raise ValueError(f"a mask of {mask:#x} with {len(told)} fields")
    given = iter(told)
    return fixed + [next(given) if mask >> bit & 1 else value for bit, value in enumerate(usual)]


def decode_record(payload: bytes | memoryview, level: int = COMPACT_RECORDS) -> Record:
    """The record of a payload, for a node that reads up to `level`.

    Raises `NewerMetadataError` when newer software wrote it, `InvariantViolation` when it is no record at all.
    """
    try:
        record_type, version, *values = msgpack.unpackb(payload, use_list=False, strict_map_key=False)
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise InvariantViolation(f"the metadata log holds only records: {error!r}") from error
    schema = _SCHEMAS.get(record_type)
    if schema is None:
        raise NewerMetadataError(
            f"a metadata record of type {record_type} was written by a newer node: upgrade this one before it joins"
        )
    if version > min(level, schema.record_class.VERSION):
        raise NewerMetadataError(
            f"metadata record {schema.record_class.__name__} version {version} was written by a newer node: "
            "upgrade this one before it joins"
        )
    try:
        if version == COMPACT_RECORDS:
            values = _expanded(_COMPACT[record_type], values)
        if len(values) > len(schema.names):
            raise NewerMetadataError(
                f"metadata record {schema.record_class.__name__} with {len(values)} fields was written by a newer "
                "node: upgrade this one before it joins"
            )
        for index, decode in schema.decoders:
            if index < len(values):
                values[index] = decode(values[index])
        return schema.record_class(*values)
    except (ValueError, TypeError, IndexError, AttributeError) as error:
        raise InvariantViolation(f"the metadata log holds only records this node knows: {error!r}") from error
