"""The producer that all requests of a principal share: idempotent, acks=all, by librdkafka.

librdkafka calls back in a thread of its own; what it says is handed to the event loop in batches.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from ..wire.errors import ErrorCode
from .errors import KAFKA_ERROR, KAFKA_RETRIABLE_ERROR, RestError, kafka_error

_POLL_S = 0.2
_FLUSH_S = 5.0
_QUEUED_RECORDS = 100_000
_QUEUED_KBYTES = 256 * 1024
_FULL_PAUSE_S = 0.01
_METADATA_S = 5.0
_ENDED = "Retriable Kafka error: the proxy closes the connections of this user, and has not sent the record"
_RETRIABLE_LOCAL = (
    "_MSG_TIMED_OUT",
    "_TIMED_OUT",
    "_TRANSPORT",
    "_ALL_BROKERS_DOWN",
    "_PURGE_QUEUE",
    "_PURGE_INFLIGHT",
)
_OF_ENDED_PRODUCERS = ("_FATAL", "_PURGE_QUEUE", "_PURGE_INFLIGHT")
_RIGHTS: Mapping[int, str] = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "Write on the topic",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "IdempotentWrite on the cluster",
}
_UNKNOWN_LOCAL = ("_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION")


@dataclass(frozen=True, slots=True)
class NewRecord:
    """A record to produce; None for the partition lets the key decide, and for the timestamp means now."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    partition: int | None = None
    timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Acked:
    """Where a record is; all in-sync replicas have it."""

    partition: int
    offset: int
    timestamp_ms: int | None


