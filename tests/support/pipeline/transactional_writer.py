"""A producer whose transactions are committed or aborted by turns, and what readers must get of them."""

from __future__ import annotations

import random
import threading
from typing import Any

from confluent_kafka import KafkaException
from support.e2e import transactions
from support.pipeline.topics import Sent, send

TIMEOUT_S = 60.0
ABORTED_SHARE = 0.4


class TransactionalWriter:
    """Writes rising numbers to the partitions of a topic, some in each transaction. `written` has what is committed."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, *, seed: int = 1) -> None:
        self.written: dict[int, list[int]] = {partition: [] for partition in range(partitions)}
        self.all: dict[int, list[int]] = {partition: [] for partition in range(partitions)}
        self._bootstrap, self._topic = bootstrap, topic
        self._rng = random.Random(seed)
        self._next = 0
        self._open: list[tuple[int, int]] = []
        self._producer = transactions.producer(bootstrap, f"{topic}-{seed}", **{"linger.ms": 5})
        self._ending = threading.Event()
        self._failed: list[BaseException] = []
        self._thread: threading.Thread | None = None

    @property
    def total(self) -> int:
        """The number of records that are committed."""
        return sum(map(len, self.written.values()))

    def begin(self, records: int = 10) -> None:
        """Open a transaction, and wait until its records are in the logs."""
        self._producer.begin_transaction()
        for _ in range(records):
            partition = self._rng.randrange(len(self.written))
            self._producer.produce(self._topic, b"%d" % self._next, b"k", partition)
            self._open.append((partition, self._next))
            self.all[partition].append(self._next)
            self._next += 1
        self._producer.flush(TIMEOUT_S)

    def end(self, *, commit: bool) -> None:
        """Commit or abort the open transaction. One that cannot be committed is aborted, as an application does."""
        if commit:
            commit = self._commit()
        if not commit:
            self._producer.abort_transaction(TIMEOUT_S)
        for partition, number in self._open if commit else ():
            self.written[partition].append(number)
        self._open = []

    def run(self, count: int) -> None:
        """Run so many transactions, with records of no transaction between some of them."""
        for number in range(count):
            self.begin(self._rng.randrange(1, 20))
            self.end(commit=self._rng.random() > ABORTED_SHARE)
            if number % 5 == 0:
                self._write_outside()

    def start(self) -> None:
        """Run transactions in a thread until `finish`."""
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def finish(self) -> None:
        """End the thread, and see that nothing failed."""
        self._ending.set()
        if self._thread is not None:
            self._thread.join()
        if self._failed:
            raise self._failed[0]

    def _run(self) -> None:
        try:
            while not self._ending.is_set():
                self.run(1)
        except BaseException as failure:
            self._failed.append(failure)

    def _commit(self) -> bool:
        while True:
            try:
                self._producer.commit_transaction(TIMEOUT_S)
                return True
            except KafkaException as failure:
                error: Any = failure.args[0]
                if error.txn_requires_abort():
                    return False
                if not error.retriable():
                    raise

    def _write_outside(self) -> None:
        partition = self._rng.randrange(len(self.written))
        send(self._bootstrap, self._topic, [Sent(partition, b"k", b"%d" % self._next)])
        self.all[partition].append(self._next)
        self.written[partition].append(self._next)
        self._next += 1
