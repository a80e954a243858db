"""The metadata log on disk: what it says of its epochs, its batches and its voters, also after it was opened again."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.raft.memory_log import MemoryLog
from support.raft.noting_disk import NotingDisk

from raftwerk.chaos.sim.disk.sim_disk import SimDisk
from raftwerk.log.errors import StorageError
from raftwerk.raft.driver.raft_driver import metadata_log_dir, open_metadata_log
from raftwerk.raft.replication.partition_raft_log import PartitionRaftLog
from raftwerk.raft.snapshots.snapshot_store import SnapshotRetention, encode_snapshot
from raftwerk.raft.types import LOG_BEGIN, CommittedBatch, ReplicaKey
from raftwerk.raft.voters.voter_set import KRaftVersion, LeaderChange, Voter, VoterListener, VoterSet
from raftwerk.runtime.ports import Runtime
from raftwerk.wire.errors import ProtocolError
from raftwerk.wire.records import ControlRecordType, NewRecord, encode_batch, encode_control_record, set_base_offset
from raftwerk.wire.types import SnapshotId

NOW_MS = 1_700_000_000_000


class FixedClock:
    def wall_ms(self) -> int:
        return NOW_MS


def new_disk() -> SimDisk:
    disk = SimDisk(random.Random(0))
    disk.makedirs("/data")
    return disk


def opened(disk: SimDisk | None = None) -> PartitionRaftLog:
    runtime = Runtime(disk=disk or new_disk(), clock=FixedClock(), rng=random.Random(0))
    return PartitionRaftLog(open_metadata_log(runtime, "/data"), runtime)


def voters(*ids: int) -> VoterSet:
    return VoterSet.of(Voter(ReplicaKey(i, UUID(int=i)), (VoterListener("CONTROLLER", f"n{i}", 9093),)) for i in ids)


def batch(offset: int, epoch: int, *records: bytes) -> bytes:
    return bytes(encode_batch([NewRecord(None, one, (), 7) for one in records], base_offset=offset, leader_epoch=epoch))


# ---- epochs ----------------------------------------------------------------------------------------------------------

STEPS = st.lists(st.tuples(st.sampled_from(["append", "append", "truncate"]), st.integers(0, 3)), max_size=12)


@given(STEPS)
@settings(max_examples=60)
def test_it_says_of_its_epochs_what_a_log_in_memory_says(steps: list[tuple[str, int]]) -> None:
    log, oracle = opened(), MemoryLog()
    ends = [0]
    for what, number in steps:
        if what == "append":
            epoch = max(1, oracle.last_epoch + number // 2)
            records = [b"x"] * (1 + number)
            assert log.append_records(records, epoch) == oracle.append_records(records, epoch)
            ends.append(oracle.end_offset)
        else:
            del ends[max(1, len(ends) - number) :]
            log.truncate_to(ends[-1])
            oracle.truncate_to(ends[-1])
        assert (log.end_offset, log.last_epoch) == (oracle.end_offset, oracle.last_epoch)
        for epoch in range(oracle.last_epoch + 2):
            assert log.end_offset_for(epoch) == oracle.end_offset_for(epoch), epoch


def test_what_a_snapshot_replaces_counts_as_one_epoch() -> None:
    log = opened()
    snapshot = SnapshotId(5, 3)
    log.receive_snapshot(snapshot, 0, b"".join(encode_snapshot(snapshot, 5, iter([[b"a"]]))))
    assert log.install_snapshot(snapshot)
    assert (log.start, log.end_offset, log.last_epoch) == (snapshot, 5, 3)
    assert [tuple(log.end_offset_for(epoch)) for epoch in (2, 3, 9)] == [(-1, -1), (3, 5), (3, 5)]
    log.append_records([b"x"], 3)
    log.append_records([b"x"], 4)
    assert [tuple(log.end_offset_for(epoch)) for epoch in (2, 3, 4, 9)] == [(-1, -1), (3, 6), (4, 7), (4, 7)]


# ---- batches ---------------------------------------------------------------------------------------------------------


def test_batches_are_read_with_their_records_and_those_of_control_records_without() -> None:
    log = opened()
    log.append_records([b"a", b"b"], 1)
    log.append_controls([LeaderChange(1, (), ()), KRaftVersion(1)], 2)
    log.append_records([b"c"], 2)
    found = log.read_batches(0, log.end_offset, 1 << 20)
    sizes = [one.size_bytes for one in found]
    assert found == [
        CommittedBatch(0, 1, 1, NOW_MS, [b"a", b"b"], sizes[0]),
        CommittedBatch(2, 3, 2, NOW_MS, [], sizes[1]),
        CommittedBatch(4, 4, 2, NOW_MS, [b"c"], sizes[2]),
    ]
    assert sum(sizes) == log._log.size_bytes
    assert log.read_batches(0, 2, 1 << 20) == found[:1], "what is not committed is not read"
    assert log.read_batches(2, 5, 1) == found[1:2], "one batch, however small the piece"


def test_what_a_leader_sends_is_taken_with_its_voters() -> None:
    source, log = opened(), opened()
    source.append_records([b"a"], 1)
    source.append_controls([KRaftVersion(1), voters(1, 2)], 2)
    log.append_fetched(source.read(0, 1 << 20), 2)
    assert (log.end_offset, log.last_epoch) == (3, 2)
    assert (log.voters.last, log.voters.last_offset, log.voters.version) == (voters(1, 2), 2, 1)
    assert (source.voters.last, source.voters.last_offset) == (voters(1, 2), 2)


def test_what_is_of_a_later_epoch_than_its_leader_is_left_out_with_its_voters() -> None:
    source, log = opened(), opened()
    source.append_records([b"a"], 1)
    source.append_controls([KRaftVersion(1), voters(1, 2)], 2)
    log.append_fetched(source.read(0, 1 << 20), 1)
    assert (log.end_offset, log.voters.last, log.voters.version) == (1, None, 0)


def test_what_is_refused_is_logged_once_until_something_is_taken(caplog: pytest.LogCaptureFixture) -> None:
    log = opened()
    caplog.set_level(logging.WARNING)

    def refuse(data: bytes) -> None:
        with pytest.raises(ProtocolError):
            log.append_fetched(data, 1)

    for _ in range(2):
        refuse(b"no batch" * 20)
    assert caplog.messages == [
        "this node does not take what the quorum's leader sent: No batch at byte 0 of what the leader sent."
    ]
    refuse(batch(0, 9, b"of a later epoch"))
    assert len(caplog.messages) == 2, "that is something else"
    for _ in range(2):
        refuse(b"no batch" * 20)
    log.append_fetched(batch(0, 1, b"a"), 1)
    refuse(b"no batch" * 20)
    assert len(caplog.messages) == 4
    assert log.end_offset == 1


def test_a_disk_that_fails_is_no_refusal_of_what_was_sent_or_asked_for(caplog: pytest.LogCaptureFixture) -> None:
    disk = new_disk()
    log = opened(disk)
    log.append_fetched(batch(0, 1, b"a"), 1)
    disk.fail_dir("/data")
    with pytest.raises(StorageError):
        log.append_fetched(batch(1, 1, b"b"), 1)
    with pytest.raises(StorageError):
        log.read(0, 100)
    assert "this node does not take" not in caplog.text
    assert "this node cannot read its metadata log for others" not in caplog.text


# ---- voters ----------------------------------------------------------------------------------------------------------


def test_the_voters_are_read_from_all_of_a_log_when_it_is_opened() -> None:
    disk = new_disk()
    log = opened(disk)
    log.append_controls([KRaftVersion(1), voters(1)], 1)
    for _ in range(3):
        log.append_records([b"x" * 700_000], 1)
    log.append_controls([voters(1, 2)], 1)
    log.close(clean=True)
    again = opened(disk)
    assert (again.voters.last, again.voters.last_offset, again.voters.version) == (voters(1, 2), 5, 1)
    again.truncate_to(5)
    assert (again.voters.last, again.voters.last_offset) == (voters(1), 1)


def test_each_change_of_the_voters_is_read_once() -> None:
    disk = new_disk()
    log = opened(disk)
    log.append_controls([KRaftVersion(1), voters(1)], 1)
    for number in range(2, 5):
        log.append_controls([voters(*range(1, number))], 1)
        for _ in range(2):  # so large that the next change begins a piece of what is read at once
            log.append_records([b"x" * (1024 * 1024 - 100)], 1)
        log.append_controls([voters(*range(2, number + 2))], 1)
    log.close(clean=True)
    again = opened(disk)
    assert (again.voters._sets, again.voters._versions) == (log.voters._sets, log.voters._versions)


def test_an_incomplete_batch_at_the_end_of_what_was_fetched_is_left_out() -> None:
    log = opened()
    log.append_fetched(batch(0, 1, b"a") + batch(1, 1, b"b")[:-3], 1)
    assert log.end_offset == 1


def publish(log: PartitionRaftLog, snapshot: SnapshotId, *records: bytes) -> None:
    controls = log.voters.snapshot_records(snapshot.end_offset)
    file = log.snapshots.begin(snapshot)
    file.append([b"".join(encode_snapshot(snapshot, 5, iter([records]), controls))])
    file.fsync()
    file.close()
    log.add_snapshot(snapshot)


def test_the_voters_are_read_from_the_snapshot_that_the_log_starts_with() -> None:
    disk = new_disk()
    log = opened(disk)
    log.append_controls([KRaftVersion(1), voters(1)], 1)
    for end_offset in (2, 3, 4):
        publish(log, SnapshotId(end_offset, 1), b"a")
        log.append_records([b"x"], 1)
    log.append_controls([voters(1, 2)], 1)
    log._log.flush()
    assert log.clean(SnapshotRetention(0), 0) is None
    assert log.start == SnapshotId(4, 1)
    log.close(clean=True)
    again = opened(disk)
    assert again.start == SnapshotId(4, 1)
    assert (again.voters.last, again.voters.last_offset, again.voters.version) == (voters(1, 2), 5, 1)
    assert again.voters.voters_at(5) == voters(1)


# ---- its own snapshots -----------------------------------------------------------------------------------------------


def test_a_snapshot_that_is_not_newer_than_the_latest_is_given_up() -> None:
    disk = new_disk()
    log = opened(disk)
    log.append_records([b"a", b"b"], 1)
    log.append_records([b"c"], 1)
    publish(log, SnapshotId(2, 1), b"a")
    for end_offset in (2, 1):
        begun = SnapshotId(end_offset, 1)
        log.snapshots.begin(begun).close()
        log.add_snapshot(begun)
        assert log.snapshots.ids == [SnapshotId(2, 1)]
        log.snapshots.check(SnapshotId(2, 1))
    assert not [name for name in disk.listdir(metadata_log_dir("/data")) if name.endswith(".part")]
    publish(log, SnapshotId(3, 1), b"a")
    assert log.latest_snapshot == SnapshotId(3, 1)


def test_old_snapshots_are_deleted_by_the_size_of_all_that_is_kept() -> None:
    log = opened()
    for number in range(1, 4):
        log.append_records([b"x" * 1000], 1)
        publish(log, SnapshotId(number, 1), b"y" * 500)
    kept = log._log.size_bytes + sum(log.snapshots.size_bytes(one) for one in log.snapshots.ids)
    assert log.clean(SnapshotRetention(kept, -1), 0) is None
    assert (log.start, len(log.snapshots.ids)) == (LOG_BEGIN, 3)
    assert log.clean(SnapshotRetention(kept - 1, -1), 0) is None
    assert (log.start, log.snapshots.ids) == (SnapshotId(2, 1), [SnapshotId(2, 1), SnapshotId(3, 1)])


def download(log: PartitionRaftLog, snapshot: SnapshotId, data: bytes) -> bool:
    log.receive_snapshot(snapshot, 0, data)
    return log.install_snapshot(snapshot)


def test_an_installed_snapshot_says_who_votes_and_takes_the_place_of_what_was_known() -> None:
    log = opened()
    log.append_controls([KRaftVersion(1), voters(1)], 1)
    data = b"".join(encode_snapshot(SnapshotId(9, 3), 5, iter([[b"a"]]), [KRaftVersion(1), voters(1, 2)]))
    assert download(log, SnapshotId(9, 3), data)
    assert (log.voters.last, log.voters.last_offset) == (voters(1, 2), 8)
    assert log.durable_offset == 9
    data = b"".join(encode_snapshot(SnapshotId(12, 3), 5, iter([[b"a"]])))
    assert download(log, SnapshotId(12, 3), data)
    assert (log.voters.last, log.voters.version) == (None, 0)


def test_a_snapshot_that_was_downloaded_is_the_only_one() -> None:
    log = opened()
    log.append_records([b"a", b"b"], 1)
    publish(log, SnapshotId(2, 1), b"a")
    assert download(log, SnapshotId(9, 3), b"".join(encode_snapshot(SnapshotId(9, 3), 5, iter([[b"a"]]))))
    assert log.snapshots.ids == [SnapshotId(9, 3)]


def test_a_damaged_download_leaves_no_file_behind() -> None:
    disk = new_disk()
    log = opened(disk)
    before = disk.listdir(metadata_log_dir("/data"))
    data = b"".join(encode_snapshot(SnapshotId(9, 3), 5, iter([[b"a"]])))
    assert not download(log, SnapshotId(9, 3), data[:-1])
    assert disk.listdir(metadata_log_dir("/data")) == before


def test_a_damaged_snapshot_that_the_log_begins_with_is_left_for_who_may_restore_it() -> None:
    disk = new_disk()
    log = opened(disk)
    snapshot = SnapshotId(9, 3)
    assert download(log, snapshot, b"".join(encode_snapshot(snapshot, 5, iter([[b"a"]]))))
    log.close(clean=True)
    disk.flip_bit(log.snapshots.path(snapshot), 80, 1)
    with pytest.raises(StorageError, match="is damaged"):
        opened(disk)
    assert disk.exists(log.snapshots.path(snapshot))


def take_records(log: PartitionRaftLog) -> None:
    log.append_fetched(batch(0, 1, b"a"), 1)


def begin_anew(log: PartitionRaftLog) -> None:
    log.receive_snapshot(SnapshotId(12, 3), 0, b"other")


def install_what_is_damaged(log: PartitionRaftLog) -> None:
    assert not log.install_snapshot(SnapshotId(9, 3))


def close(log: PartitionRaftLog) -> None:
    log.close(clean=True)


@pytest.mark.parametrize("end", [take_records, begin_anew, install_what_is_damaged, close])
def test_the_file_of_a_download_that_has_ended_is_closed(end: Callable[[PartitionRaftLog], None]) -> None:
    disk = NotingDisk()
    log = opened(disk)
    log.receive_snapshot(SnapshotId(9, 3), 0, b"begun")
    (file,) = disk.files
    assert file.size() == 5
    end(log)
    with pytest.raises(OSError, match="file is closed"):
        file.size()


@pytest.mark.parametrize(("epoch", "start"), [(2, LOG_BEGIN), (1, SnapshotId(3, 1)), (3, SnapshotId(3, 3))])
def test_a_log_is_kept_if_it_has_the_last_record_of_its_snapshot(epoch: int, start: SnapshotId) -> None:
    """A crash after a download leaves both; the tail of a leader that committed nothing of it does not count."""
    disk = new_disk()
    log = opened(disk)
    log.append_records([b"a", b"b"], 1)
    log.append_records([b"c"], 2)
    log.append_records([b"d"], 3)
    snapshot = SnapshotId(3, epoch)
    file = log.snapshots.begin(snapshot)
    file.append([b"".join(encode_snapshot(snapshot, 5, iter([[b"a"]])))])
    file.fsync()
    file.close()
    log.snapshots.publish(snapshot)
    log.close(clean=True)
    again = opened(disk)
    assert again.start == start
    assert again.end_offset == (4 if start == LOG_BEGIN else 3)


def test_without_a_download_there_is_nothing_to_install() -> None:
    log = opened()
    log.append_records([b"a"], 1)
    assert not log.install_snapshot(SnapshotId(5, 1))
    assert (log.start, log.end_offset) == (LOG_BEGIN, 1)


def test_a_snapshot_whose_voters_cannot_be_read_is_damaged() -> None:
    log = opened()
    header, *rest = encode_snapshot(SnapshotId(2, 1), 5, iter([[b"a"]]))
    wrong = encode_control_record(ControlRecordType.KRAFT_VOTERS, b"", 5)
    batches = [header, encode_batch([wrong], base_offset=1, leader_epoch=1, is_control=True)]
    file = log.snapshots.begin(SnapshotId(2, 1))
    for at, data in enumerate(rest, start=2):
        set_base_offset(data, 0, at)
        batches.append(data)
    file.append([b"".join(batches)])
    file.close()
    log.snapshots.publish(SnapshotId(2, 1))
    log.snapshots.check(SnapshotId(2, 1))
    with pytest.raises(StorageError, match="is damaged"):
        log.snapshots.controls(SnapshotId(2, 1))
