"""The HTTP interface of Confluent's registry, as an ASGI application.

Paths are split before they are decoded, since the name of a subject may hold a slash or a colon.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar
from urllib.parse import parse_qs, unquote

from ..runtime.http.request_body import BodyTooLongError, ClientGoneError, read_body
from ..security.authorizer.acl_binding import AclOperation
from . import decisions, formats
from .access import Access
from .contexts import ALL, begins, context_of, normalized, routed, setting_of
from .decisions import Decide, NewSchema
from .errors import RegistryError, forwarding_failed, invalid_schema, subject_not_found, unknown_writer
from .forwarding import ForwardedAnswer, Forwarding, Incoming
from .records import AVRO, Reference, SchemaVersion
from .schemas_topic import FencedError, SchemasTopic
from .writer_election import Writer

_logger = logging.getLogger(__name__)
CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"
_BODY_MAX = 4 << 20
T = TypeVar("T")
Scope = Mapping[str, Any]
Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[Mapping[str, Any]], Awaitable[None]]


class Request:
    """The parts of a request: its method, the parts of its path, its query and its body."""

    def __init__(self, scope: Scope, body: bytes) -> None:
        raw = scope.get("raw_path") or str(scope["path"]).encode()
        text = raw.decode("ascii", "replace").partition("?")[0]
        self.method = str(scope["method"])
        asked = bytes(scope.get("query_string") or b"").decode("ascii", "replace")
        self.path, query = routed([unquote(part) for part in text.strip("/").split("/") if part], asked)
        self._query = parse_qs(query, keep_blank_values=True)
        self._body = body
        headers = {bytes(name).decode("latin-1"): bytes(value).decode("latin-1") for name, value in scope["headers"]}
        self.incoming = Incoming(self.method, f"{text}?{asked}" if asked else text, headers, body)

    def flag(self, name: str) -> bool:
        """Whether the query says `name=true`."""
        return self.word(name).lower() == "true"

    def word(self, name: str, default: str = "") -> str:
        """The value of a name in the query, or the default."""
        return self._query.get(name, [default])[-1]

    def page(self, rows: Sequence[T]) -> list[T]:
        """The rows from `offset` on, and at most `limit`; a negative number is none."""
        numbers = [self.word(name) or "-1" for name in ("offset", "limit")]
        if not all(one.removeprefix("-").isdecimal() and len(one) <= 10 for one in numbers):
            raise RegistryError(422, "offset and limit are whole numbers")
        offset, limit = (int(one) for one in numbers)
        return list(rows[max(offset, 0) :][: limit if limit >= 0 else None])

    def fields(self) -> Mapping[str, Any]:
        """The body, which must be a JSON object."""
        try:
            found = json.loads(self._body)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise RegistryError(400, "The body is no JSON object")
        return found

    def schema(self) -> NewSchema:
        """The schema in the body."""
        found = self.fields()
        text, references = found.get("schema"), found.get("references") or []
        if not isinstance(text, str):
            raise invalid_schema("the body has no schema, which is a text")
        try:
            used = tuple(
                Reference(_name(one["name"]), _name(one["subject"]), int(one["version"])) for one in references
            )
            number, version = (None if found.get(k) in (None, -1) else int(found[k]) for k in ("id", "version"))
        except (KeyError, TypeError, ValueError, OverflowError):
            raise RegistryError(
                422, "References have a name, a subject and a version; ids and versions are numbers"
            ) from None
        kind = str(found.get("schemaType") or AVRO).upper()
        if version is not None and version <= 0:  # how Confluent's clients say that they name none
            version = None
        return NewSchema(text, kind, used, number, version, self.flag("normalize"))


class SchemaText(str):
    """An answer that is a schema's text as it is."""


class Writers(Protocol):
    """Who writes: an election among several registries, or in tests always this one."""

    async def writer(self) -> Writer:
        """The writer. Raises `RegistryError` 50004."""

    async def is_replaced(self, writer: Writer) -> None:
        """Return when this is not the writer any more."""

    async def lose(self) -> None:
        """Forget the writer, which has changed."""


