"""The settings of a node's logs as a whole."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ..cleaner.log_cleaner import CleanerConfig
from ..config import LogConfig

_FLUSH_INTERVAL_MS_MAX = 5000


@dataclass(frozen=True, slots=True)
class ScrubberConfig:
    """`log.scrub.interval.ms`, 0 for never, and `log.scrub.io.max.bytes.per.second`."""

    interval_ms: int = 3_600_000
    io_bytes_per_s: float = 2 * 1024 * 1024


def _ignore_dir_failure(path: str, error: OSError) -> None:
    pass


def _ignore_progress(text: str) -> None:
    pass


@dataclass(frozen=True, slots=True)
class RetentionConfig:
    """`log.retention.check.interval.ms` and `producer.id.expiration.ms`."""

    interval_ms: int = 300_000
    producer_expiration_ms: int = 86_400_000


@dataclass(frozen=True, slots=True)
class RecoveryPointConfig:
    """`log.flush.offset.checkpoint.interval.ms` and `.min.bytes`."""

    interval_ms: int = 60_000
    bytes_min: int = 1024 * 1024


@dataclass(frozen=True, slots=True)
class LogMaintenanceChange:
    """The settings of log maintenance that can be changed on a running node: `producer.id.expiration.ms` and three of
    log.cleaner.*"""

    producer_expiration_ms: int
    dedupe_buffer_bytes: int
    io_bytes_per_s: float
    backoff_ms: int


def _advise_to_format(_path: str) -> str:
    return "run `raftwerk format` first"


@dataclass(frozen=True, slots=True)
class LogManagerConfig:
    """Settings of all logs of a node.

    `on_dir_failed` is called once for a directory whose disk fails; its logs refuse everything from then on.
    `on_progress` hears, in words that follow "the node", how far the opening and closing of many logs has come.
    `metadata_dir` is the one that the node cannot work without. If it is not among `data_dirs` it gets no partitions;
    empty `data_dirs` stand for all. `format_advice` says how to format one that is not.
    """

    dirs: tuple[str, ...]
    cluster_id: str
    node_id: int
    defaults: LogConfig = field(default_factory=LogConfig)
    file_delete_delay_ms: int = 60_000
    on_dir_failed: Callable[[str, OSError], None] = _ignore_dir_failure
    on_progress: Callable[[str], None] = _ignore_progress
    retention: RetentionConfig = field(default_factory=RetentionConfig)
    cleaner: CleanerConfig = field(default_factory=CleanerConfig)
    recovery_points: RecoveryPointConfig = field(default_factory=RecoveryPointConfig)
    scrubber: ScrubberConfig = field(default_factory=ScrubberConfig)
    metadata_dir: str | None = None
    data_dirs: tuple[str, ...] = ()
    format_advice: Callable[[str], str] = _advise_to_format

    @property
    def flush_interval_s(self) -> float:
        """How often rolled segments are fsynced, and recovery points written."""
        return min(_FLUSH_INTERVAL_MS_MAX, self.recovery_points.interval_ms) / 1000

    def holds_partitions(self, path: str) -> bool:
        """Whether the directory at `path` may hold partitions."""
        return not self.data_dirs or path in self.data_dirs
