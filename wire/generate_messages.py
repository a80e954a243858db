"""Writes `wire/message_schemas` and `wire/message_types` from kio's dataclasses.

Run it as `python -m raftwerk.wire.generate_messages` when kio has news.

kio (a library of development, not of a node) has a class for each message in each version. The versions of a message
are merged into one text here, as Kafka's own definitions have them. `tests/wire` holds the texts against kio's classes,
and says when they are out of date.
"""

from __future__ import annotations

import datetime
import importlib
import subprocess
import sys
import types
import typing
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any, NamedTuple

from .api_keys import ApiKey
from .message_schemas import GROUPS
from .schemas import FieldLine, MessageText, parse_message

FOLDER = Path(__file__).parent
COMMAND = "python -m raftwerk.wire.generate_messages"
KINDS = ("request", "response", "data")

_KAFKA_TYPES = {"error_code": "int16", "timedelta_i32": "int32", "timedelta_i64": "int64", "datetime_i64": "int64"}
_PYTHON_TYPES = {"bool": "bool", "float64": "float", "string": "str", "bytes": "bytes", "records": "memoryview"}
_ZEROES: tuple[Any, ...] = (None, 0, "", b"", ())
_MILLISECOND = datetime.timedelta(milliseconds=1)


class SchemaConflictError(Exception):
    """The versions of a message cannot be merged into one text."""


class KioField(NamedTuple):
    """A field of one of kio's classes; `entity` is the class of a struct, `default` is as a text has it."""

    name: str
    kind: str
    array: bool
    nullable: bool
    tag: int | None
    default: str | None
    entity: Any


class Entry(NamedTuple):
    """A field as it is in the given versions."""

    field: KioField
    versions: list[int]
    nullable: list[int]


class MergedMessage(NamedTuple):
    """A message in all versions; `structs` begins with the message itself."""

    name: str
    versions: list[int]
    flexible: list[int]
    structs: dict[str, list[Entry]]
    present: dict[str, list[int]]


# --- kio's classes ---------------------------------------------------------------------------------------------------


def load_entities(name: str, kind: str) -> dict[int, Any]:
    """kio's classes of a message, by version; empty where it has none of this kind."""
    from kio.schema.index import schema_name_map

    found = {}
    for version, paths in schema_name_map[name].items():
        for entity_type, path in paths.items():
            if entity_type.name == kind:
                module, _, class_name = path.partition(":")
                found[version] = getattr(importlib.import_module(module), class_name)
    return found


def _without_null(annotation: Any) -> tuple[Any, bool]:
    if isinstance(annotation, types.UnionType):
        (bare,) = (argument for argument in typing.get_args(annotation) if argument is not types.NoneType)
        return bare, True
    return annotation, False


def kio_fields(entity: Any) -> Iterator[KioField]:
    """The fields of one of kio's classes."""
    for field in fields(entity):
        annotation, nullable = _without_null(field.type)
        array = typing.get_origin(annotation) is tuple
        if array:
            annotation, _ = _without_null(typing.get_args(annotation)[0])
        is_struct = is_dataclass(annotation)
        kafka_type = field.metadata.get("kafka_type", "")
        zero_is_null = not array and kafka_type in ("uuid", "records")
        yield KioField(
            # kio writes `type_` where Python has a `type` of its own.
            name=field.name.rstrip("_"),
            kind=annotation.__name__ if is_struct else _KAFKA_TYPES.get(kafka_type, kafka_type),
            array=array,
            # kio has None for the zero id, which needs no option here.
            nullable=nullable and (array or kafka_type != "uuid"),
            tag=field.metadata.get("tag"),
            default=_default_text(field.default, kafka_type, zero_is_null),
            entity=annotation if is_struct else None,
        )


def _default_text(default: Any, kafka_type: str, zero_is_null: bool) -> str | None:
    """A default as a text has it; None for zero, and for a struct whose fields all have their default."""
    if default is MISSING or is_dataclass(default):
        return None
    if default is None and kafka_type == "datetime_i64":
        return "-1"
    if default is None:
        return None if zero_is_null else "null"
    if isinstance(default, datetime.timedelta):
        default = round(default / _MILLISECOND)
    if isinstance(default, uuid.UUID) or default in _ZEROES:
        return None
    return str(default).lower() if isinstance(default, bool) else str(int(default))


# --- merging versions ------------------------------------------------------------------------------------------------


