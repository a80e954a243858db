"""What transactional clients were told during a simulated run, and the invariants of that history.

A record's value names its transaction and its place in it. All records of a transaction are read at read_committed, or
none: all of them if its commit was answered, none if no commit was ever asked for. A transaction whose outcome the
client never learned is one of both. They are in the partitions that they were sent to, in the order in which they were
sent. Offsets that are committed in a transaction give every input record its effect
exactly once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from .invariant_broken import InvariantBroken

Place = tuple[str, int]
"""A topic and a partition."""


class Outcome(Enum):
    """What a client knows of a transaction."""

    OPEN = "open"
    ABORTED = "aborted"
    ASKED = "a commit was asked for"
    COMMITTED = "committed"


@dataclass(slots=True)
class Transaction:
    """One transaction of one incarnation, and where its records were acked, by value and in the order of sending."""

    outcome: Outcome = Outcome.OPEN
    written: dict[str, Place] = field(default_factory=dict)


class TransactionHistory:
    """The transactions of all clients, and what a reader at read_committed was shown."""

    def __init__(self) -> None:
        self.transactions: dict[str, Transaction] = {}
        """By the name that begins the values of its records, "writer/incarnation/number"."""
        self.read: dict[Place, dict[int, str]] = {}
        """Values by offset."""
        self._seen: dict[str, tuple[Place, int]] = {}

    def begin(self, name: str) -> Transaction:
        """A client begins a transaction."""
        transaction = self.transactions[name] = Transaction()
        return transaction

    def on_read(self, place: Place, offset: int, value: str) -> None:
        """The reader was shown a record. Raises `InvariantBroken`."""
        name = value.rpartition("/")[0]
        where = f"{value} at {place[0]}-{place[1]} {offset}"
        transaction = self.transactions.get(name)
        if transaction is None or transaction.outcome in (Outcome.OPEN, Outcome.ABORTED):
            known = "unknown" if transaction is None else transaction.outcome.value
            raise InvariantBroken("nothing is read that was not committed", f"{where}: the transaction is {known}")
        first = self._seen.setdefault(value, (place, offset))
        if first != (place, offset):
            raise InvariantBroken("a transaction's records are there once", f"{where}, and at {first}")
        self.read.setdefault(place, {})[offset] = value

    def check(self) -> None:
        """Check the whole history, when everything was read. Raises `InvariantBroken`."""
        for name, transaction in self.transactions.items():
            missing = [value for value in transaction.written if value not in self._seen]
            if transaction.outcome is Outcome.COMMITTED and missing:
                raise InvariantBroken("a reported commit is never undone", f"{name}: {missing} cannot be read")
            if transaction.outcome is Outcome.ASKED and missing and len(missing) < len(transaction.written):
                raise InvariantBroken("a transaction is read as a whole or not at all", f"{name}: {missing} missing")
            self._check_places(name, transaction)

    def _check_places(self, name: str, transaction: Transaction) -> None:
        last_offsets: dict[Place, int] = {}
        for value, sent_to in transaction.written.items():
            place, offset = self._seen.get(value, (sent_to, None))
            if place != sent_to:
                detail = f"{name}: {value} was sent to {sent_to}, it is in {place}"
                raise InvariantBroken("a record is in the partition that it was sent to", detail)
            if offset is None:
                continue
            if offset < last_offsets.get(place, -1):
                detail = f"{name}: {value} at {place[0]}-{place[1]} {offset} was sent after {last_offsets[place]}"
                raise InvariantBroken("a transaction's records keep their order", detail)
            last_offsets[place] = offset


class ReportedOffsets:
    """The offsets of a group's transactions whose commit was reported, by partition of the input. They only grow."""

    def __init__(self) -> None:
        self._reported: dict[int, int] = {}

    def on_reported(self, partition: int, offset: int) -> None:
        """A processor was told that a transaction with this offset is committed."""
        self._reported[partition] = max(offset, self._reported.get(partition, 0))

    def by_now(self) -> Mapping[int, int]:
        """What was reported by now."""
        return dict(self._reported)

    def check(self, reported: Mapping[int, int], answer: Mapping[int, int]) -> None:
        """Stable offsets were answered to who asked when these were `reported`. Raises `InvariantBroken`."""
        for partition, offset in answer.items():
            if offset < reported.get(partition, 0):
                detail = f"partition {partition}: {offset} after {reported[partition]} was reported"
                raise InvariantBroken("stable offsets miss no commit that was reported before", detail)


class EffectHistory:
    """The effects of input records, as a reader at read_committed sees them: one for each, exactly once."""

    def __init__(self) -> None:
        self._effects: dict[tuple[int, int], tuple[Place, int]] = {}
        """Where the effect of an input record is, by partition and offset of the input."""
        self._missing: tuple[int, int] | None = None
        """An input record that had no effect when it was asked for last."""

    def on_read(self, place: Place, offset: int, value: str) -> None:
        """The reader was shown the effect of an input record. Raises `InvariantBroken`."""
        partition, _, number = value.partition("/")
        first = self._effects.setdefault((int(partition), int(number)), (place, offset))
        if first != (place, offset):
            detail = f"input {value}: {first} and {place} {offset}"
            raise InvariantBroken("each input record has its effect exactly once", detail)

    def why_incomplete(self, ends: Mapping[int, Iterable[int]]) -> str | None:
        """An input record without an effect; `ends` has the offsets of all inputs by partition. None if none.

        Inputs are not taken back: the one that was missing at the last call is looked for first.
        """
        if self._missing is None or self._missing in self._effects:
            inputs = ((partition, offset) for partition, offsets in ends.items() for offset in offsets)
            self._missing = next((one for one in inputs if one not in self._effects), None)
        return None if self._missing is None else "input {}/{} has no effect".format(*self._missing)
