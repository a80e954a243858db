"""DescribeProducers: the producers that a replica on this broker knows, with their last batch (KIP-664).

It shows which transactions are open, and of which coordinator the last marker was: so hanging transactions are found.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from ....isr.replica import Replica
from ....runtime.incremental_work import PLAIN_STEP, Pace, Work
from ....security.authorizer.acl_binding import AclOperation, ResourceType
from ....security.authorizer.authorizer import DENIED
from ....wire.codec import Rows
from ....wire.errors import ErrorCode, ProtocolError
from ....wire.types import TopicPartition
from ...api import Fields
from ...network.request import Request
from ...services import BrokerServices

if TYPE_CHECKING:
    from ....wire.message_types.records import DescribeProducersRequest


def handle(services: BrokerServices, request: Request, message: DescribeProducersRequest) -> Work[Fields]:
    """One row for each partition."""
    pace, topics = Pace(), []
    for topic in message.topics:
        if services.authorization.is_allowed(request, AclOperation.READ, ResourceType.TOPIC, topic.name):
            rows = Rows(partial(_row, services, topic.name), topic.partition_indexes)
        else:
            rows = Rows(_denied, topic.partition_indexes)
        topics.append({"name": topic.name, "partitions": rows})
        if pace.ends_step():
            yield PLAIN_STEP
    return {"topics": topics}


def _row(services: BrokerServices, name: str, index: int) -> dict[str, Any]:
    topic = services.metadata.image.topics_by_name.get(name)
    if topic is None or index not in topic.partitions:
        return _failed(index, int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), "")
    try:
        replica = services.replicas.find(TopicPartition(name, index))
    except ProtocolError as error:
        return _failed(index, int(error.code), error.message)
    return {"partition_index": index, "error_code": 0, "error_message": None, "active_producers": _producers(replica)}


def _producers(replica: Replica) -> list[dict[str, int]]:
    return [
        {
            "producer_id": producer_id,
            "producer_epoch": entry.epoch,
            "last_sequence": entry.last_sequence,
            "last_timestamp": entry.last_timestamp,
            "coordinator_epoch": entry.coordinator_epoch,
            "current_txn_start_offset": entry.transaction_first_offset,
        }
        for producer_id, entry in sorted(replica.log.producers.items(), key=lambda item: item[0])
    ]


def _denied(index: int) -> dict[str, Any]:
    return _failed(index, int(DENIED[ResourceType.TOPIC]), "")


def _failed(index: int, code: int, text: str) -> dict[str, Any]:
    return {"partition_index": index, "error_code": code, "error_message": text or None, "active_producers": []}


def error(message: DescribeProducersRequest, code: int, text: str) -> Fields:
    """Every partition gets the error."""
    return {
        "topics": Rows(
            lambda topic: {
                "name": topic.name,
                "partitions": Rows(lambda index: _failed(index, code, text), topic.partition_indexes),
            },
            message.topics,
        )
    }
