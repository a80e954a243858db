"""The records of the metadata log as rows of `raftwerk log dump`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any
from uuid import UUID

from ...cluster.local.voters_on_disk import initial_controllers
from ...controller.metadata.metadata_records import MalformedRecordError, NewerMetadataError, decode_record
from ...log.state.checkpoints import encode_uuid
from ...raft.messages.control_records import decode_control
from ...raft.voters.voter_set import KRaftVersion, VoterSet
from ...wire.errors import ProtocolError
from ...wire.records import Record


def metadata_row(record: Record, is_control: bool) -> dict[str, Any] | None:
    """What a record of the metadata log says; None if it cannot be told, as of software that is newer."""
    try:
        return _control_row(record) if is_control else _row(record)
    except (MalformedRecordError, NewerMetadataError, ProtocolError):
        return None


def _control_row(record: Record) -> dict[str, Any] | None:
    match decode_control(record.key, record.value or b""):
        case VoterSet() as voters:
            return {"voters": initial_controllers(voters)}
        case KRaftVersion() as version:
            return {"kraft_version": version.level}
        case _:
            return None


def _row(record: Record) -> dict[str, Any] | None:
    found = decode_record(record.value or b"")
    return {
        "type": type(found).__name__,
        "fields": {one.name: _plain(getattr(found, one.name)) for one in fields(found)},
    }


def _plain(value: Any) -> Any:
    """A value as JSON has it."""
    match value:
        case UUID():
            return encode_uuid(value)
        case bytes():  # a key or a salt of a password, which is nobody's business
            return f"{len(value)} bytes"
        case Mapping():
            return {str(_plain(key)): _plain(one) for key, one in value.items()}
        case str() | int() | float() | None:
            return value
        case Sequence():
            return [_plain(one) for one in value]
        case _:
            return str(value)