def merge(entities: Mapping[int, Any]) -> MergedMessage:
    """One message of all its versions."""
    by_struct: dict[str, dict[int, list[KioField]]] = {}
    for version, entity in entities.items():
        _collect(entity, version, by_struct)
    name = next(iter(entities.values())).__name__
    order = _depth_first(name, by_struct)
    return MergedMessage(
        name=name,
        versions=sorted(entities),
        flexible=sorted(version for version, entity in entities.items() if entity.__flexible__),
        structs={struct: _merge_fields(by_struct[struct]) for struct in order},
        present={struct: sorted(by_struct[struct]) for struct in order},
    )


def _collect(entity: Any, version: int, by_struct: dict[str, dict[int, list[KioField]]]) -> None:
    found = by_struct.setdefault(entity.__name__, {})
    if version in found:
        return
    found[version] = list(kio_fields(entity))
    for field in found[version]:
        if field.entity is not None:
            _collect(field.entity, version, by_struct)


def _depth_first(name: str, by_struct: Mapping[str, Mapping[int, list[KioField]]]) -> list[str]:
    order = {name: None}
    for field in (field for version in by_struct[name].values() for field in version):
        if field.entity is not None:
            order |= dict.fromkeys(_depth_first(field.kind, by_struct))
    return list(order)


def _merge_fields(by_version: Mapping[int, list[KioField]]) -> list[Entry]:
    entries: dict[tuple[Any, ...], Entry] = {}
    orders = []
    for version, version_fields in sorted(by_version.items()):
        keys = [(field.name, field.kind, field.array, field.tag, field.default) for field in version_fields]
        orders.append(keys)
        for key, field in zip(keys, version_fields):
            entry = entries.setdefault(key, Entry(field, [], []))
            entry.versions.append(version)
            if field.nullable:
                entry.nullable.append(version)
    return [entries[key] for key in _common_order(orders)]


def _common_order(orders: list[list[tuple[Any, ...]]]) -> list[tuple[Any, ...]]:
    """All keys in an order that agrees with each of the lists; the first list's keys come as early as they may."""
    waiting = [list(order) for order in orders]
    result: list[tuple[Any, ...]] = []
    while any(waiting):
        candidates = [order[0] for order in waiting if order]
        free = [key for key in candidates if not any(key in order[1:] for order in waiting)]
        if not free:
            raise SchemaConflictError(f"fields change places between versions: {candidates}")
        result.append(free[0])
        waiting = [[key for key in order if key != free[0]] for order in waiting]
    return result


# --- the text --------------------------------------------------------------------------------------------------------


def _versions_text(versions: list[int], last: int) -> str:
    """`versions` as a text has them; open at the end where `last`, the message's last version, is one of them."""
    if not versions:
        return "none"
    if versions != list(range(versions[0], versions[-1] + 1)):
        raise SchemaConflictError(f"versions {versions} are not in a row")
    if versions[-1] == last:
        return f"{versions[0]}+"
    return str(versions[0]) if len(versions) == 1 else f"{versions[0]}-{versions[-1]}"


def message_text(message: MergedMessage) -> str:
    """The text that `schemas.parse_message` reads."""
    first, last = message.versions[0], message.versions[-1]
    known = str(first) if first == last else f"{first}-{last}"
    header = f"{message.name} versions {known} flexible {_versions_text(message.flexible, last)}"
    lines: list[str] = []
    for name, entries in message.structs.items():
        lines.append(name if lines else header)
        lines += [_field_text(entry, message.present[name], last) for entry in entries]
    return "\n".join(lines) + "\n"


def _field_text(entry: Entry, present: list[int], last: int) -> str:
    field = entry.field
    words = [field.name, "[]" * field.array + field.kind]
    if entry.versions != present:
        words += ["versions", _versions_text(entry.versions, last)]
    if entry.nullable:
        words += ["nullable", "0+" if entry.nullable == entry.versions else _versions_text(entry.nullable, last)]
    if field.tag is not None:
        words += ["tag", str(field.tag)]
    if field.default is not None:
        words += ["default", field.default]
    return "    " + " ".join(words)


def group_messages(group: str) -> Iterator[tuple[str, str, str]]:
    """(kio's name, kind, text) of every message of a group."""
    for name in GROUPS[group]:
        for kind in KINDS:
            entities = load_entities(name, kind)
            if entities:
                yield name, kind, message_text(merge(entities))


# --- the modules -----------------------------------------------------------------------------------------------------


def schemas_module(group: str, messages: Iterable[tuple[str, str, str]]) -> str:
    """The source of a module of `message_schemas`."""
    parts = [f'"""Schemas of messages: {group.replace("_", " ")}. Generated by `{COMMAND}`; do not edit."""\n']
    parts += [f'{name.upper()}_{kind.upper()} = """\\\n{text}"""\n' for name, kind, text in messages]
    return "\n".join(parts)


