"""What must be left of transactions in a compacted log."""

from __future__ import annotations

from typing import cast

import pytest
from support.chaos.led_partitions import HeldLog, data, marker

from raftwerk.chaos.sim.invariants.invariant_broken import InvariantBroken
from raftwerk.chaos.sim.invariants.transactions.cleaned_logs import Span, check_cleaned, check_newest
from raftwerk.chaos.specification.transactions.log_replay import LogReplay
from raftwerk.log.cleaner.batch_filter import DELETE_HORIZON_FLAG, emptied, pack
from raftwerk.log.partition_log import PartitionLog
from raftwerk.log.segment.transaction_index import AbortedTransaction
from raftwerk.wire.records import BATCH_HEADER_SIZE, read_header

COMMITTED, COMMIT, ABORTED, ABORT = range(4)
ORIGINAL = [data(1, 0), marker(1, 0), data(1, 0, 1), marker(1, 0, is_commit=False)]
INDEX = AbortedTransaction(1, ABORTED, ABORT, ABORTED)


def committed_log() -> LogReplay:
    """The replay of all that was committed."""
    whole, committed = HeldLog(is_compacted=True), LogReplay()
    for batch in ORIGINAL:
        whole.add(batch)
        committed.follow(read_header(whole.batches[-1]), batch)
    return committed


def check(kept: dict[int, bytes], *, is_indexed: bool = True) -> None:
    """Check a log with these batches by offset, of which all were committed."""
    cleaned = HeldLog(is_compacted=True)
    for offset, batch in kept.items():
        cleaned.add(batch, offset)
    cleaned.aborted = [INDEX] if is_indexed else []
    check_cleaned(cast(PartitionLog, cleaned), committed_log(), "here")


def without_records(batch: bytes) -> bytes:
    return emptied(read_header(batch))[1]


def to_be_removed(batch: bytes) -> bytes:
    header = read_header(batch)
    flags = header.attributes | DELETE_HORIZON_FLAG
    return pack(header._replace(attributes=flags), bytes(batch[BATCH_HEADER_SIZE:]))[1]


def test_what_may_be_left() -> None:
    check(dict(enumerate(ORIGINAL)))
    check({COMMITTED: without_records(ORIGINAL[COMMITTED]), COMMIT: ORIGINAL[COMMIT], ABORT: ORIGINAL[ABORT]})
    check({COMMIT: to_be_removed(ORIGINAL[COMMIT])}, is_indexed=False)
    check({ABORTED: without_records(ORIGINAL[ABORTED]), ABORT: ORIGINAL[ABORT]})


def test_a_follower_that_does_not_have_the_marker_yet() -> None:
    check({offset: ORIGINAL[offset] for offset in (COMMITTED, COMMIT, ABORTED)}, is_indexed=False)


@pytest.mark.parametrize(
    ("kept", "what"),
    [
        ({COMMITTED: without_records(ORIGINAL[COMMITTED]), ABORT: data(2, 0)}, "is open"),
        ({COMMITTED: ORIGINAL[COMMITTED], ABORT: ORIGINAL[ABORT]}, "ends at 3, it was 1"),
    ],
)
def test_a_marker_that_is_missing(kept: dict[int, bytes], what: str) -> None:
    with pytest.raises(InvariantBroken, match=f"compaction leaves the transactions as they were.*{what}"):
        check(kept, is_indexed=False)


def test_records_of_aborted_transactions_that_are_shown() -> None:
    with pytest.raises(InvariantBroken, match="the batch at 2 of producer 1 is shown"):
        check({ABORTED: ORIGINAL[ABORTED], ABORT: ORIGINAL[ABORT]}, is_indexed=False)


def test_committed_records_that_are_not_shown() -> None:
    """The index has a transaction without its marker."""
    whole = HeldLog(is_compacted=True)
    committed = LogReplay()
    for batch in (data(1, 0), marker(1, 0, is_commit=False), data(1, 0, 1), marker(1, 0)):
        whole.add(batch)
        committed.follow(read_header(whole.batches[-1]), batch)
    del whole.batches[:2]
    whole.aborted = [AbortedTransaction(1, 0, 1, 0)]
    with pytest.raises(InvariantBroken, match="the batch at 2 of producer 1 is not shown"):
        check_cleaned(cast(PartitionLog, whole), committed, "here")


def test_the_last_epoch_of_a_producer() -> None:
    cleaned = HeldLog(is_compacted=True)
    cleaned.add(data(2, 0), ABORT)
    cleaned.known_producers = [1]
    with pytest.raises(InvariantBroken, match="epoch 0 of producer 1 is gone"):
        check_cleaned(cast(PartitionLog, cleaned), committed_log(), "here")


@pytest.mark.parametrize(("left", "is_right"), [((COMMITTED,), True), ((ABORTED,), False), ((), False)])
def test_the_newest_committed_record_of_a_key(left: tuple[int, ...], is_right: bool) -> None:
    cleaned = HeldLog(is_compacted=True)
    for offset in (*left, ABORT):
        cleaned.add(ORIGINAL[offset], offset)
    spans = [Span(offset, offset, 1, offset in (COMMIT, ABORT)) for offset in range(4)]
    records = dict.fromkeys(range(4), (b"k", b"v"))
    if is_right:
        check_newest(cast(PartitionLog, cleaned), committed_log(), spans, records, "here")
        return
    with pytest.raises(InvariantBroken, match="compaction keeps the newest committed record of each key"):
        check_newest(cast(PartitionLog, cleaned), committed_log(), spans, records, "here")
