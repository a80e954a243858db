"""What a decision gives back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeAlias

from ..wire.errors import ErrorCode
from .metadata.metadata_records import Record

Response: TypeAlias = dict[str, Any]


@dataclass(slots=True)
class ControllerResult:
    """Records to append as one batch, and the response that goes out once they are committed.

    So is what the decision had the quorum itself write, up to `written_offset`. `has_more`: the records are the first
    part of many; the decision is to be made again when they are in, and its last part answers.
    """

    records: list[Record] = field(default_factory=list)
    response: Response = field(default_factory=dict)
    written_offset: int = -1
    has_more: bool = False


def error_response(code: ErrorCode, message: str | None = None) -> Response:
    """A response with a top-level error."""
    return {"error_code": int(code), "error_message": message}
