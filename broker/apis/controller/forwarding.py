"""Requests that brokers forward to the active controller in an envelope (KIP-590), on both sides.

The broker puts the request's bytes into the envelope as they came and sends the response's bytes back as the controller
encoded them: the request is decoded once and the response encoded once, at the controller.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from ipaddress import ip_address

from ....runtime.files.file_slice import Sendable, in_memory
from ....runtime.ports import Buffer
from ....security.authorizer.acl_binding import AclOperation, ResourceType
from ....security.authorizer.authorizer import DENIED
from ....security.principal_serde import deserialize
from ....security.principals import KafkaPrincipal
from ....security.sasl.session import SaslSession
from ....wire.api_keys import ApiKey
from ....wire.codec import Struct, begins_with_throttle_time, decode_response
from ....wire.errors import ErrorCode, WireFormatError
from ....wire.frames import parse_request_header, parse_response_header
from ...api import Fields
from ...network.request import Request, RequestSink
from ...services import BrokerServices, ControllerServices
from ...to_controller.controller_channel import has_error_code, may_hold_code

CHECKED_BYTES_MAX = 64 * 1024
"""A larger answer of an active controller is not decoded to look for NOT_CONTROLLER in it."""


async def forward(services: BrokerServices, request: Request, body: bytes) -> Buffer:
    """The broker's side: the controller's response to the request. A client that it throttles is throttled here."""
    answer = await services.controller_channel.forward(request, body)
    if begins_with_throttle_time(request.api_key, request.api_version):
        throttle_ms = int.from_bytes(answer[:4], "big")
        if throttle_ms > request.throttle_ms:
            request.throttle_ms = throttle_ms
            request.sink.delay(throttle_ms / 1000)
    return answer


class EnvelopeSink:
    """Takes the place of the connection for a request that came in an envelope, and collects its response.

    `principal` and `peer` are those of the client of the broker that has sent the envelope.
    """

    def __init__(self, outer: RequestSink, principal: KafkaPrincipal, peer: str) -> None:
        self._outer = outer
        self.listener_name = outer.listener_name
        self.peer = peer
        self.software = outer.software
        self.opened_at = outer.opened_at
        self.on_close = outer.on_close
        self.principal = principal
        self.writable_topics: dict[str, object] = {}
        self.sasl: SaslSession | None = None
        self.memory = outer.memory
        self.runner = outer.runner
        self.sends_files = False
        self.answer: asyncio.Future[bytes | None] = asyncio.get_running_loop().create_future()
        """The response without its size; None when the request was rejected."""

    @property
    def is_gone(self) -> bool:
        """Whether the connection of the broker that has sent the envelope has ended."""
        return self._outer.is_gone

    def complete(self, request: Request, response: Sequence[Sendable]) -> None:
        """Take the response."""
        if request.memory is not None:
            request.memory.release()
        if not self.answer.done():
            request.response = response
            self.answer.set_result(in_memory(response)[4:])

    def defer(self, request: Request, size_bytes: int) -> Callable[[], None] | None:
        """Batches are never forwarded."""
        return None

    def delay(self, seconds: float) -> None:
        """The broker that forwarded the request throttles its client."""

    def on_authenticated(self, session_lifetime_ms: int) -> None:
        """A login is never forwarded."""

    def reject(self, reason: str, kind: str | None = None) -> None:
        """The request is malformed, or of a version that this node does not serve."""
        if not self.answer.done():
            self.answer.set_result(None)


async def envelope(services: ControllerServices, request: Request, message: Struct) -> Fields:
    """The controller's side: runs the request inside. NOT_CONTROLLER in its response becomes the envelope's error.

    The request inside is that of the principal and the address in the envelope, so only nodes may send one.
    """
    if not services.authorization.is_allowed_on_cluster(request, AclOperation.CLUSTER_ACTION):
        return {"error_code": int(DENIED[ResourceType.CLUSTER])}
    frame = memoryview(message.request_data)
    try:
        header, _ = parse_request_header(frame)
    except WireFormatError:
        return {"error_code": int(ErrorCode.INVALID_REQUEST)}
    dispatcher = services.dispatcher
    api = None if dispatcher is None else dispatcher.registry.get(header.api_key)
    if dispatcher is None or api is None or not api.is_forwarded:
        return {"error_code": int(ErrorCode.INVALID_REQUEST)}
    if not services.controller.active and header.api_key != ApiKey.DESCRIBE_QUORUM:
        return {"error_code": int(ErrorCode.NOT_CONTROLLER)}
    try:
        principal = deserialize(message.request_principal)
    except ValueError:
        return {"error_code": int(ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE)}
    try:
        peer = str(ip_address(bytes(message.client_host_address)))
    except ValueError:
        return {"error_code": int(ErrorCode.INVALID_REQUEST)}
    sink = EnvelopeSink(request.sink, principal, peer)
    dispatcher.start(sink, frame, lambda inner: None)
    answer = await sink.answer
    if answer is None:
        return {"error_code": int(ErrorCode.INVALID_REQUEST)}
    is_surely_from_controller = services.controller.active and len(answer) > CHECKED_BYTES_MAX
    if not is_surely_from_controller and may_hold_code(answer, ErrorCode.NOT_CONTROLLER):
        _, position = parse_response_header(header.api_key, header.api_version, answer)
        response = decode_response(header.api_key, header.api_version, answer, position)
        if has_error_code(response, ErrorCode.NOT_CONTROLLER):
            return {"error_code": int(ErrorCode.NOT_CONTROLLER)}
    return {"error_code": 0, "response_data": answer}