class RecordProducer:
    """Produces records to any topics. `settings` are those of librdkafka: the addresses, and how it logs in."""

    def __init__(self, settings: Mapping[str, Any], delivery_timeout_ms: int) -> None:
        self._settings: dict[str, Any] = {
            **settings,
            "client.id": "raftwerk-rest",
            "enable.idempotence": True,
            "acks": "all",
            "linger.ms": 5,
            "partitioner": "murmur2_random",
            "message.max.bytes": 100_000_000,  # the brokers judge
            "batch.size": 900_000,
            "delivery.timeout.ms": delivery_timeout_ms,
            "queue.buffering.max.messages": _QUEUED_RECORDS,
            "queue.buffering.max.kbytes": _QUEUED_KBYTES,
            "allow.auto.create.topics": False,
            "log_level": 0,
            "logger": silent_logger(),
        }
        self._loop = asyncio.get_running_loop()
        self._producer: Any = None
        self._fatal: Any = None
        """What ended the producer before this one; None if nothing did."""
        self._may_poll = threading.Event()
        self._ended = threading.Event()
        self._poller = threading.Thread(target=self._poll, name="rest-producer", daemon=True)
        self._reports: deque[tuple[asyncio.Future[Acked], Any, Acked | None]] = deque()
        self._is_handing_over = False

    async def __aenter__(self) -> RecordProducer:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._ended.set()
        self._may_poll.set()
        if self._poller.is_alive():
            await asyncio.to_thread(self._poller.join)
        if self._producer is not None:
            await asyncio.to_thread(self._finish, self._producer)

    async def send(self, topic: str, record: NewRecord) -> asyncio.Future[Acked]:
        """Hand a record over; the future has its place, or raises `RestError`. Waits while too much is on its way."""
        acked: asyncio.Future[Acked] = self._loop.create_future()
        acked.add_done_callback(_seen)
        optional: dict[str, Any] = {}
        if record.partition is not None:
            optional["partition"] = record.partition
        if record.timestamp_ms is not None:
            optional["timestamp"] = record.timestamp_ms

        def on_delivery(error: Any, message: Any) -> None:
            place = None
            if error is None:
                kind, at = message.timestamp()
                place = Acked(message.partition(), message.offset(), at if kind else None)
            self._report(acked, error, place)

        has_asked = False
        while not self._ended.is_set():
            try:
                self._usable().produce(
                    topic, record.value, record.key, headers=list(record.headers), on_delivery=on_delivery, **optional
                )
                return acked
            except BufferError:
                await asyncio.sleep(_FULL_PAUSE_S)
            except Exception as error:  # what librdkafka refuses at once, such as a record that is too large for it
                cause = _kafka_error_in(error)
                if has_asked or cause is None or cause.name() not in _UNKNOWN_LOCAL:
                    acked.set_exception(self._error_of(cause))
                    return acked
                has_asked = True
                await asyncio.to_thread(_ask_for_partitions, self._usable(), topic)
        acked.set_exception(RestError(KAFKA_RETRIABLE_ERROR, _ENDED))
        return acked

    def _usable(self) -> Any:
        """The producer; a new one for the first record, and where an error has ended the one before."""
        from confluent_kafka import Producer

        if self._producer is None:
            self._producer = Producer(self._settings)
            self._may_poll.set()
            if not self._poller.is_alive():
                self._poller.start()
        return self._producer

    # -- in the thread of librdkafka's callbacks

    def _poll(self) -> None:
        while not self._ended.is_set():
            producer = self._producer
            if producer is None:
                self._may_poll.wait()
                continue
            try:
                producer.poll(_POLL_S)
            except Exception as error:  # a fatal one, such as that the user may write nowhere
                self._retire(producer, _kafka_error_in(error))

    def _finish(self, producer: Any) -> None:
        """Wait for a while until all records are acked. Those that are not fail."""
        error = None
        try:
            producer.flush(_FLUSH_S)
        except Exception as raised:  # a fatal one
            error = _kafka_error_in(raised)
        self._retire(producer, error)

    def _retire(self, producer: Any, error: Any) -> None:
        """End a producer that takes no more records: all that it still has fails by this error, if there is one."""
        self._fatal = error
        self._may_poll.clear()
        self._producer = None
        producer.purge()
        with suppress(Exception):  # the same error again
            producer.flush(_FLUSH_S)

    def _report(self, acked: asyncio.Future[Acked], error: Any, place: Acked | None) -> None:
        self._reports.append((acked, error, place))
        if not self._is_handing_over:
            self._is_handing_over = True
            self._loop.call_soon_threadsafe(self._hand_over)

    # -- in the event loop

    def _hand_over(self) -> None:
        self._is_handing_over = False
        while self._reports:
            acked, error, place = self._reports.popleft()
            if acked.done():
                continue
            if place is not None:
                acked.set_result(place)
            else:
                acked.set_exception(self._error_of(error))

    def _error_of(self, error: Any) -> RestError:
        is_end = error is not None and error.name() in _OF_ENDED_PRODUCERS
        return _error_of(self._fatal if is_end and self._fatal is not None else error)


def _seen(acked: asyncio.Future[Acked]) -> None:
    """Nobody may wait any more for a record whose client has gone; its error is no news then."""
    if not acked.cancelled():
        acked.exception()


def _ask_for_partitions(producer: Any, topic: str) -> None:
    """Let librdkafka know of partitions that were added, which it asks for by itself only every few minutes."""
    with suppress(Exception):  # the record is refused then, as it was before
        producer.list_topics(topic, _METADATA_S)


def _kafka_error_in(error: Exception) -> Any:
    return error.args[0] if error.args and hasattr(error.args[0], "code") else None


def _error_of(error: Any) -> RestError:
    """The error for one of librdkafka's, whose positive codes are those of Kafka's protocol."""
    if error is None:
        return RestError(KAFKA_ERROR, "Kafka error: the record cannot be produced")
    if error.code() > 0:
        return kafka_error(error.code(), error.str(), _RIGHTS)
    name = error.name()
    if name in _UNKNOWN_LOCAL:
        return kafka_error(3, error.str())
    if name in _RETRIABLE_LOCAL:
        return RestError(KAFKA_RETRIABLE_ERROR, f"Retriable Kafka error: {error.str()}: it may be written or not")
    return RestError(KAFKA_ERROR, f"Kafka error: {error.str()}")


def silent_logger() -> logging.Logger:
    """Where librdkafka logs, which would print its errors: they are answered to the clients of HTTP."""
    logger = logging.getLogger(f"{__name__}.librdkafka")
    logger.propagate = False
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
    return logger
