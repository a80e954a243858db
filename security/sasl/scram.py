"""SASL/SCRAM-SHA-256 and -512 (RFC 5802, RFC 7677; KIP-84): the password is never sent, and not kept by the server."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable

from scramp import ScramClient, ScramException, ScramMechanism
from scramp.core import ScramServer as _Exchange

from ..delegation_token import FindToken, no_tokens
from ..principals import USER, KafkaPrincipal
from .mechanism import Authenticated, SaslAuthenticationError
from .scram_credential import FindCredential, ScramCredential

_NONCE_BYTES = 24
_PARTS_BEFORE_BARE = 2
_PARTS_BEFORE_EXTENSIONS = 4
"""A client's first message begins with two parts about channel binding; the user and the nonce follow."""
_EXTENSION = re.compile("[A-Za-z]+=.+")
_TOKEN_EXTENSION = "tokenauth"
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
    """The server's side of one exchange: a user logs in, or somebody who has a delegation token (KIP-48)."""

    def __init__(self, mechanism: str, find: FindCredential, nonce: str, find_token: FindToken = no_tokens) -> None:
        self._mechanism = mechanism
        self._find = find
        self._find_token = find_token
        self._user = ""
        self._is_token = False
        self._exchange: _Exchange = ScramMechanism(mechanism).make_server(self._credential, s_nonce=nonce)
        self._is_begun = False
        self.result: Authenticated | None = None

    def _credential(self, user: str) -> ScramCredential:
        if self._is_token:
            login = self._find_token(self._mechanism, user)
            found = None if login is None else login.credential
        else:
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
                self._set_client_first(text)
                return str(self._exchange.get_server_first()).encode()
            if _nonce_in(text) != str(self._exchange.nonce):
                raise SaslAuthenticationError(_WRONG_NONCE)
            self._exchange.set_client_final(text)
            answer = str(self._exchange.get_server_final()).encode()
        except (ScramException, ValueError):
            raise SaslAuthenticationError(self._refusal(), self._reason()) from None
        self.result = self._authenticated()
        return answer

    def _set_client_first(self, text: str) -> None:
        """Take the first message. The library knows extensions of one letter only: it gets the message without any."""
        parts = text.split(",")
        extensions = dict(part.split("=", 1) for part in parts[_PARTS_BEFORE_EXTENSIONS:] if _EXTENSION.fullmatch(part))
        if len(extensions) != len(parts[_PARTS_BEFORE_EXTENSIONS:]) or "m" in extensions:
            raise SaslAuthenticationError(self._refusal(), "the extensions of the client's first message are malformed")
        self._is_token = extensions.get(_TOKEN_EXTENSION, "").lower() == "true"
        self._exchange.set_client_first(",".join(parts[:_PARTS_BEFORE_EXTENSIONS]))
        if extensions:
            self._exchange.client_first_bare = ",".join(parts[_PARTS_BEFORE_BARE:])  # it is a part of what is signed

    def _authenticated(self) -> Authenticated:
        if not self._is_token:
            return Authenticated(KafkaPrincipal(USER, self._user))
        login = self._find_token(self._mechanism, self._user)
        if login is None:
            raise SaslAuthenticationError(self._refusal(), self._reason())
        return Authenticated(login.owner, login.lifetime_ms)

    def _reason(self) -> str | None:
        """Why the login failed, for the log of the server, where it knows more than the client."""
        if self._is_token and self._find_token(self._mechanism, self._user) is None:
            return "the delegation token is not known, or has expired"
        return None


class ScramClientExchange:
    """The client's side of one exchange. It also checks that the server knows the password.

    With `is_token` the user is the id of a delegation token, and the password its HMAC in base64.
    """

    def __init__(self, mechanism: str, user: str, password: str, nonce: str, *, is_token: bool = False) -> None:
        self.name = mechanism
        self._extensions = f",{_TOKEN_EXTENSION}=true" if is_token else ""
        self._exchange = ScramClient([mechanism], user, password, c_nonce=nonce)
        self._has_answered = False

    def first(self) -> bytes:
        """The client's first message."""
        message = str(self._exchange.get_client_first()) + self._extensions
        self._exchange.client_first_bare += self._extensions  # they are a part of what is signed
        return message.encode()

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
