"""The machine's wall clock."""

from __future__ import annotations

import time


class SystemClock:
    """`Clock` on the operating system's real-time clock, which jumps when it is set."""

    def wall_ms(self) -> int:
        """Milliseconds since the Unix epoch."""
        return time.time_ns() // 1_000_000
