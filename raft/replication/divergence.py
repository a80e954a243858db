"""Where two logs part: the leader's finding and the follower's truncation, as pure functions (KIP-595, KIP-279).

A follower sends the end of its log as (offset, epoch of the last record). If the leader's records of that epoch do not
reach that far, or it has none, the leader answers with the end of its largest epoch that is not above. The follower
cuts what cannot be in the leader's log and asks again; each round removes at least one epoch's tail.
"""

from __future__ import annotations

from ...wire.types import EpochEndOffset
from ..messages.messages import Fetch
from .raft_log import RaftLog


def diverging_epoch(leader_log: RaftLog, fetch: Fetch) -> EpochEndOffset | None:
    """The answer to a fetch whose log is no prefix of the leader's; None when it is one."""
    if fetch.fetch_offset == 0:
        return None
    end = leader_log.end_offset_for(fetch.last_epoch)
    if end.epoch == fetch.last_epoch and fetch.fetch_offset <= end.end_offset:
        return None
    return EpochEndOffset(max(end.epoch, 0), max(end.end_offset, 0))


def needs_snapshot(leader_log: RaftLog, fetch: Fetch) -> bool:
    """Whether the leader's log no longer reaches back to where the fetching one ends, or might part from it (KIP-630).

    A log that ends in an epoch older than that in which the leader's log starts may differ from it in front of that
    start, where nothing is left to compare with.
    """
    start = leader_log.start
    if not start.end_offset:
        return False
    if fetch.fetch_offset < start.end_offset or fetch.last_epoch < start.epoch:
        return True
    return fetch.fetch_offset == start.end_offset and fetch.last_epoch != start.epoch


def truncation_offset(follower_log: RaftLog, diverging: EpochEndOffset) -> int:
    """From where on the follower's log differs from that of a leader which sent `diverging`."""
    own = follower_log.end_offset_for(diverging.epoch)
    return max(0, min(own.end_offset, diverging.end_offset))
