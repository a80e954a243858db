"""Metadata records: the decisions of the controller, as the log of `__cluster_metadata-0` has them.

A record is a frozen dataclass. On disk it is one msgpack array `[type, version, fields...]`. New fields are appended
and never reordered: a reader gives fields that an older writer did not know the defaults of the dataclass. A record of
an unknown type or version was written by newer software. A node that went on without it would have another image than
the others, so it stops.

The feature `raftwerk.record.version` decides for the whole cluster which version of records is written. At level 0 a
record has all of its fields. At level 1 the records of partitions, which are nearly all records, have a bit mask and
only those fields that differ from a default. Both versions say the same, so the level may change in both directions at
any time (see `features.py`). Level 2 adds the records about security, so it may go down only while there are none.

The broker epoch is the offset of the registration record, so only snapshots store it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple, TypeAlias
from uuid import UUID

import msgpack

NO_LEADER = -1

PLAIN_RECORDS = 0
"""Level of `raftwerk.record.version`: every record has all of its fields."""
COMPACT_RECORDS = 1
"""Level of `raftwerk.record.version`: records of partitions have only fields that differ from a default."""
SECURITY_RECORDS = 2
"""Level of `raftwerk.record.version`: there may be records of SCRAM credentials, ACLs, quotas and delegation tokens."""


class MalformedRecordError(Exception):
    """The bytes are not a metadata record."""


class NewerMetadataError(Exception):
    """The metadata need newer software, and this node must stop. The message says what to do."""


MIGRATING = UUID(int=0)
"""Directory of a replica (KIP-858): unknown, since it was chosen before directories were registered."""
UNASSIGNED = UUID(int=1)
"""Directory of a replica: its broker has not reported it yet."""
LOST = UUID(int=2)
"""Directory of a replica: its data is lost for good."""

RECOVERED = 0
"""Leader recovery state (KIP-704): the leader was elected cleanly, or has recovered."""
RECOVERING = 1
"""Leader recovery state: elected uncleanly. The ISR is the leader alone until it reports RECOVERED."""


class Endpoint(NamedTuple):
    """The address of a listener. `security_protocol`: 0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL."""

    name: str
    host: str
    port: int
    security_protocol: int = 0


@dataclass(frozen=True, slots=True)
class RegisterBrokerRecord:
    """A new incarnation of a broker, fenced at first. Its epoch is the record's offset, or `epoch` in a snapshot."""

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
    """The registration with this `broker_epoch` ends."""

    TYPE: ClassVar[int] = 1
    VERSION: ClassVar[int] = 0
    broker_id: int
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class BrokerChangeRecord:
    """A change of a registration; None leaves a field as it is."""

    TYPE: ClassVar[int] = 2
    VERSION: ClassVar[int] = 0
    broker_id: int
    broker_epoch: int
    fenced: bool | None = None
    in_controlled_shutdown: bool | None = None
    log_dirs: tuple[UUID, ...] | None = None
    """The directories that have not failed."""


@dataclass(frozen=True, slots=True)
class TopicRecord:
    """A new topic. Its partitions follow in the same batch."""

    TYPE: ClassVar[int] = 3
    VERSION: ClassVar[int] = 0
    name: str
    topic_id: UUID


@dataclass(frozen=True, slots=True)
class PartitionRecord:
    """A new partition. Its epochs begin at 0."""

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
    """A change of a partition; None leaves a field as it is. Each `leader`, even the same, raises the leader epoch."""

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
    """The topic is deleted, with its partitions and its configurations."""

    TYPE: ClassVar[int] = 6
    VERSION: ClassVar[int] = 0
    topic_id: UUID


@dataclass(frozen=True, slots=True)
class ConfigRecord:
    """One dynamic configuration of a resource; None removes it. Resource types are Kafka's: 2 topic, 4 broker."""

    TYPE: ClassVar[int] = 7
    VERSION: ClassVar[int] = 0
    resource_type: int
    resource_name: str
    name: str
    value: str | None


@dataclass(frozen=True, slots=True)
class ProducerIdsRecord:
    """Producer ids below `next_producer_id` are in use."""

    TYPE: ClassVar[int] = 8
    VERSION: ClassVar[int] = 0
    broker_id: int
    broker_epoch: int
    next_producer_id: int


@dataclass(frozen=True, slots=True)
class FeatureLevelRecord:
    """The finalized level of a feature; level 0 removes it."""

    TYPE: ClassVar[int] = 9
    VERSION: ClassVar[int] = 0
    name: str
    level: int


