"""From a frame to its handler, and from the handler's result to a response or a closed connection.

There are three kinds of error. A `ProtocolError` becomes the error code of the response. A `WireFormatError` is the
peer's fault and closes its connection. Any other exception is a bug here: it is logged with its traceback and answered
with UNKNOWN_SERVER_ERROR. A broken invariant goes to `on_fatal`, which stops the node.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Generator
from functools import partial
from typing import Any, Generic, TypeVar, cast

from ...runtime.incremental_work import Work
from ...runtime.invariants import InvariantViolation
from ...runtime.ports import Buffer
from ...wire.api_keys import ApiKey
from ...wire.codec import Struct, decode_request, encode_response
from ...wire.errors import ErrorCode, ProtocolError, WireFormatError
from ...wire.frames import RequestHeader, parse_request_header
from ..api import Answer, Api, ApiRegistry, Result
from ..quotas.request_quota import RequestQuota
from .decoded_memory import RESERVED_PER_BYTE, DecodedItems
from .incremental_codec import ResponseTooLargeError, decode_request_in_steps, encode_response_in_steps, free_in_steps
from .loop_budget import ITEMS_PER_UNIT, Finished, LoopBudget
from .request import Request, RequestSink

BEFORE_AUTHENTICATION = (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)

C = TypeVar("C")
T = TypeVar("T")
logger = logging.getLogger("raftwerk.broker")

IN_ONE_STEP_BYTES = 4096
"""Larger requests are decoded, handled and answered in steps, since their arrays may have many items."""
DECODED_UNITS = 4
"""Units of the loop's budget (`loop_budget.py`) for a request that is decoded by its schema, such as ApiVersions."""


