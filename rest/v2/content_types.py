"""The content types of version 2, which name the format of keys and values: `application/vnd.kafka.json.v2+json`."""

from __future__ import annotations

from functools import wraps

from ..errors import RestError
from ..request import Request
from ..routes import JSON, Answer, Handler
from ..serialization.schema_types import NO_REGISTRY, SCHEMA_TYPES
from ..services import Services

V2 = "application/vnd.kafka.v2+json"
BINARY, JSON_FORMAT = "binary", "json"
FORMATS = (BINARY, JSON_FORMAT)
"""The formats without schemas."""
_OF_FORMATS = {f"application/vnd.kafka.{one}.v2+json": one for one in (*FORMATS, *SCHEMA_TYPES)}
_OLD = ("application/vnd.kafka+json", "application/vnd.kafka.v1+json")
_ANYTHING = ("*/*", "application/*")


def _accepted(request: Request) -> list[str]:
    """What the client accepts, what it likes most first."""
    found = []
    for entry in (request.headers.get("accept") or _ANYTHING[0]).split(","):
        name, *parameters = (part.strip().lower() for part in entry.split(";"))
        quality = 1.0
        for one in parameters:
            if one.startswith("q="):
                try:
                    quality = float(one[2:])
                except ValueError:
                    quality = 0.0
        if name and quality > 0:
            found.append((-quality, name))
    return [name for _, name in sorted(found, key=lambda one: one[0])]


def _type_for(request: Request, own: str) -> str | None:
    for name in _accepted(request):
        if name in _ANYTHING:
            return own
        if name in (own, V2, JSON, *_OLD):
            return name
    return None


def refusal_type(request: Request) -> str:
    """The type of an answer that refuses a request of version 2."""
    return _type_for(request, V2) or V2


def negotiated(handler: Handler) -> Handler:
    """The handler, whose answers have the type that the client accepts; without one it is not called (406)."""

    @wraps(handler)
    async def with_type(services: Services, request: Request) -> Answer:
        accepted = _type_for(request, V2)
        if accepted is None:
            raise RestError(406, f"HTTP 406 Not Acceptable: answers are {V2} or {JSON}")
        answer = await handler(services, request)
        return Answer(answer.body, answer.status, accepted, answer.headers, answer.stream)

    return with_type


def sent_format(services: Services, request: Request) -> str:
    """The format of the records in the body. Raises `RestError` (415) for a type that is not served."""
    given = request.headers.get("content-type", V2).partition(";")[0].strip().lower()
    found = _OF_FORMATS.get(given)
    if found in SCHEMA_TYPES and services.schemas is None:
        raise RestError(415, f"HTTP 415 Unsupported Media Type: {found} needs schemas, and {NO_REGISTRY}")
    if found is None and given not in (V2, JSON, *_OLD, "application/octet-stream"):
        types = ", ".join(_OF_FORMATS)
        raise RestError(415, f"HTTP 415 Unsupported Media Type: records are {types}")
    return found or BINARY


def wanted_type(request: Request, own: str) -> str:
    """The type of an answer with records of a consumer instance with this format.

    Raises `RestError`: 40601 for another format, 406 for a type that is not served.
    """
    records_type = f"application/vnd.kafka.{own}.v2+json"
    found = _type_for(request, records_type)
    if found is not None:
        return found
    if any(name in _OF_FORMATS for name in _accepted(request)):
        text = f"The requested embedded data format does not match that of this consumer instance, which is {own}"
        raise RestError(40601, text)
    raise RestError(406, f"HTTP 406 Not Acceptable: answers are {records_type} or {JSON}")
