"""What a JSON schema says of the properties of an object, and of the items of an array, seen alike in all drafts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import re2

_COMBINING = ("$ref", "$recursiveRef", "$dynamicRef", "allOf", "anyOf", "oneOf", "if", "dependentSchemas", "contains")

_PATTERN_BYTES_MAX = 1 << 18


def is_simple(schema: Mapping[str, Any]) -> bool:
    """Whether it is not combined with others."""
    return not any(one in schema for one in _COMBINING)


def _closing(schema: Mapping[str, Any], keyword: str, unevaluated: str) -> Any:
    """What is said of the rest. The second keyword says the same where nothing else evaluates."""
    if keyword in schema:
        return schema[keyword]
    return schema.get(unevaluated, True) if is_simple(schema) else True


@dataclass(frozen=True, slots=True)
class Properties:
    """The properties of a schema by name, those by pattern, and what holds for the rest."""

    named: Mapping[str, Any]
    by_pattern: Mapping[str, Any]
    rest: Any
    compiled: Mapping[str, Any]

    @staticmethod
    def of(schema: Mapping[str, Any]) -> Properties:
        """The properties of a schema."""
        rest = _closing(schema, "additionalProperties", "unevaluatedProperties")
        by_pattern = schema.get("patternProperties", {})
        compiled = {pattern: compiled_pattern(pattern) for pattern in by_pattern}
        return Properties(schema.get("properties", {}), by_pattern, rest, compiled)

    def _matched(self, name: str) -> list[tuple[bool | None, Any]]:
        """For each pattern whether it is found in a name, or None if that is not known, with its schema."""
        return [
            (None if self.compiled[pattern] is None else self.compiled[pattern].search(name) is not None, one)
            for pattern, one in self.by_pattern.items()
        ]

    def of_writer(self, name: str) -> list[Any]:
        """Schemas that hold for a property for certain; none if it may be anything."""
        matches = self._matched(name)
        sure = [one for is_match, one in matches if is_match]
        if name in self.named:
            return [self.named[name], *sure]
        if sure:
            return sure
        return [] if any(is_match is None for is_match, _ in matches) else [self.rest]

    def of_reader(self, name: str) -> list[Any]:
        """All schemas that may hold for a property."""
        matches = self._matched(name)
        found = [one for is_match, one in matches if is_match is not False]
        if name in self.named:
            return [self.named[name], *found]
        return found if any(is_match for is_match, _ in matches) else [*found, self.rest]


def compiled_pattern(pattern: str) -> Any:
    """A pattern for RE2, which never takes long; None for one that it does not know, or that needs much memory."""
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _PATTERN_BYTES_MAX
    try:
        return re2.compile(pattern, options)
    except re2.error:
        return None


@dataclass(frozen=True, slots=True)
class Items:
    """The first items of an array, each with its schema, and what holds for the rest."""

    first: list[Any]
    rest: Any

    @staticmethod
    def of(schema: Mapping[str, Any]) -> Items:
        """The items, of `prefixItems` and `items` since 2020-12, of `items` and `additionalItems` before."""
        items = schema.get("items")
        if isinstance(items, list):
            return Items(items, _closing(schema, "additionalItems", "unevaluatedItems"))
        return Items(schema.get("prefixItems", []), _closing(schema, "items", "unevaluatedItems"))

    def at(self, number: int) -> Any:
        """The schema of an item."""
        return self.first[number] if number < len(self.first) else self.rest
