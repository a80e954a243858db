"""What the coordinator answers to a request about a transactional id, and to which state the id goes. All pure.

A decision is an answer, or a transition: the answer is then given when the new state is durable. `current` is the last
durable state of the id. An id is busy while its next state is being written, and while the markers of its transaction
are being written. The order of the checks is that of Apache Kafka 4.2, since clients see which error comes first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from ...runtime.invariants import sometimes
from ...wire.errors import ErrorCode
from ...wire.types import TopicPartition
from .transaction_metadata import (
    EPOCH_BUMP_VERSION,
    EPOCH_MAX,
    NO_EPOCH,
    NO_PRODUCER_ID,
    TransactionMetadata,
    TransactionState,
)


class Producer(NamedTuple):
    """A producer id and an epoch, as a client names them."""

    producer_id: int
    producer_epoch: int


NO_PRODUCER = Producer(NO_PRODUCER_ID, NO_EPOCH)


class Answer(NamedTuple):
    """The answer to a request: an error, or the producer id and epoch that the client goes on with."""

    error: ErrorCode = ErrorCode.NONE
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_EPOCH
    ongoing: Producer = NO_PRODUCER
    """The producer of a transaction that was kept."""


class Transition(NamedTuple):
    """The next state of the id, and the answer when it is durable."""

    value: TransactionMetadata
    answer: Answer = Answer()


Decision: TypeAlias = "Answer | Transition"
ProducerIds: TypeAlias = Callable[[], int | None]
"""Gives a new producer id; None while this broker has none left."""

_NO_IDS = Answer(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
"""Clients retry it."""
_BUSY = Answer(ErrorCode.CONCURRENT_TRANSACTIONS)
_FENCED = Answer(ErrorCode.PRODUCER_FENCED)
_UNKNOWN = Answer(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
_INVALID_STATE = Answer(ErrorCode.INVALID_TXN_STATE)


def _granted(value: TransactionMetadata) -> Transition:
    return Transition(value, Answer(ErrorCode.NONE, value.producer_id, value.producer_epoch))


# -- InitProducerId


class InitRequest(NamedTuple):
    """InitProducerId: the time-out of transactions, and the producer that the client was before (KIP-360).

    `keeps_prepared`: a transaction that is open stays open, since an outside coordinator knows how it ends (KIP-939).
    """

    timeout_ms: int
    expected: Producer | None = None
    keeps_prepared: bool = False


def init_producer_id(
    current: TransactionMetadata | None,
    request: InitRequest,
    *,
    is_busy: bool,
    producer_ids: ProducerIds,
    transaction_version: int,
    now_ms: int,
) -> Decision:
    """A producer id and an epoch that fence all producers of the id before.

    A transaction that is open is aborted first; the client is answered CONCURRENT_TRANSACTIONS and asks again. To keep
    it takes records that hold two producers, and an epoch for each transaction: `transaction.version` 2. In Apache
    Kafka a producer with a former epoch aborts it, too, and fences its successor, before it is told that it is fenced.
    """
    if request.keeps_prepared and transaction_version < EPOCH_BUMP_VERSION:
        return Answer(ErrorCode.UNSUPPORTED_VERSION)
    if is_busy:
        sometimes(True, "a producer asked for its epoch while its transactional id was being written")
        return _BUSY
    if current is None:
        producer_id = producer_ids()
        if producer_id is None:
            sometimes(True, "a transaction coordinator had no producer id left to give")
            return _NO_IDS
        first = TransactionMetadata(producer_id, 0, request.timeout_ms, last_update_ms=now_ms)
        return _granted(first)
    expected = request.expected
    if expected is not None and not _may_continue(current, expected):
        sometimes(True, "a producer was fenced when it asked for its next epoch")
        return _FENCED
    if current.state is TransactionState.ONGOING:
        if expected not in (None, Producer(*current.client)):
            sometimes(True, "a former producer asked for its next epoch while a transaction of its successor was open")
            return _FENCED
        sometimes(not request.keeps_prepared, "a new producer aborted the transaction of the one before")
        if request.keeps_prepared:
            sometimes(True, "a new producer kept the prepared transaction of the one before")
            return _keep(current, request, producer_ids, now_ms)
        return Transition(current.fenced(transaction_version, now_ms), _BUSY)
    return _next_epoch(current, request, producer_ids, now_ms)


def _may_continue(current: TransactionMetadata, expected: Producer) -> bool:
    """Whether the client may be the id's last producer.

    Its producer id is the current one, or the previous one: then its last epoch was the highest, and it has missed the
    answer that gave it another producer id.
    """
    is_previous = expected.producer_id == current.previous_producer_id and expected.producer_epoch >= EPOCH_MAX - 1
    return expected.producer_id == current.client[0] or is_previous


def _keep(current: TransactionMetadata, request: InitRequest, producer_ids: ProducerIds, now_ms: int) -> Decision:
    """The transaction stays open, and only the producer that gets the next id and epoch may end it."""
    client = Producer(*current.client)
    if request.expected not in (None, client):
        return _FENCED
    following = client._replace(producer_epoch=client.producer_epoch + 1)
    if current.is_epoch_exhausted:
        producer_id = producer_ids()
        if producer_id is None:
            return _NO_IDS
        following = Producer(producer_id, 0)
    ongoing = Producer(current.producer_id, current.producer_epoch)
    return Transition(current.kept(*following, request.timeout_ms, now_ms), Answer(ErrorCode.NONE, *following, ongoing))


def _next_epoch(current: TransactionMetadata, request: InitRequest, producer_ids: ProducerIds, now_ms: int) -> Decision:
    timeout_ms, expected = request.timeout_ms, request.expected
    epoch, last_epoch = current.producer_epoch, current.last_producer_epoch
    is_last = expected is None or expected.producer_epoch == epoch
    if current.is_epoch_exhausted and (is_last or epoch == EPOCH_MAX):
        producer_id = producer_ids()
        if producer_id is None:
            return _NO_IDS
        keeps = expected is not None
        return _granted(current.with_producer_id(producer_id, timeout_ms, now_ms, keeps_last_epoch=keeps))
    if expected is None:
        return _granted(current.with_epoch(epoch + 1, NO_EPOCH, timeout_ms, now_ms))
    if is_last:
        return _granted(current.with_epoch(epoch + 1, epoch, timeout_ms, now_ms))
    if expected.producer_epoch == last_epoch:
        sometimes(True, "a producer asked again for the epoch that it had been given")
        # The client asks again: it has not got the answer. Nobody else can have the epoch, else there was no last one.
        return _granted(current.with_epoch(epoch, last_epoch, timeout_ms, now_ms))
    return _FENCED


# -- AddPartitionsToTxn, AddOffsetsToTxn


def _refusal(current: TransactionMetadata, producer: Producer) -> Answer | None:
    """The refusal of a producer that is not the current one. The highest epoch belongs to no producer."""
    producer_id, epoch = current.client
    if producer_id != producer.producer_id:
        return _UNKNOWN
    is_current = epoch == producer.producer_epoch < EPOCH_MAX
    return None if is_current else _FENCED


def add_partitions(
    current: TransactionMetadata | None,
    producer: Producer,
    partitions: frozenset[TopicPartition],
    *,
    is_busy: bool,
    client_version: int,
    now_ms: int,
) -> Decision:
    """Add partitions to the transaction, which begins with the first of them. None are added to one that was kept."""
    if is_busy:
        return _BUSY
    if current is None:
        return _UNKNOWN
    refusal = _refusal(current, producer)
    if refusal is not None:
        sometimes(refusal is _FENCED, "a fenced producer tried to add a partition to its transaction")
        return refusal
    if current.is_kept:
        return _INVALID_STATE
    if current.state is TransactionState.ONGOING and partitions <= current.partitions:
        return Answer()
    return Transition(current.with_partitions(partitions, client_version, now_ms))


def verify_partitions(
    current: TransactionMetadata | None, producer: Producer, partitions: frozenset[TopicPartition]
) -> dict[TopicPartition, ErrorCode]:
    """Whether each partition belongs to the transaction that is open: TRANSACTION_ABORTABLE where it does not."""
    wanted = sorted(partitions)
    if current is None:
        return dict.fromkeys(wanted, _UNKNOWN.error)
    refusal = _refusal(current, producer) or (_BUSY if current.state.is_ending else None)
    sometimes(current.state.is_ending, "a partition asked about a transaction that was ending")
    if refusal is None and current.is_kept:
        refusal = _INVALID_STATE
    if refusal is not None:
        return dict.fromkeys(wanted, refusal.error)
    sometimes(not partitions <= current.partitions, "a partition asked about a transaction that it did not belong to")
    return {one: ErrorCode.NONE if one in current.partitions else ErrorCode.TRANSACTION_ABORTABLE for one in wanted}


# -- EndTxn and time-outs


def end_transaction(
    current: TransactionMetadata | None,
    producer: Producer,
    *,
    is_commit: bool,
    is_busy: bool,
    client_version: int,
    producer_ids: ProducerIds,
    now_ms: int,
) -> Decision:
    """Decide the end of the transaction. The answer says that it is final; markers are written afterwards."""
    if current is None:
        return _BUSY if is_busy else _UNKNOWN
    if client_version >= EPOCH_BUMP_VERSION:
        return _end_with_bump(current, producer, is_commit, is_busy, client_version, producer_ids, now_ms)
    return _end(current, producer, is_commit, is_busy, client_version, now_ms)


def _end(
    current: TransactionMetadata, producer: Producer, is_commit: bool, is_busy: bool, client_version: int, now_ms: int
) -> Decision:
    """The end by a client that keeps its epoch."""
    refusal = _refusal(current, producer)
    if refusal is not None:
        return refusal
    if is_busy:
        return _BUSY
    if current.state is TransactionState.ONGOING:
        return Transition(current.ending(_prepare(is_commit), client_version, now_ms))
    return Answer() if current.state is _complete(is_commit) else _INVALID_STATE


def _end_with_bump(
    current: TransactionMetadata,
    producer: Producer,
    is_commit: bool,
    is_busy: bool,
    client_version: int,
    producer_ids: ProducerIds,
    now_ms: int,
) -> Decision:
    """The end by a client whose epoch is bumped by it.

    When the client asks again, its epoch is one behind, or it has another producer id meanwhile. A transaction that
    ended without a bump was of a producer that came after the one with the epoch below. With the current epoch the
    request belongs to the next transaction, which may have no partitions yet: then there is nothing to commit, and an
    abort bumps the epoch all the same.
    """
    if is_busy:
        return _BUSY
    has_next_id = (
        producer.producer_id == current.previous_producer_id
        and producer.producer_epoch == EPOCH_MAX - 1
        and current.producer_epoch == 0
    )
    producer_id, epoch = current.client
    if producer_id != producer.producer_id and not has_next_id:
        return _UNKNOWN
    has_ended = current.state in (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)
    has_bumped = has_ended and current.client_version >= EPOCH_BUMP_VERSION
    if has_bumped and (has_next_id or current.producer_epoch == producer.producer_epoch + 1):
        sometimes(True, "a producer ended its transaction again, whose end had been answered")
        answer = Answer(ErrorCode.NONE, current.producer_id, current.producer_epoch)
        return answer if current.state is _complete(is_commit) else _INVALID_STATE
    if not producer.producer_epoch == epoch < EPOCH_MAX:
        sometimes(True, "a fenced producer tried to end a transaction")
        return _FENCED
    if is_commit and current.state is not TransactionState.ONGOING:
        sometimes(True, "a producer tried to commit a transaction that was not open")
        return _INVALID_STATE
    next_producer_id = producer_ids() if current.is_epoch_exhausted else NO_PRODUCER_ID
    if next_producer_id is None:
        return _NO_IDS
    value = current.ending(_prepare(is_commit), client_version, now_ms, next_producer_id=next_producer_id)
    after = value.completed(now_ms)
    return Transition(value, Answer(ErrorCode.NONE, after.producer_id, after.producer_epoch))


def _prepare(is_commit: bool) -> TransactionState:
    return TransactionState.PREPARE_COMMIT if is_commit else TransactionState.PREPARE_ABORT


def _complete(is_commit: bool) -> TransactionState:
    return TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT
