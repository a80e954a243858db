"""The transactional ids of one partition of `__transaction_state`, as its records say. Pure: events in, effects out.

Each id has at most one write under way. The state changes when the write is durable, and not before: only then is the
request answered, and only then are markers written. When a write fails, the id stays in its last durable state. The
record may be in the log all the same, and the next coordinator may go on from there; both are right, since nobody was
told of either state.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple, TypeAlias

from ...runtime.invariants import invariant, sometimes
from ...wire.errors import ErrorCode
from ...wire.types import TopicPartition
from ..coordinators.effects import Persist, Reply
from ..coordinators.record_fields import BadRecord
from . import transaction_decisions as decisions
from .transaction_decisions import Answer, Decision, InitRequest, Producer, ProducerIds, Transition
from .transaction_metadata import TransactionMetadata, TransactionState
from .transaction_records import decode_key, decode_value, transaction_record


@dataclass(frozen=True, slots=True)
class WriteMarkers:
    """Write the markers of a transaction that is ending, and call `on_marked` with the partitions that have theirs."""

    transactional_id: str
    value: TransactionMetadata


@dataclass(frozen=True, slots=True)
class RetryCompletion:
    """Call `complete(transactional_id)` a little later: the end of the transaction could not be recorded."""

    transactional_id: str


Effect: TypeAlias = "Reply[Answer] | Persist[PendingWrite] | WriteMarkers | RetryCompletion"


NO_ANSWER = Answer()
IDS_PER_STEP = 500
"""Ids that are looked at in one step, and removed by one write at most."""


class PendingWrite(NamedTuple):
    """A write under way: the ids with their next states, None for removal; and the request that waits for it."""

    values: tuple[tuple[str, TransactionMetadata | None], ...]
    token: Any = None
    answer: Answer = NO_ANSWER


class TransactionEntry:
    """One id. `value` is the last durable state, None before the first; `pending` the write under way."""

    __slots__ = ("pending", "unmarked", "value")

    def __init__(self, value: TransactionMetadata | None) -> None:
        self.value = value
        self.pending: PendingWrite | None = None
        self.unmarked: dict[TopicPartition, None] = {}
        """Partitions of the transaction that is ending, without their markers yet."""

    @property
    def is_busy(self) -> bool:
        """Whether a write is under way, or markers are being written."""
        return self.pending is not None or (self.value is not None and self.value.state.is_ending)


class TransactionCoordinatorShard:
    """While it loads, it replays records in order; from `finish_loading` on it is active. It has one leader epoch."""

    def __init__(self, partition: int, leader_epoch: int, producer_ids: ProducerIds) -> None:
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.is_loading = True
        self.entries: dict[str, TransactionEntry] = {}
        self._open: dict[str, None] = {}
        """The ids whose transactions are open."""
        self.transaction_version = 0
        """The finalized level, by which records are written and producers fenced."""
        self._producer_ids = producer_ids
        self._effects: list[Effect] = []

    @property
    def name(self) -> str:
        """The shard in log lines."""
        return f"transaction partition {self.partition}"

    def drain(self) -> list[Effect]:
        """The effects since the last call, in order."""
        effects, self._effects = self._effects, []
        return effects

    # ---------------------------------------------------------------- loading

    def replay(self, key: bytes | None, value: bytes | None, *, transaction_of: int = -1) -> None:
        """Replay one record; keys of other types are skipped. Raises `BadRecord`."""
        if key is None:
            raise BadRecord("no key")
        transactional_id = decode_key(key)
        if transactional_id is None:
            return
        if value is None:
            self.entries.pop(transactional_id, None)
        else:
            self.entries[transactional_id] = TransactionEntry(decode_value(value))

    def end_transaction(self, producer_id: int, *, is_committed: bool) -> None:
        """No record here belongs to a transaction."""

    def finish_loading(self, now_ms: int) -> None:
        """All records are replayed, and committed: go on with the transactions that were ending."""
        self.is_loading = False
        for transactional_id, entry in self.entries.items():
            if entry.value is not None:
                self._note_open(transactional_id, entry.value)
                if entry.value.state.is_ending:
                    sometimes(True, "a new transaction coordinator went on with a transaction that was ending")
                    self._begin_markers(transactional_id, entry, now_ms)

    def _note_open(self, transactional_id: str, value: TransactionMetadata) -> None:
        if value.state is TransactionState.ONGOING:
            self._open[transactional_id] = None
        else:
            self._open.pop(transactional_id, None)

    def close(self, error: ErrorCode) -> None:
        """The shard is dropped: answer all that wait."""
        for entry in self.entries.values():
            if entry.pending is not None:
                sometimes(True, "a transaction coordinator resigned while it was writing")
                self._reply(entry.pending.token, Answer(error))
        self.entries.clear()
        self._open.clear()

    # ---------------------------------------------------------------- requests

    def current(self, transactional_id: str) -> TransactionMetadata | None:
        """The last durable state of the id."""
        entry = self.entries.get(transactional_id)
        return None if entry is None else entry.value

    def init_producer_id(self, token: Any, transactional_id: str, request: InitRequest, now_ms: int) -> None:
        """See `transaction_decisions.init_producer_id`."""
        decision = decisions.init_producer_id(
            self.current(transactional_id),
            request,
            is_busy=self._is_busy(transactional_id),
            producer_ids=self._producer_ids,
            transaction_version=self.transaction_version,
            now_ms=now_ms,
        )
        self._decide(token, transactional_id, decision)

    def add_partitions(
        self,
        token: Any,
        transactional_id: str,
        producer: Producer,
        partitions: frozenset[TopicPartition],
        client_version: int,
        now_ms: int,
    ) -> None:
        """See `transaction_decisions.add_partitions`."""
        decision = decisions.add_partitions(
            self.current(transactional_id),
            producer,
            partitions,
            is_busy=self._is_busy(transactional_id),
            client_version=client_version,
            now_ms=now_ms,
        )
        self._decide(token, transactional_id, decision)

    def verify_partitions(
        self, transactional_id: str, producer: Producer, partitions: frozenset[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """See `transaction_decisions.verify_partitions`."""
        return decisions.verify_partitions(self.current(transactional_id), producer, partitions)

    def end(
        self, token: Any, transactional_id: str, producer: Producer, is_commit: bool, client_version: int, now_ms: int
    ) -> None:
        """See `transaction_decisions.end_transaction`."""
        decision = decisions.end_transaction(
            self.current(transactional_id),
            producer,
            is_commit=is_commit,
            is_busy=self._is_busy(transactional_id),
            client_version=client_version,
            producer_ids=self._producer_ids,
            now_ms=now_ms,
        )
        self._decide(token, transactional_id, decision)

    def _is_busy(self, transactional_id: str) -> bool:
        entry = self.entries.get(transactional_id)
        return entry is not None and entry.is_busy

    def _decide(self, token: Any, transactional_id: str, decision: Decision) -> None:
        if isinstance(decision, Transition):
            self._persist(((transactional_id, decision.value),), token, decision.answer)
        else:
            self._reply(token, decision)

    # ---------------------------------------------------------------- time

    def abort_timed_out(self, now_ms: int) -> list[str]:
        """Abort the transactions that are open for longer than their time-outs; returns their ids."""
        timed_out = []
        for transactional_id in list(self._open):
            entry = self.entries[transactional_id]
            if entry.pending is None and entry.value is not None and entry.value.has_timed_out(now_ms):
                sometimes(True, "a transaction timed out and was aborted")
                self._persist(((transactional_id, entry.value.fenced(self.transaction_version, now_ms)),))
                timed_out.append(transactional_id)
        return timed_out

    def expire(self, now_ms: int, expiration_ms: int) -> Iterator[None]:
        """Remove the ids that have not changed for `expiration_ms`, and have no transaction; some ids in each step."""
        transactional_ids = iter(list(self.entries))
        while some := list(islice(transactional_ids, IDS_PER_STEP)):
            expired = tuple((one, None) for one in some if self._has_expired(one, now_ms - expiration_ms))
            if expired:
                self._persist(expired)
            yield

    def _has_expired(self, transactional_id: str, until_ms: int) -> bool:
        entry = self.entries.get(transactional_id)
        value = None if entry is None or entry.pending is not None else entry.value
        return value is not None and value.state.is_idle and value.last_update_ms <= until_ms

    # ---------------------------------------------------------------- writes and markers

    def on_persisted(self, write: PendingWrite, error: ErrorCode, now_ms: int) -> None:
        """A write is committed, or failed with `error`."""
        for transactional_id, value in write.values:
            entry = self.entries.get(transactional_id)
            if entry is None or entry.pending is not write:
                continue
            entry.pending = None
            if not error:
                self._apply(transactional_id, entry, value, now_ms)
            elif entry.value is None:
                del self.entries[transactional_id]
            elif entry.value.state.is_ending:
                sometimes(True, "the end of a transaction could not be written, and was tried again")
                self._effects.append(RetryCompletion(transactional_id))
        self._reply(write.token, Answer(error) if error else write.answer)

    def _apply(
        self, transactional_id: str, entry: TransactionEntry, value: TransactionMetadata | None, now_ms: int
    ) -> None:
        if value is None:
            del self.entries[transactional_id]
            return
        entry.value = value
        self._note_open(transactional_id, value)
        if value.state.is_ending:
            self._begin_markers(transactional_id, entry, now_ms)

    def _begin_markers(self, transactional_id: str, entry: TransactionEntry, now_ms: int) -> None:
        value = entry.value
        invariant(value is not None and value.state.is_ending, "markers are of a transaction that is ending")
        if value is not None and value.partitions:
            entry.unmarked = dict.fromkeys(sorted(value.partitions))
            self._effects.append(WriteMarkers(transactional_id, value))
        else:
            self.complete(transactional_id, now_ms)

    def on_marked(
        self, transactional_id: str, producer: Producer, partitions: Sequence[TopicPartition], now_ms: int
    ) -> None:
        """These partitions have their markers, which carry `producer`. The last ones complete the transaction."""
        entry = self.entries.get(transactional_id)
        value = None if entry is None else entry.value
        if entry is None or value is None or not value.state.is_ending:
            sometimes(True, "markers were answered whose transaction had ended already")
            return
        if (value.producer_id, value.producer_epoch) != producer:
            sometimes(True, "the markers of a former transaction were answered late")
            return
        for one in partitions:
            entry.unmarked.pop(one, None)
        if not entry.unmarked:
            self.complete(transactional_id, now_ms)

    def complete(self, transactional_id: str, now_ms: int) -> None:
        """Record that a transaction that is ending has all its markers. Does nothing when that is under way."""
        entry = self.entries.get(transactional_id)
        value = None if entry is None else entry.value
        if entry is None or value is None or entry.pending is not None:
            return
        if value.state.is_ending and not entry.unmarked:
            self._persist(((transactional_id, value.completed(now_ms)),))

    def _persist(
        self,
        values: tuple[tuple[str, TransactionMetadata | None], ...],
        token: Any = None,
        answer: Answer = NO_ANSWER,
    ) -> None:
        write = PendingWrite(values, token, answer)
        for transactional_id, _ in values:
            entry = self.entries.get(transactional_id)
            if entry is None:
                entry = self.entries[transactional_id] = TransactionEntry(None)
            invariant(entry.pending is None, "a transactional id has one write under way")
            entry.pending = write
        version = self.transaction_version
        records = tuple(transaction_record(key, value, version) for key, value in values)
        self._effects.append(Persist(records, write))

    def _reply(self, token: Any, answer: Answer) -> None:
        if token is not None:
            self._effects.append(Reply(token, answer))
