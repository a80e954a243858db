"""The settings of one partition's log.

Source: Apache Kafka's documentation, section "Topic Configs"; defaults are those of Apache Kafka 4.2.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..wire.compression import Compression
from ..wire.errors import ErrorCode, ProtocolError
from ..wire.records import TimestampType

MAX_INT64 = 2**63 - 1
MAX_INT32 = 2**31 - 1
_TIMESTAMP_TYPES = {"CreateTime": TimestampType.CREATE_TIME, "LogAppendTime": TimestampType.LOG_APPEND_TIME}
_INTEGER_KEYS = {
    # topic key: field, least, greatest
    "segment.bytes": ("segment_bytes", 1024 * 1024, MAX_INT32),
    "segment.ms": ("segment_ms", 1, MAX_INT64),
    "segment.index.bytes": ("segment_index_bytes", 4, MAX_INT32),
    "index.interval.bytes": ("index_interval_bytes", 0, MAX_INT32),
    "max.message.bytes": ("max_message_bytes", 0, MAX_INT32),
    "message.timestamp.before.max.ms": ("message_timestamp_before_max_ms", 0, MAX_INT64),
    "message.timestamp.after.max.ms": ("message_timestamp_after_max_ms", 0, MAX_INT64),
    "flush.messages": ("flush_messages", 1, MAX_INT64),
    "flush.ms": ("flush_ms", 0, MAX_INT64),
    "segment.jitter.ms": ("segment_jitter_ms", 0, MAX_INT64),
    "retention.ms": ("retention_ms", -1, MAX_INT64),
    "retention.bytes": ("retention_bytes", -MAX_INT64, MAX_INT64),
    "file.delete.delay.ms": ("file_delete_delay_ms", 0, MAX_INT64),
    "delete.retention.ms": ("delete_retention_ms", 0, MAX_INT64),
    "min.compaction.lag.ms": ("min_compaction_lag_ms", 0, MAX_INT64),
    "max.compaction.lag.ms": ("max_compaction_lag_ms", 1, MAX_INT64),
    "compression.gzip.level": ("compression_gzip_level", -1, 9),
    "compression.zstd.level": ("compression_zstd_level", -131072, 22),
}
_POLICIES = ("compact", "delete")
_CODECS: Mapping[str, Compression | None] = {
    "producer": None,
    "uncompressed": Compression.NONE,
    **{codec.name.lower(): codec for codec in Compression if codec},
}
_DAY_MS = 24 * 60 * 60 * 1000


@dataclass(frozen=True, slots=True)
class LogConfig:
    """Settings of one log; sizes in bytes, times in milliseconds."""

    segment_bytes: int = 1024 * 1024 * 1024
    segment_ms: int = 7 * 24 * 60 * 60 * 1000
    segment_index_bytes: int = 10 * 1024 * 1024
    index_interval_bytes: int = 4096
    max_message_bytes: int = 1024 * 1024 + 12
    message_timestamp_type: TimestampType = TimestampType.CREATE_TIME
    message_timestamp_before_max_ms: int = MAX_INT64
    message_timestamp_after_max_ms: int = 60 * 60 * 1000
    flush_messages: int = MAX_INT64
    flush_ms: int = MAX_INT64
    segment_jitter_ms: int = 0
    cleanup_policy: tuple[str, ...] = ("delete",)
    retention_ms: int = 7 * _DAY_MS
    retention_bytes: int = -1
    file_delete_delay_ms: int = 60_000
    delete_retention_ms: int = _DAY_MS
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = MAX_INT64
    min_cleanable_dirty_ratio: float = 0.5
    compression_type: Compression | None = None
    """The codec that batches get; None leaves them as their producer made them."""
    compression_gzip_level: int = -1
    compression_zstd_level: int = 3

    @property
    def is_compacted(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def is_deleted(self) -> bool:
        """Whether retention by time and size applies."""
        return "delete" in self.cleanup_policy

    @property
    def reshapes(self) -> bool:
        """Whether a leader has to look inside clients' batches."""
        return self.compression_type is not None or self.is_compacted

    def draw_segment_ms(self, rng: random.Random) -> int:
        """`segment.ms` less a random part of the jitter, so that segments of many partitions do not roll at once."""
        jitter_ms = min(self.segment_jitter_ms, self.segment_ms)
        return self.segment_ms - rng.randrange(jitter_ms) if jitter_ms else self.segment_ms

    def with_overrides(self, overrides: Mapping[str, str]) -> LogConfig:
        """This with a topic's own settings on top, by their Kafka keys; keys of other parts are passed over.

        `ProtocolError(INVALID_CONFIG)` naming key, value and reason.
        """
        fields: dict[str, Any] = {}
        for key, value in overrides.items():
            if key in _OTHER_KEYS:
                field, parse = _OTHER_KEYS[key]
                fields[field] = parse(key, value)
            elif key in _INTEGER_KEYS:
                field, least, greatest = _INTEGER_KEYS[key]
                fields[field] = _parse_integer(key, value, least, greatest)
        return replace(self, **fields) if fields else self


def _parse_integer(key: str, value: str, least: int, greatest: int) -> int:
    try:
        number = int(value)
    except ValueError:
        raise _invalid(key, value, "must be an integer") from None
    if not least <= number <= greatest:
        raise _invalid(key, value, f"must be from {least} to {greatest}")
    return number


def _parse_timestamp_type(key: str, value: str) -> TimestampType:
    if value not in _TIMESTAMP_TYPES:
        raise _invalid(key, value, "must be CreateTime or LogAppendTime")
    return _TIMESTAMP_TYPES[value]


def _parse_policy(key: str, value: str) -> tuple[str, ...]:
    chosen = tuple(sorted(dict.fromkeys(part.strip() for part in value.split(",") if part.strip())))
    if any(policy not in _POLICIES for policy in chosen):
        raise _invalid(key, value, "must be delete, compact, or compact,delete")
    return chosen


def _parse_codec(key: str, value: str) -> Compression | None:
    if value not in _CODECS:
        raise _invalid(key, value, f"must be one of {', '.join(_CODECS)}")
    return _CODECS[value]


def _parse_ratio(key: str, value: str) -> float:
    try:
        ratio = float(value)
    except ValueError:
        raise _invalid(key, value, "must be a number") from None
    if not 0 <= ratio <= 1:
        raise _invalid(key, value, "must be from 0 to 1")
    return ratio


_OTHER_KEYS: Mapping[str, tuple[str, Callable[[str, str], Any]]] = {
    "message.timestamp.type": ("message_timestamp_type", _parse_timestamp_type),
    "cleanup.policy": ("cleanup_policy", _parse_policy),
    "compression.type": ("compression_type", _parse_codec),
    "min.cleanable.dirty.ratio": ("min_cleanable_dirty_ratio", _parse_ratio),
}


def _invalid(key: str, value: str, reason: str) -> ProtocolError:
    return ProtocolError(ErrorCode.INVALID_CONFIG, f"Invalid value {value!r} for configuration {key}: {reason}.")
