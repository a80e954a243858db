"""JSON schemas: what is refused, what a `$ref` leads to, and what can read what, which jsonschema judges too."""

from __future__ import annotations

import json
import time
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftwerk.registry.errors import RegistryError
from raftwerk.registry.json_schema.compatibility import why_not_readable
from raftwerk.registry.json_schema.schema import JsonSchema, parse_json_schema
from raftwerk.registry.references import Referenced

DRAFTS = {
    "draft4": "http://json-schema.org/draft-04/schema#",
    "draft6": "http://json-schema.org/draft-06/schema#",
    "draft7": "http://json-schema.org/draft-07/schema#",
    "2019-09": "https://json-schema.org/draft/2019-09/schema",
    "2020-12": "https://json-schema.org/draft/2020-12/schema",
}


def parsed(schema: Any, *references: Referenced) -> JsonSchema:
    return parse_json_schema(json.dumps(schema), references)


def why_not(reader: Any, writer: Any) -> list[str]:
    """The names of the rules that are broken, with the places."""
    found = why_not_readable(parsed(reader), parsed(writer))
    return [f"{one.partition(':')[0]} {one.rpartition('(at ')[2].rstrip(')')}" for one in found]


def test_the_text_is_compact_and_its_order_is_kept_unless_it_is_normalized() -> None:
    found = parse_json_schema('{ "type" : "object",\n "properties": {"b": {}, "ä": true}, "maxProperties": 1.0 }')
    assert found.text == '{"type":"object","properties":{"b":{},"ä":true},"maxProperties":1.0}'
    assert found.normalized() == '{"maxProperties":1.0,"properties":{"b":{},"ä":true},"type":"object"}'


@pytest.mark.parametrize("draft", DRAFTS)
def test_a_schema_is_judged_by_its_draft(draft: str) -> None:
    good = {"$schema": DRAFTS[draft], "type": "object", "properties": {"a": {"type": ["string", "null"]}}}
    assert json.loads(parsed(good).text) == good
    wrong_ones: list[dict[str, Any]] = [
        *({"type": "text"}, {"properties": []}, {"required": "a"}, {"maxLength": -1}, {"$ref": "#/nowhere"})
    ]
    for wrong in wrong_ones:
        with pytest.raises(RegistryError) as refused:
            parsed({"$schema": DRAFTS[draft], **wrong})
        assert refused.value.code == 42201
    by_draft_4 = {"$schema": DRAFTS[draft], "maximum": 5, "exclusiveMaximum": True}
    if draft == "draft4":
        parsed(by_draft_4)
    else:
        with pytest.raises(RegistryError, match="exclusiveMaximum"):
            parsed(by_draft_4)


