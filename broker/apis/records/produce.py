"""Produce: batches to the logs of partitions that this broker leads. The hottest path: no task, no future."""

from __future__ import annotations

from ....security.authorizer.acl_binding import ResourceType
from ....security.authorizer.authorizer import DENIED
from ....wire.errors import ErrorCode
from ....wire.produce import (
    ProducePartitionResponse,
    ProduceTopicResponse,
    decode_small_produce_request,
)
from ...network.request import Request
from ...quotas.throttling import throttle
from ...services import BrokerServices
from .large_produce import begin_in_steps
from .produce_rows import Entry, PendingResponse, add_rows, append, is_transactional, may_use


def handle(services: BrokerServices, request: Request) -> None:
    """Append to the leaders' logs, and answer when enough replicas have the records."""
    message = decode_small_produce_request(request.api_version, request.body)
    if message is None:
        begin_in_steps(services, request)
        return
    produce_quota = services.quotas.produce
    if produce_quota.is_on:
        throttle(produce_quota, request, request.frame_bytes)
    pending = PendingResponse(services, request, message.acks)
    transactional_id = message.transactional_id
    entries: list[Entry] = []
    for topic in message.topics:
        rows: list[ProducePartitionResponse] = []
        add_rows(pending, transactional_id, topic, rows, entries)
        pending.topics.append(ProduceTopicResponse(topic.name, topic.topic_id, rows))
    if transactional_id is not None and services.authorization.is_on:
        has_transactional = any(
            is_transactional(records) for topic in message.topics for _, records in topic.partitions
        )
        pending.lacks_transactional_id |= has_transactional and not may_use(services, request, transactional_id)
    if pending.lacks_transactional_id:
        pending.refuse(DENIED[ResourceType.TRANSACTIONAL_ID])
    elif message.acks not in (-1, 0, 1):
        pending.fail(ErrorCode.INVALID_REQUIRED_ACKS)
    elif not entries:
        pending.answer()
    else:
        append(pending, message, entries)
