"""Sends a request on to the registry that writes, and gives its answer back as it is."""

from __future__ import annotations

from dataclasses import dataclass

from ..runtime.http.client import Fetch, HttpError, HttpRequest, fetch
from ..runtime.tls_contexts import TlsContext
from .errors import forwarding_failed

FORWARDED = "x-forward"
"""The header of a request that was forwarded, which is not forwarded again."""
_KEPT = ("authorization", "content-type")
_TIMEOUT_S = 45.0
"""Longer than a writer takes for a write that the cluster does not finish."""
_ANSWER_BYTES_MAX = 16 << 20


@dataclass(frozen=True, slots=True)
class Incoming:
    """A request as it came."""

    method: str
    target: str
    """The path with the query, encoded."""
    headers: dict[str, str]
    body: bytes

    @property
    def was_forwarded(self) -> bool:
        """Whether another registry has sent it on."""
        return FORWARDED in self.headers


@dataclass(frozen=True, slots=True)
class ForwardedAnswer:
    """The status and the body that the writer answers."""

    status: int
    body: bytes


class Forwarding:
    """Asks the registry that writes, with the credentials of the client. `tls` is for its HTTPS."""

    def __init__(self, tls: TlsContext | None = None, fetch: Fetch = fetch) -> None:
        self._tls = tls
        self._fetch = fetch

    async def forward(self, url: str, incoming: Incoming) -> ForwardedAnswer:
        """The answer of the writer at this URL. Raises `RegistryError` 50003 when there is none."""
        headers = {name: value for name, value in incoming.headers.items() if name in _KEPT}
        request = HttpRequest(
            url + incoming.target,
            {**headers, FORWARDED: "true"},
            incoming.body,
            self._tls if url.startswith("https:") else None,
            incoming.method,
            _TIMEOUT_S,
            _ANSWER_BYTES_MAX,
        )
        try:
            answer = await self._fetch(request)
        except HttpError as error:
            raise forwarding_failed(str(error)) from None
        return ForwardedAnswer(answer.status, answer.body)
