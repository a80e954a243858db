"""InitProducerId: the producer id and epoch of a producer (KIP-98, KIP-360).

Without a transactional id the producer is idempotent only, and gets a new id of this broker's block. With one, it gets
the id's producer id with a higher epoch, which fences all producers before it. Version 6 (KIP-939) is for transactions
that an outside coordinator ends: they never time out, and a producer that has recovered may keep and end the open one.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from ....security.authorizer.acl_binding import AclOperation, ResourceType
from ....security.authorizer.authorizer import DENIED
from ....wire.errors import ErrorCode, ProtocolError
from ...api import Fields
from ...network.request import Request
from ...services import BrokerServices
from ...transactions.transaction_decisions import Answer, InitRequest, Producer
from ...transactions.transaction_metadata import NO_TIMEOUT_MS
from .transaction_requests import TRANSACTIONAL_ID_BYTES_MAX, for_version

if TYPE_CHECKING:
    from ....wire.message_types.transactions import InitProducerIdRequest

PRODUCER_FENCED_SINCE = 4


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
    """A producer id, with an epoch that fences the former producers of the transactional id."""
    expected = Producer(message.get("producer_id", -1), message.get("producer_epoch", -1))
    if (expected.producer_id == -1) != (expected.producer_epoch == -1):
        return _refused(ErrorCode.INVALID_REQUEST)
    denial = _denial(services, request, message)
    if denial:
        return _refused(denial)
    if message.transactional_id is None:
        producer_id = services.producer_ids.next_id()
        return _granted(producer_id) if producer_id is not None else _granted_later(services, request)
    refusal = _refusal(services, message)
    if refusal:
        return _refused(refusal)
    timeout_ms = NO_TIMEOUT_MS if message.get("enable2_pc", False) else message.transaction_timeout
    keeps_prepared = message.get("keep_prepared_txn", False)
    init = InitRequest(timeout_ms, None if expected.producer_id == -1 else expected, keeps_prepared)
    return _transactional(services, request, message.transactional_id, init)


def _denial(services: BrokerServices, request: Request, message: InitProducerIdRequest) -> ErrorCode:
    """Why the client may not have a producer id; NONE where it may (KIP-679)."""
    rights, transactional_id = services.authorization, message.transactional_id
    if transactional_id is None:
        is_allowed = rights.is_allowed_on_cluster(
            request, AclOperation.IDEMPOTENT_WRITE, logs_denial=False
        ) or rights.is_allowed_by_type(request, AclOperation.WRITE, ResourceType.TOPIC)
        return ErrorCode.NONE if is_allowed else DENIED[ResourceType.CLUSTER]
    needed = [AclOperation.WRITE]
    if message.get("enable2_pc", False):
        needed.append(AclOperation.TWO_PHASE_COMMIT)
    if all(rights.is_allowed(request, one, ResourceType.TRANSACTIONAL_ID, transactional_id) for one in needed):
        return ErrorCode.NONE
    return DENIED[ResourceType.TRANSACTIONAL_ID]


def _refusal(services: BrokerServices, message: InitProducerIdRequest) -> ErrorCode:
    """Why no transactional producer can have these settings; NONE where one can."""
    transactional_id = message.transactional_id or ""
    if not transactional_id or len(transactional_id.encode()) > TRANSACTIONAL_ID_BYTES_MAX:
        return ErrorCode.INVALID_REQUEST
    config = services.transactions.config
    has_no_timeout = message.get("enable2_pc", False)
    if has_no_timeout and not config.is_two_phase_commit_enabled:
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if message.get("keep_prepared_txn", False) and not config.is_two_phase_commit_enabled:
        return ErrorCode.UNSUPPORTED_VERSION
    if not has_no_timeout and not 0 < message.transaction_timeout <= config.max_timeout_ms:
        return ErrorCode.INVALID_TRANSACTION_TIMEOUT
    return ErrorCode.NONE


async def _transactional(
    services: BrokerServices, request: Request, transactional_id: str, init: InitRequest
) -> Fields:
    transactions = services.transactions
    if transactions.shard_of(transactional_id).current(transactional_id) is None:
        await services.producer_ids.wait_until_ready()
    answer: Answer = await transactions.init_producer_id(transactional_id, init)
    return {
        "error_code": int(for_version(answer.error, request.api_version, PRODUCER_FENCED_SINCE)),
        "producer_id": answer.producer_id,
        "producer_epoch": answer.producer_epoch,
        "ongoing_txn_producer_id": answer.ongoing.producer_id,
        "ongoing_txn_producer_epoch": answer.ongoing.producer_epoch,
    }


def error(message: InitProducerIdRequest, code: int, text: str) -> Fields:
    """The response has the error, and no id."""
    return {"error_code": code, "producer_id": -1, "producer_epoch": -1}
