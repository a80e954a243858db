"""What a leader answers to a fetch: at once when there is something new, or when the replica has waited long enough."""

from __future__ import annotations

from typing import Any

import pytest
from support.raft.memory_log import MemoryLog

from raftwerk.raft.messages.messages import Fetch, FetchReply, FetchSnapshot, SnapshotReply
from raftwerk.raft.replication.fetch_answers import DelayedFetch, FetchedLeader, fetch_answer, snapshot_answer
from raftwerk.raft.replication.replica_progress import ReplicaProgress
from raftwerk.raft.types import LeaderAndEpoch, ReplicaKey
from raftwerk.raft.voters.voter_set import VoterEndpoint
from raftwerk.wire.errors import ErrorCode
from raftwerk.wire.types import EpochEndOffset, SnapshotId

REPLICA = ReplicaKey(2)
AT = VoterEndpoint("n1", 9093)
DEADLINE_MS = 1000


def log_of(*epochs: int) -> MemoryLog:
    """A log with a record of each epoch."""
    log = MemoryLog()
    for number, epoch in enumerate(epochs):
        log.append_records([b"%d" % number], epoch)
    log.flush()
    return log


def answer(
    log: MemoryLog, progress: ReplicaProgress | None = None, *, committed: int = 2, now_ms: int = 0, **changes: Any
) -> FetchReply | None:
    """By default the replica has all of a log of three records, and knows all that is committed."""
    fields = {"fetch_offset": 3, "last_epoch": 5, "max_wait_ms": 0, "max_bytes": 1000, "high_watermark": 2} | changes
    fetch = Fetch(cluster_id="c", replica=REPLICA, epoch=6, **fields)
    leader = FetchedLeader(1, 6, AT, committed)
    return fetch_answer(log, leader, progress or ReplicaProgress(REPLICA), DelayedFetch(7, fetch, DEADLINE_MS), now_ms)


def expected(**changes: Any) -> FetchReply:
    fields: dict[str, Any] = {"high_watermark": 2, "records": b""} | changes
    return FetchReply(error=ErrorCode.NONE, leader_id=1, epoch=6, leader_endpoint=AT, **fields)


def test_without_news_a_fetch_waits_until_its_time() -> None:
    log = log_of(5, 5, 5)
    assert answer(log, now_ms=DEADLINE_MS - 1) is None
    assert answer(log, now_ms=DEADLINE_MS) == expected()


def test_records_are_answered_at_once_as_many_as_the_fetch_allows() -> None:
    log = log_of(5, 5, 5)
    assert answer(log, fetch_offset=1) == expected(records=tuple(log.entries[1:]))
    assert answer(log, fetch_offset=1, max_bytes=1) == expected(records=tuple(log.entries[1:2]))


@pytest.mark.parametrize(("known", "waits"), [(-1, False), (1, False), (2, True), (3, True)])
def test_a_higher_high_watermark_than_the_replica_knows_is_news(known: int, waits: bool) -> None:
    log = log_of(5, 5, 5)
    assert (answer(log, high_watermark=known) is None) is waits
    told = ReplicaProgress(REPLICA, sent_high_watermark=known)
    assert (answer(log, told, high_watermark=None) is None) is waits, "an old version does not say what it knows"


def test_what_was_told_last_counts_for_versions_that_do_not_say_what_they_know() -> None:
    log, progress = log_of(5, 5, 5), ReplicaProgress(REPLICA)
    assert answer(log, progress, high_watermark=None) == expected()
    assert answer(log, progress, high_watermark=None) is None
    assert answer(log, progress, committed=3, high_watermark=None) == expected(high_watermark=3)
    assert answer(log, progress, committed=3, high_watermark=None) is None


def test_a_leader_that_has_committed_nothing_has_no_high_watermark_to_tell() -> None:
    log = log_of(5, 5, 5)
    for known in (None, -1):
        assert answer(log, committed=-1, high_watermark=known) is None
        assert answer(log, committed=0, high_watermark=known) == expected(high_watermark=0)


def test_a_log_that_parts_is_told_at_once_where_and_gets_no_records() -> None:
    log = log_of(4, 4, 6, 6)
    reply = answer(log, fetch_offset=3, last_epoch=5)
    assert reply == expected(diverging=EpochEndOffset(4, 2))
    assert answer(log_of(4, 4), fetch_offset=3, last_epoch=4) == expected(diverging=EpochEndOffset(4, 2))


def test_what_the_log_holds_no_more_is_in_the_newest_snapshot() -> None:
    log = log_of(5, 5, 5, 5)
    for end_offset in (1, 2, 3):
        log.take_snapshot(SnapshotId(end_offset, 5), kept=2)
    assert log.start == SnapshotId(2, 5)
    assert answer(log, fetch_offset=1) == expected(log_start_offset=2, snapshot_id=SnapshotId(3, 5))
    assert answer(log, fetch_offset=2) == expected(log_start_offset=2, records=tuple(log.entries[2:]))
    assert answer(log, fetch_offset=4) is None


def part_of(log: MemoryLog, position: int, snapshot_id: SnapshotId) -> SnapshotReply:
    request = FetchSnapshot(
        cluster_id="c", replica=REPLICA, epoch=6, snapshot_id=snapshot_id, position=position, max_bytes=2
    )
    return snapshot_answer(log, LeaderAndEpoch(1, 6), request)


@pytest.mark.parametrize(("position", "is_in_it"), [(-1, False), (0, True), (1, True), (2, True), (3, False)])
def test_a_part_of_a_snapshot_begins_within_it(position: int, is_in_it: bool) -> None:
    log = log_of(5, 5, 5, 5)
    snapshot_id = SnapshotId(3, 5)
    log.take_snapshot(snapshot_id, kept=1)
    reply = part_of(log, position, snapshot_id)
    assert reply == SnapshotReply(
        error=ErrorCode.NONE if is_in_it else ErrorCode.POSITION_OUT_OF_RANGE,
        leader_id=1,
        epoch=6,
        size_bytes=3,
        position=position,
        data=tuple(log.entries[:3][position : position + 2]) if is_in_it else b"",  # type: ignore[arg-type]
    )


def test_a_snapshot_that_is_gone_is_not_found() -> None:
    log = log_of(5, 5, 5, 5)
    log.take_snapshot(SnapshotId(3, 5), kept=1)
    for gone in (SnapshotId(2, 5), SnapshotId(3, 4)):
        assert part_of(log, 0, gone) == SnapshotReply(error=ErrorCode.SNAPSHOT_NOT_FOUND, leader_id=1, epoch=6)
