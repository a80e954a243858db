"""Avro schemas (Avro 1.12): a tree with resolved names, and one way of writing them, that of Avro's Java library.

`fastavro` judges whether a text is a schema. The tree is what compatibility is decided on. One text for schemas that
say the same is what makes them one schema with one id.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..errors import invalid_schema
from ..references import Referenced

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
_NAMED = ("record", "error", "enum", "fixed")
_KINDS = (*PRIMITIVES, *_NAMED, "array", "map")
_MAX_DEPTH = 200


@dataclass(eq=False, slots=True)
class AvroType:
    """A node of the tree. `kind` is a primitive type, or record, enum, fixed, array, map or union.

    Which of the other fields it has follows from its kind. Names are full names.
    """

    kind: str
    name: str = ""
    aliases: tuple[str, ...] = ()
    fields: list[AvroField] = field(default_factory=list)
    symbols: tuple[str, ...] = ()
    has_default: bool = False
    """Of an enum: whether it has a symbol for those that it does not know."""
    size: int = 0
    items: list[AvroType] = field(default_factory=list)
    """The branches of a union; the type of an array's items or of a map's values."""


@dataclass(eq=False, slots=True)
class AvroField:
    """A field of a record."""

    name: str
    type: AvroType
    has_default: bool
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AvroSchema:
    """A schema that is valid: its tree, and its text as Avro's Java library writes it."""

    root: AvroType
    text: str

    def normalized(self) -> str:
        """The text: there is one for all schemas that say the same."""
        return self.text

    def serialized(self) -> str:
        """The text, which is how clients of Avro want it."""
        return self.text


def parse_avro(text: str, references: Iterable[Referenced] = ()) -> AvroSchema:
    """The schema of a text, which may use named types of the `references`. Raises `RegistryError` 42201."""
    try:
        return _parse(text, dict.fromkeys(one.text for one in references))
    except RecursionError:
        raise invalid_schema("its types are nested too deeply") from None


def _parse(text: str, references: Iterable[str]) -> AvroSchema:
    from fastavro.schema import SchemaParseException, UnknownType

    names: dict[str, AvroType] = {}
    known: dict[str, Any] = {}
    root, found = AvroType("null"), None
    for one in (*references, text):
        found = _json_of(one)
        _check_depth(found)
        try:
            fastavro_schema(found, known)
            root = _Builder(names).build(found, "")
        except UnknownType as error:
            unknown = error.name.get("type") if isinstance(error.name, dict) else error.name
            raise invalid_schema(f"there is no type {unknown}") from None
        except (SchemaParseException, _Wrong) as error:
            raise invalid_schema(str(error)) from None
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise invalid_schema(f"{type(error).__name__}: {error}") from None
    return AvroSchema(root, json.dumps(_written(found, ""), separators=(",", ":"), ensure_ascii=False))


def fastavro_schema(found: Any, known: dict[str, Any], *, expand: bool = False) -> Any:
    """The schema of some JSON as `fastavro` reads data by it. It may use the types that are `known`, and adds its own.

    As in Avro's Java library, a name without a dot that is not defined in the namespace around it is looked for without
    a namespace, which `fastavro` does not do. With `expand` types stand in the places of their names. Raises what
    `fastavro` raises.
    """
    from fastavro.schema import UnknownType, parse_schema

    missing: dict[str, Any] = {}
    names = {full: name for full, name in _names_in_namespaces(found) if full not in known}
    known |= {full: known.get(name, missing) for full, name in names.items()}
    parsed = parse_schema(found, named_schemas=known, expand=expand)
    for full, name in names.items():
        if known[full] is missing:
            if name not in known:
                raise UnknownType(full)  # type: ignore[no-untyped-call]
            known[full] = known[name]
    return parsed


def _names_in_namespaces(found: Any) -> Iterator[tuple[str, str]]:
    """The names without a dot by which types of a namespace are used: the full name of each, and itself."""
    left = [(found, "")]
    while left:
        one, namespace = left.pop()
        if isinstance(one, str) and namespace and "." not in one and one not in _KINDS:
            yield _full_name(one, namespace), one
        elif isinstance(one, list):
            left += [(inner, namespace) for inner in one]
        elif isinstance(one, dict):
            name, space = one.get("name"), one.get("namespace", namespace)
            if one.get("type") in _NAMED and isinstance(name, str) and isinstance(space, str | None):
                namespace = _full_name(name, space).rpartition(".")[0]
            left += [(one.get(part), namespace) for part in ("type", "items", "values", "fields")]


def _json_of(text: str) -> Any:
    try:
        found = json.loads(text)
        while isinstance(found, dict) and found.keys() == {"type"} and isinstance(found["type"], dict | list):
            found = found["type"]  # which fastavro takes within a schema only
        return found
    except ValueError as error:
        if text.strip() in PRIMITIVES:
            return text.strip()
        raise invalid_schema(f"it is no JSON: {error}") from None


def _check_depth(found: Any) -> None:
    layer, depth = [found], 0
    while layer:
        depth += 1
        if depth > _MAX_DEPTH:
            raise invalid_schema(f"its types are nested more than {_MAX_DEPTH} deep")
        layer = [
            inner
            for one in layer
            if isinstance(one, dict | list)
            for inner in (one.values() if isinstance(one, dict) else one)
        ]


