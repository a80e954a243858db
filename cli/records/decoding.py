"""Shows keys and values of records as text, JSON, msgpack, hexadecimal, internal records, or as their bytes."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from ...cluster.client.consumer import Consumed


_STRING_OR_BLANKS = re.compile(r'"(?:[^"\\]|\\.)*"|[ \t\r\n]+')


def _json_of_json(data: bytes) -> str:
    """The same JSON without blanks, and with characters for their escapes; numbers stay as they were written."""
    text = data.decode(json.detect_encoding(data))
    json.loads(text, parse_int=str, parse_float=str, parse_constant=_no_number)
    return _STRING_OR_BLANKS.sub(_plain_token, text)


def _plain_token(found: re.Match[str]) -> str:
    token = found[0]
    if token[0] != '"':
        return ""
    return as_json(json.loads(token)) if "\\" in token else token


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number of JSON")


def _json_of_msgpack(data: bytes) -> str:
    import msgpack

    return as_json(msgpack.unpackb(data, timestamp=3, strict_map_key=False))


def _json_of_text(data: bytes) -> str:
    return as_json(data.decode("utf-8", "backslashreplace"))


def _json_of_hex(data: bytes) -> str:
    return as_json(data.hex())


DECODERS: Mapping[str, Callable[[bytes], str]] = MappingProxyType(
    {"string": _json_of_text, "json": _json_of_json, "msgpack": _json_of_msgpack, "hex": _json_of_hex}
)
"""How a key or value becomes JSON."""
RAW = "raw"
"""The bytes as they are, for pipes."""
INTERNAL = "internal"
"""The records of the topics that Kafka keeps groups and transactions in."""


def readable(topic: str, consumed: Consumed) -> Consumed:
    """The record of an internal topic with JSON as key and value; as it is where its type is not known."""
    from ...broker.internal_records import readable_record

    record = consumed.record
    found = readable_record(topic, record.key, record.value)
    if found is None:
        return consumed
    value = None if found.value is None else as_json(found.value).encode()
    return replace(consumed, record=record._replace(key=as_json(found.key).encode(), value=value))


def json_of(data: bytes | None, how: str) -> str:
    """`data` decoded by one of `DECODERS`, as JSON; as a text if that fails, so that a bad record does not end the
    reading.

    It fails, too, if its value cannot be shown as JSON, such as a surrogate without its pair, or a number that is none.
    """
    if data is None:
        return "null"
    try:
        found = DECODERS[how](data)
        found.encode()
    except (ValueError, TypeError, OverflowError, RecursionError):
        return _json_of_text(data)
    return found


def is_text(data: bytes | None) -> bool:
    """Whether it is UTF-8, or null."""
    try:
        return data is None or data.decode() is not None
    except UnicodeDecodeError:
        return False


def base64(data: bytes | None) -> str | None:
    """The bytes in base 64 (RFC 4648); null stays null."""
    return None if data is None else b64encode(data).decode()


def line_of(data: bytes | None, how: str) -> bytes:
    """A key or value for a line: a string without quotes, anything else as JSON, a tombstone as nothing."""
    if how == RAW or data is None:
        return data or b""
    found = json_of(data, how)
    return (json.loads(found) if found.startswith('"') else found).encode()


def as_json(value: object) -> str:
    """Compact JSON; bytes in it become hexadecimal, times their ISO form. Raises ValueError for NaN and infinity."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False, default=_plain)


def _plain(value: object) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)
