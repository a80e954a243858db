"""DescribeClientQuotas: none can be set yet, so whatever is asked for, there is none (KIP-546)."""

from __future__ import annotations

from ....wire.codec import Struct
from ...api import Fields
from ...network.request import Request
from ...services import BrokerServices


def handle(services: BrokerServices, request: Request, message: Struct) -> Fields:
    return {"error_code": 0, "error_message": None, "entries": []}