class Dispatcher(Generic[C]):
    """Runs the requests of one kind of listener. `context` is passed to every handler."""

    def __init__(
        self,
        registry: ApiRegistry[C],
        context: C,
        on_fatal: Callable[[BaseException], None],
        budget: LoopBudget | None = None,
        *,
        after_login: ApiRegistry[C] | None = None,
        request_quota: RequestQuota | None = None,
    ) -> None:
        self.registry = registry
        self._after_login = after_login
        """What else is served on the listener once the peer has logged in; None where it has, or need not."""
        self._apis = {int(api.key): api for api in registry}
        self._context = context
        self._on_fatal = on_fatal
        self.units = {int(api.key): DECODED_UNITS for api in registry if api.raw is None}
        """The units of the loop's budget that a small request of each API takes; 1 for all others."""
        self.overlapping = frozenset(int(api.key) for api in registry if api.overlaps)
        """The APIs of which a request may start while earlier ones of such APIs are unanswered."""
        self.budget = budget or LoopBudget()
        """The budget of all listeners that share this dispatcher."""
        self.request_quota = request_quota
        """Measures the requests of clients; None on listeners that only nodes and administrators use."""
        self._tasks: dict[asyncio.Future[Any], None] = {}

    def before_authentication(self) -> Dispatcher[C]:
        """A dispatcher for connections that have not yet authenticated themselves: it serves what that takes."""
        apis = [self.registry.get(key) for key in BEFORE_AUTHENTICATION]
        served = ApiRegistry(api for api in apis if api is not None)
        return Dispatcher(served, self._context, self._on_fatal, self.budget, after_login=self.registry)

    def start(self, sink: RequestSink, frame: memoryview, begin: Callable[[Request], None]) -> None:
        """Run the request in `frame`. `begin` is called with it before its handler starts.

        An unknown API or version closes the connection, as in Apache Kafka (SocketServer, InvalidRequestException).
        Only ApiVersions of an unknown version is answered, in version 0 (KIP-511).
        """
        try:
            header, body_at = parse_request_header(frame)
        except WireFormatError as error:
            sink.reject(str(error))
            return
        api = self._apis.get(header.api_key)
        if api is None:
            sink.reject(self._not_served(header.api_key))
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
        raw = api.raw
        if raw is None:
            if api.forwarded is not None:
                self._start_forwarded(api, request)
            else:
                self._start_decoded(api, request)
            return
        try:
            work = raw(self._context, request)
        except WireFormatError as error:
            request.reject(_malformed(request, error))
        except Exception as error:
            self._fail(api, request, None, error)
        else:
            if work is not None:
                self._begin_work(api, request, work)

    def _not_served(self, api_key: int) -> str:
        if self._after_login is not None and self._after_login.get(api_key) is not None:
            return f"not logged in: {_name(api_key)} came before a login by SASL, which this listener wants"
        return f"API {_name(api_key)} is not served by this listener"

    def _begin_work(self, api: Api[C], request: Request, work: Work[None]) -> None:
        """Do a share of the work now, and the rest as `run_in_steps` does."""
        try:
            begun = self.budget.begin(self._measured(request, work))
        except WireFormatError as error:
            request.reject(_malformed(request, error))
        except Exception as error:
            self._fail(api, request, None, error)
        else:
            if not isinstance(begun, Finished):
                self._watch(api, request, begun)

    def run_in_steps(self, request: Request, work: Work[None]) -> None:
        """See `WorkRunner`."""
        self._watch(self._apis[request.api_key], request, self.budget.run(self._measured(request, work)))

    def decode_in_steps(
        self, request: Request, work: Callable[[DecodedItems], Work[None]], reserved_per_byte: int
    ) -> None:
        """See `WorkRunner`."""

        def begin(items: DecodedItems) -> None:
            self._begin_work(self._apis[request.api_key], request, work(items))

        self._decode(request, begin, reserved_per_byte)

    def charge(self, items: int) -> None:
        """See `WorkRunner`."""
        self.budget.units_left -= items // ITEMS_PER_UNIT

    def _measured(self, request: Request, work: Work[T]) -> Work[T]:
        quota = self.request_quota
        return work if quota is None or not quota.is_on else quota.measured(request, work)

    def _watch(self, api: Api[C], request: Request, work: asyncio.Future[None]) -> None:
        def done(finished: asyncio.Future[None]) -> None:
            self._tasks.pop(finished, None)
            error = None if finished.cancelled() else finished.exception()
            if isinstance(error, WireFormatError):
                request.reject(_malformed(request, error))
            elif error is not None:
                self._fail(api, request, None, error)

        self._tasks[work] = None
        work.add_done_callback(done)

    def _start_decoded(self, api: Api[C], request: Request) -> None:
        if len(request.body) > IN_ONE_STEP_BYTES:
            self._start_in_steps(api, request)
            return
        try:
            # A copy, since the decoded request may outlive the frame's memory.
            message = decode_request(request.api_key, request.api_version, memoryview(bytes(request.body)))
        except WireFormatError as error:
            request.reject(_malformed(request, error))
            return
        except Exception as error:
            self._fail(api, request, None, error)
            return
        try:
            handle = api.decoded
            result = handle(self._context, request, message) if handle is not None else {}
        except Exception as error:
            self._fail(api, request, message, error)
        else:
            self._finish(request, result, partial(self._fail, api, request, message))

    def _start_in_steps(self, api: Api[C], request: Request) -> None:
        """Decode, handle and answer a large request without holding the loop."""
        decoded: list[Struct] = []

        def answer(items: DecodedItems) -> Work[Result]:
            work = decode_request_in_steps(request.api_key, request.api_version, request.body, items)
            decoded.append((yield from work))
            items.settle()
            handle = api.decoded
            return handle(self._context, request, decoded[0]) if handle is not None else {}

        def fail(error: BaseException) -> None:
            if not decoded and isinstance(error, WireFormatError):
                request.reject(_malformed(request, error))
            else:
                self._fail(api, request, decoded[0] if decoded else None, error)

        self._decode(request, lambda items: self._finish(request, answer(items), fail, decoded=decoded))

    def _decode(
        self, request: Request, begin: Callable[[DecodedItems], None], reserved_per_byte: int = RESERVED_PER_BYTE
    ) -> None:
        """Call `begin` when there is memory for the items of a large request."""
        if request.memory is None:
            # The memory of small frames is used again. Offsets are written into produced batches, in place.
            request.body = memoryview(bytearray(request.body))
        memory = request.sink.memory.decoded
        items = DecodedItems(memory, request.memory, request.frame_bytes, begin, reserved_per_byte)
        request.memory = items
        memory.decode(items)

    def _finish(
        self,
        request: Request,
        result: Result,
        fail: Callable[[BaseException], None],
        *,
        in_steps: bool = False,
        decoded: list[Struct] | None = None,
    ) -> None:
        """Answer with what a handler has returned; what is left of its work, and the encoding, is done in steps.

        `decoded` has the request, if that is large. It is emptied when the response is encoded.
        """
        in_steps = in_steps or isinstance(result, Generator)
        try:
            if in_steps and not isinstance(result, Awaitable):
                begun = self.budget.begin(self._measured(request, _encoded_in_steps(request, result, decoded)))
                result = begun.result if isinstance(begun, Finished) else begun
            if isinstance(result, Awaitable):
                self._answer_later(request, result, fail, in_steps=in_steps, decoded=decoded)
            else:
                encoded = _encoded(request, cast("Answer", result))
                if self.request_quota is not None:
                    self.request_quota.settle(request)
                request.respond(encoded)
        except Exception as error:
            fail(error)

    def _start_forwarded(self, api: Api[C], request: Request) -> None:
        body = bytes(request.body)

        def fail(error: BaseException) -> None:
            if request.sink.is_gone:  # its error answer, which needs the request decoded, would go to nobody
                self._fail(api, request, None, error)
                return

            def on_decoded(decoded: asyncio.Future[Struct]) -> None:
                self._tasks.pop(decoded, None)
                malformed = None if decoded.cancelled() else decoded.exception()
                if isinstance(malformed, WireFormatError):
                    request.reject(_malformed(request, malformed))
                elif malformed is not None or decoded.cancelled():
                    self._fail(api, request, None, malformed or error)
                else:
                    self._fail(api, request, decoded.result(), error)

            def begin(items: DecodedItems) -> None:
                work = decode_request_in_steps(request.api_key, request.api_version, memoryview(body), items)
                decoding = self.budget.run(work)
                self._tasks[decoding] = None
                decoding.add_done_callback(on_decoded)

            self._decode(request, begin)

        try:
            handle = api.forwarded
            if handle is not None:
                self._answer_later(request, handle(self._context, request, body), fail)
        except Exception as error:
            fail(error)

    def _answer_later(
        self,
        request: Request,
        result: Awaitable[Any],
        fail: Callable[[BaseException], None],
        *,
        in_steps: bool = False,
        decoded: list[Struct] | None = None,
    ) -> None:
        """Answer when the result is there. `fail` is called with an exception."""

        def done(finished: asyncio.Future[Any]) -> None:
            self._tasks.pop(finished, None)
            if finished.cancelled():
                request.reject("the node is shutting down")
                return
            error = finished.exception()
            if error is not None:
                fail(error)
                return
            self._finish(request, finished.result(), fail, in_steps=in_steps, decoded=decoded)

        if isinstance(result, asyncio.Future):
            future = result
        else:
            future = asyncio.get_running_loop().create_task(cast("Coroutine[Any, Any, Any]", result))
        self._tasks[future] = None
        future.add_done_callback(done)

    def stop(self) -> None:
        """Cancel all handlers that still run."""
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
        if isinstance(error, ResponseTooLargeError):
            request.reject(f"{_name(request.api_key)}: {error}")
            return
        if isinstance(error, ProtocolError):
            code, text = error.code, error.message
        else:
            logger.error("%s v%d failed", _name(request.api_key), request.api_version, exc_info=error)
            code, text = ErrorCode.UNKNOWN_SERVER_ERROR, ""
        refuse = api.refuse
        if refuse is None or message is None:
            request.reject(f"{_name(request.api_key)} failed with {code.name}")
            return

        def fail(encode_error: BaseException) -> None:
            logger.error("%s: its error answer failed", _name(request.api_key), exc_info=encode_error)
            request.reject("internal error")

        try:
            fields = refuse(message, code, text)
        except Exception as refusal_error:
            fail(refusal_error)
        else:
            self._finish(request, fields, fail, in_steps=True)

    def _answer_old_api_versions(self, request: Request, api: Api[C]) -> None:
        row = {"api_key": int(api.key), "min_version": api.versions[0], "max_version": api.versions[1]}
        fields = {"error_code": int(ErrorCode.UNSUPPORTED_VERSION), "api_keys": [row]}
        request.respond(encode_response(ApiKey.API_VERSIONS, 0, fields), version=0)


