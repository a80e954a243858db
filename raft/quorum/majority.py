"""Majority arithmetic, pure. Every function takes the values of all voters, this node's own included."""

from __future__ import annotations

from collections.abc import Sequence


def majority_size(voter_count: int) -> int:
    """The smallest number of voters of which any two sets share a member."""
    return voter_count // 2 + 1


def majority_value(values: Sequence[int]) -> int:
    """The largest value that a majority of voters has reached.

    With log end offsets: the offset up to which a majority holds the log. With times of last contact: the latest
    moment since which a majority has been heard from.
    """
    return sorted(values, reverse=True)[majority_size(len(values)) - 1]


def next_high_watermark(current: int | None, durable_end_offsets: Sequence[int], epoch_start_offset: int) -> int | None:
    """The high watermark after the voters' *durable* log end offsets changed.

    It covers only what a majority has on disk, moves only once a record of the leader's own epoch (which begins at
    `epoch_start_offset`) is covered, and never goes back (Raft 5.4.2; KIP-595, "Leader Election and Log Replication").
    """
    reached = majority_value(durable_end_offsets)
    if reached <= epoch_start_offset:
        return current
    return reached if current is None else max(current, reached)
