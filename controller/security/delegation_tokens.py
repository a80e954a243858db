"""Delegation tokens (KIP-48, KIP-373): made, renewed, ended, and removed when they have expired.

As in Apache Kafka a token whose time is up can be renewed until it is removed, but not beyond its longest life.
"""

from __future__ import annotations

import random
from base64 import urlsafe_b64encode
from dataclasses import dataclass
from hmac import compare_digest
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from ...runtime.incremental_work import PLAIN_STEP, Pace
from ...runtime.ports import Buffer
from ...security.authorizer.acl_binding import AclOperation, ResourceType
from ...security.delegation_token import HMAC_BYTES, DelegationToken, TokenKey
from ...security.principals import USER, KafkaPrincipal
from ...wire.errors import ErrorCode, ProtocolError
from ..metadata.features import METADATA_VERSION_WITH_TOKENS
from ..metadata.metadata_image import METADATA_VERSION_FEATURE, MetadataImage
from ..metadata.metadata_records import DelegationTokenRecord, Record, RemoveDelegationTokenRecord
from ..result import ControllerResult, Decision, Parts
from .record_level import check_security_records
from .rights import IsAllowed

if TYPE_CHECKING:
    from ...wire.message_types.security import (
        CreateDelegationTokenRequest,
        ExpireDelegationTokenRequest,
        RenewDelegationTokenRequest,
    )

_HOUR_MS = 60 * 60 * 1000
_TIMESTAMP_MAX = 2**63 - 1
_RENEWERS_MAX = 1000
_NAMES_CHARS_MAX = 64 * 1024
"""The owner and the renewers of one token. Their names are in one record of the metadata log."""


@dataclass(frozen=True, slots=True)
class TokenSettings:
    """`delegation.token.*`; times in milliseconds. Without a key there are no delegation tokens."""

    key: TokenKey | None = None
    max_lifetime_ms: int = 7 * 24 * _HOUR_MS
    expiry_time_ms: int = 24 * _HOUR_MS
    expiry_check_interval_ms: int = _HOUR_MS


class TokenRequester(NamedTuple):
    """Who asks, what the authorizer says of it, and when: `now_ms` is in milliseconds since 1970."""

    principal: KafkaPrincipal
    is_allowed: IsAllowed
    now_ms: int


def create_token(
    image: MetadataImage,
    settings: TokenSettings,
    request: CreateDelegationTokenRequest,
    requester: TokenRequester,
    rng: random.Random,
) -> ControllerResult:
    """CreateDelegationToken 1-3. Who makes a token for another owner needs CREATE_TOKENS on it.

    Raises `ProtocolError`.
    """
    owner = _owner(request, requester)
    if len(request.renewers) > _RENEWERS_MAX:
        raise ProtocolError(ErrorCode.INVALID_REQUEST)
    if any(one.principal_type != USER for one in request.renewers):
        raise ProtocolError(ErrorCode.INVALID_PRINCIPAL_TYPE)
    renewers = tuple(f"{one.principal_type}:{one.principal_name}" for one in request.renewers)
    if len(str(owner)) + sum(map(len, renewers)) > _NAMES_CHARS_MAX:
        raise ProtocolError(ErrorCode.INVALID_REQUEST)
    key = _checked_key(image, settings)
    limit_ms = settings.max_lifetime_ms
    lifetime_ms = min(request.max_lifetime, limit_ms) if request.max_lifetime > 0 else limit_ms
    max_timestamp_ms = min(requester.now_ms + lifetime_ms, _TIMESTAMP_MAX)
    expiry_timestamp_ms = min(requester.now_ms + settings.expiry_time_ms, max_timestamp_ms)
    token_id = _new_id(image, rng)
    asker = requester.principal
    token = DelegationToken(str(owner), str(asker), renewers, requester.now_ms, max_timestamp_ms, expiry_timestamp_ms)
    response = {
        "error_code": 0,
        "principal_type": owner.principal_type,
        "principal_name": owner.name,
        "token_requester_principal_type": asker.principal_type,
        "token_requester_principal_name": asker.name,
        "issue_timestamp": requester.now_ms,
        "expiry_timestamp": expiry_timestamp_ms,
        "max_timestamp": max_timestamp_ms,
        "token_id": token_id,
        "hmac": key.hmac_of(token_id),
    }
    return ControllerResult([DelegationTokenRecord(token_id, *token)], response)


