"""From a frame to its handler, and from whatever the handler does to a response or a closed connection.

Three kinds of error are told apart: a `ProtocolError` becomes the response's error code; a `WireFormatError` is the
peer's fault and closes its connection; anything else is ours: it is logged with its traceback and answered with
UNKNOWN_SERVER_ERROR. A broken invariant goes to `on_fatal`, which stops the node.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Generic, TypeVar, cast

from ...runtime.invariants import InvariantViolation
from ...wire.api_keys import ApiKey
from ...wire.codec import Struct, decode_request, encode_response
from ...wire.errors import ErrorCode, ProtocolError, WireFormatError
from ...wire.frames import RequestHeader, parse_request_header
from ..api import Api, ApiRegistry, Fields
from .request import Request, RequestSink

C = TypeVar("C")
logger = logging.getLogger("raftwerk.broker")


class Dispatcher(Generic[C]):
    """Starts requests. `context` is handed to every handler."""

    def __init__(self, registry: ApiRegistry[C], context: C, on_fatal: Callable[[BaseException], None]) -> None:
        self.registry = registry
        self._get = registry.get
        self._context = context
        self._on_fatal = on_fatal
        self._tasks: dict[asyncio.Future[Fields], None] = {}

    def overlaps(self, api_key: int) -> bool:
        """Requests of this API need not wait for earlier ones of such APIs on their connection."""
        api = self._get(api_key)
        return api is not None and api.overlaps

    def start(self, sink: RequestSink, frame: memoryview, begin: Callable[[Request], None]) -> None:
        """Run the request in `frame`; `begin` is told of it before its handler starts.

        Apache Kafka closes the connection on an unknown API or version (SocketServer, InvalidRequestException), and
        answers only ApiVersions of an unknown version, in version 0 (KIP-511); so do we.
        """
        try:
            header, body_at = parse_request_header(frame)
        except WireFormatError as error:
            sink.reject(str(error))
            return
        api = self._get(header.api_key)
        if api is None:
            sink.reject(f"API {_name(header.api_key)} is not served by this listener")
            return
        request = Request(sink, header, frame, body_at)
        if not api.serves(header.api_version):
            if header.api_key != ApiKey.API_VERSIONS:
                sink.reject(_unsupported(api, header))
                return
            begin(request)
            self._answer_old_api_versions(request, api)
            return
        begin(request)
        if api.handle_raw is None:
            self._start_decoded(api, request)
            return
        try:
            api.handle_raw(self._context, request)
        except WireFormatError as error:
            request.reject(f"malformed {_name(header.api_key)} v{header.api_version}: {error}")
        except Exception as error:
            self._fail(api, request, None, error)

    def _start_decoded(self, api: Api[C], request: Request) -> None:
        message = None
        try:
            # A copy: what is decoded may outlive the frame's memory.
            message = decode_request(request.api_key, request.api_version, memoryview(bytes(request.body)))
            handle = api.handle
            result = handle(self._context, request, message) if handle is not None else {}
            if isinstance(result, Awaitable):
                self._answer_later(api, request, message, result)
            else:
                request.respond(encode_response(request.api_key, request.api_version, result))
        except WireFormatError as error:
            if message is None:
                request.reject(f"malformed {_name(request.api_key)} v{request.api_version}: {error}")
            else:  # our own response, or a message that the controller sent us
                self._fail(api, request, message, error)
        except Exception as error:
            self._fail(api, request, message, error)

    def _answer_later(self, api: Api[C], request: Request, message: Struct, result: Awaitable[Fields]) -> None:
        def done(finished: asyncio.Future[Fields]) -> None:
            self._tasks.pop(finished, None)
            if finished.cancelled():
                request.reject("the node is shutting down")
                return
            error = finished.exception()
            if error is not None:
                self._fail(api, request, message, error)
                return
            try:
                request.respond(encode_response(request.api_key, request.api_version, finished.result()))
            except Exception as encode_error:
                self._fail(api, request, message, encode_error)

        if isinstance(result, asyncio.Future):
            future = cast("asyncio.Future[Fields]", result)
        else:
            future = asyncio.get_running_loop().create_task(cast("Coroutine[Any, Any, Fields]", result))
        self._tasks[future] = None
        future.add_done_callback(done)

    def stop(self) -> None:
        """Cancel what still runs."""
        for future in list(self._tasks):
            future.cancel()

    def _fail(self, api: Api[C], request: Request, message: Struct | None, error: BaseException) -> None:
        if isinstance(error, InvariantViolation):
            logger.critical("broken invariant in %s: %s", _name(request.api_key), error, exc_info=error)
            request.reject("broken invariant")
            self._on_fatal(error)
            return
        if request.response is not None:
            logger.error("%s failed after its answer", _name(request.api_key), exc_info=error)
            return
        if isinstance(error, ProtocolError):
            code, text = error.code, error.message
        else:
            logger.error("%s v%d failed", _name(request.api_key), request.api_version, exc_info=error)
            code, text = ErrorCode.UNKNOWN_SERVER_ERROR, ""
        if api.error is None or message is None:
            request.reject(f"{_name(request.api_key)} failed with {code.name}")
            return
        try:
            fields = api.error(message, int(code), text)
            request.respond(encode_response(request.api_key, request.api_version, fields))
        except Exception as encode_error:
            logger.error("%s: its error answer failed", _name(request.api_key), exc_info=encode_error)
            request.reject("internal error")

    def _answer_old_api_versions(self, request: Request, api: Api[C]) -> None:
        row = {"api_key": int(api.key), "min_version": api.versions[0], "max_version": api.versions[1]}
        fields = {"error_code": int(ErrorCode.UNSUPPORTED_VERSION), "api_keys": [row]}
        request.respond(encode_response(ApiKey.API_VERSIONS, 0, fields), version=0)


def _name(api_key: int) -> str:
    try:
        return ApiKey(api_key).name
    except ValueError:
        return str(api_key)


def _unsupported(api: Api[C], header: RequestHeader) -> str:
    low, high = api.versions
    return f"{_name(header.api_key)} v{header.api_version} is not supported (v{low} to v{high} are)"
