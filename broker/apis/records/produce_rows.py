"""The partitions of Produce requests: what is refused, what is appended, and the rows of the answer.

Whole-request refusals follow KafkaApis.handleProduceRequest, per-batch ones ProduceRequest.validateRecords. With acks=0
there is no response: an error closes the connection, so that the client asks for new metadata.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Sequence
from typing import Any, TypeAlias

from ....runtime.invariants import InvariantViolation
from ....security.authorizer.acl_binding import AclOperation, ResourceType
from ....security.authorizer.authorizer import DENIED
from ....wire.errors import ErrorCode
from ....wire.primitives import NodeEndpoint
from ....wire.produce import (
    ProducePartitionResponse,
    ProduceRequest,
    ProduceTopic,
    ProduceTopicResponse,
    encode_produce_response,
)
from ....wire.records import BATCH_HEADER_SIZE, TRANSACTIONAL_FLAG
from ....wire.types import TopicPartition
from ...network.request import Request
from ...services import BrokerServices
from ...topic_view import INTERNAL_TOPICS, node_endpoints
from ...transactions.partition_verifier import produce_operation
from ...transactions.transactional_appends import AppendRequest
from .storage_errors import replace_storage_errors

logger = logging.getLogger("raftwerk.broker")

ADMIN_CLIENT_ID = "__admin_client"
"""The client id with which tools may write to internal topics (AdminUtils.ADMIN_CLIENT_ID of Apache Kafka)."""
FIRST_VERSION_BY_ID = 13
FIRST_VERSION_WITH_STORAGE_ERROR = 4
FIRST_VERSION_WITH_HINTS = 10
FIRST_VERSION_WITH_ZSTD = 7
_LENGTH_AND_ATTRIBUTES = struct.Struct(">8xi10xB")
_CODEC_MASK = 0x07
_ZSTD = 4
Entry: TypeAlias = tuple[TopicPartition, memoryview | None]
_new_tuple: Any = tuple.__new__  # faster than calling the class of a NamedTuple
_NOT_ANSWERED = ProducePartitionResponse(-1)
"""Stands in the place of a response that is still to come."""


class PendingResponse:
    """A request on its way through the replica manager; `done` answers it."""

    __slots__ = ("acks", "appended", "lacks_transactional_id", "request", "services", "topics")

    def __init__(self, services: BrokerServices, request: Request, acks: int) -> None:
        self.services = services
        self.request = request
        self.acks = acks
        self.lacks_transactional_id = False
        """Whether a batch is transactional, and the request names no transactional id that the client may use."""
        self.topics: list[ProduceTopicResponse] = []
        self.appended: list[tuple[list[ProducePartitionResponse], int, int]] = []
        """For each entry to append, in order: the list that its response goes to, the place in it, the partition."""

    def on_appended(self) -> None:
        """What can be appended is in the logs. The answer needs no memory while it waits for other replicas.

        Otherwise such requests could take all memory, and followers could not ask for what is to be committed.
        """
        if self.request.memory is not None:
            self.request.free_body()

    def done(self, responses: list[ProducePartitionResponse]) -> None:
        """Answer the request; `responses` are those of the entries."""
        for (rows, index, _), response in zip(self.appended, responses, strict=True):
            rows[index] = response
        self.answer()

    def fail(self, code: ErrorCode) -> None:
        """Answer with the same error for every partition that was to be appended to."""
        for rows, index, partition in self.appended:
            rows[index] = ProducePartitionResponse(partition, int(code))
        self.answer()

    def refuse(self, code: ErrorCode) -> None:
        """Answer with the same error for every partition of the request."""
        for rows, index, partition in self.appended:
            rows[index] = ProducePartitionResponse(partition)
        for topic in self.topics:
            topic.partitions[:] = [ProducePartitionResponse(row.partition, int(code)) for row in topic.partitions]
        self.appended.clear()
        self.answer()

    def answer(self) -> None:
        """Send the response, or close the connection where acks=0 and something failed."""
        request = self.request
        if self.acks == 0:
            failed = (row for topic in self.topics for row in topic.partitions if row.error_code)
            answer_without_acks(request, next(failed, None))
            return
        quota = self.services.quotas.request
        if quota.is_on:
            quota.settle(request)
        version = request.api_version
        if version < FIRST_VERSION_WITH_STORAGE_ERROR:
            replace_storage_errors(row for topic in self.topics for row in topic.partitions)
        endpoints = self._endpoints() if version >= FIRST_VERSION_WITH_HINTS else ()
        request.respond(encode_produce_response(version, self.topics, request.throttle_ms, endpoints))

    def _endpoints(self) -> list[NodeEndpoint]:
        leaders = []
        for rows, index, _ in self.appended:
            hint = rows[index].current_leader
            if hint is not None:
                leaders.append(hint.leader_id)
        return node_endpoints(self.services.metadata.image, leaders, self.request.sink.listener_name) if leaders else []


def answer_without_acks(request: Request, failed: ProducePartitionResponse | None) -> None:
    """End a request with acks=0. Its connection is closed if a partition failed, so that the client asks for metadata.

    `failed` is the first such partition.
    """
    if failed is None:
        request.no_response()
    else:
        request.reject(f"Produce with acks=0 failed with {ErrorCode(failed.error_code).name}")


def _refusal(records: memoryview | None, version: int, transactional_id: str | None) -> tuple[ErrorCode, str] | None:
    """Why a partition's records are refused before they come to the log, which checks the rest; None if not."""
    if not records:
        text = f"Produce requests with version {version} must have at least one record batch per partition"
        return ErrorCode.INVALID_RECORD, text
    if len(records) < BATCH_HEADER_SIZE:
        return ErrorCode.CORRUPT_MESSAGE, f"{len(records)} bytes are less than a record batch"
    length, attributes = _LENGTH_AND_ATTRIBUTES.unpack_from(records)
    if length + 12 < len(records):
        text = f"Produce requests with version {version} must contain exactly one record batch per partition"
        return ErrorCode.INVALID_RECORD, text
    if attributes & _CODEC_MASK == _ZSTD and version < FIRST_VERSION_WITH_ZSTD:
        text = f"Produce requests with version {version} are not allowed to use ZStandard compression"
        return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, text
    if attributes & TRANSACTIONAL_FLAG and transactional_id is None:
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "a transactional batch without a transactional id"
    return None


