"""What a replica knows of its producers equals what its log says, read anew: "producers are those of the log".

It is checked where that knowledge is made again or first used: at the start of a replica, after a truncation, and when
it leads.
"""

from __future__ import annotations

from ....log.partition_log import PartitionLog
from ....log.state.producer_state import ProducerStateEntry, ProducerStateManager, read_marker
from ....wire.records import CorruptBatchError, iter_headers
from .invariant_broken import InvariantBroken

_READ_BYTES = 1 << 20
_Known = tuple[int, int, int, tuple[tuple[int, int, int], ...]]


def check_producers(log: PartitionLog, where: str) -> None:
    """Raise `InvariantBroken` unless the producers of the log are those of its batches.

    A log that was compacted, or whose first records were deleted, does not say all. Producers may have expired.
    """
    if log.config.is_compacted or log.log_start_offset > 0:
        return
    try:
        found = _read_anew(log)
    except CorruptBatchError as error:
        raise InvariantBroken("a log holds whole batches only", f"{where}: {error}") from error
    for producer_id, entry in found.items():
        known = log.producers.get(producer_id)
        if known is not None and _known(known) != _known(entry):
            detail = f"{where}: producer {producer_id} is known as {_known(known)}, its log says {_known(entry)}"
            raise InvariantBroken("producers are those of the log", detail)
        if known is None and entry.transaction_first_offset >= 0:
            raise InvariantBroken("producers are those of the log", f"{where}: {producer_id} has a transaction open")
    unknown = [producer_id for producer_id, _ in log.producers.items() if found.get(producer_id) is None]
    if unknown:
        raise InvariantBroken("producers are those of the log", f"{where}: the log does not have {unknown}")
    if list(log.producers.open_transactions.items()) != list(found.open_transactions.items()):
        detail = f"{where}: open are {found.open_transactions}, known are {log.producers.open_transactions}"
        raise InvariantBroken("producers are those of the log", detail)


def _read_anew(log: PartitionLog) -> ProducerStateManager:
    found = ProducerStateManager()
    offset, end = 0, log.log_end_offset
    while offset < end:
        data = memoryview(log.read(offset, _READ_BYTES, end_offset=end))
        for position, header in iter_headers(data):
            offset = header.next_offset
            if header.producer_id < 0:
                continue
            if not header.is_control:
                found.update(header)
            elif (marker := read_marker(data[position : position + header.size_bytes])) is not None:
                found.end_transaction(header, marker)
    return found


def _known(entry: ProducerStateEntry) -> _Known:
    batches = tuple((each.first_sequence, each.last_sequence, each.last_offset) for each in entry.batches)
    return entry.epoch, entry.coordinator_epoch, entry.transaction_first_offset, batches
