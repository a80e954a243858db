"""Known bugs of transactions, as patches on whole nodes: the simulator must find each of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from support.chaos.late_marker import late_marker
from support.chaos.mutants import Mutant, replacing
from support.isr.late_fetch import late_fetch

from raftwerk.broker.apis.transactions import list_transactions
from raftwerk.broker.coordinators.led_partitions import LedPartitions
from raftwerk.broker.groups.classic.classic_group import ClassicGroup
from raftwerk.broker.groups.consumer.consumer_group import ConsumerGroup
from raftwerk.broker.groups.group_coordinator_shard import GroupCoordinatorShard
from raftwerk.broker.groups.pending_transactional_offsets import PendingTransactionalOffsets
from raftwerk.broker.transactions import marker_queues, transaction_decisions, transaction_records
from raftwerk.broker.transactions.partition_verifier import Question
from raftwerk.broker.transactions.transaction_coordinator_shard import TransactionCoordinatorShard, WriteMarkers
from raftwerk.broker.transactions.transaction_decisions import InitRequest, Producer
from raftwerk.broker.transactions.transaction_marker_sender import TransactionMarkerSender
from raftwerk.broker.transactions.transaction_metadata import NO_EPOCH, TransactionMetadata, TransactionState
from raftwerk.chaos.sim.workloads.transactions.transactional_producer import ClientStyle
from raftwerk.isr.leader.read_confirmations import FetchedEpochs, ReadConfirmations
from raftwerk.isr.replica import Replica
from raftwerk.isr.replica_manager import ReplicaManager
from raftwerk.log.cleaner.cleaned_transactions import CleanedTransactions
from raftwerk.log.state.producer_state import ProducerStateEntry, ProducerStateManager
from raftwerk.log.state.transaction_verification import VERIFICATION_OFF, PendingVerifications
from raftwerk.wire.errors import ErrorCode
from raftwerk.wire.records import BatchHeader

Patch = Callable[[pytest.MonkeyPatch], None]
ORIGINAL_PERSIST = TransactionCoordinatorShard._persist
ORIGINAL_ENDING = TransactionMetadata.ending
ORIGINAL_TAGS = transaction_records._tags
ORIGINAL_FENCED = TransactionMetadata.fenced
ORIGINAL_END_PENDING = PendingTransactionalOffsets.end
ORIGINAL_REPLAY = GroupCoordinatorShard.replay
ORIGINAL_LOAD_SNAPSHOT = ProducerStateManager.load_snapshot
ORIGINAL_FINISH = TransactionMarkerSender._finish
ORIGINAL_ON_FETCH = ReadConfirmations.on_fetch
ORIGINAL_ON_MARKED = TransactionCoordinatorShard.on_marked
ORIGINAL_EXPIRE = ProducerStateManager.expire
ORIGINAL_TOUCH = ProducerStateManager._touch
ORIGINAL_REPLAY_STATE = TransactionCoordinatorShard.replay
ORIGINAL_NEXT_EPOCH = transaction_decisions._next_epoch
ORIGINAL_COMPLETED = TransactionMetadata.completed
ORIGINAL_FILTER = list_transactions._filter


def believe_in_leading(
    self: ReadConfirmations, replica: Replica, leader_epoch: int, timeout_ms: int, done: Callable[[bool], None]
) -> None:
    done(replica.is_leader)


def take_any_fetch(self: ReadConfirmations, replica_id: int, connection: object, asked: FetchedEpochs) -> bool:
    """As if the fetch followed an answer of now."""
    self.on_answer(replica_id, connection)
    return ORIGINAL_ON_FETCH(self, replica_id, connection, asked)


def markers_at_once(self: TransactionCoordinatorShard, values: Any, token: Any = None, answer: Any = None) -> None:
    """Send the markers while the decision is still being written."""
    ORIGINAL_PERSIST(self, values, token, answer)
    for transactional_id, value in values:
        if value is not None and value.state.is_ending and value.partitions:
            self._effects.append(WriteMarkers(transactional_id, value))


def answer_at_once(self: TransactionCoordinatorShard, values: Any, token: Any = None, answer: Any = None) -> None:
    """Answer while the new state is still being written."""
    ORIGINAL_PERSIST(self, values, None, answer)
    if token is not None:
        self._reply(token, answer)


def stable_up_to_the_high_watermark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Replica, "last_stable_offset", property(lambda self: self.high_watermark))
    monkeypatch.setattr(ProducerStateManager, "is_stable", property(lambda _: True))


def record_one_producer(value: TransactionMetadata) -> dict[int, bytes]:
    return ORIGINAL_TAGS(value._replace(next_producer_epoch=NO_EPOCH))


def commit_when_timed_out(self: TransactionMetadata, client_version: int, now_ms: int) -> TransactionMetadata:
    return ORIGINAL_FENCED(self, client_version, now_ms)._replace(state=TransactionState.PREPARE_COMMIT)


def keep_the_epoch(self: TransactionMetadata, *arguments: Any, **options: Any) -> TransactionMetadata:
    return ORIGINAL_ENDING(self, *arguments, **options)._replace(producer_epoch=self.producer_epoch)


def take_offsets_of_any_member(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in (ClassicGroup, ConsumerGroup):
        monkeypatch.setattr(kind, "check_transactional_commit", lambda *_: ErrorCode.NONE)


def take_aborted_offsets(self: PendingTransactionalOffsets, producer_id: int, *, is_committed: bool) -> Any:
    return ORIGINAL_END_PENDING(self, producer_id, is_committed=True)


def forget_whoever_is_silent(self: ProducerStateManager, now_ms: int, expiration_ms: int) -> int:
    entries = [entry for _, entry in self.items()]
    first_offsets = [entry.transaction_first_offset for entry in entries]
    for entry in entries:
        entry.transaction_first_offset = -1
    count = ORIGINAL_EXPIRE(self, now_ms, expiration_ms)
    for entry, first_offset in zip(entries, first_offsets, strict=True):
        entry.transaction_first_offset = first_offset
    return count


def stay_silent(self: ProducerStateManager, header: BatchHeader) -> ProducerStateEntry:
    known = self.get(header.producer_id)
    since_ms = None if known is None else known.silent_since_ms
    entry = ORIGINAL_TOUCH(self, header)
    entry.silent_since_ms = since_ms
    return entry


def load_no_tombstone(self: TransactionCoordinatorShard, key: Any, value: Any, *, transaction_of: int = -1) -> None:
    if value is not None:
        ORIGINAL_REPLAY_STATE(self, key, value, transaction_of=transaction_of)


def grant_one_more_epoch(current: TransactionMetadata, request: InitRequest, producer_ids: Any, now_ms: int) -> Any:
    expected = request.expected
    if expected is not None and expected.producer_epoch == current.last_producer_epoch:
        request = request._replace(expected=expected._replace(producer_epoch=current.producer_epoch))
    return ORIGINAL_NEXT_EPOCH(current, request, producer_ids, now_ms)


def keep_the_epoch_of_the_former_id(self: TransactionMetadata, now_ms: int) -> TransactionMetadata:
    done = ORIGINAL_COMPLETED(self, now_ms)
    return done if done.producer_id == self.producer_id else done._replace(producer_epoch=self.producer_epoch - 1)


def pass_over_aborted_ones(message: Any, now_ms: int) -> Any:
    passes = ORIGINAL_FILTER(message, now_ms)
    return lambda name, value: value.state is not TransactionState.COMPLETE_ABORT and passes(name, value)


def lose_pending_offsets(self: GroupCoordinatorShard, key: Any, value: Any, *, transaction_of: int = -1) -> None:
    """Load only the offsets that were committed outside of transactions."""
    if transaction_of < 0:
        ORIGINAL_REPLAY(self, key, value)


def show_pending_offsets(self: GroupCoordinatorShard, key: Any, value: Any, *, transaction_of: int = -1) -> None:
    """Load offsets of transactions as if they were committed."""
    ORIGINAL_REPLAY(self, key, value)


def forget_open_transactions(self: ProducerStateManager, data: bytes) -> None:
    ORIGINAL_LOAD_SNAPSHOT(self, data)
    for entry in self._entries.values():
        entry.transaction_first_offset = -1
    self._open_transactions.clear()


def grant_the_same_epoch(current: TransactionMetadata, request: Any, producer_ids: Any, now_ms: int) -> Any:
    epoch = current.producer_epoch
    return transaction_decisions._granted(current.with_epoch(epoch, -1, request.timeout_ms, now_ms))


def complete_after_the_first_marker(
    self: TransactionCoordinatorShard, transactional_id: str, producer: Any, partitions: Any, now_ms: int
) -> None:
    entry = self.entries.get(transactional_id)
    if entry is not None:
        entry.unmarked.clear()
    ORIGINAL_ON_MARKED(self, transactional_id, producer, partitions, now_ms)


def send_markers_once(self: TransactionMarkerSender, broker_id: int, batch: Any, codes: Any) -> None:
    ORIGINAL_FINISH(self, broker_id, batch, codes)
    self._again.clear()


def finish_without_markers(self: TransactionCoordinatorShard, now_ms: int) -> None:
    self.is_loading = False


def abort_without_the_markers(self: Any, partitions: Any, client_version: int, now_ms: int) -> TransactionMetadata:
    """Keep only the partitions that were added last."""
    return ORIGINAL_WITH_PARTITIONS(self._replace(partitions=frozenset()), partitions, client_version, now_ms)


def let_everything_in(self: ReplicaManager, _: bool) -> None:
    """Take the setting for false."""
    self._appends.default_guard = VERIFICATION_OFF


def act_before_the_tail_is_committed(self: LedPartitions[Any], shard: Any) -> None:
    self._owner.on_loaded(shard, self.loaders.pop(shard.partition))


def take_markers_of_former_coordinators(self: ProducerStateManager, header: Any, marker: Any, version: int) -> None:
    ORIGINAL_CHECK_MARKER(self, header, marker._replace(coordinator_epoch=2**31 - 1), version)


def forget_emptied_batches(self: CleanedTransactions, header: BatchHeader) -> bool:
    """Take an emptied batch of a committed transaction for none."""
    is_new = header.producer_id not in self._committed
    is_aborted = ORIGINAL_ON_DATA(self, header)
    if is_new and not header.record_count:
        self._committed.pop(header.producer_id, None)
    return is_aborted


def take_late_answers(
    self: TransactionCoordinatorShard, transactional_id: str, producer: Producer, partitions: Any, now_ms: int
) -> None:
    """Count them for whichever transaction of the producer is ending."""
    value = self.current(transactional_id)
    if value is not None and value.producer_id == producer.producer_id:
        producer = producer._replace(producer_epoch=value.producer_epoch)
    ORIGINAL_ON_MARKED(self, transactional_id, producer, partitions, now_ms)


def share_rows_of_an_id(self: Question, other: Question) -> bool:
    """Whoever asks for the same transactional id, whichever producer it is."""
    return not (self.has_own_row or other.has_own_row) and self.operation.adds == other.operation.adds


def expect_any_batch_that_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one of another epoch, or one that the log has."""

    def check(self: PendingVerifications, header: BatchHeader) -> None:
        pending = self._pending.get(header.producer_id)
        if pending is not None:
            ORIGINAL_CHECK_SEQUENCE(self, header._replace(producer_epoch=pending.epoch))

    def check_verified(self: ProducerStateManager, header: BatchHeader, entry: Any, guard: Any) -> None:
        ORIGINAL_CHECK_VERIFIED(self, header, entry, guard)
        self.verifications.check_sequence(header)

    monkeypatch.setattr(PendingVerifications, "check_sequence", check)
    monkeypatch.setattr(ProducerStateManager, "_check_verified", check_verified)


