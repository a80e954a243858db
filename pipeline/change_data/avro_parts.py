"""Keys and values that Connect's AvroConverter wrote: data behind the id of its schema in a registry.

The Avro schema becomes the schema that JsonConverter would have written, by what the converter keeps of it in
properties such as `connect.name`; so one table of types serves for both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from ...registry.data.frame import split_frame
from ...registry.data.readers import DataError, Reader, reader_of
from ...registry.data.schema_client import SchemaClient, client_of
from ...registry.records import AVRO
from ...registry.references import Referenced
from ..typed_values.registry_values import schema_with_id
from ..typed_values.spark_types import NoColumnsError, expanded_avro
from .change_event import NotAChangeError, Part
from .connect_schema import DATE_TEXT, DECIMAL_TEXT, TIMESTAMP_TEXT, ConnectSchema, UnknownSchemaError

_PRIMITIVE_TYPES: Mapping[str, str] = {
    "boolean": "boolean",
    "int": "int32",
    "long": "int64",
    "float": "float",
    "double": "double",
    "bytes": "bytes",
    "fixed": "bytes",
    "string": "string",
    "enum": "string",
}
_LOGICAL_TYPES: Mapping[str, str | None] = {
    "decimal": DECIMAL_TEXT,
    "date": DATE_TEXT,
    "timestamp-millis": TIMESTAMP_TEXT,
    "timestamp-micros": TIMESTAMP_TEXT,
    "time-millis": None,
    "time-micros": None,
    "uuid": None,
}
"""Types whose values the reader gives as texts, with the names by which `connect_schema` knows them; None for text."""


class AvroParts:
    """Reads keys and values, and keeps what it has learned of their schemas."""

    def __init__(self, client: SchemaClient, url: str) -> None:
        self._client = client
        self._url = url
        self._known: dict[int, tuple[Reader, ConnectSchema]] = {}

    def part(self, data: bytes) -> Part:
        """The payload and its schema. Raises `NotAChangeError`, and `PipelineError` without the registry."""
        framed = split_frame(data)
        if framed is None:
            raise NotAChangeError("it does not begin with the id of a registry's schema")
        schema_id, rest = framed
        if schema_id not in self._known:
            self._known[schema_id] = self._learn(schema_id)
        read, schema = self._known[schema_id]
        try:
            return Part(read(rest), schema)
        except DataError as error:
            raise NotAChangeError(f"{error} (schema {schema_id})") from None

    def _learn(self, schema_id: int) -> tuple[Reader, ConnectSchema]:
        found = schema_with_id(self._client, self._url, schema_id)
        if found is None:
            raise NotAChangeError(f"the registry has no schema {schema_id}")
        if found.schema_type != AVRO:
            raise NotAChangeError(f"schema {schema_id} is {found.schema_type}; Avro and JSON are read")
        try:
            schema = ConnectSchema(connect_schema_of(found.text, found.references))
            return reader_of(found.schema_type, found.text, found.references), schema
        except (DataError, UnknownSchemaError) as error:
            raise NotAChangeError(f"schema {schema_id} is none of Connect's ({error})") from None


@lru_cache(4)
def avro_parts(url: str) -> AvroParts:
    """The reader for a registry, which a worker process keeps from task to task."""
    return AvroParts(client_of(url), url)


def connect_schema_of(text: str, references: Sequence[Referenced] = ()) -> dict[str, Any]:
    """Connect's schema for an Avro schema. Raises `UnknownSchemaError` for what a converter does not write."""
    try:
        return _connect_type(expanded_avro(text, references))
    except (NoColumnsError, KeyError, RecursionError) as error:
        raise UnknownSchemaError(str(error) or "its types are nested too deeply") from None


def _connect_type(kind: Any) -> dict[str, Any]:
    if isinstance(kind, list):
        branches = [one for one in kind if one != "null"]
        if len(branches) != 1:
            raise UnknownSchemaError(f"a union of {len(branches)} types")
        return _connect_type(branches[0])
    if isinstance(kind, str):
        if kind not in _PRIMITIVE_TYPES:
            raise UnknownSchemaError(f"the type {kind} refers to itself")
        return {"type": _PRIMITIVE_TYPES[kind]}
    name = kind["type"]
    if not isinstance(name, str):
        return _connect_type(name)
    if kind.get("logicalType") in _LOGICAL_TYPES:
        digits = {"scale": kind.get("scale", 0), "connect.decimal.precision": kind.get("precision", 0)}
        return {"type": "string", "name": _LOGICAL_TYPES[kind["logicalType"]], "parameters": digits}
    named = {"name": kind.get("connect.name"), "parameters": kind.get("connect.parameters")}
    if name == "record":
        return {
            **named,
            "type": "struct",
            "fields": [{**_connect_type(one["type"]), "field": one["name"]} for one in kind["fields"]],
        }
    if name == "array":
        return {**named, "type": "array", "items": _connect_type(kind["items"])}
    if name == "map":
        return {**named, "type": "map", "keys": {"type": "string"}, "values": _connect_type(kind["values"])}
    if name not in _PRIMITIVE_TYPES:
        raise UnknownSchemaError(f"the type {name}")
    return {**named, "type": kind.get("connect.type") or _PRIMITIVE_TYPES[name]}
