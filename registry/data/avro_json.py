"""Avro data and the JSON encoding of Avro 1.12, by the tree of a schema.

In JSON a value of a union stands in an object with the name of its branch, `{"long": 5}`, and null stands alone. Bytes
are texts with a character for each byte. Logical types are written as the types below them. Every field has to be
there: defaults are for readers of older data.

Data may be hostile: depth is limited, and what a value may grow to in JSON is limited by the length of its data.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping
from typing import Any

from ..avro.schema import AvroType
from .readers import DataError, json_number

_DEPTH_MAX = 200
_COST_MIN = 4 << 20
_COST_PER_BYTE = 16
_VARINT_BYTES_MAX = 10
_RANGES = {"int": (-(2**31), 2**31 - 1), "long": (-(2**63), 2**63 - 1)}
_NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_FLOAT, _DOUBLE = struct.Struct("<f"), struct.Struct("<d")
_SHOWN, _TOLD_MAX = 40, 300


def avro_bytes(schema: AvroType, value: Any) -> bytes:
    """The data of a value in the JSON encoding. Raises `DataError` for a value that the schema does not describe."""
    encoder = _Encoder()
    encoder.write(schema, value, 0)
    return bytes(encoder.out)


def avro_value(schema: AvroType, data: bytes) -> Any:
    """The value of data in the JSON encoding, where a union is not named that is the schema itself.

    Raises `DataError` for data that the schema does not describe, or whose JSON would be far longer than it is.
    """
    decoder = _Decoder(data)
    found = schema
    if schema.kind == "union":
        found = decoder.branch(schema)
    value = decoder.read(found, 0)
    decoder.finish()
    return value


def branch_name(branch: AvroType) -> str:
    """The name of a branch of a union in the JSON encoding."""
    return branch.name or branch.kind


class _Encoder:
    """Appends values to `out`."""

    def __init__(self) -> None:
        self.out = bytearray()
        self._writers: Mapping[str, Callable[[AvroType, Any, int], None]] = {
            "null": self._null,
            "boolean": self._boolean,
            "int": self._integer,
            "long": self._integer,
            "float": self._float,
            "double": self._float,
            "bytes": self._bytes,
            "string": self._string,
            "fixed": self._fixed,
            "enum": self._enum,
            "array": self._array,
            "map": self._map,
            "union": self._union,
            "record": self._record,
        }

    def write(self, schema: AvroType, value: Any, depth: int) -> None:
        """Append a value. Raises `DataError`."""
        if depth > _DEPTH_MAX:
            raise DataError(f"it is nested more than {_DEPTH_MAX} deep")
        self._writers[schema.kind](schema, value, depth)

    def _number(self, value: int) -> None:
        left = value << 1 if value >= 0 else (-value << 1) - 1
        while left > 0x7F:
            self.out.append(left & 0x7F | 0x80)
            left >>= 7
        self.out.append(left)

    def _text(self, value: Any) -> None:
        try:
            data = value.encode()
        except UnicodeEncodeError:
            raise DataError("it has half of a surrogate pair, which is no character") from None
        self._number(len(data))
        self.out += data

    def _null(self, schema: AvroType, value: Any, _: int) -> None:
        if value is not None:
            raise _unlike(schema, value)

    def _boolean(self, schema: AvroType, value: Any, _: int) -> None:
        if not isinstance(value, bool):
            raise _unlike(schema, value)
        self.out.append(value)

    def _integer(self, schema: AvroType, value: Any, _: int) -> None:
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        first, last = _RANGES[schema.kind]
        if not isinstance(value, int) or isinstance(value, bool) or not first <= value <= last:
            raise _unlike(schema, value)
        self._number(value)

    def _float(self, schema: AvroType, value: Any, _: int) -> None:
        number = _NOT_FINITE.get(value) if isinstance(value, str) else value
        if not isinstance(number, int | float) or isinstance(number, bool):
            raise _unlike(schema, value)
        try:
            self.out += (_FLOAT if schema.kind == "float" else _DOUBLE).pack(float(number))
        except OverflowError:
            raise _unlike(schema, value) from None

    def _latin(self, schema: AvroType, value: Any) -> bytes:
        if not isinstance(value, str):
            raise _unlike(schema, value)
        try:
            return value.encode("latin-1")
        except UnicodeEncodeError:
            raise DataError("bytes are a text of characters up to U+00FF, one for each byte") from None

    def _bytes(self, schema: AvroType, value: Any, _: int) -> None:
        data = self._latin(schema, value)
        self._number(len(data))
        self.out += data

    def _fixed(self, schema: AvroType, value: Any, _: int) -> None:
        data = self._latin(schema, value)
        if len(data) != schema.size:
            raise DataError(f"{schema.name} has {schema.size} bytes, not {len(data)}")
        self.out += data

    def _string(self, schema: AvroType, value: Any, _: int) -> None:
        if not isinstance(value, str):
            raise _unlike(schema, value)
        self._text(value)

    def _enum(self, schema: AvroType, value: Any, _: int) -> None:
        if not isinstance(value, str) or value not in schema.symbols:
            raise _unlike(schema, value)
        self._number(schema.symbols.index(value))

    def _array(self, schema: AvroType, value: Any, depth: int) -> None:
        if not isinstance(value, list):
            raise _unlike(schema, value)
        if value:
            self._number(len(value))
        for item in value:
            self.write(schema.items[0], item, depth + 1)
        self.out.append(0)

    def _map(self, schema: AvroType, value: Any, depth: int) -> None:
        if not isinstance(value, dict):
            raise _unlike(schema, value)
        if value:
            self._number(len(value))
        for key, item in value.items():
            self._text(key)
            self.write(schema.items[0], item, depth + 1)
        self.out.append(0)

    def _union(self, schema: AvroType, value: Any, depth: int) -> None:
        name, inner = "null", None
        if value is not None:
            if not isinstance(value, dict) or len(value) != 1:
                names = ", ".join(branch_name(one) for one in schema.items)[:200]
                raise DataError(f'a value of a union is null, or an object such as {{"string": "a"}}: {names}')
            ((name, inner),) = value.items()
        for number, branch in enumerate(schema.items):
            if branch_name(branch) == name:
                self._number(number)
                self.write(branch, inner, depth + 1)
                return
        raise DataError(f"the union has no branch {name[:_SHOWN]}")

    def _record(self, schema: AvroType, value: Any, depth: int) -> None:
        if not isinstance(value, dict):
            raise _unlike(schema, value)
        for field in schema.fields:
            if field.name not in value:
                raise DataError(f"the field {field.name[:_SHOWN]} of {schema.name[:_SHOWN]} is missing")
            try:
                self.write(field.type, value[field.name], depth + 1)
            except DataError as error:
                told = f"{field.name[:_SHOWN]}: {error}"
                raise DataError(told if len(told) <= _TOLD_MAX else str(error)) from None
        if len(value) > len(schema.fields):
            known = {field.name for field in schema.fields}
            unknown = next(name for name in value if name not in known)
            raise DataError(f"{schema.name[:_SHOWN]} does not know the field {unknown[:_SHOWN]}")


def _unlike(schema: AvroType, value: Any) -> DataError:
    shown = type(value).__name__ if isinstance(value, dict | list) else repr(value)[:_SHOWN]
    return DataError(f"{shown} is no {schema.kind}{f' {schema.name[:_SHOWN]}' if schema.name else ''}")


class _Decoder:
    """Reads values one after the other."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self._left = _COST_MIN + _COST_PER_BYTE * len(data)
        self._readers: Mapping[str, Callable[[AvroType, int], Any]] = {
            "null": lambda _, __: None,
            "boolean": self._boolean,
            "int": lambda _, __: self._number(),
            "long": lambda _, __: self._number(),
            "float": self._float,
            "double": lambda _, __: json_number(_DOUBLE.unpack(self._take(_DOUBLE.size))[0]),
            "bytes": lambda _, __: self._take(self._number()).decode("latin-1"),
            "string": lambda _, __: self._text(),
            "fixed": lambda schema, _: self._take(schema.size).decode("latin-1"),
            "enum": self._enum,
            "array": self._array,
            "map": self._map,
            "union": self._union,
            "record": self._record,
        }

    def read(self, schema: AvroType, depth: int) -> Any:
        """The next value. Raises `DataError`."""
        if depth > _DEPTH_MAX:
            raise DataError(f"it is nested more than {_DEPTH_MAX} deep")
        self._spend(1)
        return self._readers[schema.kind](schema, depth)

    def branch(self, schema: AvroType) -> AvroType:
        """The branch of a union that comes next. Raises `DataError`."""
        number = self._number()
        if not 0 <= number < len(schema.items):
            raise DataError(f"it is not of its schema: a union has no branch {number}")
        return schema.items[number]

    def finish(self) -> None:
        """Raise `DataError` when bytes are left."""
        if self._at < len(self._data):
            raise DataError(f"{len(self._data) - self._at} bytes are left behind what its schema describes")

    def _spend(self, cost: int) -> None:
        self._left -= cost
        if self._left < 0:
            raise DataError("it would be far longer in JSON than it is")

    def _take(self, size: int) -> bytes:
        end = self._at + size
        if size < 0 or end > len(self._data):
            raise DataError("it is not of its schema: it ends within a value")
        found = self._data[self._at : end]
        self._at = end
        return found

    def _number(self) -> int:
        value = 0
        for shift in range(0, 7 * _VARINT_BYTES_MAX, 7):
            if self._at >= len(self._data):
                raise DataError("it is not of its schema: it ends within a number")
            byte = self._data[self._at]
            self._at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1)
        raise DataError("it is not of its schema: a number is too long")

    def _text(self) -> str:
        try:
            return self._take(self._number()).decode()
        except UnicodeDecodeError:
            raise DataError("it is not of its schema: a text is not UTF-8") from None

    def _boolean(self, _: AvroType, __: int) -> bool:
        return self._take(1) != b"\x00"

    def _float(self, _: AvroType, __: int) -> float | str:
        data = self._take(_FLOAT.size)
        found: float = _FLOAT.unpack(data)[0]
        for digits in (6, 7, 8):  # as few as stand for the same float of 32 bits
            shorter = float(f"{found:.{digits}g}")
            if math.isfinite(found) and abs(shorter) < 3.4e38 and _FLOAT.pack(shorter) == data:
                return shorter
        return json_number(found)

    def _enum(self, schema: AvroType, _: int) -> str:
        number = self._number()
        if not 0 <= number < len(schema.symbols):
            raise DataError(f"it is not of its schema: {schema.name[:_SHOWN]} has no symbol {number}")
        self._spend(len(schema.symbols[number]))
        return schema.symbols[number]

    def _array(self, schema: AvroType, depth: int) -> list[Any]:
        found: list[Any] = []
        while count := self._count():
            found.extend(self.read(schema.items[0], depth + 1) for _ in range(count))
        return found

    def _map(self, schema: AvroType, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while count := self._count():
            for _ in range(count):
                key = self._text()
                found[key] = self.read(schema.items[0], depth + 1)
        return found

    def _count(self) -> int:
        """How many items a block has. A negative number has the size of the block in bytes behind it."""
        count = self._number()
        if count < 0:
            self._number()
        return abs(count)

    def _union(self, schema: AvroType, depth: int) -> Any:
        branch = self.branch(schema)
        if branch.kind == "null":
            return None
        name = branch_name(branch)
        self._spend(len(name))
        return {name: self.read(branch, depth + 1)}

    def _record(self, schema: AvroType, depth: int) -> dict[str, Any]:
        found = {}
        for field in schema.fields:
            self._spend(len(field.name))
            found[field.name] = self.read(field.type, depth + 1)
        return found
