"""The frame that Confluent's serializers put before data: a zero byte and the id of the schema in four bytes.

With Protobuf the path to the message type follows: which message of the file, then which message in that, as zigzag
numbers with their count before them. A single zero stands for the first message.
"""

from __future__ import annotations

import struct

_MAGIC = 0
_HEAD = struct.Struct(">bI")
_DEPTH_MAX = 100


class FrameError(ValueError):
    """Bytes that do not begin with such a frame; the message says why."""


def split_frame(data: bytes) -> tuple[int, bytes] | None:
    """The schema's id and the bytes behind the frame; None for bytes without one."""
    if len(data) < _HEAD.size or data[0] != _MAGIC:
        return None
    _, schema_id = _HEAD.unpack_from(data)
    return schema_id, data[_HEAD.size :]


def framed(schema_id: int, data: bytes) -> bytes:
    """Data behind the frame of its schema."""
    return _HEAD.pack(_MAGIC, schema_id) + data


def split_message_path(data: bytes) -> tuple[list[int], bytes]:
    """The path to the message type, and the message. Raises `FrameError`."""
    count, at = _zigzag(data, 0)
    if count == 0:
        return [0], data[at:]
    if not 0 < count <= _DEPTH_MAX:
        raise FrameError(f"a path of {count} messages")
    path = []
    for _ in range(count):
        index, at = _zigzag(data, at)
        path.append(index)
    return path, data[at:]


def _zigzag(data: bytes, at: int) -> tuple[int, int]:
    """A number, and where it ends."""
    value = 0
    for shift in range(0, 35, 7):
        if at >= len(data):
            raise FrameError("it ends within the path to the message type")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
    raise FrameError("a number of the path to the message type is too long")
