"""How a connection that we open is encrypted, and how we say who we are: as a node, and as a command-line client."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..runtime.tls_contexts import TlsContext
from ..wire.api_keys import ApiKey
from ..wire.client import Connection, ConnectionLostError
from ..wire.errors import ErrorCode, WireFormatError, error_name
from .sasl.mechanism import ClientMechanism, SaslAuthenticationError

HANDSHAKE_VERSION = 1
AUTHENTICATE_VERSION = 1
RENEW_AT = 0.85
"""The share of a session's time after which we log in again (KIP-368)."""

_CREDENTIALS = "correct the user name or the password in sasl.jaas.config"


class AuthenticationFailedError(ConnectionError):
    """The peer did not accept who we say we are, or did not prove who it is.

    `reason` follows its address; `way_out` says what to correct in the settings of the client.
    """

    def __init__(self, connection: Connection, reason: str, way_out: str) -> None:
        super().__init__(f"{connection.peer} {reason}")
        self.reason = reason
        self.way_out = way_out


@dataclass(frozen=True, slots=True)
class ClientLogin:
    """`tls` is None without TLS, `new_exchange` without SASL. Each login makes an exchange of its own."""

    tls: TlsContext | None = None
    new_exchange: Callable[[], ClientMechanism] | None = None

    def connection_options(self, host: str) -> dict[str, Any]:
        """The options for `loop.create_connection`."""
        return {} if self.tls is None else {"ssl": self.tls, "server_hostname": host}

    async def log_in(self, connection: Connection) -> None:
        """Authenticate, and again before each end of the session. Raises `AuthenticationFailedError`, and OSError."""
        if self.new_exchange is None:
            return
        lifetime_ms = await _exchange(connection, self.new_exchange())
        if lifetime_ms:
            renewal = asyncio.get_running_loop().create_task(self._renew(connection, lifetime_ms))
            connection.closed.add_done_callback(lambda _: renewal.cancel())

    async def _renew(self, connection: Connection, lifetime_ms: int) -> None:
        try:
            while lifetime_ms and self.new_exchange is not None:
                await asyncio.sleep(RENEW_AT * lifetime_ms / 1000)
                lifetime_ms = await _exchange(connection, self.new_exchange())
        except (OSError, WireFormatError):
            connection.close()  # whoever uses it connects again, and learns why


async def _exchange(connection: Connection, exchange: ClientMechanism) -> int:
    """Returns how long the session holds in milliseconds, 0 for ever."""
    chosen = await connection.request(ApiKey.SASL_HANDSHAKE, HANDSHAKE_VERSION, {"mechanism": exchange.name})
    if chosen.error_code == ErrorCode.ILLEGAL_SASL_STATE:
        reason = "takes no login by SASL"
        raise AuthenticationFailedError(connection, reason, "set security.protocol to SSL or PLAINTEXT")
    if chosen.error_code:
        reason = f"does not offer {exchange.name}; it offers {', '.join(chosen.mechanisms) or 'none'}"
        raise AuthenticationFailedError(connection, reason, "set sasl.mechanism, and sasl.jaas.config for it")
    token: bytes | None = exchange.first()
    lifetime_ms = 0
    while token is not None:
        try:
            answer = await connection.request(ApiKey.SASL_AUTHENTICATE, AUTHENTICATE_VERSION, {"auth_bytes": token})
        except ConnectionLostError as error:
            raise AuthenticationFailedError(
                connection, "closes the connection during the login", _CREDENTIALS
            ) from error
        if answer.error_code:
            reason = f"refuses the login by {exchange.name}: {answer.error_message or error_name(answer.error_code)}"
            raise AuthenticationFailedError(connection, reason, _correction(exchange.name))
        lifetime_ms = answer.session_lifetime
        try:
            token = exchange.evaluate(bytes(answer.auth_bytes))
        except SaslAuthenticationError as error:
            reason = f"fails in the login by {exchange.name}: {error}"
            raise AuthenticationFailedError(connection, reason, _CREDENTIALS) from None
    return lifetime_ms


def _correction(mechanism: str) -> str:
    """What to correct after a refusal: the passwords for SCRAM are kept apart from those for PLAIN."""
    if not mechanism.startswith("SCRAM"):
        return _CREDENTIALS
    return f"set sasl.mechanism=PLAIN if the user has no password for {mechanism}, or {_CREDENTIALS}"
