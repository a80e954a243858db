"""Fetch: records for consumers and followers. What is read, and when it is answered, is decided in `isr/fetching`.

A topic is named up to version 12 and identified by its id from 13 on (KIP-516). A partition that is refused because the
leader moved says where the leader is now (KIP-951).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from uuid import UUID

from ....controller.metadata.metadata_image import MetadataImage
from ....isr.fetching.partition_reader import failed_row
from ....isr.results import FetchParams
from ....runtime.incremental_work import PLAIN_STEP, Pace, Work
from ....security.authorizer.acl_binding import AclOperation, ResourceType
from ....security.authorizer.authorizer import DENIED
from ....wire.errors import ErrorCode
from ....wire.fetch import (
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    FetchTopicResponse,
    decode_fetch_request,
    decode_fetch_request_in_steps,
    encode_fetch_response,
    encode_topics_in_steps,
)
from ....wire.primitives import NodeEndpoint
from ...network.decoded_memory import DecodedItems
from ...network.request import Request
from ...quotas.client_quotas import fetch_bytes_max
from ...quotas.throttling import EXEMPT, throttle
from ...services import BrokerServices
from ...topic_view import node_endpoints
from .storage_errors import replace_storage_errors

FIRST_VERSION_WITH_STORAGE_ERROR = 6
FIRST_VERSION_FROM_FOLLOWERS = 11
FIRST_VERSION_BY_ID = 13
FIRST_VERSION_WITH_ENDPOINTS = 16
IN_ONE_STEP_BYTES = 16 * 1024
"""About five hundred partitions."""


def _params(services: BrokerServices, message: FetchRequest, request: Request) -> FetchParams:
    is_follower = message.replica_id >= 0
    sendfile_min_bytes = services.config.sendfile_min_bytes
    max_bytes = message.max_bytes if is_follower else min(message.max_bytes, services.config.fetch_max_bytes)
    may_read = None
    if is_follower:
        request.throttle_ms = EXEMPT
    else:
        if services.authorization.is_on:
            may_read = services.authorization.permission(request, AclOperation.READ, ResourceType.TOPIC)
        if services.quotas.fetch.is_on:
            max_bytes = min(max_bytes, fetch_bytes_max(services.quotas.fetch, request))
    return FetchParams(
        replica_id=message.replica_id,
        replica_epoch=message.replica_epoch,
        max_wait_ms=message.max_wait_ms,
        min_bytes=min(message.min_bytes, max_bytes),
        max_bytes=max_bytes,
        isolation_level=message.isolation_level,
        client_rack=message.rack_id or "",
        uses_topic_ids=request.api_version >= FIRST_VERSION_BY_ID,
        from_follower_allowed=request.api_version >= FIRST_VERSION_FROM_FOLLOWERS,
        slice_bytes_min=sendfile_min_bytes if sendfile_min_bytes >= 0 and request.sink.sends_files else None,
        connection=request.sink,
        may_read=may_read,
    )


def _endpoints(services: BrokerServices, request: Request, response: FetchResponse) -> list[NodeEndpoint]:
    """Where the leaders that the response names listen."""
    leaders = [
        row.current_leader.leader_id
        for topic in response.topics
        for row in topic.partitions
        if row.current_leader is not None
    ]
    return node_endpoints(services.metadata.image, leaders, request.sink.listener_name) if leaders else []


def handle(services: BrokerServices, request: Request) -> Work[None] | None:
    """Answer a fetch now, or when there is enough to read. A very large one is prepared in steps."""
    if len(request.body) > IN_ONE_STEP_BYTES:
        request.decode_in_steps(lambda items: request.while_needed(_handle_in_steps(services, request, items)))
        return None
    message = decode_fetch_request(request.api_version, request.body, 0)
    if message.replica_id >= 0 and _is_no_node(services, request):
        return _refuse_in_steps(request, message)
    params = _params(services, message, request)
    return services.replicas.fetch(params, message, _answering(services, request, params, ()), request)


def _handle_in_steps(services: BrokerServices, request: Request, items: DecodedItems) -> Work[None]:
    """Partitions that do not exist are answered apart, and no session remembers them."""
    message = yield from decode_fetch_request_in_steps(request.api_version, request.body, count_bytes=items.count)
    items.settle()
    if message.replica_id >= 0 and _is_no_node(services, request):
        yield from _refuse_in_steps(request, message)
        return
    params = _params(services, message, request)
    known, unknown = yield from _separate(services.metadata.image, message, params.may_read)
    message.topics = known
    if unknown:
        if message.session_epoch > 0:
            response = FetchResponse(int(ErrorCode.FETCH_SESSION_ID_NOT_FOUND))
            request.respond(encode_fetch_response(request.api_version, response))
            return
        message.session_epoch = -1
        if not known:
            params.max_wait_ms = 0
    yield from services.replicas.fetch_in_steps(
        params, message, _answering(services, request, params, unknown), request
    )
    request.free_body()  # it may wait for records now, for as long as the client says


def _is_no_node(services: BrokerServices, request: Request) -> bool:
    """Whether the principal may not fetch as a replica."""
    rights = services.authorization
    return rights.is_on and not rights.is_allowed_on_cluster(request, AclOperation.CLUSTER_ACTION)


def _refuse_in_steps(request: Request, message: FetchRequest) -> Work[None]:
    """Answer who is no node of the cluster and fetches as one: no partition, known or not, and no session."""
    code, pace = int(DENIED[ResourceType.TOPIC]), Pace()
    response = FetchResponse()
    for topic in message.topics:
        rows: list[FetchPartitionResponse] = []
        for partition in topic.partitions:
            rows.append(failed_row(partition.partition, code))
            if pace.ends_step():
                yield PLAIN_STEP
        response.topics.append(FetchTopicResponse(topic.name, topic.topic_id, rows))
        if pace.ends_step():
            yield PLAIN_STEP
    yield from _respond_in_steps(request, response)


def _separate(
    image: MetadataImage, message: FetchRequest, may_read: Callable[[str], bool] | None
) -> Work[tuple[list[FetchTopic], list[FetchTopicResponse]]]:
    """The partitions that exist, each once as in Apache Kafka, and the rows of those that do not or may not be read."""
    wanted: dict[tuple[str | None, UUID | None], dict[int, FetchPartition]] = {}
    pace = Pace()
    for topic in message.topics:
        if pace.ends_step():
            yield PLAIN_STEP
        if not topic.partitions:
            continue
        partitions = wanted.setdefault((topic.name, topic.topic_id), {})
        for partition in topic.partitions:
            partitions[partition.partition] = partition
            if pace.ends_step():
                yield PLAIN_STEP
    known: list[FetchTopic] = []
    unknown: list[FetchTopicResponse] = []
    for (name, topic_id), partitions in wanted.items():
        found = image.topics_by_name.get(name) if name is not None else image.topics_by_id.get(topic_id or UUID(int=0))
        code = ErrorCode.UNKNOWN_TOPIC_ID if found is None and name is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        asked = found.name if found is not None else name
        is_denied = may_read is not None and asked is not None and not may_read(asked)
        if is_denied:
            code = DENIED[ResourceType.TOPIC]
        existing: list[FetchPartition] = []
        missing: list[FetchPartitionResponse] = []
        for index, partition in partitions.items():
            if found is not None and index in found.partitions and not is_denied:
                existing.append(partition)
            else:
                missing.append(failed_row(index, int(code)))
            if pace.ends_step():
                yield PLAIN_STEP
        if existing:
            known.append(FetchTopic(name, topic_id, existing))
        if missing:
            unknown.append(FetchTopicResponse(name, topic_id, missing))
    return known, unknown


def _answering(
    services: BrokerServices, request: Request, params: FetchParams, unknown: Sequence[FetchTopicResponse]
) -> Callable[[FetchResponse], None]:
    """What answers the request, with `unknown` at the end of the answer. A long answer is encoded in steps."""
    version = request.api_version
    quota = services.quotas.fetch
    is_limited = quota.is_on and params.replica_id < 0

    def done(response: FetchResponse) -> None:
        if version < FIRST_VERSION_WITH_STORAGE_ERROR:
            replace_storage_errors(row for topic in response.topics for row in topic.partitions)
        if version >= FIRST_VERSION_WITH_ENDPOINTS:
            response.node_endpoints = _endpoints(services, request, response)
        if is_limited:
            throttle(quota, request, _record_bytes(response))
        if response.is_long or unknown:
            response.topics += unknown
            request.run_in_steps(request.while_needed(_respond_in_steps(request, response)))
        else:
            request.respond(encode_fetch_response(version, response))

    return done


def _record_bytes(response: FetchResponse) -> int:
    return sum(len(row.records) for topic in response.topics for row in topic.partitions if row.records is not None)


def _respond_in_steps(request: Request, response: FetchResponse) -> Work[None]:
    topics, response.topics = response.topics, []
    encoded = yield from encode_topics_in_steps(request.api_version, topics)
    request.respond(encode_fetch_response(request.api_version, response, encoded))