HOSTILE: dict[str, str] = {
    "nothing": "",
    "text": '"string"',
    "number": '{"maximum": NaN}',
    "infinity": '{"maximum": 1e999}',
    "digits": '{"maximum": ' + "1" * 10_000 + "}",
    "brackets": "[" * 100_000,
    "levels": '{"items": ' * 400 + "{}" + "}" * 400,
    "schemas": json.dumps({"properties": {f"a{n}": {} for n in range(6_000)}}),
    "booleans": json.dumps({"properties": {f"a{n}": True for n in range(6_000)}}),
    "values": json.dumps({"enum": list(range(31_000))}),
    "enum": json.dumps({"$schema": DRAFTS["draft4"], "enum": [{"a": n} for n in range(3_000)]}),
    "fetched": '{"$ref": "http://example.com/schema.json"}',
    "file": '{"$ref": "file:///etc/passwd"}',
    "no address": '{"$ref": "http://[::1"}',
    "no schema": '{"$ref": "#/x", "x": {"properties": 5}}',
    "no object": '{"$ref": "#/x", "x": 5}',
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_no_schema_is_refused_in_bounded_time(name: str) -> None:
    begun = time.monotonic()
    with pytest.raises(RegistryError, match="Invalid schema") as refused:
        parse_json_schema(HOSTILE[name])
    assert refused.value.code == 42201
    assert time.monotonic() - begun < 5


def test_patterns_are_never_tried_by_a_machine_that_takes_long() -> None:
    bad = {
        "pattern": "(" * 20_000,
        "patternProperties": {"(a+)+$": {}, r"(?=\p{Lu})": {}},
        "properties": {"a" * 40 + "!": {}},
    }
    begun = time.monotonic()
    assert why_not({**bad, "minProperties": 0}, bad) == []
    assert time.monotonic() - begun < 2


def test_circles_of_references_end() -> None:
    for text in (
        {"$ref": "#"},
        {"allOf": [{"$ref": "#"}], "type": "object"},
        {
            "definitions": {"a": {"$ref": "#/definitions/b"}, "b": {"$ref": "#/definitions/a"}},
            "$ref": "#/definitions/a",
        },
    ):
        assert why_not({**text, "title": "a"}, text) == []


def test_references_by_name() -> None:
    money = Referenced("money.json", '{"definitions": {"Cents": {"type": "integer"}}, "$ref": "#/definitions/Cents"}')
    for name in ("money.json", "money.json#/definitions/Cents"):
        used = {"properties": {"price": {"$ref": name}}}
        for schema in (used, {"$id": "http://example.com/order.json", **used}):
            changed = Referenced(money.name, money.text.replace("integer", "string"))
            assert why_not_readable(parsed(schema, money), parsed(schema, money)) == []
            (why,) = why_not_readable(parsed(schema, changed), parsed(schema, money))
            assert why == ("TYPE_CHANGED: the reader takes string, the writer has integer (at #/properties/price)")
    with pytest.raises(RegistryError, match=r"its \$ref money.json leads to no schema: nothing is fetched"):
        parsed({"$ref": "money.json"})


def _rule(keyword: str) -> str:
    """The name of a keyword in the names of rules."""
    return "".join(f"_{one}" if one.isupper() else one for one in keyword).upper()


def _cases_of_bounds(kind: str, upper: str, lower: str) -> list[tuple[Any, Any, list[str]]]:
    """An upper and a lower bound that are added, moved and removed."""
    return [
        ({"type": kind, upper: 5}, {"type": kind}, []),
        ({"type": kind, upper: 5}, {"type": kind, upper: 6}, []),
        ({"type": kind, upper: 6}, {"type": kind, upper: 5}, [f"{_rule(upper)}_DECREASED #/{upper}"]),
        ({"type": kind}, {"type": kind, upper: 5}, [f"{_rule(upper)}_ADDED #/{upper}"]),
        ({"type": kind, lower: 5}, {"type": kind, lower: 4}, []),
        ({"type": kind, lower: 5}, {"type": kind, lower: 6}, [f"{_rule(lower)}_INCREASED #/{lower}"]),
        ({"type": "boolean"}, {"type": ["boolean", kind], upper: 5}, []),
    ]


OBJECT: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "string"}}}
CLOSED = {**OBJECT, "additionalProperties": False}
WITH_B = {"a": {"type": "string"}, "b": {"type": "integer"}}
CASES: list[tuple[Any, Any, list[str]]] = [
    # writer, reader, what is wrong
    ({"title": "a"}, {"title": "b", "description": "c"}, []),
    (OBJECT, {}, []),
    (OBJECT, True, []),
    ({}, {"type": "string"}, ["TYPE_NARROWED #/"]),
    ({"type": "object"}, {"type": "array"}, ["TYPE_CHANGED #/"]),
    ({"type": "integer"}, {"type": "number"}, []),
    ({"type": "number"}, {"type": "integer"}, ["TYPE_NARROWED #/"]),
    ({"type": "string"}, {"type": ["string", "null"]}, []),
    ({"type": ["string", "null"]}, {"type": "string"}, ["TYPE_NARROWED #/"]),
    *_cases_of_bounds("string", "maxLength", "minLength"),
    *_cases_of_bounds("array", "maxItems", "minItems"),
    *_cases_of_bounds("object", "maxProperties", "minProperties"),
    *_cases_of_bounds("number", "maximum", "minimum"),
    *_cases_of_bounds("number", "exclusiveMaximum", "exclusiveMinimum"),
    ({"type": "string", "pattern": "a"}, {"type": "string"}, []),
    ({"type": "string"}, {"type": "string", "pattern": "a"}, ["PATTERN_ADDED #/pattern"]),
    ({"type": "string", "pattern": "a"}, {"type": "string", "pattern": "b"}, ["PATTERN_CHANGED #/pattern"]),
    ({"type": "number", "multipleOf": 10}, {"type": "number", "multipleOf": 2.5}, []),
    ({"type": "number", "multipleOf": 2}, {"type": "number", "multipleOf": 10}, ["MULTIPLE_OF_EXPANDED #/multipleOf"]),
    ({"type": "number", "multipleOf": 10}, {"type": "number", "multipleOf": 11}, ["MULTIPLE_OF_CHANGED #/multipleOf"]),
    ({"enum": ["a"]}, {"enum": ["b", "a"]}, []),
    ({"enum": ["a", 1]}, {"type": ["string", "integer"]}, []),
    ({"enum": ["a", "b"]}, {"enum": ["a"]}, ["ENUM_ARRAY_NARROWED #/enum"]),
    ({"enum": ["a", "b"]}, {"enum": ["a", "c"]}, ["ENUM_ARRAY_CHANGED #/enum"]),
    ({"type": "string"}, {"type": "string", "enum": ["a"]}, ["ENUM_ARRAY_NARROWED #/enum"]),
    ({"const": 1}, {"enum": [1.0, 2]}, []),
    ({"const": 1}, {"const": True}, ["ENUM_ARRAY_CHANGED #/const"]),
    # open, closed and partly open content models
    (OBJECT, {**OBJECT, "properties": WITH_B}, ["OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL #/properties/b"]),
    (OBJECT, {**OBJECT, "properties": {**OBJECT["properties"], "b": {}}}, []),
    (CLOSED, {**CLOSED, "properties": WITH_B}, []),
    (
        CLOSED,
        {**CLOSED, "properties": WITH_B, "required": ["b"]},
        ["REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL #/required/b"],
    ),
    (CLOSED, {**CLOSED, "properties": {**WITH_B, "b": {"default": 0}}, "required": ["b"]}, []),
    ({**OBJECT, "properties": WITH_B}, OBJECT, []),
    ({**CLOSED, "properties": WITH_B}, CLOSED, ["PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL #/properties/b"]),
    ({**CLOSED, "properties": {**WITH_B, "b": False}}, CLOSED, []),
    (
        {**OBJECT, "additionalProperties": {"type": "number"}},
        {**OBJECT, "properties": WITH_B, "additionalProperties": {"type": "number"}},
        ["PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL #/properties/b"],
    ),
    (
        {**OBJECT, "properties": WITH_B, "additionalProperties": {"type": "number"}},
        {**OBJECT, "additionalProperties": {"type": "number"}},
        [],
    ),
    (
        {**CLOSED, "properties": WITH_B},
        {**CLOSED, "patternProperties": {"^b": {"type": "string"}}},
        ["PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL #/properties/b"],
    ),
    ({**CLOSED, "properties": WITH_B}, {**CLOSED, "patternProperties": {"^b": {"type": "number"}}}, []),
    (CLOSED, OBJECT, []),
    (OBJECT, CLOSED, ["ADDITIONAL_PROPERTIES_REMOVED #/additionalProperties"]),
    (
        OBJECT,
        {**OBJECT, "additionalProperties": {"type": "string"}},
        ["ADDITIONAL_PROPERTIES_NARROWED #/additionalProperties"],
    ),
    (OBJECT, {**OBJECT, "required": ["a"]}, ["REQUIRED_ATTRIBUTE_ADDED #/required/a"]),
    ({**OBJECT, "required": ["a"]}, OBJECT, []),
    # arrays
    ({"type": "array"}, {"type": "array", "items": {"type": "string"}}, ["TYPE_NARROWED #/items"]),
    ({"type": "array", "items": {"type": "string"}}, {"type": "array"}, []),
    ({"items": [{"type": "string"}]}, {"items": [{"type": "number"}]}, ["TYPE_CHANGED #/items/0"]),
    ({"items": [True]}, {"items": [True, {"type": "null"}]}, ["ITEM_ADDED_TO_OPEN_CONTENT_MODEL #/items/1"]),
    (
        {"items": [True, True], "additionalItems": False},
        {"items": [True], "additionalItems": False},
        ["ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL #/items/1"],
    ),
    ({"items": [True], "additionalItems": False}, {"items": [True, True], "additionalItems": False}, []),
    ({"type": "array"}, {"type": "array", "uniqueItems": True}, ["UNIQUE_ITEMS_ADDED #/uniqueItems"]),
    # combined schemas
    ({"type": "string"}, {"oneOf": [{"type": "number"}, {"type": "string"}]}, []),
    ({"oneOf": [{"type": "string"}]}, {"oneOf": [{"type": "number"}, {"type": "string"}]}, []),
    ({"oneOf": [{"type": "string"}, {"type": "null"}]}, {"anyOf": [{"type": "null"}, {"type": "string"}]}, []),
    ({"oneOf": [{"type": "string"}, {"type": "null"}]}, {"type": ["null", "string"]}, []),
    ({"type": ["null", "string"]}, {"anyOf": [{"type": "string"}, {"type": "null"}]}, []),
    ({"anyOf": [{"type": "string"}, {"type": "null"}]}, {"anyOf": [{"type": "null"}]}, ["SUM_TYPE_NARROWED #/"]),
    ({"oneOf": [{"type": "string"}]}, {"oneOf": [{"type": "number"}]}, ["COMBINED_TYPE_SUBSCHEMAS_CHANGED #/"]),
    (
        {"anyOf": [{"type": "string"}, {"type": "null"}]},
        {"oneOf": [{"type": "string"}, {"type": "null"}]},
        ["COMBINED_TYPE_CHANGED #/"],
    ),
    (
        {"allOf": [{"type": "string"}, {"maxLength": 5}]},
        {"maxLength": 5, "type": "string"},
        ["MAX_LENGTH_ADDED #/maxLength"],
    ),
    ({"allOf": [OBJECT, {"required": ["a"]}]}, {"allOf": [{"required": ["a"]}, OBJECT]}, []),
    ({"allOf": [OBJECT, {"required": ["a"]}]}, OBJECT, []),
    (OBJECT, {"allOf": [OBJECT, {"required": ["a"]}]}, ["REQUIRED_ATTRIBUTE_ADDED #/required/a"]),
    ({"not": {"type": "number"}}, {"not": {"type": "integer"}}, []),
    ({"not": {"type": "integer"}}, {"not": {"type": "number"}}, ["NOT_TYPE_EXTENDED #/not"]),
    ({"if": {"type": "null"}, "then": False}, {"if": {"type": "null"}, "then": False, "title": "a"}, []),
    ({"if": OBJECT, "then": False}, {"if": CLOSED, "then": False}, ["CONDITION_CHANGED #/if"]),
    ({"type": "object"}, {"type": "object", "dependencies": {"a": ["b"]}}, ["DEPENDENCY_ARRAY_CHANGED #/dependencies"]),
    # references within the schema
    ({"$ref": "#/definitions/a", "definitions": {"a": {"type": "string"}}}, {"type": "string"}, []),
    (
        {"items": {"$ref": "#/definitions/a"}, "definitions": {"a": {"type": "string"}}},
        {"items": {"$ref": "#/definitions/a"}, "definitions": {"a": {"type": "number"}}},
        ["TYPE_CHANGED #/items"],
    ),
]


