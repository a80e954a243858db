"""The columns of a schema of a registry."""

from __future__ import annotations

import json
from typing import Any

import pytest

from raftwerk.pipeline.typed_values.spark_types import NoColumnsError, columns_of_schema, ddl_of
from raftwerk.registry.references import Referenced


def record(*fields: tuple[str, Any]) -> str:
    rows = [{"name": name, "type": kind} for name, kind in fields]
    return json.dumps({"type": "record", "name": "flights.Flight", "fields": rows})


@pytest.mark.parametrize(
    ("kind", "column"),
    [
        ("long", "BIGINT"),
        (["null", "double"], "DOUBLE"),
        ({"type": "int", "logicalType": "date"}, "DATE"),
        ({"type": "long", "logicalType": "timestamp-millis"}, "TIMESTAMP"),
        ({"type": "long", "logicalType": "local-timestamp-micros"}, "TIMESTAMP_NTZ"),
        ({"type": "long", "logicalType": "of-others"}, "BIGINT"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}, "DECIMAL(10,2)"),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "STRING"),
        ({"type": "fixed", "name": "F", "size": 4}, "BINARY"),
        ({"type": "array", "items": {"type": "map", "values": "int"}}, "ARRAY<MAP<STRING, INT>>"),
        ({"type": "record", "name": "Place", "fields": [{"name": "lat", "type": "float"}]}, "STRUCT<`lat`: FLOAT>"),
    ],
)
def test_avro(kind: Any, column: str) -> None:
    assert columns_of_schema("AVRO", record(("x", kind))) == {"x": column}


def test_avro_types_of_other_schemas() -> None:
    place = json.dumps({"type": "record", "name": "geo.Place", "fields": [{"name": "lat", "type": "float"}]})
    text = record(("home", "geo.Place"), ("other", ["null", "geo.Place"]))
    found = columns_of_schema("AVRO", text, [Referenced("geo.Place", place, 0)])
    assert found == {"home": "STRUCT<`lat`: FLOAT>", "other": "STRUCT<`lat`: FLOAT>"}
    assert ddl_of(found) == "`home` STRUCT<`lat`: FLOAT>, `other` STRUCT<`lat`: FLOAT>"
    within = json.dumps({"type": "record", "name": "shop.R", "fields": [{"name": "home", "type": "Place"}]})
    without = Referenced("Place", place.replace("geo.", ""), 0)
    assert columns_of_schema("AVRO", within, [without]) == {"home": "STRUCT<`lat`: FLOAT>"}


PROTOBUF = """
syntax = "proto3";
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
message Flight {
  string carrier = 1;
  uint64 number = 2;
  repeated sint32 delays = 3;
  map<string, Place> places = 4;
  google.protobuf.Timestamp at = 5;
  google.protobuf.Int64Value seats = 6;
  enum Kind { UNKNOWN = 0; CARGO = 1; }
  Kind kind = 7;
  message Place { double lat = 1; }
}
"""


def test_protobuf() -> None:
    assert columns_of_schema("PROTOBUF", PROTOBUF) == {
        "carrier": "STRING",
        "number": "DECIMAL(20,0)",
        "delays": "ARRAY<INT>",
        "places": "MAP<STRING, STRUCT<`lat`: DOUBLE>>",
        "at": "TIMESTAMP",
        "seats": "BIGINT",
        "kind": "STRING",
    }


def test_json_schema() -> None:
    properties = {
        "carrier": {"type": "string"},
        "day": {"type": ["null", "string"], "format": "date"},
        "delays": {"type": "array", "items": {"type": "number"}},
        "seats": {"type": "object", "additionalProperties": {"type": "integer"}},
        "place": {"type": "object", "properties": {"is_hub": {"type": "boolean"}}},
    }
    assert columns_of_schema("JSON", json.dumps({"type": "object", "properties": properties})) == {
        "carrier": "STRING",
        "day": "DATE",
        "delays": "ARRAY<DOUBLE>",
        "seats": "MAP<STRING, BIGINT>",
        "place": "STRUCT<`is_hub`: BOOLEAN>",
    }


NODE = {"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"]}]}


@pytest.mark.parametrize(
    ("schema_type", "text", "why"),
    [
        ("AVRO", '"string"', "no record"),
        ("AVRO", record(("x", ["int", "string"])), "a union of 2 types"),
        ("AVRO", json.dumps(NODE), "refers to itself"),
        ("AVRO", record(("x", {"type": "record", "name": "Empty", "fields": []})), "has no fields"),
        ("AVRO", "{", "no Avro schema"),
        ("PROTOBUF", 'syntax = "proto3"; message Node { Node next = 1; }', "refer to themselves"),
        ("PROTOBUF", "nonsense", "."),
        ("JSON", '{"type": "string"}', "no object with properties"),
        ("JSON", '{"properties": {"x": {"type": ["string", "integer"]}}}', "property x has not one type"),
        ("JSON", '{"properties": {"x": {"$ref": "#"}}}', "property x has not one type"),
        ("JSON", '{"properties": {"x": {"type": "object"}}}', "without properties"),
        ("JSON", "[", "no JSON"),
        ("XML", "<x/>", "type XML is not known"),
    ],
)
def test_what_has_no_columns(schema_type: str, text: str, why: str) -> None:
    with pytest.raises(NoColumnsError, match=why):
        columns_of_schema(schema_type, text)
