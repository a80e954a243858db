"""SASL/PLAIN (RFC 4616): user name and password as they are, so only for listeners with TLS outside of tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from hmac import compare_digest
from typing import NamedTuple

from ..principals import USER, KafkaPrincipal
from .mechanism import Authenticated, SaslAuthenticationError, utf8_of

PLAIN = "PLAIN"
INVALID_CREDENTIALS = "Authentication failed: Invalid username or password"


class PlainResponse(NamedTuple):
    """What a client says of itself."""

    authorization_id: str
    user: str
    password: str

    def __repr__(self) -> str:
        return f"PlainResponse(user={self.user!r})"  # the password is a secret


def parse_response(token: bytes) -> PlainResponse:
    """The parts of the only token. Raises `SaslAuthenticationError`."""
    try:
        parts = token.decode().split("\0")
    except UnicodeDecodeError:
        parts = []
    if len(parts) != 3:
        raise SaslAuthenticationError("Invalid SASL/PLAIN response: expected 3 tokens")
    response = PlainResponse(*parts)
    if not response.user:
        raise SaslAuthenticationError("Authentication failed: username not specified")
    if not response.password:
        raise SaslAuthenticationError("Authentication failed: password not specified")
    return response


class PlainServer:
    """Checks the password by `is_valid(user, password)`."""

    def __init__(self, is_valid: Callable[[str, str], bool]) -> None:
        self._is_valid = is_valid
        self.result: Authenticated | None = None

    def evaluate(self, token: bytes) -> bytes:
        """Check the only token. Raises `SaslAuthenticationError`."""
        authorization_id, user, password = parse_response(token)
        if not self._is_valid(user, password):
            raise SaslAuthenticationError(INVALID_CREDENTIALS)
        if authorization_id and authorization_id != user:
            raise SaslAuthenticationError(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        self.result = Authenticated(KafkaPrincipal(USER, user))
        return b""


def passwords_of(options: Mapping[str, str]) -> Callable[[str, str], bool]:
    """The check by the options `user_NAME="password"` of a PlainLoginModule. It takes as long for every password."""
    expected = {name.removeprefix("user_"): value for name, value in options.items() if name.startswith("user_")}

    def is_valid(user: str, password: str) -> bool:
        known = expected.get(user)
        is_equal = compare_digest((known or "").encode(), password.encode())
        return known is not None and is_equal

    return is_valid


class PlainClient:
    """Sends the user's name and password."""

    name = PLAIN

    def __init__(self, user: str, password: str) -> None:
        self._response = f"\0{user}\0{password}"

    def first(self) -> bytes:
        """The only token. Raises `SaslAuthenticationError`."""
        return utf8_of(self._response)

    def evaluate(self, token: bytes) -> bytes | None:
        """The exchange is complete."""
        return None
