"""Produces records: one JSON object after the other in a body without an end, and an answer for each.

The next records are read while earlier ones are on their way, up to a window. So a stream is read as fast as the
cluster acks, and what a client sends faster waits in its own buffers (TCP).
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
_FIRST_MS = 0
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
    if at < _FIRST_MS:
        raise RestError(BAD_REQUEST, f"timestamp {text[:40]!r} is before 1970")
    return round(at * 1000)


class _Stream:
    """The records of one request, and what became of each, in the same order."""

    def __init__(self, services: Services, request: Request) -> None:
        self.count = 0
        """How many records were read."""
        self.end: RestError | None = None
        """The mistake after which no record could be found."""
        self.arrived = asyncio.Event()
        self._services = services
        self._request = request
        self._waiting: deque[_Sent] = deque()
        self._waiting_bytes = 0
        self._drained = asyncio.Event()
        self._reader = asyncio.ensure_future(self._read())

    @property
    def is_read(self) -> bool:
        """Whether all was read that can be."""
        return self._reader.done()

    async def answers(self) -> AsyncIterator[list[Report]]:
        """The answers, as soon as there are some; the last one may be about the request itself."""
        try:
            while self._waiting or not self.is_read:
                if not self._waiting:
                    self.arrived.clear()
                    await self.arrived.wait()
                    continue
                first = self._waiting[0].acked
                if first is not None and not first.done():
                    await asyncio.wait([first])
                yield self._done()
            self._reader.result()
            if self.end is None and not self.count:
                self.end = RestError(422, "Payload error. Request body is empty. Data is required.")
            if self.end is not None:
                yield [self.end.as_json()]
        finally:
            self._reader.cancel()

    def _done(self) -> list[Report]:
        found = []
        while self._waiting and self._waiting[0].is_done:
            sent = self._waiting.popleft()
            self._waiting_bytes -= sent.size
            found.append(sent.answer(self._request))
        self._drained.set()
        return found

    async def _read(self) -> None:
        topic, splitter = self._request.parameters["topic_name"], JsonSplitter(self._request.max_body_bytes)
        try:
            async for chunk in self._request.chunks():
                for data in splitter.feed(chunk):
                    while len(self._waiting) >= _WINDOW_RECORDS or self._waiting_bytes >= _WINDOW_BYTES:
                        self._drained.clear()
                        await self._drained.wait()
                    await self._take(topic, data)
            if not self._request.stopping.is_set():
                splitter.finish()
        except RestError as error:
            self.end = error
        finally:
            self.arrived.set()

    async def _take(self, topic: str, data: bytes) -> None:
        try:
            fields = validated(parse_json(data), "ProduceRequest", BAD_REQUEST)
        except RestError as error:
            sent = _Sent(len(data), error.as_json())
        else:
            sent = await send_record(self._services, topic, fields, len(data))
        self.count += 1
        self._waiting.append(sent)
        self._waiting_bytes += len(data)
        self.arrived.set()


async def _produce(services: Services, request: Request) -> Answer:
    _check_content_type(request)
    stream = _Stream(services, request)
    answers = stream.answers()
    first = await anext(answers)
    status = 200
    if first[0]["error_code"] != 200:
        is_streaming = "chunked" in request.headers.get("transfer-encoding", "").lower()
        while not is_streaming and stream.count == 1 and not stream.is_read:
            stream.arrived.clear()
            await stream.arrived.wait()
        if stream.count == 0 or (stream.count == 1 and stream.end is None and not is_streaming):
            status = int(str(first[0]["error_code"])[:3])

    async def lines() -> AsyncIterator[bytes]:
        yield _lines(first)
        async for more in answers:
            yield _lines(more)

    return Answer(status=status, stream=lines())


def _lines(reports: list[Report]) -> bytes:
    return b"".join(json_bytes(one) + b"\n" for one in reports)


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
