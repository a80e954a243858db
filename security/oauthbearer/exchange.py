"""Both sides of SASL/OAUTHBEARER: the client sends a token, and the server accepts it or says why not (RFC 7628).

A server that refuses a token answers with a JSON object. The client confirms that with one byte 0x01, and only then the
login has failed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping

from ..principals import USER, KafkaPrincipal
from ..sasl.mechanism import Authenticated, SaslAuthenticationError
from .access_token import TokenRefusedError, ValidateToken

OAUTHBEARER = "OAUTHBEARER"
_SEPARATOR = "\x01"
_CONFIRMATION = b"\x01"
_AUTHORIZATION_ID = re.compile(r"n,(?:a=((?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+))?,")
_PAIR = re.compile(r"([A-Za-z]+)=([\x21-\x7e \t\r\n]+)")
_AUTH = re.compile(r"(\w+) +([-_~+/.a-zA-Z0-9]+=*)", re.ASCII)
_INVALID = f"Authentication failed during authentication due to invalid credentials with SASL mechanism {OAUTHBEARER}"


class OAuthBearerServer:
    """Verifies the token of one exchange by `validate`; `wall_ms` is the time since the epoch."""

    def __init__(self, validate: ValidateToken, wall_ms: Callable[[], int]) -> None:
        self._validate = validate
        self._wall_ms = wall_ms
        self._refusal: SaslAuthenticationError | None = None
        self.result: Authenticated | None = None

    def evaluate(self, token: bytes) -> bytes:
        """Verify the token, or fail when the client has confirmed that it is refused.

        Raises `SaslAuthenticationError`.
        """
        if self._refusal is not None:
            raise self._refusal
        authorization_id, access_token = parse_initial_response(token)
        now_ms = self._wall_ms()
        try:
            found = self._validate(access_token, now_ms)
        except TokenRefusedError as error:
            answer = {"status": error.status} | ({} if error.scope is None else {"scope": error.scope})
            text = json.dumps(answer, separators=(", ", ":"))
            self._refusal = SaslAuthenticationError(text, f"the token is refused because {error}", error.kind)
            return text.encode()
        if authorization_id and authorization_id != found.principal_name:
            raise SaslAuthenticationError(
                f"Authentication failed: Client requested an authorization id ({authorization_id}) that is different "
                f"from the token's principal name ({found.principal_name})",
                kind="authorization id",
            )
        # A token may have expired within the clock skew; 0 would mean that the login holds for ever.
        lifetime_ms = max(1, found.expires_at_ms - now_ms)
        self.result = Authenticated(KafkaPrincipal(USER, found.principal_name), lifetime_ms)
        return b""


class OAuthBearerClient:
    """Sends a token, and extensions (KIP-342)."""

    name = OAUTHBEARER

    def __init__(self, token: str, extensions: Mapping[str, str] | None = None) -> None:
        pairs = {"auth": f"Bearer {token}", **(extensions or {})}
        text = "".join(f"{key}={value}{_SEPARATOR}" for key, value in pairs.items())
        self._token = f"n,,{_SEPARATOR}{text}{_SEPARATOR}".encode()

    def first(self) -> bytes:
        """The token."""
        return self._token

    def evaluate(self, token: bytes) -> bytes | None:
        """The exchange is complete, or the server's refusal is confirmed; then it fails the login."""
        return _CONFIRMATION if token else None


def parse_initial_response(data: bytes) -> tuple[str, str]:
    """The authorization id, empty if there is none, and the token of a client's first message.

    Raises `SaslAuthenticationError`.
    """
    text = data.decode("latin-1")
    head, *pairs = text.split(_SEPARATOR)
    begin = _AUTHORIZATION_ID.fullmatch(head)
    if begin is None or pairs[-2:] != ["", ""]:
        raise SaslAuthenticationError(_INVALID, "it is not a first message of OAUTHBEARER")
    found: dict[str, str] = {}
    for pair in pairs[:-2]:
        match = _PAIR.fullmatch(pair)
        if match is None:
            raise SaslAuthenticationError(_INVALID, "the first message has what is not key=value")
        found[match[1]] = match[2]
    auth = _AUTH.fullmatch(found.get("auth", ""))
    if auth is None or auth[1].lower() != "bearer":
        raise SaslAuthenticationError(_INVALID, "the first message has no auth=Bearer and a token")
    return begin[1] or "", auth[2]
