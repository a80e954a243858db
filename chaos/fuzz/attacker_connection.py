"""An attacker's connection: blocking, to loopback only, with a limit for every wait."""

from __future__ import annotations

import ipaddress
import select
import socket
import struct
import time
from enum import Enum
from typing import NamedTuple

from ...wire.api_keys import ApiKey
from ...wire.codec import Struct, decode_response, encode_request
from ...wire.errors import WireFormatError
from ...wire.frames import is_flexible, parse_response_header

_CONNECT_TIMEOUT_S = 5.0
_ANSWER_BYTES_MAX = 256 * 1024 * 1024


class Outcome(Enum):
    """What became of a request."""

    ANSWERED = "answered"
    CLOSED = "closed"
    SILENT = "silent"
    REFUSED = "refused"


class Endpoint(NamedTuple):
    """A listener of a node: `kind` is `broker` or `controller`."""

    node_id: int
    kind: str
    host: str
    port: int


class AttackerConnection:
    """One connection. Methods do not raise `OSError`, except the constructor."""

    def __init__(self, endpoint: Endpoint, timeout_s: float = 0.5) -> None:
        if not ipaddress.ip_address(endpoint.host).is_loopback:
            raise ValueError(f"{endpoint.host} is not a loopback address: attacks go to this machine only")
        self.endpoint = endpoint
        self.is_open = True
        self._socket = socket.create_connection((endpoint.host, endpoint.port), _CONNECT_TIMEOUT_S)
        self._socket.settimeout(timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> AttackerConnection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self.is_open = False
        self._socket.close()

    def send(self, data: bytes) -> bool:
        """Send bytes; False when the peer closed the connection, or took none within the time-out."""
        try:
            self._socket.sendall(data)
        except OSError:
            self.close()
            return False
        return True

    def pour(self, data: bytes, seconds: float) -> int:
        """Send without waiting and throw away what comes, for some seconds at most; returns the bytes that came."""
        rest, received, deadline = memoryview(data), 0, time.monotonic() + seconds
        try:
            while (left_s := deadline - time.monotonic()) > 0:
                readable, writable, _ = select.select([self._socket], [self._socket] if rest else [], [], left_s)
                if readable:
                    count = len(self._socket.recv(1 << 18))
                    received += count
                    if not count:
                        break
                if writable:
                    rest = rest[self._socket.send(rest[: 1 << 16]) :]
        except OSError:
            self.close()
        return received

    def receive(self) -> tuple[Outcome, bytes]:
        """The next frame without its size. The connection is closed unless it was answered."""
        try:
            size = self._exactly(4)
            if size:
                length = struct.unpack(">i", size)[0]
                frame = self._exactly(length) if 0 <= length <= _ANSWER_BYTES_MAX else b""
                if len(frame) == length:
                    return Outcome.ANSWERED, frame
            outcome = Outcome.CLOSED
        except TimeoutError:
            outcome = Outcome.SILENT
        except OSError:
            outcome = Outcome.CLOSED
        self.close()
        return outcome, b""

    def _exactly(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            more = self._socket.recv(min(count - len(data), 1 << 20))
            if not more:
                return b""
            data += more
        return bytes(data)

    def call(self, api: ApiKey, version: int, fields: dict[str, object]) -> Struct | None:
        """A proper request and its decoded answer; None when there was none."""
        if not self.send(request_frame(api, version, encode_request(api, version, fields))):
            return None
        outcome, frame = self.receive()
        if outcome is not Outcome.ANSWERED:
            return None
        _, at = parse_response_header(api, version, frame)
        return decode_response(api, version, frame, at)


def request_frame(api: int, version: int, body: bytes, correlation_id: int = 1, client_id: bytes = b"fuzz") -> bytes:
    """A whole frame of a request, also of an API or version that does not exist."""
    header = struct.pack(">hhih", api, version, correlation_id, len(client_id)) + client_id
    if api in ApiKey.__members__.values() and is_flexible(api, version):
        header += b"\0"
    return struct.pack(">i", len(header) + len(body)) + header + body


def fault_of_answer(api: ApiKey, version: int, correlation_id: int, frame: bytes) -> str | None:
    """What is wrong with an answer: it does not fit its schema, or says UNKNOWN_SERVER_ERROR. None when nothing is."""
    if api is ApiKey.API_VERSIONS:  # an unknown version is answered in version 0
        return None
    try:
        answered, at = parse_response_header(api, version, frame)
        answer = decode_response(api, version, frame, at)
    except WireFormatError as error:
        return f"the answer does not fit its schema: {error}"
    if answered != correlation_id:
        return f"the answer has correlation id {answered}, not {correlation_id}"
    return "the answer says UNKNOWN_SERVER_ERROR" if _says_unknown_error(answer) else None


def _says_unknown_error(value: object) -> bool:
    if isinstance(value, Struct):
        return value.get("error_code") == -1 or any(_says_unknown_error(inner) for inner in value.__dict__.values())
    return isinstance(value, list) and any(_says_unknown_error(item) for item in value)
