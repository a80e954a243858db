"""Produce requests that name more partitions than are handled in one step of the event loop.

Each step appends to some hundred partitions, and the answer follows when all of them are done. Later requests of the
connection wait for it, since they may be for partitions that this one has not come to.
"""

from __future__ import annotations

from ....runtime.incremental_work import PLAIN_STEP, Pace, Work
from ....security.authorizer.acl_binding import ResourceType
from ....security.authorizer.authorizer import DENIED
from ....wire.errors import ErrorCode
from ....wire.produce import (
    PARTITION_BYTES,
    PARTITIONS_PER_STEP,
    ProducePartitionResponse,
    ProduceRequest,
    ProduceTopic,
    ProduceTopicResponse,
    decode_produce_request_in_steps,
    encode_produce_response_in_steps,
)
from ....wire.records import BATCH_HEADER_SIZE
from ...network.decoded_memory import DecodedItems
from ...network.request import NO_BODY, Request
from ...quotas.throttling import throttle
from ...services import BrokerServices
from ...topic_view import node_endpoints
from .produce_rows import (
    FIRST_VERSION_WITH_HINTS,
    FIRST_VERSION_WITH_STORAGE_ERROR,
    Entry,
    PendingResponse,
    add_rows,
    answer_without_acks,
    append,
    is_transactional,
    may_use,
)
from .storage_errors import replace_storage_errors

_RESERVED_PER_BYTE = PARTITION_BYTES // BATCH_HEADER_SIZE
"""Batches are not decoded, and partitions without one are refused: only requests that are malformed take more."""


class _LargeResponse:
    """The answer to the request, which is sent when all parts have ended."""

    def __init__(self, services: BrokerServices, request: Request, acks: int, items: DecodedItems) -> None:
        self.services = services
        self.request = request
        self.acks = acks
        self._items = items
        self.topics: list[ProduceTopicResponse] = []
        self.parts_left = 1
        """Those that are begun and have not ended; it counts the handling of the request itself, too."""
        self.appends_left = 1
        """Those whose batches are not in the logs yet; it counts the handling of the request itself, too."""

    def end_append(self) -> None:
        """The batches of a part are in the logs. When all are, the memory of the frame is given back."""
        self.appends_left -= 1
        if not self.appends_left:
            self.request.body = NO_BODY
            self._items.free_frame()

    def end_part(self) -> None:
        """A part has its rows."""
        self.parts_left -= 1
        if not self.parts_left:
            self.request.run_in_steps(self._answer())

    def _answer(self) -> Work[None]:
        request, version = self.request, self.request.api_version
        leaders: dict[int, None] = {}
        failed: ProducePartitionResponse | None = None
        pace = Pace()
        for topic in self.topics:
            for start in range(0, len(topic.partitions), PARTITIONS_PER_STEP):
                rows = topic.partitions[start : start + PARTITIONS_PER_STEP]
                if version < FIRST_VERSION_WITH_STORAGE_ERROR:
                    replace_storage_errors(rows)
                leaders.update((row.current_leader.leader_id, None) for row in rows if row.current_leader is not None)
                failed = failed or next((row for row in rows if row.error_code), None)
                if pace.ends_step(len(rows)):
                    yield PLAIN_STEP
            if pace.ends_step():
                yield PLAIN_STEP
        if self.acks == 0:
            answer_without_acks(request, failed)
            return
        quota = self.services.quotas.request
        if quota.is_on:
            quota.settle(request)
        named = [*leaders] if version >= FIRST_VERSION_WITH_HINTS else []
        endpoints = node_endpoints(self.services.metadata.image, named, request.sink.listener_name)
        encoded = yield from encode_produce_response_in_steps(version, self.topics, request.throttle_ms, endpoints)
        request.respond(encoded)


class _Part(PendingResponse):
    """Some partitions of the request. Its rows are those of the whole answer."""

    __slots__ = ("_whole",)

    def __init__(self, whole: _LargeResponse) -> None:
        super().__init__(whole.services, whole.request, whole.acks)
        self._whole = whole
        whole.parts_left += 1

    def begin_append(self) -> None:
        """Its batches are to be appended; `on_appended` ends that."""
        self._whole.appends_left += 1

    def on_appended(self) -> None:
        """What can be appended of the part is in the logs."""
        self._whole.end_append()

    def answer(self) -> None:
        """The part has ended."""
        self._whole.end_part()


def begin_in_steps(services: BrokerServices, request: Request) -> None:
    """Decode and carry out the request when there is memory for its items, and answer it."""
    request.is_waited_for = True
    request.decode_in_steps(lambda items: _handle(services, request, items), _RESERVED_PER_BYTE)


def _handle(services: BrokerServices, request: Request, items: DecodedItems) -> Work[None]:
    message = yield from decode_produce_request_in_steps(request.api_version, request.body, count_bytes=items.count)
    items.settle()
    produce_quota = services.quotas.produce
    if produce_quota.is_on:
        throttle(produce_quota, request, request.frame_bytes)
    is_refused = yield from _lacks_transactional_id(services, request, message)
    whole = _LargeResponse(services, request, message.acks, items)
    pace = Pace()
    for name, topic_id, partitions in message.topics:
        rows: list[ProducePartitionResponse] = []
        whole.topics.append(ProduceTopicResponse(name, topic_id, rows))
        for start in range(0, len(partitions), PARTITIONS_PER_STEP):
            topic = ProduceTopic(name, topic_id, partitions[start : start + PARTITIONS_PER_STEP])
            if is_refused:
                code = DENIED[ResourceType.TRANSACTIONAL_ID]
                rows += [ProducePartitionResponse(partition, code) for partition, _ in topic.partitions]
            else:
                _carry_out(_Part(whole), message, topic, rows)
            if pace.ends_step(len(topic.partitions)):
                yield PLAIN_STEP
        if pace.ends_step():
            yield PLAIN_STEP
    whole.end_append()
    whole.end_part()


def _lacks_transactional_id(services: BrokerServices, request: Request, message: ProduceRequest) -> Work[bool]:
    """Whether a batch is transactional, and the request names no transactional id that the client may use."""
    has_transactional, pace = False, Pace()
    for topic in message.topics:
        for start in range(0, len(topic.partitions), PARTITIONS_PER_STEP):
            partitions = topic.partitions[start : start + PARTITIONS_PER_STEP]
            has_transactional = has_transactional or any(is_transactional(records) for _, records in partitions)
            if pace.ends_step(len(partitions)):
                yield PLAIN_STEP
        if pace.ends_step():
            yield PLAIN_STEP
    if not has_transactional or message.transactional_id is None:
        return has_transactional
    return services.authorization.is_on and not may_use(services, request, message.transactional_id)


def _carry_out(part: _Part, message: ProduceRequest, topic: ProduceTopic, rows: list[ProducePartitionResponse]) -> None:
    entries: list[Entry] = []
    add_rows(part, message.transactional_id, topic, rows, entries)
    if message.acks not in (-1, 0, 1):
        part.fail(ErrorCode.INVALID_REQUIRED_ACKS)
    elif not entries:
        part.answer()
    else:
        part.begin_append()
        append(part, message, entries)
