"""WriteTxnMarkers: a transaction coordinator ends transactions in the partitions that this broker leads (KIP-98)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ....isr.leader.transaction_markers import TransactionMarker
from ....wire.errors import ErrorCode
from ....wire.types import TopicPartition
from ...api import Fields
from ...network.request import Request
from ...services import BrokerServices

if TYPE_CHECKING:
    from ....wire.message_types.transactions import WriteTxnMarkersRequest

_Entry = tuple[TopicPartition, TransactionMarker]
_Codes = dict[int, dict[TopicPartition, ErrorCode]]
"""By producer id and partition."""


def _entries(message: WriteTxnMarkersRequest) -> list[_Entry]:
    """The markers in the request, one for each partition."""
    found = []
    for one in message.markers:
        marker = TransactionMarker(
            one.producer_id,
            one.producer_epoch,
            one.coordinator_epoch,
            one.transaction_result,
            one.get("transaction_version", 0),
        )
        found += [
            (TopicPartition(topic.name, index), marker) for topic in one.topics for index in topic.partition_indexes
        ]
    return found


def _fields(codes: _Codes) -> Fields:
    markers = []
    for producer_id, by_partition in codes.items():
        topics: dict[str, list[dict[str, int]]] = {}
        for (topic, index), code in by_partition.items():
            topics.setdefault(topic, []).append({"partition_index": index, "error_code": int(code)})
        rows = [{"name": name, "partitions": partitions} for name, partitions in topics.items()]
        markers.append({"producer_id": producer_id, "topics": rows})
    return {"markers": markers}


async def handle(services: BrokerServices, request: Request, message: WriteTxnMarkersRequest) -> Fields:
    """Append the markers, and answer when they are committed or refused.

    UNKNOWN_TOPIC_OR_PARTITION stands for every partition of which no usable replica is here; the coordinator then looks
    up the leader again. Source: KafkaApis.handleWriteTxnMarkersRequest.
    """
    codes: _Codes = {}
    here: list[_Entry] = []
    for entry in _entries(message):
        key, marker = entry
        replica = services.replicas.partitions.get(key)
        codes.setdefault(marker.producer_id, {})[key] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if replica is not None and not replica.offline:
            here.append(entry)
    if here:
        written: asyncio.Future[list[ErrorCode]] = asyncio.get_running_loop().create_future()

        def done(results: list[ErrorCode]) -> None:
            if not written.done():  # else the connection is gone
                written.set_result(results)

        services.replicas.write_markers(services.config.request_timeout_ms, here, done)
        for (key, marker), code in zip(here, await written, strict=True):
            codes[marker.producer_id][key] = code
    return _fields(codes)


def error(message: WriteTxnMarkersRequest, code: int, text: str) -> Fields:
    """Every partition of every marker gets the error."""
    codes: _Codes = {}
    for key, marker in _entries(message):
        codes.setdefault(marker.producer_id, {})[key] = ErrorCode(code)
    return _fields(codes)
