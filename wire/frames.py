"""Frames, and the headers of requests and responses.

A frame is a size of 4 bytes and as many bytes. A request's header has version 2 (with tagged fields) where the API's
version is flexible (KIP-482), else version 1. A response's header has version 1 or 0 likewise. The one exception is
ApiVersions: its response always has header version 0, because the client does not yet know what the broker supports
(KIP-511).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from ..runtime.ports import Buffer
from .api_keys import ApiKey
from .errors import WireFormatError

_NEVER = 1 << 15
TAGGED_FIELDS_MAX = 100
"""Of one section. Apache Kafka's own messages have less than ten."""
_OTHER_PROTOCOLS = {
    **dict.fromkeys((b"GET ", b"HEAD", b"POST", b"PUT ", b"DELE", b"OPTI", b"PATC", b"CONN", b"PRI "), "HTTP"),
    **dict.fromkeys((b"HTTP", b"<!DO", b"<htm", b"<HTM"), "HTTP"),
    b"\x16\x03": "TLS",
    b"\x15\x03": "TLS",
    b"SSH-": "SSH",
}
"""First bytes of a stream, and the protocol that begins so: requests and responses, handshakes and alerts."""

FIRST_FLEXIBLE_VERSION: dict[int, int] = {
    ApiKey.PRODUCE: 9,
    ApiKey.FETCH: 12,
    ApiKey.LIST_OFFSETS: 6,
    ApiKey.METADATA: 9,
    ApiKey.OFFSET_COMMIT: 8,
    ApiKey.OFFSET_FETCH: 6,
    ApiKey.FIND_COORDINATOR: 3,
    ApiKey.JOIN_GROUP: 6,
    ApiKey.HEARTBEAT: 4,
    ApiKey.LEAVE_GROUP: 4,
    ApiKey.SYNC_GROUP: 4,
    ApiKey.DESCRIBE_GROUPS: 5,
    ApiKey.LIST_GROUPS: 3,
    ApiKey.SASL_HANDSHAKE: _NEVER,
    ApiKey.API_VERSIONS: 3,
    ApiKey.CREATE_TOPICS: 5,
    ApiKey.DELETE_TOPICS: 4,
    ApiKey.DELETE_RECORDS: 2,
    ApiKey.INIT_PRODUCER_ID: 2,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: 4,
    ApiKey.ADD_PARTITIONS_TO_TXN: 3,
    ApiKey.ADD_OFFSETS_TO_TXN: 3,
    ApiKey.END_TXN: 3,
    ApiKey.WRITE_TXN_MARKERS: 1,
    ApiKey.TXN_OFFSET_COMMIT: 3,
    ApiKey.DESCRIBE_ACLS: 2,
    ApiKey.CREATE_ACLS: 2,
    ApiKey.DELETE_ACLS: 2,
    ApiKey.DESCRIBE_CONFIGS: 4,
    ApiKey.ALTER_CONFIGS: 2,
    ApiKey.ALTER_REPLICA_LOG_DIRS: 2,
    ApiKey.DESCRIBE_LOG_DIRS: 2,
    ApiKey.SASL_AUTHENTICATE: 2,
    ApiKey.CREATE_PARTITIONS: 2,
    ApiKey.CREATE_DELEGATION_TOKEN: 2,
    ApiKey.RENEW_DELEGATION_TOKEN: 2,
    ApiKey.EXPIRE_DELEGATION_TOKEN: 2,
    ApiKey.DESCRIBE_DELEGATION_TOKEN: 2,
    ApiKey.DELETE_GROUPS: 2,
    ApiKey.ELECT_LEADERS: 2,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: 1,
    ApiKey.OFFSET_DELETE: _NEVER,
    ApiKey.DESCRIBE_CLIENT_QUOTAS: 1,
    ApiKey.ALTER_CLIENT_QUOTAS: 1,
    ApiKey.VOTE: 0,
    ApiKey.BEGIN_QUORUM_EPOCH: 1,
    ApiKey.END_QUORUM_EPOCH: 1,
}
"""The first version of each API that has tagged fields. The other APIs have them from version 0 on."""

# The keys are plain ints, because members of an enum take longer to look up.
_FLEXIBLE_FROM: dict[int, int] = {int(key): FIRST_FLEXIBLE_VERSION.get(key, 0) for key in ApiKey}

_FLEXIBLE_RESPONSE_FROM: dict[int, int] = {**_FLEXIBLE_FROM, int(ApiKey.API_VERSIONS): _NEVER}

_HEADER = struct.Struct(">hhih")
_REQUEST_PREFIX = struct.Struct(">ihhih")
_INT32 = struct.Struct(">i")


def other_protocol(start: bytes) -> str | None:
    """The protocol whose streams begin with these four bytes, if it is HTTP, TLS or SSH."""
    return _OTHER_PROTOCOLS.get(start[:4]) or _OTHER_PROTOCOLS.get(start[:2])


