"""The broker's channel to the active controller.

Requests that clients make and the broker forwards have a connection of their own, as in Apache Kafka: the controller
answers in the order of the requests, and AlterPartition must not wait for a client's thousands of topics.

A request is sent to the controller that the quorum names. It is sent again, after a short pause, when there is no
controller, the connection is lost, or the node answers NOT_CONTROLLER. When the quorum names another leader, the
connections to the former one are dropped, so that no request waits for a paused or isolated node.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections.abc import Callable
from ipaddress import ip_address
from typing import Any, NamedTuple

from ...runtime.invariants import sometimes
from ...runtime.ports import Buffer, Runtime
from ...security.principal_serde import serialize
from ...wire.api_keys import ApiKey
from ...wire.client import Backoff, Connection, Login, connect
from ...wire.codec import Struct, decode_request, decode_response, encode_request
from ...wire.errors import ErrorCode, ProtocolError, WireFormatError, known_error
from ...wire.frames import RequestHeader, parse_response_header
from ...wire.frames import encode_request as encode_frame
from ..log_limiter import LogLimiter
from ..network.request import Request

CONNECT_TIMEOUT_S = 2.0
BACKOFF_MIN_S = 0.02
BACKOFF_MAX_S = 0.05
ENVELOPE_VERSION = 0
DECODED_BYTES_MAX = 64 * 1024
PROMPT_S = 0.1
"""A forwarded request that is answered later than this is decoded here, for the time-out that it asks for."""

_REFUSALS = {
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "the principal of this broker needs ClusterAction on the cluster; make it "
    "one of super.users at the controllers",
    ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE: "it cannot read the client's principal; is it of another version?",
}
"""Errors of envelopes that say nothing of the client's request: it must not take them for its own."""

logger = logging.getLogger("raftwerk.broker")


class ControllerAddress(NamedTuple):
    """The active controller as the quorum knows it."""

    node_id: int
    host: str
    port: int


