"""The OpenAPI document has every route, refers to nothing that is missing, and every path in it is served."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from support.rest.proxy import Proxy

from raftwerk.rest.openapi import openapi_document
from raftwerk.rest.routing_table import ROUTES
from raftwerk.rest.schemas import SCHEMAS


def references(value: Any) -> set[str]:
    """The names of all schemas that something refers to."""
    return set(re.findall(r'"#/components/schemas/(\w+)"', json.dumps(value)))


def test_every_route_is_in_the_document() -> None:
    document = openapi_document(ROUTES, "http://localhost")
    described = {(method.upper(), path) for path, item in document["paths"].items() for method in item}
    assert described == {(route.method, route.path) for route in ROUTES}
    assert len(described) == len(ROUTES)


def test_no_schema_is_missing_or_without_use() -> None:
    document = openapi_document(ROUTES, "http://localhost")
    used = references(document)
    assert used - set(SCHEMAS) == set()
    assert set(SCHEMAS) - used == set()


def test_parameters_are_those_of_the_paths() -> None:
    for path, item in openapi_document(ROUTES, "http://localhost")["paths"].items():
        for operation in item.values():
            named = [one["name"] for one in operation["parameters"] if one["in"] == "path"]
            assert named == re.findall(r"{(\w+)}", path)


@pytest.mark.process
def test_every_documented_path_is_served(proxy: Proxy) -> None:
    status, document = proxy.ask("GET", "/openapi.json")
    assert (status, document["openapi"], document["servers"]) == (200, "3.0.3", [{"url": proxy.url}])
    proxy.v3("GET", "")
    for path, item in document["paths"].items():
        where = path.replace("{cluster_id}", proxy.cluster_id)
        where = re.sub(r"{(broker_id|partition_id|partition)}", "999", where)
        where = re.sub(r"{\w+}", "nothing-of-this-name", where)
        for method in item:
            status, answer = proxy.ask(method.upper(), where, None if method in ("get", "delete") else b"")
            assert status != 405 and (status, answer) != (404, {"error_code": 404, "message": "HTTP 404 Not Found"})
            assert status < 500, (method, where, answer)
        status, answer = proxy.ask("TRACE", where)
        assert (status, answer["error_code"]) == (405, 405)
