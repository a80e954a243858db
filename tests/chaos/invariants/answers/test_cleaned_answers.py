"""What a fetch from a compacted log may be answered."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from uuid import UUID

import pytest
from support.chaos.led_partitions import HeldLog, data, marker

from raftwerk.chaos.sim.invariants.answers.cleaned_answers import CleanedAnswers
from raftwerk.chaos.sim.invariants.invariant_broken import InvariantBroken
from raftwerk.chaos.sim.invariants.partition_invariants import CommittedLog, PartitionChecker, PartitionKey
from raftwerk.chaos.sim.invariants.transactions.cleaned_logs import Span
from raftwerk.chaos.sim.invariants.transactions.transaction_checker import TransactionChecker
from raftwerk.chaos.specification.transactions.log_replay import LogReplay
from raftwerk.log.cleaner.batch_filter import emptied
from raftwerk.wire.fetch import AbortedTransaction, FetchPartition, FetchPartitionResponse
from raftwerk.wire.records import iter_records, read_header

FIRST, COMMIT, ABORTED, ABORT, OPEN = range(5)
KEY: PartitionKey = (UUID(int=7), 0)
NAMED = [AbortedTransaction(1, ABORTED)]
WHOLE = HeldLog(is_compacted=True)
for _batch in (data(1, 0), marker(1, 0), data(1, 0, 1), marker(1, 0, is_commit=False), data(1, 0, 2)):
    WHOLE.add(_batch)
BATCHES = WHOLE.batches


class _Committed(TransactionChecker):
    """Knows that all of it is committed."""

    def committed_of(self, key: PartitionKey) -> tuple[LogReplay, Sequence[Span]]:
        replay, spans = LogReplay(), []
        for batch in BATCHES:
            header = read_header(batch)
            replay.follow(header, batch)
            spans.append(Span(header.base_offset, header.last_offset, header.producer_id, header.is_control))
        return replay, spans


def check(
    left: Iterable[bytes], *, offset: int = 0, named: list[AbortedTransaction] | None = None, is_stable: bool = True
) -> None:
    """Check an answer with these batches."""
    checker = PartitionChecker(lambda *_: None, 1, _Committed(lambda: 0.0))
    records = [record for batch in BATCHES for record in iter_records(batch)]
    contents = {one.offset: (bytes(one.key or b""), bytes(one.value or b"")) for one in records}
    checker.committed[KEY] = CommittedLog(end_offset=5, promised_end_offset=5, records=contents)
    row = FetchPartitionResponse(0, 0, 5, OPEN, 0, aborted_transactions=named, records=b"".join(left))
    CleanedAnswers(checker).check(KEY, FetchPartition(0, fetch_offset=offset), row, "here", is_stable=is_stable)


def without_records(batch: bytes) -> bytes:
    return emptied(read_header(batch))[1]


def test_what_an_answer_may_be() -> None:
    check(BATCHES[:OPEN], named=NAMED)
    check([BATCHES[FIRST], BATCHES[COMMIT], without_records(BATCHES[ABORTED]), BATCHES[ABORT]])
    check([BATCHES[FIRST], BATCHES[ABORT]])
    check(BATCHES[ABORTED:OPEN], offset=ABORTED, named=NAMED)
    check(BATCHES, is_stable=False)
    check([], offset=OPEN)


@pytest.mark.parametrize("is_stable", [True, False])
def test_a_committed_record_that_an_aborted_one_has_superseded(is_stable: bool) -> None:
    with pytest.raises(InvariantBroken, match="leaves nothing out: here: b'k' at 0 is not in the answer up to 4"):
        check([BATCHES[COMMIT], BATCHES[ABORT]], is_stable=is_stable)


def test_aborted_records_that_are_shown() -> None:
    with pytest.raises(InvariantBroken, match="names the aborted transactions: here: shown is 2 of 1"):
        check(BATCHES[:OPEN])


def test_committed_records_that_are_not_shown() -> None:
    with pytest.raises(InvariantBroken, match="names the aborted transactions: here: not shown is 0 of 1"):
        check(BATCHES[:OPEN], named=[AbortedTransaction(1, FIRST)])


def test_a_transaction_that_is_named_and_was_not_aborted() -> None:
    with pytest.raises(InvariantBroken, match="1 at 0 is not aborted"):
        check([BATCHES[ABORTED]], offset=ABORTED, named=[AbortedTransaction(1, FIRST)])


def test_an_answer_that_begins_before_what_was_asked() -> None:
    with pytest.raises(InvariantBroken, match=r"begins where it was asked to.*0 to 0"):
        check(BATCHES[:OPEN], offset=COMMIT, named=NAMED)
