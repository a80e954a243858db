"""Asks transaction coordinators about partitions before the first batch of a transaction goes to a log (KIP-890).

If a batch opened a transaction of which the coordinator does not know, the last stable offset would never move again.
So the leader of the partition has the coordinator verify that the partition was added to the transaction, or, for
clients with `transaction.version` 2, has it add the partition. The guard that the log gave out beforehand shows whether
a marker has come meanwhile.

The questions of one moment go to a coordinator in one request: while a request is on its way, others wait for the next.
Source: AddPartitionsToTxnManager of Apache Kafka.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from ...isr.leader.appends import Guards
from ...log.state.transaction_verification import VerificationGuard
from ...runtime.invariants import sometimes
from ...runtime.loop import TaskSet
from ...wire.api_keys import ApiKey
from ...wire.codec import Struct
from ...wire.errors import ErrorCode, ProtocolError, known_error
from ...wire.types import TopicPartition
from ..to_brokers.broker_channels import Channels

logger = logging.getLogger("raftwerk.transactions")

_REQUEST_VERSION = 5
_FIRST_BACKOFF_MS = 2
"""A transaction mostly ends within some milliseconds; the wait doubles up to `retry_backoff_ms`."""
Codes = Mapping[TopicPartition, ErrorCode]
"""The error codes of partitions; those that are not in it are in order."""


class TransactionalProducer(NamedTuple):
    """Who writes: a producer in one epoch, and the id under which its coordinator is found."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


class Operation(NamedTuple):
    """What the coordinator is asked, by the version of the client's request."""

    adds: bool
    """Whether the coordinator adds the partitions (`transaction.version` 2); it verifies them otherwise."""
    knows_abortable: bool = True
    """Whether the client knows TRANSACTION_ABORTABLE."""


def produce_operation(version: int) -> Operation:
    """The operation of a Produce request: clients with `transaction.version` 2 send versions from 12 on."""
    return Operation(adds=version >= 12, knows_abortable=version >= 11)


def offset_commit_operation(version: int) -> Operation:
    """The operation of a TxnOffsetCommit request: clients with `transaction.version` 2 send version 5."""
    return Operation(adds=version >= 5, knows_abortable=version >= 4)


class Verified(NamedTuple):
    """What may be appended: not the partitions in `errors`, and with `guards` where the log asks for one."""

    errors: Codes
    guards: Guards


class VerifiedReplica(Protocol):
    """The leader of a partition (`Replica`)."""

    def begin_verification(
        self, producer_id: int, producer_epoch: int, base_sequence: int, *, supports_epoch_bump: bool
    ) -> VerificationGuard | None:
        """The guard of a batch; None when its transaction is open here. Raises `ProtocolError`."""
        ...


class Replicas(Protocol):
    """The partitions of this broker (`ReplicaManager`)."""

    @property
    def partitions(self) -> Mapping[TopicPartition, VerifiedReplica]:
        """All replicas that this broker hosts."""
        ...

    @property
    def verifies_transactions(self) -> bool:
        """Whether batches need a guard (`transaction.partition.verification.enable`)."""
        ...


@dataclass(frozen=True, slots=True)
class VerifierConfig:
    """request.timeout.ms and add.partitions.to.txn.retry.backoff.*; times in milliseconds."""

    request_timeout_ms: int = 30_000
    retry_backoff_ms: int = 20
    retry_backoff_max_ms: int = 100


@dataclass(slots=True, eq=False)
class Question:
    """Partitions of one producer, and who wants to know."""

    producer: TransactionalProducer
    operation: Operation
    partitions: Sequence[TopicPartition]
    done: Callable[[Codes], None]
    has_own_row: bool = False
    """Whether it was asked in a row with others, and refused because of them."""

    def shares_row_with(self, other: Question) -> bool:
        """Whether one row of a request asks both."""
        is_alone = self.has_own_row or other.has_own_row
        return not is_alone and (self.producer, self.operation.adds) == (other.producer, other.operation.adds)


