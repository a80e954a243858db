"""Which of several registries writes, and what the others do with a write."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from support.registry.topic_in_memory import AskedApp, ElectedWriter, answered

from raftwerk.cluster.client.cluster_client import ClusterClient
from raftwerk.registry import decisions, writer_election
from raftwerk.registry.decisions import NewSchema
from raftwerk.registry.errors import RegistryError
from raftwerk.registry.forwarding import FORWARDED, Forwarding
from raftwerk.registry.writer_election import Writer, WriterElection
from raftwerk.runtime.http.client import HttpAnswer, HttpError, HttpRequest
from raftwerk.testing import cluster

STRING = {"schema": '"string"'}
FIRST, SECOND = "http://first:8081", "https://[::1]:8082"


@asynccontextmanager
async def member(bootstrap: str, url: str) -> AsyncIterator[WriterElection]:
    async with (
        ClusterClient(bootstrap, timeout_s=15.0, is_silent=True) as client,
        WriterElection(client, "t", url) as election,
    ):
        yield election


async def until(election: WriterElection, wanted: Writer) -> None:
    async with asyncio.timeout(30):
        found = await election.writer()
        while found != wanted:
            await asyncio.sleep(0.02)
            found = await election.writer()


def test_the_first_registry_writes_until_it_leaves_and_the_others_know_where() -> None:
    async def main() -> None:
        async with (
            cluster(settings={"group.initial.rebalance.delay.ms": 0}) as started,
            member(started.bootstrap, FIRST) as first,
        ):
            assert await first.writer() == Writer(FIRST, is_here=True)
            async with member(started.bootstrap, SECOND) as second:
                assert await second.writer() == Writer(FIRST, is_here=False)
                assert await first.writer() == Writer(FIRST, is_here=True)
                replaced = asyncio.ensure_future(second.is_replaced(Writer(FIRST, is_here=False)))
                await first.lose()
                await asyncio.wait_for(replaced, 30)
                await until(second, Writer(SECOND, is_here=True))
                await until(first, Writer(SECOND, is_here=False))
            await until(first, Writer(FIRST, is_here=True))

    asyncio.run(main())


def test_a_coordinator_that_refuses_is_told_once_and_in_each_answer(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The nodes do not allow the session time-out of registries, which ask again and again."""
    monkeypatch.setattr(writer_election, "_ELECTION_TIMEOUT_S", 4 * writer_election._RETRY_S)

    async def main() -> None:
        settings = {"group.min.session.timeout.ms": 7000}
        async with cluster(settings=settings) as started, member(started.bootstrap, FIRST) as election:
            await election.writer()

    with pytest.raises(RegistryError, match="none is elected: the coordinator answers INVALID_SESSION_TIMEOUT"):
        asyncio.run(main())
    (line,) = [one.getMessage() for one in caplog.records if one.name == writer_election.__name__]
    assert line.endswith("elect no writer for now: the coordinator answers INVALID_SESSION_TIMEOUT")


def test_without_an_election_a_write_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_election, "_ELECTION_TIMEOUT_S", 0.01)

    async def main() -> None:
        async with ClusterClient("127.0.0.1:1") as client:
            await WriterElection(client, "t", FIRST).writer()

    with pytest.raises(RegistryError, match="none is elected") as told:
        asyncio.run(main())
    assert (told.value.status, told.value.code) == (500, 50004)


class Network:
    """Requests from one registry to the next, without sockets."""

    def __init__(self, answers: AskedApp | None = None) -> None:
        self.answers = answers
        self.requests: list[HttpRequest] = []

    async def fetch(self, request: HttpRequest) -> HttpAnswer:
        self.requests.append(request)
        if self.answers is None:
            raise HttpError(f"{FIRST} cannot be reached: connection refused")
        path, body = request.url.removeprefix(FIRST), json.loads(request.body or b"null")
        status, answer = await answered(self.answers.app, str(request.method), path, body, request.headers)
        return HttpAnswer(status, json.dumps(answer).encode())


