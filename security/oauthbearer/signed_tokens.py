"""Verifies signed tokens (JWT, RFC 7519) by the public keys of an identity provider (JWKS, RFC 7517).

Kafka's counterpart is BrokerJwtValidator, with the rules of jose4j: a token has `exp` and `iat`; one with an audience
is refused where none is expected. Signatures are asymmetric only: a public key never serves as the secret of an HMAC,
and there is no algorithm `none`.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from joserfc import jws
from joserfc.errors import JoseError, SecurityWarning
from joserfc.jwk import JWKRegistry, Key, RSAKey

from .access_token import (
    AccessToken,
    TokenRefusedError,
    check_times,
    decode_part,
    shown_text,
    text_claim,
    time_claim_ms,
)

_KEY_TYPES = {
    **dict.fromkeys(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"), "RSA"),
    **dict.fromkeys(("ES256", "ES384", "ES512"), "EC"),
    "EdDSA": "OKP",
}
ALGORITHMS = tuple(_KEY_TYPES)
"""The algorithms of signatures that are accepted."""
_RSA_BITS_MIN = 2048


class KeySetError(ValueError):
    """A document that is no JWKS."""


class NoPublicKeyError(KeySetError):
    """A JWKS document that has no key by which a signature can be verified."""


@dataclass(frozen=True, slots=True)
class PublicKey:
    """One key of a JWKS. `algorithm` is None where the key does not say for which it is."""

    key: Key
    key_id: str | None
    algorithm: str | None


def parse_key_set(document: bytes) -> tuple[PublicKey, ...]:
    """The keys of a JWKS document that verify signatures; others are left out, as RFC 7517 asks for.

    Raises `KeySetError`, and `NoPublicKeyError` if none is left.
    """
    try:
        entries = json.loads(document)["keys"]
        found = tuple(key for key in map(_public_key, entries) if key is not None)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise KeySetError("it is not a JWKS document: a JSON object with the list keys") from None
    if not found:
        raise NoPublicKeyError(f"it has no public key for one of {', '.join(ALGORITHMS)}")
    return found


def _public_key(entry: Mapping[str, Any]) -> PublicKey | None:
    key_id, algorithm = entry.get("kid"), entry.get("alg")
    if entry.get("kty") not in _KEY_TYPES.values() or entry.get("use", "sig") != "sig":
        return None
    if algorithm is not None and algorithm not in ALGORITHMS:
        return None
    try:
        with warnings.catch_warnings(action="ignore", category=SecurityWarning):  # short keys are left out below
            key = JWKRegistry.import_key(dict(entry))
        if isinstance(key, RSAKey) and key.public_key.key_size < _RSA_BITS_MIN:
            return None
    except (JoseError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return PublicKey(key, key_id if isinstance(key_id, str) else None, algorithm)


@dataclass(frozen=True, slots=True)
class SignedTokenOptions:
    """What a token must say, by the settings `sasl.oauthbearer.*` of the listener."""

    audience: Sequence[str] = ()
    issuer: str | None = None
    scope_claim: str = "scope"
    subject_claim: str = "sub"
    clock_skew_s: int = 30


class SignedTokens:
    """Verifies tokens by the keys of the moment; `on_unknown_key` is called when none of them fits a token."""

    def __init__(
        self,
        options: SignedTokenOptions,
        keys: Callable[[], Sequence[PublicKey]],
        on_unknown_key: Callable[[], None] = lambda: None,
    ) -> None:
        self._options = options
        self._keys = keys
        self._on_unknown_key = on_unknown_key

    def __call__(self, token: str, now_ms: int) -> AccessToken:
        """Verify the signature, then the claims. Raises `TokenRefusedError`."""
        parts = token.split(".")
        if len(parts) != 3 or not all(parts):
            raise TokenRefusedError("it is not a signed token: three parts with dots between")
        header = decode_part(parts[0], "header")
        self._verify(token, header)
        return self._judge(decode_part(parts[1], "payload"), now_ms)

    def _verify(self, token: str, header: Mapping[str, Any]) -> None:
        algorithm, key_id = header.get("alg"), header.get("kid")
        if not isinstance(algorithm, str) or algorithm not in _KEY_TYPES:
            reason = f"its signature is by {shown_text(algorithm)}, not by one of {', '.join(ALGORITHMS)}"
            raise TokenRefusedError(reason, kind="algorithm")
        if "crit" in header or "b64" in header:
            raise TokenRefusedError("its header has extensions that must be understood (crit)")
        candidates = [one for one in self._keys() if _fits(one, algorithm, key_id)]
        if not candidates:
            self._on_unknown_key()
            reason = f"there is no key {shown_text(key_id)} for {algorithm} in the JWKS document"
            raise TokenRefusedError(reason, kind="unknown key")
        if not any(_is_signed_by(token, one.key, algorithm) for one in candidates):
            raise TokenRefusedError("its signature is wrong")

    def _judge(self, claims: Mapping[str, Any], now_ms: int) -> AccessToken:
        options = self._options
        expires_at_ms = check_times(claims, now_ms, options.clock_skew_s * 1000)
        issued_at_ms = time_claim_ms(claims, "iat")
        if issued_at_ms is None:
            raise TokenRefusedError("the token has no time of issue (the claim iat)")
        if expires_at_ms < max(issued_at_ms, time_claim_ms(claims, "nbf") or 0):
            raise TokenRefusedError("the token expires before it is issued or valid (the claims exp, iat, nbf)")
        if options.issuer is not None and claims.get("iss") != options.issuer:
            reason = f"its issuer is {shown_text(claims.get('iss'))}, not {options.issuer}"
            raise TokenRefusedError(reason, kind="issuer")
        self._check_audience(claims.get("aud"))
        _check_scopes(claims.get(options.scope_claim), options.scope_claim)
        return AccessToken(text_claim(claims, options.subject_claim).strip(), expires_at_ms)

    def _check_audience(self, found: Any) -> None:
        audience = [found] if isinstance(found, str) else found
        if audience is None and not self._options.audience:
            return
        if not isinstance(audience, list) or not any(one in self._options.audience for one in audience):
            expected = ", ".join(self._options.audience) or "none (sasl.oauthbearer.expected.audience is not set)"
            raise TokenRefusedError(f"its audience is {shown_text(found)}; expected is {expected}", kind="audience")


def _fits(key: PublicKey, algorithm: str, key_id: Any) -> bool:
    is_meant = key_id is None or key.key_id == key_id
    return is_meant and key.key.key_type == _KEY_TYPES[algorithm] and key.algorithm in (None, algorithm)


def _is_signed_by(token: str, key: Key, algorithm: str) -> bool:
    try:
        registry = jws.JWSRegistry(algorithms=[algorithm], strict_check_header=False)
        jws.deserialize_compact(token.encode("ascii"), key, registry=registry)
    except (JoseError, ValueError):
        return False
    return True


def _check_scopes(found: Any, name: str) -> None:
    """As Kafka's ClaimValidationUtils: scopes are optional, not blank, and each comes once."""
    scopes = found if isinstance(found, list) else []
    if isinstance(found, str) and not found.strip():
        raise TokenRefusedError(f"the claim {name} is blank")
    names = [one.strip() if isinstance(one, str) else "" for one in scopes]
    if "" in names or len(dict.fromkeys(names)) < len(names):
        reason = f"the claim {name} is not a list of different names"
        raise TokenRefusedError(f"{reason}: {shown_text(found)}", kind=reason)