class _Wrong(ValueError):
    """What `fastavro` lets pass and the specification does not."""


class _Builder:
    """Builds the tree of JSON that `fastavro` has taken."""

    def __init__(self, names: dict[str, AvroType]) -> None:
        self._names = names

    def build(self, found: Any, namespace: str) -> AvroType:
        if isinstance(found, list):
            return self._union(found, namespace)
        if isinstance(found, str):
            return self._named(found, namespace)
        kind = found["type"]
        if isinstance(kind, dict | list):
            return self.build(kind, namespace)
        if kind in ("array", "map"):
            return AvroType(kind, items=[self.build(found["items" if kind == "array" else "values"], namespace)])
        return self._define(found, kind, namespace) if kind in _NAMED else self._named(kind, namespace)

    def _named(self, name: str, namespace: str) -> AvroType:
        if name in PRIMITIVES:
            return AvroType(name)
        full = _full_name(name, namespace)
        known = self._names.get(full) or self._names.get(name)
        if known is None:
            raise _Wrong(f"there is no type {full}")
        return known

    def _union(self, found: list[Any], namespace: str) -> AvroType:
        branches = [self.build(one, namespace) for one in found]
        seen: set[str] = set()
        for one in branches:
            if one.kind == "union":
                raise _Wrong("a union must not hold a union")
            label = one.name or one.kind
            if label in seen:
                raise _Wrong(f"a union holds {label} twice")
            seen.add(label)
        return AvroType("union", items=branches)

    def _define(self, found: Mapping[str, Any], kind: str, namespace: str) -> AvroType:
        full = _full_name(found["name"], found.get("namespace", namespace))
        inner = full.rpartition(".")[0]
        aliases = tuple(_full_name(one, inner) for one in found.get("aliases", ()))
        made = AvroType("record" if kind == "error" else kind, full, aliases)
        if full in self._names:
            raise _Wrong(f"{full} is defined twice")
        self._names[full] = made
        if kind == "fixed":
            made.size = int(found["size"])
        elif kind == "enum":
            made.symbols, made.has_default = tuple(found["symbols"]), "default" in found
        else:
            made.fields = [
                AvroField(one["name"], self.build(one["type"], inner), "default" in one, tuple(one.get("aliases", ())))
                for one in found["fields"]
            ]
            if len({one.name for one in made.fields}) < len(made.fields):
                raise _Wrong(f"{full} has two fields of one name")
        return made


def _full_name(name: str, namespace: str | None) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


# -- one text for one meaning


def _written(found: Any, namespace: str) -> Any:
    """The JSON in the order in which Avro's Java library writes it, without what says nothing."""
    if isinstance(found, list):
        return [_written(one, namespace) for one in found]
    if isinstance(found, str):
        return found if found in PRIMITIVES else _short_name(_full_name(found, namespace), namespace)
    kind = found["type"]
    if kind in ("array", "map"):
        inner = "items" if kind == "array" else "values"
        return {"type": kind, inner: _written(found[inner], namespace), **_rest(found, ("type", inner))}
    if kind in _NAMED:
        return _written_definition(found, kind, namespace)
    rest = _rest(found, ("type",))
    written = _written(kind, namespace)
    if not rest:
        return written
    return {**written, **rest} if isinstance(written, dict) else {"type": written, **rest}


def _written_definition(found: Mapping[str, Any], kind: str, namespace: str) -> dict[str, Any]:
    full = _full_name(found["name"], found.get("namespace", namespace))
    space, _, short = full.rpartition(".")
    written: dict[str, Any] = {"type": kind, "name": short}
    if space != namespace:
        written["namespace"] = space
    _copy(found, written, "doc")
    if kind == "fixed":
        _copy(found, written, "size")
    elif kind == "enum":
        written["symbols"] = found["symbols"]
        _copy(found, written, "default")
    else:
        written["fields"] = [_written_field(one, space) for one in found["fields"]]
    known = ("type", "name", "namespace", "doc", "size", "symbols", "default", "fields", "aliases")
    written |= _rest(found, known)
    if found.get("aliases"):
        written["aliases"] = [_short_name(_full_name(one, space), space) for one in found["aliases"]]
    return written


def _written_field(found: Mapping[str, Any], namespace: str) -> dict[str, Any]:
    written = {"name": found["name"], "type": _written(found["type"], namespace)}
    _copy(found, written, "doc")
    if "default" in found:
        written["default"] = found["default"]
    if found.get("order", "ascending") != "ascending":
        written["order"] = found["order"]
    if found.get("aliases"):
        written["aliases"] = found["aliases"]
    return written | _rest(found, ("name", "type", "doc", "default", "order", "aliases"))


def _copy(found: Mapping[str, Any], written: dict[str, Any], name: str) -> None:
    if found.get(name) is not None:
        written[name] = found[name]


def _rest(found: Mapping[str, Any], known: Iterable[str]) -> dict[str, Any]:
    """The properties that the specification does not know, and logical types."""
    return {name: value for name, value in found.items() if name not in known and not name.startswith("__")}


def _short_name(full: str, namespace: str) -> str:
    space, _, short = full.rpartition(".")
    return short if space == namespace else full
