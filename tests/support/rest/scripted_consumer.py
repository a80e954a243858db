"""A consumer in librdkafka's place, whose messages and rebalances a test decides."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaError, TopicPartition

Place = tuple[str, int]


class ScriptedMessage:
    """A record with a value that tells its offset, or an error of a partition."""

    def __init__(self, topic: str, partition: int, offset: int, error: KafkaError | None = None) -> None:
        self._place, self._offset, self._error = (topic, partition), offset, error

    def topic(self) -> str:
        return self._place[0]

    def partition(self) -> int:
        return self._place[1]

    def offset(self) -> int:
        return self._offset

    def error(self) -> KafkaError | None:
        return self._error

    def key(self) -> bytes | None:
        return None

    def value(self) -> bytes:
        return b"%d" % self._offset


class ScriptedConsumer:
    """Gives a message to each poll, and what follows it up to the next None to `consume`."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.arriving: list[ScriptedMessage | Exception | None] = []
        self.committed_offsets: dict[Place, int] = {}
        self.stored: dict[Place, int] = {}
        self._assigned: list[TopicPartition] = []
        self._revoked: list[TopicPartition] = []
        self._on_revoke: Callable[[Any, Sequence[TopicPartition]], None] = lambda *_: None

    def revoke(self, *places: Place) -> None:
        """Take these partitions away with the next poll, as a rebalance does."""
        self._revoked = [TopicPartition(*one) for one in places]

    def subscribe(self, topics: Sequence[str], on_revoke: Callable[[Any, Sequence[TopicPartition]], None]) -> None:
        self._assigned = [TopicPartition(topic, one) for topic in topics for one in (0, 1)]
        self._on_revoke = on_revoke

    def assignment(self) -> list[TopicPartition]:
        return self._assigned

    def poll(self, timeout: float) -> ScriptedMessage | None:
        if self._revoked:
            self._on_revoke(self, self._revoked)
            self._revoked = []
        return self._next()

    def consume(self, num_messages: int, timeout: float) -> list[ScriptedMessage]:
        found: list[ScriptedMessage] = []
        while len(found) < num_messages and (one := self._next()) is not None:
            found.append(one)
        return found

    def commit(self, offsets: Sequence[TopicPartition], asynchronous: bool) -> Sequence[TopicPartition]:
        self.committed_offsets |= {(one.topic, one.partition): one.offset for one in offsets}
        return offsets

    def store_offsets(self, offsets: Sequence[TopicPartition]) -> None:
        self.stored |= {(one.topic, one.partition): one.offset for one in offsets}

    def _next(self) -> ScriptedMessage | None:
        one = self.arriving.pop(0) if self.arriving else None
        if isinstance(one, Exception):
            raise one
        return one
