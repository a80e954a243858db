"""Requests and their responses, found in the bytes of one simulated connection."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

from .....wire.api_keys import ApiKey
from .....wire.codec import Struct, decode_response
from .....wire.errors import WireFormatError
from .....wire.frames import RequestHeader, parse_request_header, parse_response_header
from ...kernel.transport import Pipe
from ...replay.message_recorder import FrameSplitter

_Noted = TypeVar("_Noted")


class AnsweredRequests(Generic[_Noted]):
    """The requests of one connection for some APIs, each with its response.

    `note(header, frame, body_at)` gives what is to be kept of a request until its response; None when that does not
    matter. `on_answered(noted, frame)` gets it with the response. Requests that cannot be read are passed over.
    """

    def __init__(
        self,
        api_keys: Collection[ApiKey],
        note: Callable[[RequestHeader, bytes, int], _Noted | None],
        on_answered: Callable[[_Noted, bytes], None],
    ) -> None:
        self._first_bytes = frozenset(int(key).to_bytes(2, "big") for key in api_keys)
        self._note = note
        self._on_answered = on_answered
        self._requests, self._responses = FrameSplitter(), FrameSplitter()
        self._noted: dict[bytes, _Noted] = {}
        """By correlation id."""

    def on_requests(self, data: bytes) -> None:
        """These bytes were sent to the server, or read by it."""
        for frame, _ in self._requests.feed(data):
            if frame[:2] not in self._first_bytes:
                continue
            try:
                header, body_at = parse_request_header(frame)
                noted = self._note(header, frame, body_at)
            except (WireFormatError, ValueError):
                continue  # the server says so
            if noted is not None:
                self._noted[frame[4:8]] = noted

    def on_responses(self, data: bytes) -> None:
        """The server has sent these bytes."""
        for frame, _ in self._responses.feed(data):
            noted = self._noted.pop(frame[:4], None)
            if noted is not None:
                self._on_answered(noted, frame)


def watch_answers(
    there: Pipe, back: Pipe, when_read: Sequence[AnsweredRequests[Any]], when_sent: Sequence[AnsweredRequests[Any]] = ()
) -> None:
    """Let these watch a connection: its requests when they are read, or sent, and its responses when they are sent."""

    def requests(watchers: Sequence[AnsweredRequests[Any]], data: bytes) -> None:
        for one in watchers:
            one.on_requests(data)

    def responses(data: bytes) -> None:
        for one in (*when_sent, *when_read):
            one.on_responses(data)

    there.on_read, there.on_sent, back.on_sent = partial(requests, when_read), partial(requests, when_sent), responses


def decoded(api_key: int, version: int, frame: bytes) -> Struct:
    """The body of a response to a request for this API, in this version."""
    _, body_at = parse_response_header(api_key, version, frame)
    return decode_response(api_key, version, frame, body_at)
