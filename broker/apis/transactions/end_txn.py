"""EndTxn: commit or abort the transaction. Answered when the decision is durable; markers are written afterwards."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....security.authorizer.acl_binding import AclOperation, ResourceType
from ....wire.errors import ErrorCode
from ...api import Fields
from ...network.request import Request
from ...services import BrokerServices
from ...transactions.transaction_decisions import Producer
from ...transactions.transaction_metadata import EPOCH_BUMP_VERSION
from .transaction_requests import for_version

if TYPE_CHECKING:
    from ....wire.message_types.transactions import EndTxnRequest

EPOCH_BUMP_SINCE = 5
"""Clients of this version speak `transaction.version` 2 (KIP-890)."""
_PRODUCER_FENCED_SINCE = 2


async def handle(services: BrokerServices, request: Request, message: EndTxnRequest) -> Fields:
    """From version 5 on, the answer has the producer id and epoch of the next transaction."""
    if not message.transactional_id:
        return error(message, ErrorCode.INVALID_REQUEST, "")
    services.authorization.check(request, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, message.transactional_id)
    answer = await services.transactions.end_transaction(
        message.transactional_id,
        Producer(message.producer_id, message.producer_epoch),
        is_commit=message.committed,
        client_version=EPOCH_BUMP_VERSION if request.api_version >= EPOCH_BUMP_SINCE else 0,
    )
    return {
        "error_code": int(for_version(answer.error, request.api_version, _PRODUCER_FENCED_SINCE)),
        "producer_id": answer.producer_id,
        "producer_epoch": answer.producer_epoch,
    }


def error(message: EndTxnRequest, code: int, text: str) -> Fields:
    """The response has the error."""
    return {"error_code": int(code), "producer_id": -1, "producer_epoch": -1}
