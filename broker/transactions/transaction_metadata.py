"""The state of one transactional id, and the transitions between its states. Everything here is pure.

A transaction begins with the first partition that is added to it (Ongoing). Its end is decided when PrepareCommit or
PrepareAbort is durable: from then on it can only go on to CompleteCommit or CompleteAbort, which is written when every
partition has its marker. That is what makes a reported commit final, whatever happens to the coordinator.

With `transaction.version` 2 (KIP-890) each end bumps the producer's epoch. The markers carry the bumped epoch, so that
no batch that is late can enter the next transaction. When the epochs of a producer id are used up, the end also gives
the id's next producer id, which counts from the complete state on.

A transaction may be kept for a producer that has recovered (KIP-939): an outside coordinator decides how it ends. It
keeps the producer id and epoch of its records and markers. The recovered producer gets the next ones, and may only end
the transaction.

    Empty, CompleteCommit, CompleteAbort --add partitions--> Ongoing --add partitions--> Ongoing
    Ongoing --init producer id that keeps it--> Ongoing
    Ongoing --end--> PrepareCommit or PrepareAbort --all markers are written--> CompleteCommit or CompleteAbort
    Empty, CompleteCommit, CompleteAbort --init producer id--> Empty;  --abort, version 2--> PrepareAbort
    Empty, CompleteCommit, CompleteAbort --expiration--> Dead, which is not recorded: the id is removed
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import NamedTuple

from ...runtime.invariants import invariant
from ...wire.types import TopicPartition

NO_PRODUCER_ID = -1
NO_EPOCH = -1
EPOCH_MAX = 2**15 - 1
EPOCH_BUMP_VERSION = 2
"""The `transaction.version` from which each end of a transaction bumps the epoch."""
NO_TIMEOUT_MS = 2**31 - 1
"""The time-out of transactions that an outside coordinator ends (KIP-939): they are never aborted by time."""


class TransactionState(IntEnum):
    """The state, by its number in the records."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7
    """Never recorded. Apache Kafka's coordinator is in it while it fences a producer."""

    @property
    def label(self) -> str:
        """The name in responses, such as PrepareCommit."""
        return "".join(word.capitalize() for word in self.name.split("_"))

    @property
    def is_ending(self) -> bool:
        """Whether the end is decided, and markers are being written."""
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)

    @property
    def is_idle(self) -> bool:
        """Whether there is no transaction, so that the id may expire."""
        return self in _IDLE


STATES_BY_LABEL: Mapping[str, TransactionState] = {state.label: state for state in TransactionState}

_IDLE = frozenset({TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT})
_PREVIOUS: Mapping[TransactionState, frozenset[TransactionState]] = {
    TransactionState.EMPTY: _IDLE,
    TransactionState.ONGOING: _IDLE | {TransactionState.ONGOING},
    TransactionState.PREPARE_COMMIT: frozenset({TransactionState.ONGOING}),
    TransactionState.PREPARE_ABORT: _IDLE | {TransactionState.ONGOING},
    TransactionState.COMPLETE_COMMIT: frozenset({TransactionState.PREPARE_COMMIT}),
    TransactionState.COMPLETE_ABORT: frozenset({TransactionState.PREPARE_ABORT}),
}
"""From which states each recorded state is reached."""


