"""Offsets that were committed in a transaction: they take effect when its marker says "commit" (KIP-98, KIP-447).

Until then the offset is unstable: an OffsetFetch that requires stable offsets is told to retry. Calls come in the order
of the records in the log, also while it is loaded. So the last commit of an offset wins, whether it was in a
transaction or not, as compaction keeps the last one too.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...runtime.invariants import sometimes
from ...wire.types import TopicPartition
from .records.offset_and_classic_records import OffsetAndMetadata, OffsetKey


class PendingTransactionalOffsets:
    """The commits of open transactions, by producer."""

    def __init__(self) -> None:
        self._by_producer: dict[int, dict[OffsetKey, OffsetAndMetadata | None]] = {}
        """None for a commit that a later one outside the transaction has replaced."""
        self._producers: dict[str, dict[TopicPartition, dict[int, None]]] = {}
        """The producers with a pending commit, by group and partition, in the order of their last commits."""

    def __len__(self) -> int:
        return len(self._by_producer)

    def add(self, producer_id: int, key: OffsetKey, value: OffsetAndMetadata) -> None:
        """Add a commit whose marker has not been written yet."""
        self.add_all(producer_id, key.group_id, ((key.topic_partition, value),))

    def add_all(
        self, producer_id: int, group_id: str, offsets: Iterable[tuple[TopicPartition, OffsetAndMetadata]]
    ) -> None:
        """Add at least one commit of a group."""
        commits = self._by_producer.setdefault(producer_id, {})
        partitions = self._producers.setdefault(group_id, {})
        for topic_partition, value in offsets:
            commits[OffsetKey(group_id, topic_partition)] = value
            producers = partitions.get(topic_partition)
            if producers is None:
                partitions[topic_partition] = {producer_id: None}
            else:
                producers.pop(producer_id, None)
                producers[producer_id] = None

    def end(self, producer_id: int, *, is_committed: bool) -> list[tuple[OffsetKey, OffsetAndMetadata]]:
        """The marker of a producer: forget its commits; returns those that take effect."""
        effective: list[tuple[OffsetKey, OffsetAndMetadata]] = []
        for key, value in self._by_producer.pop(producer_id, {}).items():
            if is_committed and value is not None:
                self._replace_before(key, producer_id)
                effective.append((key, value))
            self._unlist(key, producer_id)
        return effective

    def replace(self, key: OffsetKey) -> None:
        """A later commit outside of transactions wins: the pending ones of that offset will have no effect."""
        for producer_id in self._producers.get(key.group_id, {}).get(key.topic_partition, ()):
            sometimes(True, "a plain commit replaced an offset of a transaction that was open")
            self._by_producer[producer_id][key] = None

    def forget(self, key: OffsetKey) -> None:
        """The offset was deleted, and the pending commits of it with it."""
        for producer_id in list(self._producers.get(key.group_id, {}).get(key.topic_partition, ())):
            commits = self._by_producer[producer_id]
            del commits[key]
            if not commits:
                del self._by_producer[producer_id]
            self._unlist(key, producer_id)

    def is_unstable(self, key: OffsetKey) -> bool:
        """Whether an open transaction has committed an offset for that partition."""
        return key.topic_partition in self._producers.get(key.group_id, ())

    def partitions_of(self, group_id: str) -> list[TopicPartition]:
        """The partitions of a group with unstable offsets."""
        return list(self._producers.get(group_id, ()))

    @property
    def groups(self) -> Iterable[str]:
        """The groups with unstable offsets."""
        return self._producers.keys()

    def _replace_before(self, key: OffsetKey, producer_id: int) -> None:
        """The commit of a producer takes effect: those of others before it will have none."""
        for other in self._producers[key.group_id][key.topic_partition]:
            if other == producer_id:
                return
            sometimes(True, "a later transaction's offset took effect before that of an earlier one")
            self._by_producer[other][key] = None

    def _unlist(self, key: OffsetKey, producer_id: int) -> None:
        partitions = self._producers[key.group_id]
        producers = partitions[key.topic_partition]
        del producers[producer_id]
        if not producers:
            del partitions[key.topic_partition]
        if not partitions:
            del self._producers[key.group_id]
