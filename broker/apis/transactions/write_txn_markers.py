"""WriteTxnMarkers: a transaction coordinator ends transactions in the partitions that this broker leads (KIP-98)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from ....isr.leader.transaction_markers import TransactionMarker
from ....runtime.incremental_work import PLAIN_STEP, Work
from ....security.authorizer.acl_binding import AclOperation
from ....wire.errors import ErrorCode
from ....wire.types import TopicPartition
from ...api import Fields, Result
from ...groups.group_config import OFFSETS_TOPIC
from ...network.request import Request
from ...quotas.throttling import EXEMPT
from ...services import BrokerServices

if TYPE_CHECKING:
    from ....wire.message_types.transactions import WriteTxnMarkersRequest

_Entry = tuple[TopicPartition, TransactionMarker]
_Codes = dict[int, dict[TopicPartition, ErrorCode]]
"""By producer id and partition."""
_ENTRIES_PER_STEP = 50


def _entries(message: WriteTxnMarkersRequest) -> Iterator[_Entry]:
    """The markers in the request, one for each partition."""
    for one in message.markers:
        marker = TransactionMarker(
            one.producer_id,
            one.producer_epoch,
            one.coordinator_epoch,
            one.transaction_result,
            one.get("transaction_version", 0),
        )
        for topic in one.topics:
            for index in topic.partition_indexes:
                yield TopicPartition(topic.name, index), marker


def _fields(codes: _Codes) -> Fields:
    markers = []
    for producer_id, by_partition in codes.items():
        topics: dict[str, list[dict[str, int]]] = {}
        for (topic, index), code in by_partition.items():
            topics.setdefault(topic, []).append({"partition_index": index, "error_code": int(code)})
        rows = [{"name": name, "partitions": partitions} for name, partitions in topics.items()]
        markers.append({"producer_id": producer_id, "topics": rows})
    return {"markers": markers}


def handle(services: BrokerServices, request: Request, message: WriteTxnMarkersRequest) -> Work[Result]:
    """Append the markers, some at a time, and answer when all are committed or refused."""
    rights = services.authorization
    if not rights.is_allowed_on_cluster(request, AclOperation.ALTER, logs_denial=False):
        rights.check_cluster(request, AclOperation.CLUSTER_ACTION)
    request.throttle_ms = EXEMPT
    codes: _Codes = {}
    writing: list[asyncio.Future[None]] = []
    entries = _entries(message)
    while some := list(islice(entries, _ENTRIES_PER_STEP)):
        writing.append(_write(services, some, codes))
        yield PLAIN_STEP
    return _answer(writing, codes)


async def _answer(writing: list[asyncio.Future[None]], codes: _Codes) -> Fields:
    for written in writing:
        await written
    return _fields(codes)


def _write(services: BrokerServices, entries: list[_Entry], codes: _Codes) -> asyncio.Future[None]:
    """Append markers, and put their codes into `codes` before the future ends.

    Those of `__consumer_offsets` go through the group coordinator, since committed offsets take effect with them.
    UNKNOWN_TOPIC_OR_PARTITION stands for a partition of which no usable replica is here; the coordinator then looks up
    the leader again. Source: KafkaApis.handleWriteTxnMarkersRequest.
    """
    here: list[_Entry] = []
    for entry in entries:
        key, marker = entry
        replica = services.replicas.partitions.get(key)
        codes.setdefault(marker.producer_id, {})[key] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if replica is not None and not replica.offline:
            here.append(entry)
    written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    left = len(here)

    def done(done_entries: list[_Entry], results: list[ErrorCode]) -> None:
        nonlocal left
        left -= len(done_entries)
        for (key, marker), code in zip(done_entries, results, strict=True):
            codes[marker.producer_id][key] = code
        if not left and not written.done():  # else the connection is gone
            written.set_result(None)

    def done_one(entry: _Entry, code: ErrorCode) -> None:
        done([entry], [code])

    timeout_ms = services.config.request_timeout_ms
    records = [entry for entry in here if entry[0].topic != OFFSETS_TOPIC]
    if records or not here:
        services.replicas.write_markers(timeout_ms, records, partial(done, records))
    for key, marker in here:
        if key.topic == OFFSETS_TOPIC:
            one = partial(done_one, (key, marker))
            services.groups.write_marker(key.partition, marker, timeout_ms, one)
    return written


def error(message: WriteTxnMarkersRequest, code: int, text: str) -> Fields:
    """Every partition of every marker gets the error."""
    codes: _Codes = {}
    for key, marker in _entries(message):
        codes.setdefault(marker.producer_id, {})[key] = ErrorCode(code)
    return _fields(codes)
