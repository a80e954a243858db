"""Settings of the quorum, with the relations between them checked when they are built."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from .types import NO_DIRECTORY


class VoterEndpoint(NamedTuple):
    """Where a voter's controller listener is reached."""

    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RaftTiming:
    """All times in milliseconds. The first five are Kafka's `controller.quorum.*` settings."""

    election_timeout_ms: int = 1000
    fetch_timeout_ms: int = 2000
    election_backoff_max_ms: int = 1000
    request_timeout_ms: int = 2000
    retry_backoff_ms: int = 50
    fetch_max_wait_ms: int = 500
    first_election_delay_ms: int = 20
    """The wait before a voter that knows no leader asks for pre-votes; each voter adds a stagger by its rank."""
    election_stagger_ms: int = 30
    """Distance between voters' first tries after a start or a leader's death, so that the first one wins alone."""
    shutdown_grace_ms: int = 500
    """How long a leader that stops waits for the others to take note."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RaftConfig:
    """One node's view of the quorum. A node whose id is not among `voters` is an observer."""

    node_id: int
    cluster_id: str
    voters: Mapping[int, VoterEndpoint]
    directory_id: UUID = NO_DIRECTORY
    timing: RaftTiming = field(default_factory=RaftTiming)
    fetch_max_bytes: int = 8 * 1024 * 1024
    listener_name: str = "CONTROLLER"
    snapshot_retention_bytes: int = 100 * 1024 * 1024
    """`metadata.max.retention.bytes`: beyond it the log gives up what older snapshots than the last stand for."""

    def __post_init__(self) -> None:
        timing = self.timing
        if not self.voters:
            raise ValueError("controller.quorum.voters is empty: name at least one voter as id@host:port")
        if timing.fetch_max_wait_ms >= timing.fetch_timeout_ms:
            raise ValueError(
                f"controller.quorum.fetch.timeout.ms={timing.fetch_timeout_ms} must exceed the longest wait of a fetch,"
                f" {timing.fetch_max_wait_ms} ms, or followers give up on a leader that is merely idle"
            )
        if timing.request_timeout_ms <= timing.fetch_max_wait_ms:
            raise ValueError(
                f"controller.quorum.request.timeout.ms={timing.request_timeout_ms} must exceed the longest wait of a"
                f" fetch, {timing.fetch_max_wait_ms} ms, or idle fetches time out"
            )

    @property
    def is_voter(self) -> bool:
        return self.node_id in self.voters

    @property
    def voter_ids(self) -> list[int]:
        """Ascending."""
        return sorted(self.voters)

    @property
    def peers(self) -> list[int]:
        """The voters beside this node, ascending."""
        return [voter for voter in self.voter_ids if voter != self.node_id]
