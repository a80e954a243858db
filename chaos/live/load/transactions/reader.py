"""A reader of all transactional topics at one isolation level, which writes what it reads into a history.

`python -m raftwerk.chaos.live.load.transactions.reader TASK`.

The role of the task names the isolation level: `reader-committed`, `reader-uncommitted`, which follow the topics until
standard input ends, and `final-committed`, `final-uncommitted`, which read every partition once.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from ..consumer import LoadConsumer
from ..load_task import Task
from .transactional_topics import ISOLATION_LEVELS, TransactionalTopics, decode_value


class TransactionReader(LoadConsumer):
    """A consumer of the transactional topics."""

    def __init__(self, task: Task) -> None:
        isolation = ISOLATION_LEVELS[task.role.rpartition("-")[2]]
        super().__init__(task, TransactionalTopics.of(task.topic).all, isolation=isolation)
        self.facts = {"isolation": isolation}

    def _write(self, place: tuple[str, int], messages: Sequence[Any], times_ns: tuple[int, int]) -> None:
        rows = [[one.offset(), *decode_value(one.value())] for one in messages]
        fields = {"topic": place[0], "partition": place[1], **self.facts, "records": rows}
        fields |= {"start": times_ns[0], "end": times_ns[1]} | ({"final": True} if self.final else {})
        self.history.event("ok", "read", **fields)


def main(task: Task) -> int:
    """Run a task; exit code 1 if a final read did not reach the end of every partition."""
    reader = TransactionReader(task)
    if reader.final:
        return 0 if reader.read_to_end() else 1
    reader.follow()
    return 0


if __name__ == "__main__":
    sys.exit(main(Task.from_argument(sys.argv[1])))
