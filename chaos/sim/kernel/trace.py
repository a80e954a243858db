"""The trace of a run: a digest of everything that happened, and the last events as lines."""

from __future__ import annotations

import hashlib
import struct
from collections import deque
from collections.abc import Callable

LINES_KEPT = 400
_ARRIVAL = struct.Struct("<dqqq")


class Trace:
    """Two runs with the same digest saw the same messages and faults at the same times."""

    def __init__(self, now_s: Callable[[], float], lines_kept: int = LINES_KEPT) -> None:
        self._now_s = now_s
        self._hash = hashlib.blake2b(digest_size=16)
        self._lines: deque[str] = deque(maxlen=lines_kept)

    def hash_segment(self, pipe: int, length: int, checksum: int) -> None:
        """Count a segment that was delivered; in the digest only."""
        self._hash.update(_ARRIVAL.pack(self._now_s(), pipe, length, checksum))

    def note(self, where: str, text: str) -> None:
        """Count an event in the digest and show it in the timeline."""
        line = f"{self._now_s():10.6f}  {where:<12} {text}"
        self._hash.update(line.encode())
        self._lines.append(line)

    def show(self, where: str, text: str) -> None:
        """Show a line in the timeline only: log lines may differ from run to run."""
        self._lines.append(f"{self._now_s():10.6f}  {where:<12} {text}")

    def digest(self) -> str:
        """The digest of all events so far, in hexadecimal."""
        return self._hash.hexdigest()

    def timeline(self, last: int = 60) -> list[str]:
        """The last noted events, oldest first."""
        return list(self._lines)[-last:]
