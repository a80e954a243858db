"""Avro schemas: their one text, and what can read what, judged by fastavro where it can be asked."""

from __future__ import annotations

import io
import json
import time
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftwerk.registry.avro.compatibility import why_not_readable
from raftwerk.registry.avro.schema import PRIMITIVES, parse_avro
from raftwerk.registry.errors import RegistryError
from raftwerk.registry.references import Referenced


def why_not(reader: Any, writer: Any) -> list[str]:
    return why_not_readable(parse_avro(json.dumps(reader)), parse_avro(json.dumps(writer)))


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ("string", '"string"'),
        ('{"type": {"type": "string"}}', '"string"'),
        ('{"logicalType": "date", "type": "int"}', '{"type":"int","logicalType":"date"}'),
        ('["null", {"items": "int", "type": "array"}]', '["null",{"type":"array","items":"int"}]'),
        (
            '{"fields": [{"type": "a.b.E", "order": "ascending", "name": "e"}], "doc": "d", "namespace": "a.b",'
            ' "name": "R", "type": "record", "aliases": ["a.b.Q", "c.P"]}',
            None,
        ),
        (
            '{"type": "record", "name": "a.b.R", "fields": [{"name": "next", "type": ["null", "a.b.R"]}, '
            '{"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["X"], "default": "X"}}]}',
            '{"type":"record","name":"R","namespace":"a.b","fields":[{"name":"next","type":["null","R"]},'
            '{"name":"e","type":{"type":"enum","name":"E","symbols":["X"],"default":"X"}}]}',
        ),
    ],
)
def test_one_text_for_one_meaning(written: str, text: str | None) -> None:
    if text is None:
        with pytest.raises(RegistryError, match=r"there is no type a\.b\.E"):
            parse_avro(written)
        return
    assert parse_avro(written).text == text == parse_avro(text).text


def test_an_unknown_type_is_named_also_where_an_object_names_it() -> None:
    with pytest.raises(RegistryError, match=r"there is no type recrd$"):
        parse_avro('{"type": "recrd"}')


MONEY = '{"type":"record","name":"Money","fields":[{"name":"cents","type":"int"}]}'


def test_a_type_without_a_namespace_is_used_from_within_one() -> None:
    """Avro's Java library looks for a name in the namespace around it, and then without one."""
    order = '{"type":"record","name":"Order","namespace":"shop","fields":[{"name":"price","type":["null","Money"]}]}'
    parsed = parse_avro(order, [Referenced("Money", MONEY)])
    assert parsed.text == order
    assert parsed.root.fields[0].type.items[1].name == "Money"
    own = MONEY.replace('"name":"Money"', '"name":"Money","namespace":"shop"')
    parsed = parse_avro(order, [Referenced("Money", MONEY), Referenced("shop.Money", own)])
    assert parsed.root.fields[0].type.items[1].name == "shop.Money", "its own namespace goes before"
    inner = '{"type":"record","name":"a.Leaf","fields":[{"name":"up","type":["null","Tree"]}]}'
    tree = '{"type":"record","name":"Tree","fields":[{"name":"leaf","type":' + inner + "}]}"
    root = parse_avro(tree).root
    assert root.fields[0].type.fields[0].type.items[1] is root
    with pytest.raises(RegistryError, match=r"there is no type shop\.Money"):
        parse_avro(order)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "strin",
        "5",
        "null ,",
        "{}",
        '{"type": "record", "name": "R"}',
        '{"type": "record", "name": "R", "fields": 5}',
        '{"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}, {"name": "a", "type": "int"}]}',
        '{"type": "enum", "name": "E", "symbols": ["a", "a"]}',
        '{"type": "fixed", "name": "F"}',
        '["int", "int"]',
        '["int", ["null"]]',
        '[{"type": "enum", "name": "E", "symbols": ["a"]}, {"type": "enum", "name": "E", "symbols": ["a"]}]',
        '{"type": {"type": {"x": 1}}}',
        "[" * 5_000 + "]" * 5_000,
        '{"type":"array","items":' * 300 + '"int"' + "}" * 300,
    ],
    ids=str.__len__,
)
def test_what_is_no_schema_is_refused(text: str) -> None:
    with pytest.raises(RegistryError) as refused:
        parse_avro(text)
    assert refused.value.code == 42201


