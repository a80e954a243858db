"""Apache Kafka's Java client in transactions: TransactionalMessageCopier copies a topic, run by run.

`python -m raftwerk.chaos.live.load.transactions.java_copier TASK`.

One run of the tool copies one partition, with random aborts, until it finds nothing more. It is started anew for each
partition in turn, with the same transactional id for the same partition; some runs are killed. After standard input has
ended, the tool runs until the group has come to the end of every partition. The tool itself counts markers as records
that are still to come, and so it does not know when it is done.
"""

from __future__ import annotations

import os
import random
import select
import subprocess
import sys
import time
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from ...checker.transactions.read_table import COMMITTED
from ...history import HistoryWriter
from ..child_process import tied
from ..java_producer import jars
from ..load_task import Task, asked_to_stop, client_config
from .transactional_client import TRANSACTION_TIMEOUT_MS
from .transactional_topics import PARTITIONS, TransactionalTopics

_TOOL = "org.apache.kafka.tools.TransactionalMessageCopier"
_TRANSACTION_RECORDS = 20
_PROGRESS = b'"totalProcessed":'
_END = KafkaError._PARTITION_EOF
_KILL_PROBABILITY = 0.3
_KILL_AFTER_MAX_S = 6.0
_IDLE_S = 1.5
_RUN_LIMIT_S = 30.0
_PAUSE_S = 1.0
_CALL_S = 5.0


class JavaCopier:
    """Runs the tool again and again."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.topics = TransactionalTopics.of(task.topic)
        self.rng = random.Random(f"{task.seed}/{task.name}")
        self.history = HistoryWriter(task.history, task.process)
        self.history.begin(copies=[self.topics.others, self.topics.copies, self.topics.copiers])

    def run(self) -> int:
        """Run until standard input ends, and then to the end of all partitions; the exit code."""
        number = 0
        while not asked_to_stop():
            is_killed = self.rng.random() < _KILL_PROBABILITY
            self._copy(number % PARTITIONS, self.rng.uniform(1.0, _KILL_AFTER_MAX_S) if is_killed else _RUN_LIMIT_S)
            number += 1
            time.sleep(_PAUSE_S)
        self.history.close()
        deadline = time.monotonic() + self.task.limit_s
        left = list(range(PARTITIONS))
        while left and time.monotonic() < deadline:
            left = [partition for partition in left if not self._is_copied(partition)]
            for partition in left:
                self._copy(partition, _RUN_LIMIT_S)
        return 1 if left else 0

    def _copy(self, partition: int, limit_s: float) -> None:
        """Run the tool until it makes no progress any more, or until it is killed at the limit."""
        progress, limit = b"", time.monotonic() + limit_s
        moved_at: float | None = None
        with subprocess.Popen(tied(self._command(partition)), stdout=subprocess.PIPE) as tool:
            try:
                while (now := time.monotonic()) < limit and tool.poll() is None:
                    line = self._next_line(tool)
                    if _PROGRESS in line and line.partition(_PROGRESS)[2] != progress:
                        progress, moved_at = line.partition(_PROGRESS)[2], now
                    if moved_at is not None and now > moved_at + _IDLE_S:
                        tool.terminate()
                        tool.wait(max(0.0, limit - now))
            except subprocess.TimeoutExpired:
                pass
            finally:
                tool.kill()

    @staticmethod
    def _next_line(tool: subprocess.Popen[bytes]) -> bytes:
        """What the tool prints next, nearly at once or not at all. It prints whole lines."""
        output = tool.stdout
        if output is None or not select.select([output], [], [], 0.2)[0]:
            return b""
        return os.read(output.fileno(), 1 << 16).rstrip(b"\n").rpartition(b"\n")[2]

    def _is_copied(self, partition: int) -> bool:
        """Whether there is no committed record behind the group's offset."""
        config = {"group.id": self.topics.copiers, "isolation.level": COMMITTED, "enable.partition.eof": True}
        config["enable.auto.commit"] = False
        consumer: Any = Consumer(client_config(self.task, **config))
        try:
            (place,) = consumer.committed([TopicPartition(self.topics.others, partition)], _CALL_S)
            place.offset = max(0, place.offset)
            consumer.assign([place])
            message = consumer.poll(_CALL_S)
            return message is not None and message.error() is not None and message.error().code() == _END
        except KafkaException:
            return False
        finally:
            consumer.close()

    def _command(self, partition: int) -> list[str]:
        name = f"{self.task.topic}-{self.task.name}"
        where = ["--input-topic", self.topics.others, "--input-partition", str(partition)]
        where += ["--output-topic", self.topics.copies, "--broker-list", self.task.bootstrap]
        who = ["--consumer-group", self.topics.copiers, "--transactional-id", f"{name}-{partition}"]
        shape = ["--transaction-size", str(_TRANSACTION_RECORDS), "--transaction-timeout", str(TRANSACTION_TIMEOUT_MS)]
        shape += ["--enable-random-aborts", "--use-group-metadata"]
        return ["java", "-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", f"{jars()}/*", _TOOL, *where, *who, *shape]


if __name__ == "__main__":
    sys.exit(JavaCopier(Task.from_argument(sys.argv[1])).run())
