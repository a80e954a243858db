"""Snapshots of a table, and which of them may be forgotten."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

_CLOCKS_APART = timedelta(minutes=1)
"""How far the clocks of those that write files may be apart, and how long an expiry may take to begin."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A version of a table: Iceberg's snapshot id, or Delta's version.

    `is_streamed`: whether a micro-batch of a streaming query made it, which its commit then names.
    """

    version: int
    at: datetime
    operation: str
    is_streamed: bool = False


def expiry_cutoff(
    snapshots: Sequence[Snapshot],
    now: datetime,
    retain: timedelta,
    at_most: int | None,
    writing_since: datetime | None = None,
) -> datetime:
    """The time before which snapshots expire: `now - retain`, or later where more than `at_most` would stay.

    It is before `writing_since`, where there is a write that has not been committed: Delta takes a file that no version
    has for one that is not needed. The snapshots are in the order of their age, the oldest first.
    """
    cutoff = now - retain
    if at_most is not None and len(snapshots) > at_most:
        cutoff = max(cutoff, snapshots[-at_most].at)
    return cutoff if writing_since is None else min(cutoff, writing_since - _CLOCKS_APART)


def snapshots_to_keep(snapshots: Sequence[Snapshot]) -> int:
    """How many of the newest snapshots must stay, so that the last micro-batch can still be told from a new one.

    Iceberg's streaming sink finds the last batch of a query by walking back from the newest snapshot. Where that batch
    had expired, one that Spark repeats after a crash would be committed twice.
    """
    for number, snapshot in enumerate(reversed(snapshots), 1):
        if snapshot.is_streamed:
            return number
    return 1
