"""Why a peer gives no answer, and what one speaks that takes connections and does not answer Kafka's requests.

A web server waits for the end of a line that never comes. So the peer gets a request of Kafka's that has lines: a web
server refuses them, and a broker answers as always, with nothing to note in its log. A server with TLS closes the
connection without a word; only then the greeting of TLS is tried.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Container
from socket import gaierror

from ...runtime.os_errors import os_reason
from ...runtime.tls_contexts import CERTIFICATE_WAY_OUT, tls_failure, tls_greeting, tls_way_out
from ...security.client_login import HANDSHAKE_VERSION, AuthenticationFailedError, ClientLogin
from ...wire.api_keys import ApiKey
from ...wire.client import Connection, ConnectionLostError, OtherProtocolError, RequestTimedOutError, connect
from ...wire.errors import ErrorCode, WireFormatError
from ...wire.frames import RequestHeader, encode_request, other_protocol
from .access.expected_cluster import WrongClusterError
from .client_errors import (
    CONTROLLER_LISTENER,
    Address,
    ClientError,
    NotLoggedInError,
    NotServedError,
    OtherClusterError,
    SilentNodesError,
    UnreachableError,
)

_START_BYTES = 4
_CORRELATION_ID = 0x01010101
"""Without bytes that are blanks or the ends of lines in text."""
_LINES = "x / HTTP/1.0\r\n\r\n"
"""The client's name in a request that a web server takes for a request with an unknown method."""
_TIMEOUT_S = 2.0
WAYS_OUT = {
    "HTTP": "name the port of a broker, not that of a web server or of a node's metrics",
    "TLS": "say how to log in there (--command-config), or name a listener without TLS",
    "SSH": "name the port of a broker",
}
"""What to do when a peer speaks another protocol than Kafka's."""
_CANNOT_SERVE = (
    "is a broker, and closes the connection instead of an answer: it may reach no active controller; raftwerk doctor "
    "and its log say why"
)


_REFUSED = os_reason(ConnectionRefusedError(errno.ECONNREFUSED, ""))
TIMES_OUT = "does not answer in time"
"""Why a node gives no answer that accepts connections: it is paused, hangs, or is overloaded."""
REFUSES = "refuses the connection"
"""Why a node gives no answer where nothing listens."""
WAITS_FOR_CONTROLLER = "answers, but not to this request in time"
"""Why a broker gives no answer to what the controller has to answer."""


class UnknownBrokerError(ConnectionLostError):
    """The cluster has no broker of the id that is to be asked."""

    def __init__(self) -> None:
        super().__init__("it is not among the brokers that raftwerk brokers list shows")


class ControllerListenerError(OSError):
    """The peer is the listener of a controller, which does not serve what clients ask of brokers."""


def is_controller_listener(served: Container[int]) -> bool:
    """Whether a node that serves these APIs to clients is a controller, at its own listener (KIP-919)."""
    return ApiKey.METADATA not in served and ApiKey.DESCRIBE_QUORUM in served


def speaks(protocol: str) -> str:
    """What to say of a peer that speaks `protocol`, after its address."""
    return f"speaks {protocol} instead of Kafka's protocol: {WAYS_OUT[protocol]}"


async def served_apis(connection: Connection, timeout_s: float) -> dict[int, tuple[int, int]]:
    """The APIs that a peer serves. Requests that wait there are not lost by a time-out of this one."""
    if not connection.in_flight:
        return await connection.api_versions(timeout_s=timeout_s)
    async with asyncio.timeout(timeout_s):
        return await connection.api_versions()


async def spoken_protocol(host: str, port: int, timeout_s: float = _TIMEOUT_S) -> str | None:
    """HTTP, TLS or SSH, if the peer answers in it within `timeout_s` for each; None otherwise."""
    request = b"".join(encode_request(RequestHeader(ApiKey.API_VERSIONS, 0, _CORRELATION_ID, _LINES), []))
    answer = await _first_bytes(host, port, request, timeout_s)
    if answer == b"":  # it was closed without a word
        answer = await _first_bytes(host, port, tls_greeting(), timeout_s)
    return None if answer is None else other_protocol(answer)


