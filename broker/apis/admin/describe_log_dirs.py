"""DescribeLogDirs: this broker's directories, their sizes, and the partitions in them (KIP-113)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ....log.manager.log_directory import LogDirDescription
from ....log.partition_log import PartitionLog
from ....runtime.incremental_work import PLAIN_STEP, Pace, Work
from ....security.authorizer.acl_binding import AclOperation
from ....wire.errors import ErrorCode
from ....wire.types import TopicPartition
from ...api import Fields
from ...network.request import Request
from ...services import BrokerServices

if TYPE_CHECKING:
    from ....wire.message_types.records import DescribeLogDirsRequest


def handle(services: BrokerServices, request: Request, message: DescribeLogDirsRequest) -> Work[Fields]:
    """The directories, with those partitions that the request asks for."""
    services.authorization.check_cluster(request, AclOperation.DESCRIBE)
    pace = Pace()
    wanted: dict[tuple[str, int], None] | None = None
    if message.topics is not None:
        wanted = {}
        for topic in message.topics:
            for index in topic.partitions:
                wanted[topic.topic, index] = None
                if pace.ends_step():
                    yield PLAIN_STEP
            if pace.ends_step():
                yield PLAIN_STEP
    results = []
    for view in services.replicas.log_dirs():
        result = yield from _directory(services, view, wanted, pace)
        results.append(result)
    return {"error_code": 0, "results": results}


def _directory(
    services: BrokerServices, view: LogDirDescription, wanted: Mapping[tuple[str, int], None] | None, pace: Pace
) -> Work[Fields]:
    topics: dict[str, list[dict[str, Any]]] = {}
    for logs, is_future in ((view.logs, False), (view.future_logs, True)):
        for key, log in list(logs.items()):
            if pace.ends_step():
                yield PLAIN_STEP
            if wanted is None or key in wanted:
                row = {
                    "partition_index": key.partition,
                    "partition_size": log.size_bytes,
                    "offset_lag": _lag(services, key, log, is_future=is_future),
                    "is_future_key": is_future,
                }
                topics.setdefault(key.topic, []).append(row)
    return {
        "error_code": int(ErrorCode.KAFKA_STORAGE_ERROR if view.is_failed else ErrorCode.NONE),
        "log_dir": view.path,
        "topics": [{"name": topic, "partitions": rows} for topic, rows in sorted(topics.items())],
        "total_bytes": view.total_bytes,
        "usable_bytes": view.usable_bytes,
    }


def _lag(services: BrokerServices, key: TopicPartition, log: PartitionLog, *, is_future: bool) -> int:
    """The records that a log lacks up to the high watermark, or a future log up to the end of the current log."""
    replica = services.replicas.partitions.get(key)
    if replica is None:
        return -1
    reached = replica.log_end_offset if is_future else replica.high_watermark
    return max(0, reached - log.log_end_offset)
