"""The rules for changes of the voters, and the change that a node asks for by itself. Pure functions (KIP-853).

One voter at a time is added or removed, and only when no such change is uncommitted. The leader must also have
committed a record of its own epoch first. Without that second rule two leaders, one after the other, could each append
a change to the same old set of voters, and majorities of the two new sets need not share a voter (Ongaro, raft-dev
2015: "bug in single-server membership changes").
"""

from __future__ import annotations

from dataclasses import dataclass

from ...runtime.invariants import sometimes
from ...wire.errors import ErrorCode, ProtocolError
from ..messages.messages import AddVoter, RemoveVoter, UpdateVoter, VoterChange
from ..quorum.config import RaftConfig
from ..replication.replica_progress import ProgressTracker
from ..types import NO_DIRECTORY, ReplicaKey
from .voter_set import DYNAMIC_VERSION, VersionRange, Voter, VoterHistory, VoterSet


@dataclass(frozen=True, slots=True)
class LeaderStanding:
    """What a leader knows when a change is asked for."""

    epoch_start_offset: int
    high_watermark: int | None
    history: VoterHistory
    has_pending_change: bool


def check_ready(standing: LeaderStanding) -> None:
    """Raise `ProtocolError` (REQUEST_TIMED_OUT) unless a change may begin now."""
    high_watermark = standing.high_watermark
    if standing.has_pending_change:
        sometimes(True, "a change of the voters was refused because another one was under way")
        raise ProtocolError(ErrorCode.REQUEST_TIMED_OUT, "another change of the voters is under way")
    if high_watermark is None or high_watermark <= standing.epoch_start_offset:
        sometimes(True, "a change of the voters was refused before the controller had committed its epoch")
        raise ProtocolError(ErrorCode.REQUEST_TIMED_OUT, "the leader has not committed a record of its epoch yet")
    if standing.history.last_offset >= high_watermark:
        sometimes(True, "a change of the voters was refused because the last one was not committed")
        raise ProtocolError(ErrorCode.REQUEST_TIMED_OUT, "the last change of the voters is not committed yet")


def check_dynamic(standing: LeaderStanding) -> None:
    """Raise `ProtocolError(UNSUPPORTED_VERSION)` while the voters are those of the configuration."""
    if standing.history.version < DYNAMIC_VERSION:
        raise ProtocolError(
            ErrorCode.UNSUPPORTED_VERSION,
            "The cluster's voters are static (kraft.version 0): upgrade the feature kraft.version to 1 first.",
        )


def check_add(request: AddVoter, voters: VoterSet, listener_name: str) -> None:
    """Raise `ProtocolError` when the new voter's id or listeners rule it out."""
    voter = request.voter
    present = voters.get(voter.key.id)
    if present is not None:
        message = f"The voter id {voter.key.id} is already part of the set of voters {voters}."
        raise ProtocolError(ErrorCode.DUPLICATE_VOTER, message)
    _check_listeners(voter, listener_name)


def check_probed(
    replicas: ProgressTracker, voter: ReplicaKey, versions: VersionRange, now_ms: int, lag_max_ms: int
) -> None:
    """Raise `ProtocolError` when a future voter is too old, or was not caught up within the last `lag_max_ms`.

    It is refused as well if its node has fetched with another directory since: the disk with this directory is gone.
    """
    if not versions.lowest <= DYNAMIC_VERSION <= versions.highest:
        message = f"Node {voter.id} does not support kraft.version {DYNAMIC_VERSION}."
        raise ProtocolError(ErrorCode.INVALID_REQUEST, message)
    progress = replicas.observers.get(voter)
    caught_up_ms = progress.last_caught_up_ms if progress is not None else None
    is_here = progress is not None and not replicas.is_replaced(progress)
    if not is_here or caught_up_ms is None or caught_up_ms < now_ms - lag_max_ms:
        sometimes(is_here, "a voter was not added because it had not caught up")
        sometimes(not is_here, "a voter was not added because its directory was not the one that fetches")
        fetches = "has not caught up with the log" if is_here else "does not fetch with this directory id"
        raise ProtocolError(ErrorCode.REQUEST_TIMED_OUT, f"Node {voter.id} {fetches}, so it cannot vote yet.")


