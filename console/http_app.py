"""The console's HTTP interface, as an ASGI application: a page, a stream of events, and JSON for everything else.

Other pages of the same browser must not be able to change the cluster. A change needs a header that a page of another
origin cannot send without being allowed to by a preflight request (CORS), which is never answered. And the `Host` must
be the console's own, so that no name of an attacker can be pointed here (DNS rebinding).

Where users log in, everything but the page itself needs the session of a user, and is asked of the cluster as that
user. `/api/login` and `/api/logout` begin and end sessions.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from importlib.resources import files
from typing import Any
from urllib.parse import unquote

from ..cluster.client.client_errors import ClientError, RefusedError
from ..runtime.http.request_body import BodyTooLongError, ClientGoneError, read_body
from ..wire.errors import error_name
from .errors import RequestRefusedError
from .events_stream import EventsStream
from .logins.access import OpenAccess, UserAccess
from .logins.rights import needs_right
from .routes import Query, answer, change
from .service import ConsoleService

_logger = logging.getLogger(__name__)
CHANGE_HEADER = b"x-raftwerk-console"
_BODY_MAX = 2 << 20
_LOGIN_PATHS = ("/api/login", "/api/logout")
_KINDS = {"html": "text/html", "css": "text/css", "js": "text/javascript"}
_SECURITY_HEADERS = [
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
]

_REPORT_HEADERS = [
    (
        b"content-security-policy",
        b"sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
        b"img-src data:",
    ),
    *_SECURITY_HEADERS[1:],
]
"""For the report of a chaos run, which is a page of its own that may ask nobody anything, not even the console."""

Scope = Mapping[str, Any]
Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[Mapping[str, Any]], Awaitable[None]]


class ConsoleApp:
    """The application. `hosts` are the names that a request may address it by; None allows all."""

    def __init__(self, access: OpenAccess | UserAccess, hosts: frozenset[str] | None, is_read_only: bool) -> None:
        self._access = access
        self._is_read_only = is_read_only
        self._hosts = hosts
        found = {one.name: one.read_bytes() for one in (files(__package__) / "page").iterdir()}
        self._page = {name: (data, f"{_KINDS[name.rpartition('.')[2]]}; charset=utf-8") for name, data in found.items()}
        self._page[""] = self._page["index.html"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        if scope["type"] != "http":
            return
        try:
            self._check_origin(scope)
            path = [unquote(part) for part in _raw_path(scope).strip("/").split("/")]
            page = self._page.get("/".join(path))
            if page is not None and scope["method"] in ("GET", "HEAD"):
                await _send(send, 200, page[0], page[1], _SECURITY_HEADERS)
                return
            await self._serve(scope, path, receive, send)
            return
        except ClientGoneError:
            return
        except BodyTooLongError:
            status, told = 413, f"a request has at most {_BODY_MAX >> 20} MiB"
        except RequestRefusedError as error:
            status, told = error.status, str(error)
        except ClientError as error:
            status, told = _refusal(error)
        except (OSError, TimeoutError) as error:
            status, told = 503, str(error) or "the cluster does not answer in time"
        except Exception:
            _logger.exception("a request failed: %s %s", scope.get("method"), scope.get("path"))
            status, told = 500, "the request failed; the console's log says why"
        await _send_json(send, status, {"error": told})

    async def _serve(self, scope: Scope, path: list[str], receive: Receive, send: Send) -> None:
        """Answer what is no file of the page."""
        if scope["method"] == "POST" and path == ["api", "login"]:
            cookie = await self._access.log_in(scope, _fields(await read_body(receive, _BODY_MAX)))
            await _send_json(send, 200, {"done": "logged in"}, cookie)
            return
        if scope["method"] == "POST" and path == ["api", "logout"]:
            await _send_json(send, 200, {"done": "logged out"}, await self._access.log_out(scope))
            return
        service = await self._access.service_for(scope)
        if scope["method"] == "GET" and path == ["events"]:
            await EventsStream(service).run(receive, send, _SECURITY_HEADERS)
        elif scope["method"] == "GET" and path == ["chaos-report"]:
            report = await asyncio.to_thread(_report_of, service)
            await _send(send, 200, report, "text/html; charset=utf-8", _REPORT_HEADERS)
        else:
            await _send_json(send, 200, await self._answer(service, scope, path, receive))

    def _check_origin(self, scope: Scope) -> None:
        headers = dict(scope["headers"])
        host = headers.get(b"host", b"").decode("latin-1").lower()
        name = host if host.endswith("]") else host.rpartition(":")[0] or host
        if self._hosts is not None and name not in self._hosts:
            raise RequestRefusedError(421, f"this console is not {name or 'nameless'}: use its own address")
        if scope["method"] in ("GET", "HEAD"):
            return
        if CHANGE_HEADER not in headers:
            raise RequestRefusedError(403, f"a change needs the header {CHANGE_HEADER.decode()}: 1")
        origin = headers.get(b"origin", b"").decode("latin-1").lower()
        if origin and origin.partition("://")[2] != host:
            raise RequestRefusedError(403, "changes are taken from the console's own page only")
        if self._is_read_only and _raw_path(scope) not in _LOGIN_PATHS:
            raise RequestRefusedError(403, "this console shows, and changes nothing (--read-only)")

    async def _answer(self, service: ConsoleService, scope: Scope, path: list[str], receive: Receive) -> Any:
        if scope["method"] in ("GET", "HEAD"):
            return await answer(service, path, Query(bytes(scope.get("query_string") or b"")))
        if scope["method"] != "POST":
            raise RequestRefusedError(405, "only GET and POST are served")
        return await change(service, path, _fields(await read_body(receive, _BODY_MAX)))


def _refusal(error: ClientError) -> tuple[int, str]:
    """The status and the sentence; where a right is missing, its name is told."""
    if not isinstance(error, RefusedError):
        return 503, str(error)
    right = error.missing_right
    status = 403 if error.is_of_rights else 400
    return status, str(error) if right is None else f"{needs_right(right)} ({error_name(error.code)})"


def _report_of(service: ConsoleService) -> bytes:
    path = service.chaos_report()
    if path is None:
        raise RequestRefusedError(404, "no chaos run of this console has a report")
    with open(path, "rb") as file:
        return file.read()


def _raw_path(scope: Scope) -> str:
    raw: bytes = scope.get("raw_path") or str(scope["path"]).encode()
    return raw.decode("ascii", "replace").partition("?")[0]


def _fields(body: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(body or b"{}")
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise RequestRefusedError(400, "the body is no JSON object")
    return found


async def _send_json(send: Send, status: int, answer: Any, *more: tuple[bytes, bytes]) -> None:
    body = json.dumps(answer, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "replace")
    await _send(send, status, body, "application/json", [*_SECURITY_HEADERS, *more])


async def _send(send: Send, status: int, body: bytes, kind: str, more: list[tuple[bytes, bytes]]) -> None:
    headers = [(b"content-type", kind.encode()), (b"content-length", str(len(body)).encode()), *more]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
