"""How many bytes may be replicated: a rate over the last windows of time (KIP-73, `replication.quota.window.*`).

The rate is the bytes recorded in the live windows, divided by the time since the first of them with bytes began, which
is at least one window. Allowed now is what the quota gives for that time, minus what was recorded. So in any `num`
windows in a row not more is replicated than the quota gives for them, plus the last piece, which may be too large.
"""

from __future__ import annotations

import math
from collections import deque

UNLIMITED = math.inf


class ReplicationQuota:
    """Pure; times are of any monotonic clock. `bytes_per_s` may be changed at any time; 0 allows nothing."""

    def __init__(self, window_num: int, window_size_ms: int) -> None:
        self.bytes_per_s: float = UNLIMITED
        self._window_num = window_num
        self._window_size_ms = window_size_ms
        self._windows: deque[list[int]] = deque()
        """Number and bytes of each window that has bytes, oldest first."""
        self._live_bytes = 0

    def record(self, size_bytes: int, now_ms: int) -> None:
        """So many bytes were replicated."""
        if not size_bytes:
            return
        number = now_ms // self._window_size_ms
        if self._windows and self._windows[-1][0] >= number:
            self._windows[-1][1] += size_bytes
        else:
            self._windows.append([number, size_bytes])
        self._live_bytes += size_bytes

    def rate(self, now_ms: int) -> float:
        """Bytes per second."""
        elapsed_ms = self._elapsed_ms(now_ms)
        return self._live_bytes * 1000 / elapsed_ms

    def available_bytes(self, now_ms: int) -> float:
        """How many bytes are allowed now; 0 when the quota is used up."""
        if self.bytes_per_s == UNLIMITED:
            return UNLIMITED
        given = self.bytes_per_s * self._elapsed_ms(now_ms) // 1000
        return max(given - self._live_bytes, 0)

    def wait_ms(self, now_ms: int) -> int:
        """After how long bytes may be allowed again; 0 when they are allowed now."""
        if self.available_bytes(now_ms) > 0:
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
