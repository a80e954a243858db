"""Messages to and from bytes, by the schemas in `wire/message_schemas`.

When an API's version is first used, its schema is turned into a reader or a writer: a chain of closures in which a run
of fixed-size fields is one `struct` call. Values are plain: times are ints in milliseconds, error codes are ints, a
topic id is a `uuid.UUID` and the zero id is None. A decoded message is a `Struct`; `wire/message_types` tells type
checkers which fields each message has.

The reader trusts nothing: every length is compared with the bytes left before anything is sliced or looped over.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any, Generic, TypeAlias, TypeVar
from uuid import UUID

from ..runtime.ports import Buffer
from .api_keys import ApiKey
from .errors import UnencodableError, WireFormatError
from .frames import read_tag_count, read_uvarint, write_uvarint
from .schemas import Field, Schema, load_api_schema, load_data_schema
from .types import STRING_BYTES_MAX

S = TypeVar("S")

Fields: TypeAlias = "Mapping[str, Any] | Struct"
Reader: TypeAlias = Callable[[Any, int], tuple[Any, int]]
Writer: TypeAlias = Callable[[bytearray, Any], None]
ReadStep: TypeAlias = Callable[[Any, int, dict[str, Any]], int]
WriteStep: TypeAlias = Callable[[bytearray, Mapping[str, Any]], None]

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_ZERO_UUID = bytes(16)


class Struct:
    """A decoded message, or a struct in it, with its fields as attributes.

    It has the fields of its version only; `get` is for fields that some versions lack.
    """

    def __init__(self, fields: dict[str, Any]) -> None:
        self.__dict__ = fields

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"this version has no field {name!r}; it has {', '.join(self.__dict__)}")

    def get(self, name: str, default: Any = None) -> Any:
        """The field, or `default` where this version does not have it."""
        return self.__dict__.get(name, default)

    def to_dict(self) -> dict[str, Any]:
        """Plain nested dicts and lists."""
        return {name: _plain(value) for name, value in self.__dict__.items()}

    def __contains__(self, name: str) -> bool:
        return name in self.__dict__

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Struct):
            return self.__dict__ == other.__dict__
        if isinstance(other, Mapping):
            return self.__dict__ == other
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Struct({', '.join(f'{name}={value!r}' for name, value in self.__dict__.items())})"


def _plain(value: Any) -> Any:
    if isinstance(value, Struct):
        return value.to_dict()
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value


@lru_cache(maxsize=4096)
def uuid_from_bytes(raw: bytes) -> UUID | None:
    """The UUID of 16 bytes, None for zero. Cached, because the same topic ids come in many requests."""
    return None if raw == _ZERO_UUID else UUID(bytes=raw)


# --- reading ---------------------------------------------------------------------------------------------------------


def _need(length: int, position: int, data: Buffer) -> int:
    stop = position + length
    if stop > len(data):
        raise WireFormatError(f"{length} bytes wanted at {position}, {len(data) - position} left")
    return stop


def _read_length16(data: Buffer, position: int) -> tuple[int, int]:
    length: int = _INT16.unpack_from(data, position)[0]
    if length < -1:
        raise WireFormatError(f"negative length {length} at {position}")
    return length, position + 2


def _read_length32(data: Buffer, position: int) -> tuple[int, int]:
    length: int = _INT32.unpack_from(data, position)[0]
    if length < -1:
        raise WireFormatError(f"negative length {length} at {position}")
    return length, position + 4


def _read_compact_text_length(data: Buffer, position: int) -> tuple[int, int]:
    length, position = _read_compact_length(data, position)
    if length > STRING_BYTES_MAX:
        raise WireFormatError(f"string of {length} bytes at {position}, at most {STRING_BYTES_MAX} are taken")
    return length, position


def _read_compact_length(data: Buffer, position: int) -> tuple[int, int]:
    length, position = read_uvarint(data, position)
    return length - 1, position


def _sized_reader(
    name: str, nullable: bool, read_length: Callable[[Buffer, int], tuple[int, int]], convert: Callable[[Any], Any]
) -> Reader:
    def read(data: Buffer, position: int) -> tuple[Any, int]:
        length, position = read_length(data, position)
        if length < 0:
            if nullable:
                return None, position
            raise WireFormatError(f"null {name} at {position}")
        stop = _need(length, position, data)
        return convert(data[position:stop]), stop

    return read


def _utf8(data: Buffer) -> str:
    return str(data, "utf-8")


def _read_uuid(data: Buffer, position: int) -> tuple[UUID | None, int]:
    stop = _need(16, position, data)
    return uuid_from_bytes(bytes(data[position:stop])), stop


def _fixed_reader(fmt: str) -> Reader:
    packer = struct.Struct(">" + fmt)
    size, unpack_from = packer.size, packer.unpack_from

    def read(data: Buffer, position: int) -> tuple[Any, int]:
        return unpack_from(data, position)[0], position + size

    return read


_CONVERT: dict[str, Callable[[Any], Any]] = {"string": _utf8, "bytes": bytes, "records": memoryview}


def _scalar_reader(field: Field, flexible: bool, nullable: bool) -> Reader:
    if field.fmt is not None:
        return _fixed_reader(field.fmt)
    if field.kind == "uuid":
        return _read_uuid
    if field.kind == "string":
        read_length = _read_compact_text_length if flexible else _read_length16
    else:
        read_length = _read_compact_length if flexible else _read_length32
    return _sized_reader(field.name, nullable, read_length, _CONVERT[field.kind])


def _nullable_struct_reader(read_struct: Reader) -> Reader:
    # KIP-893: a byte of -1 for null, 1 otherwise.
    def read(data: Buffer, position: int) -> tuple[Any, int]:
        if data[position] > 0x7F:
            return None, position + 1
        return read_struct(data, position + 1)

    return read


def array_length_reader(field: Field, flexible: bool) -> Reader:
    """Reads the number of items of an array, -1 for null; it is checked against the bytes left."""
    read_length = _read_compact_length if flexible else _read_length32
    name, nullable, item_size = field.name, field.nullable, field.item_min_size

    def read(data: Buffer, position: int) -> tuple[Any, int]:
        count, position = read_length(data, position)
        if count < 0 and not nullable:
            raise WireFormatError(f"null array {name} at {position}")
        if count * item_size > len(data) - position:
            raise WireFormatError(f"{count} {name} in {len(data) - position} bytes")
        return count, position

    return read


def _array_reader(field: Field, flexible: bool, read_item: Reader) -> Reader:
    read_count = array_length_reader(field, flexible)

    def read(data: Buffer, position: int) -> tuple[Any, int]:
        count, position = read_count(data, position)
        if count < 0:
            return None, position
        items = []
        for _ in range(count):
            item, position = read_item(data, position)
            items.append(item)
        return items, position

    return read


def item_reader(field: Field, flexible: bool) -> Reader:
    """Reads one value of the field, one item where it is an array."""
    if field.schema is None:
        return _scalar_reader(field, flexible, field.nullable and not field.array)
    reader = _struct_reader(field.schema)
    return _nullable_struct_reader(reader) if field.nullable and not field.array else reader


def _field_reader(field: Field, flexible: bool) -> Reader:
    reader = item_reader(field, flexible)
    return _array_reader(field, flexible, reader) if field.array else reader


def _fixed_read_step(fields: list[Field]) -> ReadStep:
    packer = struct.Struct(">" + "".join(str(field.fmt) for field in fields))
    size, unpack_from = packer.size, packer.unpack_from
    names = tuple(field.name for field in fields)

    def step(data: Buffer, position: int, values: dict[str, Any]) -> int:
        values.update(zip(names, unpack_from(data, position)))
        return position + size

    return step


def _read_step(field: Field, flexible: bool) -> ReadStep:
    reader, name = _field_reader(field, flexible), field.name

    def step(data: Buffer, position: int, values: dict[str, Any]) -> int:
        values[name], position = reader(data, position)
        return position

    return step


def tags_read_step(tagged: list[Field]) -> ReadStep:
    """Reads the tagged fields of a struct (KIP-482); unknown ones are skipped."""
    readers = {field.tag: (field.name, _field_reader(field, flexible=True)) for field in tagged}
    defaults = [(field.name, field.default) for field in tagged]

    def step(data: Buffer, position: int, values: dict[str, Any]) -> int:
        for name, default in defaults:
            values[name] = default()
        count, position = read_tag_count(data, position)
        for _ in range(count):
            tag, position = read_uvarint(data, position)
            length, position = read_uvarint(data, position)
            stop = _need(length, position, data)
            known = readers.get(tag)
            if known is not None:
                name, reader = known
                values[name], position = reader(data, position)
                if position != stop:
                    raise WireFormatError(f"tagged field {name} is not of the {length} bytes it says")
            position = stop
        return position

    return step


def runs_of_fields(fields: Iterable[Field]) -> Iterator[list[Field]]:
    """Neighbouring fixed-size fields together, every other field alone."""
    run: list[Field] = []
    for field in fields:
        if field.fmt is not None and not field.array:
            run.append(field)
            continue
        if run:
            yield run
            run = []
        yield [field]
    if run:
        yield run


def _is_fixed(run: list[Field]) -> bool:
    return run[0].fmt is not None and not run[0].array


def fields_read_step(run: list[Field], flexible: bool) -> ReadStep:
    """Reads the fields of a run (see `runs_of_fields`)."""
    return _fixed_read_step(run) if _is_fixed(run) else _read_step(run[0], flexible)


def _struct_reader(schema: Schema) -> Reader:
    steps = [fields_read_step(run, schema.flexible) for run in runs_of_fields(schema.fields)]
    if schema.flexible:
        steps.append(tags_read_step(schema.tagged))

    def read(data: Buffer, position: int) -> tuple[Struct, int]:
        values: dict[str, Any] = {}
        for step in steps:
            position = step(data, position, values)
        return Struct(values), position

    return read


# --- writing ---------------------------------------------------------------------------------------------------------


def _write_compact_length(out: bytearray, length: int) -> None:
    write_uvarint(out, length + 1)


def _write_length16(out: bytearray, length: int) -> None:
    out += _INT16.pack(length)


def _write_length32(out: bytearray, length: int) -> None:
    out += _INT32.pack(length)


def _sized_writer(name: str, nullable: bool, write_length: Callable[[bytearray, int], None]) -> Writer:
    def write(out: bytearray, value: Any) -> None:
        if value is None:
            if not nullable:
                raise ValueError(f"{name} cannot be null")
            write_length(out, -1)
            return
        raw = value.encode() if isinstance(value, str) else value
        write_length(out, len(raw))
        out += raw

    return write


def _cut_text_writer(write: Writer) -> Writer:
    """Writes at most 32,767 bytes of an error message: it may quote a client's name that is as long already."""

    def write_cut(out: bytearray, value: str | None) -> None:
        if value is not None and len(value) * 4 > STRING_BYTES_MAX:
            value = value.encode()[:STRING_BYTES_MAX].decode(errors="ignore")
        write(out, value)

    return write_cut