class ControllerChannel:
    """Two connections to the controller: for the broker's own requests, and for those in the name of clients."""

    def __init__(
        self,
        find: Callable[[], ControllerAddress | None],
        runtime: Runtime,
        client_id: str,
        request_timeout_ms: int,
        login: Login | None = None,
    ) -> None:
        self._own = _ControllerConnection(find, runtime.rng, client_id, login)
        self._forwarding = _ControllerConnection(find, runtime.rng, client_id, login)
        self._request_timeout_s = request_timeout_ms / 1000
        self._refusals = LogLimiter()

    async def request(
        self, api_key: ApiKey, version: int, fields: Any, *, timeout_ms: int | None = None, try_timeout_ms: int = 5_000
    ) -> Struct:
        """The controller's response. Raises ProtocolError(REQUEST_TIMED_OUT) when none came within `timeout_ms`.

        When a try is not answered within `try_timeout_ms`, its connection is closed and the request is sent again.
        """
        body = encode_request(api_key, version, fields)
        timeout_s = self._request_timeout_s if timeout_ms is None else timeout_ms / 1000
        deadline = asyncio.get_running_loop().time() + timeout_s
        data = await self._own.exchange(api_key, version, body, deadline, try_timeout_ms)
        return decode_response(api_key, version, data)

    async def request_for(self, client: Request, api_key: ApiKey, version: int, fields: Any) -> Struct:
        """As `request`, in the name of the client that has made another request: its rights and quotas count."""
        header = RequestHeader(api_key, version, client.correlation_id, client.client_id)
        answer = await self._forward(client, header, encode_request(api_key, version, fields))
        return decode_response(api_key, version, answer)

    async def forward(self, request: Request, body: bytes) -> memoryview:
        """Send a client's request in an envelope (KIP-590); returns the body of the controller's response.

        The body of the request travels as it is. It is decoded only after `PROMPT_S`, to learn how long the client
        waits. Raises ProtocolError as `request`, and with the error of the envelope.
        """
        header = RequestHeader(request.api_key, request.api_version, request.correlation_id, request.client_id)
        return await self._forward(request, header, body)

    async def _forward(self, client: Request, header: RequestHeader, body: bytes) -> memoryview:
        """Send a request in an envelope, in the name of who has made the request `client`."""
        envelope = {
            "request_data": b"".join(encode_frame(header, body))[4:],
            "request_principal": serialize(client.sink.principal),
            "client_host_address": address_bytes(client.sink.peer),
        }
        data = await self._exchange_envelope(encode_request(ApiKey.ENVELOPE, ENVELOPE_VERSION, envelope), header, body)
        response = decode_response(ApiKey.ENVELOPE, ENVELOPE_VERSION, data)
        code = known_error(response.error_code)
        if code in _REFUSALS:
            if self._refusals.should_log_of_kind("", code.name, asyncio.get_running_loop().time()):
                logger.error("the controller refuses what this broker forwards (%s): %s", code.name, _REFUSALS[code])
            raise ProtocolError(ErrorCode.UNKNOWN_SERVER_ERROR, "The controller refuses what this broker forwards.")
        if response.error_code or response.response_data is None:
            raise ProtocolError(code, "the controller refused the envelope")
        answer = memoryview(response.response_data)
        _, position = parse_response_header(header.api_key, header.api_version, answer)
        return answer[position:]

    async def _exchange_envelope(self, envelope: bytes, header: RequestHeader, body: bytes) -> memoryview:
        """The response to an envelope, within the time that the client of the request inside waits for it.

        The connection outlives that time: other clients' requests, which the controller may have carried out already,
        would be sent again. A response that comes later is dropped.
        """
        loop = asyncio.get_running_loop()
        started = loop.time()

        def apply_own_timeout() -> None:
            timeout_s = _timeout_s(header, body)
            if timeout_s is not None:
                limit.reschedule(started + timeout_s)

        try:
            async with asyncio.timeout_at(started + self._request_timeout_s) as limit:
                timer = loop.call_later(PROMPT_S, apply_own_timeout)
                try:
                    return await self._forwarding.exchange(ApiKey.ENVELOPE, ENVELOPE_VERSION, envelope, math.inf, 0)
                finally:
                    timer.cancel()
        except TimeoutError:
            self._forwarding.drop_if_overdue(self._request_timeout_s)
            raise _timed_out() from None

    def on_leader_change(self) -> None:
        """Drop the connections to a former controller, after the quorum has changed its leader."""
        self._own.on_leader_change()
        self._forwarding.on_leader_change()

    def close(self) -> None:
        """Fail the requests that wait, and send no more."""
        self._own.close()
        self._forwarding.close()


