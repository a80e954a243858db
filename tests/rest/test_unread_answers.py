"""Streams of version 3 whose clients send without reading, as most libraries do until they have sent all."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any, cast

import pytest
from support.rest.proxy import text_record

from raftwerk.rest.record_producer import Acked, NewRecord
from raftwerk.rest.request import Request
from raftwerk.rest.routes import Answer
from raftwerk.rest.services import Services
from raftwerk.rest.v3 import records

COUNT = 5000
"""More records than may be on their way."""


class Cluster:
    async def partition_count(self, topic: str) -> int:
        return 1


class Producer:
    """Acks each record at once."""

    def __init__(self) -> None:
        self.count = 0

    async def send(self, topic: str, record: NewRecord) -> asyncio.Future[Acked]:
        acked: asyncio.Future[Acked] = asyncio.get_running_loop().create_future()
        acked.set_result(Acked(0, self.count, 0))
        self.count += 1
        return acked


class Client:
    """Sends records in one request, and notes when all were taken from it."""

    def __init__(self, count: int) -> None:
        body = text_record("a") * count
        self._parts = [body[at : at + 10_000] for at in range(0, len(body), 10_000)]
        self.has_sent_all = asyncio.Event()
        self.producer = Producer()

    async def receive(self) -> Mapping[str, Any]:
        part = self._parts.pop(0)
        if not self._parts:
            self.has_sent_all.set()
        return {"type": "http.request", "body": part, "more_body": bool(self._parts)}

    async def request(self) -> Answer:
        """Begin the request; its answer, of which nothing is read yet."""
        path = "/v3/clusters/c/topics/t/records"
        scope = {"method": "POST", "path": path, "headers": []}
        request = Request(scope, self.receive, 1 << 20, asyncio.Event())
        request.parameters = {"cluster_id": "c", "topic_name": "t"}
        services = Services(cast(Any, Cluster()), cast(Any, self.producer), cast(Any, None))
        return await records.ROUTES[0].handler(services, request)


async def codes(answer: Answer) -> list[int]:
    """The error codes of an answer, in their order."""
    assert answer.stream is not None
    text = b"".join([part async for part in answer.stream])
    return [json.loads(line)["error_code"] for line in text.splitlines()]


def test_who_reads_when_all_is_sent_has_an_answer_for_each_record() -> None:
    """Both sides waited for each other for ever when more than a thousand answers were not read."""

    async def main() -> list[int]:
        client = Client(COUNT)
        answer = await client.request()
        await client.has_sent_all.wait()  # the test's limit of time ends it
        return await codes(answer)

    assert asyncio.run(main()) == [200] * COUNT


def test_who_never_reads_is_told_where_its_records_are_not_taken_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "_ANSWERS_BYTES", 10_000)
    monkeypatch.setattr(records, "_UNREAD_S", 0.05)

    async def main() -> list[int]:
        client = Client(COUNT)
        answer = await client.request()
        await client.has_sent_all.wait()
        found = await codes(answer)
        assert client.producer.count == len(found) - 1 < COUNT
        return found

    found = asyncio.run(main())
    assert found[-1] == 429 and {*found[:-1]} == {200}


def test_answers_beyond_the_limit_wait_for_who_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "_ANSWERS_BYTES", 10_000)

    async def main() -> list[int]:
        client = Client(COUNT)
        answer = await client.request()
        return await codes(answer)

    assert asyncio.run(main()) == [200] * COUNT
