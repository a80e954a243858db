"""Produces records: one JSON object after the other in a body without an end, and an answer for each.

The next records are read while earlier ones are on their way, up to a window. So a stream is read as fast as the
cluster acks, and what a client sends faster waits in its own buffers (TCP).

Many clients read no answer until they have sent all, so that answers wait here, up to a limit. A client that reads none
then either would wait for ever: no more of its records are taken, and the last answer says so.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from ...cluster.client.client_errors import ClientError
from ...wire.errors import UnencodableError
from ..errors import (
    BAD_REQUEST,
    BATCH_ERROR,
    RestError,
    error_of,
    naming_right,
    unknown_topic_or_partition,
)
from ..json_text import JsonSplitter, json_bytes, parse_json
from ..record_producer import Acked, NewRecord
from ..request import Request
from ..routes import Answer, Route
from ..services import Services
from ..validation import validated
from .record_data import from_base64, serialized

_WRITING = "Write on the topic"
_RECORDS = "/v3/clusters/{cluster_id}/topics/{topic_name}/records"
_WINDOW_RECORDS = 1000
_WINDOW_BYTES = 8 << 20
_JSON_TYPES = ("application/json", "*/*")
_ANSWERS_BYTES = 16 << 20
"""How many bytes of answers wait for a client to read them."""
_PART_BYTES = 64 << 10
_UNREAD_S = 10.0
"""How long a client with so many answers may read none."""
Report = dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Sent:
    """A record of a request: its answer, or the future that it follows from."""

    size: int
    report: Report | None = None
    acked: asyncio.Future[Acked] | None = None
    parts: Mapping[str, Any] | None = None

    @property
    def is_done(self) -> bool:
        return self.acked is None or self.acked.done()

    async def wait(self) -> None:
        """Return when it is done."""
        if self.acked is not None:
            await asyncio.wait([self.acked])

    def answer(self, request: Request) -> Report:
        """What became of the record, which is done."""
        if self.acked is None:
            return self.report or {}
        try:
            place = self.acked.result()
        except RestError as error:
            return error.as_json()
        found = {
            "error_code": 200,
            "cluster_id": request.parameters["cluster_id"],
            "topic_name": request.parameters["topic_name"],
            "partition_id": place.partition,
            "offset": place.offset,
        }
        if place.timestamp_ms is not None:
            found["timestamp"] = _iso_time(place.timestamp_ms)
        return {**found, **(self.parts or {})}


def _iso_time(timestamp_ms: int) -> str:
    seconds, milliseconds = divmod(timestamp_ms, 1000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{milliseconds:03d}Z"


async def send_record(services: Services, topic: str, fields: Mapping[str, Any], size: int) -> _Sent:
    """Send the record that checked fields describe. What is wrong with it is its answer."""
    try:
        record, parts = await _new_record(services, topic, fields)
        count = await services.cluster.partition_count(topic)
        if record.partition is not None and record.partition >= count:
            raise unknown_topic_or_partition()
        return _Sent(size, acked=await services.producer.send(topic, record), parts=parts)
    except (RestError, ClientError) as raised:
        error = raised if isinstance(raised, RestError) else error_of(raised)
        return _Sent(size, naming_right(error, "a record", _WRITING).as_json())
    except (UnencodableError, UnicodeEncodeError):
        return _Sent(size, RestError(BAD_REQUEST, "A text of the record or of the path is no UTF-8").as_json())


async def _new_record(services: Services, topic: str, fields: Mapping[str, Any]) -> tuple[NewRecord, dict[str, Any]]:
    """The record, and the answer's part about its key and its value."""
    parts: dict[str, Any] = {}
    data: dict[str, bytes | None] = {"key": None, "value": None}
    for name in data:
        if fields.get(name) is not None:
            data[name], parts[name] = await serialized(services, topic, name, fields[name])
    headers = tuple(
        (one["name"], None if one.get("value") is None else from_base64("a header's value", one["value"], BAD_REQUEST))
        for one in fields.get("headers") or ()
    )
    timestamp = None if fields.get("timestamp") is None else _timestamp_ms(fields["timestamp"])
    return NewRecord(data["key"], data["value"], headers, fields.get("partition_id"), timestamp), parts


