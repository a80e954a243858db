"""How a connection that we open is encrypted, and how we say who we are: as a node, and as a command-line client."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from ..runtime.blocking.daemon_threads import in_daemon_thread
from ..runtime.loop import report_error
from ..runtime.tls_contexts import TlsContext
from ..wire.api_keys import ApiKey
from ..wire.client import Connection, ConnectionLostError
from ..wire.errors import ErrorCode, WireFormatError, error_name
from .kerberos.exchange import GSSAPI
from .oauthbearer.exchange import OAUTHBEARER
from .sasl.mechanism import ClientMechanism, ImpossibleCredentialsError, SaslAuthenticationError

HANDSHAKE_VERSION = 1
AUTHENTICATE_VERSION = 1
RENEW_AT = 0.85
"""The share of a session's time after which we log in again (KIP-368)."""
RENEW_PAUSE_MIN_S = 1.0
"""The least time between two logins by a token that ends: each holds for less time than the one before.

When the token has ended for the server's clock, each holds for 1 ms.
"""
SESSION_MIN_S = 0.1
"""A shorter session cannot be renewed before its end, also where all sessions are as short."""
PREPARE_AGAIN_AT = 0.03
PREPARE_AGAIN_MAX_S = 10.0
"""When what a login needs is asked for again: after that share of the session's time, and so many seconds at most."""

# What is to be corrected in the client's properties stands last: the name of their file may follow.
_TOKEN = "try again later, or correct sasl.oauthbearer.* or sasl.jaas.config"
_AGAIN = "try again later with the login"
_NEW_TICKET = "get a ticket by kinit, or correct keyTab and principal in sasl.jaas.config"
_TICKET = (
    "the service must have a principal sasl.kerberos.service.name/host, of the host by which it is reached; "
    f"{_NEW_TICKET}"
)
_DELEGATION_TOKEN = (
    "the delegation token may have expired, or was ended: raftwerk tokens list shows its owner those that there are, "
    "and raftwerk tokens create makes another; its id is the user name, its HMAC the password in sasl.jaas.config"
)
_CREDENTIALS = "correct the user name or the password in sasl.jaas.config"


class AuthenticationFailedError(ConnectionError):
    """The peer did not accept who we say we are, or did not prove who it is.

    `reason` follows its address; `way_out` says what to correct in the settings of the client.
    """

    def __init__(self, connection: Connection, reason: str, way_out: str) -> None:
        super().__init__(f"{connection.peer} {reason}")
        self.reason = reason
        self.way_out = way_out


class CredentialsRefusedError(AuthenticationFailedError):
    """The peer looked at the credentials and does not take them, or nobody can have such: they are wrong."""


@dataclass(frozen=True, slots=True)
class ClientLogin:
    """`tls` is None without TLS, `new_exchange` without SASL. Each login makes an exchange of its own, for its host."""

    tls: TlsContext | None = None
    new_exchange: Callable[[str], ClientMechanism] | None = None
    current_tls: Callable[[], TlsContext] | None = None
    """For nodes: the context of the next connection, in place of `tls`, whose certificates are exchanged meanwhile."""
    prepare: Callable[[], Awaitable[None]] | None = None
    """Done before each exchange, such as asking for a token. Raises OSError."""
    does_block: bool = False
    """Whether the exchange waits for files or other servers, so that its steps are done in threads."""

    scram_user: tuple[str, str] | None = None
    """The mechanism and the name of the user, where the login is by a password that the cluster keeps."""
    is_by_token: bool = False
    """Whether the credentials are those of a delegation token."""

    def connection_options(self, host: str) -> dict[str, Any]:
        """The options for `loop.create_connection`."""
        tls = self.tls if self.current_tls is None else self.current_tls()
        return {} if tls is None else {"ssl": tls, "server_hostname": host}

    async def log_in(self, connection: Connection, host: str) -> None:
        """Authenticate, and again before each end of the session. Raises `AuthenticationFailedError`, and OSError."""
        if self.new_exchange is None:
            return
        new_exchange = partial(self.new_exchange, host)
        lifetime_ms = await self._log_in_once(connection, new_exchange)
        if lifetime_ms:
            renewal = asyncio.get_running_loop().create_task(self._renew(connection, new_exchange, lifetime_ms))
            connection.closed.add_done_callback(lambda _: renewal.cancel())

    async def _renew(
        self, connection: Connection, new_exchange: Callable[[], ClientMechanism], lifetime_ms: int
    ) -> None:
        """An error that nobody has expected closes the connection, too: its session would end unnoticed."""
        loop = asyncio.get_running_loop()
        lifetime_before_s = 0.0
        try:
            while lifetime_ms:
                lifetime_s = lifetime_ms / 1000
                ends_at_s = loop.time() + lifetime_s
                is_renewable = lifetime_s >= max(SESSION_MIN_S, lifetime_before_s)
                lifetime_before_s = lifetime_s
                await asyncio.sleep(max(RENEW_AT * lifetime_s, 0.0 if is_renewable else RENEW_PAUSE_MIN_S))
                pause_s = min(PREPARE_AGAIN_AT * lifetime_s, PREPARE_AGAIN_MAX_S)
                lifetime_ms = await self._log_in_once(connection, new_exchange, ends_at_s - pause_s, pause_s)
        except (OSError, WireFormatError):
            connection.close()  # the one that uses it connects again, and learns why
        except Exception as error:
            connection.close()
            report_error(f"logging in again at {connection.peer} has failed", error)

    async def _log_in_once(
        self,
        connection: Connection,
        new_exchange: Callable[[], ClientMechanism],
        prepares_until_s: float = 0.0,
        pause_s: float = 0.0,
    ) -> int:
        while self.prepare is not None:
            try:
                await self.prepare()
                break
            except OSError as error:
                if asyncio.get_running_loop().time() >= prepares_until_s:
                    reason = f"wants a login, for which there is no token: {error}"
                    raise AuthenticationFailedError(connection, reason, _TOKEN) from error
            await asyncio.sleep(pause_s)
        run = in_daemon_thread if self.does_block else _at_once
        with connection.first_after_throttling():
            return await _exchange(connection, new_exchange(), run, is_by_token=self.is_by_token)


