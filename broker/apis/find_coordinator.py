"""FindCoordinator: there are no coordinators yet, so every key is told to come back."""

from __future__ import annotations

from ...wire.apis import ApiKey
from ...wire.codec import Struct
from ...wire.errors import ErrorCode
from ..api import Api, Fields
from ..request import Request
from ..services import BrokerServices

FIRST_BATCHED_VERSION = 4
_NOBODY = {"node_id": -1, "host": "", "port": -1}


def _answer(message: Struct, code: int, text: str) -> Fields:
    keys = message.get("coordinator_keys", ())
    rows = [{"key": key, "error_code": code, "error_message": text, **_NOBODY} for key in keys]
    return {"error_code": code, "error_message": text, "coordinators": rows, **_NOBODY}


def handle(services: BrokerServices, request: Request, message: Struct) -> Fields:
    return _answer(message, int(ErrorCode.COORDINATOR_NOT_AVAILABLE), "The coordinator is not available.")


API = Api(ApiKey.FIND_COORDINATOR, (0, 6), handle=handle, error=_answer)
