"""The replay of a partition's transactions from the batches of its log."""

from __future__ import annotations

from raftwerk.chaos.specification.transactions.log_replay import EndedTransaction, LogReplay, Marker, SeenBatch
from raftwerk.isr.leader.transaction_markers import TransactionMarker, encode_marker
from raftwerk.log.cleaner.batch_filter import emptied
from raftwerk.wire.records import NewRecord, encode_batch, read_header


class Log:
    """A replay, and where the next batch comes."""

    def __init__(self) -> None:
        self.replay = LogReplay()
        self.offset = 0

    def follow(self, batch: bytes) -> Marker | None:
        header = read_header(batch)._replace(base_offset=self.offset)
        self.offset = header.next_offset
        return self.replay.follow(header, batch)

    def data(self, producer_id: int, epoch: int, count: int = 1, sequence: int = 0, *, is_empty: bool = False) -> None:
        records = [NewRecord(b"k", b"v", (), 0)] * count
        batch = bytes(
            encode_batch(
                records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, is_transactional=True
            )
        )
        self.follow(emptied(read_header(batch))[1] if is_empty else batch)

    def marker(self, producer_id: int, epoch: int, *, is_commit: bool) -> Marker | None:
        return self.follow(bytes(encode_marker(TransactionMarker(producer_id, epoch, 5, is_commit, 2), 0)))


def test_a_transaction_is_open_from_its_first_batch_to_its_marker() -> None:
    log = Log()
    log.data(1, 0, 2)
    log.data(2, 0)
    log.data(1, 0, 1, 2)
    assert log.replay.open == {1: (0, 0), 2: (2, 0)}
    assert log.marker(1, 1, is_commit=False) == Marker(False, 5)
    assert log.replay.open == {2: (2, 0)}
    assert log.replay.ended == [EndedTransaction(1, 0, 0, 4, False)]
    assert (log.replay.producers[1].epoch, log.replay.producers[1].coordinator_epoch) == (1, 5)
    assert log.replay.producers[2].batches == [SeenBatch(0, 0, 2)]


def test_an_empty_batch_opens_a_transaction() -> None:
    log = Log()
    log.data(1, 0, is_empty=True)
    assert log.replay.open == {1: (0, 0)}


def test_a_marker_alone_ends_nothing() -> None:
    log = Log()
    assert log.marker(1, 1, is_commit=True) == Marker(True, 5)
    assert log.replay.ended == []


def test_records_are_stable_below_what_is_open_or_ends_above_the_high_watermark() -> None:
    log = Log()
    log.data(1, 0)
    log.data(2, 0)
    log.marker(1, 1, is_commit=True)
    log.marker(2, 1, is_commit=True)
    assert [log.replay.stable_offset(one) for one in (1, 2, 3, 4)] == [0, 0, 1, 4]
    log.data(1, 1)
    assert log.replay.stable_offset(5) == 4


def test_five_batches_of_an_epoch_are_remembered() -> None:
    log = Log()
    for number in range(7):
        log.data(1, 0, 1, number)
    assert [one.first_sequence for one in log.replay.producers[1].batches] == [2, 3, 4, 5, 6]
    log.data(1, 1)
    assert [one.first_sequence for one in log.replay.producers[1].batches] == [0]
