"""The result of a decision: records and a response (Kafka: `ControllerResult`)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeAlias

from ..wire.errors import ErrorCode
from .metadata.metadata_records import Record

Response: TypeAlias = dict[str, Any]


@dataclass(slots=True)
class ControllerResult:
    """Records to append as one batch, and the response to send once they are committed."""

    records: list[Record] = field(default_factory=list)
    response: Response = field(default_factory=dict)
    written_offset: int = -1
    """The last offset that the quorum wrote for this decision by itself; the response waits for its commit too."""
    has_more: bool = False
    """These are the first of many records. Decide again when they are appended; only the last part has a response."""


def error_response(code: ErrorCode, message: str | None = None) -> Response:
    """The fields of an error code and a message."""
    return {"error_code": int(code), "error_message": message}
