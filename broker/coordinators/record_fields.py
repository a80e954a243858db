"""Records of the coordinators' topics: readers and writers of their fields, in the plain and the compact encoding."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeVar
from uuid import UUID

from ...wire.errors import WireFormatError
from ...wire.frames import read_uvarint, write_uvarint

T = TypeVar("T")

TEXT_BYTES_MAX = 2**15 - 1
"""The longest text of a record, in both encodings."""
EPOCH_MAX = 2**30
"""No group reaches a higher epoch or generation. From one in a hostile record, the next might not fit in 32 bits."""
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")


class CoordinatorRecord(NamedTuple):
    """A record of a coordinator's topic; a value of None makes it a tombstone."""

    key: bytes
    value: bytes | None


class BadRecord(Exception):
    """A record does not have the fields of its type, or values that no group can have."""


class FieldReader:
    """Reads one field after another; raises `BadRecord` where the bytes end early. `compact`: flexible versions."""

    def __init__(self, data: bytes, *, compact: bool = False, position: int = 0) -> None:
        self._data = data
        self._at = position
        self.compact = compact

    def int8(self) -> int:
        """A signed integer of 1 byte."""
        return int.from_bytes(self._take(1), "big", signed=True)

    def int16(self) -> int:
        """A signed integer of 2 bytes."""
        return int(_INT16.unpack(self._take(2))[0])

    def int32(self) -> int:
        """A signed integer of 4 bytes."""
        return int(_INT32.unpack(self._take(4))[0])

    def int64(self) -> int:
        """A signed integer of 8 bytes."""
        return int(_INT64.unpack(self._take(8))[0])

    def epoch(self, least: int = 0) -> int:
        """An epoch or generation of a group, at least `least` and at most `EPOCH_MAX`."""
        value = self.int32()
        if not least <= value <= EPOCH_MAX:
            raise BadRecord(f"epoch {value}, which must be between {least} and {EPOCH_MAX}")
        return value

    def uuid(self) -> UUID:
        """A UUID of 16 bytes."""
        return UUID(bytes=self._take(16))

    def string(self) -> str:
        """A text that must not be null."""
        text = self.nullable_string()
        if text is None:
            raise BadRecord("null where a text must be")
        return text

    def nullable_string(self) -> str | None:
        """A text or null."""
        length = self._uvarint() - 1 if self.compact else self.int16()
        if length > TEXT_BYTES_MAX:
            raise BadRecord(f"a text of {length} bytes")
        try:
            return None if length < 0 else str(self._take(length), "utf-8")
        except UnicodeDecodeError as error:
            raise BadRecord(str(error)) from error

    def blob(self) -> bytes:
        """Bytes; empty for null."""
        length = self._uvarint() - 1 if self.compact else self.int32()
        return b"" if length < 0 else self._take(length)

    def array(self, item: Callable[[], T]) -> list[T]:
        """An array; empty for null."""
        count = self._uvarint() - 1 if self.compact else self.int32()
        if count > len(self._data) - self._at:
            raise BadRecord(f"{count} items in {len(self._data) - self._at} bytes")
        return [item() for _ in range(count)]

    def tags(self) -> dict[int, bytes]:
        """The tagged fields at the end of a struct; none in the plain encoding."""
        if not self.compact:
            return {}
        found = {}
        for _ in range(self._uvarint()):
            tag = self._uvarint()
            found[tag] = self._take(self._uvarint())
        return found

    def _uvarint(self) -> int:
        try:
            value, self._at = read_uvarint(self._data, self._at)
        except (IndexError, WireFormatError) as error:
            raise BadRecord("the record ends within a length") from error
        return value

    def _take(self, length: int) -> bytes:
        start, self._at = self._at, self._at + length
        if length < 0 or self._at > len(self._data):
            raise BadRecord(f"{length} bytes wanted at {start}, {len(self._data) - start} left")
        return self._data[start : self._at]


class FieldWriter:
    """Writes one field after another to `data`."""

    def __init__(self, *, compact: bool = False) -> None:
        self.data = bytearray()
        self.compact = compact

    def int8(self, value: int) -> FieldWriter:
        """A signed integer of 1 byte."""
        self.data += value.to_bytes(1, "big", signed=True)
        return self

    def int16(self, value: int) -> FieldWriter:
        """A signed integer of 2 bytes."""
        self.data += _INT16.pack(value)
        return self

    def int32(self, value: int) -> FieldWriter:
        """A signed integer of 4 bytes."""
        self.data += _INT32.pack(value)
        return self

    def int64(self, value: int) -> FieldWriter:
        """A signed integer of 8 bytes."""
        self.data += _INT64.pack(value)
        return self

    def uuid(self, value: UUID) -> FieldWriter:
        """A UUID of 16 bytes."""
        self.data += value.bytes
        return self

    def string(self, text: str | None) -> FieldWriter:
        """A text or null."""
        raw = None if text is None else text.encode()
        if self.compact:
            write_uvarint(self.data, 0 if raw is None else len(raw) + 1)
        else:
            self.int16(-1 if raw is None else len(raw))
        self.data += raw or b""
        return self

    def blob(self, raw: bytes) -> FieldWriter:
        """Bytes with their length."""
        self.count(len(raw))
        self.data += raw
        return self

    def count(self, count: int) -> FieldWriter:
        """The length of an array or of bytes."""
        if self.compact:
            write_uvarint(self.data, count + 1)
        else:
            self.int32(count)
        return self

    def null_array(self) -> FieldWriter:
        """An array that is null."""
        return self.count(-1)

    def tags(self) -> FieldWriter:
        """An empty section of tagged fields; nothing in the plain encoding."""
        return self.tagged({})

    def tagged(self, fields: Mapping[int, bytes]) -> FieldWriter:
        """A section of tagged fields, in ascending order; nothing in the plain encoding."""
        if self.compact:
            write_uvarint(self.data, len(fields))
            for tag, raw in fields.items():
                write_uvarint(self.data, tag)
                write_uvarint(self.data, len(raw))
                self.data += raw
        return self
