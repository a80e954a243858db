"""The state machine of transactional ids: any order of events, any loss of answers, a failover at any point.

The log is a list. A write is in it at once; it may be acknowledged, be refused, or fail although it is in the log. At a
failover the next coordinator has all that was acknowledged and any part of what follows. Two clients share one id.
"""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from raftwerk.broker.coordinators.effects import Persist, Reply
from raftwerk.broker.transactions.transaction_coordinator_shard import (
    PendingWrite,
    RetryCompletion,
    TransactionCoordinatorShard,
    WriteMarkers,
)
from raftwerk.broker.transactions.transaction_decisions import Answer, InitRequest, Producer
from raftwerk.broker.transactions.transaction_metadata import (
    EPOCH_MAX,
    NO_EPOCH,
    TransactionMetadata,
    TransactionState,
)
from raftwerk.broker.transactions.transaction_records import transaction_record
from raftwerk.wire.errors import ErrorCode
from raftwerk.wire.types import TopicPartition

ID = "t"
PARTITIONS = [TopicPartition("a", 0), TopicPartition("a", 1)]
TIMEOUT_MS = 1_000
CLIENTS = st.sampled_from([0, 1])
Transaction = tuple[int, int, int]
"""The producer id and epoch of the markers, and the start."""


class TransactionModel(RuleBasedStateMachine):
    """Clients, a log and a chain of coordinators."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 10
        self.next_id = 100
        self.level = 2
        self.log: list[tuple[bytes, bytes | None]] = []
        self.committed = 0
        self.writes: list[tuple[PendingWrite, int]] = []
        self.markers: list[tuple[TransactionMetadata, TopicPartition]] = []
        self.retries = 0
        self.clients: list[Producer | None] = [None, None]
        self.latest: Producer | None = None
        """The identity that was granted last, if perhaps the answer was lost on its way to the owner."""
        self.owner = -1
        self.decided: dict[Transaction, bool] = {}
        """How each transaction ends, as soon as a marker of it was sent or its end was reported."""
        self.expected: dict[int, tuple[str, Any]] = {}
        self.tokens = 0
        self.shard = self.new_shard()

    def new_shard(self) -> TransactionCoordinatorShard:
        shard = TransactionCoordinatorShard(0, 0, self.new_id)
        shard.transaction_version = self.level
        for key, value in self.log:
            shard.replay(key, value)
        return shard

    def new_id(self) -> int:
        self.next_id += 1
        return self.next_id

    @initialize(level=st.sampled_from([0, 1, 2]), epoch=st.sampled_from([None, 0, EPOCH_MAX - 3, EPOCH_MAX - 1]))
    def begin(self, level: int, epoch: int | None) -> None:
        self.level = level
        if epoch is not None:
            value = TransactionMetadata(50, epoch, TIMEOUT_MS, last_update_ms=1)
            self.log.append(transaction_record(ID, value, level))
            self.committed = 1
        self.shard = self.new_shard()
        self.finish_loading()

    def finish_loading(self) -> None:
        self.shard.finish_loading(self.now_ms)
        self.carry_out()

    # ---------------------------------------------------------------- effects

    def carry_out(self) -> None:
        while effects := self.shard.drain():
            for effect in effects:
                if isinstance(effect, Persist):
                    self.log += effect.records
                    self.writes.append((effect.tag, len(self.log)))
                elif isinstance(effect, WriteMarkers):
                    self.decide(effect.value, effect.value.is_commit)
                    self.markers += [(effect.value, one) for one in sorted(effect.value.partitions)]
                elif isinstance(effect, RetryCompletion):
                    self.retries += 1
                elif isinstance(effect, Reply):
                    self.answered(effect.token, effect.result)

    def decide(self, value: TransactionMetadata, is_commit: bool) -> None:
        key = value.producer_id, value.producer_epoch, value.start_ms
        assert self.decided.setdefault(key, is_commit) == is_commit, "a transaction is committed or aborted, not both"

    def answered(self, token: int, answer: Answer) -> None:
        kind, asked = self.expected.pop(token)
        if answer.error:
            return
        granted = Producer(answer.producer_id, answer.producer_epoch)
        if kind == "init":
            client, is_lost = asked
            if answer.ongoing.producer_id >= 0:
                value = self.shard.current(ID)
                assert value is not None and value.state is TransactionState.ONGOING
                assert ((value.producer_id, value.producer_epoch), value.client) == (answer.ongoing, granted)
            assert granted != self.latest or self.owner == client, "no two clients have one epoch"
            self.latest, self.owner = granted, client
            if not is_lost:
                self.clients[client] = granted
            return
        client, producer, is_commit, version = asked
        if kind == "add":
            assert producer == self.latest, "only the last producer writes"
            return
        value = self.shard.current(ID)
        assert value is not None
        if value.state.is_ending:
            assert value.is_commit == is_commit
            self.decide(value, is_commit)
        else:
            done = TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT
            assert value.state is done, "what is reported is what is recorded"
        if version >= 2:
            assert granted.producer_epoch < EPOCH_MAX
            self.clients[client] = self.latest = granted
            self.owner = client

    def ask(self, kind: str, asked: Any) -> int:
        self.tokens += 1
        self.expected[self.tokens] = kind, asked
        self.now_ms += 1
        return self.tokens

    # ---------------------------------------------------------------- clients

    @rule(client=CLIENTS, is_known=st.booleans(), is_lost=st.booleans(), keeps=st.booleans())
    def init(self, client: int, is_known: bool, is_lost: bool, keeps: bool) -> None:
        token = self.ask("init", (client, is_lost))
        request = InitRequest(TIMEOUT_MS, self.clients[client] if is_known else None, keeps)
        self.shard.init_producer_id(token, ID, request, self.now_ms)
        self.carry_out()

    @rule(client=CLIENTS, count=st.integers(1, 2))
    def add(self, client: int, count: int) -> None:
        producer = self.clients[client]
        if producer is None:
            return
        version = self.level if self.level == 2 else 0
        token = self.ask("add", (client, producer, None, version))
        self.shard.add_partitions(token, ID, producer, frozenset(PARTITIONS[:count]), version, self.now_ms)
        self.carry_out()

    @rule(client=CLIENTS, is_commit=st.booleans())
    def end(self, client: int, is_commit: bool) -> None:
        producer = self.clients[client]
        if producer is None:
            return
        version = self.level if self.level == 2 else 0
        token = self.ask("end", (client, producer, is_commit, version))
        self.shard.end(token, ID, producer, is_commit, version, self.now_ms)
        self.carry_out()

    # ---------------------------------------------------------------- the log, brokers and time

    def finish_write(self, error: ErrorCode, *, is_in_log: bool) -> None:
        write, end = self.writes.pop(0)
        if not is_in_log:
            del self.log[end - len(write.values) : end]
            self.writes = [(other, at - len(write.values)) for other, at in self.writes]
        elif not error:
            self.committed = max(self.committed, end)
        self.shard.on_persisted(write, error, self.now_ms)
        self.carry_out()

    @precondition(lambda self: self.writes)
    @rule()
    def write_is_acknowledged(self) -> None:
        self.finish_write(ErrorCode.NONE, is_in_log=True)

    @precondition(lambda self: self.writes)
    @rule(is_in_log=st.booleans())
    def write_fails(self, is_in_log: bool) -> None:
        self.finish_write(ErrorCode.COORDINATOR_NOT_AVAILABLE, is_in_log=is_in_log)

    @precondition(lambda self: self.markers)
    @rule(is_twice=st.booleans(), data=st.data())
    def marker_is_written(self, is_twice: bool, data: st.DataObject) -> None:
        at = data.draw(st.integers(0, len(self.markers) - 1))
        value, one = self.markers[at] if is_twice else self.markers.pop(at)
        producer = Producer(value.producer_id, value.producer_epoch)
        self.shard.on_marked(ID, producer, [one], self.now_ms)
        self.carry_out()

    @precondition(lambda self: self.retries)
    @rule()
    def completion_is_retried(self) -> None:
        self.retries -= 1
        self.shard.complete(ID, self.now_ms)
        self.carry_out()

    @rule(wait_ms=st.sampled_from([1, TIMEOUT_MS + 1]))
    def time_passes(self, wait_ms: int) -> None:
        self.now_ms += wait_ms
        self.shard.abort_timed_out(self.now_ms)
        self.carry_out()

    @rule(data=st.data())
    def failover(self, data: st.DataObject) -> None:
        """The next coordinator has all that was acknowledged, and perhaps more."""
        del self.log[data.draw(st.integers(self.committed, len(self.log))) :]
        self.shard.close(ErrorCode.NOT_COORDINATOR)
        self.carry_out()
        self.writes.clear()
        self.markers.clear()
        self.retries = 0
        self.committed = len(self.log)
        self.shard = self.new_shard()
        self.finish_loading()

    # ---------------------------------------------------------------- what must hold

    @invariant()
    def replay_equals_the_live_state(self) -> None:
        """After a write that was acknowledged, with nothing under way."""
        if self.writes or self.committed != len(self.log):
            return
        replayed, live = self.new_shard().current(ID), self.shard.current(ID)
        without = None if live is None else live._replace(last_producer_epoch=NO_EPOCH)
        if self.level == 0 and without is not None:
            without = without._replace(previous_producer_id=-1, next_producer_id=-1, client_version=0)
        assert replayed == without

    @invariant()
    def open_transactions_are_known(self) -> None:
        is_open = {
            key: None
            for key, entry in self.shard.entries.items()
            if entry.value is not None and entry.value.state is TransactionState.ONGOING
        }
        assert self.shard._open == is_open

    @invariant()
    def every_request_that_is_not_answered_waits_for_a_write(self) -> None:
        waiting = {write.token for write, _ in self.writes if write.token is not None}
        assert set(self.expected) == waiting

    def teardown(self) -> None:
        """There is a way out of every state: when all goes well from here on, the id ends idle, and expires.

        What was written and answered as failed may be in the log alone: the next coordinator lets that expire.
        """
        for _ in range(2):
            self.heal()
            self.now_ms += TIMEOUT_MS + 10
            self.shard.abort_timed_out(self.now_ms)
            self.carry_out()
            self.heal()
            value = self.shard.current(ID)
            assert value is None or value.state.is_idle
            assert list(self.shard.expire(self.now_ms + 1, 0)) in ([], [None])
            self.carry_out()
            self.heal()
            assert self.shard.entries == {}
            self.shard = self.new_shard()
            self.finish_loading()
        assert self.shard.entries == {}

    def heal(self) -> None:
        while self.writes or self.markers or self.retries:
            if self.writes:
                self.finish_write(ErrorCode.NONE, is_in_log=True)
            elif self.markers:
                value, one = self.markers.pop()
                self.shard.on_marked(ID, Producer(value.producer_id, value.producer_epoch), [one], self.now_ms)
                self.carry_out()
            else:
                self.completion_is_retried()


TestTransactionModel = TransactionModel.TestCase
TestTransactionModel.settings = settings(max_examples=300, stateful_step_count=40, deadline=None)
