"""Schemas by their ids from a registry, which a table of answers stands for."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

import pytest

from raftwerk.registry.data import schema_client
from raftwerk.registry.data.schema_client import SchemaClient, SchemaClientError
from raftwerk.registry.references import Referenced
from raftwerk.runtime.http.client import HttpAnswer, HttpError, HttpRequest


class Answers:
    """Answers that come one after the other."""

    def __init__(self, *answers: Any) -> None:
        self._left = list(answers)

    def next(self) -> Any:
        return self._left.pop(0)


class Registry:
    """Answers by path, and the paths that were asked for."""

    def __init__(self, answers: dict[str, Any]) -> None:
        self.answers = answers
        self.asked: list[str] = []

    async def fetch(self, request: HttpRequest) -> HttpAnswer:
        path = request.url.removeprefix("http://registry")
        if request.body is not None:
            path = f"POST {path} {request.body.decode()}"
        self.asked.append(path)
        found = self.answers.get(path, 404)
        if isinstance(found, Answers):
            found = found.next()
        if isinstance(found, HttpError):
            raise found
        if isinstance(found, int):
            return HttpAnswer(found, b'{"error_code": 40403}')
        return HttpAnswer(200, found if isinstance(found, bytes) else json.dumps(found).encode())

    def client(self) -> SchemaClient:
        return SchemaClient("http://registry/", self.fetch)


def reference(name: str, subject: str, version: int) -> dict[str, Any]:
    return {"name": name, "subject": subject, "version": version}


def test_a_schema_is_asked_for_once() -> None:
    registry = Registry({"/schemas/ids/7": {"schema": "text"}})
    client = registry.client()

    async def ask() -> None:
        for _ in range(2):
            found = await client.schema(7)
            assert (found.schema_id, found.schema_type, found.text, found.references) == (7, "AVRO", "text", ())

    asyncio.run(ask())
    assert registry.asked == ["/schemas/ids/7"]


def test_user_and_password_of_the_url_are_the_login_and_are_not_told() -> None:
    requests: list[HttpRequest] = []

    async def fetch(request: HttpRequest) -> HttpAnswer:
        requests.append(request)
        return HttpAnswer(401, b'{"error_code": 40101, "message": "who?"}')

    for url in ("https://alice:p%40ss%3Aword@registry:8081/", "https://alice@registry:8081", "https://registry:8081"):
        with pytest.raises(SchemaClientError) as raised:
            asyncio.run(SchemaClient(url, fetch).schema(7))
        assert "alice" not in str(raised.value) and raised.value.code == 40101
    assert [one.url for one in requests] == ["https://registry:8081/schemas/ids/7"] * 3
    logins = [one.headers.get("Authorization", "none ").split(" ")[1] for one in requests]
    assert [base64.b64decode(login).decode() for login in logins] == ["alice:p@ss:word", "alice:", ""]


def test_references_come_before_those_that_use_them() -> None:
    registry = Registry(
        {
            "/schemas/ids/7": {
                "schema": "root",
                "schemaType": "PROTOBUF",
                "references": [reference("a", "s/a", 1), reference("b", "b", 2)],
            },
            "/subjects/s%2Fa/versions/1?deleted=true": {"schema": "A", "references": [reference("b", "b", 2)]},
            # A circle, which a registry would refuse, must not be followed for ever.
            "/subjects/b/versions/2?deleted=true": {"schema": "B", "references": [reference("a", "s/a", 1)]},
        }
    )
    found = asyncio.run(registry.client().schema(7))
    assert found.schema_type == "PROTOBUF"
    assert found.references == (Referenced("b", "B", 1), Referenced("a", "A", 0))


def test_references_are_of_the_context_of_the_schema() -> None:
    """The registry answers with the qualified name of a subject, also where it was found in another context."""
    blue = "/subjects/%3A.blue%3A"
    registry = Registry(
        {
            "/subjects/order/versions/latest": {
                "subject": ":.blue:order",
                "version": 1,
                "id": 2,
                "schema": "order",
                "references": [reference("M", "money", 1), reference("C", ":.red:colour", 1)],
            },
            f"{blue}money/versions/1?deleted=true": {
                "subject": ":.blue:money",
                "schema": "money",
                "references": [reference("N", "number", 3)],
            },
            f"{blue}number/versions/3?deleted=true": {"subject": ":.blue:number", "schema": "number"},
            "/subjects/%3A.red%3Acolour/versions/1?deleted=true": {"subject": ":.red:colour", "schema": "colour"},
        }
    )
    found = asyncio.run(registry.client().version("order", None))
    assert [one.text for one in found.schema.references] == ["number", "money", "colour"]


def test_a_schema_that_is_asked_for_at_once_takes_its_place_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema_client, "_KEPT_CHARACTERS", 300)
    registry = Registry({f"/schemas/ids/{number}": {"schema": "x" * 100} for number in (1, 2, 3, 4)})
    client = registry.client()

    async def ask() -> None:
        await asyncio.gather(*(client.schema(1) for _ in range(20)))
        for number in (2, 3, 2, 3, 4, 2, 3):
            await client.schema(number)

    asyncio.run(ask())
    assert [registry.asked.count(f"/schemas/ids/{number}") for number in (2, 3, 4)] == [1, 1, 1]


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (404, "the registry has no schema 7"),
        (500, "the registry answers 500"),
        (b"<html>", "the registry answers 200"),
        ([1], "the registry answers 200"),
        ({}, "is no schema"),
        ({"schema": "x", "references": [{"name": "a"}]}, "is no schema"),
        ({"schema": "x", "references": [reference("a", "a", 1)]}, "the registry has no version 1 of a"),
        (HttpError("http://registry cannot be reached"), "gives no answer: http://registry cannot be reached"),
    ],
)
def test_other_answers_are_told(answer: Any, told: str) -> None:
    with pytest.raises(SchemaClientError, match=told):
        asyncio.run(Registry({"/schemas/ids/7": answer}).client().schema(7))


def test_more_references_than_anybody_has_are_not_followed() -> None:
    answers: dict[str, Any] = {"/schemas/ids/7": {"schema": "x", "references": [reference("a", "a", 0)]}}
    for number in range(200):
        used = [reference("a", "a", number + 1)]
        answers[f"/subjects/a/versions/{number}?deleted=true"] = {"schema": "x", "references": used}
    registry = Registry(answers)
    with pytest.raises(SchemaClientError, match="more than 100 references"):
        asyncio.run(registry.client().schema(7))
    assert len(registry.asked) < 110


FIRST = {"subject": "a/b", "version": 3, "id": 7, "schema": "text"}
LOOK_UP = 'POST /subjects/a%2Fb {"schema": "text", "schemaType": "JSON"}'
REGISTER = 'POST /subjects/a%2Fb/versions {"schema": "text", "schemaType": "JSON"}'


def test_versions_of_subjects() -> None:
    registry = Registry(
        {
            "/subjects/a%2Fb/versions/latest": FIRST,
            "/subjects/a%2Fb/versions/3": FIRST,
            "/schemas/ids/7/versions": [{"subject": "other", "version": 1}, {"subject": "a/b", "version": 3}],
        }
    )
    client = registry.client()
    for version in (None, 3):
        found = asyncio.run(client.version("a/b", version))
        assert (found.subject, found.version, found.schema.schema_id) == ("a/b", 3, 7)
    assert asyncio.run(client.version_of("a/b", 7)) == 3
    with pytest.raises(SchemaClientError, match="the registry has no schema 7 under the subject c"):
        asyncio.run(client.version_of("c", 7))
    with pytest.raises(SchemaClientError, match="has no version 4 of a/b"):
        asyncio.run(client.version("a/b", 4))


def test_a_schema_is_registered_where_it_is_not_there() -> None:
    registry = Registry({LOOK_UP: Answers(404, FIRST), REGISTER: {"id": 7}})
    found = asyncio.run(registry.client().register("a/b", "JSON", "text"))
    assert (found.version, found.schema.schema_id, found.schema.schema_type) == (3, 7, "JSON")
    assert registry.asked == [LOOK_UP, REGISTER, LOOK_UP]
    registry = Registry({LOOK_UP: FIRST})
    assert asyncio.run(registry.client().register("a/b", "JSON", "text")).version == 3
    assert registry.asked == [LOOK_UP]


@pytest.mark.parametrize("answer", [500, {}, [1], b"<html>"])
def test_a_registration_that_fails_is_told(answer: Any) -> None:
    with pytest.raises(SchemaClientError):
        asyncio.run(Registry({LOOK_UP: answer}).client().register("a/b", "JSON", "text"))
