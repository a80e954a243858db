"""JSON schemas of the drafts 4, 6, 7, 2019-09 and 2020-12: checked, and with what each `$ref` in them leads to.

`jsonschema` judges whether a text is a schema, `referencing` finds what a `$ref` names. Nothing is fetched: what is in
neither the schema nor its references is not there. No pattern is ever matched by a machine that could take long.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin

from ..errors import RegistryError, invalid_schema
from ..references import Referenced, by_name

if TYPE_CHECKING:
    from referencing import Registry, Resource, Specification
    from referencing._core import Resolver

_SCHEMAS_MAX = 5_000
"""How many objects, and `true` or `false`, a schema has at most, each of which may be a schema."""
_VALUES_MAX = 30_000
_CHECKED_MAX = 2 * _VALUES_MAX
_ENUM_MAX = 200
"""How many values of an enum may be something else than all texts or all numbers."""
_REFERRING = ("$ref", "$recursiveRef", "$dynamicRef")
_IGNORING_SIBLINGS = ("draft4", "draft6", "draft7")


@dataclass(frozen=True, eq=False, slots=True)
class JsonSchema:
    """A schema that is valid, and its text."""

    root: Any
    text: str
    targets: Mapping[int, list[Any]] = field(default_factory=dict)
    """What the references in an object lead to, by its `id`."""
    ignores_siblings: bool = True
    """Whether what stands beside a `$ref` says nothing, as up to draft 7."""
    documents: Mapping[str, Any] = field(default_factory=dict)
    """Its references by their names."""
    validator: Any = None
    """The class of `jsonschema` for the schema's draft."""
    known: Any = None
    """The `referencing.Registry` in which its references are found."""

    def normalized(self) -> str:
        """The text with the members of objects in the order of their names."""
        return _dumped(self.root, sort_keys=True)

    def serialized(self) -> str:
        """The text, which is how clients of JSON Schema want it."""
        return self.text


def parse_json_schema(text: str, references: Iterable[Referenced] = ()) -> JsonSchema:
    """The schema of a text. Its references are found by their names. Raises `RegistryError` 42201."""
    try:
        root = _load(text)
        if not isinstance(root, dict | bool):
            raise invalid_schema("a JSON schema is an object, or true or false")
        return _Reader(root, {name: _load(one) for name, one in by_name(references).items()}).schema()
    except RecursionError:
        raise invalid_schema("it is nested too deeply") from None


def _dumped(found: Any, *, sort_keys: bool = False) -> str:
    return json.dumps(found, separators=(",", ":"), ensure_ascii=False, sort_keys=sort_keys)


def _load(text: str) -> Any:
    try:
        found = json.loads(text, parse_constant=_no_number, parse_float=_float)
    except ValueError as error:
        raise invalid_schema(f"it is no JSON: {error}"[:300]) from None
    _check_size(found)
    return found


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is no number")


def _float(text: str) -> float:
    return found if math.isfinite(found := float(text)) else _no_number(text[:40])


def _check_size(found: Any) -> None:
    schemas = values = 0
    left = [found]
    while left:
        one = left.pop()
        values += 1
        if isinstance(one, dict):
            schemas += 1
            _check_enum(one.get("enum"))
            left += one.values()
        elif isinstance(one, list):
            left += one
        elif isinstance(one, bool):
            schemas += 1
        if schemas > _SCHEMAS_MAX or values > _VALUES_MAX:
            raise invalid_schema(f"it has more than {_SCHEMAS_MAX:,} schemas or {_VALUES_MAX:,} values")


def _check_enum(values: Any) -> None:
    if isinstance(values, list) and len(values) > _ENUM_MAX:
        kinds = {"number" if isinstance(one, int | float) else type(one).__name__ for one in values}
        if kinds not in ({"number"}, {"str"}):
            raise invalid_schema(f"an enum of more than {_ENUM_MAX} values has only texts or only numbers")


