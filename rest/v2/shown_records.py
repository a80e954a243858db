"""Keys and values of records as a consumer instance shows them: by its format, and by the schemas of a registry."""

from __future__ import annotations

import base64
from collections.abc import Callable
from functools import partial
from typing import Any

from ...registry.data.readers import DataError
from ...registry.data.schema_client import SchemaClientError
from ..errors import KAFKA_ERROR, SCHEMA_REGISTRY_ERROR, RestError
from ..json_text import json_bytes, json_value
from ..serialization.record_schemas import RecordSchemas
from ..serialization.schema_types import SCHEMA_TYPES, registry_refusal
from .content_types import BINARY

Show = Callable[[bytes | None, str], Any]
"""The bytes of a key or value, and the words for their place, in; a value of JSON out. Raises `RestError`."""


def shown_by(embedded_format: str, schemas: RecordSchemas | None) -> Show:
    """How an instance of this format shows data. With schemas it is for a thread that may wait."""
    if embedded_format == BINARY:
        return _as_base64
    if schemas is not None and embedded_format in SCHEMA_TYPES:
        return partial(_by_schema, schemas, SCHEMA_TYPES[embedded_format])
    return _as_json


def record_text(message: Any, show: Show) -> bytes:
    """A record as JSON. Raises `RestError`, which names its place."""
    where = f"{message.topic()}-{message.partition()} at offset {message.offset()}"
    row = {
        "topic": message.topic(),
        "key": show(message.key(), where),
        "value": show(message.value(), where),
        "partition": message.partition(),
        "offset": message.offset(),
    }
    return json_bytes(row)


def _as_base64(data: bytes | None, _: str) -> Any:
    return None if data is None else base64.b64encode(data).decode()


def _as_json(data: bytes | None, where: str) -> Any:
    if data is None:
        return None
    try:
        return json_value(data)
    except (ValueError, RecursionError):
        text = f"Kafka error: {where} is no JSON: create a consumer instance of the format binary, or seek beyond it"
        raise RestError(KAFKA_ERROR, text) from None


def _by_schema(schemas: RecordSchemas, schema_type: str, data: bytes | None, where: str) -> Any:
    if data is None:
        return None
    try:
        return schemas.value_of(data, schema_type)
    except SchemaClientError as error:
        raise registry_refusal(error, SCHEMA_REGISTRY_ERROR, f"Schema lookup failed: {where}") from None
    except DataError as error:
        text = f"Kafka error: {where}: {error}: create a consumer instance of the format binary, or seek beyond it"
        raise RestError(KAFKA_ERROR, text) from None