@pytest.mark.parametrize(
    ("reader", "writer", "why"),
    [
        ("long", "int", ""),
        ("int", "long", "TYPE_MISMATCH"),
        ("bytes", "string", ""),
        (["null", "string"], "string", ""),
        ("string", ["null", "string"], "TYPE_MISMATCH"),
        (["null", "int"], "string", "MISSING_UNION_BRANCH"),
        ({"type": "fixed", "name": "F", "size": 2}, {"type": "fixed", "name": "F", "size": 3}, "FIXED_SIZE"),
        (
            {"type": "enum", "name": "E", "symbols": ["a"]},
            {"type": "enum", "name": "E", "symbols": ["a", "b"]},
            "MISSING_ENUM_SYMBOLS",
        ),
        (
            {"type": "enum", "name": "E", "symbols": ["a"], "default": "a"},
            {"type": "enum", "name": "E", "symbols": ["a", "b"]},
            "",
        ),
        (
            {"type": "record", "name": "R", "fields": [{"name": "b", "type": "int", "aliases": ["a"]}]},
            {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]},
            "",
        ),
        (
            {"type": "record", "name": "S", "aliases": ["R"], "fields": []},
            {"type": "record", "name": "R", "fields": []},
            "",
        ),
        ({"type": "record", "name": "S", "fields": []}, {"type": "record", "name": "R", "fields": []}, "NAME_MISMATCH"),
        ({"type": "map", "values": "int"}, {"type": "map", "values": "string"}, "(at /values)"),
    ],
)
def test_what_can_read_what(reader: Any, writer: Any, why: str) -> None:
    found = why_not(reader, writer)
    assert why in found[0] if why else found == []


def test_a_recursive_type_is_compared_once() -> None:
    def tree(extra: list[Any]) -> Any:
        items = {"type": "array", "items": "Node"}
        return {"type": "record", "name": "Node", "fields": [{"name": "children", "type": items}, *extra]}

    assert why_not(tree([{"name": "n", "type": "int", "default": 0}]), tree([])) == []
    assert len(why_not(tree([{"name": "n", "type": "int"}]), tree([]))) == 1


def test_unions_that_double_at_each_level_are_refused() -> None:
    def level(depth: int, last: str) -> Any:
        if depth == 0:
            return last
        again = last if depth == 1 else [f"a.R{depth - 1}", f"b.R{depth - 1}"]
        return [
            {"type": "record", "name": f"{space}.R{depth}", "fields": [{"name": "f", "type": one}]}
            for space, one in (("a", level(depth - 1, last)), ("b", again))
        ]

    assert why_not(level(4, "int"), level(4, "int")) == []
    with pytest.raises(RegistryError, match="too complex"):
        why_not(level(11, "int"), level(11, "string"))


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "record", "name": "R", "fields": [{"name": f"f{n}", "type": "int"} for n in range(25_000)]},
        {"type": "enum", "name": "E", "symbols": [f"S{n}" for n in range(100_000)]},
    ],
    ids=["fields", "symbols"],
)
def test_comparing_takes_a_time_that_grows_with_the_length_only(schema: Any) -> None:
    parsed = parse_avro(json.dumps(schema))
    begun = time.monotonic()
    assert why_not_readable(parsed, parsed) == []
    assert time.monotonic() - begun < 5, "looking at all of them for each takes half a minute"


FIELD_TYPES = st.sampled_from([*PRIMITIVES, ["null", "int"], ["null", "string"], {"type": "array", "items": "long"}])
RECORDS = st.dictionaries(st.sampled_from("abc"), FIELD_TYPES).map(
    lambda fields: {
        "type": "record",
        "name": "R",
        "fields": [{"name": name, "type": one} for name, one in sorted(fields.items())],
    }
)
_NUMBERS = {"int": 7, "long": 7, "float": 1.5, "double": 1.5}
_SAMPLES = {"null": None, "boolean": True, "bytes": b"x", "string": "x", **_NUMBERS}


def _values_of(one: Any) -> list[Any]:
    """A value of each branch."""
    if isinstance(one, list):
        return [_SAMPLES[branch] for branch in one]
    return [[7]] if isinstance(one, dict) else [_SAMPLES[one]]


@given(RECORDS, RECORDS)
def test_what_is_called_readable_is_read(reader: Any, writer: Any) -> None:
    readable = why_not(reader, writer) == []
    read, failed = 0, 0
    counts = [len(_values_of(one["type"])) for one in writer["fields"]]
    for number in range(max(counts, default=1)):
        row = {one["name"]: _values_of(one["type"])[number % count] for one, count in zip(writer["fields"], counts)}
        buffer = io.BytesIO()
        fastavro.schemaless_writer(buffer, writer, row)
        buffer.seek(0)
        try:
            fastavro.schemaless_reader(buffer, writer, reader)
            read += 1
        except (fastavro.read.SchemaResolutionError, UnicodeDecodeError):
            failed += 1
    assert failed == 0 if readable else failed > 0
