"""Metadata records: what the controller decided, as it stands in the log of `__cluster_metadata-0`.

A record is a frozen dataclass; on disk it is one msgpack array `[type, version, fields...]`. Fields are appended, never
reordered: a reader fills fields that an older writer did not know with the dataclass's defaults. A type or version
that this node does not know means that a newer node wrote it; replaying on without it would fork the image, so the
node stops instead.

The broker epoch of a registration and the offset of its record are the same number, so only snapshots store it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple, TypeAlias
from uuid import UUID

import msgpack  # type: ignore[import-untyped,unused-ignore]

from ..runtime.invariants import InvariantViolation

NO_LEADER = -1

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
    VERSION: ClassVar[int] = 0
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
    VERSION: ClassVar[int] = 0
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


def _uuid(raw: bytes) -> UUID:
    return UUID(bytes=raw)


@lru_cache(maxsize=4096)
def _uuids(raw: tuple[bytes, ...] | None) -> tuple[UUID, ...] | None:
    """Shared by all who have the same: thousands of partitions have the same few directories."""
    return None if raw is None else tuple(UUID(bytes=one) for one in raw)


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
    required: int


def _schema(record_class: type[Record]) -> _Schema:
    names = tuple(field.name for field in fields(record_class))
    decoders = tuple((i, _DECODERS[name]) for i, name in enumerate(names) if name in _DECODERS)
    required = sum(field.default is MISSING for field in fields(record_class))
    return _Schema(record_class, names, decoders, required)


_SCHEMAS: Mapping[int, _Schema] = {record_class.TYPE: _schema(record_class) for record_class in _RECORD_TYPES}


def _pack_uuid(value: object) -> bytes:
    if isinstance(value, UUID):
        return value.bytes
    raise TypeError(f"{type(value).__name__} has no place in a metadata record")


def encode_record(record: Record) -> bytes:
    """The record's payload in the metadata log."""
    schema = _SCHEMAS[record.TYPE]
    row = [record.TYPE, record.VERSION]
    row.extend([getattr(record, name) for name in schema.names])
    packed: bytes = msgpack.packb(row, default=_pack_uuid)
    return packed


def decode_record(payload: bytes | memoryview) -> Record:
    """The record of a payload; `InvariantViolation` when it is no record this node can replay."""
    try:
        row = msgpack.unpackb(payload, use_list=False, strict_map_key=False)
        record_type, version, *values = row
        schema = _SCHEMAS[record_type]
    except (ValueError, TypeError, KeyError, msgpack.UnpackException) as error:
        raise InvariantViolation(f"the metadata log holds only records this node knows: {error!r}") from error
    if version > schema.record_class.VERSION or not schema.required <= len(values) <= len(schema.names):
        raise InvariantViolation(
            f"metadata record {schema.record_class.__name__} version {version} with {len(values)} fields was written "
            "by a newer node: upgrade this one before it joins"
        )
    for index, decode in schema.decoders:
        if index < len(values):
            values[index] = decode(values[index])
    return schema.record_class(*values)
