"""The schemas of Kafka's messages, read from the texts in `wire/message_schemas` when an API's version is first used.

A text holds one message in all its versions. A line that is not indented names the message, or a struct in it; the
indented lines after it are its fields in the order of the wire:

    MetadataRequest versions 0-13 flexible 9+
        topics []MetadataRequestTopic nullable 1+
        allow_auto_topic_creation bool versions 4+ default true
    MetadataRequestTopic
        topic_id uuid versions 10+
        name string nullable 10+

`[]` marks an array, a capital letter a struct. The options are those of Kafka's own definitions: `versions` (all where
it is left out), `nullable` in which versions, `tag` for a tagged field (KIP-482), and a `default` other than zero.

The texts are checked in, so that a node needs neither kio nor the time and memory that its classes take.
`wire/generate_messages.py` writes them from kio's classes, and the tests hold both against each other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, NamedTuple

from .api_keys import ApiKey
from .message_schemas import GROUPS

_FORMATS: dict[str, str] = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "uint16": "H",
    "uint32": "I",
    "float64": "d",
}
_SIZES = {"?": 1, "b": 1, "h": 2, "H": 2, "i": 4, "I": 4, "q": 8, "d": 8}
_ZEROES: dict[str, Any] = {"string": "", "bytes": b"", "records": None, "uuid": None, "bool": False, "float64": 0.0}
_NAMED_DEFAULTS: dict[str, Any] = {"null": None, "true": True, "false": False}
_LAST_VERSION = 2**15 - 1


@dataclass(frozen=True, slots=True)
class Field:
    """One field in one version: `kind` is Kafka's type name, of its items where it is an array, or `struct`."""

    name: str
    kind: str
    array: bool
    nullable: bool
    tag: int | None
    schema: Schema | None
    default: Callable[[], Any]

    @property
    def fmt(self) -> str | None:
        """The letter for Python's `struct` where a value has a fixed size."""
        return _FORMATS.get(self.kind)

    @property
    def item_min_size(self) -> int:
        """The fewest bytes that one value, or one item of an array, takes; always positive."""
        if self.schema is not None:
            return self.schema.min_size
        if self.fmt is not None:
            return _SIZES[self.fmt]
        return 16 if self.kind == "uuid" else 1


@dataclass(frozen=True, slots=True)
class Schema:
    """The fields of a message, or of a struct in it, in one version: in wire order, and the tagged ones apart."""

    name: str
    flexible: bool
    fields: list[Field]
    tagged: list[Field]

    @property
    def min_size(self) -> int:
        """The fewest bytes that it takes on the wire, at least 1."""
        size = 1 if self.flexible else 0
        for field in self.fields:
            null_is_short = field.nullable and field.schema is not None
            size += 1 if field.array or null_is_short else field.item_min_size
        return max(1, size)


class FieldLine(NamedTuple):
    """A field in all versions, as its line says. `kind` is a struct's name where the field is one."""

    name: str
    kind: str
    array: bool
    versions: range
    nullable: range
    tag: int | None
    default: str | None

    @property
    def is_struct(self) -> bool:
        """Whether `kind` names a struct of the same message."""
        return self.kind[0].isupper()


class MessageText(NamedTuple):
    """A message in all versions; `structs` begins with the message itself."""

    versions: range
    flexible: range
    structs: Mapping[str, list[FieldLine]]


def parse_versions(text: str) -> range:
    """The versions that `3-5`, `3+`, `3` or `none` names."""
    if text == "none":
        return range(0)
    if text.endswith("+"):
        return range(int(text[:-1]), _LAST_VERSION + 1)
    low, _, high = text.partition("-")
    return range(int(low), int(high or low) + 1)


def parse_message(text: str) -> MessageText:
    """A message's text; the top of this module explains the form."""
    structs: dict[str, list[FieldLine]] = {}
    header: dict[str, str] = {}
    fields: list[FieldLine] = []
    for line in text.splitlines():
        words = line.split()
        if line.startswith(" "):
            fields.append(_parse_field(words))
        else:
            fields = structs[words[0]] = []
            header = header or _options(words[1:])
    return MessageText(parse_versions(header["versions"]), parse_versions(header["flexible"]), structs)


def _options(words: list[str]) -> dict[str, str]:
    return dict(zip(words[::2], words[1::2]))


def _parse_field(words: list[str]) -> FieldLine:
    options = _options(words[2:])
    return FieldLine(
        name=words[0],
        kind=words[1].removeprefix("[]"),
        array=words[1].startswith("[]"),
        versions=parse_versions(options.get("versions", "0+")),
        nullable=parse_versions(options.get("nullable", "none")),
        tag=int(options["tag"]) if "tag" in options else None,
        default=options.get("default"),
    )


def _schema(message: MessageText, name: str, version: int) -> Schema:
    fields = [_field(message, line, version) for line in message.structs[name] if version in line.versions]
    return Schema(
        name=name,
        flexible=version in message.flexible,
        fields=[field for field in fields if field.tag is None],
        tagged=[field for field in fields if field.tag is not None],
    )


def _field(message: MessageText, line: FieldLine, version: int) -> Field:
    schema = _schema(message, line.kind, version) if line.is_struct else None
    return Field(
        name=line.name,
        kind="struct" if line.is_struct else line.kind,
        array=line.array,
        nullable=version in line.nullable,
        tag=line.tag,
        schema=schema,
        default=_default_factory(line, schema),
    )


def _default_factory(line: FieldLine, schema: Schema | None) -> Callable[[], Any]:
    if line.default is None and line.array:
        return list
    if line.default is None and schema is not None:
        return lambda: {inner.name: inner.default() for inner in (*schema.fields, *schema.tagged)}
    if line.default is None:
        value = _ZEROES.get(line.kind, 0)
    elif line.default in _NAMED_DEFAULTS:
        value = _NAMED_DEFAULTS[line.default]
    else:
        value = int(line.default)
    return lambda: value


def load_text(name: str, kind: str) -> str | None:
    """The text of a message by kio's name and kind (`request`, `response` or `data`); None where there is none."""
    for group, names in GROUPS.items():
        if name in names:
            module = import_module(f".message_schemas.{group}", __package__)
            text: str | None = getattr(module, f"{name}_{kind}".upper(), None)
            return text
    return None


def _load(name: str, version: int, kind: str) -> Schema:
    text = load_text(name, kind)
    message = None if text is None else parse_message(text)
    if message is None or version not in message.versions:
        raise ValueError(f"there is no {name} {kind} of version {version}")
    return _schema(message, next(iter(message.structs)), version)


def load_api_schema(api_key: ApiKey, version: int, kind: str) -> Schema:
    """The schema of a request or response (`kind`); `ValueError` where there is none."""
    return _load(api_key.name.lower(), version, kind)


def load_data_schema(name: str, version: int) -> Schema:
    """The schema of a message that is no request or response; `ValueError` where there is none."""
    return _load(name, version, "data")