def _encoded_in_steps(
    request: Request, result: Result, decoded: list[Struct] | None
) -> Work[Buffer | Awaitable[Result]]:
    """Do the work of a handler and encode the fields that it returns, or return what has to be waited for.

    The fields, and the request in `decoded`, are freed in steps as well.
    """
    while isinstance(result, Generator):
        result = yield from cast("Work[Result]", result)
    if isinstance(result, (bytes, bytearray, memoryview, Awaitable)):
        return result
    encoded = yield from encode_response_in_steps(request.api_key, request.api_version, result)
    freed: list[Any] = [result]
    del result
    yield from free_in_steps(freed)
    if decoded is not None:
        yield from free_in_steps(decoded)
    return encoded


def _encoded(request: Request, answer: Answer) -> Buffer:
    if isinstance(answer, (bytes, bytearray, memoryview)):
        return answer
    return encode_response(request.api_key, request.api_version, answer)


def _malformed(request: Request, error: WireFormatError) -> str:
    return f"malformed {_name(request.api_key)} v{request.api_version}: {error}"


def _name(api_key: int) -> str:
    try:
        return ApiKey(api_key).name
    except ValueError:
        return str(api_key)


def _unsupported(api: Api[C], header: RequestHeader) -> str:
    low, high = api.versions
    return f"{_name(header.api_key)} v{header.api_version} is not supported (v{low} to v{high} are)"
