"""Writes one partition of a copy in transactions.

The transactional id is that of the partition, so a new attempt fences all earlier ones, those that still run too, and
ends what they left open. Whatever it finds committed then is all that will ever be there of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from ..errors import PipelineError
from .copy_reader import CLIENT, HEADER

TRANSACTIONAL_ID_PREFIX = "raftwerk-mirror."
_CALL_TIMEOUT_S = 120.0
_TRANSACTION_TIMEOUT_MS = 180_000
"""Longer than a transaction stays open, and its last records may wait for their acks."""
_COMMIT_EVERY_S = 10.0
"""Consumers at read_committed wait so long for a record at most, however large a batch is."""
_ABORT_TIMEOUT_S = 10.0
_POLL_S = 0.01
_RECORD_BYTES_MAX = 1_000_000_000
"""The largest that librdkafka knows: the target says how large a record may be, and a copy has a header more."""

OnDelivery = Callable[[Any, Any], None]


class CopyWriter:
    """The producer of one partition of a copy. `PipelineError` when the target does not take the records."""

    def __init__(
        self, bootstrap_servers: str, topic: str, partition: int, login: Mapping[str, str] | None = None
    ) -> None:
        from confluent_kafka import KafkaException, Producer

        self._place = (topic, partition)
        self._bootstrap = bootstrap_servers
        self._refusal = KafkaException
        self._began_at: float | None = None
        """When the open transaction began; None if there is none."""
        transactional_id = f"{TRANSACTIONAL_ID_PREFIX}{topic}-{partition}"
        # With sparse connections, librdkafka looks only every 500 ms whether the coordinator is connected.
        self._producer: Any = Producer(
            {"bootstrap.servers": bootstrap_servers, "transactional.id": transactional_id, "linger.ms": 5,
             "transaction.timeout.ms": _TRANSACTION_TIMEOUT_MS, "message.timeout.ms": 120_000,
             "queue.buffering.max.messages": 200_000, "message.max.bytes": _RECORD_BYTES_MAX,
             "enable.sparse.connections": False, **CLIENT, **(login or {})}
        )  # fmt: skip
        self._call(self._producer.init_transactions)

    def __enter__(self) -> CopyWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Abort what is open, so that readers do not wait for it. Where that fails, its time-out does it."""
        if kind is not None and self._began_at is not None:
            with suppress(self._refusal):
                self._producer.purge()
                self._producer.abort_transaction(_ABORT_TIMEOUT_S)

    def send(self, row: Mapping[str, Any], on_delivery: OnDelivery) -> None:
        """Send the copy of a record; `on_delivery` gets the error and the message when it is acked."""
        if self._began_at is not None and time.monotonic() > self._began_at + _COMMIT_EVERY_S:
            self.commit()
        try:
            if self._began_at is None:
                self._producer.begin_transaction()
                self._began_at = time.monotonic()
            self._produce(row, on_delivery)
        except self._refusal as refusal:
            raise self._not_taken(refusal) from None

    def commit(self) -> None:
        """Commit what was sent; then all of it is acked."""
        if self._began_at is not None:
            self._call(self._producer.commit_transaction)
            self._began_at = None

    def _produce(self, row: Mapping[str, Any], on_delivery: OnDelivery) -> None:
        topic, partition = self._place
        headers = [(one["key"], one["value"]) for one in row["headers"] or []]
        headers.append((HEADER, str(row["offset"]).encode()))
        while True:
            try:
                self._producer.produce(
                    topic,
                    value=row["value"],
                    key=row["key"],
                    partition=partition,
                    timestamp=row["timestamp_ms"],
                    headers=headers,
                    on_delivery=on_delivery,
                )
                break
            except BufferError:
                self._producer.poll(_POLL_S)
        self._producer.poll(0)

    def _call(self, step: Callable[[float], Any]) -> None:
        """Take a step of a transaction, again after errors that are retriable."""
        deadline = time.monotonic() + _CALL_TIMEOUT_S
        while True:
            try:
                step(max(1.0, deadline - time.monotonic()))
                return
            except self._refusal as refusal:
                if not refusal.args[0].retriable() or time.monotonic() > deadline:
                    raise self._not_taken(refusal) from None

    def _not_taken(self, refusal: Any) -> PipelineError:
        from confluent_kafka import KafkaError

        topic, partition = self._place
        error = refusal.args[0]
        copy = f"{topic}-{partition} at {self._bootstrap}"
        if error.code() in (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH):
            return PipelineError(f"another mirror has begun to copy to {copy}: let one of the two go on.")
        return PipelineError(f"the copy {copy} was not acked: {error.str()}")