class RequestHeader(NamedTuple):
    """The header of a request; `client_id` is None where the client sent null."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


def is_flexible(api_key: int, version: int) -> bool:
    """Whether this version of the API has tagged fields; versions newer than all known ones have.

    The header of such a request has version 2, that of others version 1. Raises `WireFormatError` for an unknown API.
    """
    first = _FLEXIBLE_FROM.get(api_key)
    if first is None:
        raise WireFormatError(f"unknown API key {api_key}")
    return version >= first


def response_header_version(api_key: int, version: int) -> int:
    """1 for flexible versions, else 0; always 0 for ApiVersions (KIP-511)."""
    first = _FLEXIBLE_RESPONSE_FROM.get(api_key)
    if first is None:
        raise WireFormatError(f"unknown API key {api_key}")
    return 1 if version >= first else 0


def parse_request_header(frame: Buffer) -> tuple[RequestHeader, int]:
    """The header at the start of `frame` (without its size field), and the position of the body.

    This accepts all versions, so that a broker can answer ApiVersions of an unknown version (KIP-511). Raises
    `WireFormatError` for an unknown API and for malformed bytes.
    """
    try:
        api_key, version, correlation_id, length = _HEADER.unpack_from(frame)
        first_flexible = _FLEXIBLE_FROM.get(api_key)
        if first_flexible is None:
            raise WireFormatError(f"unknown API key {api_key}")
        position = 10
        client_id = None
        if length >= 0:
            position += length
            if position > len(frame):
                raise WireFormatError(f"client id of {length} bytes in a frame of {len(frame)}")
            client_id = str(frame[10:position], "utf-8")
        elif length != -1:
            raise WireFormatError(f"client id of length {length}")
        if version >= first_flexible:
            position = position + 1 if frame[position] == 0 else skip_tagged_fields(frame, position)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise WireFormatError(f"malformed request header: {error}") from error
    header: RequestHeader = tuple.__new__(RequestHeader, (api_key, version, correlation_id, client_id))
    return header, position


def encode_request(header: RequestHeader, body: Buffer | Sequence[Buffer]) -> list[Buffer]:
    """A request's frame as a list of buffers for one `writelines`. The body's buffers are not copied."""
    api_key, version, correlation_id, client_id = header
    client_bytes = b"" if client_id is None else client_id.encode()
    tail = b"\0" if is_flexible(api_key, version) else b""
    buffers: list[Buffer] = [body] if isinstance(body, (bytes, bytearray, memoryview)) else list(body)
    size_bytes = 10 + len(client_bytes) + len(tail) + sum(map(len, buffers))
    length = -1 if client_id is None else len(client_bytes)
    prefix = _REQUEST_PREFIX.pack(size_bytes, api_key, version, correlation_id, length)
    buffers.insert(0, prefix + client_bytes + tail)
    return buffers


def response_header(api_key: int, version: int, correlation_id: int) -> bytes:
    """The response's header, without the frame's size."""
    if response_header_version(api_key, version):
        return _INT32.pack(correlation_id) + b"\0"
    return _INT32.pack(correlation_id)


def encode_response(api_key: int, version: int, correlation_id: int, body: Buffer | Sequence[Buffer]) -> list[Buffer]:
    """A response's frame as a list of buffers for one `writelines`. The body's buffers are not copied."""
    header = response_header(api_key, version, correlation_id)
    buffers: list[Buffer] = [body] if isinstance(body, (bytes, bytearray, memoryview)) else list(body)
    buffers.insert(0, _INT32.pack(len(header) + sum(map(len, buffers))) + header)
    return buffers


def parse_response_header(api_key: int, version: int, frame: Buffer) -> tuple[int, int]:
    """The correlation id at the start of a response's frame (without its size field), and the position of the body."""
    try:
        correlation_id: int = _INT32.unpack_from(frame)[0]
        position = 4
        if response_header_version(api_key, version):
            position = 5 if frame[4] == 0 else skip_tagged_fields(frame, 4)
    except (struct.error, IndexError) as error:
        raise WireFormatError(f"malformed response header: {error}") from error
    return correlation_id, position


def read_uvarint(data: Buffer, position: int) -> tuple[int, int]:
    """An unsigned varint of at most 32 bits, and the position after it. Raises `IndexError` past the end."""
    byte = data[position]
    position += 1
    if byte < 0x80:
        return byte, position
    value = byte & 0x7F
    shift = 7
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > 0xFFFFFFFF:
                raise WireFormatError("varint over 32 bits")
            return value, position
        shift += 7
        if shift > 28:
            raise WireFormatError("varint over 5 bytes")


def write_uvarint(out: bytearray, value: int) -> None:
    """Append an unsigned varint."""
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def read_tag_count(data: Buffer, position: int) -> tuple[int, int]:
    """How many tagged fields a section has, and where the first one begins (KIP-482).

    Raises `WireFormatError` beyond `TAGGED_FIELDS_MAX`: they are read in one step, and one of no content has two bytes.
    """
    count, position = read_uvarint(data, position)
    if count > TAGGED_FIELDS_MAX:
        raise WireFormatError(f"{count} tagged fields in one section, at most {TAGGED_FIELDS_MAX} are read")
    return count, position


def skip_tagged_fields(data: Buffer, position: int) -> int:
    """The position after a section of tagged fields, none of which is known (KIP-482)."""
    try:
        count, position = read_tag_count(data, position)
        end = len(data)
        for _ in range(count):
            _tag, position = read_uvarint(data, position)
            length, position = read_uvarint(data, position)
            position += length
            if position > end:
                raise WireFormatError(f"tagged field of {length} bytes runs past the end")
    except IndexError as error:
        raise WireFormatError("tagged fields run past the end") from error
    return position
