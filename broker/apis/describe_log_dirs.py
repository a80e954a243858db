"""DescribeLogDirs: the directories of this broker, and which partitions they hold, with their sizes (KIP-113)."""

from __future__ import annotations

from typing import Any

from ...wire.apis import ApiKey
from ...wire.codec import Struct
from ..api import Api, Fields, top_level_error
from ..request import Request
from ..services import BrokerServices


def handle(services: BrokerServices, request: Request, message: Struct) -> Fields:
    wanted = None if message.topics is None else {topic.topic: topic.partitions for topic in message.topics}
    found: dict[str, dict[str, list[dict[str, Any]]]] = {path: {} for path in services.config.log_dirs}
    for topic_partition, replica in services.replicas.partitions.items():
        topic, index = topic_partition
        if wanted is not None and index not in wanted.get(topic, ()):
            continue
        path = replica.log.directory.rpartition("/")[0]
        found.setdefault(path, {}).setdefault(topic, []).append(
            {
                "partition_index": index,
                "partition_size": replica.log.size_bytes,
                "offset_lag": max(0, replica.high_watermark - replica.log_end_offset),
                "is_future_key": False,
            }
        )
    results = [
        {
            "error_code": 0,
            "log_dir": path,
            "topics": [{"name": topic, "partitions": rows} for topic, rows in sorted(topics.items())],
        }
        for path, topics in found.items()
    ]
    return {"error_code": 0, "results": results}


API = Api(ApiKey.DESCRIBE_LOG_DIRS, (1, 4), handle=handle, error=top_level_error)
