"""Protobuf schemas: a text or a descriptor in, the descriptors of all that it needs and its one text out."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import invalid_schema
from ..references import Referenced, by_name

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto

    from .options import Options

_BASE64 = re.compile(r"[A-Za-z0-9+/\s]+={0,2}")
_EDITION_2023 = 1000


@dataclass(frozen=True, eq=False, slots=True)
class ProtobufSchema:
    """A schema that is valid, and its text. The last one of `files` is its own, those before it are its imports."""

    files: Sequence[FileDescriptorProto]
    text: str

    @property
    def root(self) -> FileDescriptorProto:
        """The descriptor of the schema itself."""
        return self.files[-1]

    def normalized(self) -> str:
        """The text with imports in the order of their names, fields of their numbers, reserved numbers too."""
        from .options import Options

        sorted_root = type(self.root).FromString(self.root.SerializeToString())
        _sort_file(sorted_root)
        return _written([*self.files[:-1], sorted_root], Options(self.files))

    def serialized(self) -> str:
        """The descriptor in Base64, which clients ask for as `format=serialized`."""
        return base64.b64encode(self.root.SerializeToString()).decode()


def parse_protobuf(text: str, references: Iterable[Referenced] = ()) -> ProtobufSchema:
    """The schema of a text, or of a Base64 descriptor as some clients send it. Raises `RegistryError` 42201."""
    from .compiler import compile_proto
    from .options import Options

    if not text.strip():
        raise invalid_schema("it is empty")
    imports = by_name(references)
    descriptor = _descriptor(text)
    files = list(compile_proto(text if descriptor is None else _text_of(descriptor, imports), imports).file)
    root = files[-1]
    if root.syntax == "editions" and root.edition != _EDITION_2023:
        raise invalid_schema("of the editions of Protobuf only 2023 is known here, and proto2 and proto3")
    return ProtobufSchema(files, _written(files, Options(files)))


def _written(files: Sequence[FileDescriptorProto], options: Options) -> str:
    from .names import Names
    from .text import write_file

    return write_file(files[-1], options, Names(files).shortest)


def _descriptor(text: str) -> FileDescriptorProto | None:
    """The descriptor that a text is in Base64; None for what is none."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.message import DecodeError

    if _BASE64.fullmatch(text.rstrip()) is None:
        return None
    try:
        return FileDescriptorProto.FromString(base64.b64decode(text))
    except (binascii.Error, DecodeError):
        return None


def _text_of(descriptor: FileDescriptorProto, imports: Mapping[str, str]) -> str:
    """A text of a descriptor, which the compiler checks then. Its options may be those of files that it imports."""
    from .compiler import compile_proto
    from .options import Options, quoted
    from .text import write_file

    importing = "".join(f"import {quoted(name)};\n" for name in descriptor.dependency)
    found = compile_proto(f'syntax = "proto3";\n{importing}', imports).file
    if descriptor.syntax == "editions" and descriptor.edition != _EDITION_2023:
        raise invalid_schema("of the editions of Protobuf only 2023 is known here, and proto2 and proto3")
    return write_file(descriptor, Options([*found[:-1], descriptor]), lambda name, _: name)


# -- one order


def _sort_file(one: FileDescriptorProto) -> None:
    names = list(one.dependency)
    public = {names[n] for n in one.public_dependency}
    one.ClearField("public_dependency")
    one.dependency[:] = sorted(set(names))
    one.public_dependency.extend(n for n, name in enumerate(one.dependency) if name in public)
    one.extension.sort(key=lambda field: field.number)
    for message in one.message_type:
        _sort_message(message)


def _sort_message(one: DescriptorProto) -> None:
    one.field.sort(key=lambda field: field.number)
    one.extension.sort(key=lambda field: field.number)
    one.reserved_range.sort(key=lambda reserved: reserved.start)
    one.extension_range.sort(key=lambda extended: extended.start)
    one.reserved_name.sort()
    first: dict[int, int] = {}
    for field in one.field:
        if field.HasField("oneof_index"):
            first.setdefault(field.oneof_index, field.number)
    order = sorted(range(len(one.oneof_decl)), key=lambda n: first.get(n, 0))
    _sort_oneofs(one, order)
    for inner in one.nested_type:
        _sort_message(inner)


def _sort_oneofs(one: DescriptorProto, order: Sequence[int]) -> None:
    before = [type(each).FromString(each.SerializeToString()) for each in one.oneof_decl]
    place = {old: new for new, old in enumerate(order)}
    for new, old in enumerate(order):
        one.oneof_decl[new].CopyFrom(before[old])
    for field in one.field:
        if field.HasField("oneof_index"):
            field.oneof_index = place[field.oneof_index]