@pytest.mark.parametrize(("writer", "reader", "wrong"), CASES)
def test_what_can_read_what(writer: Any, reader: Any, wrong: list[str]) -> None:
    assert why_not(reader, writer) == wrong


def test_drafts_that_write_the_same_differently() -> None:
    old = {"$schema": DRAFTS["draft4"], "type": "number", "maximum": 5, "exclusiveMaximum": True}
    assert why_not({"type": "number", "exclusiveMaximum": 5}, old) == []
    assert why_not({"type": "number", "exclusiveMaximum": 4}, old) == ["EXCLUSIVE_MAXIMUM_DECREASED #/exclusiveMaximum"]
    old = {"$schema": DRAFTS["draft7"], "items": [{"type": "string"}], "additionalItems": {"type": "null"}}
    new = {"$schema": DRAFTS["2020-12"], "prefixItems": [{"type": "string"}], "items": {"type": "null"}}
    assert why_not(new, old) == why_not(old, new) == []
    closed = {"$schema": DRAFTS["2020-12"], **OBJECT, "unevaluatedProperties": False}
    assert why_not(CLOSED, closed) == why_not(closed, CLOSED) == []


@pytest.mark.parametrize("value", [5, [5], {"type": 5}, False], ids=str)
@pytest.mark.parametrize(
    ("draft", "keyword"),
    [
        *((draft, "unevaluatedProperties") for draft in ("draft4", "draft6", "draft7")),
        ("draft7", "unevaluatedItems"),
        ("draft7", "prefixItems"),
        ("2019-09", "prefixItems"),
    ],
)
def test_keywords_that_a_draft_does_not_know_say_nothing(draft: str, keyword: str, value: Any) -> None:
    old = {"$schema": DRAFTS[draft], "items": {"$ref": "#/definitions/a"}, "definitions": {"a": {keyword: value}}}
    new = {**old, "title": "a", "type": ["array", "object"], keyword: value}
    assert why_not(old, new) == []
    assert why_not({**new, "items": {"type": "string"}}, old) == ["TYPE_NARROWED #/", "TYPE_NARROWED #/items"]


