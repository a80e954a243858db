"""Appends the batches of transactional producers, once their partitions are verified.

The requests of one producer are appended in their order: while one of them waits for the coordinator, later ones wait
behind it, although they may be for other partitions. Most of them find the transaction open, and do not wait.

Producers may name a topic by its id, and batches are appended by its name. If another topic has the name by the time
that a batch has waited, the batch is refused, as where batches wait to be validated (`isr/leader/appends.py`).
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, Protocol
from uuid import UUID

from ...isr.leader.appends import Entries, Guards
from ...isr.ports import AppendCaller
from ...isr.results import AppendDone
from ...runtime.invariants import sometimes
from ...wire.errors import ErrorCode
from ...wire.produce import ProducePartitionResponse
from ...wire.records import BATCH_HEADER_SIZE, TRANSACTIONAL_FLAG
from ...wire.types import TopicPartition
from .partition_verifier import Operation, PartitionVerifier, TransactionalProducer, Verified

_ATTRIBUTES_AND_PRODUCER = struct.Struct(">22xB20xqhi")
"""The low byte of the attributes, producer id, epoch and base sequence of a batch."""
_RETRIABLE = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


class Log(Protocol):
    """Appends to the partitions of this broker (`ReplicaManager`)."""

    def append(
        self,
        acks: int,
        timeout_ms: int,
        entries: Entries,
        done: AppendDone,
        guards: Guards = ...,
        *,
        caller: AppendCaller | None = ...,
    ) -> None:
        """See `ReplicaManager.append`."""
        ...


class AppendRequest(NamedTuple):
    """A Produce request with a transactional id."""

    transactional_id: str
    operation: Operation
    acks: int
    timeout_ms: int
    entries: Entries
    done: AppendDone
    caller: AppendCaller | None = None
    on_appended: Callable[[], None] | None = None
    """Called when its batches are appended or refused, and their memory is not needed any more."""


@dataclass(slots=True, eq=False)
class _Waiting:
    """A request that waits for the coordinator, or behind one that does. Its entries are copies."""

    request: AppendRequest
    producer: TransactionalProducer
    sequences: Mapping[TopicPartition, int]
    topic_ids: Mapping[str, UUID | None]
    """The ids of its topics when it came."""


class TransactionalAppends:
    """Owns the order of the requests of each producer.

    `topic_id_of` gives the id that a topic has by the metadata, None while there is no such topic.
    """

    def __init__(self, verifier: PartitionVerifier, log: Log, topic_id_of: Callable[[str], UUID | None]) -> None:
        self._verifier = verifier
        self._log = log
        self._topic_id_of = topic_id_of
        self._waiting: dict[int, deque[_Waiting]] = {}
        """By producer id; the first one waits for the coordinator."""

    def append(self, request: AppendRequest) -> None:
        """As `ReplicaManager.append`. The memory of the entries is needed until the call returns."""
        producers, sequences = _producers(request)
        if not producers:
            self._append_at_once(request)
            return
        if len(producers) > 1:
            text = "the transactional batches of one request are of several producers"
            code = int(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
            rows = [ProducePartitionResponse(key.partition, code, error_message=text) for key, _ in request.entries]
            request.done(rows)
            return
        producer = producers[0]
        queue = self._waiting.get(producer.producer_id)
        if queue is None and not self._verifier.guards(producer, request.operation, sequences):
            self._append_at_once(request)
            return
        entries = [
            (key, None if records is None else memoryview(bytearray(records))) for key, records in request.entries
        ]
        topic_ids = {key.topic: self._topic_id_of(key.topic) for key, _ in entries}
        waiting = _Waiting(request._replace(entries=entries), producer, sequences, topic_ids)
        if queue is None:
            self._waiting[producer.producer_id] = deque([waiting])
            self._verify(waiting)
        else:
            sometimes(True, "a batch waited behind one whose transaction was being verified")
            queue.append(waiting)

    def _append_at_once(self, request: AppendRequest) -> None:
        self._log.append(request.acks, request.timeout_ms, request.entries, request.done, caller=request.caller)
        if request.on_appended is not None:
            request.on_appended()

    def _verify(self, waiting: _Waiting) -> None:
        request = waiting.request
        self._verifier.verify(waiting.producer, request.operation, waiting.sequences, partial(self._verified, waiting))

    def _verified(self, waiting: _Waiting, verified: Verified) -> None:
        queue = self._waiting[waiting.producer.producer_id]
        queue.popleft()
        try:
            self._append_verified(waiting, verified)
            while queue and not self._must_ask(queue[0]):
                self._append_verified(queue.popleft(), Verified({}, {}))
        finally:  # whatever happened to these requests, the others go on
            if queue:
                self._verify(queue[0])
            else:
                del self._waiting[waiting.producer.producer_id]

    def _must_ask(self, waiting: _Waiting) -> bool:
        return bool(self._verifier.guards(waiting.producer, waiting.request.operation, waiting.sequences))

    def _append_verified(self, waiting: _Waiting, verified: Verified) -> None:
        request = waiting.request
        rows = [self._refusal(waiting, key, verified) for key, _ in request.entries]
        entries = [entry for entry, row in zip(request.entries, rows, strict=True) if row is None]
        answer = request.done  # the copies of the batches must not be kept until the answer

        def done(responses: list[ProducePartitionResponse]) -> None:
            appended = iter(responses)
            answer([next(appended) if row is None else row for row in rows])

        if entries:
            self._log.append(
                request.acks, request.timeout_ms, entries, done, guards=verified.guards, caller=request.caller
            )
        else:
            done([])
        if request.on_appended is not None:
            request.on_appended()

    def _refusal(self, waiting: _Waiting, key: TopicPartition, verified: Verified) -> ProducePartitionResponse | None:
        if self._topic_id_of(key.topic) != waiting.topic_ids[key.topic]:
            sometimes(True, "a topic was deleted while its batch waited for a transaction coordinator")
            code = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return ProducePartitionResponse(key.partition, code, error_message=f"{key} was deleted meanwhile")
        if key in verified.errors:
            return _refused(key, verified.errors[key], waiting.request.operation)
        return None


def _producers(request: AppendRequest) -> tuple[list[TransactionalProducer], dict[TopicPartition, int]]:
    """Who wrote the transactional batches, and the base sequence of the batch for each partition."""
    producers: dict[TransactionalProducer, None] = {}
    sequences: dict[TopicPartition, int] = {}
    for key, records in request.entries:
        if records is None or len(records) < BATCH_HEADER_SIZE:
            continue
        attributes, producer_id, producer_epoch, sequence = _ATTRIBUTES_AND_PRODUCER.unpack_from(records)
        if attributes & TRANSACTIONAL_FLAG and producer_id >= 0:
            producers[TransactionalProducer(request.transactional_id, producer_id, producer_epoch)] = None
            sequences.setdefault(key, sequence)
    return list(producers), sequences


def _refused(key: TopicPartition, code: ErrorCode, operation: Operation) -> ProducePartitionResponse:
    """The response for a partition that the coordinator did not verify, in codes that the client can handle.

    NOT_ENOUGH_REPLICAS makes every client send the batch again, without asking for metadata first.
    """
    text = f"the transaction coordinator did not confirm the partition: {code.name}"
    if code in _RETRIABLE or (code == ErrorCode.CONCURRENT_TRANSACTIONS and not operation.adds):
        code = ErrorCode.NOT_ENOUGH_REPLICAS
    return ProducePartitionResponse(key.partition, int(code), error_message=text)
