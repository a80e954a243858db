"""A schema's one text: its descriptor, written in the order and the layout of Confluent's registry.

Comments are not part of it. Names of types are as short as they can be where they stand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    MethodDescriptorProto,
    OneofDescriptorProto,
    ServiceDescriptorProto,
)

from .options import Options, quoted

_LABELS = {1: "optional ", 2: "required ", 3: "repeated "}
_EDITIONS = {1000: "2023"}
_GROUP, _BYTES, _OPTIONAL = 10, 12, 1
_MAX_NUMBER, _MAX_ENUM = (1 << 29) - 1, (1 << 31) - 1
_TEXT_KINDS = (9, _BYTES)
Shorten = Callable[[str, str], str]
"""The shortest name of a type, given its full name and the full name of the message in which it is used."""


def write_file(one: FileDescriptorProto, options: Options, shorten: Shorten) -> str:
    """The text of a file."""
    return _Writer(one, options, shorten).file()


class _Writer:
    def __init__(self, one: FileDescriptorProto, options: Options, shorten: Shorten) -> None:
        self._file = one
        self._options = options
        self._shorten = shorten
        self._syntax = one.syntax or "proto2"
        groups = {field.type_name for field in _fields(one) if field.type == _GROUP}
        self._inline = {
            name: message for name, message in _messages(one) if message.options.map_entry or name in groups
        }
        """Messages that are written where they are used, those of maps and groups, by their full names with a dot."""

    def file(self) -> str:
        one = self._file
        is_edition = self._syntax == "editions"
        head = f'edition = "{_EDITIONS[one.edition]}";' if is_edition else f'syntax = "{self._syntax}";'
        package = [f"package {one.package};"] if one.package else []
        public = set(one.public_dependency)
        imports = [f"import {quoted(name)};" for n, name in enumerate(one.dependency) if n not in public]
        imports += [f"import public {quoted(name)};" for n, name in enumerate(one.dependency) if n in public]
        sections = [
            imports,
            self._option_lines(one.options),
            self._types(one.message_type, one.enum_type, one.package),
            self._extends(one.extension, one.package),
            [line for each in one.service for line in self._service(each, one.package)],
        ]
        lines = [head, *package]
        for each in sections:
            lines += ["", *each] if each else []
        return "\n".join(lines) + "\n"

    def _types(
        self, messages: Iterable[DescriptorProto], enums: Iterable[EnumDescriptorProto], scope: str
    ) -> list[str]:
        """Messages before enums."""
        lines = [
            line
            for one in messages
            if f".{_joined(scope, one.name)}" not in self._inline
            for line in self._message(one, scope)
        ]
        return lines + [line for one in enums for line in self._enum(one)]

    def _message(self, one: DescriptorProto, scope: str) -> list[str]:
        return _block(f"message {one.name}", self._message_sections(one, _joined(scope, one.name)))

    def _message_sections(self, one: DescriptorProto, inner: str) -> list[list[str]]:
        plain: list[FieldDescriptorProto] = []
        members: dict[int, list[FieldDescriptorProto]] = {}
        for each in one.field:
            is_in_oneof = each.HasField("oneof_index") and not each.proto3_optional
            (members.setdefault(each.oneof_index, []) if is_in_oneof else plain).append(each)
        oneofs = [self._oneof(oneof, members.get(n, ()), inner) for n, oneof in enumerate(one.oneof_decl)]
        ranges = [
            _ending(f"extensions {_range(each.start, each.end - 1, _MAX_NUMBER)}", self._options.lines(each.options))
            for each in one.extension_range
        ]
        return [
            _reserved([(r.start, r.end - 1) for r in one.reserved_range], one.reserved_name, _MAX_NUMBER, self._syntax),
            self._option_lines(one.options),
            [line for each in plain for line in self._field(each, inner)],
            [line for each in oneofs for line in each],
            [line for each in ranges for line in each],
            self._extends(one.extension, inner),
            self._types(one.nested_type, one.enum_type, inner),
        ]

    def _oneof(self, one: OneofDescriptorProto, fields: Sequence[FieldDescriptorProto], inner: str) -> list[str]:
        if not fields:  # the oneof that stands for an optional field of proto3
            return []
        lines = [line for each in fields for line in self._field(each, inner)]
        return _block(f"oneof {one.name}", [self._option_lines(one.options), lines])

    def _field(self, one: FieldDescriptorProto, scope: str) -> list[str]:
        made = self._inline.get(one.type_name)
        if made is None:
            return _ending(f"{self._label(one)}{self._type(one, scope)} {self._rest(one)}", self._field_options(one))
        if made.options.map_entry:
            key, value = made.field
            kind = f"map<{self._type(key, scope)}, {self._type(value, scope)}>"
            return _ending(f"{kind} {self._rest(one)}", self._field_options(one))
        options = self._field_options(one)
        head = f"{self._label(one)}group {made.name} = {one.number}"
        inner = one.type_name.removeprefix(".")
        return _block(f"{head} [{', '.join(options)}]" if options else head, self._message_sections(made, inner))

    def _rest(self, one: FieldDescriptorProto) -> str:
        return f"{one.name} = {one.number}"

    def _label(self, one: FieldDescriptorProto) -> str:
        is_in_oneof = one.HasField("oneof_index") and not one.proto3_optional
        if is_in_oneof or (one.label == _OPTIONAL and self._syntax != "proto2" and not one.proto3_optional):
            return ""
        return _LABELS[one.label]

    def _type(self, one: FieldDescriptorProto, scope: str) -> str:
        if one.type_name:
            return self._shorten(one.type_name, scope)
        return FieldDescriptorProto.Type.Name(one.type).removeprefix("TYPE_").lower()

    def _field_options(self, one: FieldDescriptorProto) -> list[str]:
        lines = self._options.lines(one.options)
        if one.HasField("default_value"):
            text = f'"{one.default_value}"' if one.type == _BYTES else quoted(one.default_value)
            lines.append(f"default = {text if one.type in _TEXT_KINDS else one.default_value}")
        if one.json_name and one.json_name != json_name(one.name):
            lines.append(f"json_name = {quoted(one.json_name)}")
        return lines

    def _extends(self, extensions: Iterable[FieldDescriptorProto], scope: str) -> list[str]:
        by_message: dict[str, list[FieldDescriptorProto]] = {}
        for one in extensions:
            by_message.setdefault(one.extendee, []).append(one)
        return [
            line
            for extended, fields in by_message.items()
            for line in _block(
                f"extend {self._shorten(extended, scope)}",
                [[line for one in fields for line in self._field(one, scope)]],
            )
        ]

    def _enum(self, one: EnumDescriptorProto) -> list[str]:
        reserved = _reserved(
            [(each.start, each.end) for each in one.reserved_range], one.reserved_name, _MAX_ENUM, self._syntax
        )
        values = [
            line
            for each in one.value
            for line in _ending(f"{each.name} = {each.number}", self._options.lines(each.options))
        ]
        return _block(f"enum {one.name}", [[*reserved, *self._option_lines(one.options), *values]])

    def _service(self, one: ServiceDescriptorProto, scope: str) -> list[str]:
        methods = [line for each in one.method for line in self._method(each, scope)]
        return _block(f"service {one.name}", [self._option_lines(one.options), methods])

    def _method(self, one: MethodDescriptorProto, scope: str) -> list[str]:
        given, answered = (self._shorten(name, scope) for name in (one.input_type, one.output_type))
        ways = ("stream " if one.client_streaming else "", "stream " if one.server_streaming else "")
        head = f"rpc {one.name} ({ways[0]}{given}) returns ({ways[1]}{answered})"
        options = self._option_lines(one.options)
        return [f"{head} {{", *(f"  {line}" for line in options), "};"] if options else [f"{head};"]

    def _option_lines(self, options: Any) -> list[str]:
        return [f"option {line};" for line in self._options.lines(options)]


def json_name(name: str) -> str:
    """The name that a field has in JSON unless the schema gives another one."""
    head, *rest = name.split("_")
    return head + "".join(part[:1].upper() + part[1:] for part in rest)


def _block(head: str, sections: Iterable[list[str]]) -> list[str]:
    """Sections between braces, with an empty line between two of them."""
    lines: list[str] = []
    for one in sections:
        lines += ([""] if lines and one else []) + [f"  {line}" if line else "" for line in one]
    return [f"{head} {{", *lines, "}"] if lines else [f"{head} {{}}"]


def _ending(head: str, options: Sequence[str]) -> list[str]:
    """A statement with its options between brackets, on lines of their own if there are several."""
    if len(options) < 2:
        return [f"{head} [{options[0]}];" if options else f"{head};"]
    lines = [f"  {one}," for one in options]
    return [f"{head} [", *lines[:-1], lines[-1].removesuffix(","), "];"]


def _reserved(ranges: Iterable[tuple[int, int]], names: Iterable[str], last: int, syntax: str) -> list[str]:
    numbers = [_range(first, end, last) for first, end in ranges]
    words = list(names) if syntax == "editions" else [quoted(one) for one in names]
    return [f"reserved {', '.join(one)};" for one in (numbers, words) if one]


def _range(first: int, end: int, last: int) -> str:
    return str(first) if first == end else f"{first} to {'max' if end >= last else end}"


def _joined(scope: str, name: str) -> str:
    return f"{scope}.{name}" if scope else name


def _messages(one: FileDescriptorProto) -> Iterator[tuple[str, DescriptorProto]]:
    """All messages of a file with their full names, which begin with a dot."""
    prefix = f".{one.package}." if one.package else "."
    left = [(prefix + message.name, message) for message in one.message_type]
    while left:
        name, message = left.pop()
        yield name, message
        left += [(f"{name}.{inner.name}", inner) for inner in message.nested_type]


def _fields(one: FileDescriptorProto) -> Iterator[FieldDescriptorProto]:
    """All fields and extensions of a file."""
    yield from one.extension
    for _, message in _messages(one):
        yield from message.field
        yield from message.extension