def test_a_recursive_schema_is_compared_once() -> None:
    def tree(value: str) -> Any:
        properties = {"children": {"type": "array", "items": {"$ref": "#"}}, "value": {"type": value}}
        return {"type": "object", "properties": properties, "additionalProperties": False}

    assert why_not(tree("number"), tree("integer")) == []
    assert why_not(tree("integer"), tree("number")) == ["TYPE_NARROWED #/properties/value"]


def test_schemas_that_would_take_too_long_to_compare_are_refused() -> None:
    branches = [{"properties": {"k": {"const": n}}, "required": ["k"]} for n in range(900)]
    begun = time.monotonic()
    with pytest.raises(RegistryError, match="too complex"):
        why_not({"oneOf": branches[::-1]}, {"oneOf": branches})
    assert time.monotonic() - begun < 20
    assert why_not({"oneOf": branches, "title": "a"}, {"oneOf": branches}) == []


VALUES = st.recursive(
    st.sampled_from([None, True, 0, 1, 2.5, -3, "", "a", "abc"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=4,
)
TYPES = st.sampled_from(["null", "boolean", "integer", "number", "string", "array", "object"])
LEAVES = st.one_of(
    st.just({}),
    st.just(False),
    TYPES.map(lambda one: {"type": one}),
    st.lists(TYPES, min_size=1, max_size=3, unique=True).map(lambda names: {"type": names}),
    st.lists(st.sampled_from([None, 1, "a"]), min_size=1, unique=True).map(lambda values: {"enum": values}),
    st.fixed_dictionaries({}, optional={"minimum": st.integers(-2, 2), "maximum": st.integers(0, 3)}),
    st.fixed_dictionaries({}, optional={"minLength": st.integers(0, 2), "maxLength": st.integers(1, 3)}),
)


def _wider(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    many = st.lists(inner, min_size=1, max_size=2)
    objects = {
        "properties": st.dictionaries(st.sampled_from("ab"), inner),
        "patternProperties": st.dictionaries(st.sampled_from(["a", "^b"]), inner, max_size=1),
        "additionalProperties": inner,
        "required": st.lists(st.sampled_from("ab"), unique=True),
        "maxProperties": st.integers(0, 2),
    }
    arrays = {"items": st.one_of(inner, many), "additionalItems": inner, "minItems": st.integers(0, 2)}
    sums = {"anyOf": many, "allOf": many, "not": inner, "type": TYPES, "properties": objects["properties"]}
    return st.one_of(*(st.fixed_dictionaries({}, optional=one) for one in (objects, arrays, sums)))


SCHEMAS = st.recursive(LEAVES, _wider, max_leaves=5)


@given(SCHEMAS, SCHEMAS, st.lists(VALUES, min_size=1, max_size=8))
def test_what_is_called_readable_is_valid_for_the_reader(reader: Any, writer: Any, values: list[Any]) -> None:
    if why_not(reader, writer):
        return
    written, read = jsonschema.Draft7Validator(writer), jsonschema.Draft7Validator(reader)
    assert all(read.is_valid(one) for one in values if written.is_valid(one))


@given(SCHEMAS)
def test_each_schema_reads_its_own_data(schema: Any) -> None:
    assert why_not({"title": "a", **schema} if schema is not False else False, schema) == []
