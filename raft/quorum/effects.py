"""What the quorum asks of its driver, and why a request of the driver failed."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from ..messages.messages import ChangeReply, FetchReply, Outgoing
from ..types import ElectionState


class FailureKind(Enum):
    """Why a request got no reply: nothing listens there, the connection broke, or it timed out."""

    REFUSED = "refused"
    LOST = "lost"
    TIMEOUT = "timeout"


@dataclass(slots=True)
class Effects:
    """What follows from an event, in the order in which it must be carried out."""

    election_state: ElectionState | None = None
    """1. Write and fsync this before anything below, and before the reply that the event returned."""
    requests: list[Outgoing] = field(default_factory=list)
    """2. Send."""
    fetch_replies: list[tuple[int, FetchReply]] = field(default_factory=list)
    """3. Answer fetches, by token."""
    change_replies: list[tuple[int, ChangeReply]] = field(default_factory=list)
    """4. Answer requests for a change of the voters, by token."""
