"""One replica with its log: what it refuses, and which bytes have become readable."""

from __future__ import annotations

import pytest
from support.isr.replicas import TOPIC_ID, TP, WALL_MS, FakeBrokers, Reg, batch, make_runtime, open_log

from raftwerk.isr.leader.leader_state import LeaderConfig
from raftwerk.isr.partition import Partition
from raftwerk.isr.replica import Replica
from raftwerk.isr.results import FetchParams
from raftwerk.log.errors import NoSpaceError
from raftwerk.log.state.transaction_verification import VERIFICATION_OFF
from raftwerk.wire.errors import ErrorCode, ProtocolError
from raftwerk.wire.fetch import FetchPartition
from raftwerk.wire.records import NewRecord, encode_batch

TIMES = (0, WALL_MS)


def make(leader: int = 1, isr: tuple[int, ...] = (1, 2)) -> Replica:
    """Broker 1's replica of a partition that `leader` leads in epoch 5."""
    runtime, _ = make_runtime()
    partition = Partition(TP, LeaderConfig(1, 1, 1000), FakeBrokers({1: 101, 2: 102}), 0)
    replica = Replica(TOPIC_ID, partition, open_log(runtime), lambda replica: None)
    registration = Reg((1, 2), isr, leader, 5, 10)
    if leader == 1:
        replica.make_leader(registration, 0)
    else:
        replica.make_follower(registration)
    return replica


def fetched(replica: Replica, follower: int, offset: int) -> None:
    """A follower fetches from the offset."""
    replica.on_fetch(FetchParams(replica_id=follower, replica_epoch=100 + follower), at(offset), 0)


def at(offset: int) -> FetchPartition:
    return FetchPartition(0, current_leader_epoch=5, fetch_offset=offset, last_fetched_epoch=-1)


def transactional(sequence: int) -> memoryview:
    record = NewRecord(None, b"v", (), WALL_MS)
    return memoryview(
        encode_batch([record], producer_id=7, producer_epoch=0, base_sequence=sequence, is_transactional=True)
    )


def test_a_replica_whose_log_failed_refuses_records_also_while_it_leads() -> None:
    replica = make()
    replica.offline = True
    with pytest.raises(ProtocolError) as refused:
        replica.append_as_leader(batch(), -1, TIMES)
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert replica.log_end_offset == 0


def test_a_replica_that_does_not_lead_refuses_records() -> None:
    with pytest.raises(ProtocolError) as refused:
        make(leader=2).append_as_leader(batch(), -1, TIMES)
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_node_0_fetches_as_a_follower() -> None:
    """It has no replica of this partition, so it is refused, and not taken for a consumer."""
    replica = make()
    replica.on_fetch(FetchParams(replica_id=-1), at(0), 0)
    with pytest.raises(ProtocolError):
        fetched(replica, 0, 0)


def test_bytes_are_readable_once_when_they_are_committed() -> None:
    replica = make()
    sizes = [replica.append_as_leader(batch(b"v" * size), -1, TIMES).size_bytes for size in (10, 20, 30)]
    assert replica.committed_bytes() == (0, 0)
    fetched(replica, 2, 2)
    assert replica.committed_bytes() == (sizes[0] + sizes[1],) * 2
    assert replica.committed_bytes() == (0, 0)
    fetched(replica, 2, 3)
    assert replica.committed_bytes() == (sizes[2], sizes[2])


def test_bytes_of_an_open_transaction_are_committed_and_not_stable() -> None:
    replica = make()
    before = replica.append_as_leader(batch(), -1, TIMES).size_bytes
    first, second = (
        replica.append_as_leader(transactional(sequence), -1, TIMES, guard=VERIFICATION_OFF).size_bytes
        for sequence in (0, 1)
    )
    fetched(replica, 2, 1)
    assert replica.committed_bytes() == (before, before)
    fetched(replica, 2, 3)
    assert replica.committed_bytes() == (first + second, 0)
    assert replica.committed_bytes() == (0, 0)