def types_module(group: str, messages: Iterable[tuple[str, str, str]]) -> str:
    """The source of a module of `message_types`."""
    classes = "".join(_message_class(name, kind, parse_message(text)) for name, kind, text in messages)
    names = {name for name in ("Literal", "overload") if name in classes}
    lines = [
        f'"""Types of messages: {group.replace("_", " ")}. Generated by `{COMMAND}`; do not edit."""',
        "",
        "from __future__ import annotations",
        "",
        f"from typing import {', '.join(sorted({'Protocol'} | names, key=lambda name: (name.islower(), name)))}",
        *(["from uuid import UUID"] if "UUID" in classes else []),
        "",
        "from .base import " + ("Default, Message" if "default: Default" in classes else "Message"),
    ]
    return "\n".join(lines) + "\n" + classes


def _message_class(name: str, kind: str, message: MessageText) -> str:
    class_name, *structs = message.structs
    key = f"API key {ApiKey[name.upper()].value}, " if kind != "data" else ""
    versions = _span("version", message.versions)
    flexible = "none is flexible" if not message.flexible else f"flexible from {message.flexible[0]}"
    lines = [f"class {class_name}(Message, Protocol):", f'    """{key}{versions}, {flexible}."""', ""]
    for struct in structs:
        lines += [f"    class {struct}(Message, Protocol):", f'        """A struct of {class_name}."""', ""]
        lines += [f"        {line}".rstrip() for line in _attributes(message, struct)]
        lines.append("")
    lines += [f"    {line}".rstrip() for line in _attributes(message, class_name)]
    return "\n\n" + "\n".join(lines) + "\n"


def _span(noun: str, versions: Sequence[int]) -> str:
    first, last = versions[0], versions[-1]
    return f"{noun} {first}" if first == last else f"{noun}s {first} to {last}"


def _attributes(message: MessageText, struct: str) -> Iterator[str]:
    """The fields of a class, and a `get` for those that some versions lack."""
    by_name: dict[str, list[FieldLine]] = {}
    for line in message.structs[struct]:
        by_name.setdefault(line.name, []).append(line)
    rare: dict[str, list[str]] = {}
    for name, lines in by_name.items():
        present = [version for version in message.versions if any(version in line.versions for line in lines)]
        annotation = _annotation(message, lines)
        if len(present) == len(message.versions):
            yield f"{name}: {annotation}"
        else:
            rare.setdefault(annotation, []).append(name)
            yield f"{name}: {annotation}  # {_span('version', present)}"
    yield from _get_methods(rare)


def _annotation(message: MessageText, lines: list[FieldLine]) -> str:
    (annotation,) = {_type_name(message, line) for line in lines}
    nullable = any(version in line.nullable for line in lines for version in message.versions)
    return f"{annotation} | None" if nullable or annotation == "UUID" else annotation


def _type_name(message: MessageText, line: FieldLine) -> str:
    if line.is_struct:
        bare = f"{next(iter(message.structs))}.{line.kind}"
    else:
        bare = "UUID" if line.kind == "uuid" else _PYTHON_TYPES.get(line.kind, "int")
    if line.array:
        return f"list[{bare} | None]" if bare == "UUID" else f"list[{bare}]"
    return bare


def _get_methods(rare: Mapping[str, list[str]]) -> Iterator[str]:
    for annotation, names in rare.items():
        literal = ", ".join(f'"{name}"' for name in names)
        yield ""
        if annotation.endswith(" | None"):
            signature = f"def get(self, name: Literal[{literal}], default: {annotation} = None) -> {annotation}:"
        else:
            signature = f"def get(self, name: Literal[{literal}], default: Default) -> {annotation} | Default:"
        if len(rare) > 1:
            yield "@overload"
            yield f"{signature} ..."
        else:
            yield signature
            yield '    """The field, or `default` where the version lacks it."""'


def _formatted(source: str) -> str:
    command = [sys.executable, "-m", "ruff", "format", "--line-length", "120", "-"]
    return subprocess.run(command, input=source, capture_output=True, text=True, check=True).stdout


def generate_group(group: str) -> dict[Path, str]:
    """The sources of a group's two modules, by their paths, laid out by ruff."""
    messages = list(group_messages(group))
    return {
        FOLDER / "message_schemas" / f"{group}.py": _formatted(schemas_module(group, messages)),
        FOLDER / "message_types" / f"{group}.py": _formatted(types_module(group, messages)),
    }


def main() -> None:
    """Write all modules."""
    for group in GROUPS:
        for path, source in generate_group(group).items():
            path.write_text(source)


if __name__ == "__main__":
    main()
