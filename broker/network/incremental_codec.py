"""Messages to and from bytes in steps, for those whose arrays a client has made so long that they would hold the loop.

The result is that of `wire/codec.py`. A step ends after some hundred items, counted over all nested arrays. All but
arrays is read and written by the readers and writers there.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Protocol, TypeAlias

from ...runtime.incremental_work import PLAIN_STEP, Pace, Work
from ...runtime.ports import Buffer
from ...wire.api_keys import ApiKey
from ...wire.codec import (
    Fields,
    Struct,
    array_length_reader,
    array_length_writer,
    fields_read_step,
    fields_write_step,
    item_reader,
    item_writer,
    runs_of_fields,
    tags_read_step,
    tags_write_step,
)
from ...wire.errors import WireFormatError
from ...wire.schemas import Field, Schema, load_api_schema

RESPONSE_BYTES_MAX = 100 * 1024 * 1024
"""As much as a request may have (`socket.request.max.bytes`). Few bytes can ask for gigabytes."""


SCALAR_BYTES = 60
"""About what a text or a large number takes in memory, with its place in a list."""
STRUCT_BYTES = 240
"""About what an item with fields takes, without them."""

COPIED_BYTES_PER_ITEM = 4096
"""To copy so many bytes takes as long as to write one item."""

FREED_PER_STEP = 512
"""To free an item takes a few times less than to make it."""


class ResponseTooLargeError(Exception):
    """The request asks for more than a response may have."""


class ItemCounter(Protocol):
    """Counts the memory that the items of a request take."""

    def count(self, size_bytes: int) -> None:
        """More items are known. Raises `WireFormatError` where they are too many."""
        ...

    def check(self) -> None:
        """Raises `WireFormatError` when nobody needs the items any more."""
        ...


class EncodingPace(Pace):
    """Counts the items of a step, and remembers the last array of each field.

    Rows of a response often share one array, such as the configurations of topics that have none of their own.
    """

    __slots__ = ("_written",)

    def __init__(self) -> None:
        super().__init__()
        self._written: dict[_WriteWork, tuple[Any, int, int]] = {}

    def copy_if_written(self, writer: _WriteWork, items: Any, out: bytearray) -> bool:
        """Whether the writer's last array was this very one; then its bytes are copied from where they stand."""
        last = self._written.get(writer)
        if last is None or last[0] is not items:
            return False
        out += out[last[1] : last[2]]
        self.add((last[2] - last[1]) // COPIED_BYTES_PER_ITEM)
        return True

    def note_written(self, writer: _WriteWork, items: Any, start: int, end: int) -> None:
        """The writer has written an array into these bytes."""
        self._written[writer] = (items, start, end)


class DecodingPace(Pace):
    """Counts the items of a step, and the memory of all items."""

    __slots__ = ("check", "count")

    def __init__(self, counter: ItemCounter) -> None:
        super().__init__()
        self.count = counter.count
        self.check = counter.check


_ReadWork: TypeAlias = Callable[[Any, int, DecodingPace], Work[tuple[Any, int]]]
_WriteWork: TypeAlias = Callable[[bytearray, Any, EncodingPace], Work[None]]


def _has_arrays(schema: Schema) -> bool:
    return any(field.array for field in schema.fields)


def _array_reader(field: Field, flexible: bool) -> _ReadWork:
    read_count, read_item = array_length_reader(field, flexible), item_reader(field, flexible)
    nested = _struct_reader(field.schema) if field.schema is not None and _has_arrays(field.schema) else None
    item_bytes = SCALAR_BYTES if field.schema is None else STRUCT_BYTES + SCALAR_BYTES * len(field.schema.fields)

    def read(data: Buffer, position: int, pace: DecodingPace) -> Work[tuple[Any, int]]:
        count, position = read_count(data, position)
        if count < 0:
            return None, position
        pace.count(count * item_bytes)
        items = []
        for _ in range(count):
            if nested is None:
                item, position = read_item(data, position)
            else:
                item, position = yield from nested(data, position, pace)
            items.append(item)
            if pace.ends_step():
                pace.check()
                yield PLAIN_STEP
        return items, position

    return read


def _struct_reader(schema: Schema) -> _ReadWork:
    parts: list[tuple[str, _ReadWork | None, Any]] = []
    for run in runs_of_fields(schema.fields):
        if run[0].array:
            parts.append((run[0].name, _array_reader(run[0], schema.flexible), None))
        else:
            parts.append(("", None, fields_read_step(run, schema.flexible)))
    if schema.flexible:
        parts.append(("", None, tags_read_step(schema.tagged)))

    def read(data: Buffer, position: int, pace: DecodingPace) -> Work[tuple[Any, int]]:
        values: dict[str, Any] = {}
        for name, work, step in parts:
            if work is None:
                position = step(data, position, values)
            else:
                values[name], position = yield from work(data, position, pace)
        return Struct(values), position

    return read


def _array_writer(field: Field, flexible: bool) -> _WriteWork:
    write_count, write_item = array_length_writer(field, flexible), item_writer(field, flexible)
    nested = _struct_writer(field.schema) if field.schema is not None and _has_arrays(field.schema) else None

    def write(out: bytearray, items: Any, pace: EncodingPace) -> Work[None]:
        if pace.copy_if_written(write, items, out):
            return
        start = len(out)
        write_count(out, items)
        for item in items or ():
            if nested is None:
                write_item(out, item)
            else:
                yield from nested(out, item, pace)
            if pace.ends_step():
                if len(out) > RESPONSE_BYTES_MAX:
                    raise ResponseTooLargeError(f"the response would have more than {RESPONSE_BYTES_MAX} bytes")
                yield PLAIN_STEP
        if items:
            pace.note_written(write, items, start, len(out))

    return write


def _struct_writer(schema: Schema) -> _WriteWork:
    parts: list[tuple[Field | None, _WriteWork | None, Any]] = []
    for run in runs_of_fields(schema.fields):
        if run[0].array:
            parts.append((run[0], _array_writer(run[0], schema.flexible), None))
        else:
            parts.append((None, None, fields_write_step(run, schema.flexible)))
    if schema.flexible:
        parts.append((None, None, tags_write_step(schema.tagged)))

    def write(out: bytearray, value: Any, pace: EncodingPace) -> Work[None]:
        values: Mapping[str, Any] = value.__dict__ if isinstance(value, Struct) else value
        for field, work, step in parts:
            if work is None or field is None:
                step(out, values)
            else:
                items = values[field.name] if field.name in values else field.default()
                yield from work(out, items, pace)

    return write


@cache
def _request_reader(api_key: int, version: int) -> _ReadWork:
    return _struct_reader(load_api_schema(ApiKey(api_key), version, "request"))


@cache
def _response_writer(api_key: int, version: int) -> _WriteWork:
    return _struct_writer(load_api_schema(ApiKey(api_key), version, "response"))


def decode_request_in_steps(api_key: int, version: int, data: Buffer, counter: ItemCounter) -> Work[Struct]:
    """The work of `codec.decode_request`. `data` must stay as it is until the end. `counter` may end it."""
    try:
        message, _ = yield from _request_reader(api_key, version)(data, 0, DecodingPace(counter))
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise WireFormatError(str(error)) from error
    request: Struct = message
    return request


def encode_response_in_steps(api_key: int, version: int, fields: Fields) -> Work[bytearray]:
    """The work of `codec.encode_response`. `fields` must stay as they are until the end."""
    out = bytearray()
    try:
        yield from _response_writer(api_key, version)(out, fields, EncodingPace())
    except struct.error as error:
        raise ValueError(f"cannot encode a response of API {api_key}: {error}") from error
    return out


def free_in_steps(values: list[Any]) -> Work[None]:
    """Let go of messages that nobody else refers to. A message of 400,000 items takes 20 to 80 ms to be freed at once.

    The list is empty afterwards. What somebody does refer to stays as it is.
    """
    while values:
        _free_some(values)
        yield PLAIN_STEP


def _free_some(values: list[Any]) -> None:
    """Let go of some values. What their arrays have comes in their place."""
    freed = values[-FREED_PER_STEP:]
    del values[-FREED_PER_STEP:]
    shared: list[Any] | None = None
    for value in freed:
        fields = value.__dict__ if isinstance(value, Struct) else value
        if isinstance(fields, dict):
            for field in fields.values():
                if isinstance(field, list) and field is not shared:
                    values.extend(field)
                    shared = field
