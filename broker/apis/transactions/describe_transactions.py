"""DescribeTransactions: the states of transactional ids that this broker coordinates (KIP-664)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from ....runtime.incremental_work import Work, map_in_steps
from ....security.authorizer.acl_binding import AclOperation, ResourceType
from ....security.authorizer.authorizer import DENIED
from ....wire.codec import Rows
from ....wire.errors import ErrorCode, ProtocolError
from ....wire.types import by_topic
from ...api import Fields
from ...network.request import Request
from ...services import BrokerServices

if TYPE_CHECKING:
    from ....wire.message_types.transactions import DescribeTransactionsRequest


def handle(services: BrokerServices, request: Request, message: DescribeTransactionsRequest) -> Work[Fields]:
    """Each id by itself; an empty id is an invalid request. Topics that the client may not see are left out."""
    rows = yield from map_in_steps(partial(_describe, services, request), message.transactional_ids)
    return {"transaction_states": rows}


def _describe(services: BrokerServices, request: Request, transactional_id: str) -> dict[str, Any]:
    if not transactional_id:
        return _failed(transactional_id, ErrorCode.INVALID_REQUEST)
    rights = services.authorization
    if not rights.is_allowed(request, AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transactional_id):
        return _failed(transactional_id, DENIED[ResourceType.TRANSACTIONAL_ID])
    may_see = rights.permission(request, AclOperation.DESCRIBE, ResourceType.TOPIC, logs_denial=False)
    try:
        value = services.transactions.shard_of(transactional_id).current(transactional_id)
    except ProtocolError as error:
        return _failed(transactional_id, error.code)
    if value is None:
        return _failed(transactional_id, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    return {
        "error_code": 0,
        "transactional_id": transactional_id,
        "transaction_state": value.state.label,
        "transaction_timeout": value.timeout_ms,
        "transaction_start_time": value.start_ms,
        "producer_id": value.producer_id,
        "producer_epoch": value.producer_epoch,
        "topics": [
            {"topic": name, "partitions": indexes}
            for name, indexes in by_topic(sorted(value.partitions)).items()
            if may_see(name)
        ],
    }


def _failed(transactional_id: str, code: int) -> dict[str, Any]:
    return {
        "error_code": int(code),
        "transactional_id": transactional_id,
        "transaction_state": "",
        "transaction_timeout": 0,
        "transaction_start_time": 0,
        "producer_id": 0,
        "producer_epoch": 0,
        "topics": [],
    }


def error(message: DescribeTransactionsRequest, code: int, text: str) -> Fields:
    """Every id gets the error."""
    return {"transaction_states": Rows(lambda one: _failed(one, code), message.transactional_ids)}
