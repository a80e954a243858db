"""The JSON encoding of Avro: what it says is what `fastavro` writes, and what is wrong is refused."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftwerk.registry.avro.schema import AvroType, parse_avro
from raftwerk.registry.data.avro_json import avro_bytes, avro_value
from raftwerk.registry.data.readers import DataError

fastavro = pytest.importorskip("fastavro", reason="no fastavro: data of Avro is NOT tested")
NODE = {
    "type": "record",
    "name": "Node",
    "namespace": "air",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "size", "type": "int"},
        {"name": "ratio", "type": "double"},
        {"name": "share", "type": "float"},
        {"name": "open", "type": "boolean"},
        {"name": "raw", "type": "bytes"},
        {"name": "mark", "type": {"type": "fixed", "name": "Mark", "size": 2}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "counts", "type": {"type": "map", "values": "long"}},
        {"name": "next", "type": ["null", "string", "long", "Node"]},
    ],
}
FLOATS = st.floats(allow_nan=False, allow_infinity=False, width=32)


def root(schema: Any) -> AvroType:
    return parse_avro(json.dumps(schema)).root


def nodes(following: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Values of NODE as `fastavro` takes them, with the branches of unions named by tuples."""
    return st.fixed_dictionaries(
        {
            "id": st.integers(-(2**63), 2**63 - 1),
            "size": st.integers(-(2**31), 2**31 - 1),
            "ratio": st.floats(allow_nan=False, allow_infinity=False),
            "share": FLOATS,
            "open": st.booleans(),
            "raw": st.binary(max_size=4),
            "mark": st.binary(min_size=2, max_size=2),
            "kind": st.sampled_from("AB"),
            "tags": st.lists(st.text(max_size=3), max_size=3),
            "counts": st.dictionaries(st.text(max_size=3), st.integers(-5, 5), max_size=3),
            "next": st.none()
            | st.text(max_size=3).map(lambda text: ("string", text))
            | st.integers(-9, 9).map(lambda number: ("long", number))
            | following.map(lambda node: ("air.Node", node)),
        }
    )


NODES = nodes(nodes(nodes(st.nothing())))


def in_json(node: dict[str, Any]) -> dict[str, Any]:
    """The same value in the JSON encoding."""
    found = {**node, "raw": node["raw"].decode("latin-1"), "mark": node["mark"].decode("latin-1")}
    if node["next"] is not None:
        branch, inner = node["next"]
        found["next"] = {branch: in_json(inner) if branch == "air.Node" else inner}
    return found


@given(NODES)
def test_values_have_the_bytes_that_fastavro_writes(node: dict[str, Any]) -> None:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(NODE), node)
    schema = root(NODE)
    value = json.loads(json.dumps(in_json(node)))
    assert avro_bytes(schema, value) == out.getvalue()
    assert avro_bytes(schema, avro_value(schema, out.getvalue())) == out.getvalue()


@given(st.binary(max_size=60))
def test_any_bytes_are_a_value_or_refused(data: bytes) -> None:
    schema = root(NODE)
    try:
        value = avro_value(schema, data)
    except DataError:
        return
    json.dumps(value, allow_nan=False)
    assert avro_value(schema, avro_bytes(schema, value)) == value


@pytest.mark.parametrize(
    ("schema", "value", "told"),
    [
        ("int", 2**31, "2147483648 is no int"),
        ("int", True, "True is no int"),
        ("int", 1.5, "1.5 is no int"),
        ("long", "5", "'5' is no long"),
        ("float", 1e300, "is no float"),
        ("double", 10**400, "is no double"),
        ("double", "nan", "'nan' is no double"),
        ("null", 0, "0 is no null"),
        ("boolean", 1, "1 is no boolean"),
        ("string", None, "None is no string"),
        ("string", "\ud800", "half of a surrogate pair"),
        ("bytes", "\u0100", "up to U\\+00FF"),
        ({"type": "fixed", "name": "F", "size": 2}, "a", "F has 2 bytes, not 1"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, "B", "'B' is no enum E"),
        ({"type": "array", "items": "int"}, {}, "dict is no array"),
        ({"type": "map", "values": "int"}, [], "list is no map"),
        (["null", "string"], "a", "a value of a union is null, or an object"),
        (["null", "string"], {"long": 5}, "the union has no branch long"),
        (["string", "long"], None, "the union has no branch null"),
        (NODE, {"id": 1}, "the field size of air.Node is missing"),
    ],
)
def test_values_that_are_not_of_the_schema(schema: Any, value: Any, told: str) -> None:
    with pytest.raises(DataError, match=told):
        avro_bytes(root(schema), value)


