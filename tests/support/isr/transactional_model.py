"""The model of a replicated partition, with transactional producers and their coordinator.

The coordinator is a few lines of its own, whose state is never lost; what is tested is the partition. Every message may
be late: batches, questions whether a transaction is open, their answers, and markers, so that those of former
transactions come in the middle of later ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from support.isr.replica_model import Model, Node
from support.isr.replicas import TP, WALL_MS
from support.isr.transaction_model import ModelBatch, committed_offsets, last_stable_offset, transactions

from raftwerk.isr.leader.transaction_markers import MarkerAppends, TransactionMarker
from raftwerk.wire.errors import ErrorCode, ProtocolError
from raftwerk.wire.records import ControlRecordType, control_record_type, encode_batch, iter_headers, iter_records

PRODUCERS = (100, 101)
_REPEATED_LATER = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.REQUEST_TIMED_OUT,
)


@dataclass
class Transaction:
    """One transaction as its coordinator knows it."""

    producer_id: int
    number: int
    is_in_partition: bool = False
    is_commit: bool | None = None
    marker_epoch: int = -1
    is_complete: bool = False

    @property
    def name(self) -> bytes:
        return b"%d.%d." % (self.producer_id, self.number)


class Producer:
    """A transactional producer, and what its coordinator knows of it."""

    def __init__(self, producer_id: int) -> None:
        self.producer_id = producer_id
        self.epoch = 0
        self.sequence = 0
        self.written = 0
        self.waiting: bytes | None = None
        """The value that is not acknowledged yet."""
        self.acked: list[bytes] = []
        self.transaction = Transaction(producer_id, 0)
        self.outcomes: dict[bytes, bool] = {}


class TransactionalModel(Model):
    """`version` is transaction.version. `late_markers`: a marker may come again when its transaction is over."""

    def __init__(self, seed: int, min_isr: int = 2, version: int = 2, late_markers: bool = True) -> None:
        self.version = version
        self.late_markers = late_markers
        self.late: list[Callable[[], None]] = []
        self.producers = {producer_id: Producer(producer_id) for producer_id in PRODUCERS}
        self.settled: dict[int, int] = {}
        super().__init__(seed, min_isr)

    def step(self) -> None:
        if self.rng.random() < 0.5:
            super().step()
            return
        producer = self.producers[self.rng.choice(PRODUCERS)]
        actions: list[tuple[int, Callable[[], None]]] = [
            (10 if len(self.late) < 20 else 1, partial(self.send_batch, producer)),
            (6, partial(self.end, producer)),
            (8, partial(self.send_marker, producer)),
            (30, self.deliver_late),
        ]
        if not self.faults:
            actions = [
                (3, partial(self.end, producer)),
                (8, partial(self.send_marker, producer)),
                (30, self.deliver_late),
            ]
        self.rng.choices([one for _, one in actions], [weight for weight, _ in actions])[0]()
        self.check()

    # -- producers

    def send_batch(self, producer: Producer) -> None:
        """A new batch, or the same again."""
        transaction = producer.transaction
        if transaction.is_commit is not None:
            return
        if producer.waiting is None:
            producer.written += 1
            producer.waiting = transaction.name + b"%d" % producer.written
        epoch, sequence, value = producer.epoch, producer.sequence, producer.waiting
        self.note(f"{value.decode()} is sent with epoch {epoch}, sequence {sequence}")
        if self.version < 2:
            transaction.is_in_partition = True
        self._later(partial(self._take_batch, producer, transaction, epoch, sequence, value))

    def _take_batch(
        self, producer: Producer, transaction: Transaction, epoch: int, sequence: int, value: bytes
    ) -> None:
        node = self._leader()
        if node is None:
            return
        try:
            guard = node.replica.begin_verification(
                producer.producer_id, epoch, sequence, supports_epoch_bump=self.version >= 2
            )
        except ProtocolError:
            return
        append = partial(self._append, node, self.incarnation[node.node_id], producer, epoch, sequence, value, guard)
        if guard is None:
            append()
        else:
            self._later(partial(self._verify, producer, epoch, append))

    def _verify(self, producer: Producer, epoch: int, append: Callable[[], None]) -> None:
        transaction = producer.transaction
        if epoch != producer.epoch or transaction.is_commit is not None:
            return
        if self.version >= 2:
            transaction.is_in_partition = True
        if transaction.is_in_partition:
            self._later(append)

    def _append(
        self, node: Node, incarnation: int, producer: Producer, epoch: int, sequence: int, value: bytes, guard: Any
    ) -> None:
        if not node.up or self.incarnation[node.node_id] != incarnation:
            return
        data = memoryview(
            encode_batch(
                [(None, value, (), WALL_MS)],
                producer_id=producer.producer_id,
                producer_epoch=epoch,
                base_sequence=sequence,
                is_transactional=True,
            )
        )
        guards = {} if guard is None else {TP: guard}
        node.appends.append(-1, 1000, [(TP, data)], partial(self._batch_done, producer, epoch, sequence, value), guards)

    def _batch_done(self, producer: Producer, epoch: int, sequence: int, value: bytes, results: list[Any]) -> None:
        code = results[0].error_code
        self.note(f"{value.decode()} with epoch {epoch}: {ErrorCode(code).name}")
        if code not in (0, ErrorCode.DUPLICATE_SEQUENCE_NUMBER) or self.rng.random() < 0.2 * self.faults:
            return  # refused, or the answer is lost
        if producer.waiting == value and producer.epoch == epoch:
            producer.waiting = None
            producer.sequence = sequence + 1
            producer.acked.append(value)

    # -- the coordinator

    def end(self, producer: Producer) -> None:
        """The outcome is decided, and durable. A batch that is not acknowledged makes it an abort with a new epoch."""
        transaction = producer.transaction
        if transaction.is_commit is not None or not (transaction.is_in_partition or producer.waiting):
            return
        is_known = producer.waiting is None
        if not is_known and self.faults and self.rng.random() < 0.9:
            return
        transaction.is_commit = is_known and self.rng.random() < 0.7
        if self.version >= 2 or not is_known:
            producer.epoch += 1
            producer.sequence = 0
        producer.waiting = None
        transaction.marker_epoch = producer.epoch
        producer.outcomes[transaction.name] = transaction.is_commit
        self.note(f"{transaction.name.decode()} ends, commit={transaction.is_commit}, epoch {producer.epoch}")
        if not transaction.is_in_partition:
            self._complete(producer)

    def send_marker(self, producer: Producer) -> None:
        transaction = producer.transaction
        if transaction.is_commit is None or not transaction.is_in_partition:
            return
        take = partial(self._take_marker, producer, transaction)
        if self.late_markers:
            self._later(take)
        else:
            take()

    def _take_marker(self, producer: Producer, transaction: Transaction) -> None:
        node = self._leader()
        if node is None:
            return
        assert transaction.is_commit is not None
        marker = TransactionMarker(
            producer.producer_id, transaction.marker_epoch, 1, transaction.is_commit, self.version
        )
        markers = MarkerAppends(node.hosted, node.operations, node.errors, lambda: (self.now_ms, WALL_MS))
        markers.write(1000, [(TP, marker)], partial(self._marker_done, producer, transaction))

    def _marker_done(self, producer: Producer, transaction: Transaction, codes: list[ErrorCode]) -> None:
        code = codes[0]
        self.note(f"marker of {transaction.name.decode()}: {code.name}")
        if transaction is producer.transaction and not transaction.is_complete:
            assert code is ErrorCode.NONE or code in _REPEATED_LATER, f"a marker that is due is refused: {code.name}"
            if code is ErrorCode.NONE:
                self._complete(producer)

    def _complete(self, producer: Producer) -> None:
        producer.transaction.is_complete = True
        producer.transaction = Transaction(producer.producer_id, producer.transaction.number + 1)

    # -- messages

    def _leader(self) -> Node | None:
        """A node that takes itself for the leader."""
        leaders = [node for node in self._up() if node.replica.is_leader]
        return self.rng.choice(leaders) if leaders else None

    def _later(self, action: Callable[[], None]) -> None:
        self.late.append(action)
        if self.rng.random() < 0.3 * self.faults:
            self.late.append(action)  # arrives twice

    def deliver_late(self) -> None:
        if self.late:
            action = self.late.pop(self.rng.randrange(len(self.late)))
            if not self.faults or self.rng.random() > 0.1:
                action()

    # -- what must hold

    def restart(self) -> None:
        before = {node.node_id for node in self._up()}
        super().restart()
        for node in self._up():
            if node.node_id not in before:
                self.settled[node.node_id] = node.log.log_end_offset

    def check(self) -> None:
        super().check()
        if self.rng.random() < 0.2:
            for node in self._up():
                self.check_transactions(node)

    def check_transactions(self, node: Node) -> None:
        """The last stable offset is where the model says; each transaction has the end that was decided for it."""
        batches = model_batches(node)
        replica = node.replica
        settled = min(self.settled.get(node.node_id, 0), node.log.log_end_offset)
        strict = last_stable_offset(batches, 0, replica.high_watermark)
        lenient = last_stable_offset(batches, 0, replica.high_watermark, settled)
        assert strict <= replica.last_stable_offset <= lenient
        for one in transactions(batches):
            names = {bytes(b.data).rsplit(b".", 1)[0] + b"." for b in one.batches}
            assert len(names) == 1, f"transactions are mixed: {names}"
            (name,) = names
            if one.marker is not None:
                outcome = self.producers[one.producer_id].outcomes.get(name)
                assert one.marker.is_commit == outcome, f"{name.decode()} ended otherwise than was decided"

    def healed(self) -> bool:
        return (
            super().healed()
            and not self.late
            and all(one.transaction.is_commit is None and one.waiting is None for one in self.producers.values())
            and all(not one.transaction.is_in_partition for one in self.producers.values())
        )

    def check_end(self) -> None:
        """Nothing is open; read_committed reads what was acknowledged in committed transactions, and nothing else."""
        for node in self.nodes.values():
            assert node.replica.last_stable_offset == node.replica.high_watermark, "a transaction hangs"
            batches = model_batches(node)
            committed = committed_offsets(batches)
            for producer in self.producers.values():
                found = [
                    bytes(b.data) for b in batches if b.base in committed and b.producer_id == producer.producer_id
                ]
                expected = [one for one in producer.acked if producer.outcomes[one.rsplit(b".", 1)[0] + b"."]]
                assert found == expected


def model_batches(node: Node) -> list[ModelBatch]:
    """The batches of a node's log; `data` is the value of a data batch's only record."""
    found: list[ModelBatch] = []
    data = node.log.read(0, 1 << 24, end_offset=node.log.log_end_offset)
    for position, header in iter_headers(data):
        record = next(iter_records(data[position : position + header.size_bytes]))
        is_commit = control_record_type(record.key) == ControlRecordType.COMMIT if header.is_control else None
        found.append(
            ModelBatch(
                header.base_offset,
                header.last_offset,
                header.producer_id,
                header.producer_epoch,
                header.is_transactional,
                is_commit,
                record.value or b"",
            )
        )
    return found


def run_transactional_seed(seed: int, steps: int = 800, **options: Any) -> TransactionalModel:
    """A history with faults, then healing. On a failure the last steps are in the message."""
    model = TransactionalModel(seed, **options)
    try:
        for _ in range(steps):
            model.step()
        model.heal()
        model.check_end()
    except (AssertionError, ProtocolError) as error:
        raise AssertionError(f"seed {seed}: {error}\n" + "\n".join(model.trace[-80:])) from error
    return model
