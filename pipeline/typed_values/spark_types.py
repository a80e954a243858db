"""Spark's types for what a schema of a registry describes: Avro, Protobuf or JSON Schema, as DDL."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...registry.avro.schema import fastavro_schema
from ...registry.data.readers import protobuf_types
from ...registry.errors import RegistryError
from ...registry.protobuf.schema import parse_protobuf
from ...registry.records import AVRO, JSON, PROTOBUF
from ...registry.references import Referenced
from ..lakehouse.partition_fields import quoted

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor

_DEPTH_MAX = 50
_AVRO_TYPES: Mapping[str, str] = {
    "null": "VOID",
    "boolean": "BOOLEAN",
    "int": "INT",
    "long": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "bytes": "BINARY",
    "string": "STRING",
    "enum": "STRING",
    "fixed": "BINARY",
}
_AVRO_LOGICAL_TYPES: Mapping[str, str] = {
    "date": "DATE",
    "timestamp-millis": "TIMESTAMP",
    "timestamp-micros": "TIMESTAMP",
    "local-timestamp-millis": "TIMESTAMP_NTZ",
    "local-timestamp-micros": "TIMESTAMP_NTZ",
    "time-millis": "STRING",
    "time-micros": "STRING",
    "uuid": "STRING",
}
_DECIMAL_PRECISION_MAX = 38
_PROTOBUF_TYPES: Mapping[str, str] = {
    "double": "DOUBLE",
    "float": "FLOAT",
    "int64": "BIGINT",
    "uint64": "DECIMAL(20,0)",
    "int32": "INT",
    "fixed64": "DECIMAL(20,0)",
    "fixed32": "BIGINT",
    "bool": "BOOLEAN",
    "string": "STRING",
    "bytes": "BINARY",
    "uint32": "BIGINT",
    "enum": "STRING",
    "sfixed32": "INT",
    "sfixed64": "BIGINT",
    "sint32": "INT",
    "sint64": "BIGINT",
}
_PROTOBUF_WELL_KNOWN: Mapping[str, str] = {
    "google.protobuf.Timestamp": "TIMESTAMP",
    "google.protobuf.Duration": "STRING",
    "google.protobuf.FieldMask": "STRING",
    "google.protobuf.DoubleValue": "DOUBLE",
    "google.protobuf.FloatValue": "FLOAT",
    "google.protobuf.Int64Value": "BIGINT",
    "google.protobuf.UInt64Value": "DECIMAL(20,0)",
    "google.protobuf.Int32Value": "INT",
    "google.protobuf.UInt32Value": "BIGINT",
    "google.protobuf.BoolValue": "BOOLEAN",
    "google.protobuf.StringValue": "STRING",
    "google.protobuf.BytesValue": "BINARY",
}
_JSON_TYPES: Mapping[str, str] = {"string": "STRING", "integer": "BIGINT", "number": "DOUBLE", "boolean": "BOOLEAN"}
_JSON_FORMATS: Mapping[str, str] = {"date": "DATE", "date-time": "TIMESTAMP"}


class NoColumnsError(ValueError):
    """A schema that has no columns of Spark; the message says why."""


def columns_of_schema(schema_type: str, text: str, references: Sequence[Referenced] = ()) -> dict[str, str]:
    """The columns by name, each with its type in Spark's DDL. Raises `NoColumnsError`."""
    try:
        if schema_type == AVRO:
            return _avro_columns(text, references)
        if schema_type == PROTOBUF:
            return _protobuf_columns(text, references)
        if schema_type == JSON:
            return _json_columns(text)
    except RegistryError as error:
        raise NoColumnsError(str(error)) from None
    except RecursionError:
        raise NoColumnsError("its types are nested too deeply") from None
    raise NoColumnsError(f"the type {schema_type[:40]} is not known")


def ddl_of(columns: Mapping[str, str]) -> str:
    """The columns as Spark's DDL."""
    return ", ".join(f"{quoted(name)} {kind}" for name, kind in columns.items())


def _struct(columns: Mapping[str, str], what: str) -> str:
    if not columns:
        raise NoColumnsError(f"{what} has no fields")
    return f"STRUCT<{', '.join(f'{quoted(name)}: {kind}' for name, kind in columns.items())}>"


def _nested(depth: int) -> int:
    if depth >= _DEPTH_MAX:
        raise NoColumnsError("its types are nested too deeply, or refer to themselves")
    return depth + 1


# -- Avro


def expanded_avro(text: str, references: Sequence[Referenced]) -> Any:
    """An Avro schema with the named types that it uses in their places. Raises `NoColumnsError`."""
    from fastavro.schema import SchemaParseException

    known: dict[str, Any] = {}
    try:
        for one in dict.fromkeys(one.text for one in references):
            fastavro_schema(json.loads(one), known)
        return fastavro_schema(json.loads(text), known, expand=True)
    except (SchemaParseException, ValueError) as error:
        raise NoColumnsError(f"it is no Avro schema: {error}") from None


