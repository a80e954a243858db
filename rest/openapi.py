"""The OpenAPI document, which follows from the routes and the schemas."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..cluster.http_logins.credentials import BASIC, BEARER
from .routes import JSON, Route
from .schemas import INT32_MAX, SCHEMAS, ref

_NUMBERS = ("broker_id", "partition_id", "partition")
_V2_TYPE = "application/vnd.kafka.v2+json"
_RECORD_TYPES = tuple(
    f"application/vnd.kafka.{one}.v2+json" for one in ("binary", "json", "avro", "jsonschema", "protobuf")
)


def openapi_document(routes: Iterable[Route], url: str) -> dict[str, Any]:
    """The document of these routes, served under this URL."""
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.0.3",
        "info": {
            "title": "Raftwerk REST proxy",
            "version": "3",
            "description": "The interface of Confluent's REST proxy, versions 3 and 2.",
        },
        "servers": [{"url": url}],
        "paths": paths,
        "components": {
            "schemas": SCHEMAS,
            "securitySchemes": {one: {"type": "http", "scheme": one} for one in (BASIC, BEARER)},
        },
        "security": [{}, {BASIC: []}, {BEARER: []}],  # as the proxy was started
    }


def _operation(route: Route) -> dict[str, Any]:
    is_v3 = route.path.startswith("/v3") or route.path in ("/", "/openapi.json")
    answer_type = JSON if is_v3 else _V2_TYPE
    success: dict[str, Any] = {"description": "Done."}
    if route.answer is not None:
        types = _RECORD_TYPES if route.answer == "ConsumerRecords" else (answer_type,)
        success["content"] = {one: {"schema": ref(route.answer)} for one in types}
    refusal = {"description": "Refused.", "content": {answer_type: {"schema": ref("Error")}}}
    found: dict[str, Any] = {
        "summary": route.summary,
        **({"description": f"It needs the right {route.right}."} if route.right else {}),
        "operationId": f"{route.method.lower()} {route.path}",
        "tags": ["v3" if route.path.startswith("/v3") else "v2"],
        "parameters": [_path_parameter(one) for one in route.parameters]
        + [
            {
                "name": one.name,
                "in": "query",
                "required": one.is_required,
                "description": one.description,
                "schema": one.schema,
            }
            for one in route.query
        ],
        "responses": {str(route.status): success, "4XX": refusal, "5XX": refusal},
    }
    if route.path.endswith("/topics") and route.method == "POST":
        found["responses"]["200"] = {**success, "description": "Nothing was created: validate_only."}
    if route.body is not None:
        types = _RECORD_TYPES if route.body.endswith("ProduceRequest") and not is_v3 else (answer_type,)
        found["requestBody"] = {
            "required": route.needs_body,
            "content": {one: {"schema": ref(route.body)} for one in types},
        }
    return found


def _path_parameter(name: str) -> dict[str, Any]:
    number = {"type": "integer", "format": "int32", "minimum": 0, "maximum": INT32_MAX}
    schema = number if name in _NUMBERS else {"type": "string", "minLength": 1}
    return {"name": name, "in": "path", "required": True, "schema": schema}
