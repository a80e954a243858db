"""What data says by its schema, and data that no decoder may be given."""

from __future__ import annotations

import datetime
import io
import json
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftwerk.registry.data.frame import FrameError, split_frame, split_message_path
from raftwerk.registry.data.readers import RECURSIVE_BYTES_MAX, DataError, plain, reader_of
from raftwerk.registry.references import Referenced

fastavro = pytest.importorskip("fastavro", reason="no fastavro: data of Avro is NOT tested")
FLIGHT = {"type": "record", "name": "Flight", "fields": [{"name": "carrier", "type": "string"}]}
PROTO = """
syntax = "proto3";
package air;
message Flight { string carrier = 1; int32 number = 2; message Leg { bytes tail = 1; } }
message Crew { repeated string names = 1; }
"""


def avro(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema, value)
    return out.getvalue()


def read(schema: Any, data: bytes) -> Any:
    return reader_of("AVRO", json.dumps(schema))(data)


def test_a_frame_has_the_id_of_the_schema() -> None:
    assert split_frame(b"\x00" + struct.pack(">I", 7) + b"rest") == (7, b"rest")
    for data in (b"", b"\x00\x00\x00\x00", b"\x01\x00\x00\x00\x07rest", b'{"a": 1}'):
        assert split_frame(data) is None


def test_the_path_to_a_message_type() -> None:
    assert split_message_path(b"\x00rest") == ([0], b"rest")
    assert split_message_path(b"\x04\x02\x00rest") == ([1, 0], b"rest")
    for data in (b"", b"\x04\x02", b"\x01", b"\xff" * 8, b"\xff\xff\x7f"):
        with pytest.raises(FrameError):
            split_message_path(data)


def test_avro_with_what_json_has_not() -> None:
    schema = {
        "type": "record",
        "name": "R",
        "fields": [
            {"name": "raw", "type": "bytes"},
            {"name": "day", "type": {"type": "int", "logicalType": "date"}},
            {"name": "maybe", "type": ["null", "double"]},
        ],
    }
    value = {"raw": b"\xff", "day": datetime.date(2026, 1, 31), "maybe": float("nan")}
    assert read(schema, avro(schema, value)) == {"raw": "/w==", "day": "2026-01-31", "maybe": "NaN"}
    assert plain({1: (b"a", True, None, 1.5, "t")}) == {"1": ["YQ==", True, None, 1.5, "t"]}


def test_avro_with_types_of_other_schemas() -> None:
    schema = {"type": "array", "items": "Flight"}
    reader = reader_of("AVRO", json.dumps(schema), (Referenced("Flight", json.dumps(FLIGHT)),))
    assert reader(avro({"type": "array", "items": FLIGHT}, [{"carrier": "UA"}])) == [{"carrier": "UA"}]


def test_avro_with_types_without_a_namespace_within_one() -> None:
    flown: dict[str, Any] = {"type": "record", "name": "a.Flown", "fields": [{"name": "of", "type": "Flight"}]}
    reader = reader_of("AVRO", json.dumps(flown), (Referenced("Flight", json.dumps(FLIGHT)),))
    assert reader(b"\x04UA") == {"of": {"carrier": "UA"}}
    leaf = {"type": "record", "name": "a.Leaf", "fields": [{"name": "up", "type": ["null", "Tree"]}]}
    tree = {"type": "record", "name": "Tree", "fields": [{"name": "leaf", "type": leaf}]}
    assert read(tree, b"\x02\x00") == {"leaf": {"up": {"leaf": {"up": None}}}}


def test_avro_that_is_not_of_its_schema() -> None:
    for data, told in ((b"", "not of its schema"), (b"\x0aab", "not of its schema"), (b"\x04UAx", "1 bytes are left")):
        with pytest.raises(DataError, match=told):
            read(FLIGHT, data)
    with pytest.raises(DataError):
        reader_of("AVRO", "no schema")
    with pytest.raises(DataError, match="is not known"):
        reader_of("THRIFT", "x")


@pytest.mark.parametrize(
    "items",
    ["null", {"type": "fixed", "name": "F", "size": 0}, {"type": "record", "name": "E", "fields": []}],
    ids=["null", "fixed", "record"],
)
def test_an_array_of_items_without_bytes_is_not_decoded(items: Any) -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": {"type": "array", "items": items}}]}
    with pytest.raises(DataError, match="items without bytes"):
        read(schema, b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f")


def test_data_that_nests_as_deep_as_it_is_long_is_not_decoded() -> None:
    schema = {"type": "record", "name": "N", "fields": [{"name": "n", "type": ["null", "N"]}]}
    assert read(schema, b"\x02\x02\x00") == {"n": {"n": {"n": None}}}
    with pytest.raises(DataError, match="refers to itself"):
        read(schema, b"\x02" * 10_000_000)
    with pytest.raises(DataError, match="not of its schema"):
        read(schema, b"\x02" * (RECURSIVE_BYTES_MAX - 1) + b"\x00")


@given(st.binary(max_size=60))
def test_avro_of_any_bytes_is_a_value_or_refused(data: bytes) -> None:
    schema = {
        "type": "record",
        "name": "R",
        "fields": [
            {"name": "m", "type": {"type": "map", "values": ["null", "R", "long"]}},
            {"name": "a", "type": {"type": "array", "items": FLIGHT}},
            {"name": "t", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {"name": "d", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        ],
    }
    try:
        json.dumps(read(schema, data))
    except DataError:
        pass


def test_json_is_read_and_broken_json_refused() -> None:
    reader = reader_of("JSON", '{"type": "object"}')
    assert reader(b'{"a": [1]}') == {"a": [1]}
    for data in (b"{", b"[" * 100_000, b"\xff"):
        with pytest.raises(DataError, match="no JSON"):
            reader(data)


def test_protobuf_messages_by_their_path() -> None:
    reader = reader_of("PROTOBUF", PROTO)
    assert reader(b"\x00\x0a\x02UA\x10\x07") == {"carrier": "UA", "number": 7}
    assert reader(b"\x02\x02\x0a\x01a\x0a\x01b") == {"names": ["a", "b"]}
    assert reader(b"\x04\x00\x00\x0a\x01\xff") == {"tail": "/w=="}
    for data, told in ((b"\x00\x0a\xff", "not of its schema"), (b"\x02\x08", "no message type"), (b"", "it ends")):
        with pytest.raises(DataError, match=told):
            reader(data)


def test_protobuf_with_imports() -> None:
    text = 'syntax = "proto3"; import "air.proto"; message Day { repeated air.Flight flights = 1; }'
    reader = reader_of("PROTOBUF", text, (Referenced("air.proto", PROTO),))
    assert reader(b"\x00\x0a\x04\x0a\x02UA") == {"flights": [{"carrier": "UA"}]}


@given(st.binary(max_size=60))
def test_protobuf_of_any_bytes_is_a_value_or_refused(data: bytes) -> None:
    try:
        json.dumps(reader_of("PROTOBUF", PROTO)(data))
    except DataError:
        pass
