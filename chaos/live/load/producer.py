"""A producer of confluent-kafka at a steady rate, idempotent if acks=all, which writes every answer into a history.

`python -m raftwerk.chaos.live.load.producer TASK`.

After most delivery errors it is unknown whether the record was written (`info`); a few say that it was not (`fail`).
The process itself never sends a record twice.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaError, Producer

from ..history import HistoryWriter, Send
from .load_task import Task, asked_to_stop, client_config, encode_value

_TICK_S = 0.005
_FLUSH_EVERY_S = 0.25
_SURELY_NOT_WRITTEN = (
    KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError.INVALID_MSG,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
)


class LoadProducer:
    """Sends records until standard input ends, then waits for the answers."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.history = HistoryWriter(task.history, task.process)
        self.idempotent = task.acks == "all"
        self.history.begin(producer=task.number, idempotent=self.idempotent)
        self.sent = 0
        self.answered = 0
        self._client = self._new_client()

    def run(self) -> None:
        """Run to the end. A send without an answer has no completion in the history."""
        began = flushed = time.monotonic()
        while not asked_to_stop():
            now = time.monotonic()
            due = int((now - began) * self.task.rate)
            if due - self.sent > self.task.rate:
                began += (due - self.sent) / self.task.rate
            self._send(due - self.sent)
            self._client.poll(_TICK_S)
            if now - flushed > _FLUSH_EVERY_S:
                self.history.flush()
                flushed = now
        deadline = time.monotonic() + self.task.limit_s
        while self.answered < self.sent and time.monotonic() < deadline:
            self._client.poll(0.1)
        self.history.close()

    def _send(self, count: int) -> None:
        """Send so many records, or fewer if the client's queue is full."""
        task = self.task
        sends = []
        for number in range(self.sent, self.sent + min(count, task.rate * 20 - len(self._client))):
            key = number * 7919 % task.keys
            sends.append(Send(task.number, number, key, task.topic, key % task.partitions, time.monotonic_ns()))
            self.history.send_invoked(sends[-1])
        if sends:
            self.history.flush()  # nobody can read a record that the history does not have, even if this process dies
        for send in sends:
            self.sent += 1
            self._produce(send)

    def _produce(self, send: Send) -> None:
        value = encode_value(send.producer, send.number, send.key, self.task.value_bytes)
        while True:
            try:
                done = self._on_delivery(send)
                self._client.produce(send.topic, value, str(send.key), partition=send.partition, on_delivery=done)
                return
            except BufferError:
                self._client.poll(_TICK_S)

    def _on_delivery(self, send: Send) -> Callable[[Any, Any], None]:
        def on_delivery(error: Any, message: Any) -> None:
            self.answered += 1
            end_ns = time.monotonic_ns()
            if error is None:
                offset = message.offset()
                told = offset if offset is not None and offset >= 0 else None
                self.history.send_done(send, "ok", end_ns, offset=told)
            else:
                type_ = "fail" if error.code() in _SURELY_NOT_WRITTEN else "info"
                self.history.send_done(send, type_, end_ns, error=str(error))

        return on_delivery

    def _new_client(self) -> Any:
        config = client_config(
            self.task,
            **{
                "enable.idempotence": self.idempotent,
                "acks": self.task.acks,
                "linger.ms": 2,
                "debug": "eos",  # its log tells of new epochs, after which what is not acknowledged is written again
                "message.timeout.ms": 120_000,
                "retry.backoff.ms": 50,
                "retry.backoff.max.ms": 200,
                "queue.buffering.max.messages": 1_000_000,
                "error_cb": self._on_error,
            },
        )
        return Producer(config)

    def _on_error(self, error: Any) -> None:
        if error.fatal():
            self.history.event("info", "client-error", error=str(error), start=time.monotonic_ns())
            self.history.close()
            sys.exit(f"{self.task.process}: {error}")


if __name__ == "__main__":
    LoadProducer(Task.from_argument(sys.argv[1])).run()
