"""How an API is declared, and the registry that dispatch and ApiVersions are built from.

Each file in `apis/` declares one `Api`: its key, the versions it serves, and its handler. A decoded handler gets the
request as a `Struct` and returns the response's fields, or an awaitable of them. A raw handler gets the bytes and
answers through the request itself; Produce and Fetch are raw, so that no task or future is made on their paths.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

from ..runtime.invariants import invariant
from ..wire.api_keys import ApiKey
from ..wire.codec import Struct
from .network.request import Request

C = TypeVar("C")
Fields: TypeAlias = Mapping[str, Any] | Struct
DecodedHandler: TypeAlias = Callable[[C, Request, Struct], Fields | Awaitable[Fields]]
RawHandler: TypeAlias = Callable[[C, Request], None]
ErrorFields: TypeAlias = Callable[[Struct, int, str], Fields]


def top_level_error(message: Struct, code: int, text: str) -> Fields:
    """The answer of an API whose response has an error code of its own."""
    return {"error_code": code, "error_message": text}


@dataclass(frozen=True, slots=True)
class Api(Generic[C]):
    """One API. Exactly one of `handle` and `handle_raw` is set.

    `versions` are the oldest and newest served; `error` builds the response for a failure (None: no place for one, the
    connection is closed); `overlaps`: requests of this API may start while earlier ones of such APIs are in flight.
    """

    key: ApiKey
    versions: tuple[int, int]
    handle: DecodedHandler[C] | None = None
    handle_raw: RawHandler[C] | None = None
    error: ErrorFields | None = None
    overlaps: bool = False

    def serves(self, version: int) -> bool:
        return self.versions[0] <= version <= self.versions[1]


class ApiRegistry(Generic[C]):
    """The APIs of one kind of listener, in order of their keys."""

    def __init__(self, apis: Iterable[Api[C]]) -> None:
        self._by_key: dict[int, Api[C]] = {}
        for api in sorted(apis, key=lambda item: int(item.key)):
            invariant(int(api.key) not in self._by_key, "an API is declared once")
            invariant((api.handle is None) != (api.handle_raw is None), "an API has one handler")
            self._by_key[int(api.key)] = api

    def get(self, key: int) -> Api[C] | None:
        return self._by_key.get(key)

    def __iter__(self) -> Iterator[Api[C]]:
        return iter(self._by_key.values())

    def version_rows(self) -> list[dict[str, int]]:
        """The rows of an ApiVersions response."""
        return [
            {"api_key": int(api.key), "min_version": api.versions[0], "max_version": api.versions[1]}
            for api in self._by_key.values()
        ]
