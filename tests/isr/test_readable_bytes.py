"""How many bytes consumers may newly read, of transactions too; and what a cut of the log says and takes back."""

from __future__ import annotations

import logging

import pytest
from support.isr.replicas import TOPIC_ID, TP, WALL_MS, FakeBrokers, Reg, batch, make_runtime, open_log

from raftwerk.isr.leader.leader_state import LeaderConfig
from raftwerk.isr.leader.transaction_markers import TransactionMarker, encode_marker
from raftwerk.isr.partition import Partition
from raftwerk.isr.replica import Replica
from raftwerk.isr.results import READ_COMMITTED, FetchParams
from raftwerk.log.state.transaction_verification import VERIFICATION_OFF
from raftwerk.runtime.files.file_slice import FileSlice
from raftwerk.runtime.ports import Buffer
from raftwerk.wire.fetch import FetchPartition
from raftwerk.wire.records import NewRecord, encode_batch

TIMES = (0, WALL_MS)


def make(leader: int = 1) -> Replica:
    """Broker 1's replica of a partition that `leader` leads, with a follower 2 in sync."""
    runtime, _ = make_runtime()
    partition = Partition(TP, LeaderConfig(1, 1, 1000), FakeBrokers({1: 101, 2: 102}), 0)
    replica = Replica(TOPIC_ID, partition, open_log(runtime), lambda replica: None)
    registration = Reg((1, 2), (1, 2), leader, 5, 10)
    if leader == 1:
        replica.make_leader(registration, 0)
    else:
        replica.make_follower(registration)
    return replica


def write(replica: Replica, producer_id: int, sequence: int = 0, count: int = 1) -> int:
    """A transactional batch of the producer; returns its size."""
    data = encode_batch(
        [NewRecord(None, b"v", (), WALL_MS)] * count,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=sequence,
        is_transactional=True,
    )
    return replica.append_as_leader(memoryview(data), -1, TIMES, guard=VERIFICATION_OFF).size_bytes


def end(replica: Replica, producer_id: int, *, is_commit: bool = True) -> int:
    """The marker that ends the producer's transaction; returns its size."""
    marker = encode_marker(TransactionMarker(producer_id, 0, 1, is_commit, 0), WALL_MS)
    return replica.append_as_leader(memoryview(marker), -1, TIMES, internal=True).size_bytes


def commit_to(replica: Replica, offset: int) -> None:
    """The follower has all below the offset."""
    fetched = FetchPartition(0, current_leader_epoch=5, fetch_offset=offset, last_fetched_epoch=-1)
    replica.on_fetch(FetchParams(replica_id=2, replica_epoch=102), fetched, 0)


def test_a_transaction_becomes_readable_as_a_whole_when_its_marker_is_committed() -> None:
    replica = make()
    size_bytes = write(replica, 7) + write(replica, 7, 1)
    commit_to(replica, 2)
    assert replica.committed_bytes() == (size_bytes, 0)
    marker_bytes = end(replica, 7)
    assert replica.committed_bytes() == (0, 0), "the marker may be lost yet"
    commit_to(replica, 3)
    assert replica.committed_bytes() == (marker_bytes, size_bytes + marker_bytes)
    assert replica.committed_bytes() == (0, 0)
    plain_bytes = replica.append_as_leader(batch(), -1, TIMES).size_bytes
    commit_to(replica, 4)
    assert replica.committed_bytes() == (plain_bytes, plain_bytes)


def test_what_is_behind_the_first_open_transaction_waits_for_it() -> None:
    replica = make()
    first = write(replica, 7)
    second, ended = write(replica, 8), end(replica, 8)
    commit_to(replica, 3)
    assert replica.committed_bytes() == (first + second + ended, 0)
    last = end(replica, 7)
    commit_to(replica, 4)
    assert replica.committed_bytes() == (last, first + second + ended + last)


