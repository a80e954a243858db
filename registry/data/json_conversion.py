"""Data behind its frame out of values of JSON, and back, by a schema, as Confluent's REST proxy converts them.

Avro has the JSON encoding of Avro, Protobuf the JSON of Protobuf with the names and defaults of its fields, and JSON
Schema says which values may be written. Both schemas and values may come from clients, so the work is limited.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from .. import formats
from ..avro.schema import AvroSchema
from ..errors import RegistryError
from ..json_schema.schema import JsonSchema
from ..json_schema.validation import Validation
from ..protobuf.schema import ProtobufSchema
from ..references import Referenced
from .avro_json import avro_bytes, avro_value
from .readers import DataError, message_behind, message_type, protobuf_types

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor

_COST_MIN = 2 << 20
_COST_PER_BYTE = 8
_COST_OF_MESSAGE = 64
_ANY = "google.protobuf.Any"


class JsonConversion(Protocol):
    """Converts by one schema."""

    @property
    def record_name(self) -> str | None:
        """The name of the type that the schema describes, by which subjects may be named; None for one without."""

    def to_bytes(self, value: Any) -> bytes:
        """The data of a value. Raises `DataError` for a value that the schema does not describe."""

    def to_value(self, data: bytes) -> Any:
        """The value of data. Raises `DataError` for data that is not of the schema."""


def conversion_of(schema_type: str, text: str, references: Sequence[Referenced] = ()) -> JsonConversion:
    """The conversion by a schema. Raises `DataError` for a schema that is none. It may take seconds."""
    try:
        schema = formats.parse(schema_type, text, references)
        if isinstance(schema, AvroSchema):
            return _AvroConversion(schema)
        if isinstance(schema, ProtobufSchema):
            return _ProtobufConversion(schema)
        if isinstance(schema, JsonSchema):
            return _JsonSchemaConversion(schema)
        raise DataError(f"the type {schema_type[:40]} is not known")
    except RegistryError as error:
        raise DataError(str(error)) from None


class _AvroConversion:
    def __init__(self, schema: AvroSchema) -> None:
        self._root = schema.root

    @property
    def record_name(self) -> str | None:
        return self._root.name or self._root.kind

    def to_bytes(self, value: Any) -> bytes:
        return avro_bytes(self._root, value)

    def to_value(self, data: bytes) -> Any:
        return avro_value(self._root, data)


class _JsonSchemaConversion:
    def __init__(self, schema: JsonSchema) -> None:
        title = schema.root.get("title") if isinstance(schema.root, dict) else None
        self.record_name = title if isinstance(title, str) else None
        self._validation = Validation(schema)

    def to_bytes(self, value: Any) -> bytes:
        problem = self._validation.problem(value)
        if problem is not None:
            raise DataError(problem)
        try:
            return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
        except (ValueError, RecursionError) as error:
            raise DataError(f"it is no JSON that can be written: {error}") from None

    def to_value(self, data: bytes) -> Any:
        try:
            return json.loads(data, parse_constant=_no_number, parse_float=_float)
        except (ValueError, RecursionError):
            raise DataError("it is no JSON") from None


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number of JSON")


def _float(text: str) -> float:
    return found if math.isfinite(found := float(text)) else _no_number(text[:40])


class _ProtobufConversion:
    def __init__(self, schema: ProtobufSchema) -> None:
        self._types = protobuf_types(schema.files)
        self._first = message_type(self._types.file, [0])
        self._costs: dict[str, int] = {}
        self._largest = max(_fields_of(one) for one in schema.files)

    @property
    def record_name(self) -> str | None:
        return str(self._first.full_name)

    def to_bytes(self, value: Any) -> bytes:
        from google.protobuf.json_format import ParseDict
        from google.protobuf.message_factory import GetMessageClass

        if not isinstance(value, dict):
            raise DataError(f"a message is an object of JSON, not {type(value).__name__}")
        message = GetMessageClass(self._first)()
        try:
            ParseDict(value, message, descriptor_pool=self._types.pool)
            return b"\x00" + message.SerializeToString()
        except Exception as error:
            # The parser's errors for hostile values are of no common type.
            raise DataError(str(error)[:300] or type(error).__name__) from None

    def to_value(self, data: bytes) -> Any:
        from google.protobuf.json_format import MessageToDict
        from google.protobuf.message_factory import GetMessageClass

        kind, rest = message_behind(data, self._types.file)
        message = GetMessageClass(kind)()
        try:
            message.ParseFromString(rest)
            self._check_cost(message, _COST_MIN + _COST_PER_BYTE * len(rest))
            return MessageToDict(
                message,
                preserving_proto_field_name=True,
                always_print_fields_with_no_presence=True,
                descriptor_pool=self._types.pool,
            )
        except DataError:
            raise
        except Exception as error:
            raise DataError(f"it is not of its schema: {str(error)[:300] or type(error).__name__}") from None

    def _check_cost(self, message: Any, left: int) -> None:
        """Refuse messages whose fields without a value would make them far longer in JSON than they are."""
        waiting = [message]
        while waiting:
            one = waiting.pop()
            left -= self._cost(one.DESCRIPTOR)
            if left < 0:
                raise DataError("it would be far longer in JSON than it is")
            for field, value in one.ListFields():
                if field.message_type is None:
                    continue
                if field.message_type.GetOptions().map_entry:
                    if field.message_type.fields_by_name["value"].message_type is not None:
                        waiting += value.values()
                elif field.is_repeated:
                    waiting += value
                else:
                    waiting.append(value)

    def _cost(self, kind: Descriptor) -> int:
        name = str(kind.full_name)
        if name == _ANY:
            return self._largest
        if name not in self._costs:
            self._costs[name] = _COST_OF_MESSAGE + sum(len(field.name) + 4 for field in kind.fields)
        return self._costs[name]


def _fields_of(file: Any) -> int:
    """The cost of the largest message of a file."""
    largest, waiting = 0, list(file.message_type)
    while waiting:
        one = waiting.pop()
        largest = max(largest, _COST_OF_MESSAGE + sum(len(field.name) + 4 for field in one.field))
        waiting += one.nested_type
    return largest
