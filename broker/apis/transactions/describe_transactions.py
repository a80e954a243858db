"""DescribeTransactions: no id is found, since transactions are not served yet (KIP-664)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ....wire.errors import ErrorCode
from ...api import Fields
from ...network.request import Request
from ...services import BrokerServices

if TYPE_CHECKING:
    from ....wire.message_types.transactions import DescribeTransactionsRequest


def handle(services: BrokerServices, request: Request, message: DescribeTransactionsRequest) -> Fields:
    """Every id is not found; an empty id is an invalid request."""
    return {
        "transaction_states": [
            _row(one, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND if one else ErrorCode.INVALID_REQUEST)
            for one in message.transactional_ids
        ]
    }


def _row(transactional_id: str, code: int) -> dict[str, Any]:
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
    return {"transaction_states": [_row(one, code) for one in message.transactional_ids]}
