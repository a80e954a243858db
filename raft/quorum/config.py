"""Settings of the quorum, with the relations between them checked when they are built."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

from ..snapshots.snapshot_store import SnapshotRetention
from ..types import NO_DIRECTORY, ReplicaKey
from ..voters.voter_set import VersionRange, Voter, VoterEndpoint, VoterListener, VoterSet


@dataclass(frozen=True, slots=True, kw_only=True)
class RaftTiming:
    """Time-outs and delays in milliseconds. The first five are Kafka's `controller.quorum.*` settings."""

    election_timeout_ms: int = 1000
    fetch_timeout_ms: int = 2000
    election_backoff_max_ms: int = 1000
    request_timeout_ms: int = 2000
    retry_backoff_ms: int = 50
    fetch_max_wait_ms: int = 500
    first_election_delay_ms: int = 20
    """How long a voter that knows no leader waits before it asks for pre-votes.

    It is tens of milliseconds and not Kafka's second or two: pre-votes make an early try harmless.
    """
    election_stagger_ms: int = 30
    """The time between the first tries of two voters, by their ids, so that the first one wins undisturbed."""
    shutdown_grace_ms: int = 500
    """How long a stopping leader waits for another one to be elected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RaftConfig:
    """The settings of one node's quorum."""

    node_id: int
    cluster_id: str
    voters: Mapping[int, VoterEndpoint] = field(default_factory=dict)
    """`controller.quorum.voters`; they count until the log names others."""
    bootstrap: tuple[VoterEndpoint, ...] = ()
    """`controller.quorum.bootstrap.servers`, which a node that knows no leader asks for it, beside the voters."""
    directory_id: UUID = NO_DIRECTORY
    listeners: tuple[VoterListener, ...] = ()
    """This node's controller listeners, as other nodes reach them; if empty, the endpoint in `voters`."""
    can_vote: bool = True
    """Whether the node has the controller role, and so may be or become a voter."""
    auto_join: bool = False
    """`controller.quorum.auto.join.enable`: whether a controller that is no voter asks to become one."""
    timing: RaftTiming = field(default_factory=RaftTiming)
    fetch_max_bytes: int = 8 * 1024 * 1024
    """`controller.quorum.fetch.max.bytes`: the largest answer to a fetch, but for a larger batch."""
    snapshot_fetch_max_bytes: int = 8 * 1024 * 1024
    """`controller.quorum.fetch.snapshot.max.bytes`: the largest part of a snapshot."""
    listener_name: str = "CONTROLLER"
    snapshot_retention: SnapshotRetention = field(default_factory=SnapshotRetention)
    """How long older snapshots, and the log after them, are kept."""
    spare_bytes: int = 0
    """`metadata.log.spare.bytes`: space that the log keeps for the time when the disk is full."""

    def __post_init__(self) -> None:
        timing = self.timing
        if not self.voters and not self.bootstrap:
            raise ValueError(
                "controller.quorum.voters and controller.quorum.bootstrap.servers are empty: name at least one voter as"
                " id@host:port, or one controller as host:port"
            )
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
    def own_key(self) -> ReplicaKey:
        """This node as a replica."""
        return ReplicaKey(self.node_id, self.directory_id)

    @property
    def own_voter(self) -> Voter:
        """This node as its voter record describes it."""
        return Voter(self.own_key, self.own_listeners, VersionRange())

    @property
    def own_listeners(self) -> tuple[VoterListener, ...]:
        """This node's controller listeners, the quorum's first."""
        static = self.voters.get(self.node_id)
        if self.listeners or static is None:
            return self.listeners
        return (VoterListener(self.listener_name, *static),)

    @property
    def own_endpoint(self) -> VoterEndpoint | None:
        """This node's endpoint for the quorum; None for a node that does not listen."""
        static = self.voters.get(self.node_id)
        return self.own_voter.endpoint(self.listener_name) if static is None else static

    @property
    def static_voters(self) -> VoterSet:
        """The voters of the configuration."""
        return VoterSet.static(self.voters, self.listener_name)