class _Reader:
    """Checks a schema, and follows its references."""

    def __init__(self, root: Any, documents: Mapping[str, Any]) -> None:
        self._root = root
        self._documents = documents
        self._draft, self._validator, self._specification = _draft_of(root)
        self._targets: dict[int, list[Any]] = {}
        self._seen: set[int] = set()
        self._left = _CHECKED_MAX

    def schema(self) -> JsonSchema:
        """The schema. Raises `RegistryError` 42201, and `RecursionError`."""
        from jsonschema_specifications import REGISTRY

        uri = self._uri()
        self._check(self._root)
        resources = {urljoin(uri, name): one for name, one in self._documents.items()}
        registry: Registry[Any] = REGISTRY.with_resources(
            (name, self._specification.create_resource(one))
            for name, one in {**resources, **self._documents, uri: self._root}.items()
        ).crawl()
        left = [(self._specification.create_resource(self._root), registry.resolver(uri))]
        while left:
            found = self._walk(*left.pop())
            left += [(self._specification.create_resource(one), resolver) for one, resolver in found]
        ignores = self._draft in _IGNORING_SIBLINGS
        text = _dumped(self._root)
        return JsonSchema(self._root, text, self._targets, ignores, self._documents, self._validator, registry)

    def _uri(self) -> str:
        name = "id" if self._draft == "draft4" else "$id"
        found = self._root.get(name) if isinstance(self._root, dict) else None
        return found.partition("#")[0] if isinstance(found, str) else ""

    def _check(self, one: Any) -> None:
        """Check that it is a schema, which costs time for each of its values."""
        from jsonschema import FormatChecker, SchemaError

        left = [one]
        while left:
            inner = left.pop()
            self._left -= 1
            left += inner.values() if isinstance(inner, dict) else inner if isinstance(inner, list) else ()
            if self._left < 0:
                raise invalid_schema("it is too large with its references")
        try:
            self._validator.check_schema(one, format_checker=FormatChecker(formats=()))
        except SchemaError as error:
            place = "/".join(str(part) for part in error.absolute_path)
            raise invalid_schema(f"{error.message[:300]} (at #/{place[:200]})") from None

    def _walk(self, resource: Resource[Any], resolver: Resolver[Any]) -> list[tuple[Any, Resolver[Any]]]:
        """See a schema with all that are in it. The answer is what they refer to and was not seen yet."""
        inside: list[tuple[Any, Resolver[Any]]] = []
        left = [(resource, resolver)]
        while left:
            one, around = left.pop()
            if id(one.contents) in self._seen:
                continue
            self._seen.add(id(one.contents))
            here = around.in_subresource(one)
            inside.append((one.contents, here))
            left += [(inner, here) for inner in one.subresources()] if isinstance(one.contents, dict) else []
        found = []
        for contents, here in inside:
            for target, at in self._referred(contents, here):
                self._targets.setdefault(id(contents), []).append(target)
                if id(target) not in self._seen:
                    self._check(target)
                    found.append((target, at))
        return found

    def _referred(self, contents: Any, resolver: Resolver[Any]) -> Iterable[tuple[Any, Resolver[Any]]]:
        from referencing.exceptions import Unresolvable

        for keyword in _REFERRING if isinstance(contents, dict) else ():
            name = contents.get(keyword)
            if not isinstance(name, str):
                continue
            try:
                found = resolver.lookup(name)
            except Unresolvable:
                raise _nowhere(name) from None
            except (ValueError, TypeError, LookupError):  # for addresses that are none
                raise _nowhere(name) from None
            if not isinstance(found.contents, dict | bool):
                raise _nowhere(name)
            yield found.contents, found.resolver


def _nowhere(name: str) -> RegistryError:
    return invalid_schema(
        f"its $ref {name[:200]} leads to no schema: nothing is fetched, so it has to be in the schema, or have the "
        "name of a reference"
    )


def _draft_of(root: Any) -> tuple[str, Any, Specification[Any]]:
    """The draft that a schema names; 7 if it names none that is known."""
    import jsonschema
    from referencing import jsonschema as specifications

    drafts: dict[str, tuple[str, Any, Any]] = {
        "json-schema.org/draft-04/schema": ("draft4", jsonschema.Draft4Validator, specifications.DRAFT4),
        "json-schema.org/draft-06/schema": ("draft6", jsonschema.Draft6Validator, specifications.DRAFT6),
        "json-schema.org/draft-07/schema": ("draft7", jsonschema.Draft7Validator, specifications.DRAFT7),
        "json-schema.org/draft/2019-09/schema": (
            "2019-09",
            jsonschema.Draft201909Validator,
            specifications.DRAFT201909,
        ),
        "json-schema.org/draft/2020-12/schema": (
            "2020-12",
            jsonschema.Draft202012Validator,
            specifications.DRAFT202012,
        ),
    }
    named = root.get("$schema") if isinstance(root, dict) else None
    name = str(named).partition("#")[0].partition("://")[2]
    return drafts.get(name, drafts["json-schema.org/draft-07/schema"])
