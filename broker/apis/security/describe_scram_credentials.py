"""DescribeUserScramCredentials: which users have passwords, and how they are kept, never the passwords (KIP-554)."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from ....security.authorizer.acl_binding import AclOperation
from ....wire.codec import Rows
from ....wire.errors import ErrorCode
from ...api import Fields
from ...network.request import Request
from ...services import BrokerServices

if TYPE_CHECKING:
    from ....wire.message_types.security import DescribeUserScramCredentialsRequest


def handle(services: BrokerServices, request: Request, message: DescribeUserScramCredentialsRequest) -> Fields:
    """The named users, or all where none is named."""
    services.authorization.check_cluster(request, AclOperation.DESCRIBE)
    kept: dict[str, list[dict[str, int]]] = {}
    for (mechanism, user), credential in services.metadata.image.scram_credentials.items():
        kept.setdefault(user, []).append({"mechanism": mechanism, "iterations": credential.iterations})
    named = [one.name for one in message.users or ()]
    times = Counter(named)
    results = [_row(name, times[name], kept.get(name, [])) for name in dict.fromkeys(named or kept)]
    return {"error_code": 0, "error_message": None, "results": results}


def error(message: DescribeUserScramCredentialsRequest, code: int, text: str) -> Fields:
    """The response as a whole and each named user get the error."""
    refused = {"error_code": int(code), "error_message": text or None}
    rows = Rows(lambda one: {"user": one.name, **refused, "credential_infos": []}, message.users or ())
    return {**refused, "results": rows}


def _row(user: str, times: int, infos: list[dict[str, int]]) -> dict[str, Any]:
    if times > 1:
        code = ErrorCode.DUPLICATE_RESOURCE
        text = f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}"
    elif not infos:
        code = ErrorCode.RESOURCE_NOT_FOUND
        text = f"Attempt to describe a user credential that does not exist: {user}"
    else:
        rows = sorted(infos, key=lambda info: info["mechanism"])
        return {"user": user, "error_code": 0, "error_message": None, "credential_infos": rows}
    return {"user": user, "error_code": int(code), "error_message": text, "credential_infos": []}
