"""Where two logs part: the leader's finding and the follower's truncation, as pure functions (KIP-595, KIP-279).

A follower sends the end of its log as (offset, epoch of the last record). If the leader's records of that epoch do not
reach that far, or it has none, the leader answers with the end of its largest epoch that is not above. The follower
cuts what cannot be in the leader's log and asks again; each round removes at least one epoch's tail.
"""

from __future__ import annotations

from .log_port import RaftLog
from .messages import Fetch
from .types import EpochEndOffset


def divergence(leader_log: RaftLog, fetch: Fetch) -> EpochEndOffset | None:
    """The answer to a fetch whose log is no prefix of the leader's; None when it is one."""
    if fetch.fetch_offset == 0:
        return None
    end = leader_log.end_offset_for(fetch.last_epoch)
    if end.epoch == fetch.last_epoch and fetch.fetch_offset <= end.end_offset:
        return None
    return EpochEndOffset(max(end.epoch, 0), max(end.end_offset, 0))


def truncation_offset(follower_log: RaftLog, diverging: EpochEndOffset) -> int:
    """From where on the follower's log differs from that of a leader which sent `diverging`."""
    own = follower_log.end_offset_for(diverging.epoch)
    return max(0, min(own.end_offset, diverging.end_offset))
