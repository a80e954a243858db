"""A consumer in librdkafka's place, whose messages and rebalances a test decides."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException, TopicPartition

Place = tuple[str, int]
OnChange = Callable[[Any, Sequence[TopicPartition]], None]


class ScriptedMessage:
    """A record with a value, which tells its offset if none is given, or an error of a partition."""

    def __init__(
        self, topic: str, partition: int, offset: int, error: KafkaError | None = None, value: bytes | None = None
    ) -> None:
        self._place, self._offset, self._error = (topic, partition), offset, error
        self._value = b"%d" % offset if value is None else value

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
        return self._value


class ScriptedConsumer:
    """Gives a message to each poll, and what follows it up to the next None to `consume`."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.settings = settings
        self.polls = 0
        self.subscribed: list[str] = []
        self.assigned_offsets: dict[Place, int] = {}
        """What the last whole assignment of the application began at."""
        self.takes_changes = True
        """Whether an assignment may be changed in steps, as librdkafka allows until there was a subscription."""
        self.arriving: list[ScriptedMessage | Exception | None] = []
        self.committed_offsets: dict[Place, int] = {}
        self.stored: dict[Place, int] = {}
        self._assigned: list[TopicPartition] = []
        self._revoked: list[TopicPartition] = []
        self._positions: dict[Place, int] = {}
        self._on_assign: OnChange = lambda *_: None
        self._on_revoke: OnChange = lambda *_: None

    def revoke(self, *places: Place) -> None:
        """Take these partitions away with the next poll, as a rebalance does."""
        self._revoked = [TopicPartition(*one) for one in places]

    def give(self, *places: Place) -> None:
        """Assign these partitions, as the group does after a rebalance."""
        self._assigned = [TopicPartition(*one) for one in places]
        self._on_assign(self, self._assigned)

    def subscribe(self, topics: Sequence[str], on_assign: OnChange, on_revoke: OnChange) -> None:
        if not topics or len({*topics}) < len(topics) or "^([)$" in topics:
            raise KafkaException(KafkaError(KafkaError._INVALID_ARG))
        self._assigned = [TopicPartition(topic, one) for topic in topics for one in (0, 1)]
        self._on_assign, self._on_revoke = on_assign, on_revoke
        self.takes_changes, self.subscribed = False, list(topics)

    def unsubscribe(self) -> None:
        self._assigned = []

    def assign(self, partitions: Sequence[TopicPartition]) -> None:
        self._assigned = list(partitions)
        self.assigned_offsets = {(one.topic, one.partition): one.offset for one in partitions}

    def unassign(self) -> None:
        self._assigned = []

    def incremental_assign(self, partitions: Sequence[TopicPartition]) -> None:
        self._check_changes()
        self._assigned = [*self._assigned, *partitions]

    def incremental_unassign(self, partitions: Sequence[TopicPartition]) -> None:
        self._check_changes()
        self._assigned = [one for one in self._assigned if one not in partitions]

    def _check_changes(self) -> None:
        if not self.takes_changes:
            raise KafkaException(KafkaError(KafkaError._STATE))

    def position(self, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
        places = [(one.topic, one.partition) for one in partitions]
        return [TopicPartition(*one, self._positions.get(one, OFFSET_INVALID)) for one in places]

    def seek(self, place: TopicPartition) -> None:
        self.arriving = [
            one for one in self.arriving if not isinstance(one, ScriptedMessage) or one.offset() >= place.offset
        ]

    def close(self) -> None:
        self._assigned = []

    def assignment(self) -> list[TopicPartition]:
        return self._assigned

    def poll(self, timeout: float) -> ScriptedMessage | None:
        self.polls += 1
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
        if one is not None and one.error() is None:
            self._positions[one.topic(), one.partition()] = one.offset() + 1
        return one