class RegistryApp:
    """The application. Whatever a request holds, it is answered, and the registry goes on.

    With `access` clients have to log in, and do what their users may do.
    """

    def __init__(
        self, topic: SchemasTopic, writers: Writers, forwarding: Forwarding, access: Access | None = None
    ) -> None:
        self._topic = topic
        self._writers = writers
        self._forwarding = forwarding
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        if scope["type"] != "http":
            return
        try:
            status, answer = 200, await self._answered(scope, receive)
        except ClientGoneError:
            return
        except BodyTooLongError:
            status, answer = 413, {"error_code": 413, "message": f"The body has more than {_BODY_MAX:,} bytes"}
        except RegistryError as error:
            status, answer = error.status, {"error_code": error.code, "message": str(error)}
        except Exception:
            _logger.exception("a request failed: %s %s", scope.get("method"), scope.get("path"))
            status, answer = 500, {"error_code": 500, "message": "Internal Server Error"}
        if isinstance(answer, ForwardedAnswer):
            status, body = answer.status, answer.body
        else:
            body = _body_of(answer)
        headers = [(b"content-type", CONTENT_TYPE.encode()), (b"content-length", str(len(body)).encode())]
        if status == 401 and self._access is not None:
            headers.append((b"www-authenticate", self._access.challenge.encode()))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})

    async def _answered(self, scope: Scope, receive: Receive) -> Any:
        request = Request(scope, await read_body(receive, _BODY_MAX))
        await self._check_may(request, AclOperation.READ)
        return await self._answer(request)

    async def _check_may(self, request: Request, operation: AclOperation) -> None:
        if self._access is not None:
            await self._access.check(request.incoming.headers.get("authorization"), operation)

    async def _change(self, request: Request, decide: Decide) -> Any:
        """The answer of a decision, here or at the registry that writes. What that has written is read here then."""
        await self._check_may(request, AclOperation.WRITE)
        writer = await self._writers.writer()
        if writer.is_here:
            try:
                return await self._topic.change(decide)
            except FencedError:
                await self._writers.lose()
                raise unknown_writer("another one has taken over the writing: send the request again") from None
        if request.incoming.was_forwarded:
            raise unknown_writer("the request was forwarded to this one, which does not write: try again in a moment")
        return await self._forwarded(request, writer)

    async def _forwarded(self, request: Request, writer: Writer) -> ForwardedAnswer:
        """The answer of the writer; a refusal when another one is elected meanwhile, since this one may hang."""
        forwarding = asyncio.ensure_future(self._forwarding.forward(writer.url, request.incoming))
        replaced = asyncio.ensure_future(self._writers.is_replaced(writer))
        try:
            await asyncio.wait((forwarding, replaced), return_when=asyncio.FIRST_COMPLETED)
            if not forwarding.done():
                raise forwarding_failed(f"{writer.url} does not answer, and another one was elected")
            answer = await forwarding
        finally:
            forwarding.cancel()
            replaced.cancel()
        await self._topic.catch_up()
        return answer

    async def _answer(self, request: Request) -> Any:
        match request.path:
            case []:
                return {}
            case ["subjects", *rest]:
                return await self._subjects(request, rest)
            case ["schemas", *rest]:
                return await self._schemas(request, rest)
            case ["contexts"] if request.method == "GET":
                return request.page([".", *sorted(self._topic.image.contexts)])
            case ["config" | "mode" as what, *rest] if len(rest) <= 1:
                return await self._setting(request, what, setting_of(rest[0] if rest else None))
            case ["compatibility", "subjects", subject, "versions"] if request.method == "POST":
                return await self._compatibility(request, subject, None)
            case ["compatibility", "subjects", subject, "versions", number] if request.method == "POST":
                return await self._compatibility(request, subject, number)
        raise RegistryError(404, "HTTP 404 Not Found")

    async def _subjects(self, request: Request, rest: list[str]) -> Any:
        image, topic, with_deleted = self._topic.image, self._topic, request.flag("deleted")
        permanent = request.flag("permanent")
        match request.method, rest:
            case "GET", []:
                return self._names(request)
            case "POST", [subject]:
                new, form = request.schema(), request.word("format")
                return await topic.ask(
                    lambda now: decisions.look_up(now, subject, new, with_deleted=with_deleted, form=form).answer
                )
            case "DELETE", [subject]:
                return await self._change(
                    request, lambda now: decisions.delete_subject(now, subject, permanent=permanent)
                )
            case "GET", [subject, "versions"]:
                return decisions.versions_of(image, subject, with_deleted=with_deleted).answer
            case "POST", [subject, "versions"]:
                return await self._register(request, subject)
            case "GET", [subject, "versions", number]:
                one = decisions.version_in_contexts(image, subject, number, with_deleted=with_deleted)
                return await self._shown(request, one)
            case "DELETE", [subject, "versions", number]:
                return await self._change(
                    request, lambda now: decisions.delete_version(now, subject, number, permanent=permanent)
                )
            case "GET", [subject, "versions", number, "schema"]:
                one = decisions.version_in_contexts(image, subject, number, with_deleted=with_deleted)
                return SchemaText((await self._shown(request, one))["schema"])
            case "GET", [subject, "versions", number, "referencedby"]:
                found = decisions.version(image, subject, number, with_deleted=True)
                return sorted({one.schema_id for one in image.users_of(subject, found.version)})
        raise _not_here(request, len(rest) <= 2)

    async def _register(self, request: Request, subject: str) -> Any:
        """The version of a schema. Producers register at each start what is there already, which writes nothing."""
        new = request.schema()
        await self._check_may(request, AclOperation.WRITE)
        there = await self._topic.ask(lambda now: decisions.already_registered(now, subject, new))
        if there is not None:
            return there
        return await self._change(request, lambda now: decisions.register(now, subject, new))

    async def _shown(self, request: Request, one: SchemaVersion) -> dict[str, Any]:
        """A version in the format that was asked for."""
        form = request.word("format")
        return await self._topic.ask(lambda now: decisions.shown(now, one, form)) if form else one.as_json()

    def _names(self, request: Request) -> list[str]:
        prefix, image = request.word("subjectPrefix", ALL), self._topic.image
        with_deleted = request.flag("deleted") or request.flag("deletedOnly")
        names = [name for name in sorted(image.subjects) if begins(name, prefix)]
        if request.flag("deletedOnly"):
            return request.page([name for name in names if not image.versions(name)])
        return request.page([name for name in names if image.versions(name, with_deleted=with_deleted)])

    async def _schemas(self, request: Request, rest: list[str]) -> Any:
        image = self._topic.image
        match request.method, rest:
            case "GET", []:
                found = image.all_versions(with_deleted=request.flag("deleted"))
                prefix = request.word("subjectPrefix", ALL)
                rows = [one for one in found if begins(one.subject, prefix)]
                if request.flag("latestOnly"):
                    rows = list({one.subject: one for one in rows}.values())
                return [one.as_json() for one in request.page(rows)]
            case "GET", ["types"]:
                return list(formats.TYPES)
            case "GET", ["ids", number]:
                found_one = await self._shown(request, self._by_id(request, number))
                return {k: v for k, v in found_one.items() if k in ("schemaType", "references", "schema")}
            case "GET", ["ids", number, "schema"]:
                return SchemaText((await self._shown(request, self._by_id(request, number)))["schema"])
            case "GET", ["ids", number, "subjects"]:
                return sorted({one.subject for one in self._users(request, number)})
            case "GET", ["ids", number, "versions"]:
                return [{"subject": one.subject, "version": one.version} for one in self._users(request, number)]
        raise _not_here(request, len(rest) <= 1)

    def _users(self, request: Request, number: str) -> list[SchemaVersion]:
        found = self._by_id(request, number)
        rows = self._topic.image.with_id(found.schema_id, context_of(found.subject))
        return [one for one in rows if request.flag("deleted") or not one.deleted]

    def _by_id(self, request: Request, number: str) -> SchemaVersion:
        return decisions.by_id(self._topic.image, _id(number), normalized(request.word("subject")))

    async def _compatibility(self, request: Request, subject: str, number: str | None) -> dict[str, Any]:
        image = self._topic.image
        if number is not None and not image.versions(subject):
            raise subject_not_found(subject)
        new = request.schema()
        wrong = await self._topic.ask(lambda now: decisions.compatibility(now, subject, number, new))
        return {"is_compatible": not wrong, **({"messages": wrong} if request.flag("verbose") else {})}

    async def _setting(self, request: Request, what: str, subject: str | None) -> Any:
        image, in_scope = self._topic.image, request.flag("defaultToGlobal")
        match request.method, what:
            case "GET", "config":
                return decisions.level_of(image, subject, in_scope=in_scope).answer
            case "GET", _:
                return decisions.mode_of(image, subject, in_scope=in_scope).answer
            case "PUT", "config":
                level = request.fields().get("compatibility")
                return await self._change(request, lambda now: decisions.set_level(now, subject, level))
            case "PUT", _:
                mode, force = request.fields().get("mode"), request.flag("force")
                return await self._change(request, lambda now: decisions.set_mode(now, subject, mode, force=force))
            case "DELETE", "config":
                return await self._change(request, lambda now: decisions.forget_level(now, subject))
            case "DELETE", _:
                return await self._change(request, lambda now: decisions.forget_mode(now, subject))
        raise _not_here(request, is_path=True)


def _body_of(answer: Any) -> bytes:
    is_text = isinstance(answer, SchemaText)
    text = answer if is_text else json.dumps(answer, separators=(",", ":"), ensure_ascii=False) + "\n"
    return text.encode("utf-8", "backslashreplace")


def _not_here(request: Request, is_path: bool) -> RegistryError:
    if is_path and request.method not in ("GET", "HEAD"):
        return RegistryError(405, "HTTP 405 Method Not Allowed")
    return RegistryError(404, "HTTP 404 Not Found")


def _name(found: object) -> str:
    """A name in a body. Raises `ValueError` for half of a surrogate pair, which no record can hold."""
    name = str(found)
    name.encode()
    return name


def _id(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 10:
        raise RegistryError(404, "HTTP 404 Not Found")
    return int(text)
