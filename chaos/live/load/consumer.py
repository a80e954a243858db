"""Consumers of confluent-kafka with assigned partitions, which write every record that they read into a history.

`python -m raftwerk.chaos.live.load.consumer TASK`.

Role `consumer` follows the topic from its beginning until standard input
ends; role `final` reads every partition once to the end that it has now.
"""

from __future__ import annotations

import sys
import time
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from ..history import HistoryWriter, ReadRecord
from .load_task import Task, asked_to_stop, client_config, decode_record

_POLL_S = 0.2
_POLL_RECORDS = 2000


class LoadConsumer:
    """A consumer of all partitions of the topic."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.final = task.role == "final"
        self.history = HistoryWriter(task.history, task.process)
        self.history.begin()
        config = {
            "group.id": f"chaos-{task.process}",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 100,
            "fetch.error.backoff.ms": 50,
        }
        self._client: Any = Consumer(client_config(task, **config))
        self.positions = dict.fromkeys(range(task.partitions), 0)

    def follow(self) -> None:
        """Read until standard input ends."""
        self._assign()
        while not asked_to_stop():
            self._poll()
            self.history.flush()
        self._close()

    def read_to_end(self) -> bool:
        """Read to the current end; whether every partition was read to its end within the time limit."""
        deadline = time.monotonic() + self.task.limit_s
        ends = {partition: self._end_of(partition, deadline) for partition in self.positions}
        self._assign()
        while time.monotonic() < deadline and any(at < (ends[one] or 0) for one, at in self.positions.items()):
            self._poll()
        complete = True
        for partition, end in ends.items():
            if end is None or self.positions[partition] < end:
                complete = False
                continue
            fields = {"topic": self.task.topic, "partition": partition, "offset": end, "end": time.monotonic_ns()}
            self.history.event("ok", "final", **fields)
        self._close()
        return complete

    def _assign(self) -> None:
        for partition in self.positions:
            self.history.assigned(self.task.topic, partition, 0)
        self._client.assign([TopicPartition(self.task.topic, partition, 0) for partition in self.positions])

    def _poll(self) -> None:
        start_ns = time.monotonic_ns()
        messages = self._client.consume(_POLL_RECORDS, _POLL_S)
        end_ns = time.monotonic_ns()
        rows: dict[int, list[ReadRecord]] = {}
        for message in messages:
            if message.error() is None:
                offset, partition = message.offset(), message.partition()
                rows.setdefault(partition, []).append(decode_record(offset, message.key(), message.value()))
                self.positions[partition] = offset + 1
        for partition in sorted(rows):
            self.history.polled((self.task.topic, partition), rows[partition], (start_ns, end_ns), final=self.final)

    def _end_of(self, partition: int, deadline: float) -> int | None:
        place = TopicPartition(self.task.topic, partition)
        while time.monotonic() < deadline:
            try:
                end: int = self._client.get_watermark_offsets(place, timeout=5)[1]
                return end
            except KafkaException:
                time.sleep(0.1)
        return None

    def _close(self) -> None:
        self.history.close()
        self._client.close()


def main(task: Task) -> int:
    """Run a task; exit code 1 if a final read did not reach the end of every partition."""
    consumer = LoadConsumer(task)
    if consumer.final:
        return 0 if consumer.read_to_end() else 1
    consumer.follow()
    return 0


if __name__ == "__main__":
    sys.exit(main(Task.from_argument(sys.argv[1])))
