"""AlterReplicaLogDirs: move replicas of this broker between its directories (KIP-113)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ....runtime.incremental_work import PLAIN_STEP, Pace, Work
from ....security.authorizer.acl_binding import AclOperation
from ....wire.codec import Rows
from ....wire.errors import ErrorCode, ProtocolError
from ....wire.types import TopicPartition
from ...api import Fields
from ...network.request import Request
from ...services import BrokerServices

if TYPE_CHECKING:
    from ....wire.message_types.records import AlterReplicaLogDirsRequest


def handle(services: BrokerServices, request: Request, message: AlterReplicaLogDirsRequest) -> Work[Fields]:
    """Begin to move each replica; the answer does not wait for the moves."""
    services.authorization.check_cluster(request, AclOperation.ALTER)
    pace = Pace()
    topics: dict[str, list[dict[str, Any]]] = {}
    for directory in message.dirs:
        for topic in directory.topics:
            for index in topic.partitions:
                code = _begin(services, TopicPartition(topic.name, index), directory.path)
                topics.setdefault(topic.name, []).append({"partition_index": index, "error_code": int(code)})
                if pace.ends_step():
                    yield PLAIN_STEP
            if pace.ends_step():
                yield PLAIN_STEP
        if pace.ends_step():
            yield PLAIN_STEP
    return {"results": [{"topic_name": name, "partitions": rows} for name, rows in topics.items()]}


def _begin(services: BrokerServices, topic_partition: TopicPartition, path: str) -> ErrorCode:
    try:
        services.replicas.move_to_dir(topic_partition, path)
    except ProtocolError as error:
        return error.code
    return ErrorCode.NONE


def error(message: AlterReplicaLogDirsRequest, code: int, text: str) -> Fields:
    """Every partition gets the error."""
    topics = [topic for directory in message.dirs for topic in directory.topics]

    def row(topic: AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic) -> dict[str, Any]:
        codes = Rows(lambda index: {"partition_index": index, "error_code": code}, topic.partitions)
        return {"topic_name": topic.name, "partitions": codes}

    return {"results": Rows(row, topics)}
