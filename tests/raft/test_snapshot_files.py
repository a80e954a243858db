"""Snapshots on disk: their format, and that the power may go out between any two steps of making and taking them."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any
from uuid import UUID

import pytest

from raftwerk.chaos.sim.disk.sim_disk import SimDisk
from raftwerk.chaos.sim.disk.sim_file import SimFile
from raftwerk.log.errors import StorageError
from raftwerk.raft.driver.quorum_state_store import QuorumStateStore
from raftwerk.raft.driver.raft_driver import metadata_log_dir, open_metadata_log
from raftwerk.raft.replication.partition_raft_log import PartitionRaftLog
from raftwerk.raft.replication.spare_space import SpareSpace
from raftwerk.raft.snapshots.snapshot_store import (
    SnapshotRetention,
    SnapshotStore,
    encode_snapshot,
    parse_snapshot_name,
    snapshot_batches,
    snapshot_name,
)
from raftwerk.raft.types import ElectionState, ReplicaKey
from raftwerk.raft.voters.voter_set import Voter, VoterListener, VoterSet
from raftwerk.runtime.ports import Buffer, File, Runtime
from raftwerk.wire.errors import ProtocolError
from raftwerk.wire.types import SnapshotId

DIRECTORY = metadata_log_dir("/data")


class PowerCut(BaseException):
    """The machine is off."""


class CutFile(SimFile):
    __slots__ = ()
    _disk: CutDisk

    def append(self, buffers: Any) -> int:
        self._disk.step()
        return super().append(buffers)

    def truncate(self, size: int) -> None:
        self._disk.step()
        super().truncate(size)

    def fsync(self) -> None:
        self._disk.step()
        super().fsync()


class CutDisk(SimDisk):
    """Loses power before the step number `cut_at`, counted from when it is set."""

    cut_at: int | None = None

    def step(self) -> None:
        if self.cut_at is not None:
            self.cut_at -= 1
            if self.cut_at < 0:
                raise PowerCut

    def open(self, path: str, *, create: bool = False) -> SimFile:
        file = super().open(path, create=create)
        file.__class__ = CutFile
        return file

    def rename(self, source: str, target: str) -> None:
        self.step()
        super().rename(source, target)

    def remove(self, path: str) -> None:
        self.step()
        super().remove(path)

    def fsync_dir(self, path: str) -> None:
        self.step()
        super().fsync_dir(path)


class FixedClock:
    def wall_ms(self) -> int:
        return 1_700_000_000_000


def reopen(disk: SimDisk) -> PartitionRaftLog:
    runtime = Runtime(disk=disk, clock=FixedClock(), rng=random.Random(0))
    return PartitionRaftLog(open_metadata_log(runtime, "/data"), runtime)


def new_disk(seed: int = 0) -> CutDisk:
    disk = CutDisk(random.Random(seed))
    disk.makedirs("/data")
    disk.fsync_dir("/")
    return disk


def fill(log: PartitionRaftLog, epochs: range, batches: int = 4) -> None:
    for epoch in epochs:
        for number in range(batches):
            log.append_records([f"{epoch}.{number}".encode() * 3, b"x"], epoch)
    log._log.flush()


def snapshot_bytes(snapshot_id: SnapshotId, payload: bytes = b"state", written_ms: int = 5) -> bytes:
    return b"".join(encode_snapshot(snapshot_id, written_ms, iter([[payload, b"b"], [b"c"]])))


def begin_own(log: PartitionRaftLog, snapshot_id: SnapshotId, written_ms: int = 5) -> None:
    file: File = log.snapshots.begin(snapshot_id)
    file.append([snapshot_bytes(snapshot_id, written_ms=written_ms)])
    file.fsync()
    file.close()


def state(log: PartitionRaftLog) -> tuple[object, ...]:
    return log.start, log.latest_snapshot, log.end_offset, log.last_epoch


def contents(log: PartitionRaftLog) -> list[Any]:
    batches, offset = [], log.start.end_offset
    while offset < log.end_offset:
        batches += log.read_batches(offset, log.end_offset, 1 << 20)
        offset = batches[-1].last_offset + 1
    return batches


def read_records(data: bytes) -> list[bytes] | None:
    try:
        return [*chain.from_iterable(snapshot_batches(data))]
    except ProtocolError:
        return None


def add(log: PartitionRaftLog, snapshot_id: SnapshotId) -> None:
    """And nothing of what is older stays."""
    log.add_snapshot(snapshot_id)
    log.clean(SnapshotRetention(0), 0)


def test_names() -> None:
    name = "00000000000000000123-0000000007.checkpoint"
    assert snapshot_name(SnapshotId(123, 7)) == name
    assert parse_snapshot_name(name) == SnapshotId(123, 7)
    for other in (name + ".part", "leader-epoch-checkpoint", "123-7.checkpoint", "00000000000000000123.log"):
        assert parse_snapshot_name(other) is None


def test_snapshots_are_known_in_order_however_they_came() -> None:
    disk = new_disk()
    log = reopen(disk)
    fill(log, range(1, 4))
    later, earlier = SnapshotId(16, 2), SnapshotId(8, 1)
    for snapshot_id in (later, earlier, later):
        begin_own(log, snapshot_id)
        log.snapshots.publish(snapshot_id)
    assert log.snapshots.ids == [earlier, later]
    assert log.snapshots.latest == later
    assert SnapshotStore(disk, DIRECTORY).ids == [earlier, later]


def test_a_snapshot_that_was_begun_can_be_given_up() -> None:
    disk = new_disk()
    log = reopen(disk)
    snapshot_id = SnapshotId(8, 1)
    begin_own(log, snapshot_id)
    log.snapshots.discard(snapshot_id)
    assert not [name for name in disk.listdir(DIRECTORY) if "checkpoint.part" in name]
    log.snapshots.discard(snapshot_id)
    assert log.snapshots.ids == []


def test_the_size_of_a_snapshot_is_that_of_its_file() -> None:
    log = reopen(new_disk())
    begin_own(log, SnapshotId(8, 1))
    log.snapshots.publish(SnapshotId(8, 1))
    assert log.snapshots.size_bytes(SnapshotId(8, 1)) == len(snapshot_bytes(SnapshotId(8, 1)))
    assert log.snapshots.size_bytes(SnapshotId(9, 1)) == 0
    assert log.snapshots.timestamp_ms(SnapshotId(8, 1)) == 5
    assert log.snapshots.timestamp_ms(SnapshotId(9, 1)) == 0


def test_metadata_is_kept_as_long_as_in_apache_kafka() -> None:
    retention = SnapshotRetention()
    assert not retention.exceeds_size(104_857_600)
    assert retention.exceeds_size(104_857_601)
    assert retention.expiry_ms(0) == 604_800_001, "a snapshot of exactly seven days stays"
    assert not SnapshotRetention(max_bytes=-1).exceeds_size(1 << 62)
    assert SnapshotRetention(max_ms=-1).expiry_ms(0) is None


def test_voters_that_are_cut_off_the_log_count_no_more() -> None:
    disk = new_disk()
    log = reopen(disk)
    fill(log, range(1, 2))
    before = log.end_offset
    at = (VoterListener("CONTROLLER", "h", 9093),)
    first, second = (VoterSet.of([Voter(ReplicaKey(node_id, UUID(int=1)), at)]) for node_id in (1, 2))
    for offset, voters in enumerate((first, second), start=before):
        assert log.append_controls([voters], 2) == offset, "the change is committed with that one"
    assert log.voters.last == second
    log.truncate_to(before + 1)
    assert log.voters.last == first
    log.truncate_to(before)
    assert log.voters.last is None
    log.append_controls([second], 3)
    log._log.flush()
    assert reopen(disk).voters.last == second


def test_records_come_back_and_damage_is_seen() -> None:
    whole = snapshot_bytes(SnapshotId(9, 2))
    assert read_records(whole) == [b"state", b"b", b"c"]
    for end in range(len(whole)):
        assert read_records(whole[:end]) is None
    for at in range(20, len(whole), 7):
        damaged = bytearray(whole)
        damaged[at] ^= 1
        records = read_records(bytes(damaged))
        assert records is None or records == [b"state", b"b", b"c"], "only what a CRC does not cover may differ"


def test_the_log_before_the_snapshots_is_deleted() -> None:
    disk = new_disk()
    log = reopen(disk)
    fill(log, range(1, 3))
    begin_own(log, SnapshotId(16, 2))
    add(log, SnapshotId(16, 2))
    assert state(log) == (SnapshotId(0, 0), SnapshotId(16, 2), 16, 2), "one snapshot alone cuts nothing"
    fill(log, range(3, 5))
    begin_own(log, SnapshotId(32, 4))
    add(log, SnapshotId(32, 4))
    assert state(log) == (SnapshotId(32, 4), SnapshotId(32, 4), 32, 4)
    assert [name for name in disk.listdir(DIRECTORY) if name.endswith((".log", ".checkpoint"))] == [
        "00000000000000000032-0000000004.checkpoint",
        "00000000000000000032.log",
    ]
    fill(log, range(5, 6))
    expected = state(log), contents(log)
    log.close(clean=True)
    again = reopen(disk)
    assert (state(again), contents(again)) == expected
    ends = [epoch_end(again, epoch) for epoch in (1, 3, 4, 5, 9)]
    assert ends == [(-1, -1), (-1, -1), (4, 32), (5, 40), (5, 40)]


def test_old_snapshots_are_deleted_by_age() -> None:
    """All but the newest; -1 keeps them all."""
    log = reopen(new_disk())
    ids = [SnapshotId(8, 1), SnapshotId(16, 2), SnapshotId(24, 3)]
    for snapshot_id, written_ms in zip(ids, (1_000, 2_000, 9_000), strict=True):
        fill(log, range(snapshot_id.epoch, snapshot_id.epoch + 1))
        begin_own(log, snapshot_id, written_ms)
        log.add_snapshot(snapshot_id)
    assert log.clean(SnapshotRetention(-1, -1), 10**15) is None
    week = SnapshotRetention(-1, 500)
    assert log.clean(week, 1_500) == 1_501
    assert (log.start, log.snapshots.ids) == (SnapshotId(0, 0), ids)
    assert log.clean(week, 1_501) == 2_501
    assert (log.start, log.snapshots.ids) == (ids[1], ids[1:])
    assert log.clean(week, 10**15) is None
    assert (log.start, log.snapshots.ids) == (ids[2], ids[2:]), "the last one stays, however old"


def epoch_end(log: PartitionRaftLog, epoch: int) -> tuple[int, int]:
    end = log.end_offset_for(epoch)
    return end.epoch, end.end_offset


def make_own(log: PartitionRaftLog) -> None:
    begin_own(log, SnapshotId(32, 4))
    add(log, SnapshotId(32, 4))


def install_other(log: PartitionRaftLog) -> None:
    data = snapshot_bytes(SnapshotId(50, 6), b"other")
    log.receive_snapshot(SnapshotId(50, 6), 0, data[:30])
    log.receive_snapshot(SnapshotId(50, 6), 30, data[30:])
    assert log.install_snapshot(SnapshotId(50, 6))


def install_inside(log: PartitionRaftLog) -> None:
    """The log reaches beyond the snapshot, but its tail is of a leader that committed nothing of it."""
    data = snapshot_bytes(SnapshotId(36, 6), b"other")
    log.receive_snapshot(SnapshotId(36, 6), 0, data)
    assert log.install_snapshot(SnapshotId(36, 6))


@pytest.mark.parametrize("act", [make_own, install_other, install_inside])
def test_power_cut_at_every_step(act: Callable[[PartitionRaftLog], None]) -> None:
    steps = 0
    for steps in range(200):
        for seed in range(4):
            disk = new_disk(seed)
            log = reopen(disk)
            fill(log, range(1, 3))
            begin_own(log, SnapshotId(16, 2))
            add(log, SnapshotId(16, 2))
            fill(log, range(3, 6))
            tail = [batch for batch in contents(log) if batch.base_offset >= 32]
            disk.cut_at = steps
            try:
                act(log)
                is_done = True
            except PowerCut:
                is_done = False
            disk.cut_at = None
            disk.crash(power_loss=True)
            log = reopen(disk)
            start, latest, end_offset, last_epoch = state(log)
            assert latest in (SnapshotId(16, 2), SnapshotId(32, 4), SnapshotId(36, 6), SnapshotId(50, 6))
            if act is make_own:
                assert (end_offset, last_epoch) == (40, 5), "what was durable stays"
                assert [batch for batch in contents(log) if batch.base_offset >= 32] == tail
                assert start in (SnapshotId(0, 0), SnapshotId(16, 2), SnapshotId(32, 4))
            elif latest != SnapshotId(16, 2):
                assert (start, end_offset, last_epoch) == (latest, latest.end_offset, latest.epoch)
                assert [*chain.from_iterable(log.snapshots.batches(latest))] == [b"other", b"b", b"c"]
            else:
                assert (end_offset, last_epoch) == (40, 5), "as before"
            assert not [name for name in disk.listdir(DIRECTORY) if name.endswith(".part")]
        if is_done:
            break
    assert 5 < steps < 100


def test_a_log_that_diverges_from_its_snapshot_would_be_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        PartitionRaftLog, "_reaches", lambda self, snapshot_id: snapshot_id.end_offset <= self.end_offset
    )
    with pytest.raises(AssertionError):
        test_power_cut_at_every_step(install_inside)


def test_a_damaged_download_changes_nothing() -> None:
    log = reopen(new_disk())
    fill(log, range(1, 3))
    before = state(log)
    log.receive_snapshot(SnapshotId(50, 6), 0, snapshot_bytes(SnapshotId(50, 6))[:-1])
    assert not log.install_snapshot(SnapshotId(50, 6))
    assert state(log) == before


def test_a_log_without_its_snapshot_is_refused() -> None:
    disk = new_disk()
    log = reopen(disk)
    fill(log, range(1, 2))
    install_other(log)
    log.close(clean=True)
    disk.remove(f"{DIRECTORY}/{snapshot_name(SnapshotId(50, 6))}")
    with pytest.raises(StorageError, match="starts at offset 50"):
        reopen(disk)


def test_a_damaged_snapshot_is_refused() -> None:
    disk = new_disk()
    install_other(reopen(disk))
    file = disk.open(f"{DIRECTORY}/{snapshot_name(SnapshotId(50, 6))}")
    file.pwrite(100, b"?")
    with pytest.raises(StorageError, match="is damaged"):
        list(SnapshotStore(disk, DIRECTORY).batches(SnapshotId(50, 6)))


def test_a_damaged_snapshot_whose_records_are_in_the_log_is_removed(caplog: pytest.LogCaptureFixture) -> None:
    disk = new_disk()
    log = reopen(disk)
    fill(log, range(1, 3))
    begin_own(log, SnapshotId(16, 2))
    add(log, SnapshotId(16, 2))
    fill(log, range(3, 5))
    begin_own(log, SnapshotId(32, 4))
    log.add_snapshot(SnapshotId(32, 4))
    expected = contents(log)
    log.close(clean=True)
    disk.open(f"{DIRECTORY}/{snapshot_name(SnapshotId(32, 4))}").pwrite(100, b"?")
    again = reopen(disk)
    assert (again.latest_snapshot, again.end_offset) == (SnapshotId(16, 2), 32)
    assert contents(again) == expected
    assert "is damaged and is removed; the log has what was in it" in caplog.text
    assert snapshot_name(SnapshotId(32, 4)) not in disk.listdir(DIRECTORY)


def test_no_flipped_byte_of_a_snapshot_is_believed() -> None:
    """The log begins where the snapshot ends, so the node refuses to start, with what to do."""
    whole = snapshot_bytes(SnapshotId(50, 6))
    for at in range(len(whole)):
        disk = new_disk()
        log = reopen(disk)
        log.receive_snapshot(SnapshotId(50, 6), 0, whole)
        assert log.install_snapshot(SnapshotId(50, 6))
        log.close(clean=True)
        disk.flip_bit(f"{DIRECTORY}/{snapshot_name(SnapshotId(50, 6))}", at, at % 8)
        try:
            again = reopen(disk)
            records = [*chain.from_iterable(again.snapshots.batches(SnapshotId(50, 6)))]
        except StorageError as error:
            assert "is damaged" in str(error) and "Restore it. Or let the node fetch all" in str(error)
        else:
            assert records == [b"state", b"b", b"c"], "only what a CRC does not cover may differ"


def test_a_damaged_snapshot_after_the_log_ends_changes_nothing() -> None:
    disk = new_disk()
    log = reopen(disk)
    fill(log, range(1, 3))
    log.close(clean=True)
    name = f"{DIRECTORY}/{snapshot_name(SnapshotId(50, 6))}"
    disk.write_atomic(name, snapshot_bytes(SnapshotId(50, 6))[:-1])
    before = disk.read_bytes(f"{DIRECTORY}/{0:020d}.log")
    with pytest.raises(StorageError, match="is damaged"):
        reopen(disk)
    assert disk.read_bytes(f"{DIRECTORY}/{0:020d}.log") == before


def test_a_disk_that_is_full_within_a_download_gives_it_the_spare_space(monkeypatch: pytest.MonkeyPatch) -> None:
    """A part may have been written in part. It is written again at its position."""
    disk = new_disk()
    spare = SpareSpace(disk, "/data", 4096)
    assert spare.hold()
    runtime = Runtime(disk, FixedClock(), random.Random(0))
    log = PartitionRaftLog(open_metadata_log(runtime, "/data"), runtime, spare)
    data = snapshot_bytes(SnapshotId(50, 6))
    log.receive_snapshot(SnapshotId(50, 6), 0, data[:30])
    write = SimFile.append

    def append_in_part(file: SimFile, buffers: Sequence[Buffer]) -> int:
        if not spare.is_held:
            return write(file, buffers)
        write(file, [memoryview(buffers[0])[:7]])
        raise OSError(errno.ENOSPC, "no space left on device")

    monkeypatch.setattr(SimFile, "append", append_in_part)
    log.receive_snapshot(SnapshotId(50, 6), 30, data[30:])
    assert not spare.is_held and log.install_snapshot(SnapshotId(50, 6))
    assert disk.read_bytes(f"{DIRECTORY}/{snapshot_name(SnapshotId(50, 6))}") == data


def test_an_interrupted_download_leaves_no_file_behind() -> None:
    disk = new_disk()
    log = reopen(disk)

    def parts() -> list[str]:
        return [name for name in disk.listdir(DIRECTORY) if name.endswith(".part")]

    log.receive_snapshot(SnapshotId(36, 6), 0, b"some")
    log.receive_snapshot(SnapshotId(50, 6), 0, b"of another")
    assert parts() == [f"{snapshot_name(SnapshotId(50, 6))}.part"]
    leader = reopen(new_disk(1))
    leader.append_records([b"a"], 1)
    log.append_fetched(leader.read(0, 1000), 1)
    assert parts() == [], "records came after all"


@pytest.mark.parametrize("seed", range(20))
def test_a_vote_of_a_node_without_records_survives_a_loss_of_power(seed: int) -> None:
    disk = new_disk(seed)
    reopen(disk)
    vote = ElectionState(1, None, ReplicaKey(2, UUID(int=7)))
    QuorumStateStore(disk, DIRECTORY).write(vote)
    disk.crash(power_loss=True)
    reopen(disk)
    assert QuorumStateStore(disk, DIRECTORY).read() == vote