def test_a_part_of_an_append_that_becomes_readable_counts_as_one_byte_and_once() -> None:
    """A request may hold several batches. Who waits for a byte of committed transactions must be told."""
    replica = make()
    plain, open_ = (
        encode_batch([NewRecord(None, b"v", (), WALL_MS)]),
        encode_batch(
            [NewRecord(None, b"v", (), WALL_MS)], producer_id=7, producer_epoch=0, base_sequence=0,
            is_transactional=True,
        ),
    )  # fmt: skip
    both = memoryview(bytearray(bytes(plain) + bytes(open_)))
    size_bytes = replica.append_as_leader(both, -1, TIMES, guard=VERIFICATION_OFF).size_bytes
    commit_to(replica, 2)
    assert replica.committed_bytes() == (size_bytes, 1)
    assert replica.committed_bytes() == (0, 0)


def test_a_fetch_of_committed_transactions_names_the_aborted_ones_among_its_records() -> None:
    """In the order of their beginning, and only those: the consumer leaves their records out."""
    replica = make()
    for producer_id in (9, 7, 8):
        write(replica, producer_id)
    for producer_id, is_commit in ((7, False), (8, True), (9, False)):
        end(replica, producer_id, is_commit=is_commit)
    commit_to(replica, 6)

    def read(offset: int, isolation_level: int) -> list[tuple[int, int]] | None:
        params = FetchParams(isolation_level=isolation_level)
        wanted = FetchPartition(0, current_leader_epoch=5, fetch_offset=offset, last_fetched_epoch=-1)
        row = replica.read(params, wanted, 1 << 20, min_one_batch=True)
        found = row.aborted_transactions
        return None if found is None else [(one.producer_id, one.first_offset) for one in found]

    assert read(0, READ_COMMITTED) == [(9, 0), (7, 1)]
    assert read(4, READ_COMMITTED) == [(9, 0)]
    assert read(6, READ_COMMITTED) == []
    assert read(0, 0) is None


