"""Fetch: records for consumers and followers, through incremental sessions (KIP-227). No task, no future.

A topic is named up to version 12 and identified by its id from 13 on (KIP-516). A partition that is refused because the
leader moved says where the leader is now (KIP-951).
"""

from __future__ import annotations

import asyncio
import logging

from ....controller.metadata.metadata_image import MetadataImage
from ....isr.fetching.incremental_fetch_context import IncrementalFetchContext
from ....isr.ports import TopicIdPartition
from ....isr.results import FetchParams
from ....runtime.invariants import InvariantViolation
from ....wire.errors import ErrorCode
from ....wire.fetch import (
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    FetchTopicResponse,
    decode_fetch_request,
    encode_fetch_response,
)
from ....wire.primitives import NodeEndpoint
from ....wire.types import LeaderIdAndEpoch, TopicPartition
from ...fetch_sessions import Answers, FetchContext, FetchKey, Session, watch_key
from ...network.request import Request
from ...services import BrokerServices, ParkedFetch
from ...topic_view import leader_hint, node_endpoints

logger = logging.getLogger("raftwerk.broker")

FIRST_VERSION_BY_ID = 13
FIRST_VERSION_WITH_SESSIONS = 7
FIRST_VERSION_WITH_LEADER = 12
FIRST_VERSION_WITH_ENDPOINTS = 16
_STALE_LEADER = frozenset({int(ErrorCode.NOT_LEADER_OR_FOLLOWER), int(ErrorCode.FENCED_LEADER_EPOCH)})


def _failed(partition: int, code: ErrorCode) -> FetchPartitionResponse:
    return FetchPartitionResponse(partition=partition, error_code=int(code), high_watermark=-1, records=b"")


def resolve(image: MetadataImage, key: FetchKey) -> TopicIdPartition | ErrorCode:
    """The partition that a request means, or why there is none."""
    topic = key.topic
    found = image.topics_by_name.get(topic) if isinstance(topic, str) else image.topics_by_id.get(topic)
    if found is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if isinstance(topic, str) else ErrorCode.UNKNOWN_TOPIC_ID
    if key.partition not in found.partitions:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return TopicIdPartition(TopicPartition(found.name, key.partition), None if isinstance(topic, str) else topic)


class _PendingResponse:
    """A fetch on its way through the replica manager; `done` answers it."""

    __slots__ = ("answers", "context", "read", "request", "rows", "services")

    def __init__(self, services: BrokerServices, request: Request, context: FetchContext) -> None:
        self.services = services
        self.request = request
        self.context = context
        self.rows = context.rows
        self.answers: list[FetchPartitionResponse | None] = []
        self.read: list[int] = []  # indexes of the rows that the replica manager reads

    def wanted(self) -> list[tuple[TopicIdPartition, FetchPartition]]:
        """The rows to read; those that cannot be are answered here."""
        image = self.services.metadata.image
        self.answers, self.read = [None] * len(self.rows), []
        result = []
        for index, (key, wanted) in enumerate(self.rows):
            found = resolve(image, key)
            if isinstance(found, ErrorCode):
                self.answers[index] = _failed(key.partition, found)
            else:
                self.read.append(index)
                result.append((found, wanted))
        return result

    def done(self, results: list[FetchPartitionResponse]) -> None:
        answers, hinted = self.answers, self.request.api_version >= FIRST_VERSION_WITH_LEADER
        for index, result in zip(self.read, results, strict=True):
            if hinted and result.error_code in _STALE_LEADER and result.current_leader is None:
                result.current_leader = self._hint(self.rows[index][0])
            answers[index] = result
        self.answer()

    def fail(self, code: ErrorCode) -> None:
        """The same error for every partition."""
        for index in self.read:
            self.answers[index] = _failed(self.rows[index][0].partition, code)
        self.answer()

    def _hint(self, key: FetchKey) -> LeaderIdAndEpoch | None:
        found = resolve(self.services.metadata.image, key)
        return (
            None if isinstance(found, ErrorCode) else leader_hint(self.services.metadata.image, *found.topic_partition)
        )

    def answer(self) -> None:
        rows = zip(self.rows, self.answers, strict=True)
        answers = [(key, answer) for (key, _), answer in rows if answer is not None]
        error_code, session_id, to_send = self.context.finish(answers)
        request = self.request
        response = FetchResponse(error_code, session_id, _by_topic(to_send), self._endpoints(to_send), 0)
        request.respond(encode_fetch_response(request.api_version, response))

    def _endpoints(self, answers: Answers) -> list[NodeEndpoint]:
        if self.request.api_version < FIRST_VERSION_WITH_ENDPOINTS:
            return []
        leaders = [row.current_leader.leader_id for _, row in answers if row.current_leader is not None]
        return node_endpoints(self.services.metadata.image, leaders, self.request.sink.listener_name) if leaders else []


