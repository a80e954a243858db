"""A transactional producer of confluent-kafka that writes each transaction and its outcome into a history.

An outcome is `ok` when the commit was reported, `fail` when the abort was, and `info` when the client does not know. A
transaction may end in a mishap: the process kills itself, or it stops itself until its parent wakes it as a zombie.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

from ...history import HistoryWriter
from ..load_task import Task, client_config
from .transactional_topics import encode_value

TRANSACTION_TIMEOUT_MS = 10_000
"""After so long the coordinator aborts a transaction that its producer has left open."""
_CALL_S = 10.0
_CUT_SHORT_S = 0.003

READY, STALLED = b"ready\n", b"stalled\n"
"""What an incarnation tells its parent on standard output."""


class Mishap(Enum):
    """What befalls a process in the middle of a transaction."""

    NONE = "none"
    CRASH_WRITING = "it dies when some records are written"
    CRASH_COMMITTING = "it dies while it waits for the answer to its commit"
    STALL_WRITING = "it stands still before it asks for the commit"
    STALL_COMMITTING = "it stands still when it is about to ask for the commit"


@dataclass(frozen=True, slots=True)
class TransactionPlan:
    """What a transaction is to do. Rows of `writes` and `inputs` are those of the history's format."""

    writes: Sequence[Sequence[Any]]
    is_commit: bool = True
    inputs: Sequence[Sequence[Any]] = ()
    group: str | None = None
    metadata: Any = None
    pause_s: float = 0.0
    mishap: Mishap = Mishap.NONE


class IncarnationOver(Exception):
    """This incarnation can do nothing more: it was fenced, or it does not know the outcome of its transaction."""


@dataclass
class _Open:
    """The transaction that is under way."""

    name: str
    fields: dict[str, Any]
    acks: list[int | None] = field(default_factory=list)
    commit_ns: int | None = None


class TransactionalClient:
    """One incarnation of a transactional id."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.history = HistoryWriter(task.history, task.process)
        self.history.begin()
        self.count = 0
        self._client = Producer(
            client_config(
                task,
                **{
                    "transactional.id": f"{task.topic}-{task.name}",
                    "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                    "linger.ms": 2,
                    "retry.backoff.ms": 50,
                    "retry.backoff.max.ms": 200,
                },
            )
        )

    def begin(self) -> None:
        """Fence the incarnations before, and tell the parent."""
        try:
            self._until_done(lambda: self._client.init_transactions(_CALL_S))
        except KafkaException as error:
            raise IncarnationOver(str(error)) from error
        os.write(1, READY)

    def transact(self, plan: TransactionPlan) -> bool:
        """Carry out a transaction; whether it was committed. `IncarnationOver` if nothing can follow."""
        self.count += 1
        name = f"{self.task.process}:{self.count}"
        told: dict[str, Any] = {"txn": name, "id": self.task.name, "incarnation": self.task.incarnation}
        told |= {"writes": plan.writes, "start": time.monotonic_ns()}
        if plan.group is not None:
            told |= {"group": plan.group, "inputs": plan.inputs}
        current = _Open(name, told, [None] * len(plan.writes))
        self.history.event("invoke", "txn", **told)
        self.history.flush()
        try:
            self._client.begin_transaction()
            self._write(plan, current)
            if plan.is_commit:
                self._commit(plan, current)
            else:
                self._abort()
        except KafkaException as error:
            self._give_up(current, error)
            return False
        self._ended(current, "ok" if plan.is_commit else "fail")
        return plan.is_commit

    # -- the steps of a transaction

    def _write(self, plan: TransactionPlan, current: _Open) -> None:
        last = len(plan.writes) - 1
        for index, row in enumerate(plan.writes):
            value = encode_value(current.name, index, self.task.value_bytes)
            self._client.produce(row[0], value, partition=row[1], on_delivery=_on_delivery(current.acks, index))
            if index == last // 2 and (plan.pause_s or plan.mishap is Mishap.CRASH_WRITING):
                self._client.flush(_CALL_S)
                time.sleep(plan.pause_s)
                if plan.mishap is Mishap.CRASH_WRITING:
                    os.kill(os.getpid(), signal.SIGKILL)
        if plan.group is not None:
            offsets = [TopicPartition(topic, partition, end) for topic, partition, _, end in plan.inputs]
            self._until_done(lambda: self._client.send_offsets_to_transaction(offsets, plan.metadata, _CALL_S))

    def _commit(self, plan: TransactionPlan, current: _Open) -> None:
        self._client.flush(_CALL_S)
        if plan.mishap is Mishap.STALL_WRITING:
            self._stall()
        current.commit_ns = time.monotonic_ns()
        self.history.event("invoke", "commit", txn=current.name, start=current.commit_ns)
        self.history.flush()
        if plan.mishap is Mishap.STALL_COMMITTING:
            self._stall()
        if plan.mishap is Mishap.CRASH_COMMITTING:
            try:
                self._client.commit_transaction(_CUT_SHORT_S)
            finally:
                os.kill(os.getpid(), signal.SIGKILL)
        self._until_done(lambda: self._client.commit_transaction(_CALL_S))

    def _abort(self) -> None:
        self._until_done(lambda: self._client.abort_transaction(_CALL_S))
        self._client.poll(0)

    def _stall(self) -> None:
        """Stand still until the parent sends SIGCONT."""
        os.write(1, STALLED)
        os.kill(os.getpid(), signal.SIGSTOP)

    def _give_up(self, current: _Open, error: KafkaException) -> None:
        """Abort after an error. `IncarnationOver` if the outcome stays unknown, or if no transaction may follow."""
        kafka_error: KafkaError = error.args[0]
        if not kafka_error.fatal():
            try:
                self._abort()
            except KafkaException as other:
                error = other
            else:
                self._ended(current, "fail", str(kafka_error))
                return
        self._ended(current, "info", str(error.args[0]))
        raise IncarnationOver(str(error)) from error

    def _ended(self, current: _Open, type_: str, error: str = "") -> None:
        fields: Mapping[str, Any] = current.fields | {"acks": current.acks, "end": time.monotonic_ns()}
        if current.commit_ns is not None:
            fields = {**fields, "commit": current.commit_ns}
        if error:
            fields = {**fields, "error": error}
        self.history.event(type_, "txn", **fields)

    def _until_done(self, call: Callable[[], Any]) -> None:
        """Call again after errors that are retriable, up to the time limit of the task."""
        deadline = time.monotonic() + self.task.limit_s
        while True:
            try:
                call()
                return
            except KafkaException as error:
                if not error.args[0].retriable() or time.monotonic() > deadline:
                    raise
            time.sleep(0.05)


def _on_delivery(acks: list[int | None], index: int) -> Callable[[Any, Any], None]:
    def on_delivery(error: Any, message: Any) -> None:
        if error is None and message.offset() is not None and message.offset() >= 0:
            acks[index] = message.offset()

    return on_delivery
