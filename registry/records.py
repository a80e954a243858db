"""The records of the topic `_schemas`: JSON keys and values as Confluent's registry writes them.

A key names what the record is about (`keytype`), a value holds it; a null value deletes it. So one registry can take
over the topic of the other.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

SCHEMA, CONFIG, MODE, CONTEXT = "SCHEMA", "CONFIG", "MODE", "CONTEXT"
DELETE_SUBJECT, CLEAR_SUBJECT, NOOP = "DELETE_SUBJECT", "CLEAR_SUBJECT", "NOOP"
_MAGIC = {SCHEMA: 1}
AVRO, JSON, PROTOBUF = "AVRO", "JSON", "PROTOBUF"


@dataclass(frozen=True, slots=True)
class Reference:
    """A schema that another one uses: the name it has there, and the subject and version that it is."""

    name: str
    subject: str
    version: int

    def as_json(self) -> dict[str, Any]:
        """The fields in Confluent's order."""
        return {"name": self.name, "subject": self.subject, "version": self.version}


@dataclass(frozen=True, slots=True)
class SchemaVersion:
    """A version of a subject. `deleted` ones are kept, so that data that was written with them can still be read."""

    subject: str
    version: int
    schema_id: int
    schema: str
    schema_type: str = AVRO
    references: tuple[Reference, ...] = ()
    deleted: bool = False

    def as_json(self) -> dict[str, Any]:
        """The fields of a record's value and of an answer; `schemaType` and `references` only if they say something."""
        found: dict[str, Any] = {"subject": self.subject, "version": self.version, "id": self.schema_id}
        if self.schema_type != AVRO:
            found["schemaType"] = self.schema_type
        if self.references:
            found["references"] = [one.as_json() for one in self.references]
        return {**found, "schema": self.schema}


@dataclass(frozen=True, slots=True)
class Record:
    """A record's key and value; the value is None for a deletion."""

    key: Mapping[str, Any]
    value: Mapping[str, Any] | None

    def encode(self) -> tuple[bytes, bytes | None]:
        """The bytes of the key and of the value."""
        return _dump(self.key), None if self.value is None else _dump(self.value)


class DamagedRecordError(ValueError):
    """Bytes that are no record of a registry; the sentence says why."""


def decode(key: bytes | None, value: bytes | None) -> Record:
    """The record of these bytes. Raises `DamagedRecordError`."""
    try:
        found = json.loads(key or b"")
        held = None if value is None else json.loads(value)
    except (ValueError, RecursionError) as error:
        raise DamagedRecordError(f"it is no JSON: {error}") from None
    if not isinstance(found, dict) or not isinstance(found.get("keytype"), str):
        raise DamagedRecordError("its key has no keytype")
    if held is not None and not isinstance(held, dict):
        raise DamagedRecordError("its value is no object")
    return Record(found, held)


def schema_record(version: SchemaVersion) -> Record:
    """The record of a version, deleted or not."""
    return Record(_version_key(version), {**version.as_json(), "deleted": version.deleted})


def forget_schema_record(version: SchemaVersion) -> Record:
    """The record that removes a version for good."""
    return Record(_version_key(version), None)


def delete_subject_record(subject: str, version: int) -> Record:
    """The record that marks all versions of a subject up to this one as deleted."""
    return Record(_key(DELETE_SUBJECT, subject), {"subject": subject, "version": version})


def config_record(subject: str | None, level: str | None) -> Record:
    """The record of a compatibility level; for None the level is removed."""
    return Record(_key(CONFIG, subject), None if level is None else {"compatibilityLevel": level})


def mode_record(subject: str | None, mode: str | None) -> Record:
    """The record of a mode; for None the mode is removed."""
    return Record(_key(MODE, subject), None if mode is None else {"mode": mode})


def context_record(context: str) -> Record:
    """The record that a context is there. Confluent's registry knows tenants, too, and this is its only one."""
    named = {"tenant": "default", "context": context}
    return Record({"keytype": CONTEXT, **named, "magic": 0}, named)


def version_of(value: Mapping[str, Any]) -> SchemaVersion:
    """The version that a record's value holds. Raises `DamagedRecordError`."""
    try:
        references = tuple(
            Reference(str(one["name"]), str(one["subject"]), int(one["version"]))
            for one in value.get("references") or ()
        )
        return SchemaVersion(
            str(value["subject"]),
            int(value["version"]),
            int(value["id"]),
            str(value["schema"]),
            str(value.get("schemaType") or AVRO),
            references,
            bool(value.get("deleted")),
        )
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise DamagedRecordError(f"its value is no schema: {error!r}") from None


def _version_key(version: SchemaVersion) -> dict[str, Any]:
    return {"keytype": SCHEMA, "subject": version.subject, "version": version.version, "magic": _MAGIC[SCHEMA]}


def _key(keytype: str, subject: str | None) -> dict[str, Any]:
    return {"keytype": keytype, "subject": subject, "magic": 0}


def _dump(fields: Mapping[str, Any]) -> bytes:
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode()
