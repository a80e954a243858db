"""Values judged by JSON schemas: as `jsonschema` judges them, within limits."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftwerk.registry.errors import RegistryError
from raftwerk.registry.json_schema.schema import parse_json_schema
from raftwerk.registry.json_schema.validation import Validation

jsonschema = pytest.importorskip("jsonschema", reason="no jsonschema: values are NOT judged")
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([1.0, 1.5]) | st.sampled_from(["", "a", "ab"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abx"), inner, max_size=3),
    max_leaves=6,
)
TYPES = st.sampled_from(["object", "array", "string", "integer", "number", "boolean", "null"])
SCHEMAS = st.recursive(
    st.booleans()
    | TYPES.map(lambda name: {"type": name})
    | st.just({"pattern": "^a"})
    | st.just({"uniqueItems": True})
    | st.just({"required": ["a"]}),
    lambda inner: (
        st.fixed_dictionaries({"anyOf": st.lists(inner, min_size=1, max_size=3)})
        | st.fixed_dictionaries({"oneOf": st.lists(inner, min_size=1, max_size=3)})
        | st.fixed_dictionaries(
            {"properties": st.dictionaries(st.sampled_from("ab"), inner, max_size=2)},
            optional={
                "additionalProperties": inner,
                "patternProperties": st.dictionaries(st.sampled_from(["^a", "b"]), inner, max_size=2),
            },
        )
        | st.fixed_dictionaries({"items": inner})
    ),
    max_leaves=5,
)


def validation(schema: Any) -> Validation:
    return Validation(parse_json_schema(json.dumps(schema)))


@given(SCHEMAS, VALUES)
def test_values_are_judged_as_jsonschema_judges_them(schema: Any, value: Any) -> None:
    assert (validation(schema).problem(value) is None) == jsonschema.Draft7Validator(schema).is_valid(value)


def test_a_problem_names_its_place() -> None:
    found = validation({"properties": {"a": {"items": {"pattern": "^b"}}}}).problem({"a": ["b", "c"]})
    assert found == "a text does not match '^b' (at #/a/1)"


def test_patterns_never_take_long() -> None:
    found = validation({"additionalProperties": False, "patternProperties": {"^(a+)+$": {"pattern": "(x+x+)+y"}}})
    assert found.problem({"a" * 50: "x" * 5000 + "y"}) is None
    assert found.problem({"a" * 50 + "b": 1}) is not None
    assert found.problem({"a": "x" * 5000}) is not None


@pytest.mark.parametrize("pattern", ["(?=a)", "(a)\\1"])
def test_patterns_that_re2_does_not_know_are_refused(pattern: str) -> None:
    for schema in ({"pattern": pattern}, {"patternProperties": {pattern: True}}):
        with pytest.raises(RegistryError, match="which RE2 does not know"):
            validation({"properties": {"a": schema}})


def test_unevaluated_properties_are_not_judged_together_with_patterns() -> None:
    draft = "https://json-schema.org/draft/2020-12/schema"
    found = validation({"$schema": draft, "properties": {"a": True}, "unevaluatedProperties": False})
    assert found.problem({"a": 1}) is None and found.problem({"b": 1}) is not None
    with pytest.raises(RegistryError, match="unevaluatedProperties together with patternProperties"):
        validation({"$schema": draft, "patternProperties": {"a": True}, "unevaluatedProperties": False})


def test_work_is_limited() -> None:
    doubling = {f"a{n}": {"allOf": [{"$ref": f"#/definitions/a{n + 1}"}] * 2} for n in range(40)}
    schema = {"definitions": {**doubling, "a40": {"type": "integer"}}, "allOf": [{"$ref": "#/definitions/a0"}]}
    assert validation(schema).problem(5) == "it is too large to be judged by its schema"
    assert validation({"$ref": "#"}).problem(5) is not None
    begun = time.monotonic()
    unlike = validation({"uniqueItems": True})
    assert unlike.problem([{"n": n} for n in range(50_000)]) is None
    assert unlike.problem([{"n": n} for n in range(300_000)]) == "it is too large to be judged by its schema"
    assert time.monotonic() - begun < 60  # comparing each with each would take hours


DRAFT = "http://json-schema.org/draft-07/schema#"


@pytest.mark.parametrize(
    ("schema", "around"),
    [
        ({"properties": {"in": {"$schema": DRAFT, "pattern": "^(a+)+$", "uniqueItems": True}}}, ["in"]),
        ({"pattern": "^(a+)+$", "uniqueItems": True, "properties": {"in": {"$ref": "#"}}}, ["in", "in"]),
    ],
    ids=["below another one", "by a reference to the root"],
)
def test_limits_hold_below_each_schema_keyword(schema: Any, around: list[str]) -> None:
    """`jsonschema` judges what is below a `$schema` by the class of its draft, which is the stock one."""

    def problem(value: Any) -> str | None:
        for name in around:
            value = {name: value}
        return validation({"$schema": DRAFT, **schema}).problem(value)

    assert problem("a") is None
    assert str(problem("a!")).startswith("a text does not match"), "not by re, for which 40 characters take hours"
    assert str(problem([1, 1])).startswith("items of an array are the same")
    assert problem([{"n": n} for n in range(300_000)]) == "it is too large to be judged by its schema"


def test_numbers_beyond_a_float_are_refused() -> None:
    assert "OverflowError" in str(validation({"multipleOf": 0.5}).problem(10**400))
