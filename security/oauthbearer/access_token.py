"""What a token says once it was verified, and why one is refused."""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

SHOWN_MAX = 100
"""So many characters of what a peer sent are shown in logs."""


@dataclass(frozen=True, slots=True)
class AccessToken:
    """The name of the principal, and when the token expires, in milliseconds since the epoch."""

    principal_name: str
    expires_at_ms: int


class TokenRefusedError(Exception):
    """A token that is not valid. The text is for the log of the server; it has no part of the token's signature.

    `status` and `scope` are told to the client (RFC 7628, 3.2.2). `kind` is that of `SaslAuthenticationError`.
    """

    def __init__(
        self, reason: str, status: str = "invalid_token", scope: str | None = None, *, kind: str | None = None
    ) -> None:
        super().__init__(reason)
        self.kind = kind or reason
        self.status = status
        self.scope = scope


ValidateToken: TypeAlias = Callable[[str, int], AccessToken]
"""Verifies a token at a time in milliseconds since the epoch. Raises `TokenRefusedError`."""


def shown_text(value: object) -> str:
    """What a peer sent, short and without control characters."""
    text = repr(value)
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}..."


def decode_part(part: str, what: str) -> dict[str, Any]:
    """The JSON object in one part of a token. Raises `TokenRefusedError`."""
    try:
        found = json.loads(decode_base64url(part))
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise TokenRefusedError(f"the {what} of the token is not a JSON object in base64url")
    return found


def decode_base64url(text: str) -> bytes:
    """The bytes of base64url without padding. Raises ValueError."""
    return urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))


def encode_part(values: Mapping[str, Any]) -> str:
    """One part of a token: a JSON object in base64url without padding."""
    return urlsafe_b64encode(json.dumps(values, separators=(",", ":")).encode()).decode().rstrip("=")


def time_claim_ms(claims: Mapping[str, Any], name: str) -> int | None:
    """A time among the claims in milliseconds since the epoch; None where there is none.

    Raises `TokenRefusedError` for what is not a number of seconds.
    """
    value = claims.get(name)
    if value is None:
        return None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 <= value < 2**53:
        reason = f"the claim {name} is not a time in seconds"
        raise TokenRefusedError(f"{reason}: {shown_text(value)}", kind=reason)
    return int(value * 1000)


def text_claim(claims: Mapping[str, Any], name: str) -> str:
    """A claim that must be a text and not blank. Raises `TokenRefusedError`."""
    value = claims.get(name)
    if not isinstance(value, str) or not value.strip():
        reason = f"the claim {name} is not a text"
        raise TokenRefusedError(f"{reason}: {shown_text(value)}", kind=reason)
    return value


def check_times(claims: Mapping[str, Any], now_ms: int, skew_ms: int) -> int:
    """Check `exp` and `nbf`; returns when the token expires. Raises `TokenRefusedError`."""
    expires_at_ms, not_before_ms = time_claim_ms(claims, "exp"), time_claim_ms(claims, "nbf")
    if expires_at_ms is None:
        raise TokenRefusedError("the token has no time of expiry (the claim exp)")
    if now_ms >= expires_at_ms + skew_ms:
        raise TokenRefusedError(f"the token has expired {(now_ms - expires_at_ms) // 1000} s ago", kind="expired")
    if not_before_ms is not None and not_before_ms > now_ms + skew_ms:
        starts_in_s = (not_before_ms - now_ms) // 1000
        raise TokenRefusedError(f"the token is not valid before {starts_in_s} s from now", kind="not yet valid")
    return expires_at_ms
