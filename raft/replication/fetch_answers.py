"""What a leader answers to a replica that fetches: records, a truncation, or the way to a snapshot. Pure functions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ...runtime.invariants import sometimes
from ...wire.errors import ErrorCode
from ..messages.messages import Fetch, FetchReply, FetchSnapshot, SnapshotReply
from ..types import LeaderAndEpoch
from ..voters.voter_set import VoterEndpoint
from . import divergence
from .raft_log import RaftLog
from .replica_progress import ReplicaProgress


@dataclass(slots=True)
class DelayedFetch:
    """A fetch that waits for something new; `token` is the caller's name for it."""

    token: int
    request: Fetch
    deadline_ms: int


class FetchedLeader(NamedTuple):
    """The leader that answers, as it names itself to a node that may know neither the voters nor where they are."""

    id: int
    epoch: int
    endpoint: VoterEndpoint | None
    committed: int
    """Its high watermark; -1 while it is unknown."""


def fetch_answer(
    log: RaftLog, leader: FetchedLeader, progress: ReplicaProgress, delayed: DelayedFetch, now_ms: int
) -> FetchReply | None:
    """The answer when there is something new, or at the deadline; None while the fetch should wait.

    `progress` is that of the fetching replica.
    """
    fetch, committed = delayed.request, leader.committed
    if divergence.needs_snapshot(log, fetch) and log.latest_snapshot is not None:
        sometimes(fetch.fetch_offset >= log.start.end_offset, "a snapshot was offered because the logs may differ")
        return FetchReply(
            error=ErrorCode.NONE,
            leader_id=leader.id,
            epoch=leader.epoch,
            leader_endpoint=leader.endpoint,
            high_watermark=committed,
            log_start_offset=log.start.end_offset,
            snapshot_id=log.latest_snapshot,
        )
    diverging = divergence.diverging_epoch(log, fetch)
    sometimes(diverging is not None, "a controller told a replica that its metadata log parts from its own")
    has_records = diverging is None and fetch.fetch_offset < log.end_offset
    known = progress.sent_high_watermark if fetch.high_watermark is None else fetch.high_watermark
    if diverging is None and not has_records and committed <= known and now_ms < delayed.deadline_ms:
        return None
    progress.sent_high_watermark = committed
    return FetchReply(
        error=ErrorCode.NONE,
        leader_id=leader.id,
        epoch=leader.epoch,
        leader_endpoint=leader.endpoint,
        high_watermark=committed,
        log_start_offset=log.start.end_offset,
        diverging=diverging,
        records=log.read(fetch.fetch_offset, fetch.max_bytes) if has_records else b"",
    )


def snapshot_answer(log: RaftLog, leader: LeaderAndEpoch, request: FetchSnapshot) -> SnapshotReply:
    """A part of a snapshot; SNAPSHOT_NOT_FOUND or POSITION_OUT_OF_RANGE where there is no such part."""
    error, size_bytes, data = ErrorCode.SNAPSHOT_NOT_FOUND, 0, None
    found = log.read_snapshot(request.snapshot_id, request.position, request.max_bytes)
    if found is not None:
        size_bytes, data = found
        error = ErrorCode.NONE if 0 <= request.position < size_bytes else ErrorCode.POSITION_OUT_OF_RANGE
    return SnapshotReply(
        error=error,
        leader_id=leader.leader_id,
        epoch=leader.epoch,
        size_bytes=size_bytes,
        position=request.position,
        data=b"" if data is None or error is not ErrorCode.NONE else data,
    )
