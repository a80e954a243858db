"""ListPartitionReassignments: partitions with replicas coming or going (KIP-455)."""

from __future__ import annotations

from typing import Any

from ...wire.apis import ApiKey
from ...wire.codec import Struct
from ..api import Api, Fields, top_level_error
from ..request import Request
from ..services import BrokerServices
from ..topic_view import sorted_partitions


def handle(services: BrokerServices, request: Request, message: Struct) -> Fields:
    image = services.metadata.image
    wanted = (
        dict.fromkeys(sorted(image.topics_by_name))
        if message.topics is None
        else {topic.name: topic.partition_indexes for topic in message.topics}
    )
    topics: list[dict[str, Any]] = []
    for name, indexes in wanted.items():
        topic = image.topics_by_name.get(name)
        if topic is None:
            continue
        rows = [
            {
                "partition_index": index,
                "replicas": one.replicas,
                "adding_replicas": one.adding_replicas,
                "removing_replicas": one.removing_replicas,
            }
            for index, one in sorted_partitions(topic)
            if (one.adding_replicas or one.removing_replicas) and (indexes is None or index in indexes)
        ]
        if rows:
            topics.append({"name": name, "partitions": rows})
    return {"error_code": 0, "topics": topics}


API = Api(ApiKey.LIST_PARTITION_REASSIGNMENTS, (0, 0), handle=handle, error=top_level_error)