def test_the_field_of_a_mistake_is_told_and_unknown_fields_are_one() -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}
    with pytest.raises(DataError, match="a: 'x' is no int"):
        avro_bytes(root(schema), {"a": "x"})
    with pytest.raises(DataError, match="R does not know the field b"):
        avro_bytes(root(schema), {"a": 1, "b": 2})


def test_numbers_that_json_has_not_are_texts_and_floats_are_short() -> None:
    for text in ("NaN", "Infinity", "-Infinity"):
        assert avro_value(root("double"), avro_bytes(root("double"), text)) == text
        assert avro_value(root("float"), avro_bytes(root("float"), text)) == text
    assert avro_value(root("float"), avro_bytes(root("float"), 1.1)) == 1.1
    assert avro_bytes(root("long"), 5.0) == b"\x0a"


def test_a_union_that_is_the_schema_itself_is_shown_without_its_name() -> None:
    schema = root(["null", "string"])
    assert avro_value(schema, avro_bytes(schema, {"string": "a"})) == "a"
    assert avro_value(schema, avro_bytes(schema, None)) is None


@pytest.mark.parametrize(
    ("schema", "data", "told"),
    [
        ("string", b"\x04a", "ends within a value"),
        ("string", b"\x02\xff", "not UTF-8"),
        ("string", b"\x01", "ends within a value"),
        ("long", b"\xff" * 11, "a number is too long"),
        ("long", b"", "ends within a number"),
        ("int", b"\x02\x00", "1 bytes are left"),
        (["null", "int"], b"\x04", "a union has no branch 2"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, b"\x02", "has no symbol 1"),
        ({"type": "array", "items": "null"}, b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f", "far longer in JSON"),
    ],
)
def test_data_that_is_not_of_the_schema(schema: Any, data: bytes, told: str) -> None:
    with pytest.raises(DataError, match=told):
        avro_value(root(schema), data)


def test_depth_and_growth_are_limited() -> None:
    deep = root({"type": "record", "name": "N", "fields": [{"name": "n", "type": ["null", "N"]}]})
    with pytest.raises(DataError, match="nested more than 200 deep"):
        avro_value(deep, b"\x02" * 10_000 + b"\x00")
    value: Any = None
    for _ in range(300):
        value = {"N": {"n": value}}
    with pytest.raises(DataError, match="nested more than 200 deep"):
        avro_bytes(
            root(
                {
                    "type": "array",
                    "items": [
                        "null",
                        {"type": "record", "name": "N", "fields": [{"name": "n", "type": ["null", "N"]}]},
                    ],
                }
            ),
            [value],
        )
    wide = {"type": "record", "name": "W", "fields": [{"name": f"f{'x' * 1000}{n}", "type": "null"} for n in range(99)]}
    many = root(
        {
            "type": "array",
            "items": {
                "type": "record",
                "name": "I",
                "fields": [{"name": "b", "type": "boolean"}, {"name": "w", "type": wide}],
            },
        }
    )
    with pytest.raises(DataError, match="far longer in JSON"):
        avro_value(many, b"\xc8\x01" + b"\x01" * 100 + b"\x00")


def test_blocks_with_their_size_are_read() -> None:
    assert avro_value(root({"type": "array", "items": "int"}), b"\x03\x04\x02\x04\x02\x06\x00") == [1, 2, 3]
