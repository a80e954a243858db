"""What goes on beside the appends of a node's logs: retention and its like, compaction, recovery points, as now set."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ...runtime.ports import Runtime
from ...wire.types import TopicPartition
from ..cleaner.log_cleaner import CleanerHost, LogCleaner
from ..recovery.recovery_points import RecoveryPoints
from .housekeeping import LogMaintenance
from .manager_config import LogManagerConfig, UpkeepChange


class Upkeep:
    """Made and used on the running loop."""

    def __init__(
        self,
        config: LogManagerConfig,
        runtime: Runtime,
        host: CleanerHost,
        high_watermark_of: Callable[[TopicPartition], int],
    ) -> None:
        self._config = config
        self._housekeeping = LogMaintenance(config.housekeeping, runtime.clock, lambda: host.logs, high_watermark_of)
        self._cleaner = LogCleaner(config.cleaner, runtime, host, high_watermark_of)
        self._recovery_points = RecoveryPoints(config.recovery_points, lambda: host.logs)

    def start(self) -> None:
        self._housekeeping.start()
        self._cleaner.start()
        self._recovery_points.start()

    def stop(self) -> None:
        self._housekeeping.stop()
        self._cleaner.stop()
        self._recovery_points.stop()

    def change(self, to: UpkeepChange) -> None:
        """From now on this holds; a log that is being compacted is finished as it was begun, but for its pace."""
        self._housekeeping.config = replace(self._config.housekeeping, producer_expiration_ms=to.producer_expiration_ms)
        self._cleaner.change(
            replace(
                self._config.cleaner,
                dedupe_buffer_bytes=to.dedupe_buffer_bytes,
                io_bytes_per_s=to.io_bytes_per_s,
                backoff_ms=to.backoff_ms,
            )
        )
