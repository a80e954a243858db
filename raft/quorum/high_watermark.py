"""Where the quorum's high watermark advances: the offset below which all records are committed.

The leader advances it over what a majority of the voters has on disk, but only once a record of its own epoch is
covered: a record of an older epoch that is on a majority can still be replaced (Raft, 5.4.2 and figure 8; KIP-595,
"Leader Election and Log Replication"). A follower takes the leader's value as far as its own log reaches. A snapshot
holds committed records only. It never goes back.
"""

from __future__ import annotations

from collections.abc import Sequence

from .majority import majority_value


def next_high_watermark(current: int | None, durable_end_offsets: Sequence[int], epoch_start_offset: int) -> int | None:
    """The leader's high watermark for the *durable* log end offsets of all voters.

    `epoch_start_offset` is the offset of the first record of the leader's epoch.
    """
    reached = majority_value(durable_end_offsets)
    if reached <= epoch_start_offset:
        return current
    return reached if current is None else max(current, reached)


class HighWatermark:
    """The high watermark that one node knows."""

    __slots__ = ("is_current", "offset")

    def __init__(self, offset: int | None) -> None:
        """`offset` is the end of the latest snapshot, or None without one."""
        self.offset = offset
        """None while nothing is known to be committed."""
        self.is_current = False
        """Whether it was learned since the start, from the leader or by leading. Until then it is out of date."""

    def advance_by_majority(self, durable_end_offsets: Sequence[int], epoch_start_offset: int) -> bool:
        """Advance as the leader. Returns whether it moved; see `next_high_watermark`."""
        reached = next_high_watermark(self.offset, durable_end_offsets, epoch_start_offset)
        if reached is None or reached == self.offset:
            return False
        self.offset = reached
        self.is_current = True
        return True

    def advance_as_follower(self, leader_high_watermark: int, log_end_offset: int) -> None:
        """Take the leader's value, as far as this node's log reaches."""
        self.offset = max(min(leader_high_watermark, log_end_offset), self.offset or 0)
        self.is_current = True

    def advance_to_snapshot(self, end_offset: int) -> None:
        """A snapshot from the leader ends at `end_offset`: all below is committed."""
        self.offset = max(self.offset or 0, end_offset)
