"""Shows keys and values of records as text, JSON, msgpack, hexadecimal, internal records, or as their bytes."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...cluster.client.consumer import Consumed


def _as_json(data: bytes) -> object:
    return json.loads(data)


def _as_msgpack(data: bytes) -> object:
    import msgpack

    return msgpack.unpackb(data, timestamp=3, strict_map_key=False)


def _as_text(data: bytes) -> object:
    return data.decode("utf-8", "backslashreplace")


def _as_hex(data: bytes) -> object:
    return data.hex()


DECODERS: Mapping[str, Callable[[bytes], object]] = MappingProxyType(
    {"string": _as_text, "json": _as_json, "msgpack": _as_msgpack, "hex": _as_hex}
)
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


def decode(data: bytes | None, how: str) -> object:
    """`data` decoded by one of `DECODERS`; as text if that fails, so that a bad record does not end the reading.

    It fails, too, if its value cannot be shown as JSON, such as a surrogate without its pair.
    """
    if data is None:
        return None
    try:
        value = DECODERS[how](data)
        as_json([value]).encode()  # a level deeper, as in a row of consume --json
    except (ValueError, TypeError, OverflowError, RecursionError):
        return _as_text(data)
    return value


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
    value = decode(data, how)
    return (value if isinstance(value, str) else as_json(value)).encode()


def as_json(value: object) -> str:
    """Compact JSON; bytes in it become hexadecimal, times their ISO form."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, default=_plain)


def _plain(value: object) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)