@dataclass(frozen=True, slots=True)
class RegisterControllerRecord:
    """The listeners and supported features of a controller (KIP-919)."""

    TYPE: ClassVar[int] = 10
    VERSION: ClassVar[int] = 0
    controller_id: int
    incarnation_id: UUID
    listeners: tuple[Endpoint, ...]
    features: tuple[tuple[str, int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class UserScramCredentialRecord:
    """A user's credential for a SCRAM mechanism (KIP-554). `mechanism` is 1 for SCRAM-SHA-256, 2 for SCRAM-SHA-512."""

    TYPE: ClassVar[int] = 11
    VERSION: ClassVar[int] = 0
    name: str
    mechanism: int
    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


@dataclass(frozen=True, slots=True)
class RemoveUserScramCredentialRecord:
    """The credential is gone."""

    TYPE: ClassVar[int] = 12
    VERSION: ClassVar[int] = 0
    name: str
    mechanism: int


@dataclass(frozen=True, slots=True)
class AccessControlEntryRecord:
    """An access control entry (KIP-801), with Kafka's numbers."""

    TYPE: ClassVar[int] = 13
    VERSION: ClassVar[int] = 0
    acl_id: UUID
    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int


@dataclass(frozen=True, slots=True)
class RemoveAccessControlEntryRecord:
    """The access control entry is gone."""

    TYPE: ClassVar[int] = 14
    VERSION: ClassVar[int] = 0
    acl_id: UUID


@dataclass(frozen=True, slots=True)
class ClientQuotaRecord:
    """One quota of an entity (KIP-546); None removes it.

    The entity is made of (type, name) in the order of their types; a name of None is the default of that type.
    """

    TYPE: ClassVar[int] = 15
    VERSION: ClassVar[int] = 0
    entity: tuple[tuple[str, str | None], ...]
    key: str
    value: float | None


@dataclass(frozen=True, slots=True)
class DelegationTokenRecord:
    """A new delegation token, or a new time at which it expires (KIP-48).

    Principals are texts such as `User:alice`. The secret of the token is not in the log: the nodes make it of the id.
    """

    TYPE: ClassVar[int] = 16
    VERSION: ClassVar[int] = 0
    token_id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issue_timestamp_ms: int
    max_timestamp_ms: int
    expiry_timestamp_ms: int


@dataclass(frozen=True, slots=True)
class RemoveDelegationTokenRecord:
    """The delegation token is gone."""

    TYPE: ClassVar[int] = 17
    VERSION: ClassVar[int] = 0
    token_id: str


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
    | UserScramCredentialRecord
    | RemoveUserScramCredentialRecord
    | AccessControlEntryRecord
    | RemoveAccessControlEntryRecord
    | ClientQuotaRecord
    | DelegationTokenRecord
    | RemoveDelegationTokenRecord
)


def _uuid(raw: bytes | int) -> UUID:
    return UUID(int=raw) if isinstance(raw, int) else UUID(bytes=raw)


@lru_cache(maxsize=4096)
def _uuids(raw: tuple[bytes | int, ...] | None) -> tuple[UUID, ...] | None:
    """One shared tuple for equal values: thousands of partitions have the same few directories."""
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
    UserScramCredentialRecord,
    RemoveUserScramCredentialRecord,
    AccessControlEntryRecord,
    RemoveAccessControlEntryRecord,
    ClientQuotaRecord,
    DelegationTokenRecord,
    RemoveDelegationTokenRecord,
)
# Fields whose types msgpack does not have; all others are ints, strings, bools, None or tuples of them.
_DECODERS: Mapping[str, Callable[[Any], Any]] = {
    "topic_id": _uuid,
    "incarnation_id": _uuid,
    "acl_id": _uuid,
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
    """A record at level 1: the first `fixed` fields, and those of the others that differ from a default."""

    fixed: int
    defaults: Callable[..., tuple[Any, ...]]
    """The defaults of the other fields, from the values of the first ones."""


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
    """Reserved ids, which many directories have, take one byte."""
    return value.int if isinstance(value, UUID) and value.int < 128 else _pack_uuid(value)


def encode_record(record: Record, level: int) -> bytes:
    """The bytes of the record in the metadata log, at a level of `raftwerk.record.version`."""
    schema, compact = _SCHEMAS[record.TYPE], _COMPACT.get(record.TYPE)
    values = [getattr(record, name) for name in schema.names]
    if compact is None or level < COMPACT_RECORDS:
        plain: bytes = msgpack.packb([record.TYPE, PLAIN_RECORDS, *values], default=_pack_uuid)
        return plain
    fixed, others = values[: compact.fixed], values[compact.fixed :]
    mask, different = 0, []
    for bit, (value, default) in enumerate(zip(others, compact.defaults(*fixed), strict=True)):
        if value != default:
            mask |= 1 << bit
            different.append(value)
    row = [record.TYPE, COMPACT_RECORDS, *fixed, mask, *different]
    packed: bytes = msgpack.packb(row, default=_pack_uuid_compactly)
    return packed


def _expanded(compact: _Compact, row: list[Any]) -> list[Any]:
    """All fields of a record of level 1. Raises ValueError, TypeError or IndexError for a malformed one."""
    fixed, mask, different = row[: compact.fixed], row[compact.fixed], row[compact.fixed + 1 :]
    defaults = compact.defaults(*fixed)
    if mask.bit_count() != len(different) or mask >> len(defaults):
        raise ValueError(f"a mask of {mask:#x} with {len(different)} fields")
    given = iter(different)
    return fixed + [next(given) if mask >> bit & 1 else value for bit, value in enumerate(defaults)]


def decode_record(payload: bytes | memoryview, level: int = COMPACT_RECORDS) -> Record:
    """The record of a payload, for a node that knows levels up to `level`.

    Raises `NewerMetadataError` when newer software wrote it, `MalformedRecordError` when it is not a record.
    """
    try:
        record_type, version, *values = msgpack.unpackb(payload, use_list=False, strict_map_key=False)
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise MalformedRecordError(f"no type and version: {error!r}") from error
    if not (isinstance(record_type, int) and isinstance(version, int)):
        raise MalformedRecordError(f"type {record_type!r} and version {version!r} are not whole numbers")
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
        raise MalformedRecordError(f"no {schema.record_class.__name__}: {error!r}") from error
