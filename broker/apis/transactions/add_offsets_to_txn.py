"""AddOffsetsToTxn: add the partition of `__consumer_offsets` that holds a group's offsets to the transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....security.authorizer.acl_binding import AclOperation, ResourceType
from ....wire.errors import ErrorCode
from ....wire.types import TopicPartition
from ...api import Fields
from ...groups.group_config import OFFSETS_TOPIC
from ...network.request import Request
from ...services import BrokerServices
from ...transactions.transaction_decisions import Producer
from .transaction_requests import for_version

if TYPE_CHECKING:
    from ....wire.message_types.transactions import AddOffsetsToTxnRequest

_PRODUCER_FENCED_SINCE = 2


async def handle(services: BrokerServices, request: Request, message: AddOffsetsToTxnRequest) -> Fields:
    """Answered when it is durable that the partition belongs to the transaction."""
    if not message.transactional_id:
        return error(message, ErrorCode.INVALID_REQUEST, "")
    services.authorization.check(request, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, message.transactional_id)
    services.authorization.check(request, AclOperation.READ, ResourceType.GROUP, message.group_id)
    partition = TopicPartition(OFFSETS_TOPIC, services.groups.partition_of(message.group_id))
    producer = Producer(message.producer_id, message.producer_epoch)
    answer = await services.transactions.add_partitions_of_client(
        message.transactional_id, producer, frozenset((partition,))
    )
    return {"error_code": int(for_version(answer.error, request.api_version, _PRODUCER_FENCED_SINCE))}


def error(message: AddOffsetsToTxnRequest, code: int, text: str) -> Fields:
    """The response has the error."""
    return {"error_code": int(code)}