def _timestamp_ms(text: str) -> int:
    try:
        found = datetime.fromisoformat(text)
        at = (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        raise RestError(BAD_REQUEST, f"timestamp {text[:40]!r} is no time like 2026-01-31T12:00:00Z") from None
    timestamp_ms = round(at * 1000)
    if timestamp_ms <= 0:
        text = f"timestamp {text[:40]!r} is before 1970, or its first millisecond, which librdkafka takes for now"
        raise RestError(BAD_REQUEST, text)
    return timestamp_ms


class _Stream:
    """The records of one request, and what became of each, in the same order."""

    def __init__(self, services: Services, request: Request) -> None:
        self.count = 0
        """How many records were read."""
        self.end: RestError | None = None
        """Why no more records are taken."""
        self.first_code: object = None
        """The error code of the first answer, when there is one."""
        self.arrived = asyncio.Event()
        self._services = services
        self._request = request
        self._sent: deque[_Sent] = deque()
        self._sent_bytes = 0
        self._answers: deque[bytes] = deque()
        self._answers_bytes = 0
        self._were_read = asyncio.Event()
        self._reader = asyncio.ensure_future(self._read())

    @property
    def is_read(self) -> bool:
        """Whether all was read that can be."""
        return self._reader.done()

    async def answers(self) -> AsyncIterator[bytes]:
        """The answers in lines, as soon as there are some; the last one may be about the request itself."""
        try:
            while self._sent or self._answers or not self.is_read:
                self._collect()
                if self._answers:
                    yield self._next_part()
                elif self._sent:
                    await self._sent[0].wait()
                else:
                    self.arrived.clear()
                    await self.arrived.wait()
            self._reader.result()
            if self.end is None and not self.count:
                self.end = RestError(422, "Payload error. Request body is empty. Data is required.")
            if self.end is not None:
                self._add(self.end.as_json())
                yield self._next_part()
        finally:
            self._reader.cancel()

    def _collect(self) -> None:
        """Make answers of the first records that are done."""
        while self._sent and self._sent[0].is_done:
            sent = self._sent.popleft()
            self._sent_bytes -= sent.size
            self._add(sent.answer(self._request))

    def _add(self, report: Report) -> None:
        if self.first_code is None:
            self.first_code = report["error_code"]
        self._answers.append(json_bytes(report) + b"\n")
        self._answers_bytes += len(self._answers[-1])

    def _next_part(self) -> bytes:
        """The next answers, some kilobytes of them."""
        part = bytearray()
        while self._answers and len(part) < _PART_BYTES:
            part += self._answers.popleft()
        self._answers_bytes -= len(part)
        self._were_read.set()
        return bytes(part)

    async def _read(self) -> None:
        topic, splitter = self._request.parameters["topic_name"], JsonSplitter(self._request.max_body_bytes)
        try:
            async for chunk in self._request.chunks():
                if self.end is not None:  # what is not taken is read all the same, so that the client comes to its end
                    continue
                for data in splitter.feed(chunk):
                    if not await self._may_send():
                        self.end = RestError(429, f"The answers are not read: no record is taken after {self.count:,}")
                        break
                    await self._take(topic, data)
            if self.end is None and not self._request.stopping.is_set():
                splitter.finish()
        except RestError as error:
            self.end = error
        finally:
            self.arrived.set()

    async def _may_send(self) -> bool:
        """Wait until another record may be on its way. Returns False if that is never, as nobody reads the answers."""
        while len(self._sent) >= _WINDOW_RECORDS or self._sent_bytes >= _WINDOW_BYTES:
            await self._sent[0].wait()
            self._collect()
        try:
            while self._answers_bytes >= _ANSWERS_BYTES:
                self._were_read.clear()
                async with asyncio.timeout(_UNREAD_S):
                    await self._were_read.wait()
        except TimeoutError:
            return False
        return True

    async def _take(self, topic: str, data: bytes) -> None:
        try:
            fields = validated(parse_json(data), "ProduceRequest", BAD_REQUEST)
        except RestError as error:
            sent = _Sent(len(data), error.as_json())
        else:
            sent = await send_record(self._services, topic, fields, len(data))
        self.count += 1
        self._sent.append(sent)
        self._sent_bytes += len(data)
        self.arrived.set()


async def _produce(services: Services, request: Request) -> Answer:
    _check_content_type(request)
    stream = _Stream(services, request)
    answers = stream.answers()
    first = await anext(answers)
    status = 200
    if stream.first_code != 200:
        is_streaming = "chunked" in request.headers.get("transfer-encoding", "").lower()
        while not is_streaming and stream.count == 1 and not stream.is_read:
            stream.arrived.clear()
            await stream.arrived.wait()
        if stream.count == 0 or (stream.count == 1 and stream.end is None and not is_streaming):
            status = int(str(stream.first_code)[:3])

    async def lines() -> AsyncIterator[bytes]:
        yield first
        async for more in answers:
            yield more

    return Answer(status=status, stream=lines())


def _check_content_type(request: Request) -> None:
    given = request.headers.get("content-type", _JSON_TYPES[0]).partition(";")[0].strip().lower()
    if given not in _JSON_TYPES:
        raise RestError(415, "HTTP 415 Unsupported Media Type: records are application/json")


async def _produce_batch(services: Services, request: Request) -> Answer:
    _check_content_type(request)
    entries = (await request.fields("ProduceBatchRequest"))["entries"]
    if len({one["id"] for one in entries}) < len(entries):
        raise RestError(BATCH_ERROR, "Batch entry IDs are not distinct.")
    topic = request.parameters["topic_name"]
    sent = [await send_record(services, topic, one, 0) for one in entries]
    waited = [one.acked for one in sent if one.acked is not None]
    if waited:
        await asyncio.wait(waited)
    answers: dict[str, list[Report]] = {"successes": [], "failures": []}
    for entry, one in zip(entries, sent, strict=True):
        report = one.answer(request)
        kind = "successes" if report["error_code"] == 200 else "failures"
        answers[kind].append({"id": entry["id"], **report})
    return Answer(answers, 207)


ROUTES = (
    Route(
        "POST",
        _RECORDS,
        _produce,
        "Produce records: JSON objects that follow each other, with an answer for each in the same order. In a chunked "
        "request the status is 200 whatever becomes of the records, and each answer has its error_code.",
        "ProduceResponse",
        200,
        "ProduceRequest",
        right=_WRITING,
    ),
    Route(
        "POST",
        f"{_RECORDS}:batch",
        _produce_batch,
        "Produce up to 1000 records, each with an id of its own in the request.",
        "ProduceBatchResponse",
        207,
        "ProduceBatchRequest",
        right=_WRITING,
    ),
)
