"""Commits that are part of a transaction: they count when its marker says that it was committed (KIP-98, KIP-447).

`__consumer_offsets` as Apache Kafka left it may hold them. Until the marker is read nobody may rely on the offset
before it: a reader that asks for stable offsets is told to ask again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from .records.offset_and_classic_records import OffsetAndMetadata, OffsetKey


class PendingTransactionalOffset(NamedTuple):
    """One commit and where it is in the log."""

    key: OffsetKey
    value: OffsetAndMetadata
    at: int


class PendingTransactionalOffsets:
    """What open transactions have committed, by producer."""

    def __init__(self) -> None:
        self._by_producer: dict[int, dict[OffsetKey, PendingTransactionalOffset]] = {}

    def add(self, producer_id: int, commit: PendingTransactionalOffset) -> None:
        """A commit whose marker is still to come."""
        self._by_producer.setdefault(producer_id, {})[commit.key] = commit

    def end(self, producer_id: int, *, is_committed: bool) -> Iterator[PendingTransactionalOffset]:
        """The marker of a producer is there: its commits, if they count."""
        ended = self._by_producer.pop(producer_id, {})
        yield from ended.values() if is_committed else ()

    def is_unstable(self, key: OffsetKey) -> bool:
        """A transaction that is open has committed an offset for that partition."""
        return any(key in commits for commits in self._by_producer.values())

    def forget_group(self, group_id: str) -> None:
        """The group is deleted: what is pending for it will never count."""
        for commits in self._by_producer.values():
            for key in [key for key in commits if key.group_id == group_id]:
                del commits[key]
