"""How a user logs in at the cluster: by our own client, and by librdkafka."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ...runtime.tls_contexts import TlsContext
from ...security.client_login import ClientLogin
from ...security.oauthbearer.exchange import OAUTHBEARER, OAuthBearerClient
from ...security.sasl.mechanism import ClientMechanism
from ...security.sasl.plain import PLAIN, PlainClient
from ...security.sasl.scram import ScramClientExchange, new_nonce
from .credentials import Credentials, claims_of

_TOKEN_S = 3600.0
"""After this time librdkafka asks for a token again at the latest, also for one that does not say when it expires."""
_TOKEN_MIN_S = 10.0
"""After this time at the earliest: for one that has expired a request may have brought another one by then."""
_SECURED = {"PLAINTEXT": "SASL_PLAINTEXT", "SSL": "SASL_SSL"}


@dataclass(frozen=True, slots=True)
class UserLogins:
    """What all users have in common: the mechanism, the TLS of connections, and librdkafka's other settings."""

    mechanism: str
    tls: TlsContext | None
    librdkafka: Mapping[str, str]
    secret_bytes: Callable[[int], bytes]
    wall_ms: Callable[[], int]

    def login(self, credentials: Credentials) -> ClientLogin:
        """The login of our own client."""
        kept_there = (self.mechanism, credentials.user) if self.mechanism.startswith("SCRAM") else None
        return ClientLogin(self.tls, lambda _: self._exchange(credentials), scram_user=kept_there)

    def _exchange(self, credentials: Credentials) -> ClientMechanism:
        if self.mechanism == OAUTHBEARER:
            return OAuthBearerClient(credentials.secret)
        if self.mechanism == PLAIN:
            return PlainClient(credentials.user, credentials.secret)
        nonce = new_nonce(self.secret_bytes)
        return ScramClientExchange(self.mechanism, credentials.user, credentials.secret, nonce)

    def settings(self, credentials: Credentials) -> dict[str, Any]:
        """The settings of librdkafka."""
        kept = {name: value for name, value in self.librdkafka.items() if not name.startswith("sasl.")}
        protocol = kept.get("security.protocol", "PLAINTEXT")
        common = {**kept, "security.protocol": _SECURED.get(protocol, protocol), "sasl.mechanism": self.mechanism}
        if self.mechanism != OAUTHBEARER:
            return {**common, "sasl.username": credentials.user, "sasl.password": credentials.secret}
        return {**common, "oauth_cb": lambda _: (credentials.secret, self._expires_at_s(credentials.secret))}

    def _expires_at_s(self, token: str) -> float:
        """When librdkafka asks for the next token. The cluster judges this one, by a clock of its own."""
        expires = claims_of(token).get("exp")
        now = self.wall_ms() / 1000
        if not isinstance(expires, int | float) or isinstance(expires, bool):
            return now + _TOKEN_S
        return float(max(now + _TOKEN_MIN_S, min(now + _TOKEN_S, expires)))
