"""The parts that Produce and Fetch share: strings, arrays, tagged fields, topic keys and endpoints of leaders.

A reader takes a memoryview and a position, and returns the value and the position after it. It raises
`WireFormatError` or one of `MALFORMED`, which the decoder of the whole message turns into a `WireFormatError`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import NamedTuple
from uuid import UUID

from ..runtime.ports import Buffer
from .codec import uuid_from_bytes
from .errors import WireFormatError
from .frames import read_tag_count, read_uvarint, skip_tagged_fields, write_uvarint
from .types import STRING_BYTES_MAX

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_UUID = struct.Struct("16s")

MALFORMED = (struct.error, IndexError, UnicodeDecodeError)
"""What is raised when a reader goes past the end, or when a string is not UTF-8."""


class NodeEndpoint(NamedTuple):
    """The address of a leader that a response names (KIP-951)."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


def read_count(view: memoryview, position: int, flexible: bool, item_size: int) -> tuple[int, int]:
    """The length of a non-null array whose items take at least `item_size` bytes each."""
    if flexible:
        count, position = read_uvarint(view, position)
        count -= 1
    else:
        count, position = _INT32.unpack_from(view, position)[0], position + 4
    if count < 0 or count * item_size > len(view) - position:
        raise WireFormatError(f"array of {count} items with {len(view) - position} bytes left")
    return count, position


def read_string(view: memoryview, position: int, flexible: bool) -> tuple[str | None, int]:
    """A string, or None for null."""
    if flexible:
        length, position = read_uvarint(view, position)
        length -= 1
    else:
        length, position = _INT16.unpack_from(view, position)[0], position + 2
    if length == -1:
        return None, position
    stop = position + length
    if length < 0 or length > STRING_BYTES_MAX or stop > len(view):
        raise WireFormatError(f"string of {length} bytes with {len(view) - position} left")
    return str(view[position:stop], "utf-8"), stop


def read_text(view: memoryview, position: int, flexible: bool) -> tuple[str, int]:
    """A string that must not be null."""
    text, position = read_string(view, position, flexible)
    if text is None:
        raise WireFormatError(f"null string at {position}")
    return text, position


def read_records(view: memoryview, position: int, flexible: bool) -> tuple[memoryview | None, int]:
    """Record batches as a slice of `view`, or None for null."""
    if flexible:
        length, position = read_uvarint(view, position)
        length -= 1
    else:
        length, position = _INT32.unpack_from(view, position)[0], position + 4
    if length == -1:
        return None, position
    stop = position + length
    if length < 0 or stop > len(view):
        raise WireFormatError(f"record set of {length} bytes with {len(view) - position} left")
    return view[position:stop], stop


def read_topic_key(view: memoryview, position: int, flexible: bool, by_id: bool) -> tuple[str | None, UUID | None, int]:
    """A topic's name or its id; the other one is None."""
    if by_id:
        return None, uuid_from_bytes(_UUID.unpack_from(view, position)[0]), position + 16
    name, position = read_text(view, position, flexible)
    return name, None, position


def skip_tags(view: memoryview, position: int) -> int:
    """The position after a section of tagged fields."""
    return position + 1 if view[position] == 0 else skip_tagged_fields(view, position)


def read_tags(view: memoryview, position: int, on_tag: Callable[[int, int], int | None]) -> int:
    """Call `on_tag(tag, start)` for each tagged field; returns the position after the section.

    `on_tag` returns the position after the field's content, or None when it does not know the tag.
    """
    count, position = read_tag_count(view, position)
    for _ in range(count):
        tag, position = read_uvarint(view, position)
        length, position = read_uvarint(view, position)
        stop = position + length
        if stop > len(view):
            raise WireFormatError(f"tagged field of {length} bytes with {len(view) - position} left")
        if on_tag(tag, position) not in (None, stop):
            raise WireFormatError(f"tagged field {tag} is not of the {length} bytes it says")
        position = stop
    return position


def check_end(end: int, view: memoryview, what: str) -> None:
    """Raise `WireFormatError` unless the message ends where its bytes end."""
    if end != len(view):
        raise WireFormatError(f"{what} ends at {end} of {len(view)} bytes")


def write_count(out: bytearray, count: int, flexible: bool) -> None:
    """Append the length of an array."""
    if flexible:
        write_uvarint(out, count + 1)
    else:
        out += _INT32.pack(count)


def write_string(out: bytearray, text: str | None, flexible: bool) -> None:
    """Append a string, or null for None."""
    raw = b"" if text is None else text.encode()
    length = -1 if text is None else len(raw)
    if flexible:
        write_uvarint(out, length + 1)
    else:
        out += _INT16.pack(length)
    out += raw


def write_topic_key(out: bytearray, name: str | None, topic_id: UUID | None, flexible: bool, by_id: bool) -> None:
    """Append a topic's name or its id."""
    if by_id:
        out += bytes(16) if topic_id is None else topic_id.bytes
    else:
        write_string(out, name or "", flexible)


def write_tag(out: bytearray, tag: int, content: Buffer) -> None:
    """Append one tagged field (KIP-482)."""
    write_uvarint(out, tag)
    write_uvarint(out, len(content))
    out += content


def write_node_endpoints_tags(out: bytearray, endpoints: Sequence[NodeEndpoint]) -> None:
    """Append a section of tagged fields with the endpoints, or an empty one where there are none."""
    if not endpoints:
        out.append(0)
        return
    content = bytearray()
    write_uvarint(content, len(endpoints) + 1)
    for node_id, host, port, rack in endpoints:
        content += _INT32.pack(node_id)
        write_string(content, host, flexible=True)
        content += _INT32.pack(port)
        write_string(content, rack, flexible=True)
        content.append(0)
    out.append(1)
    write_tag(out, 0, content)


def read_node_endpoints(view: memoryview, position: int) -> tuple[list[NodeEndpoint], int]:
    """The array of endpoints in a tagged field."""
    count, position = read_count(view, position, flexible=True, item_size=11)
    endpoints = []
    for _ in range(count):
        (node_id,) = _INT32.unpack_from(view, position)
        host, position = read_text(view, position + 4, flexible=True)
        (port,) = _INT32.unpack_from(view, position)
        rack, position = read_string(view, position + 4, flexible=True)
        position = skip_tags(view, position)
        endpoints.append(NodeEndpoint(node_id, host, port, rack))
    return endpoints, position
