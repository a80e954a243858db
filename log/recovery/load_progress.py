"""Opening all logs of a node, which after an unclean stop means to check them: told of while it goes on.

Source: KIP-831 of Apache Kafka, which counts the logs and segments that are left.
"""

from __future__ import annotations

import asyncio
import logging

_logger = logging.getLogger(__name__)
_TELL_EVERY_S = 2.0


class LoadProgress:
    """Counts, and logs now and then where there is a loop to tell the time."""

    def __init__(self) -> None:
        self.logs_total = 0
        self.logs_opened = 0
        self.checked_bytes = 0
        self._began_s = self._told_s = _now_s()

    def found(self, count: int) -> None:
        """So many more logs are to be opened."""
        self.logs_total += count

    def opened(self) -> None:
        """One more is open."""
        self.logs_opened += 1
        self._tell()

    def checked(self, byte_count: int) -> None:
        """So many more bytes were."""
        self.checked_bytes += byte_count
        self._tell()

    def done(self) -> None:
        """Say how long it took, if there was anything."""
        if self.logs_total:
            seconds = _now_s() - self._began_s
            _logger.info(
                "%d logs opened in %.1f s, %.1f MB of them checked", self.logs_opened, seconds, self.checked_bytes / 1e6
            )

    def _tell(self) -> None:
        now_s = _now_s()
        if now_s - self._told_s >= _TELL_EVERY_S:
            self._told_s = now_s
            _logger.info(
                "opening logs: %d of %d, %.1f MB checked so far",
                *(self.logs_opened, self.logs_total, self.checked_bytes / 1e6),
            )


def _now_s() -> float:
    """The time of the running loop, 0 where there is none."""
    try:
        return asyncio.get_running_loop().time()
    except RuntimeError:
        return 0.0
