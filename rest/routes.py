"""The routes as data: what is served under which path, and what the OpenAPI document says of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .errors import RestError, path_not_found
from .request import Request

if TYPE_CHECKING:
    from .services import Services

JSON = "application/json"


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer of HTTP. `body` is a value of JSON, or None for no body; a `stream` goes out part by part."""

    body: Any = None
    status: int = 200
    content_type: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)
    stream: AsyncIterator[bytes] | None = None


Handler = Callable[["Services", Request], Awaitable[Answer]]


@dataclass(frozen=True, slots=True)
class Query:
    """A parameter of the query. `schema` is a schema of JSON."""

    name: str
    description: str
    schema: Mapping[str, Any]
    is_required: bool = False


@dataclass(frozen=True, slots=True)
class Route:
    """A method of a path. `body` and `answer` name schemas; `status` is that of success.

    `needs_body` says whether a request without a body is refused. `right` is what a principal needs at the cluster, as
    `DescribeConfigs on the topic`.
    """

    method: str
    path: str
    handler: Handler
    summary: str
    answer: str | None = None
    status: int = 200
    body: str | None = None
    needs_body: bool = True
    query: tuple[Query, ...] = ()
    right: str = ""

    @property
    def parameters(self) -> list[str]:
        """The names of the parts of the path that stand for something."""
        return [part[1:-1] for part in self.path.split("/") if part.startswith("{")]


class _Node:
    """The routes below a part of a path: by the next part, or by a parameter."""

    def __init__(self) -> None:
        self.literal: dict[str, _Node] = {}
        self.parameter: _Node | None = None
        self.routes: dict[str, Route] = {}


class Router:
    """Finds the route of a request. A part that is spelled out goes before a parameter."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self._root = _Node()
        for route in routes:
            node = self._root
            for part in route.path.strip("/").split("/") if route.path != "/" else ():
                if part.startswith("{"):
                    node.parameter = node.parameter or _Node()
                    node = node.parameter
                else:
                    node = node.literal.setdefault(part, _Node())
            node.routes[route.method] = route

    def find(self, request: Request) -> Route:
        """The route, whose parameters the request gets. Raises `RestError` with 404 or 405."""
        values: list[str] = []
        node = self._walk(self._root, request.segments, 0, values)
        if node is None:
            raise path_not_found()
        method = "GET" if request.method == "HEAD" else request.method
        route = node.routes.get(method)
        if route is None:
            raise RestError(405, f"HTTP 405 Method Not Allowed: this path has {', '.join(sorted(node.routes))}")
        request.parameters = dict(zip(route.parameters, values, strict=True))
        return route

    def allowed(self, request: Request) -> list[str]:
        """The methods of the path of a request."""
        node = self._walk(self._root, request.segments, 0, [])
        return [] if node is None else sorted(node.routes)

    def _walk(self, node: _Node, segments: list[str], at: int, values: list[str]) -> _Node | None:
        if at == len(segments):
            return node if node.routes else None
        literal = node.literal.get(segments[at])
        if literal is not None:
            found = self._walk(literal, segments, at + 1, values)
            if found is not None:
                return found
        if node.parameter is None or not segments[at]:
            return None
        values.append(segments[at])
        found = self._walk(node.parameter, segments, at + 1, values)
        if found is None:
            values.pop()
        return found
