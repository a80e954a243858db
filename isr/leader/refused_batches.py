"""Producers with a batch that was refused though it was the next one: the batches behind it wait until it comes again.

A producer has several batches on their way. Suppose that the first of them is refused because too few replicas are in
sync, and the second arrives when enough are in sync again. In the log of a producer that is known, the second is out
of order. Apache Kafka says so, and librdkafka then takes a new epoch and sends all that is not acknowledged again: also
batches to other partitions that are in their logs already, which are now there twice. A log that does not know the
producer (`producer.id.expiration.ms`) would even take the second batch for the first, and the first one, sent again,
would be out of order for ever. So the second batch is refused as the first one was, and the client sends both again.

The same comes of a change of leader: the first batches are on their way to the former leader, and the next one, sent
to the new leader, overtakes them. The client hears of each of them at another time, so that one of them may come here
long before the others. So for a while a new leader refuses each batch that leaves a gap in the same way. The first
leader of a partition has no former one. But a client may know of it before it has made its replica, and the first
batches are refused then: they are remembered until the replica is there.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

from ...log.state.producer_state import ProducerStateManager
from ...log.state.sequence_numbers import SEQUENCE_MASK, is_later_sequence
from ...runtime.invariants import sometimes
from ...wire.errors import ErrorCode, ProtocolError
from ...wire.records import BatchHeader, iter_headers
from ...wire.types import TopicPartition

_PRODUCERS_MAX = 1_000
"""If more producers are refused, the one remembered for longest is forgotten."""
_REMEMBERED_MS = 60_000
"""Clients send again within a second. One that gave the batch up must not be refused for ever."""
_PREDECESSOR_MS = 30_000
"""A client hears of what it sent to the former leader by then, or gives it up (`request.timeout.ms`)."""


class _Refused(NamedTuple):
    epoch: int
    sequence: int
    at_ms: int


class RefusedBatches:
    """Belongs to one partition while this broker leads it. `known` are the producers that its log knows.

    The broker has led since `since_ms`; None if no other leader was before it.
    """

    __slots__ = ("_settled_at_ms", "producers")

    def __init__(self, since_ms: int | None) -> None:
        self._settled_at_ms = since_ms + _PREDECESSOR_MS if since_ms is not None else None
        self.producers: OrderedDict[int, _Refused] = OrderedDict()
        """By producer id."""

    def note(
        self, records: memoryview, known: ProducerStateManager, now_ms: int, *, behind_others: bool = False
    ) -> None:
        """The batches in `records` are refused; `behind_others`: those before them may still wait to be appended."""
        try:
            headers = [header for _, header in iter_headers(records) if header.producer_id >= 0]
        except ProtocolError:
            return  # there are no batches in it
        for header in headers:
            if not _is_next(header, known) and not (behind_others and _is_ahead(header, known)):
                continue
            refused = self.producers.get(header.producer_id)
            sequence = header.base_sequence
            if (
                refused is not None
                and refused.epoch == header.producer_epoch
                and is_later_sequence(sequence, refused.sequence)
            ):
                sequence = refused.sequence
            elif refused is None and len(self.producers) >= _PRODUCERS_MAX:
                self.producers.popitem(last=False)
            self.producers[header.producer_id] = _Refused(header.producer_epoch, sequence, now_ms)

    def check(self, records: memoryview, now_ms: int) -> None:
        """Raise NOT_ENOUGH_REPLICAS for a producer's batch before which another one was refused."""
        for _, header in iter_headers(records):
            refused = self.producers.get(header.producer_id)
            if refused is None:
                continue
            is_come = refused.epoch != header.producer_epoch or header.base_sequence in (0, refused.sequence)
            if is_come or now_ms - refused.at_ms > _REMEMBERED_MS:
                del self.producers[header.producer_id]
            elif is_later_sequence(header.base_sequence, refused.sequence):
                sometimes(True, "a batch waited for one before it that had been refused")
                raise _expected_first(header, f"{refused.sequence} was refused before")

    def check_gap(self, records: memoryview, known: ProducerStateManager, now_ms: int) -> None:
        """Raise NOT_ENOUGH_REPLICAS for a batch that may have overtaken others, sent to the former leader.

        Of a producer that the log does not know, or in a new epoch, the first batch is the one with sequence 0. If
        the log does not know the producer because its records are deleted, no batch with sequence 0 comes: the batches
        are remembered, so that afterwards the first of them is appended first.
        """
        if self._settled_at_ms is None or now_ms > self._settled_at_ms:
            return
        for _, header in iter_headers(records):
            if _is_ahead(header, known):
                sometimes(True, "a batch waited for one before it that may be on its way to the former leader")
                expected = _expected_sequence(header, known)
                self.note(records, known, now_ms)
                raise _expected_first(header, f"{expected} may be on its way to the former leader")


class RefusedBeforeLeadership:
    """The batches that were refused for partitions that this broker shall lead, and whose replica is not made yet."""

    def __init__(self) -> None:
        self._by_partition: OrderedDict[TopicPartition, RefusedBatches] = OrderedDict()
        self._producers = 0

    def note(self, topic_partition: TopicPartition, records: memoryview, now_ms: int) -> None:
        """The batches in `records` are refused. Partitions with the oldest ones are forgotten if they are too many."""
        refused = self._by_partition.setdefault(topic_partition, RefusedBatches(None))
        before = len(refused.producers)
        refused.note(records, _NO_PRODUCERS, now_ms)
        self._producers += len(refused.producers) - before
        while self._producers > _PRODUCERS_MAX or len(self._by_partition) > _PRODUCERS_MAX:
            self.take(next(iter(self._by_partition)))

    def take(self, topic_partition: TopicPartition) -> RefusedBatches:
        """The batches for the partition, whose replica is there now."""
        refused = self._by_partition.pop(topic_partition, None) or RefusedBatches(None)
        self._producers -= len(refused.producers)
        return refused


_NO_PRODUCERS = ProducerStateManager()


def _is_ahead(header: BatchHeader, known: ProducerStateManager) -> bool:
    """Whether the batch comes after the one that is expected next of its producer."""
    expected = _expected_sequence(header, known)
    return expected is not None and is_later_sequence(header.base_sequence, expected)


def _expected_sequence(header: BatchHeader, known: ProducerStateManager) -> int | None:
    """The sequence of the producer's next batch; None if it has none, or if the epoch is fenced."""
    entry = known.get(header.producer_id)
    if header.base_sequence < 0 or (entry is not None and header.producer_epoch < entry.epoch):
        return None
    if entry is None or header.producer_epoch > entry.epoch:
        return 0
    return (entry.last_sequence + 1) & SEQUENCE_MASK if entry.batches else None


def _expected_first(header: BatchHeader, what: str) -> ProtocolError:
    return ProtocolError(
        ErrorCode.NOT_ENOUGH_REPLICAS,
        f"Producer {header.producer_id} (epoch {header.producer_epoch}) sent sequence {header.base_sequence}; "
        f"{what} and is expected first",
    )


def _is_next(header: BatchHeader, known: ProducerStateManager) -> bool:
    """Whether the log would take the batch. Of a producer that it does not know, it takes any."""
    entry = known.get(header.producer_id)
    if entry is None or not entry.batches:
        return True
    if entry.epoch != header.producer_epoch:
        return header.producer_epoch > entry.epoch
    return header.base_sequence == (entry.last_sequence + 1) & SEQUENCE_MASK
