"""Logs as chains of entries. The same entries in the same order are the same objects, in whichever log they are.

So two logs have a prefix in common exactly where they share an entry, and a log is named by its last entry alone. That
is the log matching property of Raft as a data structure: nothing is compared twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

C = TypeVar("C")


class LogEntry(Generic[C]):
    """A batch of records, and all that is before it in its log.

    `content` is what a specification needs to know of its records: None for most.
    """

    __slots__ = ("base_offset", "content", "digest", "end_offset", "epoch", "followers", "parent")

    def __init__(
        self, parent: LogEntry[C] | None, end_offset: int, epoch: int, digest: object, content: C | None
    ) -> None:
        self.parent = parent
        self.base_offset: int = 0 if parent is None else parent.end_offset
        self.end_offset: int = end_offset
        self.epoch = epoch
        self.digest = digest
        self.content = content
        self.followers: dict[tuple[int, int, object], LogEntry[C]] = {}
        """The entries that follow this one in any log."""

    def follow(self, end_offset: int, epoch: int, digest: object, content: C | None = None) -> LogEntry[C]:
        """The log with one entry more; the same object for the same entry."""
        known = self.followers.get((end_offset, epoch, digest))
        if known is None:
            known = LogEntry(self, end_offset, epoch, digest, content)
            self.followers[end_offset, epoch, digest] = known
        return known

    def backwards(self) -> Iterator[LogEntry[C]]:
        """This entry and all before it, up to the beginning of the log, which counts as an entry without records."""
        entry: LogEntry[C] | None = self
        while entry is not None:
            yield entry
            entry = entry.parent

    def at(self, end_offset: int) -> LogEntry[C] | None:
        """The log up to this offset; None if no entry ends there."""
        entry = self.up_to(end_offset)
        return entry if entry.end_offset == end_offset else None

    def up_to(self, offset: int) -> LogEntry[C]:
        """The log without the entries that end above this offset."""
        return next(entry for entry in self.backwards() if entry.end_offset <= offset)

    def has(self, prefix: LogEntry[C]) -> bool:
        """Whether this log begins with `prefix`."""
        return self.at(prefix.end_offset) is prefix

    def common_prefix(self, other: LogEntry[C]) -> LogEntry[C]:
        """The longest log with which both begin."""
        mine, others = self, other
        while mine is not others:
            ahead, behind = mine.end_offset, others.end_offset
            if ahead >= behind:
                mine = mine.parent or mine
            if behind >= ahead:
                others = others.parent or others
        return mine

    def since(self, prefix: LogEntry[C]) -> list[LogEntry[C]]:
        """The entries after `prefix`, in their order. This log has to begin with it."""
        entries: list[LogEntry[C]] = []
        for entry in self.backwards():
            if entry is prefix:
                break
            entries.append(entry)
        return entries[::-1]

    def __repr__(self) -> str:
        return f"a log that ends at {self.end_offset} in epoch {self.epoch}"


def empty_log() -> LogEntry[C]:
    """A log without entries, with which all logs of one run have to begin."""
    return LogEntry(None, 0, 0, None, None)


def end_for_epoch(log: LogEntry[C], epoch: int) -> LogEntry[C]:
    """EndOffsetForEpoch: the log up to its last entry of this or a lower epoch."""
    return next(entry for entry in log.backwards() if entry.epoch <= epoch)


def is_valid_position(leaders: LogEntry[C], followers: LogEntry[C]) -> bool:
    """ValidFetchPosition: whether a fetch from the end of a follower's log shows no divergence from the leader's."""
    end = end_for_epoch(leaders, followers.epoch)
    return not followers.end_offset or (followers.end_offset <= end.end_offset and followers.epoch == end.epoch)


def truncated(followers: LogEntry[C], leaders: LogEntry[C]) -> LogEntry[C]:
    """HighestCommonOffset: the follower's log after the answer of the leader to a fetch from its end.

    The answer is the end of an epoch in the leader's log. The follower keeps no entry of a higher epoch, nor of this
    epoch after that end. It also keeps nothing after that end in an older epoch, which saves a round.
    """
    end = end_for_epoch(leaders, followers.epoch)
    kept = (entry for entry in followers.backwards() if (entry.epoch, entry.end_offset) <= (end.epoch, end.end_offset))
    return next(kept).up_to(end.end_offset)
