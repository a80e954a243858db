"""How many bytes may pass: a rate over the last windows of time (KIP-73, `replication.quota.window.*`).

The rate is what was recorded in the live windows, by the time since the oldest of them that has something began, and
that is one window at least. What may pass now is what the quota gives for that time, less what has passed. So in any
`num` windows in a row no more passes than the quota gives for them, and the last piece, which may be too large.
"""

from __future__ import annotations

import math
from collections import deque

UNLIMITED = math.inf


class ReplicationQuota:
    """Pure; times are of any steady clock. `bytes_per_s` may be changed at any time; 0 lets nothing pass."""

    def __init__(self, window_num: int, window_size_ms: int) -> None:
        self.bytes_per_s: float = UNLIMITED
        self._window_num = window_num
        self._window_size_ms = window_size_ms
        self._windows: deque[list[int]] = deque()
        """Number of the window and its bytes, oldest first; none without bytes."""
        self._live_bytes = 0

    def record(self, size_bytes: int, now_ms: int) -> None:
        """So much has passed."""
        if not size_bytes:
            return
        number = now_ms // self._window_size_ms
        if self._windows and self._windows[-1][0] >= number:
            self._windows[-1][1] += size_bytes
        else:
            self._windows.append([number, size_bytes])
        self._live_bytes += size_bytes

    def rate(self, now_ms: int) -> float:
        """Bytes a second."""
        elapsed_ms = self._elapsed_ms(now_ms)
        return self._live_bytes * 1000 / elapsed_ms

    def room_bytes(self, now_ms: int) -> float:
        """What may pass now; 0 when the quota is used up."""
        if self.bytes_per_s == UNLIMITED:
            return UNLIMITED
        given = self.bytes_per_s * self._elapsed_ms(now_ms) // 1000
        return max(given - self._live_bytes, 0)

    def wait_ms(self, now_ms: int) -> int:
        """How long it takes until there may be room: look again then. 0 when there is."""
        if self.room_bytes(now_ms) > 0:
            return 0
        size_ms = self._window_size_ms
        if not self._windows:
            return size_ms  # the quota is too small for a byte a window
        begin_ms = self._windows[0][0] * size_ms
        waits_ms = [begin_ms + self._window_num * size_ms - now_ms]
        if self.bytes_per_s > 0:
            waits_ms.append(begin_ms + math.ceil((self._live_bytes + 1) * 1000 / self.bytes_per_s) - now_ms)
        return max(min(waits_ms), 1)

    def _elapsed_ms(self, now_ms: int) -> int:
        windows, size_ms = self._windows, self._window_size_ms
        last_dead = now_ms // size_ms - self._window_num
        while windows and windows[0][0] <= last_dead:
            self._live_bytes -= windows.popleft()[1]
        return max(now_ms - windows[0][0] * size_ms, size_ms) if windows else size_ms
