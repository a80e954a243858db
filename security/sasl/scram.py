"""SASL/SCRAM-SHA-256 and -512 (RFC 5802, RFC 7677; KIP-84): the password is never sent, and not kept by the server."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable

from scramp import ScramClient, ScramException, ScramMechanism
from scramp.core import ScramServer as _Exchange

from ..principals import USER, KafkaPrincipal
from .mechanism import Authenticated, SaslAuthenticationError
from .scram_credential import FindCredential, ScramCredential

_NONCE_BYTES = 24
_WRONG_NONCE = (
    "Invalid client nonce in the final client message. Clients with a librdkafka before 2.6.1 send it: take a newer "
    "one, or another mechanism"
)


def new_nonce(secret_bytes: Callable[[int], bytes]) -> str:
    """A nonce that nobody can guess."""
    return b64encode(secret_bytes(_NONCE_BYTES)).decode()


def _nonce_in(final_message: str) -> str | None:
    return next((part[2:] for part in final_message.split(",") if part.startswith("r=")), None)


class ScramServer:
    """The server's side of one exchange."""

    def __init__(self, mechanism: str, find: FindCredential, nonce: str) -> None:
        self._mechanism = mechanism
        self._find = find
        self._user = ""
        self._exchange: _Exchange = ScramMechanism(mechanism).make_server(self._credential, s_nonce=nonce)
        self._is_begun = False
        self.result: Authenticated | None = None

    def _credential(self, user: str) -> ScramCredential:
        found = self._find(self._mechanism, user)
        if found is None:
            raise SaslAuthenticationError(self._refusal())
        self._user = user
        return found

    def _refusal(self) -> str:
        return (
            "Authentication failed during authentication due to invalid credentials with SASL mechanism "
            + self._mechanism
        )

    def evaluate(self, token: bytes) -> bytes:
        """Answer the first or the final message of the client. Raises `SaslAuthenticationError`."""
        if self.result is not None:
            raise SaslAuthenticationError("the exchange is complete")
        try:
            text = token.decode()
            if not self._is_begun:
                self._is_begun = True
                self._exchange.set_client_first(text)
                return str(self._exchange.get_server_first()).encode()
            if _nonce_in(text) != str(self._exchange.nonce):
                raise SaslAuthenticationError(_WRONG_NONCE)
            self._exchange.set_client_final(text)
            answer = str(self._exchange.get_server_final()).encode()
        except (ScramException, ValueError):
            raise SaslAuthenticationError(self._refusal()) from None
        self.result = Authenticated(KafkaPrincipal(USER, self._user))
        return answer


class ScramClientExchange:
    """The client's side of one exchange. It also checks that the server knows the password."""

    def __init__(self, mechanism: str, user: str, password: str, nonce: str) -> None:
        self.name = mechanism
        self._exchange = ScramClient([mechanism], user, password, c_nonce=nonce)
        self._has_answered = False

    def first(self) -> bytes:
        """The client's first message."""
        return str(self._exchange.get_client_first()).encode()

    def evaluate(self, token: bytes) -> bytes | None:
        """Answer the server's first message, or check its final one. Raises `SaslAuthenticationError`."""
        try:
            text = token.decode()
            if self._has_answered:
                self._exchange.set_server_final(text)
                return None
            self._has_answered = True
            self._exchange.set_server_first(text)
            return str(self._exchange.get_client_final()).encode()
        except (ScramException, ValueError):
            raise SaslAuthenticationError("the server's answer does not fit the password") from None