def _write_uuid(out: bytearray, value: UUID | None) -> None:
    out += _ZERO_UUID if value is None else value.bytes


def _fixed_writer(fmt: str) -> Writer:
    pack = struct.Struct(">" + fmt).pack

    def write(out: bytearray, value: Any) -> None:
        out += pack(value)

    return write


def _scalar_writer(field: Field, flexible: bool, nullable: bool) -> Writer:
    if field.fmt is not None:
        return _fixed_writer(field.fmt)
    if field.kind == "uuid":
        return _write_uuid
    legacy = _write_length16 if field.kind == "string" else _write_length32
    write_length = _write_compact_length if flexible else legacy
    writer = _sized_writer(field.name, nullable, write_length)
    return _cut_text_writer(writer) if field.name.endswith("error_message") else writer


def _nullable_struct_writer(write_struct: Writer) -> Writer:
    def write(out: bytearray, value: Any) -> None:
        if value is None:
            out.append(0xFF)
        else:
            out.append(1)
            write_struct(out, value)

    return write


class Rows(Generic[S]):
    """The items of a response's array, which are made one by one while they are encoded.

    So an array whose items are large, and whose length a client chooses, takes no memory but that of the response.
    """

    __slots__ = ("_items", "_make")

    def __init__(self, make: Callable[[S], Fields], items: Sequence[S]) -> None:
        self._make = make
        self._items = items

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Fields]:
        return map(self._make, self._items)