async def explained(
    error: UnreachableError, login: ClientLogin | None = None, *, is_paused_likely: bool = False
) -> UnreachableError:
    """The error with what its peers were found to speak, and whether they want a login.

    `login` is how it was tried. Where `is_paused_likely`, those that were silent are not asked again, which takes time.
    """
    if isinstance(error, NotLoggedInError | OtherClusterError):
        return error
    reasons, way_out = dict(error.reasons), None
    for address in (*error.closing, *(() if is_paused_likely else error.silent)):
        offered = await _offered_mechanisms(address, login)
        if offered is not None:
            encrypted = "" if login is None else "; TLS was set up without problems"
            reasons[address] = f"wants a login by SASL (it offers {', '.join(offered)}), and there was none{encrypted}"
            protocol = "SASL_PLAINTEXT" if login is None else "SASL_SSL"
            way_out = f"set security.protocol={protocol}, sasl.mechanism and sasl.jaas.config"
            continue
        if address in error.closing and login is not None and login.tls is not None:
            reasons[address] = "closes the connection after the TLS handshake; it may want a certificate of the client"
            way_out = CERTIFICATE_WAY_OUT
            continue
        spoken = await spoken_protocol(*address)
        if spoken == "TLS" and login is not None and login.tls is None:
            reasons[address] = "speaks TLS, and we do not"
            way_out = "set security.protocol=SASL_SSL"
        elif spoken is not None:
            reasons[address] = speaks(spoken)
        elif address in error.closing and await _is_broker(address, login):
            reasons[address] = _CANNOT_SERVE
    if way_out is not None:
        return NotLoggedInError(reasons, way_out)
    if _CANNOT_SERVE in reasons.values():
        return NotServedError(reasons, is_explained=True)
    asked = [reasons[address] for address in (*error.closing, *error.silent)]  # where nothing listens a node is down
    return UnreachableError(reasons, is_explained=bool(asked) and all(map(_has_way_out, asked)))


def _has_way_out(reason: str) -> bool:
    return reason.endswith(tuple(WAYS_OUT.values()))


def login_way_out(error: Exception) -> str | None:
    """What to correct in the client's properties after a failed login or a failed TLS handshake; else None."""
    if isinstance(error, AuthenticationFailedError):
        return error.way_out
    return tls_way_out(error) or (None if error.__cause__ is None else tls_way_out(error.__cause__))


async def _offered_mechanisms(address: Address, login: ClientLogin | None) -> list[str] | None:
    """The SASL mechanisms of a listener that was tried without SASL; None where it offers none, or none was tried."""
    if login is not None and login.new_exchange is not None:
        return None
    try:
        connection = await connect(*address, timeout_s=_TIMEOUT_S, login=login)
    except OSError:
        return None
    try:
        fields = {"mechanism": ""}
        answer = await connection.request(ApiKey.SASL_HANDSHAKE, HANDSHAKE_VERSION, fields, timeout_s=_TIMEOUT_S)
    except (OSError, WireFormatError):
        return None
    finally:
        connection.close()
    return (list(answer.mechanisms) or None) if answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM else None


async def _is_broker(address: Address, login: ClientLogin | None) -> bool:
    try:
        connection = await connect(*address, timeout_s=_TIMEOUT_S, login=login)
    except OSError:
        return False
    try:
        await connection.api_versions(timeout_s=_TIMEOUT_S)
        return True
    except (OSError, WireFormatError):
        return False
    finally:
        connection.close()


async def _first_bytes(host: str, port: int, request: bytes, timeout_s: float) -> bytes | None:
    """How the answer to a request begins; None if none comes in time."""
    loop = asyncio.get_running_loop()
    transport = None
    try:
        async with asyncio.timeout(timeout_s):
            transport, start = await loop.create_connection(_Start, host, port)
            transport.write(request)
            await start.done
            return bytes(start.data)
    except TimeoutError:
        return None
    except (OSError, ValueError):  # ValueError: the host name cannot be encoded
        return b""
    finally:
        if transport is not None:
            transport.abort()


class _Start(asyncio.Protocol):
    """Keeps the first bytes that arrive."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def data_received(self, data: bytes) -> None:
        """Called by asyncio."""
        self.data += data
        if len(self.data) >= _START_BYTES:
            self._finish()

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by asyncio."""
        self._finish()

    def _finish(self) -> None:
        if not self.done.done():
            self.done.set_result(None)


def no_answer_reason(error: Exception) -> str:
    """Why a node gave no answer, in words that follow its address: "does not answer in time"."""
    other = next((one for one in (error, error.__cause__) if isinstance(one, OtherProtocolError)), None)
    if other is not None:
        return speaks(other.protocol)
    if isinstance(error, ControllerListenerError):
        return CONTROLLER_LISTENER
    if isinstance(error, WrongClusterError):
        return error.reason
    if isinstance(error, gaierror):
        return "has a name that does not resolve on this machine"
    if isinstance(error, WireFormatError):
        return f"does not speak Kafka's protocol ({error})"
    if isinstance(error, AuthenticationFailedError):
        return error.reason
    failure = tls_failure(error)
    if failure is not None:
        return failure
    if isinstance(error, TimeoutError | RequestTimedOutError):
        return TIMES_OUT
    if isinstance(error, ConnectionLostError) and error.__cause__ is not None:
        is_malformed = isinstance(error.__cause__, WireFormatError)
        return f"does not speak Kafka's protocol ({error.__cause__})" if is_malformed else "closes the connection"
    reason = os_reason(error) if isinstance(error, OSError) else str(error)
    return REFUSES if reason == _REFUSED else f"does not answer: {reason}"


def silent_broker(broker: str, error: Exception) -> ClientError:
    """The error for a request that no other broker can answer, which this one did not."""
    reason = no_answer_reason(error)
    if isinstance(error, UnknownBrokerError):
        return ClientError(f"{broker} {reason}")
    may_be = ", and may be paused, overloaded or cut off" if reason == TIMES_OUT else ""
    return SilentNodesError(f"{broker} {reason}{may_be}")
