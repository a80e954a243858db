"""InitProducerId: a producer id that is unique in the cluster, for an idempotent producer (KIP-98, KIP-360)."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from ....wire.errors import ErrorCode, ProtocolError
from ...api import Fields
from ...network.request import Request
from ...services import BrokerServices

if TYPE_CHECKING:
    from ....wire.message_types.transactions import InitProducerIdRequest


def _granted(producer_id: int) -> Fields:
    return {"error_code": 0, "producer_id": producer_id, "producer_epoch": 0}


def _refused(code: ErrorCode) -> Fields:
    return {"error_code": int(code), "producer_id": -1, "producer_epoch": -1}


async def _granted_later(services: BrokerServices, request: Request) -> Fields:
    """Wait for an id. Without one, close the connection: librdkafka asks another broker only when this one is gone."""
    try:
        return _granted(await services.producer_ids.wait_for_id())
    except ProtocolError as error:
        request.reject(f"{error}; another broker may reach it")
        raise


def handle(services: BrokerServices, request: Request, message: InitProducerIdRequest) -> Fields | Awaitable[Fields]:
    """A producer id of this broker's block; transactional ids are refused."""
    if (message.get("producer_id", -1) == -1) != (message.get("producer_epoch", -1) == -1):
        return _refused(ErrorCode.INVALID_REQUEST)
    if message.transactional_id is not None:
        # An empty id is invalid; other ids need a transaction coordinator, which does not exist yet.
        return _refused(ErrorCode.UNSUPPORTED_VERSION if message.transactional_id else ErrorCode.INVALID_REQUEST)
    producer_id = services.producer_ids.next_id()
    return _granted(producer_id) if producer_id is not None else _granted_later(services, request)


def error(message: InitProducerIdRequest, code: int, text: str) -> Fields:
    """The response has the error, and no id."""
    return {"error_code": code, "producer_id": -1, "producer_epoch": -1}
