"""Values of JSON to data and back by schemas of each type, and schemas and values that cost too much."""

from __future__ import annotations

import json
from typing import Any

import pytest

from raftwerk.registry.data.frame import framed, split_frame
from raftwerk.registry.data.json_conversion import conversion_of
from raftwerk.registry.data.readers import DataError
from raftwerk.registry.references import Referenced

pytest.importorskip("fastavro", reason="no fastavro: conversions are NOT tested")
PROTO = """
syntax = "proto3";
package air;
message Flight { string carrier = 1; int64 number = 2; repeated Leg legs = 3; map<string, Leg> by_name = 4; }
message Leg { bytes tail = 1; optional int32 miles = 2; }
"""


def test_data_is_framed_by_the_id_of_its_schema() -> None:
    assert framed(258, b"rest") == b"\x00\x00\x00\x01\x02rest"
    assert split_frame(framed(258, b"rest")) == (258, b"rest")


def test_avro() -> None:
    conversion = conversion_of("AVRO", '{"type": "record", "name": "R", "namespace": "x", "fields": []}')
    assert conversion.record_name == "x.R"
    assert conversion.to_bytes({}) == b""
    conversion = conversion_of("AVRO", '{"type": "array", "items": "R"}', (Referenced("R", _record("R")),))
    assert conversion.to_value(conversion.to_bytes([{"a": 5}])) == [{"a": 5}]
    assert conversion_of("AVRO", '"string"').record_name == "string"


def _record(name: str) -> str:
    return json.dumps({"type": "record", "name": name, "fields": [{"name": "a", "type": "int"}]})


def test_json_schema_judges_what_is_written() -> None:
    text = json.dumps({"title": "Flight", "type": "object", "required": ["carrier"]})
    conversion = conversion_of("JSON", text)
    assert conversion.record_name == "Flight"
    assert conversion.to_bytes({"carrier": "ÜA"}) == '{"carrier":"ÜA"}'.encode()
    with pytest.raises(DataError, match="'carrier' is a required property"):
        conversion.to_bytes({})
    with pytest.raises(DataError, match="no JSON that can be written"):
        conversion.to_bytes({"carrier": "\ud800"})
    assert conversion.to_value(b'{"a": 1}') == {"a": 1}
    for data in (b"{", b"NaN", b"1e999", b"[" * 100_000):
        with pytest.raises(DataError, match="no JSON"):
            conversion.to_value(data)


def test_json_schema_finds_its_references() -> None:
    text = json.dumps({"properties": {"leg": {"$ref": "leg.json"}}})
    conversion = conversion_of("JSON", text, (Referenced("leg.json", '{"type": "integer"}'),))
    assert conversion.to_bytes({"leg": 5}) == b'{"leg":5}'
    with pytest.raises(DataError, match="'x' is not of type 'integer'"):
        conversion.to_bytes({"leg": "x"})


def test_protobuf_has_the_first_message_and_the_defaults_of_its_fields() -> None:
    conversion = conversion_of("PROTOBUF", PROTO)
    assert conversion.record_name == "air.Flight"
    data = conversion.to_bytes({"carrier": "UA", "number": "7", "legs": [{}], "by_name": {"a": {"tail": "/w=="}}})
    assert data[:5] == b"\x00\x0a\x02UA"
    assert conversion.to_value(data) == {
        "carrier": "UA",
        "number": "7",
        "legs": [{"tail": ""}],
        "by_name": {"a": {"tail": "/w=="}},
    }
    assert conversion.to_value(b"\x02\x02\x10\x05") == {"tail": "", "miles": 5}
    for value, told in (({"x": 1}, 'no field named "x"'), (5, "not int"), ({"number": "x"}, "number"), ([], "list")):
        with pytest.raises(DataError, match=told):
            conversion.to_bytes(value)
    for data in (b"", b"\x00\x0a\xff", b"\x02\x08"):
        with pytest.raises(DataError):
            conversion.to_value(data)
    with pytest.raises(DataError, match="no message type"):
        conversion_of("PROTOBUF", 'syntax = "proto3"; enum E { A = 0; }')


def test_protobuf_that_nests_too_deeply_or_would_grow_is_refused() -> None:
    conversion = conversion_of("PROTOBUF", 'syntax = "proto3"; message N { N n = 1; }')
    value: Any = {}
    for _ in range(400):
        value = {"n": value}
    with pytest.raises(DataError):
        conversion.to_bytes(value)
    fields = "".join(f"string field_with_quite_a_long_name_{n} = {n};" for n in range(1, 2000))
    wide = conversion_of("PROTOBUF", f'syntax = "proto3"; message M {{ repeated W w = 1; }} message W {{ {fields} }}')
    assert len(wide.to_value(b"\x00\x0a\x00")["w"][0]) == 1999
    with pytest.raises(DataError, match="far longer in JSON"):
        wide.to_value(b"\x00" + b"\x0a\x00" * 1000)


@pytest.mark.parametrize("kind", ["AVRO", "JSON", "PROTOBUF", "THRIFT"])
def test_what_is_no_schema_is_refused(kind: str) -> None:
    for text in ("{", "", "x" * ((1 << 20) + 1)):
        with pytest.raises(DataError):
            conversion_of(kind, text)
