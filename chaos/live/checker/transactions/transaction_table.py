"""The transactions of a history, and what their clients were told of them.

A transaction is committed if its client was told so. It is aborted if its client was told so, and also if nobody ever
asked for its commit, or only when a later incarnation of its transactional id had begun (such an incarnation fences the
earlier ones and ends what they left open before it begins). Any other is unknown: it is one of both, as a whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple


class Place(NamedTuple):
    """A partition."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Write(NamedTuple):
    """One record of a transaction: where it goes, and the input record whose effect it is, if it is one."""

    place: Place
    source: tuple[Place, int] | None


class InputRange(NamedTuple):
    """The input offsets that a transaction processed; the group's offset becomes `end`."""

    place: Place
    start: int
    end: int


class Outcome(Enum):
    """What can be known of a transaction."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


_RANKS = {"invoke": 0, "info": 1, "fail": 2, "ok": 3}


@dataclass(slots=True)
class Transaction:
    """One transaction. Times are nanoseconds; `commit_ns` is None if no commit was asked for."""

    name: str
    transactional_id: str
    incarnation: int
    start_ns: int
    writes: tuple[Write, ...]
    group: str | None
    inputs: tuple[InputRange, ...]
    type: str
    end_ns: int | None = None
    acks: tuple[int | None, ...] = ()
    commit_ns: int | None = None
    successor_ns: int | None = None
    """When a later incarnation of the transactional id began its first transaction."""

    @property
    def outcome(self) -> Outcome:
        """What can be known of it."""
        if self.type == "ok":
            return Outcome.COMMITTED
        if self.type == "fail" or self.commit_ns is None or self.is_asked_too_late:
            return Outcome.ABORTED
        return Outcome.UNKNOWN

    @property
    def is_asked_too_late(self) -> bool:
        """Whether its commit was asked for after a later incarnation had begun."""
        return self.commit_ns is not None and self.successor_ns is not None and self.successor_ns < self.commit_ns

    @property
    def latest_end_ns(self) -> int | None:
        """A time at which it had surely ended; None if there is none."""
        known = [self.end_ns] if self.end_ns is not None and self.type in ("ok", "fail") else []
        return min([*known, *([] if self.successor_ns is None else [self.successor_ns])], default=None)

    def has_ended_before(self, later: Transaction) -> bool:
        """Whether it had surely ended when another one began, as all have that a later incarnation has ended."""
        end_ns = self.latest_end_ns
        return self is not later and end_ns is not None and end_ns <= later.start_ns

    def ack(self, index: int) -> int | None:
        """The offset at which a record was acked; None if the client was not told."""
        return self.acks[index] if index < len(self.acks) else None


@dataclass
class TransactionTable:
    """All transactions by number; numbers are given to names when they are first seen, in any order of lines."""

    transactions: dict[int, Transaction] = field(default_factory=dict)
    _numbers: dict[str, int] = field(default_factory=dict)
    _names: list[str] = field(default_factory=list)
    _places: dict[tuple[str, int], Place] = field(default_factory=dict)
    _commits: dict[int, int] = field(default_factory=dict)

    @property
    def first_ns(self) -> int | None:
        """When the first transaction began; None if there is none."""
        return min((one.start_ns for one in self.transactions.values()), default=None)

    def number(self, name: str) -> int:
        """The number of a name."""
        number = self._numbers.setdefault(name, len(self._names))
        if number == len(self._names):
            self._names.append(name)
        return number

    def name(self, number: int) -> str:
        """The name with this number."""
        return self._names[number]

    def place(self, topic: str, partition: int) -> Place:
        """The partition, as one object for all who name it."""
        return self._places.setdefault((topic, partition), Place(topic, partition))

    def add(self, line: Mapping[str, Any]) -> None:
        """Add the begin of a transaction or its outcome, which replaces the begin."""
        rank, number = _RANKS[line["type"]], self.number(line["txn"])
        if "commit" in line:
            self._commits[number] = line["commit"]
        known = self.transactions.get(number)
        if known is not None and _RANKS[known.type] > rank:
            return
        self.transactions[number] = Transaction(
            self._names[number],
            line["id"],
            line["incarnation"],
            line["start"],
            tuple(self._write(row) for row in line["writes"]),
            line.get("group"),
            tuple(InputRange(self.place(row[0], row[1]), row[2], row[3]) for row in line.get("inputs", ())),
            line["type"],
            line.get("end"),
            tuple(line.get("acks", ())),
        )

    def commit_asked(self, line: Mapping[str, Any]) -> None:
        """A client asks for the commit."""
        self._commits[self.number(line["txn"])] = line["start"]

    def complete(self) -> None:
        """Join what came in separate lines; to be called when all lines were added."""
        begins: dict[str, dict[int, int]] = {}
        for one in self.transactions.values():
            mine = begins.setdefault(one.transactional_id, {})
            mine[one.incarnation] = min(one.start_ns, mine.get(one.incarnation, one.start_ns))
        successors = {name: _successor_begins(mine) for name, mine in begins.items()}
        for number, one in self.transactions.items():
            one.commit_ns = self._commits.get(number)
            one.successor_ns = successors[one.transactional_id][one.incarnation]

    def _write(self, row: list[Any]) -> Write:
        source = (self.place(row[2], row[3]), int(row[4])) if len(row) > 2 else None
        return Write(self.place(row[0], row[1]), source)


def _successor_begins(begins: Mapping[int, int]) -> dict[int, int | None]:
    """By incarnation: when the first of the later ones began."""
    earliest: int | None = None
    found: dict[int, int | None] = {}
    for incarnation in sorted(begins, reverse=True):
        found[incarnation] = earliest
        earliest = begins[incarnation] if earliest is None else min(earliest, begins[incarnation])
    return found
