"""Commits of offsets that were appended and are not committed yet.

Offsets reach memory when they are committed. A decision to remove offsets or a group is made before that, so it has to
know what is under way: the tombstone of an older offset would follow the new one in the log and remove it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ...wire.types import TopicPartition


class OffsetCommitsInFlight:
    """The partitions of the commits in flight, by group."""

    def __init__(self) -> None:
        self._by_group: dict[str, dict[int, tuple[TopicPartition, ...]]] = {}
        self._last_number = 0

    def begin(self, group_id: str, partitions: Iterable[TopicPartition]) -> Callable[[], None]:
        """A commit is about to be appended. Call the result once, when it is committed or is not in the log."""
        self._last_number += 1
        number = self._last_number
        self._by_group.setdefault(group_id, {})[number] = tuple(partitions)

        def end() -> None:
            commits = self._by_group[group_id]
            del commits[number]
            if not commits:
                del self._by_group[group_id]

        return end

    def partitions_of(self, group_id: str) -> list[TopicPartition]:
        """The partitions of a group with a commit in flight."""
        commits = self._by_group.get(group_id, {})
        return list(dict.fromkeys(one for partitions in commits.values() for one in partitions))

    @property
    def groups(self) -> Iterable[str]:
        """The groups with a commit in flight."""
        return self._by_group.keys()
