"""What clients are shown: only what is committed, and every record where it was sent."""

from __future__ import annotations

from uuid import UUID

import pytest

from raftwerk.chaos.sim.invariants.client_invariants import History, check_history
from raftwerk.chaos.sim.invariants.invariant_broken import InvariantBroken
from raftwerk.chaos.sim.invariants.partition_invariants import CommittedLog, PartitionChecker
from raftwerk.wire.records import NewRecord, encode_batch

KEY = (UUID(int=7), 0)
SOME = bytes(encode_batch([NewRecord(b"k", b"a", (), 1)]))


def at(offset: int, value: bytes) -> bytes:
    data = encode_batch([NewRecord(b"k", value, (), 1)])
    data[:8] = offset.to_bytes(8, "big")
    return bytes(data)


def checker(committed: CommittedLog) -> PartitionChecker:
    made = PartitionChecker(lambda *_: None)
    made.committed[KEY] = committed
    return made


@pytest.mark.parametrize("is_compacted", [False, True])
def test_nothing_is_consumed_above_what_is_committed(is_compacted: bool) -> None:
    contents = {"records": {0: (b"k", b"a")}} if is_compacted else {"batches": {0: SOME}}
    with pytest.raises(InvariantBroken, match="only committed batches are consumed"):
        checker(CommittedLog(end_offset=1, promised_end_offset=1, **contents)).on_consumed(KEY, 1, at(1, b"b"))


def test_records_of_a_compacted_topic_are_consumed_as_they_were_committed() -> None:
    log = CommittedLog(end_offset=1, promised_end_offset=1, records={0: (b"k", b"a")})
    checker(log).on_consumed(KEY, 0, SOME)
    with pytest.raises(InvariantBroken, match="only committed batches are consumed"):
        checker(log).on_consumed(KEY, 0, at(0, b"b"))


def test_what_was_promised_and_could_not_be_read_yet_is_consumed() -> None:
    log = CommittedLog(end_offset=1, promised_end_offset=2, records={0: (b"k", b"a")})
    checker(log).on_consumed(KEY, 1, at(1, b"b"))
    assert log.records == {0: (b"k", b"a")}


def test_a_record_in_another_partition_is_noticed() -> None:
    check_history(History(consumed={0: {0: "p0/0/0"}, 1: {0: "p0/1/0"}}))
    with pytest.raises(InvariantBroken, match="in the partition that it was sent to"):
        check_history(History(acked={(0, "p0", 0): 0}, consumed={0: {0: "p0/0/0"}, 1: {0: "p0/0/0"}}))
