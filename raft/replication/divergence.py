"""What the position of a fetch says: whether the logs part, and whether the leader must offer a snapshot.

The rules of divergence are those of `log/log_divergence.py`, which partitions follow too; here they are put to the
metadata log, which may begin with a snapshot (KIP-595, KIP-630).
"""

from __future__ import annotations

from ...log import log_divergence
from ...wire.types import EpochEndOffset
from ..messages.messages import Fetch
from .raft_log import RaftLog


def diverging_epoch(leader_log: RaftLog, fetch: Fetch) -> EpochEndOffset | None:
    """The answer to a fetch whose log is no prefix of the leader's; None when it is one."""
    if fetch.fetch_offset == 0:
        return None
    end = leader_log.end_offset_for(fetch.last_epoch)
    if not log_divergence.is_diverging(end, fetch.fetch_offset, fetch.last_epoch):
        return None
    return EpochEndOffset(max(end.epoch, 0), max(end.end_offset, 0))


def needs_snapshot(leader_log: RaftLog, fetch: Fetch) -> bool:
    """Whether the leader's log no longer reaches back to the end of the fetching one, or may part from it (KIP-630).

    A log that ends in an older epoch than the one in which the leader's log starts may differ from it below that start,
    where nothing is left to compare with.
    """
    start = leader_log.start
    if not start.end_offset:
        return False
    if fetch.fetch_offset < start.end_offset or fetch.last_epoch < start.epoch:
        return True
    return fetch.fetch_offset == start.end_offset and fetch.last_epoch != start.epoch


def truncation_offset(follower_log: RaftLog, diverging: EpochEndOffset) -> int:
    """Where a follower cuts its log when the leader answered with `diverging`; this is always between two batches.

    It is 0 when this log has no such epoch, which is below the high watermark and so stops the node.
    """
    own = follower_log.end_offset_for(diverging.epoch)
    return log_divergence.truncation_offset(diverging, own, 0, follower_log.end_offset)
