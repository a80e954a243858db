"""The quorum's requests and replies as plain values; `wire_messages.py` maps them onto Kafka's schemas."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from ...runtime.ports import Buffer
from ...wire.errors import ErrorCode
from ...wire.types import EpochEndOffset, SnapshotId
from ..types import ReplicaKey
from ..voters.voter_set import VersionRange, Voter, VoterEndpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class Vote:
    """Asks for a vote in `epoch`, or with `pre_vote` whether a vote would be given in the next one (KIP-996)."""

    cluster_id: str | None
    voter: ReplicaKey
    candidate: ReplicaKey
    epoch: int
    last_epoch: int
    last_offset: int
    pre_vote: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginQuorumEpoch:
    """The new leader makes itself and its endpoint known to a voter."""

    cluster_id: str | None
    voter: ReplicaKey
    leader_id: int
    epoch: int
    leader_endpoint: VoterEndpoint | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EndQuorumEpoch:
    """The leader resigns; `preferred_successors` are the voters by descending log end offset."""

    cluster_id: str | None
    leader_id: int
    epoch: int
    preferred_successors: tuple[ReplicaKey, ...]
    leader_endpoint: VoterEndpoint | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetch:
    """Asks for records from `fetch_offset`. All below it is on the replica's disk."""

    cluster_id: str | None
    replica: ReplicaKey
    epoch: int
    fetch_offset: int
    last_epoch: int
    max_wait_ms: int
    max_bytes: int
    high_watermark: int | None = None
    """The high watermark that the replica knows, -1 for none; None when the request's version lacks it (KIP-1166)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchSnapshot:
    """Asks for the bytes of a snapshot from `position` on (KIP-630)."""

    cluster_id: str | None
    replica: ReplicaKey
    epoch: int
    snapshot_id: SnapshotId
    position: int
    max_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AddVoter:
    """Asks the leader to make a controller a voter.

    The answer comes when the record is committed, or without `ack_when_committed` when it is appended.
    """

    cluster_id: str | None
    voter: Voter
    timeout_ms: int
    ack_when_committed: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveVoter:
    """Asks the leader to make a voter an observer."""

    cluster_id: str | None
    voter: ReplicaKey


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateVoter:
    """Asks the leader of `epoch` to record where a voter listens now, and which versions it supports."""

    cluster_id: str | None
    epoch: int
    voter: Voter


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeVoter:
    """Asks a future voter with ApiVersions which `kraft.version` it supports."""

    voter: ReplicaKey


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteReply:
    """The answer to Vote."""

    error: ErrorCode
    leader_id: int | None
    epoch: int
    leader_endpoint: VoterEndpoint | None = None
    granted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochReply:
    """The answer to BeginQuorumEpoch and EndQuorumEpoch."""

    error: ErrorCode
    leader_id: int | None
    epoch: int
    leader_endpoint: VoterEndpoint | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchReply:
    """The answer to Fetch. `high_watermark` is -1 when unknown."""

    error: ErrorCode
    leader_id: int | None
    epoch: int
    leader_endpoint: VoterEndpoint | None = None
    high_watermark: int = -1
    log_start_offset: int = 0
    diverging: EpochEndOffset | None = None
    """Truncate to the end of that epoch and ask again (KIP-595)."""
    snapshot_id: SnapshotId | None = None
    """The log no longer holds the fetch offset: fetch this snapshot (KIP-630)."""
    records: Buffer = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotReply:
    """The answer to FetchSnapshot: `data` from `position` on, of `size_bytes` in all."""

    error: ErrorCode
    leader_id: int | None
    epoch: int
    leader_endpoint: VoterEndpoint | None = None
    size_bytes: int = 0
    position: int = 0
    data: Buffer = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeReply:
    """The answer to AddVoter, RemoveVoter and UpdateVoter; `message` is the reason of a refusal."""

    error: ErrorCode
    leader_id: int | None
    epoch: int
    leader_endpoint: VoterEndpoint | None = None
    message: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeReply:
    """The answer to ProbeVoter."""

    versions: VersionRange


VoterChange: TypeAlias = AddVoter | RemoveVoter | UpdateVoter
Request: TypeAlias = Vote | BeginQuorumEpoch | EndQuorumEpoch | Fetch | FetchSnapshot | VoterChange | ProbeVoter
Reply: TypeAlias = VoteReply | EpochReply | FetchReply | SnapshotReply | ChangeReply | ProbeReply


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A request for node `to` at `endpoint`; a bootstrap server, whose id is not known, has a negative one.

    `id` is unique within the incarnation of the node.
    """

    id: int
    to: int
    endpoint: VoterEndpoint
    request: Request
