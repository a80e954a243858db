"""AssignReplicasToDirs: tells the controller which directories hold the replicas (KIP-858)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

from ...isr.ports import ReplicaKey
from ...wire.api_keys import ApiKey
from ...wire.codec import Struct
from ...wire.errors import ProtocolError, known_error
from .controller_channel import ControllerChannel

ASSIGN_REPLICAS_VERSION = 0


class AssignmentSender:
    """Sends assignments to the active controller."""

    def __init__(self, channel: ControllerChannel, node_id: int, broker_epoch: Callable[[], int]) -> None:
        self._channel = channel
        self._node_id = node_id
        self._broker_epoch = broker_epoch

    async def send(self, assignments: Mapping[ReplicaKey, UUID]) -> Mapping[ReplicaKey, int]:
        """The error code of each. Raises ProtocolError when the controller refuses all of them or does not answer."""
        fields = assign_replicas_fields(self._node_id, self._broker_epoch(), assignments)
        response = await self._channel.request(ApiKey.ASSIGN_REPLICAS_TO_DIRS, ASSIGN_REPLICAS_VERSION, fields)
        if response.error_code:
            raise ProtocolError(known_error(response.error_code), "AssignReplicasToDirs refused")
        return assign_replicas_results(response)


def assign_replicas_fields(broker_id: int, broker_epoch: int, assignments: Mapping[ReplicaKey, UUID]) -> dict[str, Any]:
    """The request, grouped by directory and topic in the order of their first mention."""
    directories: dict[UUID, dict[UUID, list[dict[str, int]]]] = {}
    for (topic_id, index), directory in assignments.items():
        directories.setdefault(directory, {}).setdefault(topic_id, []).append({"partition_index": index})
    rows = [
        {"id": directory, "topics": [{"topic_id": topic_id, "partitions": rows} for topic_id, rows in topics.items()]}
        for directory, topics in directories.items()
    ]
    return {"broker_id": broker_id, "broker_epoch": broker_epoch, "directories": rows}


def assign_replicas_results(response: Struct) -> dict[ReplicaKey, int]:
    """The error code of each replica that the response names."""
    return {
        (topic.topic_id, row.partition_index): row.error_code
        for directory in response.directories
        for topic in directory.topics
        for row in topic.partitions
    }
