"""One incarnation of a transactional writer: several records to several partitions of two topics in one transaction.

`python -m raftwerk.chaos.live.load.transactions.writer TASK`.
"""

from __future__ import annotations

import random
import sys
import time

from ..load_task import Task, asked_to_stop
from .transactional_client import IncarnationOver, Mishap, TransactionalClient, TransactionPlan
from .transactional_topics import PARTITIONS, TransactionalTopics

_ABORT_PROBABILITY = 0.2
_LONG_PROBABILITY = 0.03
_LARGE_PROBABILITY = 0.05
_MISHAPS = {
    Mishap.CRASH_WRITING: 0.008,
    Mishap.CRASH_COMMITTING: 0.008,
    Mishap.STALL_WRITING: 0.008,
    Mishap.STALL_COMMITTING: 0.004,
}


def draw_mishap(rng: random.Random) -> Mishap:
    """What befalls the next transaction; mostly nothing."""
    return rng.choices([Mishap.NONE, *_MISHAPS], [1 - sum(_MISHAPS.values()), *_MISHAPS.values()])[0]


def draw_plan(rng: random.Random, topics: TransactionalTopics) -> TransactionPlan:
    """The next transaction of a writer."""
    count = rng.randint(10, 40) if rng.random() < _LARGE_PROBABILITY else rng.randint(1, 5)
    writes = [[rng.choice([topics.inputs, topics.others]), rng.randrange(PARTITIONS)] for _ in range(count)]
    mishap = draw_mishap(rng)
    return TransactionPlan(
        writes,
        is_commit=mishap is not Mishap.NONE or rng.random() >= _ABORT_PROBABILITY,
        pause_s=rng.uniform(0.3, 2.0) if rng.random() < _LONG_PROBABILITY else 0.0,
        mishap=mishap,
    )


def run(task: Task) -> int:
    """Write until standard input ends, and once more; the exit code."""
    rng = random.Random(f"{task.seed}/{task.process}")
    topics = TransactionalTopics.of(task.topic)
    client = TransactionalClient(task)
    try:
        client.begin()
        while not asked_to_stop():
            client.transact(draw_plan(rng, topics))
            time.sleep(rng.expovariate(task.rate))
        is_committed = client.transact(TransactionPlan([[topics.inputs, 0], [topics.others, 0]]))
        return 0 if is_committed else 1
    except IncarnationOver as error:
        print(error, file=sys.stderr)
        return 1
    finally:
        client.history.close()


if __name__ == "__main__":
    sys.exit(run(Task.from_argument(sys.argv[1])))