def _owner(request: CreateDelegationTokenRequest, requester: TokenRequester) -> KafkaPrincipal:
    kind, name = request.get("owner_principal_type", None), request.get("owner_principal_name", None)
    if not name:
        return requester.principal
    if not kind or ":" in kind:
        raise ProtocolError(ErrorCode.INVALID_PRINCIPAL_TYPE)
    owner = KafkaPrincipal(kind, name)
    is_own = str(owner) == str(requester.principal)
    if not is_own and not requester.is_allowed(AclOperation.CREATE_TOKENS, ResourceType.USER, str(owner)):
        raise ProtocolError(ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED)
    return owner


def _new_id(image: MetadataImage, rng: random.Random) -> str:
    """An id that begins with no hyphen, so that it can stand in a command line, as Kafka's ids."""
    while True:
        drawn = UUID(int=rng.getrandbits(128), version=4)
        text = urlsafe_b64encode(drawn.bytes).rstrip(b"=").decode()
        if not text.startswith("-") and text not in image.delegation_tokens:
            return text


def renew_token(
    image: MetadataImage, settings: TokenSettings, request: RenewDelegationTokenRequest, requester: TokenRequester
) -> Decision:
    """RenewDelegationToken 1-2: it expires after the period, but after `delegation.token.expiry.time.ms` at the latest.

    Raises `ProtocolError`.
    """
    token_id, token = yield from _found(image, _checked_key(image, settings), request.hmac)
    _check_life(token, requester)
    _check_renewer(token, requester)
    limit_ms = settings.expiry_time_ms
    period_ms = min(request.renew_period, limit_ms) if request.renew_period > 0 else limit_ms
    return _changed(token_id, token, requester.now_ms + period_ms)


def expire_token(
    image: MetadataImage, settings: TokenSettings, request: ExpireDelegationTokenRequest, requester: TokenRequester
) -> Decision:
    """ExpireDelegationToken 1-2: it expires after the period; a negative one removes it at once.

    Raises `ProtocolError`.
    """
    token_id, token = yield from _found(image, _checked_key(image, settings), request.hmac)
    _check_renewer(token, requester)
    if request.expiry_time_period < 0:
        gone = RemoveDelegationTokenRecord(token_id)
        return ControllerResult([gone], {"error_code": 0, "expiry_timestamp": requester.now_ms})
    _check_life(token, requester)
    return _changed(token_id, token, requester.now_ms + request.expiry_time_period)


def remove_expired_tokens(image: MetadataImage, now_ms: int) -> Decision:
    """The end of the tokens whose time is up."""
    pace = Pace()
    records: list[Record] = []
    for token_id, token in list(image.delegation_tokens.items()):
        if token.expiry_timestamp_ms < now_ms and image.delegation_tokens.get(token_id) == token:
            records.append(RemoveDelegationTokenRecord(token_id))
        if pace.ends_step():
            yield records
            records = []
    return ControllerResult(records, {})


def _checked_key(image: MetadataImage, settings: TokenSettings) -> TokenKey:
    if settings.key is None:
        raise ProtocolError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    if image.features.get(METADATA_VERSION_FEATURE, 0) < METADATA_VERSION_WITH_TOKENS:
        raise ProtocolError(ErrorCode.UNSUPPORTED_VERSION)
    check_security_records(image)
    return settings.key


def _found(image: MetadataImage, key: TokenKey, hmac: Buffer) -> Parts[tuple[str, DelegationToken]]:
    if len(hmac) != HMAC_BYTES:
        raise ProtocolError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
    pace = Pace()
    for token_id in list(image.delegation_tokens):
        if compare_digest(key.hmac_of(token_id), hmac):
            token = image.delegation_tokens.get(token_id)
            if token is not None:
                return token_id, token
        if pace.ends_step():
            yield PLAIN_STEP
    raise ProtocolError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)


def _check_life(token: DelegationToken, requester: TokenRequester) -> None:
    if token.max_timestamp_ms < requester.now_ms:
        raise ProtocolError(ErrorCode.DELEGATION_TOKEN_EXPIRED)


def _check_renewer(token: DelegationToken, requester: TokenRequester) -> None:
    if not token.may_be_renewed_by(str(requester.principal)):
        raise ProtocolError(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)


def _changed(token_id: str, token: DelegationToken, expiry_timestamp_ms: int) -> ControllerResult:
    changed = token._replace(expiry_timestamp_ms=min(expiry_timestamp_ms, token.max_timestamp_ms))
    response = {"error_code": 0, "expiry_timestamp": changed.expiry_timestamp_ms}
    return ControllerResult([DelegationTokenRecord(token_id, *changed)], response)