def is_transactional(records: memoryview | None) -> bool:
    """Whether the batch belongs to a transaction, by its header. What is no batch does not."""
    if records is None or len(records) < BATCH_HEADER_SIZE:
        return False
    return bool(_LENGTH_AND_ATTRIBUTES.unpack_from(records)[1] & TRANSACTIONAL_FLAG)


def add_rows(
    pending: PendingResponse,
    transactional_id: str | None,
    topic: ProduceTopic,
    rows: list[ProducePartitionResponse],
    entries: list[Entry],
) -> None:
    """Add a row for each partition to those of the topic in the response, and what is to be appended to `entries`."""
    image = pending.services.metadata.image
    name, topic_id, partitions = topic
    version = pending.request.api_version
    authorization = pending.services.authorization
    if version >= FIRST_VERSION_BY_ID:
        found = image.topics_by_id.get(topic_id) if topic_id is not None else None
    else:
        found = image.topics_by_name.get(name) if name is not None else None
    asked = found.name if found is not None else name
    # Of an unknown topic id nobody is told but that it is unknown.
    if authorization.is_on and asked is not None and not authorization.may_write(pending.request, asked):
        pending.lacks_transactional_id |= transactional_id is None and any(
            is_transactional(records) for _, records in partitions
        )
        code = DENIED[ResourceType.TOPIC]
        rows += [ProducePartitionResponse(partition, code) for partition, _ in partitions]
        return
    for partition, records in partitions:
        if found is None or partition not in found.partitions:
            pending.lacks_transactional_id |= transactional_id is None and is_transactional(records)
            unknown_id = version >= FIRST_VERSION_BY_ID and found is None
            code = ErrorCode.UNKNOWN_TOPIC_ID if unknown_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            rows.append(ProducePartitionResponse(partition, code))
            continue
        if found.name in INTERNAL_TOPICS and pending.request.client_id != ADMIN_CLIENT_ID:
            rows.append(ProducePartitionResponse(partition, int(ErrorCode.INVALID_TOPIC_EXCEPTION)))
            continue
        refusal = _refusal(records, version, transactional_id)
        if refusal is not None:
            code, text = refusal
            pending.lacks_transactional_id |= code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            rows.append(ProducePartitionResponse(partition, code, error_message=text))
            continue
        pending.appended.append((rows, len(rows), partition))
        rows.append(_NOT_ANSWERED)
        entries.append((_new_tuple(TopicPartition, (found.name, partition)), records))


def may_use(services: BrokerServices, request: Request, transactional_id: str) -> bool:
    """Whether the client may write transactional batches with this transactional id."""
    rights = services.authorization
    return rights.is_allowed(request, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id)


def append(pending: PendingResponse, message: ProduceRequest, entries: Sequence[Entry]) -> None:
    """Append what `add_rows` has returned. It ends with `pending.done` or `pending.fail`."""
    services, request = pending.services, pending.request
    transactional_id = message.transactional_id
    try:
        if transactional_id is None:
            services.replicas.append(message.acks, message.timeout_ms, entries, pending.done, caller=request)
            pending.on_appended()
        else:
            operation = produce_operation(request.api_version)
            services.transactional_appends.append(
                AppendRequest(
                    transactional_id,
                    operation,
                    message.acks,
                    message.timeout_ms,
                    entries,
                    pending.done,
                    request,
                    pending.on_appended,
                )
            )
    except InvariantViolation:
        raise
    except Exception:
        logger.exception("append failed")
        pending.fail(ErrorCode.UNKNOWN_SERVER_ERROR)
