"""What data says, by its schema: Avro, JSON Schema or Protobuf, as values that JSON has.

Data may be hostile. An array of items without bytes could claim any number of them, and data that nests as deep as it
is long could exhaust the stack of a decoder in C. Both are refused before they are decoded.
"""

from __future__ import annotations

import io
import json
import math
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ..avro.schema import AvroType, fastavro_schema, parse_avro
from ..errors import RegistryError
from ..protobuf.schema import parse_protobuf
from ..records import AVRO, JSON, PROTOBUF
from ..references import Referenced
from .frame import FrameError, split_message_path

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FileDescriptor
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.descriptor_pool import DescriptorPool

Reader = Callable[[bytes], Any]
"""Data behind its frame in, its value out. Raises `DataError`."""
RECURSIVE_BYTES_MAX = 1000
"""Avro data may be so long where its schema refers to itself. `fastavro` ends the process at some 5,000 levels."""
_WRAPPER, _WRAPPED = "RaftwerkValue__", "value"
_FIXED_SIZES: Mapping[str, int] = {"null": 0, "float": 4, "double": 8}
_READERS_KEPT = 128


class DataError(ValueError):
    """Data that its schema does not describe, or that cannot be decoded; the message says why."""


def reader_of(schema_type: str, text: str, references: Sequence[Referenced] = ()) -> Reader:
    """The reader of data with this schema. Raises `DataError` for a schema that is none. It may take a second."""
    try:
        return _reader_of(schema_type, text, tuple(references))
    except RegistryError as error:
        raise DataError(str(error)) from None


@lru_cache(_READERS_KEPT)
def _reader_of(schema_type: str, text: str, references: tuple[Referenced, ...]) -> Reader:
    if schema_type == AVRO:
        return _avro_reader(text, references)
    if schema_type == PROTOBUF:
        return _protobuf_reader(text, references)
    if schema_type == JSON:
        return _read_json
    raise DataError(f"the type {schema_type[:40]} is not known")


# -- JSON


def _read_json(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        raise DataError("it is no JSON") from None


# -- Avro


def _avro_reader(text: str, references: Sequence[Referenced]) -> Reader:
    from fastavro import schemaless_reader

    root = parse_avro(text, references).root
    shape = _AvroShape(root)
    known: dict[str, Any] = {}
    for one in dict.fromkeys(one.text for one in references):
        fastavro_schema(json.loads(one), known)
    # Only a record takes the types of other schemas along; one with a single field is written as that field is.
    field = {"name": _WRAPPED, "type": json.loads(text)}
    parsed = fastavro_schema({"type": "record", "name": _WRAPPER, "fields": [field]}, known)

    def read(data: bytes) -> Any:
        if shape.has_empty_items:
            raise DataError("an array of items without bytes is not decoded")
        if shape.is_recursive and len(data) > RECURSIVE_BYTES_MAX:
            raise DataError(f"its schema refers to itself, and it is longer than {RECURSIVE_BYTES_MAX} bytes")
        source = io.BytesIO(data)
        try:
            value: Any = schemaless_reader(source, parsed, None)
            rest = len(data) - source.tell()
            value = plain(value[_WRAPPED])
        except Exception as error:
            # The decoder's errors for hostile bytes are of no common type.
            raise DataError(f"it is not of its schema: {error or type(error).__name__}") from None
        if rest:
            raise DataError(f"{rest} bytes are left behind what its schema describes")
        return value

    return read


class _AvroShape:
    """Whether a type refers to itself, and whether an array in it has items that take no bytes."""

    def __init__(self, root: AvroType) -> None:
        self.is_recursive = False
        self.has_empty_items = False
        self._open: set[int] = set()
        self._seen: dict[int, bool] = {}
        self._takes_bytes(root)

    def _takes_bytes(self, one: AvroType) -> bool:
        """Whether a value of the type has at least one byte."""
        key = id(one)
        if key in self._open:
            self.is_recursive = True
            return True
        if key not in self._seen:
            self._open.add(key)
            self._seen[key] = self._looked_at(one)
            self._open.discard(key)
        return self._seen[key]

    def _looked_at(self, one: AvroType) -> bool:
        items = [self._takes_bytes(item) for item in one.items]
        if one.kind == "array":
            self.has_empty_items |= not all(items)
        if one.kind in ("record", "error"):
            looked_at = [self._takes_bytes(each.type) for each in one.fields]  # at all of them
            return any(looked_at)
        if one.kind == "fixed":
            return one.size > 0
        return _FIXED_SIZES.get(one.kind, 1) > 0


# -- Protobuf


def _protobuf_reader(text: str, references: Sequence[Referenced]) -> Reader:
    from google.protobuf.json_format import MessageToDict
    from google.protobuf.message import DecodeError
    from google.protobuf.message_factory import GetMessageClass

    types = protobuf_types(parse_protobuf(text, references).files)

    def read(data: bytes) -> Any:
        kind, rest = message_behind(data, types.file)
        message = GetMessageClass(kind)()
        try:
            message.ParseFromString(rest)
            return MessageToDict(message, preserving_proto_field_name=True, descriptor_pool=types.pool)
        except (DecodeError, TypeError, ValueError, RecursionError) as error:
            raise DataError(f"it is not of its schema: {error or type(error).__name__}") from None

    return read


@dataclass(frozen=True, slots=True)
class ProtobufTypes:
    """The types of a schema and of all that it imports, and the file that the schema itself is."""

    pool: DescriptorPool
    file: FileDescriptor


def protobuf_types(files: Sequence[FileDescriptorProto]) -> ProtobufTypes:
    """The types of these files, the last of which is the schema, in a pool of their own."""
    from google.protobuf.descriptor_pool import DescriptorPool

    pool = DescriptorPool()
    for file in files:
        pool.AddSerializedFile(file.SerializeToString())
    return ProtobufTypes(pool, pool.FindFileByName(files[-1].name))


def message_behind(data: bytes, file: FileDescriptor) -> tuple[Descriptor, bytes]:
    """The message type that the path before a message names, and the message. Raises `DataError`."""
    try:
        path, rest = split_message_path(data)
    except FrameError as error:
        raise DataError(str(error)) from None
    return message_type(file, path), rest


def message_type(file: FileDescriptor, path: Sequence[int]) -> Descriptor:
    """The message type at a path. Raises `DataError` when there is none."""
    messages: list[Descriptor] = list(file.message_types_by_name.values())
    found = None
    for index in path:
        if not 0 <= index < len(messages):
            raise DataError(f"the schema has no message type at {', '.join(map(str, path))}")
        found = messages[index]
        messages = list(found.nested_types)
    if found is None:
        raise DataError("the path to the message type is empty")
    return found


# -- values


def json_number(value: float) -> float | str:
    """The number, or what it is called in the JSON of Avro and Protobuf where JSON has no such number."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def plain(value: Any) -> Any:
    """A value as JSON has it: bytes in Base64, dates, decimals, ids and numbers that are none as texts."""
    if isinstance(value, dict):
        return {str(name): plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if isinstance(value, float):
        return json_number(value)
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
