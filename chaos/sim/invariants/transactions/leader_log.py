"""The log of one leader, followed batch by batch, and what each batch must be, by the log before it.

"A producer of a former epoch writes nothing", "a producer's batches follow each other", "a marker is of the epoch of
its transaction", "a marker of a former coordinator is not written" and "what belongs to an open transaction is in it"
are judged by a replay of the log itself, not by what the log knows of its producers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from .....isr.replica import Replica
from .....log.errors import StorageError
from .....log.partition_log import PartitionLog
from .....wire.records import BatchHeader, CorruptBatchError, iter_headers
from ....specification.transactions.log_replay import LogReplay, Marker, sequence_after
from ...kernel.clock import SIMULATION_EPOCH_MS
from ..invariant_broken import InvariantBroken
from .coordinator_log import CoordinatorLog
from .expirations import Expirations, check_remembered

_READ_BYTES = 1 << 20


def batches_of(log: PartitionLog, start: int, end: int) -> Iterator[tuple[BatchHeader, bytes]]:
    """The batches from an offset on, up to where they cannot be read."""
    offset = max(start, log.log_start_offset)
    while offset < end:
        try:
            data = log.read(offset, _READ_BYTES, end_offset=end)
            found = list(iter_headers(data))
        except (StorageError, CorruptBatchError, OSError):  # its disk has failed, or bits have rotted
            return
        if not found:
            return
        for position, header in found:
            yield header, bytes(data[position : position + header.size_bytes])
        offset = found[-1][1].next_offset


class LeaderLog:
    """A replica's log since it leads in an epoch."""

    def __init__(self, replica: Replica, replay: LogReplay, coordinator: CoordinatorLog | None) -> None:
        """`replay` has followed the log to its end; `coordinator` is of a partition of `__transaction_state`."""
        self.replica = replica
        self.replay = replay
        self.coordinator = coordinator
        self._last_s: dict[int, float] = {}
        """When each producer wrote last in this epoch."""
        if coordinator is not None:
            for header, batch in batches_of(replica.log, 0, replay.end_offset):
                if not header.is_control:
                    coordinator.load(batch)

    def check_data(self, header: BatchHeader, *, is_latest: bool) -> bool:
        """Check a data batch of a producer; returns whether it opens a transaction. Raises `InvariantBroken`.

        A leader that has a successor, so that it is not the latest one, may lack markers.
        """
        producer_id, epoch = header.producer_id, header.producer_epoch
        known = self.replay.producers.get(producer_id)
        where = f"{self.replica.topic_partition} at {header.base_offset}: producer {producer_id} epoch {epoch}"
        if known is not None and epoch < known.epoch:
            raise InvariantBroken("a producer of a former epoch writes nothing", f"{where}, the log has {known.epoch}")
        opened = self.replay.open.get(producer_id)
        is_of_another = opened is not None and opened[1] != epoch and is_latest
        if opened is not None and (not header.is_transactional or is_of_another):
            detail = f"{where}, a transaction of epoch {opened[1]} is open since {opened[0]}"
            raise InvariantBroken("what belongs to an open transaction is in it", detail)
        if known is not None and header.base_sequence >= 0 and self._is_whole:
            is_next = known.epoch == epoch and known.batches
            expected = sequence_after(known.batches[-1].last_sequence) if is_next else 0
            if header.base_sequence != expected:
                detail = f"{where} sequence {header.base_sequence}, {expected} comes next"
                raise InvariantBroken("a producer's batches follow each other", detail)
        return header.is_transactional and opened is None

    def silence_ms(self, header: BatchHeader, now_s: float) -> float:
        """For how long the producer of a batch may have been silent before it, at this replica."""
        known, last_s = self.replay.producers.get(header.producer_id), self._last_s.get(header.producer_id)
        self._last_s[header.producer_id] = now_s
        if last_s is not None:
            return (now_s - last_s) * 1000
        return math.inf if known is None else SIMULATION_EPOCH_MS + now_s * 1000 - known.last_timestamp

    def check_remembered(self, silences: Mapping[int, float], expirations: Expirations) -> None:
        """Producers have written, after being silent for up to so many milliseconds. Raises `InvariantBroken`."""
        log, where = self.replica.log, str(self.replica.topic_partition)
        for producer_id, silence_ms in silences.items() if self._is_whole else ():
            said = self.replay.producers[producer_id]
            may_be_forgotten = silence_ms >= expirations.producer_ms - 1  # the node counts whole milliseconds
            check_remembered(log, producer_id, said, may_be_forgotten=may_be_forgotten, where=where)

    @property
    def _is_whole(self) -> bool:
        log = self.replica.log
        return not log.config.is_compacted and log.log_start_offset == 0

    def check_marker(self, header: BatchHeader, marker: Marker, *, is_latest: bool) -> bool:
        """Check a marker; returns whether it ends a transaction. Raises `InvariantBroken`."""
        producer_id, epoch = header.producer_id, header.producer_epoch
        known, opened = self.replay.producers.get(producer_id), self.replay.open.get(producer_id)
        where = f"{self.replica.topic_partition} at {header.base_offset}: producer {producer_id} epoch {epoch}"
        if known is not None and epoch < known.epoch:
            raise InvariantBroken("a producer of a former epoch writes nothing", f"{where}, the log has {known.epoch}")
        if known is not None and marker.coordinator_epoch < known.coordinator_epoch:
            detail = f"{where}: {marker.coordinator_epoch} after {known.coordinator_epoch}"
            raise InvariantBroken("a marker of a former coordinator is not written", detail)
        if opened is not None and epoch not in (opened[1], opened[1] + 1) and is_latest:
            detail = f"{where}, the transaction since {opened[0]} has {opened[1]}"
            raise InvariantBroken("a marker is of the epoch of its transaction", detail)
        return opened is not None

    def check_stable_offset(self) -> None:
        """Compare the last stable offset with the replay's. Raises `InvariantBroken`."""
        replica = self.replica
        high_watermark = replica.high_watermark
        stable = self.replay.stable_offset(high_watermark)
        stable = min(max(stable, replica.log.log_start_offset), high_watermark)
        if replica.last_stable_offset != stable:
            detail = (
                f"{replica.topic_partition}: {replica.last_stable_offset}, the log says {stable} of {high_watermark}; "
                f"open are {self.replay.open}"
            )
            raise InvariantBroken("records are stable up to the first open transaction", detail)
