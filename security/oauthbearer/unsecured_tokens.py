"""Tokens without a signature (RFC 7515, appendix A.5), for tests of clients only: everybody can be anybody.

A listener accepts them only if a setting says so. The options are Kafka's (KIP-255).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .access_token import (
    AccessToken,
    TokenRefusedError,
    check_times,
    decode_part,
    encode_part,
    text_claim,
    time_claim_ms,
)

_VALIDATOR, _LOGIN = "unsecuredValidator", "unsecuredLogin"
_DEFAULT_LIFETIME_S = "3600"


class UnsecuredTokens:
    """Accepts tokens by the options `unsecuredValidator...` of a login module. Raises ValueError for wrong ones."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._principal_claim = options.get(f"{_VALIDATOR}PrincipalClaimName", "").strip() or "sub"
        self._scope_claim = options.get(f"{_VALIDATOR}ScopeClaimName", "").strip() or "scope"
        self._required = options.get(f"{_VALIDATOR}RequiredScope", "").split()
        self._skew_ms = int(options.get(f"{_VALIDATOR}AllowableClockSkewMs", "").strip() or 0)
        if self._skew_ms < 0:
            raise ValueError("unsecuredValidatorAllowableClockSkewMs must not be negative")

    def __call__(self, token: str, now_ms: int) -> AccessToken:
        """Check the claims of a token. Raises `TokenRefusedError`."""
        parts = token.split(".")
        if len(parts) != 3 or parts[2]:
            raise TokenRefusedError("it is not an unsecured token: two parts, and a dot behind each")
        if decode_part(parts[0], "header").get("alg") != "none":
            raise TokenRefusedError("its algorithm is not none")
        claims = decode_part(parts[1], "payload")
        principal = text_claim(claims, self._principal_claim)
        expires_at_ms = check_times(claims, now_ms, self._skew_ms)
        issued_at_ms = time_claim_ms(claims, "iat")
        if issued_at_ms is not None and issued_at_ms > now_ms + self._skew_ms:
            raise TokenRefusedError("its time of issue is in the future")
        scopes = claims.get(self._scope_claim)
        held = scopes.split() if isinstance(scopes, str) else scopes if isinstance(scopes, list) else []
        if any(one not in held for one in self._required):
            scope = " ".join(self._required)
            raise TokenRefusedError(f"it has not the scope {scope}", "insufficient_scope", scope)
        return AccessToken(principal, expires_at_ms)


def unsecured_token(options: Mapping[str, str], now_ms: int) -> str | None:
    """A token by the options `unsecuredLogin...` of a client's login module; None where they name no principal.

    Raises ValueError for options that are not valid.
    """
    claims: dict[str, Any] = {}
    readers: dict[str, Callable[[str], Any]] = {"String": str, "Number": float, "List": _list_of}
    for kind, read in readers.items():
        prefix = f"{_LOGIN}{kind}Claim_"
        claims |= {key.removeprefix(prefix): read(value) for key, value in options.items() if key.startswith(prefix)}
    lifetime_s = float(options.get(f"{_LOGIN}LifetimeSeconds", _DEFAULT_LIFETIME_S))
    principal = options.get(f"{_LOGIN}PrincipalClaimName", "sub")
    if principal not in claims:
        return None
    claims |= {"iat": now_ms / 1000, "exp": now_ms / 1000 + lifetime_s}
    return f"{encode_part({'alg': 'none'})}.{encode_part(claims)}."


def extensions_of(options: Mapping[str, str]) -> dict[str, str]:
    """The extensions that a client's login module asks for (KIP-342)."""
    prefixes = (f"{_LOGIN}Extension_", "extension_")
    return {
        key.removeprefix(prefix): value
        for prefix in prefixes
        for key, value in options.items()
        if key.startswith(prefix)
    }


def _list_of(text: str) -> list[str]:
    """Kafka's notation: the first character separates the values."""
    return text[1:].split(text[0]) if text else []