@dataclass(slots=True)
class CoordinatorQuestions:
    """The questions to one coordinator. A request has one row for each transactional id, and is sent alone."""

    waiting: list[Question] = field(default_factory=list)
    sent: list[Question] = field(default_factory=list)

    def take(self) -> list[Question]:
        """The questions of the next request; none while one is on its way.

        Questions about one id go together if they are the same but for the partitions, unless one needs a row of its
        own; the others wait for the next.
        """
        if self.sent:
            return []
        chosen: dict[str, Question] = {}
        left: list[Question] = []
        for question in self.waiting:
            first = chosen.setdefault(question.producer.transactional_id, question)
            (self.sent if question is first or question.shares_row_with(first) else left).append(question)
        self.waiting = left
        return list(self.sent)


def request_fields(questions: Sequence[Question]) -> dict[str, Any]:
    """The fields of AddPartitionsToTxn for the questions of one request."""
    rows: dict[str, dict[str, Any]] = {}
    topics: dict[str, dict[str, dict[int, None]]] = {}
    for question in questions:
        transactional_id, producer_id, producer_epoch = question.producer
        rows[transactional_id] = {
            "transactional_id": transactional_id,
            "producer_id": producer_id,
            "producer_epoch": producer_epoch,
            "verify_only": not question.operation.adds,
        }
        of_id = topics.setdefault(transactional_id, {})
        for topic, partition in question.partitions:
            of_id.setdefault(topic, {})[partition] = None
    for transactional_id, row in rows.items():
        row["topics"] = [{"name": name, "partitions": list(them)} for name, them in topics[transactional_id].items()]
    return {"transactions": list(rows.values())}


def answers(questions: Sequence[Question], response: Struct) -> list[Codes]:
    """The answer to each question, as its client is to see it. A partition without an answer is not verified."""
    if response.error_code:
        # A client cannot do anything about a broker that may not ask (CLUSTER_AUTHORIZATION_FAILED).
        refused = known_error(response.error_code)
        refused = ErrorCode.INVALID_TXN_STATE if refused == ErrorCode.CLUSTER_AUTHORIZATION_FAILED else refused
        return [dict.fromkeys(question.partitions, refused) for question in questions]
    codes = {
        (row.transactional_id, topic.name, one.partition_index): known_error(one.partition_error_code)
        for row in response.results_by_transaction
        for topic in row.topic_results
        for one in topic.results_by_partition
    }
    found: list[Codes] = []
    for question in questions:
        by_partition = {
            key: codes.get((question.producer.transactional_id, *key), ErrorCode.UNKNOWN_SERVER_ERROR)
            for key in question.partitions
        }
        found.append({key: _for_client(code, question.operation) for key, code in by_partition.items() if code})
    return found


def _for_client(code: ErrorCode, operation: Operation) -> ErrorCode:
    if code == ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code == ErrorCode.TRANSACTION_ABORTABLE and not operation.knows_abortable:
        return ErrorCode.INVALID_TXN_STATE
    return code


