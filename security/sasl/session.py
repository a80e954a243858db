"""The SASL state of one connection on a server: handshake, tokens, and the same again before the session expires.

Kafka's counterpart is SaslServerAuthenticator (KIP-43, KIP-152, KIP-368).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from ...wire.errors import ErrorCode
from ..principals import KafkaPrincipal
from .mechanism import Authenticated, AwaitedServerMechanism, SaslAuthenticationError, ServerMechanism

MakeMechanism = Callable[[], ServerMechanism | AwaitedServerMechanism]


class TokenAnswer(NamedTuple):
    """The answer to a token. After an error the connection is closed."""

    error: ErrorCode
    message: str | None = None
    token: bytes = b""
    session_lifetime_ms: int = 0
    """How long the session holds, 0 for ever or while the exchange goes on."""
    reason: str | None = None
    """Why the login failed, for the log of the server."""
    kind: str | None = None
    """The kind of that reason, as `SaslAuthenticationError` has it."""


class SaslSession:
    """`mechanisms` are those that the listener offers.

    `max_reauth_ms` is connections.max.reauth.ms of each mechanism; none, or 0, stands for no limit.
    """

    __slots__ = (
        "_exchange",
        "_has_failed",
        "_is_evaluating",
        "_max_reauth_ms",
        "_mechanism",
        "_mechanisms",
        "authenticated",
        "failure_delay_s",
        "mechanism",
    )

    def __init__(
        self,
        mechanisms: Mapping[str, MakeMechanism],
        max_reauth_ms: Mapping[str, int] | None = None,
        failure_delay_s: float = 0.0,
    ) -> None:
        self.failure_delay_s = failure_delay_s
        """A failure is answered only after so many seconds, so that guessing is slow."""
        self._mechanisms = mechanisms
        self._max_reauth_ms = max_reauth_ms or {}
        self._exchange: ServerMechanism | AwaitedServerMechanism | None = None
        self._is_evaluating = False
        self._has_failed = False  # nothing more is taken, while the answer to the failure is delayed
        self._mechanism = ""
        self.mechanism = ""
        """The mechanism by which the peer has authenticated itself."""
        self.authenticated: Authenticated | None = None

    @property
    def offered(self) -> list[str]:
        """The names of the mechanisms."""
        return list(self._mechanisms)

    @property
    def is_in_exchange(self) -> bool:
        """Whether a mechanism was chosen and its exchange is not complete."""
        return self._exchange is not None

    @property
    def principal(self) -> KafkaPrincipal | None:
        """Who the peer is; None before it has proved it."""
        return None if self.authenticated is None else self.authenticated.principal

    def handshake(self, mechanism: str) -> ErrorCode:
        """The client chooses a mechanism; after an error the connection is closed."""
        if self._exchange is not None or self._has_failed:
            return ErrorCode.ILLEGAL_SASL_STATE
        make = self._mechanisms.get(mechanism)
        if make is None:
            return ErrorCode.UNSUPPORTED_SASL_MECHANISM
        if self.authenticated is not None and mechanism != self.mechanism:
            return ErrorCode.ILLEGAL_SASL_STATE
        self._exchange, self._mechanism = make(), mechanism
        return ErrorCode.NONE

    @property
    def is_awaited(self) -> bool:
        """Whether the answer to the next token is that of `evaluate_soon`, since the mechanism waits for something."""
        return isinstance(self._exchange, AwaitedServerMechanism)

    def evaluate(self, token: bytes) -> TokenAnswer:
        """Answer the next token of the exchange. A peer that authenticates again must be the same (KIP-368)."""
        exchange = self._exchange
        if exchange is None or isinstance(exchange, AwaitedServerMechanism):
            return TokenAnswer(ErrorCode.ILLEGAL_SASL_STATE, "no handshake chose a mechanism before this token")
        try:
            return self._answered(exchange.evaluate(token), exchange.result)
        except SaslAuthenticationError as error:
            return self._failed(error)

    async def evaluate_soon(self, token: bytes) -> TokenAnswer:
        """As `evaluate`, where `is_awaited`. A second token before the answer to the first one is refused."""
        exchange = self._exchange
        if self._is_evaluating or not isinstance(exchange, AwaitedServerMechanism):
            return TokenAnswer(ErrorCode.ILLEGAL_SASL_STATE, "a token came before the answer to the one before")
        self._is_evaluating = True
        try:
            answer = await exchange.evaluate_soon(token)
            return self._answered(answer, exchange.result)
        except SaslAuthenticationError as error:
            return self._failed(error)
        finally:
            self._is_evaluating = False

    def _answered(self, answer: bytes, result: Authenticated | None) -> TokenAnswer:
        if result is None:
            return TokenAnswer(ErrorCode.NONE, None, answer)
        self._exchange = None
        before = self.authenticated
        if before is not None and str(before.principal) != str(result.principal):
            text = f"Cannot change principals during re-authentication from {before.principal}: {result.principal}"
            return self._failed(SaslAuthenticationError(text, kind="another principal"))
        self.authenticated, self.mechanism = result, self._mechanism
        return TokenAnswer(ErrorCode.NONE, None, answer, self._lifetime_ms(result.lifetime_ms))

    def _failed(self, error: SaslAuthenticationError) -> TokenAnswer:
        self._exchange, self._has_failed = None, True
        code = ErrorCode.SASL_AUTHENTICATION_FAILED
        return TokenAnswer(code, str(error), reason=error.reason, kind=error.kind)

    def _lifetime_ms(self, credentials_ms: int | None) -> int:
        limit_ms = self._max_reauth_ms.get(self.mechanism, 0)
        if not limit_ms:
            return credentials_ms or 0
        return limit_ms if credentials_ms is None else min(credentials_ms, limit_ms)
