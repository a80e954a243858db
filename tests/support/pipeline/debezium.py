"""Records as Debezium's PostgreSQL connector writes them, with Connect's JsonConverter."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

COLUMNS: list[dict[str, Any]] = [
    {"type": "int32", "optional": False, "field": "id"},
    {"type": "string", "optional": True, "field": "name"},
    {"type": "int32", "optional": True, "field": "amount"},
]
_ENVELOPE = "shop.public.orders"


def envelope_schema(columns: list[dict[str, Any]] = COLUMNS) -> dict[str, Any]:
    """The schema of an event whose rows have these columns."""
    row = {"type": "struct", "fields": columns, "optional": True, "name": f"{_ENVELOPE}.Value"}
    source = {"type": "struct", "fields": [{"type": "int64", "optional": True, "field": "lsn"}], "field": "source"}
    fields = [{**row, "field": "before"}, {**row, "field": "after"}, source, {"type": "string", "field": "op"}]
    return {"type": "struct", "fields": fields, "optional": False, "name": f"{_ENVELOPE}.Envelope"}


def key_of(columns: list[dict[str, Any]] = COLUMNS, schemas: bool = True, /, **key: Any) -> bytes:
    """The key of a record."""
    kept = [column for column in columns if column["field"] in key]
    schema = {"type": "struct", "fields": kept, "optional": False, "name": f"{_ENVELOPE}.Key"}
    return _text(schema if schemas else None, key)


def event(
    op: str,
    after: Mapping[str, Any] | None,
    lsn: int | None,
    columns: list[dict[str, Any]] = COLUMNS,
    *,
    schemas: bool = True,
    source: Mapping[str, Any] | None = None,
) -> bytes:
    """The value of a record: the row after an insert (c), a read by a snapshot (r) or an update (u); None for d, t.

    `source` is added to what the event says of its source.
    """
    whole_source = {"lsn": lsn, "table": "orders", **(source or {})}
    payload = {"before": None, "after": after, "source": whole_source, "op": op, "ts_ms": 1}
    return _text(envelope_schema(columns) if schemas else None, payload)


def _text(schema: Mapping[str, Any] | None, payload: Any) -> bytes:
    whole = payload if schema is None else {"schema": schema, "payload": payload}
    return json.dumps(whole, separators=(",", ":")).encode()