def array_length_writer(field: Field, flexible: bool) -> Writer:
    """Writes the number of items of an array, or that it is null."""
    write_length = _write_compact_length if flexible else _write_length32
    name, nullable = field.name, field.nullable

    def write(out: bytearray, items: Any) -> None:
        if items is None and not nullable:
            raise ValueError(f"{name} cannot be null")
        write_length(out, -1 if items is None else len(items))

    return write


def _array_writer(field: Field, flexible: bool, write_item: Writer) -> Writer:
    write_count = array_length_writer(field, flexible)

    def write(out: bytearray, items: Any) -> None:
        write_count(out, items)
        for item in items or ():
            write_item(out, item)

    return write


def item_writer(field: Field, flexible: bool) -> Writer:
    """Writes one value of the field, one item where it is an array."""
    if field.schema is None:
        return _scalar_writer(field, flexible, field.nullable and not field.array)
    writer = _struct_writer(field.schema)
    return _nullable_struct_writer(writer) if field.nullable and not field.array else writer


def _field_writer(field: Field, flexible: bool) -> Writer:
    writer = item_writer(field, flexible)
    return _array_writer(field, flexible, writer) if field.array else writer


def _fixed_write_step(fields: list[Field]) -> WriteStep:
    pack = struct.Struct(">" + "".join(str(field.fmt) for field in fields)).pack
    defaults = [(field.name, field.default()) for field in fields]

    def step(out: bytearray, values: Mapping[str, Any]) -> None:
        get = values.get
        out += pack(*[get(name, default) for name, default in defaults])

    return step


