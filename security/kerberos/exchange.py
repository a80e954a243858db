"""Both sides of SASL/GSSAPI (RFC 4752): tokens until both have proved who they are, then the choice of a layer.

The server offers one octet of security layers, of which it has only "no layer", and the size of what it takes in a
layer, 0. The client chooses, and may add the name it wants to act as. As in Apache Kafka that name has no effect: a
peer is whom it has proved to be. Some clients send the name of the service there.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from typing import Protocol

from ...runtime.blocking.kerberos import KerberosError
from ..principals import USER, KafkaPrincipal
from ..sasl.mechanism import Authenticated, SaslAuthenticationError
from .principal_names import NoUserNameError

GSSAPI = "GSSAPI"
_NO_LAYER = 1
_LAYER_BYTES = 4
_REFUSAL = f"Authentication failed during authentication due to invalid credentials with SASL mechanism {GSSAPI}"


class SecurityContext(Protocol):
    """One side of a context of Kerberos. Its methods may block, and raise `KerberosError`."""

    def step(self, token: bytes | None) -> bytes:
        """Take the peer's token; returns the next one, which may be empty."""
        ...

    @property
    def is_complete(self) -> bool:
        """Whether both sides have proved who they are."""
        ...

    @property
    def initiator(self) -> str:
        """The principal of the client, such as alice@EXAMPLE.COM."""
        ...

    def wrap(self, message: bytes) -> bytes:
        """The message with a proof of where it comes from."""
        ...

    def unwrap(self, message: bytes) -> bytes:
        """The contents of what the peer wrapped."""
        ...


class _Stage(Enum):
    NEGOTIATING = auto()
    OFFERING = auto()
    CHOOSING = auto()
    ENDED = auto()


class GssapiServer:
    """The server's side of one exchange. `user_of` makes a user's name of a principal, or raises `NoUserNameError`."""

    def __init__(self, context: SecurityContext, user_of: Callable[[str], str]) -> None:
        self._context = context
        self._user_of = user_of
        self._stage = _Stage.NEGOTIATING
        self.result: Authenticated | None = None

    def evaluate(self, token: bytes) -> bytes:
        """Answer the client's next token. It may block. Raises `SaslAuthenticationError`."""
        stage, self._stage = self._stage, _Stage.ENDED  # after an error nothing more is taken
        try:
            if stage is _Stage.NEGOTIATING:
                return self._negotiate(token)
            if stage is _Stage.OFFERING:
                if token:
                    raise _refused("it sent a token where it had to wait for the layers")
                return self._offer()
            if stage is _Stage.CHOOSING:
                self._take_choice(self._context.unwrap(token))
                return b""
        except KerberosError as error:
            raise _refused(str(error), f"Kerberos {error.code}") from None
        except NoUserNameError as error:
            raise _refused(str(error), "no name of a user") from None
        raise _refused("the exchange is complete")

    def _negotiate(self, token: bytes) -> bytes:
        answer = self._context.step(token)
        if not self._context.is_complete:
            self._stage = _Stage.NEGOTIATING
        elif answer:
            self._stage = _Stage.OFFERING
        else:
            return self._offer()
        return answer

    def _offer(self) -> bytes:
        self._stage = _Stage.CHOOSING
        return self._context.wrap(bytes([_NO_LAYER, 0, 0, 0]))

    def _take_choice(self, choice: bytes) -> None:
        if len(choice) < _LAYER_BYTES or choice[0] != _NO_LAYER:
            raise _refused("it wants a security layer, of which there is none; encrypt by TLS (SASL_SSL)")
        self.result = Authenticated(KafkaPrincipal(USER, self._user_of(self._context.initiator)))


def _refused(reason: str, kind: str | None = None) -> SaslAuthenticationError:
    return SaslAuthenticationError(_REFUSAL, reason, kind)


class GssapiClient:
    """The client's side of one exchange. It also checks that the server has the key of its service."""

    name = GSSAPI

    def __init__(self, context: SecurityContext) -> None:
        self._context = context
        self._has_chosen = False

    def first(self) -> bytes:
        """The first token, for which a ticket is needed. It may block. Raises `SaslAuthenticationError`."""
        return self._checked(None) or b""

    def evaluate(self, token: bytes) -> bytes | None:
        """Answer the server's next token. Raises `SaslAuthenticationError`."""
        return None if self._has_chosen else self._checked(token)

    def _checked(self, token: bytes | None) -> bytes | None:
        try:
            if not self._context.is_complete:
                return self._context.step(token)
            offered = self._context.unwrap(token or b"")
            if len(offered) != _LAYER_BYTES or not offered[0] & _NO_LAYER:
                raise SaslAuthenticationError("the server insists on a security layer, of which there is none")
            self._has_chosen = True
            return self._context.wrap(bytes([_NO_LAYER, 0, 0, 0]))
        except KerberosError as error:
            raise SaslAuthenticationError(str(error)) from None