def follower(network: Network) -> AskedApp:
    return AskedApp(ElectedWriter(FIRST), Forwarding(fetch=network.fetch))


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/subjects/a%2Fb/versions?normalize=true", STRING),
        ("POST", "/contexts/.c/subjects/s/versions", STRING),
        ("PUT", "/config/s", {"compatibility": "FULL"}),
        ("PUT", "/mode", {"mode": "READONLY"}),
        ("DELETE", "/subjects/none?permanent=true", None),
        ("DELETE", "/subjects/none/versions/1", None),
        ("DELETE", "/config", None),
    ],
)
def test_writes_are_answered_by_the_writer(method: str, path: str, body: Any) -> None:
    network = Network(AskedApp())
    asked = follower(network)
    status, answer = asked.ask(method, path, body, {"Authorization": "Basic YTpi", "Cookie": "x"})
    assert (status, answer) == AskedApp().ask(method, path, body)
    (request,) = network.requests
    assert (request.method, request.url) == (method, FIRST + path)
    assert request.headers == {"authorization": "Basic YTpi", FORWARDED: "true"}
    assert not asked.topic.log and asked.topic.caught_up == 1


@pytest.mark.parametrize("path", ["/subjects", "/config", "/contexts", "/schemas/types", "/mode"])
def test_reads_are_answered_here(path: str) -> None:
    network = Network()
    assert follower(network).ask("GET", path)[0] == 200
    assert not network.requests


def test_a_schema_that_is_there_is_answered_here() -> None:
    """Producers register at each start what is there already, so they start while no writer is elected."""
    network = Network()
    asked = follower(network)
    decided = decisions.register(asked.topic.image, "s", NewSchema('"string"'))
    for record in decided.records:
        asked.topic.image.replay(record)
    assert asked.ask("POST", "/subjects/s/versions", STRING) == (200, decided.answer)
    assert not network.requests
    assert asked.ask("POST", "/subjects/s/versions", {"schema": '"int"'})[0] == 500
    assert len(network.requests) == 1


def test_what_is_refused_here_is_asked_at_the_writer() -> None:
    """It may know of references that are not read here yet."""
    network = Network(AskedApp())
    assert network.answers is not None
    money = {"schema": '{"type":"record","name":"Money","fields":[]}'}
    assert network.answers.ask("POST", "/subjects/money/versions", money)[0] == 200
    prices = {
        "schema": '{"type":"array","items":"Money"}',
        "references": [{"name": "Money", "subject": "money", "version": 1}],
    }
    assert follower(network).ask("POST", "/subjects/prices/versions", prices)[0] == 200


def test_a_request_is_forwarded_once() -> None:
    network = Network(AskedApp(ElectedWriter("http://elsewhere:8081")))
    status, answer = follower(network).ask("POST", "/subjects/s/versions", STRING)
    assert (status, answer["error_code"]) == (500, 50004) and "was forwarded to this one" in answer["message"]
    assert len(network.requests) == 1


def test_a_writer_that_cannot_be_reached_is_told() -> None:
    status, answer = follower(Network()).ask("POST", "/subjects/s/versions", STRING)
    assert (status, answer["error_code"]) == (500, 50003)
    assert f"{FIRST} cannot be reached: connection refused; it may be done or not" in answer["message"]


def test_a_writer_that_hangs_is_given_up_when_another_one_is_elected() -> None:
    class Silence(Network):
        async def fetch(self, request: HttpRequest) -> HttpAnswer:
            await asyncio.Event().wait()
            raise AssertionError

    asked = follower(Silence())
    asked.writers.is_going = True
    status, answer = asked.ask("POST", "/subjects/s/versions", STRING)
    assert (status, answer["error_code"]) == (500, 50003)
    assert "does not answer, and another one was elected; it may be done or not" in answer["message"]


def test_a_writer_that_was_fenced_takes_part_in_an_election() -> None:
    asked = AskedApp()
    asked.topic.is_fenced = True
    status, answer = asked.ask("POST", "/subjects/s/versions", STRING)
    assert (status, answer["error_code"], asked.writers.lost) == (500, 50004, 1)
    assert "send the request again" in answer["message"]
