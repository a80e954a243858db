"""ListTransactions: always empty, since transactions are not served yet (KIP-664)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...api import Fields
from ...network.request import Request
from ...services import BrokerServices

if TYPE_CHECKING:
    from ....wire.message_types.transactions import ListTransactionsRequest

_STATES = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
    "PrepareEpochFence",
)


def handle(services: BrokerServices, request: Request, message: ListTransactionsRequest) -> Fields:
    """No transactions, and the states of the filter that do not exist."""
    unknown = [state for state in message.state_filters if state not in _STATES]
    return {"error_code": 0, "unknown_state_filters": unknown, "transaction_states": []}
