"""The key or the value of a record: its bytes, and what the answer says of them."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any

from ...registry.data.readers import DataError
from ...registry.data.schema_client import SchemaClientError
from ..errors import BAD_REQUEST, INVALID_SCHEMA, PAYLOAD_ERROR, SERIALIZATION_ERROR, RestError
from ..json_text import json_bytes
from ..serialization.record_schemas import RecordSchema, WantedSchema
from ..serialization.schema_types import NO_REGISTRY, SCHEMA_TYPES, registry_refusal
from ..serialization.subject_names import TOPIC_NAME
from ..services import Services

_WITHOUT_SCHEMA = ("BINARY", "JSON", "STRING")
_CHOICES = ("schema_id", "schema_version", "schema")
_SUBJECTS = ("subject", "subject_name_strategy")
_FORMATS = {schema_type: name.upper() for name, schema_type in SCHEMA_TYPES.items()}


async def serialized(
    services: Services, topic: str, name: str, given: Mapping[str, Any]
) -> tuple[bytes | None, dict[str, Any]]:
    """The bytes of a key or a value, by its type or by the schema that it names. Raises `RestError`."""
    kind = str(given.get("type") or "").upper()
    fields = [one for one in (*_CHOICES, *_SUBJECTS) if given.get(one) is not None]
    if kind not in _WITHOUT_SCHEMA:
        return await _by_schema(services, topic, name, given, kind)
    if fields:
        raise RestError(BAD_REQUEST, f"'type={kind}' cannot be used with '{fields[0]}'")
    data = _plain(name, kind, given.get("data"))
    return data, {"type": kind, "size": len(data or b"")}


def _plain(name: str, kind: str, data: Any) -> bytes | None:
    if data is None:
        return None
    if kind == "JSON":
        return json_bytes(data)
    if not isinstance(data, str):
        raise RestError(SERIALIZATION_ERROR, f"Error serializing message. The data of {name} must be a text")
    return data.encode() if kind == "STRING" else from_base64(f"the data of {name}", data, SERIALIZATION_ERROR)


def from_base64(what: str, text: str, code: int) -> bytes:
    """The bytes of a text in base64. Raises `RestError` with this code."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise RestError(code, f"{what} is no base64") from None


async def _by_schema(
    services: Services, topic: str, name: str, given: Mapping[str, Any], kind: str
) -> tuple[bytes | None, dict[str, Any]]:
    schemas = services.schemas
    _check_type(kind)
    if schemas is None:
        types = f"{name} has no type of {', '.join(_WITHOUT_SCHEMA)}, so it needs a schema"
        raise RestError(PAYLOAD_ERROR, f"Payload error. {types}, and {NO_REGISTRY}")
    wanted, data = _wanted(given, kind), given.get("data")
    found = await _found(schemas.find(wanted, topic, is_key=name == "key"))
    try:
        sent = None if data is None else await schemas.run(lambda: found.serialized(data))
    except DataError as error:
        raise RestError(BAD_REQUEST, f"The data of {name} is not of its schema: {error}") from None
    about = {
        "type": _FORMATS.get(found.schema.schema_type, found.schema.schema_type),
        "subject": found.subject,
        "schema_id": found.schema.schema_id,
        "schema_version": found.version,
        "size": len(sent or b""),
    }
    return sent, about


async def _found(finding: Any) -> RecordSchema:
    try:
        found: RecordSchema = await finding
        return found
    except SchemaClientError as error:
        raise registry_refusal(error, SERIALIZATION_ERROR, "Error serializing message. Schema lookup failed") from None
    except DataError as error:
        raise RestError(INVALID_SCHEMA, str(error)) from None


def _check_type(kind: str) -> None:
    if kind and kind.lower() not in SCHEMA_TYPES:
        known = ", ".join((*_WITHOUT_SCHEMA, *_FORMATS.values()))
        raise RestError(PAYLOAD_ERROR, f"Payload error. The type {kind[:40]} is none of {known}")


def _wanted(given: Mapping[str, Any], kind: str) -> WantedSchema:
    """Which schema the fields name. Raises `RestError` for fields that exclude each other."""
    choices = [one for one in _CHOICES if given.get(one) is not None]
    if len(choices) > 1:
        raise RestError(BAD_REQUEST, "Only one of 'schema_id', 'schema_version' or 'schema' can be used.")
    if all(given.get(one) is not None for one in _SUBJECTS):
        raise RestError(BAD_REQUEST, "Only one of 'subject_name_strategy' or 'subject' can be used.")
    if bool(kind) != (choices == ["schema"]):
        raise RestError(BAD_REQUEST, "'type' and 'schema' are given together, without 'schema_id' or 'schema_version'")
    return WantedSchema(
        given.get("schema_id"),
        given.get("schema_version"),
        SCHEMA_TYPES.get(kind.lower()),
        given.get("schema"),
        given.get("subject"),
        given.get("subject_name_strategy") or TOPIC_NAME,
    )
