"""Contexts: ids, subjects, levels and modes of their own, and the paths that name them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.registry.topic_in_memory import AskedApp

from raftwerk.registry.contexts import begins, normalized, qualified, routed
from raftwerk.registry.errors import RegistryError

STRING, BYTES, INT = ({"schema": f'"{kind}"'} for kind in ("string", "bytes", "int"))


@pytest.fixture
def asked() -> AskedApp:
    return AskedApp()


def register(asked: AskedApp, subject: str, new: dict[str, Any]) -> int:
    status, answer = asked.ask("POST", f"/subjects/{subject}/versions", new)
    assert status == 200, answer
    return int(answer["id"])


def refused(asked: AskedApp, method: str, path: str, body: Any = None) -> int:
    before = len(asked.topic.log)
    status, answer = asked.ask(method, path, body)
    assert status == int(str(answer["error_code"])[:3]) and len(asked.topic.log) == before
    return int(answer["error_code"])


@pytest.mark.parametrize(
    ("path", "query", "route", "asks"),
    [
        ("subjects/s/versions", "", "subjects/s/versions", ""),
        ("subjects/:.:s", "", "subjects/s", ""),
        ("config/:.c", "", "config/:.c:", ""),
        ("contexts", "", "contexts", ""),
        ("contexts/.c/subjects/s/versions", "", "subjects/:.c:s/versions", ""),
        ("contexts/c/subjects/s", "", "subjects/:.c:s", ""),
        ("contexts/:.c:/subjects/s", "", "subjects/:.c:s", ""),
        ("contexts/./subjects/s", "", "subjects/s", ""),
        ("contexts/.c/subjects/:.d:s", "", "subjects/:.d:s", ""),
        ("contexts/.c/compatibility/subjects/s/versions/1", "", "compatibility/subjects/:.c:s/versions/1", ""),
        ("contexts/.c/config", "", "config/:.c:", ""),
        ("contexts/./mode", "", "mode", ""),
        ("contexts/.c/mode/s", "", "mode/:.c:s", ""),
        ("contexts/.c/mode/:.d:", "", "mode/:.d:", ""),
        ("contexts/.c/schemas/ids/5", "", "schemas/ids/5", "subject=%3A.c%3A"),
        ("contexts/.c/schemas/ids/5/schema", "subject=s", "schemas/ids/5/schema", "subject=%3A.c%3As"),
        ("contexts/.c/schemas/types", "", "schemas/types", ""),
        ("contexts/.c/subjects", "", "subjects", "subjectPrefix=%3A.c%3A"),
        ("contexts/.c/schemas", "subjectPrefix=a&limit=1", "schemas", "subjectPrefix=%3A.c%3Aa&limit=1"),
        ("contexts/.c/subjects", "subjectPrefix=:*:a", "subjects", "subjectPrefix=%3A%2A%3Aa"),
    ],
)
def test_paths_that_begin_with_a_context(path: str, query: str, route: str, asks: str) -> None:
    assert routed(path.split("/"), query) == (route.split("/"), asks)


def test_a_context_has_no_colon() -> None:
    with pytest.raises(RegistryError) as told:
        routed(["contexts", "a:b", "subjects"], "")
    assert told.value.code == 400


def test_names() -> None:
    assert [normalized(one) for one in ("s", ":.:s", ":.c:s", ":.c", ":.:", ":a", "a:.b:c")] == [
        *("s", "s", ":.c:s", ":.c:", "", ":a", "a:.b:c")
    ]
    assert [qualified("r", one) for one in ("s", ":.c:s")] == ["r", ":.c:r"]
    assert qualified(":.d:r", ":.c:s") == ":.d:r"
    names = ("ab", "b", ":.c:ab", ":.cc:ab", ":.c:b")
    for prefix, wanted in {
        "": ("ab", "b"),
        "a": ("ab",),
        ":.:": ("ab", "b"),
        ":.:a": ("ab",),
        ":.c:": (":.c:ab", ":.c:b"),
        ":.c:a": (":.c:ab",),
        ":*:": names,
        ":*:a": ("ab", ":.c:ab", ":.cc:ab"),
    }.items():
        assert tuple(one for one in names if begins(one, prefix)) == wanted, prefix


def test_each_context_has_ids_of_its_own(asked: AskedApp) -> None:
    assert [register(asked, "s", one) for one in (STRING, STRING)] == [1, 1]
    assert register(asked, ":.c:s", BYTES) == 1
    assert register(asked, ":.c:t", STRING) == 2
    assert register(asked, ":.c:u", BYTES) == 1, "a schema keeps its id within the context"
    for query, text in (
        ("", "string"),
        ("?subject=:.c:", "bytes"),
        ("?subject=:.:", "string"),
        ("?subject=u", "bytes"),
    ):
        assert asked.ask("GET", f"/schemas/ids/1{query}") == (200, {"schema": f'"{text}"'}), query
    assert asked.ask("GET", "/contexts/.c/schemas/ids/2/schema") == (200, "string")
    assert asked.ask("GET", "/schemas/ids/1/subjects") == (200, ["s"])
    assert asked.ask("GET", "/schemas/ids/1/subjects?subject=:.c:") == (200, [":.c:s", ":.c:u"])
    assert asked.ask("GET", "/schemas/ids/1?subject=elsewhere") == (200, STRING)
    for path in ("/schemas/ids/2", "/schemas/ids/2?subject=:.c:s", "/schemas/ids/1?subject=:.d:"):
        assert refused(asked, "GET", path) == 40403, path


def test_the_first_schema_of_a_context_writes_that_it_is_there(asked: AskedApp) -> None:
    assert asked.ask("GET", "/contexts") == (200, ["."])
    for _ in range(2):
        register(asked, ":.c:s", STRING)
    register(asked, ":.c:t", STRING)
    assert [json.loads(key)["keytype"] for key, _ in asked.topic.log] == ["CONTEXT", "SCHEMA", "SCHEMA"]
    assert asked.topic.log[0] == (
        b'{"keytype":"CONTEXT","tenant":"default","context":".c","magic":0}',
        b'{"tenant":"default","context":".c"}',
    )
    register(asked, ":.b:s", STRING)
    assert asked.ask("GET", "/contexts?offset=0&limit=-1") == (200, [".", ".b", ".c"])
    assert asked.ask("GET", "/contexts?offset=1&limit=1") == (200, [".b"])
    assert refused(asked, "GET", "/contexts?limit=x") == 422


def test_subjects_are_listed_by_prefix(asked: AskedApp) -> None:
    for subject in ("a", "b", ":.c:a", ":.c:b"):
        register(asked, subject, STRING)
    assert asked.ask("GET", "/subjects") == (200, [":.c:a", ":.c:b", "a", "b"])
    assert asked.ask("GET", "/subjects?subjectPrefix=") == (200, ["a", "b"])
    assert asked.ask("GET", "/subjects?subjectPrefix=:.c:b") == (200, [":.c:b"])
    assert asked.ask("GET", "/contexts/c/subjects") == (200, [":.c:a", ":.c:b"])
    assert asked.ask("GET", "/contexts/./subjects") == (200, ["a", "b"])
    found = asked.ask("GET", "/contexts/.c/schemas?subjectPrefix=a")[1]
    assert [(one["subject"], one["id"]) for one in found] == [(":.c:a", 1)]


def test_what_is_not_qualified_is_found_in_other_contexts(asked: AskedApp) -> None:
    register(asked, ":.c:s", STRING)
    found = {"subject": ":.c:s", "version": 1, "id": 1, "schema": '"string"'}
    assert asked.ask("GET", "/subjects/s/versions/latest") == asked.ask("POST", "/subjects/s", STRING) == (200, found)
    register(asked, "s", BYTES)
    assert asked.ask("GET", "/subjects/s/versions/latest")[1]["schema"] == '"bytes"'
    assert asked.ask("POST", "/subjects/s", STRING) == (200, found)
    assert refused(asked, "POST", "/subjects/s", INT) == 40403
    assert refused(asked, "GET", "/subjects/:.d:s/versions/1") == 40401
    assert refused(asked, "DELETE", "/subjects/:.d:s") == 40401


def test_levels_hold_for_a_subject_its_context_or_all(asked: AskedApp) -> None:
    register(asked, ":.c:s", STRING)

    def level(path: str = ":.c:s") -> str:
        return str(asked.ask("GET", f"/config/{path}?defaultToGlobal=true")[1]["compatibilityLevel"])

    def put(path: str, wanted: str) -> None:
        assert asked.ask("PUT", path, {"compatibility": wanted}) == (200, {"compatibility": wanted})

    put("/config", "FULL")
    assert (level(), level("s"), level(":.:")) == ("BACKWARD", "FULL", "FULL"), "the default context is one of many"
    put("/config/:.__GLOBAL:", "FORWARD")
    assert (level(), level("s")) == ("FORWARD", "FULL")
    put("/contexts/c/config", "NONE")
    assert (level(), level(":.d:s")) == ("NONE", "FORWARD")
    assert register(asked, ":.c:s", INT) == 2
    put("/contexts/.c/config/s", "BACKWARD")
    assert refused(asked, "POST", "/subjects/:.c:s/versions", BYTES) == 409
    assert asked.ask("DELETE", "/config/:.c:s")[0] == asked.ask("DELETE", "/config/:.:")[0] == 200
    assert (level(), level("s")) == ("NONE", "FORWARD")
    assert refused(asked, "GET", "/config/:.d:") == 40408


def test_modes_hold_for_a_context(asked: AskedApp) -> None:
    register(asked, "s", STRING)
    assert asked.ask("PUT", "/mode/:.c:", {"mode": "IMPORT"}) == (200, {"mode": "IMPORT"})
    assert register(asked, ":.c:s", {**BYTES, "id": 70, "version": 3}) == 70
    assert refused(asked, "POST", "/subjects/:.c:t/versions", STRING) == 42205
    assert refused(asked, "PUT", "/mode", {"mode": "IMPORT"}) == 42205
    assert refused(asked, "PUT", "/mode/:.__GLOBAL:", {"mode": "IMPORT"}) == 42205
    assert asked.ask("PUT", "/mode/:.c:", {"mode": "READONLY"})[0] == 200
    for method, path in (
        ("POST", "/subjects/:.c:s/versions"),
        ("DELETE", "/subjects/:.c:s"),
        ("DELETE", "/subjects/:.c:s/versions/3"),
        ("PUT", "/config/:.c:"),
    ):
        assert refused(asked, method, path, {**STRING, "compatibility": "NONE"}) == 42205, path
    assert register(asked, "t", STRING) == 1
    assert asked.ask("PUT", "/mode", {"mode": "READONLY_OVERRIDE"})[0] == 200
    assert asked.ask("GET", "/mode/:.d:?defaultToGlobal=true") == (200, {"mode": "READONLY_OVERRIDE"})
    assert refused(asked, "POST", "/subjects/:.d:s/versions", STRING) == 42205


def test_references_are_of_the_context(asked: AskedApp) -> None:
    money = {"schema": json.dumps({"type": "record", "name": "Money", "fields": []})}
    order = {
        "schema": json.dumps({"type": "record", "name": "Order", "fields": [{"name": "price", "type": "Money"}]}),
        "references": [{"name": "Money", "subject": "money", "version": 1}],
    }
    register(asked, "money", money)
    assert refused(asked, "POST", "/subjects/:.c:order/versions", order) == 42201
    register(asked, ":.c:money", money)
    register(asked, ":.c:order", order)
    assert asked.ask("GET", "/subjects/:.c:money/versions/1/referencedby") == (200, [2])
    assert asked.ask("GET", "/subjects/money/versions/1/referencedby") == (200, [])
    assert refused(asked, "DELETE", "/subjects/:.c:money") == 42206
    assert asked.ask("DELETE", "/subjects/money") == (200, [1])
    elsewhere = {**order, "references": [{"name": "Money", "subject": ":.c:money", "version": 1}]}
    assert register(asked, "order", elsewhere) == 2


@pytest.mark.parametrize("subject", [":.c:", ":.__GLOBAL:s", "__GLOBAL", ":.c:__EMPTY", "a%0Ab", "a%7f"])
def test_subjects_that_cannot_be(asked: AskedApp, subject: str) -> None:
    assert refused(asked, "POST", f"/subjects/{subject}/versions", STRING) == 42208


@pytest.mark.parametrize("path", ["/subjects/:.c:s", "/subjects/:.c:s/versions/1"])
def test_a_subject_without_versions_forgets_its_level_and_mode(asked: AskedApp, path: str) -> None:
    register(asked, ":.c:s", STRING)
    for setting, body in (("/config/:.c:s", {"compatibility": "NONE"}), ("/mode/:.c:s", {"mode": "IMPORT"})):
        assert asked.ask("PUT", setting + "?force=true", body)[0] == 200
    assert asked.ask("DELETE", path)[0] == 200
    assert refused(asked, "GET", "/config/:.c:s") == 40408
    assert refused(asked, "GET", "/mode/:.c:s") == 40409
    assert asked.ask("DELETE", "/subjects/:.c:s?permanent=true") == (200, [1])
    assert asked.ask("GET", "/contexts") == (200, [".", ".c"])