def test_a_follower_tells_each_cut_of_its_log_and_nothing_where_there_is_nothing_to_cut(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """After an incident these lines say which records are gone."""
    caplog.set_level(logging.INFO)
    replica = make(leader=2)
    for offset in range(3):
        data = encode_batch([NewRecord(None, b"v", (), WALL_MS)], base_offset=offset, leader_epoch=5)
        replica.append_as_follower(memoryview(data), 0)
    replica.truncate_to(3)
    assert not [line for line in caplog.messages if "truncated" in line]
    replica.truncate_to(1)
    (line,) = [line for line in caplog.messages if "truncated" in line]
    assert "to=1" in line and "end=3" in line and "topic=t" in line
    assert replica.log_end_offset == 1


def test_of_very_many_appends_that_are_not_committed_the_newest_count_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A follower that is away for long must not fill the leader's memory. No byte is lost of the count."""
    monkeypatch.setattr("raftwerk.isr.replica._COUNTED_APPENDS_MAX", 2)
    replica = make()
    sizes = [replica.append_as_leader(batch(b"v" * size), -1, TIMES).size_bytes for size in (10, 20, 30, 40)]
    commit_to(replica, 1)
    assert replica.committed_bytes() == (sizes[0], sizes[0])
    commit_to(replica, 3)
    assert replica.committed_bytes() == (0, 0), "the last three are one"
    commit_to(replica, 4)
    assert replica.committed_bytes() == (sum(sizes[1:]), sum(sizes[1:]))


# ------------------------------------------------------------------ records that stay in their file


def read_for(
    replica: Replica,
    replica_id: int,
    offset: int,
    max_bytes: int,
    *,
    slice_bytes_min: int = 100,
    isolation_level: int = 0,
) -> Buffer | FileSlice:
    """The records that a fetch gets which may be answered by a slice of so many bytes or more."""
    wanted = FetchPartition(0, current_leader_epoch=5, fetch_offset=offset, last_fetched_epoch=-1)
    asked = FetchParams(replica_id=replica_id, slice_bytes_min=slice_bytes_min, isolation_level=isolation_level)
    records = replica.read(asked, wanted, max_bytes, min_one_batch=True).records
    assert isinstance(records, bytes | FileSlice)
    return records


def test_only_what_is_committed_stays_in_its_file_until_it_is_sent() -> None:
    """What is above the high watermark may be truncated before; and few bytes are not worth it."""
    replica = make()
    sizes = [replica.append_as_leader(batch(b"v" * 200), -1, TIMES).size_bytes for _ in range(3)]
    commit_to(replica, 2)
    for replica_id in (-1, 2):
        committed = read_for(replica, replica_id, 0, 10_000)
        assert isinstance(committed, FileSlice)
        assert len(committed) == sizes[0] + sizes[1]
        for max_bytes, kind in ((sizes[0], FileSlice), (sizes[0] - 1, bytes)):
            assert isinstance(read_for(replica, replica_id, 0, max_bytes, slice_bytes_min=sizes[0]), kind)
    above = read_for(replica, 2, 2, 10_000)
    assert isinstance(above, bytes) and len(above) == sizes[2]
    assert isinstance(read_for(replica, -1, 2, 10_000), bytes)


def test_records_among_which_there_may_be_aborted_ones_are_looked_at() -> None:
    """The answer names the transactions that have records in it."""
    replica = make()
    write(replica, 7, count=50)
    end(replica, 7, is_commit=False)
    write(replica, 8, count=50)
    end(replica, 8)
    commit_to(replica, 102)
    assert isinstance(read_for(replica, -1, 0, 10_000, isolation_level=READ_COMMITTED), bytes)
    assert isinstance(read_for(replica, -1, 51, 10_000, isolation_level=READ_COMMITTED), FileSlice)
    assert isinstance(read_for(replica, -1, 0, 10_000), FileSlice)


def test_what_comes_in_the_place_of_records_that_were_cut_off_counts_alone() -> None:
    replica = make(leader=2)

    def take(offset: int, size: int) -> int:
        data = encode_batch([NewRecord(None, b"v" * size, (), WALL_MS)], base_offset=offset, leader_epoch=5)
        replica.append_as_follower(memoryview(data), 0)
        return len(data)

    kept, _, _ = take(0, 10), take(1, 20), take(2, 30)
    replica.truncate_to(1)
    instead = take(1, 40)
    replica.append_as_follower(memoryview(b""), 2)
    assert replica.committed_bytes() == (kept + instead,) * 2


def restarted(committed: int, written: int) -> Replica:
    """A leader that started again with so many records, of which it knows so many to be committed."""
    before = make()
    for _ in range(written):
        before.append_as_leader(batch(), -1, TIMES)
    commit_to(before, committed)
    return Replica(before.topic_id, before.partition, before.log, lambda _: None)


def test_records_from_before_the_start_count_as_one_byte_when_they_are_committed() -> None:
    """Who waits for a byte must be told of them, although nobody has counted their bytes."""
    replica = restarted(committed=1, written=3)
    assert replica.committed_bytes() == (0, 0)
    commit_to(replica, 2)
    assert replica.committed_bytes() == (1, 1)
    assert replica.committed_bytes() == (0, 0)
    size_bytes = replica.append_as_leader(batch(), -1, TIMES).size_bytes
    commit_to(replica, 3)
    assert replica.committed_bytes() == (1, 1)
    commit_to(replica, 4)
    assert replica.committed_bytes() == (size_bytes, size_bytes)


def test_records_from_before_the_start_that_are_cut_off_are_not_counted() -> None:
    replica = restarted(committed=1, written=3)
    replica.truncate_to(2)
    size_bytes = replica.append_as_leader(batch(), -1, TIMES).size_bytes
    commit_to(replica, 2)
    assert replica.committed_bytes() == (1, 1)
    commit_to(replica, 3)
    assert replica.committed_bytes() == (size_bytes, size_bytes)
    emptied = restarted(committed=1, written=3)
    emptied.restart_at(7)
    size_bytes = emptied.append_as_leader(batch(), -1, TIMES).size_bytes
    commit_to(emptied, 8)
    assert emptied.committed_bytes() == (size_bytes, size_bytes)


def test_an_open_transaction_from_before_the_start_is_committed_and_not_stable() -> None:
    before = make()
    write(before, 7)
    replica = Replica(before.topic_id, before.partition, before.log, lambda _: None)
    commit_to(replica, 1)
    assert replica.committed_bytes() == (1, 0)
    ended = end(replica, 7)
    commit_to(replica, 2)
    assert replica.committed_bytes() == (ended, ended)
