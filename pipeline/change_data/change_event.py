"""Reads a record that Debezium has written: which row was changed, to what, and where in the database's log."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from .connect_schema import ColumnType, UnknownSchemaError, columns_of_struct
from .source_position import source_position

UPSERT, DELETE, TRUNCATE, TOMBSTONE, NOTHING = "upsert", "delete", "truncate", "tombstone", "nothing"
"""What is to be done with the row."""
UNAVAILABLE = "__debezium_unavailable_value"
"""What stands for a large value that PostgreSQL has not logged, as an update did not change it (TOAST)."""
_UNAVAILABLE_BYTES = base64.b64encode(UNAVAILABLE.encode()).decode()
_OPERATIONS = {"c": UPSERT, "r": UPSERT, "u": UPSERT, "d": DELETE, "t": TRUNCATE, "m": NOTHING}
_BEGIN, _BETWEEN = b'{"schema":', b',"payload":'


class NotAChangeError(Exception):
    """A record that holds no change; the text says why."""


@dataclass(frozen=True, slots=True)
class ChangeEvent:
    """A change of one row.

    `row` is JSON for Spark, of the key alone in a deletion. `columns` are the names and types of the row as JSON, by
    the schema beside the value; None where there is no schema. `position` is None for a tombstone, which has none.
    """

    operation: str
    key: tuple[str, ...] = ()
    row: str | None = None
    columns: str | None = None
    position: str | None = None
    unavailable: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Part:
    """A key or a value, and its schema in Connect's words; None without one."""

    payload: Any
    schema: Mapping[str, Any] | None


def read_change(key: bytes | None, value: bytes | None, read: Callable[[bytes], Part] | None = None) -> ChangeEvent:
    """The change in a record. Raises `NotAChangeError`. `read` reads a key or a value; by default JSON."""
    read = read or json_part
    envelope = None if value is None else read(value)
    if envelope is None or envelope.payload is None:
        names, row, columns = _key_row(key, read)
        return ChangeEvent(TOMBSTONE, names, row, columns)
    payload = envelope.payload
    operation = _OPERATIONS.get(str(payload.get("op"))) if isinstance(payload, dict) else None
    if operation is None:
        raise NotAChangeError("the value has no op of Debezium's (c, r, u, d, t)")
    position = source_position(payload.get("source") or {})
    if operation in (TRUNCATE, NOTHING):
        return ChangeEvent(operation, position=position)
    names, key_row, key_columns = _key_row(key, read)
    if operation == DELETE:
        return ChangeEvent(DELETE, names, key_row, key_columns, position)
    after = payload.get("after")
    if not isinstance(after, dict):
        raise NotAChangeError("the event has no row `after` the change")
    kinds = None if envelope.schema is None else _row_types(envelope.schema)
    missing = [name for name in names if name not in after]
    if missing:
        raise NotAChangeError(f"the row has no column {missing[0]}, which is in its key")
    unavailable = tuple(name for name, one in after.items() if _is_unavailable(one))
    kept = {name: one for name, one in after.items() if name not in unavailable}
    return ChangeEvent(UPSERT, names, _json(kept, kinds), _columns(kinds), position, unavailable)


def _is_unavailable(value: Any) -> bool:
    if isinstance(value, list):
        return len(value) == 1 and _is_unavailable(value[0])
    return isinstance(value, str) and value in (UNAVAILABLE, _UNAVAILABLE_BYTES)


def _key_row(key: bytes | None, read: Callable[[bytes], Part]) -> tuple[tuple[str, ...], str, str | None]:
    """The names of the key's columns, the row that has only them, and their types."""
    part = None if key is None else read(key)
    if part is None or not isinstance(part.payload, dict) or not part.payload:
        raise NotAChangeError(
            "the record has no key with columns: give the table a primary key, or Debezium message.key.columns"
        )
    kinds = None if part.schema is None else _types(part.schema)
    return tuple(sorted(part.payload)), _json(part.payload, kinds), _columns(kinds)


def _json(row: Mapping[str, Any], kinds: Mapping[str, ColumnType] | None) -> str:
    if kinds is not None:
        try:
            row = {name: kinds[name].value(value) for name, value in row.items() if name in kinds}
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise NotAChangeError(f"a value is not of its schema ({error})") from None
    return json.dumps(row, ensure_ascii=False)


def _columns(kinds: Mapping[str, ColumnType] | None) -> str | None:
    return None if kinds is None else json.dumps([(name, kind.spark) for name, kind in kinds.items()])


def json_part(text: bytes) -> Part:
    """What JsonConverter wrote. A schema is parsed once, as all records of a table repeat it."""
    at = text.find(_BETWEEN) if text.startswith(_BEGIN) else -1
    if at > 0:
        schema = _schema(text[len(_BEGIN) : at])
        payload = text[at + len(_BETWEEN) :].rstrip()
        if schema is not _NO_SCHEMA and payload.endswith(b"}"):
            try:
                return Part(json.loads(payload[:-1]), schema)
            except ValueError:
                pass  # the text that we looked for was not where the schema ends
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError):
        raise NotAChangeError("it is not JSON") from None
    if isinstance(whole, dict) and whole.keys() == {"schema", "payload"}:
        schema = whole["schema"]
        return Part(whole["payload"], schema if isinstance(schema, dict) else None)
    return Part(whole, None)


_NO_SCHEMA: Any = object()


@lru_cache(64)
def _schema(text: bytes) -> Any:
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError):
        return _NO_SCHEMA
    return schema if schema is None or isinstance(schema, dict) else _NO_SCHEMA


_types_by_id: dict[int, tuple[Mapping[str, Any], Mapping[str, ColumnType]]] = {}
_TYPES_KEPT = 256


def _row_types(envelope: Mapping[str, Any]) -> Mapping[str, ColumnType]:
    for field in _fields(envelope):
        if field.get("field") == "after":
            return _types(field)
    raise NotAChangeError("the schema of the value describes no row `after` the change")


def _fields(schema: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    fields = schema.get("fields")
    return fields if isinstance(fields, list) else ()


def _types(schema: Mapping[str, Any]) -> Mapping[str, ColumnType]:
    """The columns of a struct. They are kept with their schema, which `_schema` keeps for the records that follow."""
    kept = _types_by_id.get(id(schema))
    if kept is not None and kept[0] is schema:
        return kept[1]
    try:
        kinds = columns_of_struct(schema)
    except (UnknownSchemaError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise NotAChangeError(f"its schema is none of Connect's ({error})") from None
    if len(_types_by_id) >= _TYPES_KEPT:
        _types_by_id.clear()
    _types_by_id[id(schema)] = (schema, kinds)
    return kinds
