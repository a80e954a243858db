"""DescribeClientQuotas: none can be set yet, so whatever is asked for, there is none (KIP-546)."""

from __future__ import annotations

from ....wire.api_keys import ApiKey
from ....wire.codec import Struct
from ...api import Api, Fields, top_level_error
from ...network.request import Request
from ...services import BrokerServices


def handle(services: BrokerServices, request: Request, message: Struct) -> Fields:
    return {"error_code": 0, "error_message": None, "entries": []}


API = Api(ApiKey.DESCRIBE_CLIENT_QUOTAS, (0, 1), handle=handle, error=top_level_error)
