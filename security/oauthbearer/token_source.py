"""Where a client has its token from: the client credentials grant (RFC 6749, 4.4), a file, or options (unsecured).

Kafka's counterparts are ClientCredentialsJwtRetriever and FileJwtRetriever (KIP-768, KIP-1139).
"""

from __future__ import annotations

import json
import logging
from base64 import b64encode
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote_plus, urlencode

from ...runtime.http.client import Fetch, HttpRequest, address_of
from ...runtime.tls_contexts import TlsContext
from .access_token import TokenRefusedError, decode_part, time_claim_ms

REFRESH_AT = 0.8
"""The share of a token's lifetime after which another one is asked for, as sasl.login.refresh.window.factor."""
RETRY_PAUSE_MS = 10_000
"""After a failure, while the last token holds. Apache Kafka's ExpiringCredentialRefreshingLogin waits for as long."""
_ERROR_BYTES_MAX = 300

logger = logging.getLogger("raftwerk.node")


class TokenError(OSError):
    """There is no token to log in with. The text follows the name of the mechanism, and has no secret."""


ReadToken = Callable[[], Awaitable[str]]
"""Asks for a new token. Raises `TokenError`, and OSError."""


@dataclass(frozen=True, slots=True)
class ClientCredentials:
    """What the client credentials grant needs. With `encodes` id and secret are encoded as RFC 6749 says."""

    endpoint: str
    client_id: str
    client_secret: str
    scope: str | None = None
    encodes: bool = False
    tls: TlsContext | None = None

    def __repr__(self) -> str:
        return f"ClientCredentials({address_of(self.endpoint)})"

    def request(self) -> HttpRequest:
        """The request for a token."""
        pair = self.client_id, self.client_secret
        login = ":".join(map(quote_plus, pair) if self.encodes else pair)
        fields = {"grant_type": "client_credentials"} | ({"scope": self.scope} if self.scope else {})
        headers = {
            "Authorization": f"Basic {b64encode(login.encode()).decode()}",
            "Cache-Control": "no-cache",
            "Content-Type": "application/x-www-form-urlencoded",
        }
        return HttpRequest(self.endpoint, headers, urlencode(fields).encode(), self.tls)

    async def read(self, fetch: Fetch) -> str:
        """A new token. Raises `TokenError`, and `HttpError`."""
        answer = await fetch(self.request())
        where = f"the token endpoint {address_of(self.endpoint)}"
        body = _json_object(answer.body)
        if answer.status != 200:
            words = " ".join(str(body[key]) for key in ("error", "error_description") if key in body)
            raise TokenError(f"{where} answers {answer.status}{words and ': '}{words[:_ERROR_BYTES_MAX]}")
        token = body.get("access_token") or body.get("id_token")
        if not isinstance(token, str):
            raise TokenError(f"{where} answers without an access_token")
        return token


def _json_object(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


class TokenSource:
    """The token of a client. It is used again until most of its lifetime is over."""

    def __init__(self, read: ReadToken, wall_ms: Callable[[], int]) -> None:
        self._read = read
        self._wall_ms = wall_ms
        self._refresh_at_ms = 0
        self._expires_at_ms = 0
        self.token = ""
        """The last token that was asked for."""

    async def prepare(self) -> None:
        """Ask for another token where there is none that holds for long.

        The last one is kept while it holds and there is no other. Raises `TokenError`, and OSError.
        """
        now_ms = self._wall_ms()
        if now_ms < self._refresh_at_ms:
            return
        try:
            token = await self._new_token()
        except OSError as error:
            now_ms = self._wall_ms()
            if now_ms >= self._expires_at_ms:
                raise
            self._refresh_at_ms = min(now_ms + RETRY_PAUSE_MS, self._expires_at_ms)
            left_s = (self._expires_at_ms - now_ms) // 1000
            logger.warning(
                "OAUTHBEARER: the last token is used, which holds for %d s, as no other came: %s", left_s, error
            )
            return
        expires_at_ms = _expiry_of(token)
        self.token = token
        self._expires_at_ms = expires_at_ms or 0
        self._refresh_at_ms = now_ms if expires_at_ms is None else now_ms + int(REFRESH_AT * (expires_at_ms - now_ms))

    async def _new_token(self) -> str:
        try:
            token = (await self._read()).strip()
        except RuntimeError as error:  # the system can start no thread for it
            raise TokenError(str(error)) from error
        if not token.isascii() or not token or any(character <= " " for character in token):
            raise TokenError("the token has characters that no token has, or is empty")
        return token


def _expiry_of(token: str) -> int | None:
    """When a token expires, as far as it says so."""
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        return time_claim_ms(decode_part(parts[1], "payload"), "exp")
    except TokenRefusedError:
        return None
