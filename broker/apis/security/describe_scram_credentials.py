"""DescribeUserScramCredentials: which users have passwords, and how they are kept, never the passwords (KIP-554)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ....runtime.incremental_work import PLAIN_STEP, Pace, Work, count_in_steps, map_in_steps
from ....security.authorizer.acl_binding import AclOperation
from ....security.sasl.scram_credential import ScramCredential
from ....wire.codec import Rows
from ....wire.errors import ErrorCode
from ...api import Fields
from ...network.request import Request
from ...services import BrokerServices

if TYPE_CHECKING:
    from ....wire.message_types.security import DescribeUserScramCredentialsRequest


def handle(services: BrokerServices, request: Request, message: DescribeUserScramCredentialsRequest) -> Work[Fields]:
    """The named users, or all where none is named."""
    services.authorization.check_cluster(request, AclOperation.DESCRIBE)
    credentials = list(services.metadata.image.scram_credentials.items())
    return _answer([one.name for one in message.users or ()], credentials)


def _answer(named: list[str], credentials: list[tuple[tuple[int, str], ScramCredential]]) -> Work[Fields]:
    pace = Pace()
    kept: dict[str, list[dict[str, int]]] = {}
    for (mechanism, user), credential in credentials:
        kept.setdefault(user, []).append({"mechanism": mechanism, "iterations": credential.iterations})
        if pace.ends_step():
            yield PLAIN_STEP
    times = yield from count_in_steps(named, pace)
    results = yield from map_in_steps(lambda name: _row(name, times[name], kept.get(name, [])), times or kept, pace)
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
