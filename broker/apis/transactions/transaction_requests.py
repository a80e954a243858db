"""What several transaction APIs use."""

from __future__ import annotations

from ....wire.errors import ErrorCode

TRANSACTIONAL_ID_BYTES_MAX = 2**15 - 1
"""The longest id that a record can hold."""


def for_version(code: ErrorCode, version: int, fenced_since: int) -> ErrorCode:
    """The code as clients of this version know it: older ones take INVALID_PRODUCER_EPOCH for PRODUCER_FENCED."""
    if code == ErrorCode.PRODUCER_FENCED and version < fenced_since:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code