def _avro_columns(text: str, references: Sequence[Referenced]) -> dict[str, str]:
    found = expanded_avro(text, references)
    if not isinstance(found, dict) or found.get("type") not in ("record", "error"):
        raise NoColumnsError("it describes no record with fields")
    return _avro_fields(found, 0)


def _avro_fields(record: Mapping[str, Any], depth: int) -> dict[str, str]:
    return {one["name"]: _avro_type(one["type"], _nested(depth)) for one in record["fields"]}


def _avro_type(kind: Any, depth: int) -> str:
    if isinstance(kind, list):
        branches = [one for one in kind if one != "null"]
        if len(branches) != 1:
            raise NoColumnsError(f"a union of {len(branches)} types is no column")
        return _avro_type(branches[0], depth)
    if isinstance(kind, str):
        if kind not in _AVRO_TYPES:
            raise NoColumnsError(f"the type {kind} refers to itself")
        return _AVRO_TYPES[kind]
    name = kind["type"]
    if not isinstance(name, str):
        return _avro_type(name, _nested(depth))
    if name in ("record", "error"):
        return _struct(_avro_fields(kind, depth), f"the record {kind['name']}")
    if name == "array":
        return f"ARRAY<{_avro_type(kind['items'], _nested(depth))}>"
    if name == "map":
        return f"MAP<STRING, {_avro_type(kind['values'], _nested(depth))}>"
    logical = kind.get("logicalType")
    if logical == "decimal":
        precision, scale = kind["precision"], kind.get("scale", 0)
        return f"DECIMAL({precision},{scale})" if precision <= _DECIMAL_PRECISION_MAX else "STRING"
    return _AVRO_LOGICAL_TYPES.get(str(logical)) or _avro_type(name, depth)


# -- Protobuf


def _protobuf_columns(text: str, references: Sequence[Referenced]) -> dict[str, str]:
    file = protobuf_types(parse_protobuf(text, references).files).file
    messages = list(file.message_types_by_name.values())
    if not messages:
        raise NoColumnsError("it describes no message")
    return _message_columns(messages[0], 0)


def _message_columns(message: Descriptor, depth: int) -> dict[str, str]:
    return {one.name: _field_type(one, _nested(depth)) for one in message.fields}


def _field_type(one: FieldDescriptor, depth: int) -> str:
    message = one.message_type
    if message is not None and message.GetOptions().map_entry:
        value = _single_type(message.fields_by_name["value"], depth)
        return f"MAP<STRING, {value}>"
    single = _single_type(one, depth)
    return f"ARRAY<{single}>" if one.is_repeated else single


def _single_type(one: FieldDescriptor, depth: int) -> str:
    message = one.message_type
    if message is None:
        return _PROTOBUF_TYPES[_type_name(one)]
    if message.full_name in _PROTOBUF_WELL_KNOWN:
        return _PROTOBUF_WELL_KNOWN[message.full_name]
    return _struct(_message_columns(message, depth), f"the message {message.full_name}")


def _type_name(one: FieldDescriptor) -> str:
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto

    return FieldDescriptorProto.Type.Name(FieldDescriptorProto.Type.ValueType(one.type)).removeprefix("TYPE_").lower()


# -- JSON Schema


def _json_columns(text: str) -> dict[str, str]:
    try:
        root = json.loads(text)
    except ValueError:
        raise NoColumnsError("it is no JSON") from None
    if not isinstance(root, dict) or not isinstance(root.get("properties"), dict):
        raise NoColumnsError("it describes no object with properties")
    return _properties(root, 0)


def _properties(schema: Mapping[str, Any], depth: int) -> dict[str, str]:
    return {name: _json_type(name, one, _nested(depth)) for name, one in schema["properties"].items()}


def _json_type(name: str, schema: Any, depth: int) -> str:
    kind = schema.get("type") if isinstance(schema, dict) else None
    if isinstance(kind, list):
        others = [one for one in kind if one != "null"]
        kind = others[0] if len(others) == 1 else None
    if not isinstance(kind, str):
        raise NoColumnsError(f"the property {name} has not one type")
    builders: Mapping[str, Callable[[], str]] = {
        "object": lambda: _json_object(name, schema, depth),
        "array": lambda: f"ARRAY<{_json_type(name, schema.get('items'), _nested(depth))}>",
        "string": lambda: _JSON_FORMATS.get(str(schema.get("format")), "STRING"),
    }
    if kind in builders:
        return builders[kind]()
    if kind not in _JSON_TYPES:
        raise NoColumnsError(f"the property {name} has not one type")
    return _JSON_TYPES[kind]


def _json_object(name: str, schema: Mapping[str, Any], depth: int) -> str:
    if isinstance(schema.get("properties"), dict):
        return _struct(_properties(schema, depth), f"the property {name}")
    values = schema.get("additionalProperties")
    if isinstance(values, dict):
        return f"MAP<STRING, {_json_type(name, values, _nested(depth))}>"
    raise NoColumnsError(f"the property {name} is an object without properties")