def remaining_voters(request: RemoveVoter, voters: VoterSet) -> VoterSet:
    """The voters after the removal. Raises `ProtocolError` when it is not possible."""
    present = voters.get(request.voter.id)
    if present is None or present.key != request.voter:
        sometimes(True, "a voter was to be removed that was none any more")
        message = f"Cannot remove voter {request.voter.id} with this directory id: the voters are {voters}."
        raise ProtocolError(ErrorCode.VOTER_NOT_FOUND, message)
    rest = voters.without_voter(request.voter.id)
    if not rest.voters:
        message = f"Node {request.voter.id} is the last voter: add another one before it is removed."
        raise ProtocolError(ErrorCode.INVALID_REQUEST, message)
    return rest


def check_update(request: UpdateVoter, voters: VoterSet, level: int, listener_name: str) -> None:
    """Raise `ProtocolError` when the sender is no voter, or its listeners or versions rule it out."""
    voter = request.voter
    if not voters.is_voter(voter.key):
        message = f"Node {voter.key.id} with this directory id is not among the voters {voters}."
        raise ProtocolError(ErrorCode.VOTER_NOT_FOUND, message)
    _check_listeners(voter, listener_name)
    if not voter.versions.lowest <= level <= voter.versions.highest:
        raise ProtocolError(ErrorCode.INVALID_REQUEST, f"kraft.version {level} is finalized, and not supported by it.")


def _check_listeners(voter: Voter, listener_name: str) -> None:
    if all(listener.name != listener_name for listener in voter.listeners):
        message = f"Node {voter.key.id} names no endpoint for the listener {listener_name}, by which the quorum talks."
        raise ProtocolError(ErrorCode.INVALID_REQUEST, message)


def own_change(config: RaftConfig, epoch: int, voters: VoterSet, level: int) -> VoterChange | None:
    """The change that a controller asks the leader of `epoch` for by itself; None when all is as it should be.

    A voter whose listeners or versions are not those of its record asks for an update. With
    `controller.quorum.auto.join.enable`, a controller that is no voter asks to become one. If its id is that of a voter
    with another directory, a former disk of its own, it has that one removed first (KIP-853, "Controller auto
    joining").
    """
    if level < DYNAMIC_VERSION or not config.can_vote or not config.own_listeners:
        return None
    own, present = config.own_voter, voters.get(config.node_id)
    if present is not None and present.key == own.key:
        same = sorted(present.listeners) == sorted(own.listeners) and present.versions == own.versions
        return None if same else UpdateVoter(cluster_id=config.cluster_id, epoch=epoch, voter=own)
    if not config.auto_join:
        return None
    if present is not None:
        return RemoveVoter(cluster_id=config.cluster_id, voter=present.key)
    timeout_ms = config.timing.request_timeout_ms
    return AddVoter(cluster_id=config.cluster_id, voter=own, timeout_ms=timeout_ms, ack_when_committed=False)


def upgraded_voters(replicas: ProgressTracker, own: Voter) -> VoterSet:
    """The static voters with their directories, for a VotersRecord. Raises `ProtocolError` when one is unknown."""
    found = VoterSet()
    for voter in replicas.voters.voters:
        key = own.key if voter.key.id == own.key.id else replicas.peers[voter.key.id].key
        if key.directory_id == NO_DIRECTORY:
            raise ProtocolError(
                ErrorCode.INVALID_UPDATE_VERSION,
                f"Voter {key.id} has not told its directory id in this epoch: is it running, and new enough?",
            )
        found = found.with_voter(Voter(key, voter.listeners, voter.versions))
    return found
