"""Who may ask for delegation tokens, and how the requests for their changes get to the controller (KIP-48)."""

from __future__ import annotations

from ....runtime.ports import Buffer
from ....security.principals import ANONYMOUS
from ....wire.errors import ErrorCode, ProtocolError
from ...network.request import Request
from ...services import BrokerServices
from ..controller.forwarding import forward


def check_token_request(request: Request) -> None:
    """Raise `ProtocolError(DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)` unless the client may ask for delegation tokens.

    It must have logged in by credentials of its own: not by a token, and not without any, as in PLAINTEXT.
    """
    principal = request.sink.principal
    if principal.is_token_authenticated or (principal == ANONYMOUS and request.sink.sasl is None):
        raise ProtocolError(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)


async def forward_from_client(services: BrokerServices, request: Request, body: bytes) -> Buffer:
    """Forward the request of a client that may ask for delegation tokens. Raises `ProtocolError`."""
    check_token_request(request)
    return await forward(services, request, body)
