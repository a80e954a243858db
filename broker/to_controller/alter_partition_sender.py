"""AlterPartition: sends ISR proposals to the controller (KIP-497, KIP-903)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

from ...isr.leader.leader_state import AlterPartitionResult
from ...isr.ports import AlterPartitionItem
from ...wire.api_keys import ApiKey
from ...wire.codec import Struct
from ...wire.errors import ErrorCode, ProtocolError, known_error
from .controller_channel import ControllerChannel

ALTER_PARTITION_VERSION = 3


class AlterPartitionSender:
    """Sends ISR proposals to the active controller."""

    def __init__(self, channel: ControllerChannel, node_id: int, broker_epoch: Callable[[], int]) -> None:
        self._channel = channel
        self._node_id = node_id
        self._broker_epoch = broker_epoch

    async def send(self, items: Sequence[AlterPartitionItem]) -> Sequence[AlterPartitionResult]:
        """One result per proposal. Raises ProtocolError when the controller refuses all of them or does not answer."""
        fields = alter_partition_fields(self._node_id, self._broker_epoch(), items)
        response = await self._channel.request(ApiKey.ALTER_PARTITION, ALTER_PARTITION_VERSION, fields)
        if response.error_code:
            raise ProtocolError(known_error(response.error_code), "AlterPartition refused")
        return alter_partition_results(response, items)


def alter_partition_fields(broker_id: int, broker_epoch: int, items: Sequence[AlterPartitionItem]) -> dict[str, Any]:
    """The request for `items`, grouped by topic in the order of their first mention."""
    topics: dict[UUID, list[dict[str, Any]]] = {}
    for item in items:
        proposal = item.proposal
        row = {
            "partition_index": item.topic_partition.partition,
            "leader_epoch": proposal.leader_epoch,
            "new_isr_with_epochs": [{"broker_id": one, "broker_epoch": epoch} for one, epoch in proposal.new_isr],
            "leader_recovery_state": 0,
            "partition_epoch": proposal.partition_epoch,
        }
        topics.setdefault(item.topic_id, []).append(row)
    rows = [{"topic_id": topic_id, "partitions": partitions} for topic_id, partitions in topics.items()]
    return {"broker_id": broker_id, "broker_epoch": broker_epoch, "topics": rows}


def alter_partition_results(response: Struct, items: Sequence[AlterPartitionItem]) -> list[AlterPartitionResult]:
    """One result per item, in order; a partition that the response leaves out counts as an unknown server error."""
    found: dict[tuple[UUID, int], AlterPartitionResult] = {}
    for topic in response.topics:
        for row in topic.partitions:
            found[topic.topic_id, row.partition_index] = AlterPartitionResult(
                error_code=row.error_code,
                leader_id=row.leader_id,
                leader_epoch=row.leader_epoch,
                isr=tuple(row.isr),
                partition_epoch=row.partition_epoch,
                leader_recovery_state=row.leader_recovery_state,
            )
    missing = AlterPartitionResult(int(ErrorCode.UNKNOWN_SERVER_ERROR))
    return [found.get((item.topic_id, item.topic_partition.partition), missing) for item in items]
