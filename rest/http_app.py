"""The proxy as an ASGI application. Whatever a request holds, it is answered, and the proxy goes on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass

from ..cluster.client.client_errors import ClientError
from ..cluster.client.cluster_client import NO_ANSWER
from ..cluster.client.peer_protocol import no_answer_reason
from ..runtime.http.request_body import ClientGoneError
from ..wire.errors import UnencodableError
from .errors import BAD_REQUEST, KAFKA_RETRIABLE_ERROR, RestError, error_of, naming_right
from .json_text import json_bytes
from .request import Receive, Request, Scope, Send
from .routes import JSON, Answer, Route, Router
from .services import Services
from .v2.content_types import refusal_type

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Limits:
    """What one proxy takes: bytes of a body or of one record of a stream, and requests at the same time."""

    body_bytes: int = 4 << 20
    concurrent_requests: int = 1000


ServicesFor = Callable[[Request], AbstractAsyncContextManager[Services]]
"""The services that serve a request, as its principal. Raises `RestError` (401) for one who has none."""


class RestApp:
    """The application. `stopping` is set when the proxy is to stop: streams end then, and reads return.

    `challenge` is how clients are asked to log in (WWW-Authenticate), if they are.
    """

    def __init__(
        self, services_for: ServicesFor, routes: Sequence[Route], limits: Limits, challenge: str | None = None
    ) -> None:
        self.stopping = asyncio.Event()
        self._services_for = services_for
        self._router = Router(routes)
        self._limits = limits
        self._challenge = challenge
        self._running = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        if scope["type"] != "http":
            return
        self._running += 1
        try:
            request = Request(scope, receive, self._limits.body_bytes, self.stopping)
            async with AsyncExitStack() as stack:  # a stream uses the services, too
                await self._send(request, await self._answer(request, stack), send)
        except ClientGoneError:
            return
        finally:
            self._running -= 1

    async def _answer(self, request: Request, stack: AsyncExitStack) -> Answer:
        try:
            if self._running > self._limits.concurrent_requests:
                text = f"{self._limits.concurrent_requests} requests are being served: try again in a moment"
                raise RestError(429, text)
            if request.method == "OPTIONS" and self._router.allowed(request):
                return Answer(status=204, headers={"allow": ", ".join(self._router.allowed(request))})
            services = await stack.enter_async_context(self._services_for(request))
            route = self._router.find(request)
            return await _handled(route, services, request)
        except RestError as error:
            return self._refusal(request, error)
        except ClientError as error:
            return self._refusal(request, error_of(error))
        except (UnencodableError, UnicodeEncodeError):
            text = "A text or a number of the request does not fit into Kafka's protocol"
            return self._refusal(request, RestError(BAD_REQUEST, text))
        except NO_ANSWER as error:
            text = f"Retriable Kafka error: a broker {no_answer_reason(error)}"
            return self._refusal(request, RestError(KAFKA_RETRIABLE_ERROR, text))
        except ClientGoneError:
            raise
        except Exception:
            _logger.exception("a request failed: %s %s", request.method, "/".join(request.segments))
            return self._refusal(request, RestError(500, "Internal Server Error"))

    def _refusal(self, request: Request, error: RestError) -> Answer:
        headers = {"allow": ", ".join(self._router.allowed(request))} if error.status == 405 else {}
        if error.status == 401 and self._challenge is not None:
            headers["www-authenticate"] = self._challenge
        return Answer(error.as_json(), error.status, JSON if request.is_v3 else refusal_type(request), headers)

    async def _send(self, request: Request, answer: Answer, send: Send) -> None:
        names = {"content-type": answer.content_type, **answer.headers}
        if answer.stream is not None:
            await _send_stream(answer, names, send)
            return
        body = b"" if answer.body is None else json_bytes(answer.body) + b"\n"
        if answer.status == 204 or answer.body is None:
            names.pop("content-type")
        if answer.status != 204:
            names["content-length"] = str(len(body))
        await send({"type": "http.response.start", "status": answer.status, "headers": _encoded(names)})
        await send({"type": "http.response.body", "body": b"" if request.method == "HEAD" else body})


async def _handled(route: Route, services: Services, request: Request) -> Answer:
    """The answer of the route's handler. A refusal for want of a right names the right that the request needs."""
    try:
        return await route.handler(services, request)
    except (RestError, ClientError) as raised:
        error = raised if isinstance(raised, RestError) else error_of(raised)
        raise naming_right(error, f"{request.method} of this path", route.right) from None


async def _send_stream(answer: Answer, names: dict[str, str], send: Send) -> None:
    """Send the parts. A stream that fails ends the connection, so that its end cannot be mistaken for a whole one."""
    stream = answer.stream
    if stream is None:
        return
    await send({"type": "http.response.start", "status": answer.status, "headers": _encoded(names)})
    async for part in stream:
        await send({"type": "http.response.body", "body": part, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


def _encoded(names: dict[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.encode("latin-1", "replace"), value.encode("latin-1", "replace")) for name, value in names.items()]
