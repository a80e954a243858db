"""Logs of leaders that only hold batches, for the invariants of transactions."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

from raftwerk.broker.transactions.transaction_metadata import TransactionMetadata
from raftwerk.broker.transactions.transaction_records import transaction_record
from raftwerk.chaos.sim.invariants.transactions.leader_log import LeaderLog
from raftwerk.chaos.sim.invariants.transactions.transaction_checker import TransactionChecker
from raftwerk.chaos.specification.transactions.log_replay import LogReplay
from raftwerk.controller.metadata.metadata_image import MetadataImage
from raftwerk.isr.leader.transaction_markers import TransactionMarker, encode_marker
from raftwerk.isr.replica import Replica
from raftwerk.log.segment.transaction_index import AbortedTransaction
from raftwerk.wire.records import NewRecord, encode_batch, iter_headers, read_header
from raftwerk.wire.types import TopicPartition

STATE = TopicPartition("__transaction_state", 0)


class HeldLog:
    """Batches in order, as a log gives them."""

    def __init__(self, *, is_compacted: bool = False) -> None:
        self.config = SimpleNamespace(is_compacted=is_compacted)
        self.log_start_offset = 0
        self.log_end_offset = 0
        self.batches: list[bytes] = []
        self.aborted: list[AbortedTransaction] = []
        self.known_producers: list[int] = []

    @property
    def producers(self) -> dict[int, Any]:
        """The producers that the log has in memory: those of its batches, or those that a compacted one is given."""
        if self.config.is_compacted:
            return dict.fromkeys(self.known_producers, "something")
        followed = LogReplay()
        for batch in self.batches:
            followed.follow(read_header(batch), batch)
        return {
            producer_id: SimpleNamespace(
                batches=[
                    SimpleNamespace(first_sequence=first, last_sequence=last, last_offset=offset)
                    for first, last, offset in known.batches
                ]
            )
            for producer_id, known in followed.producers.items()
        }

    def add(self, batch: bytes | bytearray, at: int | None = None) -> None:
        """Append a batch, at the end or after a gap."""
        placed = bytearray(batch)
        placed[:8] = (self.log_end_offset if at is None else at).to_bytes(8, "big")
        self.batches.append(bytes(placed))
        self.log_end_offset = read_header(placed).next_offset

    def read(self, offset: int, _max_bytes: int, *, end_offset: int) -> bytes:
        """All batches from the one that holds the offset on."""
        return b"".join(one for one in self.batches if offset <= read_header(one).last_offset < end_offset)

    def aborted_transactions(self, _start: int, _end: int) -> Sequence[AbortedTransaction]:
        """What the transaction index has."""
        return self.aborted


def data(producer_id: int, epoch: int, sequence: int = 0, *, is_transactional: bool = True) -> bytes:
    """A batch of one record of a producer."""
    records = [NewRecord(b"k", b"v", (), 0)]
    return bytes(
        encode_batch(
            records,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            is_transactional=is_transactional,
        )
    )


def marker(producer_id: int, epoch: int, *, is_commit: bool = True, coordinator_epoch: int = 0) -> bytes:
    """A control batch that ends a transaction."""
    return bytes(encode_marker(TransactionMarker(producer_id, epoch, coordinator_epoch, is_commit, 2), 0))


def state_batch(transactional_id: str, value: TransactionMetadata | None) -> bytes:
    """A batch of `__transaction_state`."""
    record = transaction_record(transactional_id, value, 2)
    return bytes(encode_batch([NewRecord(record.key, record.value, (), 0)]))


class Led:
    """Partitions with one leader each, whose batches are committed as soon as they are checked."""

    def __init__(self, *topics: str) -> None:
        self.now_s = 0.0
        self.checker = TransactionChecker(lambda: self.now_s)
        self.logs: dict[TopicPartition, LeaderLog] = {}
        self.show_topics(STATE.topic, *topics)

    def show_topics(self, *topics: str) -> None:
        """The metadata has these topics, and no other ones."""
        image = MetadataImage()
        for name in topics:
            topic_id = UUID(int=sum(name.encode()))
            image.topics_by_id[topic_id] = cast(Any, SimpleNamespace(name=name, partitions={}))
        self.checker.on_image(image)

    def log(self, key: TopicPartition) -> HeldLog:
        """The log of a partition."""
        if key not in self.logs:
            replica = SimpleNamespace(
                topic_partition=key,
                topic_id=UUID(int=sum(key.topic.encode())),
                log=HeldLog(),
                high_watermark=0,
                last_stable_offset=0,
                partition=SimpleNamespace(leader_epoch=0),
            )
            made = self.checker.lead(cast(Replica, replica), LogReplay())
            assert made is not None
            self.logs[key] = made
        return cast(HeldLog, self.logs[key].replica.log)

    def append(self, key: TopicPartition, batch: bytes, *, is_committed: bool = True) -> None:
        """The leader appends a batch, which is committed in the same event."""
        self.checker.event += 1
        log = self.log(key)
        log.add(batch)
        replica = cast(Any, self.logs[key].replica)
        if is_committed:
            replica.high_watermark = log.log_end_offset
            for position, header in iter_headers(log.batches[-1]):
                self.checker.on_committed(replica, header, log.batches[-1][position:])
        followed = LogReplay()
        for one in log.batches:
            followed.follow(read_header(one), one)
        replica.last_stable_offset = followed.stable_offset(replica.high_watermark)
        self.checker.after_leaders(1, [self.logs[key]])

    def record(self, transactional_id: str, value: TransactionMetadata | None) -> None:
        """The coordinator records a state of an id."""
        self.append(STATE, state_batch(transactional_id, value))
