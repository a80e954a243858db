"""Keeps the last requests of an attack, writes those before a finding to a file, and sends such a file again.

A file has two lines for each request: a comment with the listener, the API and the version, and the frame as hex.
"""

from __future__ import annotations

import os
import re
import struct
from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ...wire.api_keys import ApiKey

_KEPT = 30
_WRITTEN_BYTES_MAX = 4 << 20


class SentRequest(NamedTuple):
    """A frame as it was sent, with its size, to a listener of kind `broker` or `controller` of a node."""

    node_id: int
    kind: str
    frame: bytes

    @property
    def description(self) -> str:
        """The API and version that the frame's header names."""
        if len(self.frame) < 8:
            return "a piece of a frame"
        key, version = struct.unpack_from(">hh", self.frame, 4)
        name = ApiKey(key).name if key in ApiKey.__members__.values() else f"API {key}"
        return f"{name} v{version}"


class SentRequests:
    """The last requests of a run."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._last: deque[SentRequest] = deque(maxlen=_KEPT)
        self._files = 0

    def add(self, request: SentRequest) -> None:
        """Keep a request that is sent now."""
        self._last.append(request)

    def clear(self) -> None:
        """Forget the requests of an earlier attack."""
        self._last.clear()

    def write(self, reason: str, count: int = _KEPT) -> str | None:
        """Write the last `count` requests; returns the file's path, None without any request."""
        chosen = list(self._last)[-count:]
        if not chosen:
            return None
        os.makedirs(self._directory, exist_ok=True)
        self._files += 1
        path = os.path.join(self._directory, f"{self._files:04}.hex")
        write_requests(path, chosen, reason)
        return path


def write_requests(path: str, requests: Sequence[SentRequest], reason: str) -> None:
    """Write a file of requests, the oldest first; those that would make it too large are left out."""
    lines, written = [f"# {line}" for line in reason.splitlines()], 0
    for request in requests:
        written += len(request.frame)
        if written <= _WRITTEN_BYTES_MAX:
            lines += [f"# node={request.node_id} listener={request.kind} {request.description}", request.frame.hex()]
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")


def read_requests(path: str) -> Iterator[SentRequest]:
    """The requests of a file. `ValueError` for a line that is neither a comment nor hex."""
    place = ("1", "broker")
    with open(path, encoding="utf-8") as file:
        for line in file:
            named = re.match(r"# node=(\d+) listener=(\w+)", line)
            if named:
                place = (named[1], named[2])
            elif not line.startswith("#") and line.strip():
                yield SentRequest(int(place[0]), place[1], bytes.fromhex(line.strip()))