def load_sequences_that_do_not_wrap(self: ProducerStateManager, data: bytes) -> None:
    ORIGINAL_LOAD_SNAPSHOT(self, data)
    for entry in self._entries.values():
        entry.batches = [one._replace(first_sequence=one.last_sequence - one.offset_delta) for one in entry.batches]


ORIGINAL_CHECK_SEQUENCE = PendingVerifications.check_sequence
ORIGINAL_CHECK_VERIFIED = ProducerStateManager._check_verified
ORIGINAL_ON_DATA = CleanedTransactions.on_data
ORIGINAL_CHECK_MARKER = ProducerStateManager.check_marker
ORIGINAL_WITH_PARTITIONS = TransactionMetadata.with_partitions
TRANSACTION_MUTANTS = (
    Mutant(
        "a marker before the decision is durable",
        replacing(TransactionCoordinatorShard, "_persist", markers_at_once),
        ("transaction-failover",),
    ),
    Mutant(
        "a commit is answered before it is durable",
        replacing(TransactionCoordinatorShard, "_persist", answer_at_once),
        ("late-transactions",),
    ),
    Mutant(
        "a coordinator acts on what is not committed when it loads",
        replacing(LedPartitions, "_wait_until_committed", act_before_the_tail_is_committed),
        ("coordinator-elections",),
    ),
    Mutant(
        "markers of former coordinators are taken",
        replacing(ProducerStateManager, "check_marker", take_markers_of_former_coordinators),
        interleaving=lambda: late_marker(ClientStyle(1)),
    ),
    Mutant("the last stable offset by high watermark", stable_up_to_the_high_watermark, ("transactions",)),
    Mutant(
        "aborted transactions are not named in Fetch",
        replacing(Replica, "_aborted_in", lambda *_: []),
        ("transactions",),
    ),
    Mutant(
        "a timed-out transaction is committed",
        replacing(TransactionMetadata, "fenced", commit_when_timed_out),
        ("transactions",),
    ),
    Mutant("an end without an epoch bump", replacing(TransactionMetadata, "ending", keep_the_epoch), ("transactions",)),
    Mutant(
        "an initialized producer gets the same epoch",
        replacing(transaction_decisions, "_next_epoch", grant_the_same_epoch),
        ("transactions",),
    ),
    Mutant(
        "a new coordinator does not go on with ends (KAFKA-9144)",
        replacing(TransactionCoordinatorShard, "finish_loading", finish_without_markers),
        ("transactions",),
    ),
    Mutant(
        "a transaction is complete after its first marker",
        replacing(TransactionCoordinatorShard, "on_marked", complete_after_the_first_marker),
        ("transactions",),
    ),
    Mutant(
        "late answers to the markers of a former transaction count",
        replacing(TransactionCoordinatorShard, "on_marked", take_late_answers),
        ("late-transactions",),
    ),
    Mutant(
        "a marker that finds no topic counts as written",
        replacing(marker_queues, "_WRITTEN", marker_queues._WRITTEN | {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}),
        ("passing-topics",),
    ),
    Mutant(
        "an emptied batch keeps no marker",
        replacing(CleanedTransactions, "on_data", forget_emptied_batches),
        ("exactly-once-group",),
    ),
    Mutant(
        "markers are sent once",
        replacing(TransactionMarkerSender, "_finish", send_markers_once),
        ("transaction-failover",),
    ),
    Mutant(
        "a transaction forgets its first partitions",
        replacing(TransactionMetadata, "with_partitions", abort_without_the_markers),
        ("transactions",),
    ),
    Mutant(
        "snapshots without open transactions",
        replacing(ProducerStateManager, "load_snapshot", forget_open_transactions),
        ("transaction-failover",),
    ),
    Mutant(
        "the recovered producer of a prepared transaction is not recorded (KIP-939)",
        replacing(transaction_records, "_tags", record_one_producer),
        ("two-phase",),
    ),
    Mutant(
        "batches open transactions that no coordinator has verified (KIP-890)",
        replacing(ReplicaManager, "verifies_transactions", property(lambda self: False, let_everything_in)),
        ("late-batches",),
    ),
    Mutant(
        "markers are forgotten while a partition has no leader",
        replacing(TransactionMarkerSender, "on_metadata", lambda *_: None),
        ("leaderless",),
    ),
    Mutant(
        "offsets of aborted transactions take effect",
        replacing(PendingTransactionalOffsets, "end", take_aborted_offsets),
        ("exactly-once",),
    ),
    Mutant(
        "pending offsets are lost when a coordinator loads",
        replacing(GroupCoordinatorShard, "replay", lose_pending_offsets),
        ("exactly-once",),
    ),
    Mutant(
        "transactions commit offsets for members of any generation (KIP-447)",
        take_offsets_of_any_member,
        ("exactly-once-group",),
    ),
    Mutant(
        "pending offsets are shown after a load",
        replacing(GroupCoordinatorShard, "replay", show_pending_offsets),
        ("exactly-once",),
    ),
    Mutant(
        "stable offsets are answered without a confirmation",
        replacing(ReadConfirmations, "confirm", believe_in_leading),
        ("cut-off-coordinators",),
    ),
    Mutant(
        "a fetch that was under way confirms a stable read",
        replacing(ReadConfirmations, "on_fetch", take_any_fetch),
        interleaving=late_fetch,
    ),
    Mutant(
        "a partition forgets silent producers with an open transaction",
        replacing(ProducerStateManager, "expire", forget_whoever_is_silent),
        ("expiring-producers",),
    ),
    Mutant(
        "a producer that writes is forgotten like a silent one",
        replacing(ProducerStateManager, "_touch", stay_silent),
        ("expiring-producers",),
    ),
    Mutant(
        "a tombstone of a transactional id is not loaded",
        replacing(TransactionCoordinatorShard, "replay", load_no_tombstone),
        ("expiring-producers",),
    ),
    Mutant(
        "a producer that asks again for its epoch gets another one",
        replacing(transaction_decisions, "_next_epoch", grant_one_more_epoch),
        ("repeated-requests",),
    ),
    Mutant(
        "the next producer id begins with a used epoch",
        replacing(TransactionMetadata, "completed", keep_the_epoch_of_the_former_id),
        ("used-up-producer-ids",),
    ),
    Mutant(
        "aborted transactions are not listed",
        replacing(list_transactions, "_filter", pass_over_aborted_ones),
        ("hanging-transactions",),
    ),
    Mutant(
        "zombies and their successors share a row of AddPartitionsToTxn",
        replacing(Question, "shares_row_with", share_rows_of_an_id),
        ("contested-ids",),
    ),
    Mutant(
        "a late batch of a former producer is expected before those of its successor",
        expect_any_batch_that_waits,
        ("contested-ids",),
    ),
    Mutant(
        "a snapshot does not know a batch that passes the highest sequence number",
        replacing(ProducerStateManager, "load_snapshot", load_sequences_that_do_not_wrap),
        ("wrapping-sequences",),
    ),
)
