"""The records that a consumer instance has fetched and that no read has answered yet, in the order of their arrival."""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterator
from typing import Any


class PendingRecords:
    """Messages of librdkafka. A read looks at them, and takes those that it answers away when they are shown."""

    def __init__(self) -> None:
        self._messages: deque[Any] = deque()
        self.size_bytes = 0
        """The size of all keys and values."""

    def __len__(self) -> int:
        return len(self._messages)

    def append(self, message: Any) -> None:
        """Add what was fetched."""
        self._messages.append(message)
        self.size_bytes += _size(message)

    def first(self, max_bytes: int) -> Iterator[Any]:
        """The first records with about so many bytes of keys and values, at least one."""
        size = 0
        for number, one in enumerate(self._messages):
            size += _size(one)
            if number and size > max_bytes:
                return
            yield one

    def take(self, count: int) -> list[Any]:
        """Take the first records away: so many."""
        taken = [self._messages.popleft() for _ in range(count)]
        self.size_bytes -= sum(map(_size, taken))
        return taken

    def drop(self, partitions: Container[tuple[str, int]]) -> None:
        """Forget the records of these partitions."""
        kept = [one for one in self._messages if (one.topic(), one.partition()) not in partitions]
        self.clear()
        for one in kept:
            self.append(one)

    def clear(self) -> None:
        """Forget all records."""
        self._messages.clear()
        self.size_bytes = 0


def _size(message: Any) -> int:
    return len(message.key() or b"") + len(message.value() or b"")
