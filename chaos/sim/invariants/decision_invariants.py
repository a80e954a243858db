"""The decisions of transaction coordinators, checked at each step of the end of a transaction.

The history of a run shows a wrong end only when somebody decides otherwise later, which needs a rare coincidence. So
two invariants are checked where they hold: "a marker follows a durable decision", as soon as a leader has appended the
marker, and "a reported end is durable", as soon as a client has its answer. A decision is durable when its record is
committed.
"""

from __future__ import annotations

from ....wire.records import BatchHeader, ControlRecordType, control_record_type, iter_records
from ....wire.types import TopicPartition
from ...specification.transactions.recorded_state import RecordedState, read_state, read_transactional_id
from .invariant_broken import InvariantBroken

_Producer = tuple[int, int]
"""A producer id and epoch."""


class DecisionChecker:
    """The ends of transactions that the committed records of `__transaction_state` have decided."""

    def __init__(self) -> None:
        self._marked: dict[tuple[_Producer, bool], dict[TopicPartition, None]] = {}
        """Where markers of this producer may be, by whether they commit."""
        self._reported: dict[tuple[_Producer, bool], None] = {}
        """By the producer that the client goes on as."""

    def on_committed(self, batch: bytes) -> None:
        """A batch of `__transaction_state` is committed."""
        for record in iter_records(batch):
            key, value = record.key, record.value
            if key is not None and value is not None and read_transactional_id(bytes(key)) is not None:
                self.on_state(read_state(bytes(value)))

    def on_state(self, value: RecordedState) -> None:
        """A record of `__transaction_state` is committed."""
        if not value.phase.is_prepared:
            return
        is_commit = value.phase.is_commit
        self._reported[value.heir, is_commit] = None
        marked = self._marked.setdefault(((value.producer_id, value.producer_epoch), is_commit), {})
        marked.update(dict.fromkeys(sorted(value.partitions)))

    def check_appended(self, key: TopicPartition, header: BatchHeader, batch: bytes) -> None:
        """A leader has appended this batch."""
        if not (header.is_control and header.is_transactional):
            return
        is_commit = control_record_type(next(iter_records(batch)).key) == ControlRecordType.COMMIT
        producer = header.producer_id, header.producer_epoch
        if key not in self._marked.get((producer, is_commit), ()):
            detail = f"{key} at {header.base_offset}: {_named(is_commit)} of producer {producer}"
            raise InvariantBroken("a marker follows a durable decision", detail)

    def check_reported(self, producer: _Producer, *, is_commit: bool) -> None:
        """A client was told that its transaction has ended, and goes on as this producer."""
        if (producer, is_commit) not in self._reported:
            raise InvariantBroken("a reported end is durable", f"{_named(is_commit)} of producer {producer}")


def _named(is_commit: bool) -> str:
    return "commit" if is_commit else "abort"
