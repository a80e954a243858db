"""Bodies of requests that say more, or less, than they should, at an application on a topic in memory."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.registry.topic_in_memory import AskedApp

STRING, INT = ({"schema": f'"{kind}"'} for kind in ("string", "int"))
VERSIONS = "/subjects/s/versions"


@pytest.fixture
def asked() -> AskedApp:
    return AskedApp()


@pytest.fixture
def importing(asked: AskedApp) -> AskedApp:
    assert asked.ask("PUT", "/mode/s", {"mode": "IMPORT"})[0] == 200
    return asked


@pytest.mark.parametrize("body", [{}, {"compatibility": None}, {"compatibilityLevel": "FULL"}])
def test_a_level_that_is_not_named_switches_nothing_off(asked: AskedApp, body: Any) -> None:
    for path in ("/config", "/config/s"):
        assert asked.ask("PUT", path, {"compatibility": "FULL"})[0] == 200
        status, answer = asked.ask("PUT", path, body)
        assert (status, answer["error_code"]) == (422, 42203)
        assert asked.ask("GET", path) == (200, {"compatibilityLevel": "FULL"})


@pytest.mark.parametrize("version", [None, 0, -1])
def test_an_imported_schema_without_a_version_is_the_next_one(importing: AskedApp, version: int | None) -> None:
    """So Confluent's clients say that they name none."""
    assert importing.ask("POST", VERSIONS, {**STRING, "id": 7, "version": version})[0] == 200
    assert importing.ask("GET", VERSIONS) == (200, [1])


@pytest.mark.parametrize(
    "numbers", [{"id": 1 << 31}, {"id": 1 << 40}, {"id": 0}, {"id": -7}, {"id": 7, "version": 1 << 31}], ids=str
)
def test_numbers_that_no_record_can_have_are_refused(importing: AskedApp, numbers: dict[str, int]) -> None:
    """They were acknowledged, and passed over when the record was read."""
    before = len(importing.topic.log)
    assert importing.ask("POST", VERSIONS, {**STRING, **numbers})[0] == 422
    assert len(importing.topic.log) == before


def test_there_is_nothing_behind_the_last_number(importing: AskedApp) -> None:
    last = (1 << 31) - 1
    assert importing.ask("POST", VERSIONS, {**STRING, "id": last, "version": last})[0] == 200
    assert importing.ask("POST", VERSIONS, {**INT, "id": 8})[0] == 422, "the next version"
    assert importing.ask("POST", "/subjects/t/versions", INT)[0] == 422, "the next id"
    assert importing.ask("GET", "/subjects") == (200, ["s"])


@pytest.mark.parametrize("name", ["id", "version"])
def test_numbers_without_an_end_are_refused(asked: AskedApp, name: str) -> None:
    status, answer = asked.ask("POST", VERSIONS, {**STRING, name: float("inf")})
    assert (status, answer["error_code"]) == (422, 422)


def test_a_reference_whose_name_no_record_can_hold_is_refused(asked: AskedApp) -> None:
    money = {"type": "record", "name": "Money", "fields": []}
    assert asked.ask("POST", "/subjects/money/versions", {"schema": json.dumps(money)})[0] == 200
    half_a_pair = {"name": "\ud800", "subject": "money", "version": 1}
    status, answer = asked.ask("POST", VERSIONS, {**INT, "references": [half_a_pair]})
    assert (status, answer["error_code"]) == (422, 422)
