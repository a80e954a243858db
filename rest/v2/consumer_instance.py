"""One consumer instance: a consumer of librdkafka, whose methods may take a while and so run in a thread.

One method runs at a time. `read` returns when a record is there and no more are at hand, as Confluent's proxy does.
What librdkafka refuses changes nothing.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from ...wire.errors import ErrorCode
from ..errors import (
    AUTHENTICATION_FAILED,
    AUTHORIZATION_FAILED,
    KAFKA_ERROR,
    KAFKA_RETRIABLE_ERROR,
    RestError,
    kafka_error,
)
from .pending_records import PendingRecords
from .shown_records import Show, record_text

_SLICE_S = 0.1
_BATCH = 500
_TIMEOUT_S = 10.0
_SEEK_PAUSE_S = 0.02
_LEAVE_S = 5.0
"""How long the partitions may take to be given back."""
_CLOSE_S = 10.0
"""After that the answer does not wait for librdkafka any more."""
_RIGHTS: Mapping[int, str] = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "Read on the topic",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "Read on the group",
}
_WITHOUT_COORDINATOR = ("_WAIT_COORD", "_TIMED_OUT")
_GROWTH_MAX = 8
"""How many times longer than its keys and values the JSON of a read may become."""
_SHOWN_BYTES_MIN = 1 << 20
_LOCAL_CAUSE = "Local: "
"""In the words for a login that ended with its connection. librdkafka tries again, and the broker may take it."""
_EXCLUSIVE = "Illegal state: Subscription to topics, partitions and pattern are mutually exclusive"
Row = dict[str, Any]

_logger = logging.getLogger(__name__)


class ConsumerInstance:
    """A consumer with the format of its records, and how it shows them. `settings` are those of librdkafka."""

    def __init__(self, settings: Mapping[str, Any], embedded_format: str, show: Show, min_bytes: int) -> None:
        from confluent_kafka import Consumer

        self.embedded_format = embedded_format
        self.lost_brokers = False
        """Whether no broker was reached at some time since this was set to False."""
        self.stopping = threading.Event()
        """Set when a read is to return at once."""
        self._show = show
        self._min_bytes = min_bytes
        self._consumer = Consumer({**settings, "error_cb": self._on_error})
        self._auto_commits = bool(settings.get("enable.auto.commit"))
        self._topics: list[str] = []
        self._is_assigned = False
        self._missing_right: RestError | None = None
        self._pending = PendingRecords()
        self._failure: RestError | None = None
        """What the next read raises that has no records."""
        self._delivered: dict[tuple[str, int], int] = {}

    def _on_error(self, error: Any) -> None:
        if error.name() == "_ALL_BROKERS_DOWN":
            self.lost_brokers = True
        elif error.name() == "_AUTHENTICATION" and _LOCAL_CAUSE not in error.str():
            self._failure = _error_of(error)

    # -- what is read

    def subscribe(self, topics: Sequence[str], pattern: str | None) -> None:
        """Read these topics, or those whose whole names match a regular expression, with the others of the group.

        No topics end the subscription, and a pattern leaves internal topics out, as with Java's consumer.
        """
        if pattern is None and not topics:
            self.unsubscribe()
            return
        if self._is_assigned:
            raise RestError(40903, _EXCLUSIVE)
        wanted = list(dict.fromkeys(topics)) if pattern is None else [f"^({pattern})$"]
        self._ask(lambda: self._consumer.subscribe(wanted, on_assign=self._on_assign, on_revoke=self._on_revoke))
        self._topics = wanted
        self._forget()

    def unsubscribe(self) -> None:
        """Read nothing any more."""
        self._forget()
        if self._is_assigned:
            self._is_assigned = False
            self._ask(self._consumer.unassign)
        if self._topics:
            self._topics = []
            self._ask(self._leave)

    def subscription(self) -> list[str]:
        """The topics; those that a pattern has matched so far."""
        if self._has_pattern():
            return sorted({one.topic for one in self._consumer.assignment()})
        return list(self._topics)

    def _has_pattern(self) -> bool:
        return any(one.startswith("^") for one in self._topics)

    def assign(self, partitions: Sequence[tuple[str, int]]) -> None:
        """Read these partitions, whatever others of the group do. Those that are read already go on where they are.

        No partitions end the assignment, as with Java's consumer.
        """
        if not partitions:
            self.unsubscribe()
            return
        if self._topics:
            raise RestError(40903, _EXCLUSIVE)
        before, wanted = dict.fromkeys(self.assignment()), dict.fromkeys(partitions)
        self._ask(lambda: self._change_assignment(before, wanted))
        self._is_assigned = True
        self._drop([one for one in before if one not in wanted])

    def _change_assignment(self, before: Collection[tuple[str, int]], wanted: Collection[tuple[str, int]]) -> None:
        from confluent_kafka import KafkaException, TopicPartition

        added = [TopicPartition(*one) for one in wanted if one not in before]
        removed = [TopicPartition(*one) for one in before if one not in wanted]
        try:
            if added:
                self._consumer.incremental_assign(added)
            if removed:
                self._consumer.incremental_unassign(removed)
        except KafkaException as error:
            if error.args[0].name() != "_STATE":
                raise
            # After a subscription librdkafka takes whole assignments only. The position is after what was fetched.
            kept = [TopicPartition(*one) for one in before if one in wanted]
            self._consumer.assign([*self._consumer.position(kept), *added])

    def assignment(self) -> list[tuple[str, int]]:
        """The partitions that are read now."""
        return sorted((one.topic, one.partition) for one in self._consumer.assignment())

    # -- records

    def read(self, timeout_s: float, max_bytes: int) -> bytes:
        """The records that are there or come within this time, as JSON; about `max_bytes` of them, at least one.

        Raises `RestError`, after which the same records are still to be read.
        """
        if not self._topics and not self._is_assigned:
            raise RestError(40903, "Illegal state: Consumer is not subscribed to any topics or assigned any partitions")
        deadline = time.monotonic() + timeout_s
        self._poll(0.0)  # a read that is answered by what was fetched before serves rebalances, too
        while not self.stopping.is_set() and self._pending.size_bytes < max_bytes and self._failure is None:
            left_s = deadline - time.monotonic()
            is_enough = self._pending.size_bytes >= self._min_bytes or left_s <= 0
            if not self._fetch(0.0 if is_enough else min(left_s, _SLICE_S)) and is_enough:
                break
        if not self._pending and self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        rows = self._shown(max_bytes)
        taken = self._pending.take(len(rows))
        for one in taken:
            self._delivered[one.topic(), one.partition()] = one.offset() + 1
        if self._auto_commits and taken:
            self._store({(one.topic(), one.partition()): one.offset() + 1 for one in taken})
        return b"[" + b",".join(rows) + b"]\n"

    def _shown(self, max_bytes: int) -> list[bytes]:
        """The next records as JSON, at least one if there are any: about so many bytes, which JSON makes more.

        They end before one that cannot be shown. Raises `RestError` if that is the first one.
        """
        rows: list[bytes] = []
        size = 0
        for one in self._pending.first(max_bytes):
            try:
                rows.append(record_text(one, self._show))
            except RestError:
                if not rows:
                    raise
                break  # the next read begins with it
            size += len(rows[-1])
            if size >= max(_SHOWN_BYTES_MIN, max_bytes * _GROWTH_MAX):
                break
        return rows

    def _fetch(self, timeout_s: float) -> bool:
        """Take what has come, or comes within this time. Returns whether that were records."""
        before = len(self._pending)
        if self._poll(timeout_s):
            for one in self._consumer.consume(_BATCH, 0.0):
                self._take_in(one)
        return len(self._pending) > before

    def _poll(self, timeout_s: float) -> bool:
        """Serve librdkafka's callbacks, and take the next message if it comes within this time. Returns whether it did.

        librdkafka holds its messages back while a rebalance waits for its callback.
        """
        found = self._consumer.poll(timeout_s)
        if found is not None:
            self._take_in(found)
        return found is not None

    def _take_in(self, message: Any) -> None:
        error: Any = message.error()
        if error is None:
            self._missing_right = None
            self._pending.append(message)
        elif error.name() not in ("UNKNOWN_TOPIC_OR_PART", "_PARTITION_EOF"):
            failure = _error_of(error)
            if failure.code == AUTHORIZATION_FAILED:
                self._missing_right = failure
            if not error.retriable():
                self._failure = failure

    def _on_assign(self, consumer: Any, partitions: Sequence[Any]) -> None:
        """These partitions are this member's now. Those of internal topics that a pattern has matched are not read.

        librdkafka could leave such topics out of its metadata, but then nobody could read them by their names.
        """
        from ...broker.topic_view import INTERNAL_TOPICS  # its imports take memory

        if self._has_pattern():
            consumer.assign([one for one in partitions if one.topic not in INTERNAL_TOPICS])

    def _on_revoke(self, _: Any, partitions: Sequence[Any]) -> None:
        """These partitions go to other members of the group: what was not read of them, and what may be committed."""
        self._drop([(one.topic, one.partition) for one in partitions])

    def _drop(self, partitions: Collection[tuple[str, int]]) -> None:
        self._pending.drop(partitions)
        for one in partitions:
            self._delivered.pop(one, None)

    def _store(self, offsets: Mapping[tuple[str, int], int]) -> None:
        """Let the next automatic commit have these offsets, of partitions that are still this member's."""
        from confluent_kafka import KafkaException, TopicPartition

        for (topic, partition), offset in offsets.items():
            try:
                self._consumer.store_offsets(offsets=[TopicPartition(topic, partition, offset)])
            except KafkaException:
                continue

    # -- offsets

    def commit(self, offsets: Sequence[tuple[str, int, int, str]] | None) -> None:
        """Commit that these records (topic, partition, offset, metadata) were read; None stands for all that were."""
        from confluent_kafka import TopicPartition

        if offsets is None:
            rows = [TopicPartition(*key, offset) for key, offset in self._delivered.items()]
        else:
            rows = [TopicPartition(topic, one, offset + 1, text) for topic, one, offset, text in offsets]
        if not rows:
            return
        for row in self._ask(lambda: self._consumer.commit(offsets=rows, asynchronous=False)) or ():
            if row.error is not None:
                raise _error_of(row.error)

    def committed(self, partitions: Sequence[tuple[str, int]]) -> list[Row]:
        """The committed offsets of these partitions; those without one are left out."""
        from confluent_kafka import TopicPartition

        if not partitions:
            return []
        rows = [TopicPartition(*one) for one in partitions]
        found = self._ask(lambda: self._consumer.committed(rows, timeout=_TIMEOUT_S))
        for row in found:
            if row.error is not None:
                raise _error_of(row.error)
        return [
            {"topic": one.topic, "partition": one.partition, "offset": one.offset, "metadata": one.metadata or ""}
            for one in found
            if one.offset >= 0
        ]

    def seek(self, offsets: Mapping[tuple[str, int], int]) -> None:
        """Read on from these offsets. Raises `RestError` (40903) for a partition that is not assigned."""
        self._check_assigned(offsets)
        self._drop(offsets)
        for (topic, partition), offset in offsets.items():
            self._seek(topic, partition, offset)

    def _check_assigned(self, partitions: Iterable[tuple[str, int]]) -> None:
        assigned = self.assignment()
        for topic, partition in partitions:
            if (topic, partition) not in assigned:
                raise RestError(40903, f"Illegal state: No current assignment for partition {topic}-{partition}")

    def seek_to(self, partitions: Sequence[tuple[str, int]], *, is_end: bool) -> None:
        """Read on from the beginning or from the end of these partitions."""
        from confluent_kafka import OFFSET_BEGINNING

        self._check_assigned(partitions)
        self.seek({one: self._end(*one) if is_end else OFFSET_BEGINNING for one in partitions})

    def _end(self, topic: str, partition: int) -> int:
        """Where a partition ends now; librdkafka itself would look when it fetches the next time."""
        from confluent_kafka import TopicPartition

        at = TopicPartition(topic, partition)
        return int(self._ask(lambda: self._consumer.get_watermark_offsets(at, timeout=_TIMEOUT_S))[1])

    def seek_to_times(self, times_ms: Mapping[tuple[str, int], int]) -> None:
        """Read on from the first record of this time or later in each partition, or from its end."""
        from confluent_kafka import TopicPartition

        if not times_ms:
            return
        self._check_assigned(times_ms)
        rows = [TopicPartition(*key, at) for key, at in times_ms.items()]
        found = self._ask(lambda: self._consumer.offsets_for_times(rows, timeout=_TIMEOUT_S))
        self.seek(
            {
                (one.topic, one.partition): one.offset if one.offset >= 0 else self._end(one.topic, one.partition)
                for one in found
            }
        )

    def _seek(self, topic: str, partition: int, offset: int) -> None:
        """A partition that was assigned just now cannot be sought yet, so that it is tried for a while."""
        from confluent_kafka import KafkaException, TopicPartition

        deadline = time.monotonic() + _TIMEOUT_S
        while True:
            try:
                self._consumer.seek(TopicPartition(topic, partition, offset))
                return
            except KafkaException as error:
                is_early = error.args[0].name() in ("_STATE", "_IN_PROGRESS")
                if not is_early or time.monotonic() > deadline or self.stopping.is_set():
                    raise _error_of(error.args[0]) from None
            self._fetch(_SEEK_PAUSE_S)
            self._pending.drop([(topic, partition)])

    def close(self) -> None:
        """Leave the group, and commit what is to be committed automatically."""
        if self._topics:
            with suppress(RestError):  # to close is what is left to do
                self._ask(self._leave)
        closing = threading.Thread(target=self._consumer.close, name="rest-consumer-close", daemon=True)
        closing.start()
        closing.join(_CLOSE_S)
        if closing.is_alive():
            _logger.warning("librdkafka does not close a consumer: its memory is kept until this process ends")

    def _leave(self) -> None:
        """Unsubscribe, and give the partitions back: within librdkafka's close, that may wait without an end."""
        self._consumer.unsubscribe()
        deadline = time.monotonic() + _LEAVE_S
        while self._consumer.assignment() and time.monotonic() < deadline:
            self._consumer.poll(_SEEK_PAUSE_S)

    def _reason(self, error: Any) -> RestError:
        """The error for one of librdkafka's. It waits for the coordinator of a group that it may not use, too.

        That the right is missing it says once, among the records.
        """
        if error.name() not in _WITHOUT_COORDINATOR:
            return _error_of(error)
        self._fetch(0.0)
        return self._missing_right or _error_of(error)

    def _forget(self) -> None:
        self._pending.clear()
        self._failure = None
        self._delivered.clear()

    def _ask(self, question: Any) -> Any:
        from confluent_kafka import KafkaException

        try:
            return question()
        except KafkaException as error:
            raise self._reason(error.args[0]) from None
        except (ValueError, TypeError) as error:  # a name with a zero byte, for one
            raise RestError(422, f"librdkafka does not take this: {error}") from None


def _error_of(error: Any) -> RestError:
    if error.code() > 0:
        return kafka_error(error.code(), error.str(), _RIGHTS)
    if error.retriable() or error.name() in ("_TRANSPORT", "_TIMED_OUT", "_ALL_BROKERS_DOWN", "_WAIT_COORD"):
        return RestError(KAFKA_RETRIABLE_ERROR, f"Retriable Kafka error: {error.str()}")
    if error.name() == "_AUTHENTICATION":
        return RestError(AUTHENTICATION_FAILED, f"Authentication failed: {error.str()}")
    if error.name() == "_INVALID_ARG":
        return RestError(422, error.str())
    return RestError(KAFKA_ERROR, f"Kafka error: {error.str()}")


def timestamp_ms(text: str) -> int:
    """The milliseconds of a time like `2026-01-31T12:00:00Z`. Raises `RestError`."""
    try:
        found = datetime.fromisoformat(text)
        return round((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1000)
    except (ValueError, OverflowError):
        raise RestError(422, f"{text[:40]!r} is no time like 2026-01-31T12:00:00Z") from None
