"""The configuration of one partition's log. `topic_configs.py` has the table with names, defaults and ranges."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any

from ..wire.compression import Compression
from ..wire.records import TimestampType
from .topic_configs import TOPIC_CONFIGS

MAX_INT64 = 2**63 - 1
MAX_INT32 = 2**31 - 1
_TIMESTAMP_TYPES = {"CreateTime": TimestampType.CREATE_TIME, "LogAppendTime": TimestampType.LOG_APPEND_TIME}
_CODECS: Mapping[str, Compression | None] = {
    "producer": None,
    "uncompressed": Compression.NONE,
    **{codec.name.lower(): codec for codec in Compression if codec},
}
_CONVERTERS: Mapping[str, Callable[[Any], Any]] = {
    "message.timestamp.type": _TIMESTAMP_TYPES.__getitem__,
    "cleanup.policy": lambda policies: tuple(sorted(dict.fromkeys(policies))),
    "compression.type": _CODECS.__getitem__,
}
"""For the values that are not kept as the table's type has them."""


def _converted(name: str, value: Any) -> Any:
    convert = _CONVERTERS.get(name)
    return value if convert is None else convert(value)


@lru_cache(maxsize=1024)
def _parsed(name: str, text: str) -> Any:
    """The value of a text. Thousands of partitions have the same few texts."""
    return _converted(name, TOPIC_CONFIGS[name].parse_for_client(text))


_DEFAULTS: Mapping[str, Any] = {name: _converted(name, key.default_value) for name, key in TOPIC_CONFIGS.items()}


@dataclass(frozen=True, slots=True)
class LogConfig:
    """The topic configurations that a log uses, named as in Kafka; sizes in bytes, times in milliseconds."""

    segment_bytes: int = _DEFAULTS["segment.bytes"]
    segment_ms: int = _DEFAULTS["segment.ms"]
    segment_index_bytes: int = _DEFAULTS["segment.index.bytes"]
    segment_jitter_ms: int = _DEFAULTS["segment.jitter.ms"]
    index_interval_bytes: int = _DEFAULTS["index.interval.bytes"]
    max_message_bytes: int = _DEFAULTS["max.message.bytes"]
    message_timestamp_type: TimestampType = _DEFAULTS["message.timestamp.type"]
    message_timestamp_before_max_ms: int = _DEFAULTS["message.timestamp.before.max.ms"]
    message_timestamp_after_max_ms: int = _DEFAULTS["message.timestamp.after.max.ms"]
    flush_messages: int = _DEFAULTS["flush.messages"]
    flush_ms: int = _DEFAULTS["flush.ms"]
    cleanup_policy: tuple[str, ...] = _DEFAULTS["cleanup.policy"]
    retention_ms: int = _DEFAULTS["retention.ms"]
    retention_bytes: int = _DEFAULTS["retention.bytes"]
    file_delete_delay_ms: int = _DEFAULTS["file.delete.delay.ms"]
    delete_retention_ms: int = _DEFAULTS["delete.retention.ms"]
    min_compaction_lag_ms: int = _DEFAULTS["min.compaction.lag.ms"]
    max_compaction_lag_ms: int = _DEFAULTS["max.compaction.lag.ms"]
    min_cleanable_dirty_ratio: float = _DEFAULTS["min.cleanable.dirty.ratio"]
    compression_type: Compression | None = _DEFAULTS["compression.type"]
    """The codec of stored batches; None leaves each batch as its producer made it."""
    compression_gzip_level: int = _DEFAULTS["compression.gzip.level"]
    compression_zstd_level: int = _DEFAULTS["compression.zstd.level"]

    @property
    def is_compacted(self) -> bool:
        """Whether the log is compacted."""
        """Whether old records of a key are removed."""
        return "compact" in self.cleanup_policy

    @property
    def is_deleted(self) -> bool:
        """Whether old segments are deleted by time and size."""
        return "delete" in self.cleanup_policy

    def draw_segment_ms(self, rng: random.Random) -> int:
        """`segment.ms` minus a random part of the jitter, so that many partitions do not roll at once."""
        jitter_ms = min(self.segment_jitter_ms, self.segment_ms)
        return self.segment_ms - rng.randrange(jitter_ms) if jitter_ms else self.segment_ms

    def with_overrides(self, overrides: Mapping[str, str]) -> LogConfig:
        """This with other values, by the names of the topic configurations; names that a log does not use are ignored.

        Raises `ProtocolError(INVALID_CONFIG)` naming the configuration, its value and the reason.
        """
        changes = {_FIELDS[name]: _parsed(name, text) for name, text in overrides.items() if name in _FIELDS}
        return replace(self, **changes) if changes else self


_FIELDS: Mapping[str, str] = {field.name.replace("_", "."): field.name for field in fields(LogConfig)}
"""Name of the topic configuration: field of `LogConfig`."""
