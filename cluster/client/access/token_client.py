"""Makes, lists, renews and ends delegation tokens (KIP-48)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ....security.principals import KafkaPrincipal
from ....wire.api_keys import ApiKey
from ....wire.codec import Struct
from ....wire.errors import ErrorCode
from ..client_errors import ClientError, RefusedError, raise_if_refused
from ..cluster_client import ClusterClient
from ..requests.attempts import Attempts

_TOKENS_VERSION = 3
_TOKEN_CHANGE_VERSION = 2
_AT_ONCE_MS = -1
_MAY_BE_MADE = "a token may have been made all the same: raftwerk tokens list shows it, raftwerk tokens expire ends it"


@dataclass(frozen=True, slots=True)
class TokenRow:
    """A delegation token. Principals are texts such as `User:alice`; times are in milliseconds since 1970."""

    token_id: str
    hmac: bytes = field(repr=False)
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issued_ms: int
    expires_ms: int
    max_ms: int
    """It cannot be renewed beyond this time."""


class TokenClient:
    """Asks a cluster about delegation tokens. Every method raises `RefusedError` when it answers with an error."""

    def __init__(self, client: ClusterClient) -> None:
        self._client = client

    async def create(
        self, owner: KafkaPrincipal | None, renewers: Sequence[KafkaPrincipal], lifetime_ms: int
    ) -> TokenRow:
        """Make a token, for oneself if there is no `owner`; a lifetime of -1 is the longest.

        No other broker is asked after one that got the request and gave no answer, since each makes another token:
        `ClientError` says that there may be one.
        """
        fields = {
            "owner_principal_type": None if owner is None else owner.principal_type,
            "owner_principal_name": None if owner is None else owner.name,
            "renewers": [_principal_row(one) for one in renewers],
            "max_lifetime": lifetime_ms,
        }
        api = ApiKey.CREATE_DELEGATION_TOKEN
        answer = await self._client.request(api, _TOKENS_VERSION, fields, _end_without_answer)
        if answer.error_code == ErrorCode.REQUEST_TIMED_OUT:
            raise RefusedError(answer.error_code, "tokens", note=_MAY_BE_MADE)
        raise_if_refused(answer.error_code, "tokens")
        return _token_row(answer, tuple(map(str, renewers)))

    async def list_tokens(self, owners: Sequence[KafkaPrincipal] | None = None) -> list[TokenRow]:
        """The tokens that one may see: all, or those of these owners."""
        fields = {"owners": None if owners is None else [_principal_row(one) for one in owners]}
        answer = await self._client.request(ApiKey.DESCRIBE_DELEGATION_TOKEN, _TOKENS_VERSION, fields)
        raise_if_refused(answer.error_code, "tokens")
        return [
            _token_row(row, tuple(f"{one.principal_type}:{one.principal_name}" for one in row.renewers))
            for row in answer.tokens
        ]

    async def renew(self, token: TokenRow, period_ms: int) -> int:
        """Renew a token for this time, -1 for the longest; returns when it expires now, in ms since 1970."""
        fields = {"hmac": token.hmac, "renew_period": period_ms}
        answer = await self._client.request(ApiKey.RENEW_DELEGATION_TOKEN, _TOKEN_CHANGE_VERSION, fields)
        raise_if_refused(answer.error_code, f"token {token.token_id}")
        return int(answer.expiry_timestamp)

    async def expire(self, token: TokenRow, period_ms: int) -> int:
        """Let a token expire after this time; returns when, in ms since 1970."""
        answer = await self._expire(token, period_ms, Attempts())
        raise_if_refused(answer.error_code, f"token {token.token_id}")
        return int(answer.expiry_timestamp)

    async def end(self, token: TokenRow) -> None:
        """Let a token expire at once."""
        attempts = Attempts()
        answer = await self._expire(token, _AT_ONCE_MS, attempts)
        code = attempts.error_of(answer.error_code, ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
        raise_if_refused(code, f"token {token.token_id}")

    async def _expire(self, token: TokenRow, period_ms: int, attempts: Attempts) -> Struct:
        fields = {"hmac": token.hmac, "expiry_time_period": period_ms}
        return await attempts.request(self._client, ApiKey.EXPIRE_DELEGATION_TOKEN, _TOKEN_CHANGE_VERSION, fields)


def _end_without_answer() -> None:
    raise ClientError(f"the broker that was asked gave no answer; {_MAY_BE_MADE}")


def _principal_row(principal: KafkaPrincipal) -> dict[str, str]:
    return {"principal_type": principal.principal_type, "principal_name": principal.name}


def _token_row(row: Any, renewers: tuple[str, ...]) -> TokenRow:
    return TokenRow(
        token_id=row.token_id,
        hmac=bytes(row.hmac),
        owner=f"{row.principal_type}:{row.principal_name}",
        requester=f"{row.token_requester_principal_type}:{row.token_requester_principal_name}",
        renewers=renewers,
        issued_ms=row.issue_timestamp,
        expires_ms=row.expiry_timestamp,
        max_ms=row.max_timestamp,
    )