@pytest.mark.parametrize("in_transaction", [False, True])
def test_many_appends_that_wait_are_counted_in_bounded_memory(
    in_transaction: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For the high watermark, or for the end of a transaction, which may stay open for hours."""
    monkeypatch.setattr("raftwerk.isr.replica._COUNTED_APPENDS_MAX", 3)
    replica = make()
    size = 0
    for sequence in range(10):
        records = transactional(sequence) if in_transaction else batch()
        size += replica.append_as_leader(records, -1, TIMES, guard=VERIFICATION_OFF).size_bytes
        if in_transaction:
            fetched(replica, 2, replica.log_end_offset)
            replica.committed_bytes()
    waiting = replica._unstable if in_transaction else replica._uncommitted
    assert len(waiting) == 3
    assert waiting[-1][0] == 10 and sum(size_bytes for _, size_bytes in waiting) == size


def test_what_is_truncated_never_becomes_readable() -> None:
    replica = make(leader=2)
    sizes = []
    for offset in range(3):
        data = encode_batch([NewRecord(None, b"v" * offset, (), WALL_MS)], base_offset=offset, leader_epoch=5)
        sizes.append(len(data))
        replica.append_as_follower(memoryview(data), 0)
    replica.truncate_to(2)
    replica.append_as_follower(memoryview(b""), 9)
    assert replica.high_watermark == 2, "as far as the log reaches"
    assert replica.committed_bytes() == (sizes[0] + sizes[1],) * 2


def test_what_was_there_before_a_restart_of_the_log_never_becomes_readable() -> None:
    replica = make(leader=2)
    data = encode_batch([NewRecord(None, b"v", (), WALL_MS)], base_offset=0, leader_epoch=5)
    replica.append_as_follower(memoryview(data), 0)
    replica.restart_at(10)
    replica.append_as_follower(memoryview(b""), 10)
    assert (replica.log_end_offset, replica.high_watermark) == (10, 10)
    assert replica.committed_bytes() == (0, 0)


def test_when_nothing_happens_by_the_next_fetch_of_a_follower() -> None:
    replica = make(isr=(1,))
    replica.append_as_leader(batch(), -1, TIMES)
    assert not replica.is_clean_for(2, 0, is_counted=True), "there is a record for it"
    assert replica.is_clean_for(2, 1, is_counted=True)
    assert not replica.is_clean_for(2, 1, is_counted=False), "it may be proposed for the ISR"
    member = make(isr=(1, 2))
    assert member.is_clean_for(2, 0, is_counted=False)
    member.offline = True
    assert not member.is_clean_for(2, 0, is_counted=True)
    assert not make(leader=2).is_clean_for(2, 0, is_counted=True), "another leads"


# ------------------------------------------------------------------ where epochs end


def with_epochs(leader_epoch: int, leader: int = 1) -> Replica:
    """Offsets 0 to 2 are of epoch 2, and 3 and 4 of epoch 4; broker `leader` leads in that epoch."""
    replica = make(leader=2)
    for offset, epoch in enumerate((2, 2, 2, 4, 4)):
        data = encode_batch([NewRecord(None, b"v", (), WALL_MS)], base_offset=offset, leader_epoch=epoch)
        replica.append_as_follower(memoryview(data), 0)
    registration = Reg((1, 2), (1, 2), leader, leader_epoch, 11)
    if leader == 1:
        replica.make_leader(registration, 0)
    else:
        replica.make_follower(registration)
    return replica


@pytest.mark.parametrize(
    ("epoch", "expected"),
    [(-1, (-1, -1)), (1, (1, 0)), (2, (2, 3)), (3, (2, 3)), (4, (4, 5)), (7, (4, 5)), (9, (9, 5)), (10, (-1, -1))],
)
def test_a_leader_tells_where_each_epoch_ends_in_its_log(epoch: int, expected: tuple[int, int]) -> None:
    """By that a follower finds where the two logs part (KIP-101). The leader's own epoch, 9, has no record yet."""
    assert tuple(with_epochs(9).end_offset_for_epoch(epoch)) == expected


@pytest.mark.parametrize(("epoch", "expected"), [(-1, (-1, -1)), (2, (2, 3)), (4, (4, 5)), (7, (-1, -1))])
def test_a_follower_knows_nothing_of_epochs_above_its_log(epoch: int, expected: tuple[int, int]) -> None:
    """It may be read by consumers near it (KIP-392), and its leader may have records of that epoch."""
    assert tuple(with_epochs(9, leader=2).end_offset_for_epoch(epoch)) == expected


@pytest.mark.parametrize(("leader", "expected"), [(1, (3, 0)), (2, (-1, -1))])
def test_in_an_empty_log_a_former_epoch_ends_where_the_leaders_begins(leader: int, expected: tuple[int, int]) -> None:
    assert tuple(make(leader=leader).end_offset_for_epoch(3)) == expected


@pytest.mark.parametrize(
    ("offset", "epoch", "diverging"),
    [(5, 4, None), (3, 2, None), (5, 2, (2, 3)), (4, 3, (2, 3)), (5, 9, None), (0, -1, None), (2, 1, (1, 0))],
)
def test_a_fetch_is_told_where_its_log_parts_from_the_leaders(
    offset: int, epoch: int, diverging: tuple[int, int] | None
) -> None:
    wanted = FetchPartition(0, current_leader_epoch=9, fetch_offset=offset, last_fetched_epoch=epoch)
    answer = with_epochs(9).read(FetchParams(replica_id=2), wanted, 1 << 20, min_one_batch=True)
    assert (None if answer.diverging_epoch is None else tuple(answer.diverging_epoch)) == diverging
    assert bool(answer.records) == (diverging is None and offset < 5), "records only where the logs agree"


@pytest.mark.parametrize(("offset", "epoch"), [(6, -1), (1, -1), (1, 2), (5, 10)])
def test_a_fetch_outside_of_the_log_or_of_an_unknown_epoch_is_refused(offset: int, epoch: int) -> None:
    """The log begins at 2. The fetcher has to ask where it begins and ends."""
    replica = with_epochs(9)
    replica.partition.watermark.reset(5)
    replica.log.raise_start(2)
    wanted = FetchPartition(0, current_leader_epoch=9, fetch_offset=offset, last_fetched_epoch=epoch)
    with pytest.raises(ProtocolError) as refused:
        replica.read(FetchParams(replica_id=2), wanted, 1 << 20, min_one_batch=True)
    assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_batches_of_epochs_that_the_leader_cannot_know_are_cut_off(caplog: pytest.LogCaptureFixture) -> None:
    """No CRC covers the epoch of a batch: it was damaged on the disk."""
    replica = with_epochs(3)
    assert replica.log_end_offset == 3
    assert [entry.epoch for entry in replica.log.epoch_cache.entries] == [2]
    assert "cut at offset 3" in caplog.text and "epoch 4 there" in caplog.text
    assert with_epochs(4).log_end_offset == 5


def test_a_log_without_space_refuses_records_and_serves_what_it_has() -> None:
    replica = make()
    replica.append_as_leader(batch(), 1, TIMES)
    replica.has_space = False
    with pytest.raises(NoSpaceError):
        replica.append_as_leader(batch(), 1, TIMES)
    wanted = FetchPartition(0, current_leader_epoch=5, fetch_offset=0, last_fetched_epoch=-1)
    assert replica.read(FetchParams(replica_id=2), wanted, 1 << 20, min_one_batch=True).records
    follower = make(leader=2)
    follower.has_space = False
    data = encode_batch([NewRecord(None, b"v", (), WALL_MS)], base_offset=0, leader_epoch=5)
    with pytest.raises(NoSpaceError):
        follower.append_as_follower(memoryview(data), 0)
    follower.append_as_follower(memoryview(b""), 0)


def test_a_replica_reads_for_consumers_near_it_only_if_it_may() -> None:
    """KIP-392: the consumer's rack decides. A follower is served by the leader only."""
    replica = make(leader=2)
    wanted = FetchPartition(0, current_leader_epoch=5, fetch_offset=0, last_fetched_epoch=-1)
    near = FetchParams(from_follower_allowed=True)
    assert replica.on_fetch(near, wanted, 0) is None
    assert replica.read(near, wanted, 100, min_one_batch=True).error_code == 0
    for params in (FetchParams(), FetchParams(replica_id=2, replica_epoch=102)):
        with pytest.raises(ProtocolError) as refused:
            replica.on_fetch(params, wanted, 0)
        assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        with pytest.raises(ProtocolError):
            replica.read(params, wanted, 100, min_one_batch=True)
