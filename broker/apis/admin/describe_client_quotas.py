"""DescribeClientQuotas: always empty, since quotas cannot be set yet (KIP-546)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...api import Fields
from ...network.request import Request
from ...services import BrokerServices

if TYPE_CHECKING:
    from ....wire.message_types.configs import DescribeClientQuotasRequest


def handle(services: BrokerServices, request: Request, message: DescribeClientQuotasRequest) -> Fields:
    """No entries."""
    return {"error_code": 0, "error_message": None, "entries": []}