class PartitionVerifier:
    """Verifies partitions for Produce and TxnOffsetCommit.

    `coordinator_of` gives the broker that coordinates a transactional id, None while there is none.
    """

    def __init__(
        self,
        config: VerifierConfig,
        replicas: Replicas,
        channels: Channels,
        coordinator_of: Callable[[str], int | None],
    ) -> None:
        self._config = config
        self._replicas = replicas
        self._channels = channels
        self._coordinator_of = coordinator_of
        self._questions: dict[int, CoordinatorQuestions] = {}
        self._tasks = TaskSet()

    def guards(
        self, producer: TransactionalProducer, operation: Operation, sequences: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, VerificationGuard]:
        """The guards of the partitions that must be verified, of batches that begin with these sequence numbers.

        A partition that this broker does not lead is left out: the append says why it is refused.
        """
        if not (operation.adds or self._replicas.verifies_transactions):
            return {}
        guards = {}
        for key, sequence in sequences.items():
            replica = self._replicas.partitions.get(key)
            if replica is None:
                continue
            try:
                guard = replica.begin_verification(
                    producer.producer_id, producer.producer_epoch, sequence, supports_epoch_bump=operation.adds
                )
            except ProtocolError:
                continue
            if guard is not None:
                guards[key] = guard
        return guards

    def verify(
        self,
        producer: TransactionalProducer,
        operation: Operation,
        sequences: Mapping[TopicPartition, int],
        done: Callable[[Verified], None],
    ) -> None:
        """Verify or add the partitions to which the producer writes, and call `done` once: at once if all are open."""
        loop = asyncio.get_running_loop()
        retry_until = loop.time() + self._config.retry_backoff_max_ms / 1000

        def ask(backoff_s: float) -> None:
            guards = self.guards(producer, operation, sequences)
            if not guards:
                done(Verified({}, {}))
                return

            def answered(errors: Codes) -> None:
                # A former transaction that is about to end is waited for here, since a Produce request is expensive
                # to send again.
                is_concurrent = operation.adds and ErrorCode.CONCURRENT_TRANSACTIONS in errors.values()
                if is_concurrent and loop.time() + backoff_s <= retry_until:
                    sometimes(True, "a batch waited for its producer's former transaction to end")
                    longer_s = min(2 * backoff_s, self._config.retry_backoff_ms / 1000)
                    loop.call_later(backoff_s, ask, longer_s)
                else:
                    done(Verified(errors, guards))

            self._ask(Question(producer, operation, list(guards), answered))

        ask(min(_FIRST_BACKOFF_MS, self._config.retry_backoff_ms) / 1000)

    def _ask(self, question: Question) -> None:
        coordinator = self._coordinator_of(question.producer.transactional_id)
        if coordinator is None:
            sometimes(True, "a transaction could not be verified because its id had no coordinator")
            codes = dict.fromkeys(question.partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            asyncio.get_running_loop().call_soon(question.done, codes)
            return
        questions = self._questions.setdefault(coordinator, CoordinatorQuestions())
        questions.waiting.append(question)
        if not questions.sent:
            self._send_next(coordinator, questions)

    def _send_next(self, coordinator: int, questions: CoordinatorQuestions) -> None:
        sent = questions.take()
        if not sent:
            del self._questions[coordinator]
            return
        self._tasks.spawn(self._send(coordinator, questions, sent), name="verification of transactions")

    async def _send(self, coordinator: int, questions: CoordinatorQuestions, sent: list[Question]) -> None:
        try:
            response = await self._channels.request(
                coordinator,
                ApiKey.ADD_PARTITIONS_TO_TXN,
                _REQUEST_VERSION,
                request_fields(sent),
                timeout_ms=self._config.request_timeout_ms,
            )
            found = answers(sent, response)
        except Exception as error:  # whatever it is, who asked is to know, and the next questions are to be sent
            sometimes(True, "a transaction coordinator did not answer whether a batch may open a transaction")
            logger.warning("broker %d did not verify %d transactions: %s", coordinator, len(sent), error)
            found = [dict.fromkeys(question.partitions, ErrorCode.NETWORK_EXCEPTION) for question in sent]
        questions.sent.clear()
        for question, codes in zip(sent, found, strict=True):
            if not question.has_own_row and set(codes.values()) == {ErrorCode.OPERATION_NOT_ATTEMPTED}:
                sometimes(True, "a partition was not added to a transaction because of another request's partition")
                question.has_own_row = True
                questions.waiting.append(question)
            else:
                asyncio.get_running_loop().call_soon(question.done, codes)
        self._send_next(coordinator, questions)

    def close(self) -> None:
        """Ask nothing more."""
        self._tasks.cancel_soon()