_Run = Callable[[Callable[[], "bytes | None"]], Awaitable["bytes | None"]]
"""Does one step of an exchange."""


async def _at_once(step: Callable[[], bytes | None]) -> bytes | None:
    return step()


async def _exchange(connection: Connection, exchange: ClientMechanism, run: _Run, *, is_by_token: bool) -> int:
    """Returns how long the session holds in milliseconds, 0 for ever."""
    ask = partial(connection.request, is_of_login=True)
    chosen = await ask(ApiKey.SASL_HANDSHAKE, HANDSHAKE_VERSION, {"mechanism": exchange.name})
    if chosen.error_code == ErrorCode.ILLEGAL_SASL_STATE:
        reason = "takes no login by SASL"
        raise AuthenticationFailedError(connection, reason, "set security.protocol to SSL or PLAINTEXT")
    if chosen.error_code:
        reason = f"does not offer {exchange.name}; it offers {', '.join(chosen.mechanisms) or 'none'}"
        raise AuthenticationFailedError(connection, reason, "set sasl.mechanism, and sasl.jaas.config for it")
    token = await _next_token(connection, exchange, run, exchange.first)
    lifetime_ms = 0
    while token is not None:
        try:
            answer = await ask(ApiKey.SASL_AUTHENTICATE, AUTHENTICATE_VERSION, {"auth_bytes": token})
        except ConnectionLostError as error:
            reason = "closes the connection during the login"
            raise AuthenticationFailedError(connection, reason, _own_correction(exchange.name)) from error
        if answer.error_code:
            reason = f"refuses the login by {exchange.name}: {answer.error_message or error_name(answer.error_code)}"
            refused = answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            kind = CredentialsRefusedError if refused else AuthenticationFailedError
            raise kind(connection, reason, _DELEGATION_TOKEN if is_by_token else _correction(exchange.name))
        lifetime_ms = answer.session_lifetime
        token = await _next_token(connection, exchange, run, partial(exchange.evaluate, bytes(answer.auth_bytes)))
    return lifetime_ms


async def _next_token(
    connection: Connection, exchange: ClientMechanism, run: _Run, step: Callable[[], bytes | None]
) -> bytes | None:
    try:
        return await run(step)
    except SaslAuthenticationError as error:
        reason = f"fails in the login by {exchange.name}: {error}"
        kind = CredentialsRefusedError if isinstance(error, ImpossibleCredentialsError) else AuthenticationFailedError
        raise kind(connection, reason, _own_correction(exchange.name)) from None
    except RuntimeError as error:  # the system can start no thread for it
        raise AuthenticationFailedError(connection, f"cannot be logged in at: {error}", _AGAIN) from error


def _own_correction(mechanism: str) -> str:
    """What to correct where the exchange ends without an answer of the server."""
    return _TICKET if mechanism == GSSAPI else _CREDENTIALS


def _correction(mechanism: str) -> str:
    """What to correct after a refusal. The cluster keeps the passwords for SCRAM apart from those for PLAIN."""
    if mechanism == OAUTHBEARER:
        return "the log of the server says why it refuses this token; correct sasl.oauthbearer.* or sasl.jaas.config"
    if mechanism == GSSAPI:
        return f"the log of the server says why, and klist shows the ticket; {_NEW_TICKET}"
    if not mechanism.startswith("SCRAM"):
        return _CREDENTIALS
    return f"raftwerk users list shows an administrator who has a password for {mechanism}; {_CREDENTIALS}"