class TransactionMetadata(NamedTuple):
    """What the record of a transactional id says, and `last_producer_epoch`. Times are wall-clock milliseconds.

    `previous_producer_id` is the producer id before the last change of it, until the next transition.
    `next_producer_id` follows `producer_id` when the transaction that is ending is complete. `next_producer_epoch` is
    that of the recovered producer of a transaction that was kept, to whom `next_producer_id` belongs then, too.
    `last_producer_epoch` is the epoch before the last bump that the producer itself asked for; it is not recorded, as
    in Apache Kafka. `client_version` is the `transaction.version` that the client of the present transaction speaks.
    """

    producer_id: int
    producer_epoch: int = NO_EPOCH
    timeout_ms: int = 0
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = -1
    last_update_ms: int = -1
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    client_version: int = 0
    last_producer_epoch: int = NO_EPOCH
    next_producer_epoch: int = NO_EPOCH

    @property
    def is_kept(self) -> bool:
        """Whether the transaction was kept for a producer that has recovered (KIP-939)."""
        return self.next_producer_epoch != NO_EPOCH

    @property
    def client(self) -> tuple[int, int]:
        """The producer id and epoch of the only producer that may act."""
        if self.is_kept:
            return self.next_producer_id, self.next_producer_epoch
        return self.producer_id, self.producer_epoch

    @property
    def is_epoch_exhausted(self) -> bool:
        """Whether no producer may get a higher epoch. One is left over, so that the last producer can be fenced."""
        return self.client[1] >= EPOCH_MAX - 1

    @property
    def is_commit(self) -> bool:
        """Whether the transaction that is ending is committed."""
        return self.state is TransactionState.PREPARE_COMMIT

    def has_timed_out(self, now_ms: int) -> bool:
        """Whether the transaction is open for longer than its time-out."""
        return (
            self.state is TransactionState.ONGOING
            and self.timeout_ms != NO_TIMEOUT_MS
            and self.start_ms + self.timeout_ms < now_ms
        )

    def with_epoch(self, producer_epoch: int, last_epoch: int, timeout_ms: int, now_ms: int) -> TransactionMetadata:
        """Empty, with the epoch of a producer that has been initialized."""
        return self._moved(
            TransactionState.EMPTY,
            now_ms,
            producer_epoch=producer_epoch,
            last_producer_epoch=last_epoch,
            timeout_ms=timeout_ms,
            partitions=frozenset(),
            start_ms=-1,
        )

    def with_producer_id(
        self, producer_id: int, timeout_ms: int, now_ms: int, *, keeps_last_epoch: bool
    ) -> TransactionMetadata:
        """Empty, with another producer id, whose first epoch is 0."""
        return self._moved(
            TransactionState.EMPTY,
            now_ms,
            producer_id=producer_id,
            previous_producer_id=self.producer_id,
            producer_epoch=0,
            last_producer_epoch=self.producer_epoch if keeps_last_epoch else NO_EPOCH,
            timeout_ms=timeout_ms,
            partitions=frozenset(),
            start_ms=-1,
        )

    def with_partitions(
        self, partitions: frozenset[TopicPartition], client_version: int, now_ms: int
    ) -> TransactionMetadata:
        """Ongoing, with more partitions."""
        return self._moved(
            TransactionState.ONGOING,
            now_ms,
            partitions=self.partitions | partitions,
            start_ms=now_ms if self.state.is_idle else self.start_ms,
            client_version=client_version,
        )

    def kept(
        self, next_producer_id: int, next_producer_epoch: int, timeout_ms: int, now_ms: int
    ) -> TransactionMetadata:
        """Ongoing, kept for a producer with this id and epoch."""
        return self._moved(
            TransactionState.ONGOING,
            now_ms,
            next_producer_id=next_producer_id,
            next_producer_epoch=next_producer_epoch,
            timeout_ms=timeout_ms,
        )

    def ending(
        self, state: TransactionState, client_version: int, now_ms: int, *, next_producer_id: int = NO_PRODUCER_ID
    ) -> TransactionMetadata:
        """PrepareCommit or PrepareAbort, by a client of `client_version`."""
        bumps = client_version >= EPOCH_BUMP_VERSION
        ending = self._moved(
            state,
            now_ms,
            producer_epoch=self.producer_epoch + int(bumps),
            last_producer_epoch=self.client[1] if bumps else self.last_producer_epoch,
            start_ms=now_ms if self.state.is_idle else self.start_ms,
            next_producer_id=next_producer_id,
            client_version=client_version,
        )
        if not self.is_kept:
            return ending
        if next_producer_id != NO_PRODUCER_ID:
            return ending._replace(previous_producer_id=self.next_producer_id, next_producer_epoch=0)
        next_epoch = self.next_producer_epoch + int(bumps)
        return ending._replace(next_producer_id=self.next_producer_id, next_producer_epoch=next_epoch)

    def fenced(self, client_version: int, now_ms: int) -> TransactionMetadata:
        """PrepareAbort with a bumped epoch, so that the present producer can do nothing more."""
        fenced = self.ending(TransactionState.PREPARE_ABORT, client_version, now_ms)
        if client_version >= EPOCH_BUMP_VERSION:
            return fenced
        next_epoch = self.next_producer_epoch + 1 if self.is_kept else NO_EPOCH
        epoch = self.producer_epoch + 1
        return fenced._replace(producer_epoch=epoch, last_producer_epoch=NO_EPOCH, next_producer_epoch=next_epoch)

    def completed(self, now_ms: int) -> TransactionMetadata:
        """CompleteCommit or CompleteAbort: every partition has its marker."""
        state = TransactionState.COMPLETE_COMMIT if self.is_commit else TransactionState.COMPLETE_ABORT
        nobody = {"next_producer_id": NO_PRODUCER_ID, "next_producer_epoch": NO_EPOCH}
        done = self._moved(state, now_ms, partitions=frozenset(), **nobody)
        if self.next_producer_id == NO_PRODUCER_ID:
            return done
        if self.is_kept:
            producer_id, epoch = self.client
            previous = self.previous_producer_id
            return done._replace(producer_id=producer_id, producer_epoch=epoch, previous_producer_id=previous)
        return done._replace(producer_id=self.next_producer_id, previous_producer_id=self.producer_id, producer_epoch=0)

    def _moved(self, state: TransactionState, now_ms: int, **changes: object) -> TransactionMetadata:
        invariant(self.state in _PREVIOUS[state], f"a transaction does not go from {self.state.label} to {state.label}")
        changes.setdefault("previous_producer_id", NO_PRODUCER_ID)
        moved = self._replace(state=state, last_update_ms=now_ms, **changes)  # type: ignore[arg-type]
        invariant(0 <= moved.producer_epoch <= EPOCH_MAX, "a producer epoch fits in 16 bits")
        return moved
