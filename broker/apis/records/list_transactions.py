"""ListTransactions: always empty, since transactions are not served yet (KIP-664)."""

from __future__ import annotations

from ....wire.codec import Struct
from ...api import Fields
from ...network.request import Request
from ...services import BrokerServices

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


def handle(services: BrokerServices, request: Request, message: Struct) -> Fields:
    """No transactions, and the states of the filter that do not exist."""
    unknown = [state for state in message.state_filters if state not in _STATES]
    return {"error_code": 0, "unknown_state_filters": unknown, "transaction_states": []}
