"""What the header Authorization says: a user and a password (RFC 7617), or a token (RFC 6750)."""

from __future__ import annotations

import base64
import binascii
import json
import re
from dataclasses import dataclass, field
from typing import Any

NONE, BASIC, BEARER = AUTHENTICATIONS = ("none", "basic", "bearer")
CHALLENGES = {BASIC: 'Basic realm="Kafka", charset="UTF-8"', BEARER: 'Bearer realm="Kafka"'}
"""What an answer with status 401 says of the logins that are taken."""
_HEADER_MAX = 16_384
_TOKEN = re.compile(r"[A-Za-z0-9\-._~+/]+=*")
_CONTROLS = re.compile(r"[\x00-\x1f\x7f]")
_OF_ONE_TOKEN = ("exp", "iat", "nbf", "jti", "auth_time")
"""Claims that differ from token to token of one principal."""


class NoCredentialsError(Exception):
    """A header that is missing, or of another kind than is taken; the message says what it must have."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """Who a client says that it is. `user` is empty beside a token, which is the secret then."""

    user: str
    secret: str = field(repr=False)

    @property
    def owner(self) -> str:
        """What all credentials of one principal have in common, once the cluster has accepted them.

        Of a token these are all claims but those of its time, since only the cluster knows which of them it takes as
        the name. A token that has no claims is an owner of its own.
        """
        if self.user:
            return self.user
        claims = {name: value for name, value in claims_of(self.secret).items() if name not in _OF_ONE_TOKEN}
        return json.dumps(claims, sort_keys=True) if claims else self.secret


def claims_of(token: str) -> dict[str, Any]:
    """The claims in a signed token, which nobody has checked here; none where it is something else."""
    parts = token.split(".")
    if len(parts) != 3:
        return {}
    try:
        found = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (binascii.Error, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def credentials_in(header: str | None, authentication: str) -> Credentials:
    """The credentials in a header. Raises `NoCredentialsError`."""
    scheme, _, text = (header or "").strip().partition(" ")
    text = text.strip()
    if scheme.lower() != authentication or len(text) > _HEADER_MAX:
        raise _missing(authentication)
    return _basic(text) if authentication == BASIC else _bearer(text)


def _basic(text: str) -> Credentials:
    try:
        user, colon, password = base64.b64decode(text, validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        raise _missing(BASIC) from None
    if not user or not colon or not password or _CONTROLS.search(user + password):
        raise _missing(BASIC)
    return Credentials(user, password)


def _bearer(text: str) -> Credentials:
    if _TOKEN.fullmatch(text) is None:
        raise _missing(BEARER)
    return Credentials("", text)


def _missing(authentication: str) -> NoCredentialsError:
    wanted = "a user and a password (Basic)" if authentication == BASIC else "a token (Bearer)"
    return NoCredentialsError(f"Unauthorized: the header Authorization must have {wanted}")
