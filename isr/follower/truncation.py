"""Where a follower cuts its log when the leader says that the two diverge.

The leader names the last epoch that both may share and where it ends there. Cutting at the high watermark instead
loses committed records (KIP-101), and looking at the offset without the epoch keeps records of a deposed leader after
two quick changes of leader (KIP-279). Where the follower does not know the leader's epoch, it cuts to the end of the
largest smaller epoch it has and asks again. Every answer takes at least one record away, so the two come to agree.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...wire.types import EpochEndOffset


@dataclass(frozen=True, slots=True)
class Truncation:
    """Cut the log to `offset`. `complete` false: the leader is to be asked about the new last epoch."""

    offset: int
    complete: bool


def decide_truncation(
    leader: EpochEndOffset, local: EpochEndOffset, log_start_offset: int, log_end_offset: int
) -> Truncation:
    """`leader` is the diverging epoch of the response, `local` this log's answer to the question for `leader.epoch`."""
    if local.end_offset < 0:
        return Truncation(log_start_offset, complete=leader.epoch < 0)
    if local.epoch != leader.epoch:
        return Truncation(min(local.end_offset, log_end_offset), complete=False)
    return Truncation(min(local.end_offset, leader.end_offset, log_end_offset), complete=True)
