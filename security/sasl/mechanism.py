"""What a SASL mechanism is, on both sides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from ..principals import KafkaPrincipal


class SaslAuthenticationError(Exception):
    """The peer has not proved who it is. The text is sent to it, so it says nothing that helps to guess."""


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


class ClientMechanism(Protocol):
    """One exchange on the client's side."""

    @property
    def name(self) -> str:
        """The name of the mechanism, such as SCRAM-SHA-512."""
        ...

    def first(self) -> bytes:
        """The first token."""
        ...

    def evaluate(self, token: bytes) -> bytes | None:
        """The answer to the server's token; None when the exchange is complete. Raises `SaslAuthenticationError`."""
        ...
