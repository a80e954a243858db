"""The settings of one partition's log.

Source: Apache Kafka's documentation, section "Topic Configs"; defaults are those of Apache Kafka 4.2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

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
}


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

    def with_overrides(self, overrides: Mapping[str, str]) -> LogConfig:
        """This with a topic's own settings on top, by their Kafka keys; keys of other parts are passed over.

        `ProtocolError(INVALID_CONFIG)` naming key, value and reason.
        """
        fields: dict[str, Any] = {}
        for key, value in overrides.items():
            if key == "message.timestamp.type":
                if value not in _TIMESTAMP_TYPES:
                    raise _invalid(key, value, "must be CreateTime or LogAppendTime")
                fields["message_timestamp_type"] = _TIMESTAMP_TYPES[value]
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


def _invalid(key: str, value: str, reason: str) -> ProtocolError:
    return ProtocolError(ErrorCode.INVALID_CONFIG, f"Invalid value {value!r} for configuration {key}: {reason}.")
