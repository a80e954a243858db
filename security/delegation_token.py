"""Delegation tokens (KIP-48): a secret of limited life, by which somebody logs in as the token's owner.

The metadata log has a token without its secret, the HMAC. That follows from the token's id and the key that all nodes
have as `delegation.token.secret.key`. A login by SCRAM takes it, in base64, as the password.
"""

from __future__ import annotations

import hmac
from base64 import b64encode
from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias

from .principals import KafkaPrincipal, principal_of_text
from .sasl.scram_credential import ITERATIONS_MIN, ScramCredential, credential_of, salted

HMAC_BYTES = 64
_SALT_BYTES = 24


class DelegationToken(NamedTuple):
    """What the metadata log has of a token. Principals are texts such as `User:alice`; times are in ms since 1970."""

    owner: str
    requester: str
    renewers: tuple[str, ...]
    issue_timestamp_ms: int
    max_timestamp_ms: int
    expiry_timestamp_ms: int

    def may_be_renewed_by(self, principal: str) -> bool:
        """Whether the principal is the owner or a renewer, who may also end the token."""
        return principal == self.owner or principal in self.renewers

    def concerns(self, principal: str) -> bool:
        """Whether the principal is the owner, the requester or a renewer, who may see the token (KIP-373)."""
        return principal == self.requester or self.may_be_renewed_by(principal)


class TokenKey:
    """The key `delegation.token.secret.key`. It is never shown."""

    __slots__ = ("_key",)

    def __init__(self, secret: str) -> None:
        self._key = secret.encode()

    def __repr__(self) -> str:
        return "TokenKey()"

    def hmac_of(self, token_id: str) -> bytes:
        """The HMAC of a token: who has it can log in as the owner of the token."""
        return hmac.digest(self._key, token_id.encode(), "sha512")


class TokenLogin(NamedTuple):
    """How somebody logs in by a token: the credential, as whom, and how long the token holds from now."""

    credential: ScramCredential
    owner: KafkaPrincipal
    lifetime_ms: int


FindToken: TypeAlias = Callable[[str, str], TokenLogin | None]
"""The login by a token for a SCRAM mechanism, by (mechanism, token id)."""


def logs_in_by_token(options: Mapping[str, str]) -> bool:
    """Whether the options of a client's login module are those of a token: `tokenauth="true"`."""
    return options.get("tokenauth", "").lower() == "true"


def no_tokens(mechanism: str, token_id: str) -> None:
    """The logins by tokens where there are none."""


class TokenLogins:
    """The logins by the tokens of a node's image. `key` is None on a node without delegation tokens.

    A credential is made when it is first asked for, which takes some milliseconds, and kept as long as the token.
    """

    def __init__(
        self,
        key: TokenKey | None,
        tokens: Callable[[], Mapping[str, DelegationToken]],
        wall_ms: Callable[[], int],
        secret_bytes: Callable[[int], bytes],
    ) -> None:
        self._key = key
        self._tokens = tokens
        self._wall_ms = wall_ms
        self._secret_bytes = secret_bytes
        self._credentials: dict[str, dict[str, ScramCredential]] = {}

    def find(self, mechanism: str, token_id: str) -> TokenLogin | None:
        """The login by this token; None when there is no such token any more."""
        token = self._tokens().get(token_id)
        if token is None or self._key is None:
            return None
        lifetime_ms = token.expiry_timestamp_ms - self._wall_ms()
        if lifetime_ms <= 0:
            return None
        of_token = self._credentials.setdefault(token_id, {})
        credential = of_token.get(mechanism)
        if credential is None:
            credential = of_token[mechanism] = self._credential(self._key, mechanism, token_id)
        return TokenLogin(credential, principal_of_text(token.owner, is_token=True), lifetime_ms)

    def forget(self, token_id: str) -> None:
        """Drop what is kept of a token that is no more."""
        self._credentials.pop(token_id, None)

    def _credential(self, key: TokenKey, mechanism: str, token_id: str) -> ScramCredential:
        salt = self._secret_bytes(_SALT_BYTES)
        password = b64encode(key.hmac_of(token_id)).decode()
        return credential_of(mechanism, salted(mechanism, password, salt, ITERATIONS_MIN), salt, ITERATIONS_MIN)
