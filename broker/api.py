"""How an API is declared, and how a listener looks it up.

`ApiSpec` is one row of the table in `apis/api_table.py`. A listener's registry is made of the rows that have a handler
for it; ApiVersions and dispatch use the registry. There are three kinds of handler:

- A plain function gets the decoded request and returns the response's fields, an awaitable of them, or the work that
  makes them, which is done in steps (`runtime/incremental_work.py`) where a client sizes it.
- `Raw` gets the request's bytes and answers by itself. Produce and Fetch are raw, so that their paths need no task and
  no future.
- `Forwarded` gets the request's bytes and returns the response's bytes, which the controller encoded (KIP-590).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from ..runtime.incremental_work import Work
from ..runtime.invariants import invariant
from ..runtime.ports import Buffer
from ..wire.api_keys import ApiKey
from ..wire.codec import Struct
from ..wire.errors import ErrorCode
from .apis.rights import Rights
from .network.request import Request

if TYPE_CHECKING:
    from .services import BrokerServices, ControllerServices

C = TypeVar("C")
Fields: TypeAlias = Mapping[str, Any] | Struct
Answer: TypeAlias = Fields | Buffer
"""The fields of a response, or its encoded body."""
Result: TypeAlias = Answer | Awaitable["Result"] | Work["Result"]
"""What a handler returns: the answer, or what has it in the end."""
DecodedHandler: TypeAlias = Callable[[C, Request, Struct], Result]
ErrorFields: TypeAlias = Callable[[Struct, ErrorCode, str], Fields]
"""Builds the response that refuses a request as a whole, from the request, an error code and a text."""


@dataclass(frozen=True, slots=True)
class Raw(Generic[C]):
    """A handler that decodes the request and answers it by itself, or returns the work that does."""

    handle: Callable[[C, Request], Work[None] | None]


@dataclass(frozen=True, slots=True)
class Forwarded(Generic[C]):
    """A handler that returns an encoded response. The request is decoded only when it fails, to build the error."""

    handle: Callable[[C, Request, bytes], Awaitable[Buffer]]


Handler: TypeAlias = DecodedHandler[C] | Raw[C] | Forwarded[C]


@dataclass(frozen=True, slots=True)
class ApiSpec:
    """One row of the table of APIs."""

    key: ApiKey
    versions: tuple[int, int]
    """The oldest and the newest version served."""
    checks: Rights
    """The rights that its handlers ask for, each on the resources that a request names; empty: it is for everybody."""
    error: ErrorFields | None
    """How the API refuses a request as a whole. None: it has no such response, and the connection is closed."""
    broker: Handler[BrokerServices] | None = None
    """The handler on broker listeners; None where they do not serve the API."""
    controller: Handler[ControllerServices] | None = None
    """The handler on controller listeners; None where they do not serve the API."""
    is_forwarded: bool = False
    """Whether a broker may send the request to the controller in an envelope (KIP-590)."""
    overlaps: bool = False
    """Whether a request may start while earlier requests of such APIs on its connection are unanswered."""
    announced_from: int | None = None
    """The oldest version that ApiVersions names, where that is not the oldest one served."""


class Api(Generic[C]):
    """An API as one listener serves it. Exactly one of the three handlers is set."""

    __slots__ = ("announced", "decoded", "forwarded", "is_forwarded", "key", "overlaps", "raw", "refuse", "versions")

    def __init__(self, spec: ApiSpec, handler: Handler[C]) -> None:
        self.key = spec.key
        self.versions = oldest, newest = spec.versions
        self.announced = (oldest if spec.announced_from is None else spec.announced_from, newest)
        self.refuse = spec.error
        self.is_forwarded = spec.is_forwarded
        self.overlaps = spec.overlaps
        self.raw = handler.handle if isinstance(handler, Raw) else None
        self.forwarded = handler.handle if isinstance(handler, Forwarded) else None
        self.decoded: DecodedHandler[C] | None = None if isinstance(handler, (Raw, Forwarded)) else handler

    def serves(self, version: int) -> bool:
        """Whether the listener serves this version."""
        return self.versions[0] <= version <= self.versions[1]


class ApiRegistry(Generic[C]):
    """The APIs of one kind of listener, in the order of their keys."""

    def __init__(self, apis: Iterable[Api[C]]) -> None:
        self._by_key: dict[int, Api[C]] = {}
        for api in sorted(apis, key=lambda item: int(item.key)):
            invariant(int(api.key) not in self._by_key, "an API is declared once")
            self._by_key[int(api.key)] = api

    def get(self, key: int) -> Api[C] | None:
        """The API of that key, or None where the listener does not serve it."""
        return self._by_key.get(key)

    def __iter__(self) -> Iterator[Api[C]]:
        return iter(self._by_key.values())

    def version_rows(self) -> list[dict[str, int]]:
        """The rows of an ApiVersions response."""
        return [
            {"api_key": int(api.key), "min_version": api.announced[0], "max_version": api.announced[1]}
            for api in self._by_key.values()
        ]
