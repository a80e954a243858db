"""DescribeDelegationToken: the tokens that the client may see, with their secrets (KIP-48, KIP-373)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from ....runtime.incremental_work import PLAIN_STEP, Pace, Work
from ....security.authorizer.acl_binding import AclOperation, ResourceType
from ....security.delegation_token import DelegationToken, TokenKey
from ....security.principals import principal_of_text
from ....wire.errors import ErrorCode, ProtocolError
from ...api import Fields
from ...authorization import Authorization
from ...network.request import Request
from ...services import BrokerServices
from .token_requests import check_token_request

if TYPE_CHECKING:
    from ....wire.message_types.security import DescribeDelegationTokenRequest


def handle(services: BrokerServices, request: Request, message: DescribeDelegationTokenRequest) -> Work[Fields]:
    """The tokens of these owners, or all where no list of owners is given. An empty list asks for nothing."""
    check_token_request(request)
    key = services.config.token_key
    if key is None:
        raise ProtocolError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    return _describe(services, request, message, key)


def _describe(
    services: BrokerServices, request: Request, message: DescribeDelegationTokenRequest, key: TokenKey
) -> Work[Fields]:
    pace = Pace()
    wanted: set[str] = set()
    for one in message.owners or ():
        wanted.add(f"{one.principal_type}:{one.principal_name}")
        if pace.ends_step():
            yield PLAIN_STEP
    rows: list[dict[str, Any]] = []
    for token_id, token in list(services.metadata.image.delegation_tokens.items()):
        is_asked = message.owners is None or not wanted.isdisjoint((token.owner, token.requester, *token.renewers))
        if is_asked and _may_see(services.authorization, request, token_id, token, logs_denial=bool(wanted)):
            rows.append(_row(token_id, token, key))
        if pace.ends_step(1 + len(token.renewers)):
            yield PLAIN_STEP
    return {"error_code": 0, "tokens": rows}


def _may_see(
    authorization: Authorization, request: Request, token_id: str, token: DelegationToken, *, logs_denial: bool
) -> bool:
    if token.concerns(str(request.sink.principal)):
        return True
    is_allowed = partial(authorization.is_allowed, request, logs_denial=logs_denial)
    return is_allowed(AclOperation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token_id) or is_allowed(
        AclOperation.DESCRIBE_TOKENS, ResourceType.USER, token.owner
    )


def _row(token_id: str, token: DelegationToken, key: TokenKey) -> dict[str, Any]:
    owner = principal_of_text(token.owner)
    requester = principal_of_text(token.requester)
    return {
        "principal_type": owner.principal_type,
        "principal_name": owner.name,
        "token_requester_principal_type": requester.principal_type,
        "token_requester_principal_name": requester.name,
        "issue_timestamp": token.issue_timestamp_ms,
        "expiry_timestamp": token.expiry_timestamp_ms,
        "max_timestamp": token.max_timestamp_ms,
        "token_id": token_id,
        "hmac": key.hmac_of(token_id),
        "renewers": [
            {"principal_type": one.principal_type, "principal_name": one.name}
            for one in map(principal_of_text, token.renewers)
        ],
    }


def error(message: DescribeDelegationTokenRequest, code: ErrorCode, text: str) -> Fields:
    """The error, and no tokens."""
    return {"error_code": int(code), "tokens": []}
