"""The lines in which `raftwerk consume` prints records: the formats of `kcat -f`."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from ..options import as_bytes
from .decoding import line_of

if TYPE_CHECKING:
    from ...cluster.client.consumer import Consumed

_Part = bytes | str
"""Text as it is, or the letter of a field."""

FIELDS: Mapping[str, str] = MappingProxyType(
    {
        "t": "topic",
        "p": "partition",
        "o": "offset",
        "k": "key",
        "s": "value",
        "h": "headers",
        "T": "timestamp in milliseconds",
        "K": "length of the key in bytes, -1 for null",
        "S": "length of the value in bytes, -1 for null",
        "R": "length of the value as 32 bits, big-endian",
    }
)
_ESCAPES = {"n": b"\n", "r": b"\r", "t": b"\t", "\\": b"\\"}
_TOKEN = re.compile(r"%(?P<field>.?)|\\x(?P<hex>[0-9A-Fa-f]{2})|\\(?P<escape>.?)|[^%\\]+", re.DOTALL)


class FormatError(ValueError):
    """A format has an unknown field or escape."""


def parse(text: str) -> list[_Part]:
    """The parts of a format. Raises `FormatError`."""
    parts: list[_Part] = []
    for token in _TOKEN.finditer(text):
        field, code, escape = token["field"], token["hex"], token["escape"]
        if field is not None:
            if field != "%" and field not in FIELDS:
                raise FormatError(
                    f"'{token[0]}' is not a field; the fields are {', '.join(f'%{name}' for name in FIELDS)}, %%"
                )
            parts.append(b"%" if field == "%" else field)
        elif code is not None:
            parts.append(bytes([int(code, 16)]))
        elif escape is not None:
            if escape not in _ESCAPES:
                raise FormatError(f"'{token[0]}' is not an escape; the escapes are \\n, \\r, \\t, \\xFF and \\\\")
            parts.append(_ESCAPES[escape])
        else:
            parts.append(as_bytes(token[0]))
    return parts


def unescaped(text: str) -> bytes:
    """The bytes of a separator, in which backslashes escape as in a format. Raises `FormatError`."""
    return b"".join(part for part in parse(text.replace("%", "%%")) if isinstance(part, bytes))


def key_and_value(separator: str | None) -> list[_Part]:
    """The value in a line of its own; with a separator the key before it. Raises `FormatError`."""
    key: list[_Part] = [] if separator is None else ["k", unescaped(separator)]
    return [*key, "s", b"\n"]


class Formatter:
    """Prints records by a format. Null is printed as the text `null`; `how` is one of the ways of `decoding`."""

    def __init__(self, topic: str, parts: list[_Part], how: str, null: str) -> None:
        self._null = as_bytes(null)
        self._how = how
        fields: dict[str, Callable[[Consumed], bytes]] = {
            "t": lambda _: topic.encode(),
            "p": lambda one: b"%d" % one.partition,
            "o": lambda one: b"%d" % one.record.offset,
            "k": lambda one: self._text(one.record.key),
            "s": lambda one: self._text(one.record.value),
            "h": self._headers,
            "T": lambda one: b"%d" % one.record.timestamp,
            "K": lambda one: b"%d" % _length(one.record.key),
            "S": lambda one: b"%d" % _length(one.record.value),
            "R": lambda one: struct.pack(">i", _length(one.record.value)),
        }
        self._parts = [part if isinstance(part, bytes) else fields[part] for part in parts]

    def line(self, consumed: Consumed) -> bytes:
        """The record, printed."""
        return b"".join(part if isinstance(part, bytes) else part(consumed) for part in self._parts)

    def _text(self, data: bytes | None) -> bytes:
        return self._null if data is None else line_of(data, self._how)

    def _headers(self, consumed: Consumed) -> bytes:
        return b",".join(
            name.encode() + b"=" + (self._null if value is None else value) for name, value in consumed.record.headers
        )


def _length(data: bytes | None) -> int:
    return -1 if data is None else len(data)
