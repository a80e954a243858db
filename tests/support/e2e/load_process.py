"""A load of its own process: numbers to every partition of a topic until standard input ends; then what was acked.

Run as a program: bootstrap, topic, partitions, records a second. Prints one JSON object.
"""

from __future__ import annotations

import itertools
import json
import select
import subprocess
import sys
import time
from typing import Any

from confluent_kafka import Producer

SETTINGS = {
    "enable.idempotence": True,
    "acks": "all",
    "linger.ms": 2,
    "message.timeout.ms": 60000,
    "retry.backoff.ms": 50,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
}


class LoadProcess:
    """Handle of the process, for tests."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, rate: int) -> None:
        command = [sys.executable, __file__, bootstrap, topic, str(partitions), str(rate)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def finish(self) -> dict[str, Any]:
        """End it: `acked` is a list of numbers a partition, `failed` texts, `longest_gap_s` between acks."""
        told, _ = self._process.communicate(timeout=90)
        assert self._process.returncode == 0
        outcome: dict[str, Any] = json.loads(told)
        return outcome

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


def main(bootstrap: str, topic: str, partitions: int, rate: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, **SETTINGS})
    acked: list[list[int]] = [[] for _ in range(partitions)]
    failed: list[str] = []
    times: list[float] = []

    def on_delivery(number: int) -> Any:
        def on_delivery(error: Any, message: Any) -> None:
            if error is None:
                acked[message.partition()].append(number)
                times.append(time.monotonic())
            else:
                failed.append(str(error))

        return on_delivery

    number, next_at = 0, time.monotonic()
    while not select.select([sys.stdin], [], [], 0)[0]:
        while next_at <= time.monotonic():
            next_at += 1 / rate
            value = b"%d" % number
            producer.produce(topic, value, partition=number % partitions, on_delivery=on_delivery(number))
            number += 1
        producer.poll(0.002)
    left = producer.flush(60)
    gap_s = max((after - before for before, after in itertools.pairwise(times)), default=0.0)
    print(json.dumps({"acked": acked, "failed": failed, "left": left, "longest_gap_s": gap_s}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
