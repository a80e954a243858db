"""Whether a value is one that a JSON schema describes, judged by `jsonschema` within limits.

Schemas and values may be hostile, so what can take long is done otherwise here. Patterns are matched by RE2. Of several
alternatives each is left at its first mistake. Items are compared by their text. And the work for a value is counted:
beyond `_WORK_MAX` it is refused.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any

from ..errors import RegistryError, invalid_schema
from .objects import compiled_pattern
from .schema import JsonSchema

_WORK_MAX = 300_000
_WORK_OF_REFERENCE = 10
_REFERRING = ("$ref", "$recursiveRef", "$dynamicRef")
_PATTERNS_KEPT = 1_000
_PROBLEM_MAX = 300
_left: ContextVar[list[int]] = ContextVar("work left")
_Keyword = Callable[[Any, Any, Any, Any], Iterable[Any] | None]


class TooMuchWorkError(Exception):
    """The value takes too long to be judged by the schema."""


class Validation:
    """Judges values by a schema. Raises `RegistryError` 42201 for a schema by which none can be judged in limits."""

    def __init__(self, schema: JsonSchema) -> None:
        from attrs import evolve
        from jsonschema import validators

        self._schema = schema
        self._patterns: dict[str, Any] = {}
        self._check_patterns(schema.root)
        for one in schema.documents.values():
            self._check_patterns(one)
        own: dict[str, _Keyword] = {
            "pattern": self._pattern,
            "patternProperties": self._pattern_properties,
            "additionalProperties": self._additional_properties,
            "uniqueItems": _unique_items,
            "anyOf": _any_of,
            "oneOf": _one_of,
        }
        keywords: Mapping[str, _Keyword] = schema.validator.VALIDATORS
        counted = {name: _counted(name, own.get(name, keyword)) for name, keyword in keywords.items()}
        judge: Any = validators.extend(schema.validator, counted)  # type: ignore[no-untyped-call]
        judge.evolve = evolve  # that of jsonschema would take the stock class, without limits, below a `$schema`
        self._validator = judge(schema.root, registry=schema.known)

    def problem(self, value: Any) -> str | None:
        """What the schema does not allow in a value, in one sentence; None for a value that it describes."""
        token = _left.set([_WORK_MAX])
        try:
            error = next(self._validator.iter_errors(value), None)
        except TooMuchWorkError:
            return "it is too large to be judged by its schema"
        except Exception as failed:  # of numbers beyond a float and references without an end, of no common type
            return f"it cannot be judged by its schema: {type(failed).__name__}"
        finally:
            _left.reset(token)
        if error is None:
            return None
        place = "/".join(str(part) for part in error.absolute_path)
        return f"{error.message[:_PROBLEM_MAX]} (at #/{place[:_PROBLEM_MAX]})"

    def _check_patterns(self, root: Any) -> None:
        """See that RE2 knows all patterns. `unevaluatedProperties` would have them matched by `re`."""
        left, has_unevaluated, has_patterns = [root], False, False
        while left:
            one = left.pop()
            if isinstance(one, dict):
                has_unevaluated |= "unevaluatedProperties" in one
                patterns = one.get("patternProperties")
                has_patterns |= isinstance(patterns, dict)
                for pattern in patterns if isinstance(patterns, dict) else ():
                    self._compiled(pattern)
                if isinstance(one.get("pattern"), str):
                    self._compiled(one["pattern"])
                left += one.values()
            elif isinstance(one, list):
                left += one
        if has_unevaluated and has_patterns:
            raise invalid_schema("values are not judged by unevaluatedProperties together with patternProperties")

    def _compiled(self, pattern: str) -> Any:
        if pattern not in self._patterns:
            if len(self._patterns) >= _PATTERNS_KEPT:
                raise invalid_schema(f"values are not judged by more than {_PATTERNS_KEPT} patterns")
            found = compiled_pattern(pattern)
            if found is None:
                raise _unknown_pattern(pattern)
            self._patterns[pattern] = found
        return self._patterns[pattern]

    # -- keywords with patterns

    def _pattern(self, validator: Any, pattern: str, instance: Any, _: Any) -> Iterator[Any]:
        if isinstance(instance, str) and self._compiled(pattern).search(instance) is None:
            yield _problem(f"a text does not match {pattern!r}")

    def _pattern_properties(self, validator: Any, patterns: Any, instance: Any, _: Any) -> Iterator[Any]:
        if not isinstance(instance, dict):
            return
        for pattern, schema in patterns.items():
            _spend(len(instance))
            compiled = self._compiled(pattern)
            for name, value in instance.items():
                if compiled.search(name) is not None:
                    yield from validator.descend(value, schema, path=name, schema_path=pattern)

    def _additional_properties(self, validator: Any, rest: Any, instance: Any, schema: Any) -> Iterator[Any]:
        if not isinstance(instance, dict):
            return
        named, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
        _spend(len(instance) * len(patterns))
        compiled = [self._compiled(pattern) for pattern in patterns]
        for name, value in instance.items():
            if name in named or any(one.search(name) is not None for one in compiled):
                continue
            if rest is False:
                yield _problem(f"there is no property {name[:80]!r}")
            else:
                yield from validator.descend(value, rest, path=name)


def _counted(name: str, keyword: _Keyword) -> _Keyword:
    """The keyword, with its work counted."""
    least = _WORK_OF_REFERENCE if name in _REFERRING else 1

    def check(validator: Any, value: Any, instance: Any, schema: Any) -> Iterable[Any] | None:
        sizes = [len(one) for one in (value, instance) if isinstance(one, dict | list)]
        _spend(least + sum(sizes))
        return keyword(validator, value, instance, schema)

    return check


def _spend(work: int) -> None:
    left = _left.get()
    left[0] -= work
    if left[0] < 0:
        raise TooMuchWorkError


def _problem(message: str) -> Any:
    from jsonschema import ValidationError

    return ValidationError(message)


def _unknown_pattern(pattern: str) -> RegistryError:
    return invalid_schema(f"values are not judged by the pattern {pattern[:80]!r}, which RE2 does not know")


# -- other keywords


def _fits(validator: Any, schema: Any, instance: Any) -> bool:
    return next(validator.descend(instance, schema), None) is None


def _any_of(validator: Any, schemas: Any, instance: Any, _: Any) -> Iterator[Any]:
    if not any(_fits(validator, one, instance) for one in schemas):
        yield _problem("it fits to none of the schemas of anyOf")


def _one_of(validator: Any, schemas: Any, instance: Any, _: Any) -> Iterator[Any]:
    count = sum(_fits(validator, one, instance) for one in schemas)
    if count != 1:
        yield _problem(f"it fits to {count} of the schemas of oneOf, not to one")


def _unique_items(validator: Any, is_wanted: Any, instance: Any, _: Any) -> Iterator[Any]:
    if is_wanted and isinstance(instance, list):
        texts = {json.dumps(_comparable(one), sort_keys=True) for one in instance}
        if len(texts) < len(instance):
            yield _problem("items of an array are the same")


def _comparable(value: Any) -> Any:
    """A value that has the same text as all that are equal to it in JSON, in which 1 and 1.0 are."""
    _spend(1)
    if isinstance(value, dict):
        return {name: _comparable(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_comparable(one) for one in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
