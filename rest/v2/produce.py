"""Produces records to a topic or to a partition in version 2: a list of them, and the place of each in the answer."""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...registry.data.readers import DataError
from ...registry.data.schema_client import SchemaClientError
from ..errors import (
    INVALID_SCHEMA,
    JSON_CONVERSION,
    KEY_SCHEMA_MISSING,
    SCHEMA_REGISTRY_ERROR,
    VALUE_SCHEMA_MISSING,
    RestError,
    partition_not_found,
)
from ..json_text import json_bytes
from ..record_producer import Acked, NewRecord
from ..request import Request
from ..routes import Answer, Route
from ..serialization.record_schemas import RecordSchema, RecordSchemas, WantedSchema
from ..serialization.schema_types import SCHEMA_TYPES, registry_refusal
from ..services import Services
from .content_types import BINARY, negotiated, sent_format
from .metadata import topic_of

_STEP = 200
"""After so many records other requests have their turn."""
_MISSING = {
    "key": (KEY_SCHEMA_MISSING, "Request includes keys but does not include key schema"),
    "value": (VALUE_SCHEMA_MISSING, "Request includes values but does not include value schema"),
}


def _serialized(data: Any, embedded_format: str, where: str) -> bytes | None:
    if data is None:
        return None
    if embedded_format != BINARY:
        try:
            return json_bytes(data)
        except ValueError as error:
            raise RestError(422, f"{where} is no value of JSON: {error}") from None
    if not isinstance(data, str):
        raise RestError(422, f"{where} must be a text in base64, as the content type says")
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raise RestError(422, f"{where} is no base64, as the content type says") from None


async def _send_all(services: Services, topic: str, records: list[NewRecord]) -> list[asyncio.Future[Acked]]:
    sent = []
    for number, record in enumerate(records, 1):
        sent.append(await services.producer.send(topic, record))
        if not number % _STEP:
            await asyncio.sleep(0)
    await asyncio.wait(sent)
    return sent


def _offset(acked: asyncio.Future[Acked]) -> dict[str, Any]:
    try:
        place = acked.result()
    except RestError as error:
        return {"partition": None, "offset": None, "error_code": error.code, "error": str(error)}
    return {"partition": place.partition, "offset": place.offset, "error_code": None, "error": None}


def _by_schema(schema: RecordSchema | None, record: Mapping[str, Any], name: str, number: int) -> bytes | None:
    data = record.get(name)
    if data is None:
        return None
    if schema is None:
        raise RestError(*_MISSING[name])
    try:
        return schema.serialized(data)
    except DataError as error:
        text = f"Conversion of JSON to Object failed: records[{number}].{name}: {error}"
        raise RestError(JSON_CONVERSION, text) from None


async def _schema_of(
    schemas: RecordSchemas, topic: str, fields: Mapping[str, Any], name: str, schema_type: str
) -> RecordSchema | None:
    """The schema of all keys or of all values of a request; None if it names none. Raises `RestError`."""
    schema_id, text = fields.get(f"{name}_schema_id"), fields.get(f"{name}_schema")
    if schema_id is not None and text is not None:
        raise RestError(422, f"Give either {name}_schema or {name}_schema_id")
    try:
        if schema_id is not None:
            found = await schemas.by_id(schema_id)
        elif text is not None:
            found = await schemas.find(WantedSchema(schema_type=schema_type, text=text), topic, is_key=name == "key")
        else:
            return None
    except SchemaClientError as error:
        raise registry_refusal(error, SCHEMA_REGISTRY_ERROR, "Schema registration or lookup failed") from None
    except DataError as error:
        raise RestError(INVALID_SCHEMA, f"{name}_schema: {error}") from None
    if found.schema.schema_type != schema_type:
        text = f"Invalid schema: schema {schema_id} is of the type {found.schema.schema_type}, not {schema_type}"
        raise RestError(INVALID_SCHEMA, text)
    return found


@dataclass(frozen=True, slots=True)
class _SerializedRecords:
    """The keys and values of the records of a request, and the ids of their schemas."""

    parts: list[tuple[bytes | None, bytes | None]]
    key_schema_id: int | None = None
    value_schema_id: int | None = None


async def _serialized_records(
    services: Services, embedded_format: str, topic: str, body: Mapping[str, Any]
) -> _SerializedRecords:
    rows = body["records"]
    schema_type = SCHEMA_TYPES.get(embedded_format)
    if schema_type is None or services.schemas is None:
        parts = [
            (
                _serialized(one.get("key"), embedded_format, f"records[{number}].key"),
                _serialized(one.get("value"), embedded_format, f"records[{number}].value"),
            )
            for number, one in enumerate(rows)
        ]
        return _SerializedRecords(parts)
    key = await _schema_of(services.schemas, topic, body, "key", schema_type)
    value = await _schema_of(services.schemas, topic, body, "value", schema_type)

    def serialize() -> list[tuple[bytes | None, bytes | None]]:
        return [
            (_by_schema(key, one, "key", number), _by_schema(value, one, "value", number))
            for number, one in enumerate(rows)
        ]

    parts = await services.schemas.run(serialize)
    key_id, value_id = (None if one is None else one.schema.schema_id for one in (key, value))
    return _SerializedRecords(parts, key_id, value_id)


async def _produced(services: Services, request: Request, schema: str, partition: int | None) -> Answer:
    embedded_format = sent_format(services, request)
    topic = await topic_of(services, request)
    count = len(topic.partitions)
    if partition is not None and partition >= count:
        raise partition_not_found()
    body = await request.fields(schema)
    serialized = await _serialized_records(services, embedded_format, topic.name, body)
    records = []
    for one, (key, value) in zip(body["records"], serialized.parts, strict=True):
        wanted = one.get("partition") if partition is None else partition
        if wanted is not None and wanted >= count:
            raise partition_not_found()
        records.append(NewRecord(key, value, partition=wanted))
    sent = await _send_all(services, topic.name, records)
    return Answer(
        {
            "offsets": [_offset(one) for one in sent],
            "key_schema_id": serialized.key_schema_id,
            "value_schema_id": serialized.value_schema_id,
        }
    )


@negotiated
async def _to_topic(services: Services, request: Request) -> Answer:
    return await _produced(services, request, "TopicProduceRequest", None)


@negotiated
async def _to_partition(services: Services, request: Request) -> Answer:
    return await _produced(services, request, "PartitionProduceRequest", request.number("partition"))


_WRITING = "Write on the topic"
ROUTES = (
    Route(
        "POST",
        "/topics/{topic}",
        _to_topic,
        "Produce records. The content type says whether keys and values are base64 (binary), any JSON (json), or JSON "
        "of a schema (avro, jsonschema, protobuf).",
        "ProducedRecords",
        body="TopicProduceRequest",
        right=_WRITING,
    ),
    Route(
        "POST",
        "/topics/{topic}/partitions/{partition}",
        _to_partition,
        "Produce records to one partition.",
        "ProducedRecords",
        body="PartitionProduceRequest",
        right=_WRITING,
    ),
)
