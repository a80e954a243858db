"""Producers whose first batch was refused before the log could know them.

A log takes the first batch of a producer that it does not know whatever its sequence number is, for it may have been
forgotten (`producer.id.expiration.ms`). So where several batches are on their way, the first is refused, say for too
few replicas in sync, and all is well again before the second arrives, the second would be taken for the beginning; the
first, sent again, would then be out of order for ever. Who was refused is remembered here: it begins with that batch.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import NamedTuple

from ...log.state.producer_state import ProducerStates
from ...wire.errors import ErrorCode, ProtocolError
from ...wire.records import BatchHeader, iter_headers

_PRODUCERS_MAX = 1_000
"""Beyond them the first is as if it had not been refused."""
_REMEMBERED_MS = 60_000
"""Clients send again within a second; one that gave the batch up and goes on after it shall not be refused for ever."""


class _Refused(NamedTuple):
    epoch: int
    sequence: int
    at_ms: int


class RefusedFirstBatches:
    """Of one partition, in one life of its leader. `known` are the producers of its log, times those of the loop."""

    __slots__ = ("_first",)

    def __init__(self) -> None:
        self._first: OrderedDict[int, _Refused] = OrderedDict()
        """By producer id."""

    def __bool__(self) -> bool:
        return bool(self._first)

    def note(self, records: memoryview, known: ProducerStates, now_ms: int) -> None:
        """These records are refused, whatever is in them."""
        try:
            openings = list(_openings(records, known))
        except ProtocolError:
            return  # no batches either
        for header in openings:
            refused = self._first.get(header.producer_id)
            sequence = header.base_sequence
            if refused is not None and refused.epoch == header.producer_epoch:
                sequence = refused.sequence
            elif refused is None and len(self._first) >= _PRODUCERS_MAX:
                self._first.popitem(last=False)
            self._first[header.producer_id] = _Refused(header.producer_epoch, sequence, now_ms)

    def check(self, records: memoryview, known: ProducerStates, now_ms: int) -> None:
        """Raise OUT_OF_ORDER_SEQUENCE_NUMBER for a producer's batch before which another was refused."""
        for header in _openings(records, known):
            refused = self._first.get(header.producer_id)
            if refused is None:
                continue
            is_next = refused.epoch != header.producer_epoch or header.base_sequence in (0, refused.sequence)
            if is_next or now_ms - refused.at_ms > _REMEMBERED_MS:
                del self._first[header.producer_id]
                continue
            raise ProtocolError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"Producer {header.producer_id} (epoch {header.producer_epoch}) sent sequence {header.base_sequence}; "
                f"{refused.sequence} was refused before and is expected first",
            )


def _openings(records: memoryview, known: ProducerStates) -> Iterator[BatchHeader]:
    for _, header in iter_headers(records):
        if header.producer_id >= 0 and known.get(header.producer_id) is None:
            yield header