class _ControllerConnection:
    """One connection to the active controller, made again after a loss and after a change of the controller."""

    def __init__(
        self, find: Callable[[], ControllerAddress | None], rng: random.Random, client_id: str, login: Login | None
    ) -> None:
        self._find = find
        self._rng = rng
        self._client_id = client_id
        self._login = login
        self._target: ControllerAddress | None = None
        self._connection: Connection | None = None
        self._connecting: asyncio.Task[Connection] | None = None
        self._closed = False

    def on_leader_change(self) -> None:
        target = self._find()
        if target is not None and target != self._target:
            self._drop()

    def close(self) -> None:
        self._closed = True
        self._drop()

    def drop_if_overdue(self, timeout_s: float) -> None:
        """Drop a connection on which a response is overdue: it may be dead."""
        if self._connection is not None and self._connection.waiting_s() >= timeout_s:
            self._drop()

    async def exchange(
        self, api_key: ApiKey, version: int, body: bytes, deadline: float, try_timeout_ms: int
    ) -> memoryview:
        """The body of the controller's response. `deadline` is a time of the loop's clock, or infinite."""
        loop = asyncio.get_running_loop()
        backoff = Backoff(self._rng, initial_s=BACKOFF_MIN_S, max_s=BACKOFF_MAX_S)
        while not self._closed and loop.time() < deadline:
            try:
                connection = await self._connect()
                left_s = max(0.001, deadline - loop.time())
                try_s = min(left_s, try_timeout_ms / 1000) if try_timeout_ms else left_s
                timeout_s = None if math.isinf(try_s) else try_s
                data = await connection.send_raw(api_key, version, [body], timeout_s=timeout_s)
                if not names_no_controller(api_key, version, data):
                    return data
            except (OSError, TimeoutError):
                sometimes(True, "a broker's request did not reach the controller, and was sent again")
            if not self._closed:
                await asyncio.sleep(min(backoff.next_s(), max(0.0, deadline - loop.time())))
        raise _timed_out()

    async def _connect(self) -> Connection:
        target = self._find()
        if target is None:
            raise ConnectionError("the quorum has no leader")
        if target != self._target:
            self._drop()
            self._target = target
        if self._connection is not None and not self._connection.is_closed:
            return self._connection
        if self._connecting is None or self._connecting.done():
            self._connecting = asyncio.get_running_loop().create_task(self._open(target))
        attempt = self._connecting
        try:
            return await asyncio.shield(attempt)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if attempt.cancelled() and task is not None and not task.cancelling():
                raise ConnectionError("another controller took over") from None
            raise

    async def _open(self, target: ControllerAddress) -> Connection:
        connection = await connect(
            target.host, target.port, client_id=self._client_id, timeout_s=CONNECT_TIMEOUT_S, login=self._login
        )
        if self._closed or target != self._target:
            connection.close()
            raise ConnectionError("another controller took over")
        self._connection = connection
        return connection

    def _drop(self) -> None:
        self._target = None
        connecting, self._connecting = self._connecting, None
        if connecting is not None:
            connecting.cancel()
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def _timed_out() -> ProtocolError:
    return ProtocolError(ErrorCode.REQUEST_TIMED_OUT, "the active controller did not answer in time")


def _timeout_s(header: RequestHeader, body: bytes) -> float | None:
    """How long the client of a request says that it waits; 0 for a malformed request.

    None where it does not say, and for a very large request, which would take long to decode.
    """
    if len(body) > DECODED_BYTES_MAX:
        return None
    try:
        message = decode_request(ApiKey(header.api_key), header.api_version, body)
    except WireFormatError:
        return 0.0
    timeout_ms = int(message.get("timeout", 0))
    return timeout_ms / 1000 if timeout_ms else None


def names_no_controller(api_key: ApiKey, version: int, data: memoryview) -> bool:
    """Whether the response says NOT_CONTROLLER, at its top or in a row. An envelope says it at its top only."""
    if not may_hold_code(data, ErrorCode.NOT_CONTROLLER):
        return False
    try:
        response = decode_response(api_key, version, data)
        if api_key == ApiKey.ENVELOPE and response.response_data is not None:
            return False
    except WireFormatError:
        return False
    return has_error_code(response, ErrorCode.NOT_CONTROLLER)


def may_hold_code(data: Buffer, code: ErrorCode) -> bool:
    """Whether the two bytes of `code` are anywhere in the response. If not, it need not be decoded."""
    return int(code).to_bytes(2, "big") in bytes(data)


def has_error_code(response: Struct, code: ErrorCode) -> bool:
    """Whether the response has `code`, at its top or in a row."""
    return _has_code(response.to_dict(), int(code))


def _has_code(value: Any, code: int) -> bool:
    if isinstance(value, dict):
        return value.get("error_code") == code or any(_has_code(one, code) for one in value.values())
    if isinstance(value, (list, tuple)):
        return any(_has_code(one, code) for one in value)
    return False


def address_bytes(host: str) -> bytes:
    """The bytes of an IPv4 or IPv6 address; 127.0.0.1 for anything else, as the peers in tests may have."""
    try:
        return ip_address(host.partition("%")[0]).packed
    except ValueError:
        return bytes((127, 0, 0, 1))
