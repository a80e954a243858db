"""Producers whose first batch was refused before the log could know them.

A log accepts any sequence number in the first batch of a producer that it does not know, since it may have forgotten
the producer (`producer.id.expiration.ms`). Suppose that several batches are on their way, the first is refused because
too few replicas are in sync, and the second arrives when enough are in sync again. Then the second would be accepted as
the first, and the real first one, sent again, would be out of order for ever. So refused first batches are remembered
here, and the producer has to begin with them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import NamedTuple

from ...log.state.producer_state import ProducerStateManager
from ...wire.errors import ErrorCode, ProtocolError
from ...wire.records import BatchHeader, iter_headers

_PRODUCERS_MAX = 1_000
"""If more producers are refused, the one remembered for longest is forgotten."""
_REMEMBERED_MS = 60_000
"""Clients send again within a second. One that gave the batch up must not be refused for ever."""


class _Refused(NamedTuple):
    epoch: int
    sequence: int
    at_ms: int


class RefusedFirstBatches:
    """Belongs to one partition while this broker leads it. `known` are the producers that its log knows."""

    __slots__ = ("producers",)

    def __init__(self) -> None:
        self.producers: OrderedDict[int, _Refused] = OrderedDict()
        """By producer id."""

    def note(self, records: memoryview, known: ProducerStateManager, now_ms: int) -> None:
        """The batches in `records` are refused."""
        try:
            openings = list(_first_batches(records, known))
        except ProtocolError:
            return  # there are no batches in it
        for header in openings:
            refused = self.producers.get(header.producer_id)
            sequence = header.base_sequence
            if refused is not None and refused.epoch == header.producer_epoch:
                sequence = refused.sequence
            elif refused is None and len(self.producers) >= _PRODUCERS_MAX:
                self.producers.popitem(last=False)
            self.producers[header.producer_id] = _Refused(header.producer_epoch, sequence, now_ms)

    def check(self, records: memoryview, known: ProducerStateManager, now_ms: int) -> None:
        """Raise OUT_OF_ORDER_SEQUENCE_NUMBER for a producer's batch before which another was refused."""
        for header in _first_batches(records, known):
            refused = self.producers.get(header.producer_id)
            if refused is None:
                continue
            is_next = refused.epoch != header.producer_epoch or header.base_sequence in (0, refused.sequence)
            if is_next or now_ms - refused.at_ms > _REMEMBERED_MS:
                del self.producers[header.producer_id]
                continue
            raise ProtocolError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"Producer {header.producer_id} (epoch {header.producer_epoch}) sent sequence {header.base_sequence}; "
                f"{refused.sequence} was refused before and is expected first",
            )


def _first_batches(records: memoryview, known: ProducerStateManager) -> Iterator[BatchHeader]:
    for _, header in iter_headers(records):
        if header.producer_id >= 0 and known.get(header.producer_id) is None:
            yield header
