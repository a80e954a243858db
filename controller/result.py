"""The result of a decision: records and a response (Kafka: `ControllerResult`), and decisions in parts.

A client can ask for thousands of things in one request, and a broker can lead thousands of partitions. Such a decision
is incremental work (`runtime/incremental_work.py`) whose steps may give records. The records of a step are one batch of
the metadata log: they are appended before the next step, and the image has them then. Other requests are decided
between two steps, so a step trusts nothing that an earlier one has read in the image; and leadership may be lost, then
the request is answered NOT_CONTROLLER and the rest of the decision is not made.

What has to be true together is in the records of one step. For most requests that is one topic, resource or partition,
since Apache Kafka accepts or refuses each by itself. It makes one batch of all of them, and refuses a request with more
than 10,000 records; no request is too large here.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

from ..runtime.incremental_work import Step
from ..wire.errors import ErrorCode
from .metadata.metadata_records import Record

T = TypeVar("T")
Response: TypeAlias = dict[str, Any]


@dataclass(slots=True)
class ControllerResult:
    """Records to append as one batch, and the response to send once they are committed."""

    records: list[Record] = field(default_factory=list)
    response: Response = field(default_factory=dict)
    written_offset: int = -1
    """The last offset that the quorum wrote for this decision by itself; the response waits for its commit too."""


Parts: TypeAlias = Generator[Step | list[Record], None, T]
"""A part of a decision in parts: its steps, and what it has found out in the end."""
Decision: TypeAlias = Parts[ControllerResult]
"""A decision in parts. It ends with the last records and the response."""


def error_response(code: ErrorCode, message: str | None = None) -> Response:
    """The fields of an error code and a message."""
    return {"error_code": int(code), "error_message": message}
