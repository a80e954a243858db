"""Reads a record that Debezium has written: which row was changed, to what, and where in the database's log."""

from __future__ import annotations

import base64
import hashlib
import json
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from .connect_schema import ConnectSchema, RowColumns, UnknownSchemaError
from .source_position import source_position

UPSERT, DELETE, TRUNCATE, TOMBSTONE, NOTHING = "upsert", "delete", "truncate", "tombstone", "nothing"
"""What is to be done with the row."""
UNAVAILABLE = "__debezium_unavailable_value"
"""What stands for a large value that PostgreSQL has not logged, as an update did not change it (TOAST)."""
_UNAVAILABLE_BYTES = UNAVAILABLE.encode()
_UNAVAILABLE_UUID = uuid.UUID(bytes=hashlib.md5(_UNAVAILABLE_BYTES, usedforsecurity=False).digest(), version=3)
_UNAVAILABLE_TEXTS = (UNAVAILABLE, base64.b64encode(_UNAVAILABLE_BYTES).decode())
_UNAVAILABLE_PARTS: tuple[Any, ...] = (
    *([text] for text in _UNAVAILABLE_TEXTS),
    [str(_UNAVAILABLE_UUID)],  # as Java's UUID.nameUUIDFromBytes makes it
    list(_UNAVAILABLE_BYTES),
    {UNAVAILABLE: UNAVAILABLE},
)
"""What stands for arrays of texts and bytes, of UUIDs, and of integers, and for an hstore."""
_SNAPSHOT_ROW, _INCREMENTAL = "r", "incremental"
_OPERATIONS = {"c": UPSERT, _SNAPSHOT_ROW: UPSERT, "u": UPSERT, "d": DELETE, "t": TRUNCATE, "m": NOTHING}
_BEGIN, _BETWEEN = b'{"schema":', b',"payload":'


class NotAChangeError(Exception):
    """A record that holds no change; the text says why."""


@dataclass(frozen=True, slots=True)
class ChangeEvent:
    """A change of one row.

    `row` is JSON for Spark, of the key alone in a deletion. `columns` are the names and types of the row as JSON, by
    the schema beside the value; None where there is no schema. `position` is None for a tombstone, which has none.
    `is_of_snapshot`: whether it is a row that a snapshot read, and no change in the database's log. If the snapshot
    `is_incremental`, the position is that of the last change that was sent before, which may be of another row.
    """

    operation: str
    key: tuple[str, ...] = ()
    row: str | None = None
    columns: str | None = None
    position: str | None = None
    unavailable: tuple[str, ...] = ()
    is_of_snapshot: bool = False
    is_incremental: bool = False


@dataclass(frozen=True, slots=True)
class Part:
    """A key or a value, and its schema in Connect's words; None without one."""

    payload: Any
    schema: ConnectSchema | None


def read_change(key: bytes | None, value: bytes | None, read: Callable[[bytes], Part] | None = None) -> ChangeEvent:
    """The change in a record. Raises `NotAChangeError`. `read` reads a key or a value; by default JSON."""
    try:
        return _read_change(key, value, read or json_part)
    except UnknownSchemaError as error:
        raise NotAChangeError(f"its schema is none of Connect's ({error})") from None


def _read_change(key: bytes | None, value: bytes | None, read: Callable[[bytes], Part]) -> ChangeEvent:
    envelope = None if value is None else read(value)
    if envelope is None or envelope.payload is None:
        return ChangeEvent(TOMBSTONE, *_key_row(key, read))
    payload = envelope.payload
    operation = _OPERATIONS.get(str(payload.get("op"))) if isinstance(payload, dict) else None
    if operation is None:
        raise NotAChangeError("the value has no op of Debezium's (c, r, u, d, t)")
    source = payload.get("source") or {}
    position = source_position(source)
    if operation in (TRUNCATE, NOTHING):
        return ChangeEvent(operation, position=position)
    names, key_row, key_columns = _key_row(key, read)
    if operation == DELETE:
        return ChangeEvent(DELETE, names, key_row, key_columns, position)
    after = payload.get("after")
    if not isinstance(after, dict):
        raise NotAChangeError("the event has no row `after` the change")
    columns = None if envelope.schema is None else envelope.schema.row_after
    missing = [name for name in names if name not in after]
    if missing:
        raise NotAChangeError(f"the row has no column {missing[0]}, which is in its key")
    unavailable = tuple(name for name, one in after.items() if _is_unavailable(one))
    kept = {name: one for name, one in after.items() if name not in unavailable}
    of_snapshot = payload["op"] == _SNAPSHOT_ROW, source.get("snapshot") == _INCREMENTAL
    return ChangeEvent(UPSERT, names, _json(kept, columns), _types(columns), position, unavailable, *of_snapshot)


def _is_unavailable(value: Any) -> bool:
    if isinstance(value, str):
        return value in _UNAVAILABLE_TEXTS
    return isinstance(value, list | dict) and value in _UNAVAILABLE_PARTS


def _key_row(key: bytes | None, read: Callable[[bytes], Part]) -> tuple[tuple[str, ...], str, str | None]:
    """The names of the key's columns, the row that has only them, and their types."""
    part = None if key is None else read(key)
    if part is None or not isinstance(part.payload, dict) or not part.payload:
        raise NotAChangeError(
            "the record has no key with columns: give the table a primary key, or Debezium message.key.columns"
        )
    columns = None if part.schema is None else part.schema.columns
    return tuple(sorted(part.payload)), _json(part.payload, columns), _types(columns)


def _json(row: Mapping[str, Any], columns: RowColumns | None) -> str:
    if columns is not None:
        try:
            row = columns.converted(row)
        except ValueError as error:
            raise NotAChangeError(f"a value is not of its schema ({error})") from None
    return json.dumps(row, ensure_ascii=False)


def _types(columns: RowColumns | None) -> str | None:
    return None if columns is None else columns.as_json


def json_part(text: bytes) -> Part:
    """What JsonConverter wrote. A schema is parsed once, as all records of a table repeat it."""
    at = text.find(_BETWEEN) if text.startswith(_BEGIN) else -1
    payload = text[at + len(_BETWEEN) :].rstrip()
    if at > 0 and payload.endswith(b"}"):
        try:
            return Part(json.loads(payload[:-1]), _schema(text[len(_BEGIN) : at]))
        except (ValueError, RecursionError):
            pass  # the text that we looked for was not where the schema ends
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError):
        raise NotAChangeError("it is not JSON") from None
    if isinstance(whole, dict) and whole.keys() == {"schema", "payload"}:
        schema = whole["schema"]
        return Part(whole["payload"], ConnectSchema(schema) if isinstance(schema, dict) else None)
    return Part(whole, None)


@lru_cache(64)
def _schema(text: bytes) -> ConnectSchema | None:
    """The schema in JSON, None for null. Raises `ValueError`."""
    schema = json.loads(text)
    if schema is not None and not isinstance(schema, dict):
        raise ValueError("a schema is an object")
    return None if schema is None else ConnectSchema(schema)
