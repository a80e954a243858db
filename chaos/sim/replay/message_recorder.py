"""Finds the requests and responses in the bytes of simulated connections: when each was sent, and when it arrived.

A connection carries frames: a size of four bytes, then the frame. A request begins with its API key, version and
correlation id; a response has the correlation id alone, and so belongs to a request that was seen before.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ....wire.api_keys import ApiKey
from ..kernel.transport import Pipe
from . import message_text
from .history import Message
from .message_text import TopicName

_SIZE = struct.Struct(">i")
_REQUEST = struct.Struct(">hhi")
_CORRELATION = struct.Struct(">i")
_KNOWN_KEYS = frozenset(int(key) for key in ApiKey)
_OF_REPLICATION = (ApiKey.FETCH, ApiKey.OFFSET_FOR_LEADER_EPOCH)
_OF_QUORUM = (
    ApiKey.FETCH,
    ApiKey.FETCH_SNAPSHOT,
    ApiKey.VOTE,
    ApiKey.BEGIN_QUORUM_EPOCH,
    ApiKey.END_QUORUM_EPOCH,
    ApiKey.DESCRIBE_QUORUM,
    ApiKey.ADD_RAFT_VOTER,
    ApiKey.REMOVE_RAFT_VOTER,
    ApiKey.UPDATE_RAFT_VOTER,
)


class FrameSplitter:
    """Cuts a stream of bytes into frames. `position` is the end of the last whole frame in the stream."""

    def __init__(self) -> None:
        self.position = 0
        self._rest = bytearray()

    def feed(self, data: bytes) -> list[tuple[bytes, int]]:
        """The frames that end within `data`, without their size fields, each with the position of its end."""
        self._rest += data
        frames: list[tuple[bytes, int]] = []
        while len(self._rest) >= _SIZE.size:
            end = _SIZE.size + max(_SIZE.unpack_from(self._rest)[0], 0)
            if len(self._rest) < end:
                break
            self.position += end
            frames.append((bytes(self._rest[_SIZE.size : end]), self.position))
            del self._rest[:end]
        return frames


@dataclass(slots=True)
class _Direction:
    """One direction of a connection."""

    splitter: FrameSplitter = field(default_factory=FrameSplitter)
    on_the_way: deque[tuple[int, Message, str]] = field(default_factory=deque)
    """Messages that have not arrived as a whole: the end of each in the stream, and what it says."""
    delivered_bytes: int = 0
    asked: dict[int, tuple[int, int, str]] = field(default_factory=dict)
    """For requests: API key, version and group by correlation id, until the response."""
    is_unknown: bool = False
    """Whether something else than Kafka's protocol was seen."""


class MessageListener(Protocol):
    """Is told of messages that are steps of a replay."""

    def on_request_sent(self, message: Message, text: str) -> None:
        """A request was sent; `text` says what it asks."""
        ...

    def on_response_arrived(self, message: Message, text: str) -> None:
        """A response arrived; `text` says what it answers."""
        ...


class MessageRecorder:
    """Collects the messages of all connections in `messages`, in the order of sending."""

    def __init__(
        self,
        now_us: Callable[[], int],
        metadata_port: int,
        nodes: Sequence[str],
        topic_name: TopicName,
        listener: MessageListener,
    ) -> None:
        """Controllers listen at the `metadata_port`. Requests of hosts that are not among `nodes` are clients'."""
        self.messages: list[Message] = []
        self._now_us = now_us
        self._metadata_port = metadata_port
        self._nodes = nodes
        self._topic_name = topic_name
        self._listener = listener
        self._directions: dict[int, _Direction] = {}

    def on_sent(self, pipe: Pipe, data: bytes) -> None:
        """Bytes were written into the pipe."""
        direction = self._direction(pipe)
        if direction.is_unknown:
            return
        for frame, end in direction.splitter.feed(data):
            found = self._request(pipe, frame) if pipe.carries_requests else self._response(pipe, frame)
            if found is None:
                direction.is_unknown = True
                return
            message, text = found
            self.messages.append(message)
            direction.on_the_way.append((end, message, text))
            if text and not message.is_response:
                self._listener.on_request_sent(message, text)

    def on_delivered(self, pipe: Pipe, size_bytes: int) -> None:
        """Bytes have arrived at the end of the pipe."""
        direction = self._direction(pipe)
        direction.delivered_bytes += size_bytes
        while direction.on_the_way and direction.on_the_way[0][0] <= direction.delivered_bytes:
            _, message, text = direction.on_the_way.popleft()
            message.arrived_us = self._now_us()
            if text and message.is_response:
                self._listener.on_response_arrived(message, text)

    def _direction(self, pipe: Pipe) -> _Direction:
        return self._directions.setdefault(pipe.number, _Direction())

    def _request(self, pipe: Pipe, frame: bytes) -> tuple[Message, str] | None:
        if len(frame) < _REQUEST.size:
            return None
        api_key, version, correlation_id = _REQUEST.unpack_from(frame)
        if api_key not in _KNOWN_KEYS:
            return None
        to_controller = pipe.receiver.local[1] == self._metadata_port
        group = "client" if pipe.source not in self._nodes else _group(api_key, to_controller=to_controller)
        self._direction(pipe).asked[correlation_id] = api_key, version, group
        text = ""
        if api_key in message_text.TOLD:
            text = message_text.request_text(api_key, version, frame, self._topic_name)
        return self._message(pipe, api_key, group, is_response=False), text

    def _response(self, pipe: Pipe, frame: bytes) -> tuple[Message, str] | None:
        if len(frame) < _CORRELATION.size:
            return None
        asked = self._direction(pipe.receiver.outgoing).asked.pop(_CORRELATION.unpack_from(frame)[0], None)
        if asked is None:
            return None
        api_key, version, group = asked
        text = ""
        if api_key in message_text.TOLD:
            text = message_text.response_text(api_key, version, frame, self._topic_name)
        return self._message(pipe, api_key, group, is_response=True), text

    def _message(self, pipe: Pipe, api_key: int, group: str, *, is_response: bool) -> Message:
        return Message(self._now_us(), None, pipe.source, pipe.target, ApiKey(api_key).label, group, is_response)


def _group(api_key: int, *, to_controller: bool) -> str:
    if to_controller:
        return "quorum" if api_key in _OF_QUORUM else "controller"
    return "replication" if api_key in _OF_REPLICATION else "broker"
