"""Whether data of one Protobuf schema can be read with another, by the rules of Confluent's registry.

On the wire a field is its number and the way in which it is encoded. So names may change, and types within a group that
is encoded alike. The names of the rules are Confluent's, since people look for them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import invalid_schema
from .schema import ProtobufSchema

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto

_SHOWN = 10
_FIELDS_MAX = 400_000
"""How many fields are compared at most."""
_GROUP, _MESSAGE, _ENUM = 10, 11, 14
_REQUIRED, _REPEATED = 2, 3
_LEGACY_REQUIRED, _DELIMITED = 3, 2
"""Values of the features of editions."""
_ENCODED_ALIKE = {
    **dict.fromkeys((3, 4, 5, 8, 13, _ENUM), "a number"),  # int64, uint64, int32, bool, uint32
    **dict.fromkeys((17, 18), "a zigzag number"),  # sint32, sint64
    **dict.fromkeys((9, 12), "string or bytes"),
    **dict.fromkeys((7, 15), "a fixed number of 32 bits"),
    **dict.fromkeys((6, 16), "a fixed number of 64 bits"),
    1: "double",
    2: "float",
}


def why_not_readable(reader: ProtobufSchema, writer: ProtobufSchema) -> list[str]:
    """What a reader cannot read of the writer's data, a sentence for each, at most ten; none if it can read all.

    Raises `RegistryError` 42201 for schemas that would take too long to compare.
    """
    check = _Check(_Types(reader.files), _Types(writer.files))
    check.files(reader.root, writer.root)
    return check.problems[:_SHOWN]


class _Types:
    """The messages of a schema and of its imports, by their full names with a dot in front."""

    def __init__(self, files: Sequence[FileDescriptorProto]) -> None:
        self.messages: dict[str, DescriptorProto] = {}
        for one in files:
            prefix = f".{one.package}." if one.package else "."
            self.messages.update(_with_nested(one.message_type, prefix))
        self._delimited = files[-1].options.features.message_encoding == _DELIMITED

    def kind(self, field: FieldDescriptorProto) -> str:
        """Whether a field is a map, a group, a message or a scalar, which are encoded differently."""
        if field.type not in (_MESSAGE, _GROUP):
            return "scalar"
        found = self.messages.get(field.type_name)
        if found is not None and found.options.map_entry:
            return "map"
        encoding = field.options.features.message_encoding
        is_delimited = encoding == _DELIMITED or (self._delimited and not encoding)
        return "group" if field.type == _GROUP or is_delimited else "message"


@dataclass(frozen=True, slots=True)
class _Members:
    """The fields of a message by their numbers, and the oneofs of those that are in one."""

    fields: dict[int, FieldDescriptorProto]
    oneof_of: dict[int, str]

    @staticmethod
    def of(message: DescriptorProto) -> _Members:
        """The members of a message. An optional field of proto3 is in no oneof."""
        oneofs = {
            field.number: message.oneof_decl[field.oneof_index].name
            for field in message.field
            if field.HasField("oneof_index") and not field.proto3_optional
        }
        return _Members({field.number: field for field in message.field}, oneofs)

    def of_oneof(self) -> dict[str, list[int]]:
        """The numbers of the fields of each oneof."""
        found: dict[str, list[int]] = {}
        for number, name in self.oneof_of.items():
            found.setdefault(name, []).append(number)
        return found


class _Check:
    def __init__(self, reader: _Types, writer: _Types) -> None:
        self._reader = reader
        self._writer = writer
        self._left = _FIELDS_MAX
        self._compared: set[tuple[str, str]] = set()
        self.problems: list[str] = []

    def files(self, reader: FileDescriptorProto, writer: FileDescriptorProto) -> None:
        """Compare the schemas. Their messages are found by their names within the package."""
        if reader.package != writer.package:
            before, now = (one.package or "none" for one in (writer, reader))
            self._note("PACKAGE_CHANGED", f"the reader's package is {now}, the writer's is {before}", "#/")
        prefixes = [f".{one.package}." if one.package else "." for one in (reader, writer)]
        known = {name for name, _ in _with_nested(reader.message_type, "")}
        for name, message in _with_nested(writer.message_type, ""):
            if message.options.map_entry:
                continue
            if name not in known:
                self._note("MESSAGE_REMOVED", f"the reader has no message {name}", f"#/{name.replace('.', '/')}")
            else:
                self._messages(prefixes[0] + name, prefixes[1] + name, f"#/{name.replace('.', '/')}")

    def _messages(self, reader: str, writer: str, path: str) -> None:
        """Compare two messages, and those of their fields that are defined elsewhere, each pair once."""
        left = [(reader, writer, path)]
        while left:
            read, written, at = left.pop()
            if (read, written) in self._compared:
                continue
            self._compared.add((read, written))
            pair = self._reader.messages.get(read), self._writer.messages.get(written)
            if pair[0] is not None and pair[1] is not None:
                left += self._members(pair[0], pair[1], at)

    def _members(self, reader: DescriptorProto, writer: DescriptorProto, path: str) -> Iterator[tuple[str, str, str]]:
        now, before = _Members.of(reader), _Members.of(writer)
        self._left -= len(now.fields) + len(before.fields)
        if self._left < 0:
            raise invalid_schema("it has too many fields to compare it with another version")
        self._moved_into_oneofs(now, before, path)
        self._removed(now, before, path)
        for number, field in now.fields.items():
            at = f"{path}/{number}"
            old = before.fields.get(number)
            if old is None:
                if _is_required(field):
                    self._note("REQUIRED_FIELD_ADDED", f"the writer has no field {field.name}, which is required", at)
            elif self._fields(field, old, at) and field.type_name and field.type != _ENUM:
                yield field.type_name, old.type_name, at

    def _moved_into_oneofs(self, now: _Members, before: _Members, path: str) -> None:
        """Fields that could be set at once must not exclude each other now."""
        for name, numbers in now.of_oneof().items():
            known = [number for number in numbers if number in before.fields]
            free = [number for number in known if number not in before.oneof_of]
            groups = {before.oneof_of[number] for number in known if number in before.oneof_of}
            if len(free) + len(groups) > 1:
                rule = "MULTIPLE_FIELDS_MOVED_TO_ONEOF" if len(free) > 1 else "FIELD_MOVED_TO_EXISTING_ONEOF"
                self._note(rule, f"fields that the writer may set together are in the oneof {name}", f"{path}/{name}")

    def _removed(self, now: _Members, before: _Members, path: str) -> None:
        left = set(now.oneof_of.values())
        gone = {
            name
            for name, numbers in before.of_oneof().items()
            if name not in left and not any(number in now.fields for number in numbers)
        }
        """A oneof that was removed as a whole is like an optional field that was removed."""
        for number, field in before.fields.items():
            if number in now.fields:
                continue
            oneof = before.oneof_of.get(number)
            if oneof is not None and oneof not in gone:
                self._note(
                    "ONEOF_FIELD_REMOVED", f"the reader's oneof {oneof} has no {field.name}", f"{path}/{oneof}/{number}"
                )
            elif _is_required(field):
                self._note(
                    "REQUIRED_FIELD_REMOVED", f"the reader has no {field.name}, which is required", f"{path}/{number}"
                )

    def _fields(self, now: FieldDescriptorProto, before: FieldDescriptorProto, path: str) -> bool:
        """Compare two fields of one number. The answer is whether their messages are to be compared."""
        kinds = self._reader.kind(now), self._writer.kind(before)
        if _is_required(now) != _is_required(before):
            rule = "REQUIRED_FIELD_ADDED" if _is_required(now) else "REQUIRED_FIELD_REMOVED"
            self._note(rule, f"{now.name} is required only by one of reader and writer", path)
        if kinds[0] != kinds[1]:
            self._note(
                "FIELD_KIND_CHANGED", f"the reader's {now.name} is a {kinds[0]}, the writer's a {kinds[1]}", path
            )
            return False
        if kinds[0] != "scalar":
            return self._named(now, before, kinds[0], path)
        alike = _ENCODED_ALIKE[now.type], _ENCODED_ALIKE[before.type]
        if alike[0] != alike[1]:
            self._note(
                "FIELD_SCALAR_KIND_CHANGED", f"the reader's {now.name} is {alike[0]}, the writer's {alike[1]}", path
            )
        elif (now.label == _REPEATED) != (before.label == _REPEATED) and alike[0] != "string or bytes":
            self._note("FIELD_NUMERIC_LABEL_CHANGED", f"{now.name} is repeated only in one of reader and writer", path)
        return False

    def _named(self, now: FieldDescriptorProto, before: FieldDescriptorProto, kind: str, path: str) -> bool:
        if kind == "map":
            return True
        if now.type_name.rpartition(".")[2] != before.type_name.rpartition(".")[2]:
            shown = now.type_name.removeprefix("."), before.type_name.removeprefix(".")
            self._note(
                "FIELD_NAMED_TYPE_CHANGED", f"the reader's {now.name} is {shown[0]}, the writer's {shown[1]}", path
            )
            return False
        return True

    def _note(self, rule: str, sentence: str, path: str) -> None:
        self.problems.append(f"{rule}: {sentence} (at {path})")


def _is_required(field: FieldDescriptorProto) -> bool:
    return field.label == _REQUIRED or field.options.features.field_presence == _LEGACY_REQUIRED


def _with_nested(messages: Sequence[DescriptorProto], prefix: str) -> Iterator[tuple[str, DescriptorProto]]:
    """The messages, and those within them, each with its name behind the prefix."""
    left = [(prefix + one.name, one) for one in reversed(messages)]
    while left:
        name, message = left.pop()
        yield name, message
        left += [(f"{name}.{one.name}", one) for one in reversed(message.nested_type)]
