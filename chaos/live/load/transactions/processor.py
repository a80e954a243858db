"""One incarnation of a processor: it reads, and writes effects and offsets in one transaction, as a group's member.

`python -m raftwerk.chaos.live.load.transactions.processor TASK`.

At the end it goes on until the group's offsets, its own and others', have come to the end of every input partition.
"""

from __future__ import annotations

import contextlib
import random
import sys
import time
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from ...checker.transactions.read_table import COMMITTED
from ..load_task import Task, asked_to_stop, client_config
from .transactional_client import IncarnationOver, Mishap, TransactionalClient, TransactionPlan
from .transactional_topics import PARTITIONS, TransactionalTopics
from .writer import draw_mishap

_ABORT_PROBABILITY = 0.1
_BATCH_MAX = 25
_POLL_S = 0.2
_CALL_S = 5.0


class Processor:
    """A member of the group, with a transactional producer of its own."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.rng = random.Random(f"{task.seed}/{task.process}")
        self.topics = TransactionalTopics.of(task.topic)
        self.client = TransactionalClient(task)
        config = {
            "group.id": self.topics.group,
            "isolation.level": COMMITTED,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 6_000,
            "heartbeat.interval.ms": 1_000,
            "fetch.wait.max.ms": 100,
            "fetch.error.backoff.ms": 50,
            "enable.partition.eof": True,
        }
        self._consumer: Any = Consumer(client_config(task, **config))
        self._batch: list[Any] = []
        self._ends: dict[int, int] = {}
        """Partitions of which everything was read, with the offset behind it."""

    def run(self) -> int:
        """Process until standard input ends and everything is processed; the exit code."""
        try:
            self.client.begin()
            self._consumer.subscribe([self.topics.inputs], on_assign=self._on_rebalance, on_revoke=self._on_rebalance)
            while not (asked_to_stop() and self._is_all_done()):
                self._poll()
                if self._batch:
                    self._process(is_calm=asked_to_stop())
            return 0
        except IncarnationOver as error:
            print(error, file=sys.stderr)
            return 1
        finally:
            self.client.history.close()
            self._consumer.close()

    def _poll(self) -> None:
        """Fill the batch. A rebalance empties it, because its partitions may have gone to other members."""
        self._batch.clear()
        until = time.monotonic() + _POLL_S
        while len(self._batch) < _BATCH_MAX and (left_s := until - time.monotonic()) > 0:
            message = self._consumer.poll(left_s)
            if message is None:
                continue
            if message.error() is None:
                self._ends.pop(message.partition(), None)
                self._batch.append(message)
            elif message.error().code() == KafkaError._PARTITION_EOF:
                self._ends[message.partition()] = message.offset()

    def _process(self, *, is_calm: bool) -> None:
        """One transaction with the effects of the batch and the offsets behind it; `is_calm`: without mishaps."""
        ranges: dict[int, list[int]] = {}
        writes = []
        for message in self._batch:
            row = ranges.setdefault(message.partition(), [message.offset(), 0])
            row[1] = message.offset() + 1
            place = [self.topics.effects, self.rng.randrange(PARTITIONS)]
            writes.append([*place, self.topics.inputs, message.partition(), message.offset()])
        mishap = Mishap.NONE if is_calm else draw_mishap(self.rng)
        is_commit = is_calm or mishap is not Mishap.NONE or self.rng.random() >= _ABORT_PROBABILITY
        inputs = [[self.topics.inputs, partition, *row] for partition, row in sorted(ranges.items())]
        if not self._transact(TransactionPlan(writes, is_commit, inputs, self.topics.group, mishap=mishap)):
            self._rewind({partition: row[0] for partition, row in ranges.items()})

    def _transact(self, plan: TransactionPlan) -> bool:
        metadata = self._consumer.consumer_group_metadata()
        values = (plan.writes, plan.is_commit, plan.inputs, plan.group, metadata)
        return self.client.transact(TransactionPlan(*values, mishap=plan.mishap))

    def _rewind(self, offsets: dict[int, int]) -> None:
        try:
            for partition, offset in offsets.items():
                self._consumer.seek(TopicPartition(self.topics.inputs, partition, offset))
                self._ends.pop(partition, None)
        except KafkaException as error:
            raise IncarnationOver(f"cannot go back after an abort: {error}") from error

    def _on_rebalance(self, _consumer: Any, _partitions: Any) -> None:
        self._batch.clear()
        self._ends.clear()

    # -- the end

    def _is_all_done(self) -> bool:
        """Whether the group has everything. The offset behind the last marker of a partition is committed for that."""
        if self._batch:
            return False
        with contextlib.suppress(KafkaException):
            committed = self._committed()
            for partition, end in sorted(self._ends.items()):
                if committed[partition] < end:
                    inputs = [[self.topics.inputs, partition, committed[partition], end]]
                    self._transact(TransactionPlan([], inputs=inputs, group=self.topics.group))
                    return False
            return all(committed[partition] >= self._end_of(partition) for partition in range(PARTITIONS))
        return False

    def _committed(self) -> dict[int, int]:
        places = [TopicPartition(self.topics.inputs, partition) for partition in range(PARTITIONS)]
        return {one.partition: max(0, one.offset) for one in self._consumer.committed(places, _CALL_S)}

    def _end_of(self, partition: int) -> int:
        end: int = self._consumer.get_watermark_offsets(TopicPartition(self.topics.inputs, partition), timeout=_CALL_S)[
            1
        ]
        return end


if __name__ == "__main__":
    sys.exit(Processor(Task.from_argument(sys.argv[1])).run())
