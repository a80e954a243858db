"""What a SASL mechanism is, on both sides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from ...runtime.blocking.daemon_threads import DaemonThreads
from ..principals import KafkaPrincipal


class SaslAuthenticationError(Exception):
    """The peer has not proved who it is. The text is sent to it, so it says nothing that helps to guess.

    `reason` is for the log of the server; it is the text where the server knows no more. The log tells each `kind` of
    reason once in a while. A kind has nothing that the peer chooses, so it is given where the reason has.
    """

    def __init__(self, text: str, reason: str | None = None, kind: str | None = None) -> None:
        super().__init__(text)
        self.reason = reason or text
        self.kind = kind or self.reason


class ImpossibleCredentialsError(SaslAuthenticationError):
    """No user can have this name and this password."""


def utf8_of(text: str) -> bytes:
    """A user or a password as clients send it. Raises `ImpossibleCredentialsError` for half of a surrogate pair."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise ImpossibleCredentialsError("the user or the password has a character that is none") from None


@dataclass(frozen=True, slots=True)
class Authenticated:
    """The end of a successful exchange. `lifetime_ms` is how long the credentials hold; None for ever."""

    principal: KafkaPrincipal
    lifetime_ms: int | None = None


class ServerMechanism(Protocol):
    """One exchange on the server's side."""

    @property
    def result(self) -> Authenticated | None:
        """Who the peer is, once it has proved it."""
        ...

    def evaluate(self, token: bytes) -> bytes:
        """The answer to the client's next token. Raises `SaslAuthenticationError`."""
        ...


@runtime_checkable
class AwaitedServerMechanism(Protocol):
    """One exchange on the server's side that waits for something, such as a file or another server."""

    @property
    def result(self) -> Authenticated | None:
        """Who the peer is, once it has proved it."""
        ...

    async def evaluate_soon(self, token: bytes) -> bytes:
        """The answer to the client's next token. Raises `SaslAuthenticationError`."""
        ...


class MechanismInThread:
    """An exchange whose evaluation blocks, in a thread of `threads`."""

    def __init__(self, exchange: ServerMechanism, threads: DaemonThreads) -> None:
        self._exchange = exchange
        self._threads = threads

    @property
    def result(self) -> Authenticated | None:
        """Who the peer is, once it has proved it."""
        return self._exchange.result

    async def evaluate_soon(self, token: bytes) -> bytes:
        """The answer to the client's next token. Raises `SaslAuthenticationError`."""
        return await self._threads.run(lambda: self._exchange.evaluate(token))


class ClientMechanism(Protocol):
    """One exchange on the client's side."""

    @property
    def name(self) -> str:
        """The name of the mechanism, such as SCRAM-SHA-512."""
        ...

    def first(self) -> bytes:
        """The first token. Raises `SaslAuthenticationError`."""
        ...

    def evaluate(self, token: bytes) -> bytes | None:
        """The answer to the server's token; None when the exchange is complete. Raises `SaslAuthenticationError`."""
        ...
