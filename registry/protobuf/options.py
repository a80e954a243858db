"""Options as text: `deprecated = true`, `(confluent.field_meta) = {doc: "id"}`.

Which options there are, beyond those of Protobuf, depends on what a schema imports.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

from google.protobuf import descriptor_pool, message_factory, text_encoding, text_format
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.message import DecodeError, Message

from ..errors import invalid_schema

_NOT_WRITTEN = {"map_entry", "uninterpreted_option"}


class Options:
    """The options that the descriptors of some files, each behind those it imports, know of."""

    def __init__(self, files: Iterable[FileDescriptorProto]) -> None:
        self._pool = descriptor_pool.DescriptorPool()
        for one in files:
            try:
                self._pool.Add(one)
            except (TypeError, ValueError) as error:
                raise invalid_schema(f"its descriptor is wrong: {error}"[:500]) from None

    def lines(self, options: Message) -> list[str]:
        """Each option that is set, as `name = value`, in the order of their numbers."""
        return [
            f"{self._name(field)} = {self._value(field, one)}"
            for field, value in self._known(options).ListFields()
            if field.name not in _NOT_WRITTEN
            for one in _each(field, value)
        ]

    def _known(self, options: Message) -> Message:
        try:
            found = self._pool.FindMessageTypeByName(options.DESCRIPTOR.full_name)
        except KeyError:
            return options
        try:
            return message_factory.GetMessageClass(found).FromString(options.SerializeToString())
        except DecodeError as error:
            raise invalid_schema(f"an option cannot be read: {error}") from None

    def _name(self, field: FieldDescriptor) -> str:
        return f"({field.full_name})" if field.is_extension else field.name

    def _value(self, field: FieldDescriptor, value: Any) -> str:
        if field.message_type is not None:
            text = text_format.MessageToString(value, as_one_line=True, descriptor_pool=self._pool, as_utf8=True)
            return f"{{{text}}}"
        return value_text(field, value)


def value_text(field: FieldDescriptor, value: Any) -> str:
    """A value of a scalar field or of an enum, as it stands behind an equals sign."""
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return str(value) if known is None else known.name
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, bytes):
        return f'"{text_encoding.CEscape(value, as_utf8=False)}"'
    if isinstance(value, float):
        return number_text(value)
    return str(value)


def number_text(value: float) -> str:
    """A number with a point, `inf` or `nan`, as the compiler reads it."""
    return ("-inf" if value < 0 else "inf") if math.isinf(value) else "nan" if math.isnan(value) else repr(value)


def quoted(text: str) -> str:
    """A text between quotes."""
    return f'"{text_encoding.CEscape(text, as_utf8=True)}"'  # type: ignore[arg-type]  # it takes both


def _each(field: FieldDescriptor, value: Any) -> Iterator[Any]:
    yield from value if field.is_repeated else (value,)
