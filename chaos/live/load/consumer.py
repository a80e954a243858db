"""Consumers of confluent-kafka with assigned partitions, which write every record that they read into a history.

`python -m raftwerk.chaos.live.load.consumer TASK`.

Role `consumer` follows the topic from its beginning until standard input ends; role `final` reads every partition once
to the end that it has now.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from ..history import HistoryWriter, ReadRecord
from .load_task import Task, asked_to_stop, client_config, decode_record

_POLL_S = 0.2
_POLL_RECORDS = 2000


class LoadConsumer:
    """A consumer of all partitions of some topics; of the task's topic if there are no others."""

    def __init__(self, task: Task, topics: Sequence[str] = (), *, isolation: str = "read_committed") -> None:
        self.task = task
        self.final = task.role.startswith("final")
        self.facts: dict[str, Any] = {}
        """What its lines say beside the partition."""
        self.history = HistoryWriter(task.history, task.process)
        self.history.begin()
        config = {
            "group.id": f"chaos-{task.process}",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 100,
            "fetch.error.backoff.ms": 50,
            "isolation.level": isolation,
            "enable.partition.eof": True,
        }
        self._client: Any = Consumer(client_config(task, **config))
        places = [(topic, index) for topic in topics or (task.topic,) for index in range(task.partitions)]
        self.positions = dict.fromkeys(places, 0)

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
        ends = {place: self._end_of(place, deadline) for place in self.positions}
        self._assign()
        while time.monotonic() < deadline and any(at < (ends[one] or 0) for one, at in self.positions.items()):
            self._poll()
        complete = True
        for place, end in ends.items():
            if end is None or self.positions[place] < end:
                complete = False
                continue
            where = {"topic": place[0], "partition": place[1], "offset": end}
            self.history.event("ok", "final", **where, **self.facts, end=time.monotonic_ns())
        self._close()
        return complete

    def _write(self, place: tuple[str, int], messages: Sequence[Any], times_ns: tuple[int, int]) -> None:
        """Write what one poll returned of one partition."""
        rows: list[ReadRecord] = [decode_record(one.offset(), one.key(), one.value()) for one in messages]
        self.history.polled(place, rows, times_ns, final=self.final)

    def _assign(self) -> None:
        for topic, partition in self.positions:
            self.history.assigned(topic, partition, 0, **self.facts)
        self._client.assign([TopicPartition(topic, partition, 0) for topic, partition in self.positions])

    def _poll(self) -> None:
        start_ns = time.monotonic_ns()
        messages = self._client.consume(_POLL_RECORDS, _POLL_S)
        end_ns = time.monotonic_ns()
        polled: dict[tuple[str, int], list[Any]] = {}
        for message in messages:
            place = (message.topic(), message.partition())
            if message.error() is None:
                polled.setdefault(place, []).append(message)
                self.positions[place] = message.offset() + 1
            elif message.error().code() == KafkaError._PARTITION_EOF:
                self.positions[place] = message.offset()
        for place in sorted(polled):
            self._write(place, polled[place], (start_ns, end_ns))

    def _end_of(self, place: tuple[str, int], deadline: float) -> int | None:
        while time.monotonic() < deadline:
            try:
                end: int = self._client.get_watermark_offsets(TopicPartition(*place), timeout=5)[1]
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
