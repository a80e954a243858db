"""DescribeClientQuotas: always empty, since quotas cannot be set yet (KIP-546)."""

from __future__ import annotations

from ....wire.codec import Struct
from ...api import Fields
from ...network.request import Request
from ...services import BrokerServices


def handle(services: BrokerServices, request: Request, message: Struct) -> Fields:
    """No entries."""
    return {"error_code": 0, "error_message": None, "entries": []}
