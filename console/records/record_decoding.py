"""Keys and values of records in words: by the schemas of a registry, or by the formats of internal topics."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from ...broker.internal_records import INTERNAL_TOPICS, readable_record
from ...cluster.client.consumer import Consumed
from ...registry.data.frame import split_frame
from ...registry.data.readers import DataError, Reader, reader_of
from ...registry.data.schema_client import RegisteredSchema, SchemaClient, SchemaClientError

TEXT_MAX = 20_000
"""Characters of a key or value that are shown; the size says that there is more."""
SCHEMAS_MAX = 20
"""Schemas that are asked for at a time: bytes of any kind may look like the ids of many."""
_LOOK_FOR_S = 5.0

Shown: TypeAlias = Mapping[str, Any] | None
"""A key or value: `text` or `base64`, `size` in bytes, `how` it was decoded, or a `note` why it was not."""
_Found: TypeAlias = Mapping[int, RegisteredSchema | str]
"""Schemas by their ids; a text says why there is none."""


class RecordDecoder:
    """Shows records. Without `schemas` keys and values of ordinary topics are texts or bytes."""

    def __init__(self, schemas: SchemaClient | None = None) -> None:
        self._schemas = schemas

    async def rows(self, topic: str, records: Sequence[Consumed]) -> list[dict[str, Any]]:
        """The records as the page shows them."""
        if topic in INTERNAL_TOPICS:
            return [_internal_row(topic, one) for one in records]
        found = await self._look_up(part for one in records for part in (one.record.key, one.record.value))
        # To parse a schema may take a second, and data may be long.
        return await asyncio.to_thread(_rows, records, found)

    async def _look_up(self, parts: Iterable[bytes | None]) -> _Found:
        if self._schemas is None:
            return {}
        frames = [split_frame(bytes(part)) for part in parts if part is not None]
        ids = list(dict.fromkeys(frame[0] for frame in frames if frame is not None))
        asked = [self._one(self._schemas, one) for one in ids[:SCHEMAS_MAX]]
        found: dict[int, RegisteredSchema | str] = dict(zip(ids, await asyncio.gather(*asked), strict=False))
        return found | dict.fromkeys(ids[SCHEMAS_MAX:], f"only {SCHEMAS_MAX} schemas are asked for at a time")

    async def _one(self, schemas: SchemaClient, schema_id: int) -> RegisteredSchema | str:
        try:
            async with asyncio.timeout(_LOOK_FOR_S):
                return await schemas.schema(schema_id)
        except SchemaClientError as error:
            return str(error)
        except TimeoutError:
            return f"the registry does not answer within {_LOOK_FOR_S:g} s"


def _rows(records: Sequence[Consumed], found: _Found) -> list[dict[str, Any]]:
    readers: dict[int, Reader | str] = {}
    return [
        _row(one, _shown(one.record.key, found, readers), _shown(one.record.value, found, readers)) for one in records
    ]


def _internal_row(topic: str, consumed: Consumed) -> dict[str, Any]:
    record = consumed.record
    key, value = (None if part is None else bytes(part) for part in (record.key, record.value))
    found = readable_record(topic, key, value)
    if found is None:
        return _row(consumed, as_it_is(key), as_it_is(value))
    shown = None if value is None else _decoded(found.value, value, topic)
    return _row(consumed, None if key is None else _decoded(found.key, key, topic), shown)


def _row(consumed: Consumed, key: Shown, value: Shown) -> dict[str, Any]:
    record = consumed.record
    return {
        "partition": consumed.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": key,
        "value": value,
        "headers": [[name, as_it_is(data)] for name, data in record.headers],
    }


def _shown(data: bytes | None, found: _Found, readers: dict[int, Reader | str]) -> Shown:
    frame = None if data is None else split_frame(bytes(data))
    if data is None or frame is None or frame[0] not in found:
        return as_it_is(data)
    schema_id, rest = frame
    reader = readers.get(schema_id)
    if reader is None:
        reader = readers[schema_id] = _reader(found[schema_id])
    if isinstance(reader, str):
        return {**(as_it_is(data) or {}), "note": reader}
    schema = found[schema_id]
    kind = schema if isinstance(schema, str) else schema.schema_type
    try:
        return _decoded(reader(rest), bytes(data), f"{kind}, schema {schema_id}")
    except DataError as error:
        return {**(as_it_is(data) or {}), "note": f"schema {schema_id}: {error}"}


def _reader(schema: RegisteredSchema | str) -> Reader | str:
    if isinstance(schema, str):
        return schema
    try:
        return reader_of(schema.schema_type, schema.text, schema.references)
    except DataError as error:
        return f"schema {schema.schema_id}: {error}"


def _decoded(value: Any, data: bytes, how: str) -> dict[str, Any]:
    text = json.dumps(value, ensure_ascii=False)
    return {"text": text[:TEXT_MAX], "size": len(data), "how": how}


def as_it_is(data: bytes | None) -> dict[str, Any] | None:
    """A text where it is one, else Base64, with the size in bytes; None for null."""
    if data is None:
        return None
    data = bytes(data)
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(data[:TEXT_MAX]).decode(), "size": len(data)}
    return {"text": text[:TEXT_MAX], "size": len(data)}
