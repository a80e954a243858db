"""The invariant "a time finds the first record that is not older": what leaders answer, and logs find in the end.

A leader answers of what is committed; one that does not know yet that it was deposed answers of what it knows. A record
that some replica has removed may be passed over, or found.
"""

from __future__ import annotations

import random

from .....isr.fetching.offset_lookup import MAX_TIMESTAMP
from .....log.partition_log import PartitionLog
from .....wire.records import Record, iter_records
from ..invariant_broken import InvariantBroken
from ..transactions.leader_log import batches_of
from .known_records import KnownRecords

_QUESTIONS = 40


def check_answer(
    where: str, known: KnownRecords, asked_ms: int, answer: tuple[int, int], asked_at: tuple[int, int]
) -> None:
    """Judge the timestamp and the offset that a leader has answered. Raises `InvariantBroken`.

    `asked_at`: the leader's epoch, and the end of what was committed when it was asked.
    """
    epoch, end_offset = asked_at
    timestamp_ms, offset = answer
    told = f"{where}: {asked_ms} finds {offset} of {timestamp_ms}"
    if offset < 0 and asked_ms == MAX_TIMESTAMP:
        return  # the record with the greatest timestamp is not committed yet
    if offset >= 0:
        record = known.records.get(offset)
        if record is None or record.timestamp != timestamp_ms or timestamp_ms < asked_ms:
            raise InvariantBroken("a time finds the first record that is not older", f"{told}, there is {record}")
        if asked_ms == MAX_TIMESTAMP:
            _check_greatest(told, _left(known, epoch, end_offset), offset, timestamp_ms)
            return
        end_offset = min(end_offset, offset)
    for record in _left(known, epoch, end_offset):
        if record.timestamp >= asked_ms:
            raise InvariantBroken("a time finds the first record that is not older", f"{told}, not {record}")


def check_log(where: str, log: PartitionLog, rng: random.Random) -> None:
    """Compare what a log at rest finds by time with all of its records. Raises `InvariantBroken`."""
    batches = batches_of(log, log.log_start_offset, log.log_end_offset)
    records = [
        record for _, batch in batches for record in iter_records(batch) if record.offset >= log.log_start_offset
    ]
    times = [record.timestamp for record in records]
    for asked_ms in [rng.choice(times) + rng.randint(-1, 1) for _ in range(_QUESTIONS)] if times else ():
        found, true = (
            log.offset_for_timestamp(asked_ms),
            next((one for one in records if one.timestamp >= asked_ms), None),
        )
        said = None if found is None else (found.timestamp, found.offset)
        if said != (None if true is None else (true.timestamp, true.offset)):
            detail = f"{where}: {asked_ms} finds {found}, not {true}"
            raise InvariantBroken("a time finds the first record that is not older", detail)


def _left(known: KnownRecords, epoch: int, end_offset: int) -> list[Record]:
    """What a leader of an epoch knows as committed, below an offset, and no replica has removed."""
    found = []
    for batch in known.batches.values():
        if batch.leader_epoch <= epoch and batch.last_offset < end_offset:
            offsets = range(max(batch.base_offset, known.start_offset), batch.last_offset + 1)
            found += [known.records[one] for one in offsets if one not in known.removed]
    return found


def _check_greatest(told: str, left: list[Record], offset: int, timestamp_ms: int) -> None:
    for record in left:
        if record.timestamp > timestamp_ms or (record.timestamp == timestamp_ms and record.offset < offset):
            raise InvariantBroken("a time finds the first record that is not older", f"{told}, not {record}")
