"""What single keywords of a JSON schema allow: types, values, bounds."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

Schema = Mapping[str, Any]
OF_NUMBERS = frozenset({"integer", "number"})
ALL_TYPES = frozenset({"null", "boolean", "string", "object", "array"}) | OF_NUMBERS
"""The types; `number` stands for the numbers that are no integers."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A rule that is broken, by its name in Confluent's registry, the keyword, and why."""

    rule: str
    keyword: str
    sentence: str


@dataclass(frozen=True, slots=True)
class _Bound:
    keyword: str
    rule: str
    types: frozenset[str]
    is_upper: bool
    least: int | None = None
    """The bound that says nothing."""


_BOUNDS = (
    _Bound("maxLength", "MAX_LENGTH", frozenset({"string"}), True),
    _Bound("minLength", "MIN_LENGTH", frozenset({"string"}), False, 0),
    _Bound("maximum", "MAXIMUM", OF_NUMBERS, True),
    _Bound("minimum", "MINIMUM", OF_NUMBERS, False),
    _Bound("exclusiveMaximum", "EXCLUSIVE_MAXIMUM", OF_NUMBERS, True),
    _Bound("exclusiveMinimum", "EXCLUSIVE_MINIMUM", OF_NUMBERS, False),
    _Bound("maxItems", "MAX_ITEMS", frozenset({"array"}), True),
    _Bound("minItems", "MIN_ITEMS", frozenset({"array"}), False, 0),
    _Bound("maxProperties", "MAX_PROPERTIES", frozenset({"object"}), True),
    _Bound("minProperties", "MIN_PROPERTIES", frozenset({"object"}), False, 0),
)


def types_of(schema: Schema) -> frozenset[str]:
    """The types that the schema allows, by its `type` and by the values of its enum."""
    types, values = named_types(schema), values_of(schema)
    return types if values is None else types & frozenset(type_of(one) for one in values)


def named_types(schema: Schema) -> frozenset[str]:
    """The types that the `type` of a schema allows."""
    named = schema.get("type")
    listed = [named] if isinstance(named, str) else named
    return ALL_TYPES if listed is None else frozenset(one for name in listed for one in _with_integers(name))


def _with_integers(name: str) -> Collection[str]:
    return OF_NUMBERS if name == "number" else (name,)


def type_of(value: Any) -> str:
    """The type of a value."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "integer" if value == int(value) else "number"
    return "string" if isinstance(value, str) else "array" if isinstance(value, list) else "object"


def values_of(schema: Schema) -> list[Any] | None:
    """The only values that the schema allows; None if it has no `enum` and no `const`."""
    if "const" in schema:
        return [schema["const"]]
    found = schema.get("enum")
    return found if isinstance(found, list) else None


def key_of(value: Any) -> str:
    """One text for equal values: 1 and 1.0 are equal."""
    return json.dumps(_whole(value), sort_keys=True)


def _whole(value: Any) -> Any:
    if isinstance(value, float) and value == int(value):
        return int(value)
    if isinstance(value, list):
        return [_whole(one) for one in value]
    return {name: _whole(one) for name, one in value.items()} if isinstance(value, dict) else value


def type_problems(before: Schema, now: Schema) -> Iterator[Problem]:
    """Types that are not allowed any more."""
    old, new = types_of(before), named_types(now)
    if not old <= new:
        rule = "TYPE_NARROWED" if new <= old else "TYPE_CHANGED"
        yield Problem(rule, "", f"the reader takes {_shown(new)}, the writer has {_shown(old)}")


def _shown(types: frozenset[str]) -> str:
    if types == ALL_TYPES:
        return "any type"
    names = types - {"integer"} if types >= OF_NUMBERS else types
    return " or ".join(sorted(names)) or "nothing"


def value_problems(before: Schema, now: Schema) -> Iterator[Problem]:
    """Values of an enum, or of any type, that are not allowed any more."""
    new, old = values_of(now), values_of(before)
    if new is None:
        return
    keyword = "const" if "const" in now else "enum"
    known = {key_of(one) for one in new}
    if old is None:
        yield Problem("ENUM_ARRAY_NARROWED", keyword, "the reader takes some values only")
        return
    had = {key_of(one) for one in old}
    if not had <= known:
        rule = "ENUM_ARRAY_NARROWED" if known <= had else "ENUM_ARRAY_CHANGED"
        yield Problem(rule, keyword, f"the reader does not take {', '.join(sorted(had - known))[:200]}")


def bound_problems(before: Schema, now: Schema, types: frozenset[str]) -> Iterator[Problem]:
    """Bounds of these types that are closer."""
    old_limits, new_limits = _limits(before), _limits(now)
    for one in _BOUNDS:
        new, old = new_limits.get(one.keyword), old_limits.get(one.keyword, one.least)
        if new is None or not types & one.types:
            continue
        if old is None:
            yield Problem(f"{one.rule}_ADDED", one.keyword, f"the reader has {one.keyword} {new}, the writer none")
        elif one.is_upper and new < old:
            yield Problem(f"{one.rule}_DECREASED", one.keyword, f"{one.keyword} is {new} for the reader, was {old}")
        elif not one.is_upper and new > old:
            yield Problem(f"{one.rule}_INCREASED", one.keyword, f"{one.keyword} is {new} for the reader, was {old}")


def _limits(schema: Schema) -> dict[str, Any]:
    """The bounds; draft 4 has `true` for a bound that is exclusive."""
    found = {one.keyword: schema[one.keyword] for one in _BOUNDS if _is_number(schema.get(one.keyword))}
    for exclusive, inclusive in (("exclusiveMaximum", "maximum"), ("exclusiveMinimum", "minimum")):
        if schema.get(exclusive) is True and inclusive in found:
            found[exclusive] = found.pop(inclusive)
    return found


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def form_problems(before: Schema, now: Schema, types: frozenset[str]) -> Iterator[Problem]:
    """A pattern, a divisor, or that items differ, where the writer had none or another one."""
    if "string" in types and now.get("pattern") not in (None, before.get("pattern")):
        rule = "PATTERN_CHANGED" if "pattern" in before else "PATTERN_ADDED"
        yield Problem(rule, "pattern", "the reader has a pattern that the writer has not")
    if "array" in types and now.get("uniqueItems") is True and before.get("uniqueItems") is not True:
        yield Problem("UNIQUE_ITEMS_ADDED", "uniqueItems", "only the reader wants items that differ")
    new, old = now.get("multipleOf"), before.get("multipleOf")
    if types & OF_NUMBERS and new is not None:
        if old is None:
            yield Problem("MULTIPLE_OF_ADDED", "multipleOf", f"the reader takes multiples of {new} only")
        elif (Fraction(str(old)) / Fraction(str(new))).denominator != 1:
            is_multiple = (Fraction(str(new)) / Fraction(str(old))).denominator == 1
            rule = "MULTIPLE_OF_EXPANDED" if is_multiple else "MULTIPLE_OF_CHANGED"
            yield Problem(rule, "multipleOf", f"the reader takes multiples of {new}, the writer has those of {old}")
