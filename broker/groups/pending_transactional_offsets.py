"""Offsets that were committed in a transaction: they take effect when its marker says "commit" (KIP-98, KIP-447).

This broker writes none, but a `__consumer_offsets` that Apache Kafka wrote may hold them. Until the marker is read, an
OffsetFetch that requires stable offsets is told to retry.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from .records.offset_and_classic_records import OffsetAndMetadata, OffsetKey


class PendingTransactionalOffset(NamedTuple):
    """One commit; `at` is its offset in the log."""

    key: OffsetKey
    value: OffsetAndMetadata
    at: int


class PendingTransactionalOffsets:
    """The commits of open transactions, by producer."""

    def __init__(self) -> None:
        self._by_producer: dict[int, dict[OffsetKey, PendingTransactionalOffset]] = {}

    def add(self, producer_id: int, commit: PendingTransactionalOffset) -> None:
        """Add a commit whose marker has not been read yet."""
        self._by_producer.setdefault(producer_id, {})[commit.key] = commit

    def end(self, producer_id: int, *, is_committed: bool) -> Iterator[PendingTransactionalOffset]:
        """Take the marker of a producer; returns its commits if the transaction was committed, else none."""
        ended = self._by_producer.pop(producer_id, {})
        yield from ended.values() if is_committed else ()

    def is_unstable(self, key: OffsetKey) -> bool:
        """Whether an open transaction has committed an offset for that partition."""
        return any(key in commits for commits in self._by_producer.values())

    def forget_group(self, group_id: str) -> None:
        """Drop the pending commits of a group that was deleted."""
        for commits in self._by_producer.values():
            for key in [key for key in commits if key.group_id == group_id]:
                del commits[key]
