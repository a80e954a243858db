"""What a replica knows of its producers equals what its log says, read anew: "producers are those of the log".

It is checked where that knowledge is made again or first used: at the start of a replica, after a truncation, when it
begins anew behind its end, and when it leads. The log is read by a replay of the simulator's own
(`chaos/specification/transactions/log_replay.py`). Open transactions are compared in every log, and aborted ones in
those that still have all batches.
"""

from __future__ import annotations

from ....log.partition_log import PartitionLog
from ....log.state.producer_state import ProducerStateEntry
from ....wire.records import CorruptBatchError, iter_headers
from ...specification.transactions.log_replay import LogReplay, SeenProducer
from .invariant_broken import InvariantBroken

_READ_BYTES = 1 << 20
_Known = tuple[int, int, int, tuple[tuple[int, int, int], ...]]


def check_producers(log: PartitionLog, where: str, *, may_forget: bool = False) -> LogReplay:
    """Raise `InvariantBroken` unless the producers of the log are those of its batches; returns the replay of it.

    A log that was compacted, or whose first records were deleted, does not say all. Producers may have expired.
    `may_forget`: they expire so soon that one may have come back.
    """
    found = replay_of(log, where)
    known = dict(log.producers.open_transactions)
    opened = {producer_id: first for producer_id, (first, _) in found.open.items()}
    if log.log_start_offset > 0:  # what began before that may be deleted
        opened = {one: first for one, first in opened.items() if first > log.log_start_offset}
        known = {one: first for one, first in known.items() if first > log.log_start_offset}
    if list(opened.items()) != list(known.items()):
        raise InvariantBroken("producers are those of the log", f"{where}: open are {opened}, known are {known}")
    if log.config.is_compacted or log.log_start_offset > 0:
        return found
    for producer_id, entry in found.producers.items():
        seen = log.producers.get(producer_id)
        if seen is not None and _known(seen) != _said(entry) and not (may_forget and _has_come_back(seen, entry)):
            detail = f"{where}: producer {producer_id} is known as {_known(seen)}, its log says {_said(entry)}"
            raise InvariantBroken("producers are those of the log", detail)
    unknown = [producer_id for producer_id, _ in log.producers.items() if producer_id not in found.producers]
    if unknown:
        raise InvariantBroken("producers are those of the log", f"{where}: the log does not have {unknown}")
    aborted = [(one.producer_id, one.first_offset, one.marker_offset) for one in found.ended if not one.is_commit]
    named = [one[:3] for one in log.aborted_transactions(0, log.log_end_offset)]
    if aborted != named:
        raise InvariantBroken("producers are those of the log", f"{where}: aborted are {aborted}, named are {named}")
    return found


def check_begun_anew(log: PartitionLog, where: str) -> None:
    """Raise `InvariantBroken` if a log that begins behind its former end still knows producers of before that."""
    known = [producer_id for producer_id, _ in log.producers.items()]
    if known or log.producers.open_transactions:
        detail = f"{where} begins anew at {log.log_start_offset}, and knows {known}"
        raise InvariantBroken("producers are those of the log", detail)


def replay_of(log: PartitionLog, where: str) -> LogReplay:
    """A replay of the whole log. Raises `InvariantBroken` where it is damaged."""
    found = LogReplay()
    offset, end = log.log_start_offset, log.log_end_offset
    found.end_offset = offset
    try:
        while offset < end:
            data = memoryview(log.read(offset, _READ_BYTES, end_offset=end))
            if not data:
                break
            for position, header in iter_headers(data):
                offset = header.next_offset
                found.follow(header, data[position : position + header.size_bytes])
    except CorruptBatchError as error:
        raise InvariantBroken("a log holds whole batches only", f"{where}: {error}") from error
    return found


def _has_come_back(seen: ProducerStateEntry, entry: SeenProducer) -> bool:
    """Whether the producer is known as one of which all before some batch or marker is forgotten."""
    epoch, coordinator_epoch, first_offset, batches = _known(seen)
    said = _said(entry)
    is_suffix = batches == said[3][len(said[3]) - len(batches) :]
    return is_suffix and (epoch, first_offset) == (said[0], said[2]) and coordinator_epoch in (-1, said[1])


def _known(entry: ProducerStateEntry) -> _Known:
    batches = tuple((each.first_sequence, each.last_sequence, each.last_offset) for each in entry.batches)
    return entry.epoch, entry.coordinator_epoch, entry.transaction_first_offset, batches


def _said(entry: SeenProducer) -> _Known:
    batches = tuple((each.first_sequence, each.last_sequence, each.last_offset) for each in entry.batches)
    return entry.epoch, entry.coordinator_epoch, entry.first_offset, batches