def _write_step(field: Field, flexible: bool) -> WriteStep:
    writer, name, default = _field_writer(field, flexible), field.name, field.default()

    def step(out: bytearray, values: Mapping[str, Any]) -> None:
        writer(out, values.get(name, default))

    return step


def tags_write_step(tagged: list[Field]) -> WriteStep:
    """Writes the tagged fields that are not their default."""
    writers = []
    for field in sorted(tagged, key=lambda field: field.tag or 0):
        writer, default = _field_writer(field, flexible=True), bytearray()
        writer(default, field.default())
        writers.append((field.tag or 0, field.name, writer, bytes(default)))

    def step(out: bytearray, values: Mapping[str, Any]) -> None:
        present = []
        for tag, name, writer, default in writers:
            if name in values:
                content = bytearray()
                writer(content, values[name])
                if content != default:
                    present.append((tag, content))
        write_uvarint(out, len(present))
        for tag, content in present:
            write_uvarint(out, tag)
            write_uvarint(out, len(content))
            out += content

    return step


def fields_write_step(run: list[Field], flexible: bool) -> WriteStep:
    """Writes the fields of a run (see `runs_of_fields`)."""
    return _fixed_write_step(run) if _is_fixed(run) else _write_step(run[0], flexible)


def _struct_writer(schema: Schema) -> Writer:
    steps = [fields_write_step(run, schema.flexible) for run in runs_of_fields(schema.fields)]
    if schema.flexible:
        steps.append(tags_write_step(schema.tagged))

    def write(out: bytearray, value: Any) -> None:
        values = value.__dict__ if isinstance(value, Struct) else value
        for step in steps:
            step(out, values)

    return write


# --- messages --------------------------------------------------------------------------------------------------------


@cache
def _api_reader(api_key: int, version: int, kind: str) -> Reader:
    return _struct_reader(load_api_schema(ApiKey(api_key), version, kind))


@cache
def _api_writer(api_key: int, version: int, kind: str) -> Writer:
    return _struct_writer(load_api_schema(ApiKey(api_key), version, kind))


@cache
def _data_reader(name: str, version: int) -> Reader:
    return _struct_reader(load_data_schema(name, version))


@cache
def _data_writer(name: str, version: int) -> Writer:
    return _struct_writer(load_data_schema(name, version))


def _decode(reader: Reader, data: Buffer, offset: int, *, whole: bool = True) -> Struct:
    try:
        message, end = reader(data, offset)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise WireFormatError(str(error)) from error
    if whole and end != len(data):
        raise WireFormatError(f"{len(data) - end} bytes after the end of the message")
    return message  # type: ignore[no-any-return]


def _encode(writer: Writer, fields: Fields) -> bytes:
    out = bytearray()
    try:
        writer(out, fields)
    except struct.error as error:
        raise UnencodableError(f"cannot encode {fields!r:.500}: {error}") from error
    return bytes(out)


def decode_request(api_key: int, version: int, data: Buffer, offset: int = 0) -> Struct:
    """The request whose body is `data[offset:]`.

    Bytes after its end are ignored, as in Apache Kafka: librdkafka 2.16 sends three extra bytes when it asks for the
    metadata of all topics. Raises `WireFormatError` when it is malformed, and `ValueError` for an unknown API or
    version.
    """
    return _decode(_api_reader(api_key, version, "request"), data, offset, whole=False)


def decode_response(api_key: int, version: int, data: Buffer, offset: int = 0) -> Struct:
    """The response whose body is `data[offset:]`. Raises as `decode_request`, also for bytes after its end."""
    return _decode(_api_reader(api_key, version, "response"), data, offset)


def encode_request(api_key: int, version: int, fields: Fields) -> bytes:
    """A request's body. Missing fields get their default, and fields that the version lacks are left out.

    Raises `ValueError` for values that do not fit the schema, and for an unknown API or version.
    """
    return _encode(_api_writer(api_key, version, "request"), fields)


def encode_response(api_key: int, version: int, fields: Fields) -> bytes:
    """A response's body. Treats `fields` as `encode_request` does."""
    return _encode(_api_writer(api_key, version, "response"), fields)


@cache
def begins_with_throttle_time(api_key: int, version: int) -> bool:
    """Whether the first field of a response's body is the throttle time (KIP-124), four bytes."""
    fields = load_api_schema(ApiKey(api_key), version, "response").fields
    return bool(fields) and fields[0].name == "throttle_time"


def decode_data(name: str, version: int, data: Buffer, offset: int = 0) -> Struct:
    """A message that is no request or response, such as `leader_change_message`. Raises as `decode_request`."""
    return _decode(_data_reader(name, version), data, offset)


def encode_data(name: str, version: int, fields: Fields) -> bytes:
    """A message that is no request or response. Treats `fields` as `encode_request` does."""
    return _encode(_data_writer(name, version), fields)
