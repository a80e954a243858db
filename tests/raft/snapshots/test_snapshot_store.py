"""The file of a snapshot: its parts for other nodes, its contents, and what makes it whole."""

from __future__ import annotations

import random
from collections.abc import Iterable
from uuid import UUID

import pytest

from raftwerk.chaos.sim.disk.sim_disk import SimDisk
from raftwerk.raft.snapshots.snapshot_store import (
    SnapshotStore,
    encode_snapshot,
    parse_snapshot_name,
    snapshot_batches,
    snapshot_name,
)
from raftwerk.raft.types import ReplicaKey
from raftwerk.raft.voters.voter_set import KRaftVersion, Voter, VoterListener, VoterSet
from raftwerk.wire.errors import ProtocolError
from raftwerk.wire.records import iter_headers, set_base_offset
from raftwerk.wire.types import SnapshotId

SNAPSHOT = SnapshotId(9, 2)
CONTROLS = (
    KRaftVersion(1),
    VoterSet.of([Voter(ReplicaKey(1, UUID(int=1)), (VoterListener("CONTROLLER", "n1", 9093),))]),
)


def batches_of(*payloads: list[bytes]) -> list[bytearray]:
    return list(encode_snapshot(SNAPSHOT, 5, iter(payloads), CONTROLS))


def store(content: bytes = b"", snapshot: SnapshotId = SNAPSHOT) -> SnapshotStore:
    """A store with one snapshot."""
    disk = SimDisk(random.Random(0))
    disk.makedirs("/data")
    disk.write_atomic(f"/data/{snapshot_name(snapshot)}", content)
    return SnapshotStore(disk, "/data")


@pytest.mark.parametrize(
    ("position", "max_bytes", "part"),
    [
        (0, 10, b"abcdef"),
        (0, 6, b"abcdef"),
        (0, 2, b"ab"),
        (4, 2, b"ef"),
        (4, 9, b"ef"),
        (5, 1, b"f"),
        (0, 0, b""),
        (6, 9, b""),
        (-1, 9, b""),
    ],
)
def test_a_part_is_what_the_file_has_there(position: int, max_bytes: int, part: bytes) -> None:
    assert store(b"abcdef").read(SNAPSHOT, position, max_bytes) == (6, part)


def test_nothing_is_read_of_a_snapshot_that_is_not_there() -> None:
    other = SnapshotId(9, 3)
    assert store(b"abcdef").read(other, 0, 9) is None
    assert store(b"abcdef").size_bytes(other) == 0


def test_a_file_without_a_whole_batch_does_not_say_when_it_was_written() -> None:
    whole = bytes(batches_of([b"a"])[0])
    assert store(whole[:60]).timestamp_ms(SNAPSHOT) == 0
    assert store(whole[:61]).timestamp_ms(SNAPSHOT) == 5, "the header of a batch has 61 bytes"


@pytest.mark.parametrize(
    "name",
    [
        "00000000000000000009-0000000002.checkpoint.part",
        "0000000000000000009-0000000002.checkpoint",
        "00000000000000000009-000000002.checkpoint",
        "0000000000000000000x-0000000002.checkpoint",
        "00000000000000000009-000000000x.checkpoint",
        "00000000000000000009.checkpoint",
        "00000000000000000009-0000000002",
    ],
)
def test_other_names_are_not_those_of_snapshots(name: str) -> None:
    assert parse_snapshot_name("00000000000000000009-0000000002.checkpoint") == SNAPSHOT
    assert parse_snapshot_name(name) is None


def test_what_was_never_finished_is_removed_and_nothing_else() -> None:
    one = store(b"abcdef")
    for name in ("00000000000000000019-0000000002.checkpoint.part", "quorum-state", "00000000000000000000.log"):
        one.disk.write_atomic(f"/data/{name}", b"x")
    assert SnapshotStore(one.disk, "/data").ids == [SNAPSHOT]
    assert sorted(one.disk.listdir("/data")) == ["00000000000000000000.log", snapshot_name(SNAPSHOT), "quorum-state"]


def test_snapshots_that_end_before_an_offset_are_deleted() -> None:
    one = store()
    for end_offset in (5, 12):
        one.disk.write_atomic(f"/data/{snapshot_name(SnapshotId(end_offset, 2))}", b"")
    snapshots = SnapshotStore(one.disk, "/data")
    snapshots.delete_before(5)
    assert [one.end_offset for one in snapshots.ids] == [5, 9, 12]
    snapshots.delete_before(10)
    assert [one.end_offset for one in snapshots.ids] == [12]
    assert one.disk.listdir("/data") == [snapshot_name(SnapshotId(12, 2))]
    snapshots.delete_before(99)
    assert snapshots.latest is None


# ---- the format ------------------------------------------------------------------------------------------------------


def records_of(data: Iterable[bytes | bytearray]) -> list[list[bytes]]:
    return list(snapshot_batches(b"".join(data)))


def test_batches_are_numbered_from_0_without_gaps_and_of_the_snapshots_epoch() -> None:
    data = b"".join(batches_of([b"a", b"b"], [], [b"c"]))
    headers = [header for _, header in iter_headers(data)]
    assert [(one.base_offset, one.record_count) for one in headers] == [(0, 3), (3, 2), (5, 1), (6, 1)]
    assert {one.partition_leader_epoch for one in headers} == {2}
    assert {one.base_timestamp for one in headers} == {5}
    assert [one.is_control for one in headers] == [True, False, False, True]
    assert records_of([data]) == [[b"a", b"b"], [b"c"]]
    assert store(data).controls(SNAPSHOT) == list(CONTROLS)
    assert list(store(data).batches(SNAPSHOT)) == [[b"a", b"b"], [b"c"]]


def test_a_snapshot_of_no_records_is_whole() -> None:
    assert records_of(batches_of()) == []


def test_a_snapshot_goes_from_its_header_to_its_footer() -> None:
    head, data, foot = batches_of([b"a"])
    for parts in ([head, data], [data, foot], [head], [foot], [], [foot, data, head], [head, foot]):
        with pytest.raises(ProtocolError, match="does not go from a header to a footer"):
            records_of(parts)


def test_a_header_elsewhere_than_at_the_beginning_is_none() -> None:
    head, data, foot = batches_of([b"a"])
    set_base_offset(head, 0, 1)
    with pytest.raises(ProtocolError, match="does not go from a header to a footer"):
        records_of([head, data, foot])


def test_a_batch_with_another_checksum_is_damage() -> None:
    head, data, foot = batches_of([b"a"])
    data[-1] ^= 1
    with pytest.raises(ProtocolError, match=f"the batch at {len(head)} has another checksum"):
        records_of([head, data, foot])
