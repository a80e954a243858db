"""Majority arithmetic as pure functions."""

from __future__ import annotations

from collections.abc import Sequence


def majority_size(voter_count: int) -> int:
    """How many of the voters are a majority: any two majorities share a voter."""
    return voter_count // 2 + 1


def majority_value(values: Sequence[int]) -> int:
    """The largest value that a majority of the voters has reached; `values` has one for each voter.

    Of log end offsets it is the offset up to which a majority holds the log. Of times of last contact it is the latest
    time since which a majority has been in contact.
    """
    return sorted(values, reverse=True)[majority_size(len(values)) - 1]