class _Watched(_PendingResponse):
    """An incremental fetch of a follower (`WatchedFetch`): its rows are those that are awake."""

    __slots__ = ("has_refusals", "session", "watch")

    def __init__(
        self,
        services: BrokerServices,
        request: Request,
        context: FetchContext,
        session: Session,
        watch: IncrementalFetchContext,
    ) -> None:
        super().__init__(services, request, context)
        self.session = session
        self.watch = watch
        self.has_refusals = False

    def wanted(self) -> list[tuple[TopicIdPartition, FetchPartition]]:
        partitions = self.session.partitions
        keys = [FetchKey(*key) for key in self.watch.take_awake()]
        self.rows = [(key, partitions[key].request) for key in keys if key in partitions]
        result = super().wanted()
        for index, found in zip(self.read, result, strict=True):
            self.watch.found(watch_key(self.rows[index][0]), found[0].topic_partition)
        self.has_refusals = len(result) < len(self.rows)
        if self.has_refusals:
            for (key, _), answer in zip(self.rows, self.answers, strict=True):
                if answer is not None:
                    self.watch.stays_awake(watch_key(key))
        return result

    def is_news(self, row: int, answer: FetchPartitionResponse) -> bool:
        return self.session.partitions[self.rows[self.read[row]][0]].is_news(answer)


def _by_topic(answers: Answers) -> list[FetchTopicResponse]:
    """Runs of the same topic, in the order of the answers."""
    topics: list[FetchTopicResponse] = []
    last = None
    for key, answer in answers:
        if key.topic != last:
            last = key.topic
            name, topic_id = (last, None) if isinstance(last, str) else (None, last)
            topics.append(FetchTopicResponse(name, topic_id, []))
        topics[-1].partitions.append(answer)
    return topics


def _params(services: BrokerServices, message: FetchRequest, request: Request) -> FetchParams:
    is_follower = message.replica_id >= 0
    sendfile_min_bytes = services.config.sendfile_min_bytes
    max_bytes = message.max_bytes if is_follower else min(message.max_bytes, services.config.fetch_max_bytes)
    return FetchParams(
        replica_id=message.replica_id,
        replica_epoch=message.replica_epoch,
        max_wait_ms=message.max_wait_ms,
        min_bytes=min(message.min_bytes, max_bytes),
        max_bytes=max_bytes,
        isolation_level=message.isolation_level,
        client_rack=message.rack_id or "",
        from_follower_allowed=request.api_version >= 11,
        slice_bytes_min=sendfile_min_bytes if sendfile_min_bytes >= 0 and request.sink.sends_files else None,
    )


def _park(services: BrokerServices, pending: _PendingResponse, params: FetchParams) -> ParkedFetch | None:
    """Read, and answer or park."""
    if isinstance(pending, _Watched):
        return services.replicas.fetch_watched(params, pending)
    wanted = pending.wanted()
    if not wanted:
        pending.answer()
        return None
    return services.replicas.fetch(params, wanted, pending.done)


def handle(services: BrokerServices, request: Request) -> None:
    version = request.api_version
    message = decode_fetch_request(version, request.body, 0)
    now_ms = int(asyncio.get_running_loop().time() * 1000)
    by_id = version >= FIRST_VERSION_BY_ID
    context = services.sessions.context(message, by_id, now_ms, services.replicas.open_watch)
    if context.error_code:
        response = FetchResponse(context.error_code, 0, [], [], 0)
        request.respond(encode_fetch_response(version, response))
        return
    params = _params(services, message, request)
    if context.opens_watch:
        params.max_wait_ms = 0
    session = context.session
    if session is not None and session.watch is not None:
        pending: _PendingResponse = _Watched(services, request, context, session, session.watch)
    else:
        pending = _PendingResponse(services, request, context)
    try:
        parked = _park(services, pending, params)
    except InvariantViolation:
        raise
    except Exception:
        logger.exception("fetch failed")
        pending.fail(ErrorCode.UNKNOWN_SERVER_ERROR)
        return
    if parked is not None:
        request.on_gone = parked.cancel
