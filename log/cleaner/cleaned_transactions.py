"""Transactions during compaction, which visits batch by batch in the order of the log.

Records of aborted transactions are removed. A marker may be removed when no record of its transaction is left before
it, and the marker's own delete horizon has passed. Source: CleanedTransactionMetadata of Apache Kafka.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...wire.records import BatchHeader
from ..segment.transaction_index import AbortedTransaction
from ..state.producer_state import EndTransactionMarker


class CleanedTransactions:
    """`aborted` are the transactions with records in the visited range; `retained` are those whose marker stays."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._to_come = sorted(aborted, key=lambda one: one.first_offset, reverse=True)
        self._aborted: dict[int, tuple[AbortedTransaction, bool]] = {}
        """By producer id; the flag says whether a batch of the transaction was visited."""
        self._committed: dict[int, None] = {}
        self.retained: list[AbortedTransaction] = []

    def on_data(self, header: BatchHeader) -> bool:
        """Visit a data batch, which may be empty; returns whether its transaction was aborted.

        Without its marker, an empty batch would open a transaction when the log is read again.
        """
        if not header.is_transactional:
            return False
        self._begin(header.base_offset)
        known = self._aborted.get(header.producer_id)
        if known is None:
            self._committed[header.producer_id] = None
            return False
        self._aborted[header.producer_id] = (known[0], True)
        return True

    def on_marker(self, header: BatchHeader, marker: EndTransactionMarker | None) -> bool:
        """Visit a control batch; returns whether no batch of its transaction was visited, not even an empty one."""
        self._begin(header.last_offset)
        if marker is None:
            return False
        is_visited = header.producer_id in self._committed
        self._committed.pop(header.producer_id, None)
        if marker.is_abort:
            known = self._aborted.pop(header.producer_id, None)
            if known is not None and known[1]:
                self.retained.append(known[0])
                return False
        return not is_visited

    def _begin(self, offset: int) -> None:
        while self._to_come and self._to_come[-1].first_offset <= offset:
            one = self._to_come.pop()
            self._aborted[one.producer_id] = (one, False)
