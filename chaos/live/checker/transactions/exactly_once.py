"""Judges read-process-write: each committed input record has its effect exactly once, and groups' offsets fit.

Effects are counted as the final read at read_committed has them. An input record without an effect is lost if the
group's offset has passed it; otherwise the processors were only too slow.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..findings import Findings
from .isolation import IsolationJudge, Spot
from .read_table import ReadTable, RecordKey
from .transaction_table import InputRange, Outcome, Place, Transaction, TransactionTable


@dataclass
class _Progress:
    """The ranges of one input partition that a group processed in transactions that took effect."""

    done: list[tuple[InputRange, Transaction]] = field(default_factory=list)
    end_max: int = 0
    """The highest offset that the group may have, with transactions that perhaps took effect."""


class ExactlyOnceJudge:
    """Judges effects, copies and offsets, and adds what is wrong to the findings."""

    def __init__(
        self, table: TransactionTable, reads: ReadTable, findings: Findings, isolation: IsolationJudge
    ) -> None:
        self.effect_count = 0
        self._table = table
        self._reads = reads
        self._findings = findings
        self._isolation = isolation

    def judge(self, group_offsets: Mapping[tuple[str, Place], int]) -> None:
        """Judge effects and offsets; `group_offsets` are those that the groups have in the end."""
        progress = self._progress()
        for (group, place), one in sorted(progress.items(), key=lambda item: item[0]):
            self._judge_offsets(group, place, one, group_offsets.get((group, place)))
        reached = {
            place: group_offsets.get((group, place), max((row.end for row, _ in one.done), default=0))
            for (group, place), one in progress.items()
        }
        self._judge_effects(self._effects(), reached)

    # -- offsets

    def _progress(self) -> dict[tuple[str, Place], _Progress]:
        found: dict[tuple[str, Place], _Progress] = {}
        for number, one in self._table.transactions.items():
            for row in one.inputs if one.group is not None else ():
                progress = found.setdefault((str(one.group), row.place), _Progress())
                is_done = one.outcome is Outcome.COMMITTED or (
                    one.outcome is Outcome.UNKNOWN
                    and any(self._isolation.is_visible(number, index) for index in range(len(one.writes)))
                )
                if is_done:
                    progress.done.append((row, one))
                if is_done or (one.outcome is Outcome.UNKNOWN and not one.writes):
                    progress.end_max = max(progress.end_max, row.end)
        for progress in found.values():
            progress.done.sort(key=lambda item: (item[0].start, item[0].end))
        return found

    def _judge_offsets(self, group: str, place: Place, progress: _Progress, offset: int | None) -> None:
        for (row, one), (later, other) in zip(progress.done, progress.done[1:]):
            if later.start < row.end:
                mine = f"transaction {one.name} moved group {group} from {place} offset {row.start} to {row.end}"
                said = f"{mine}, and transaction {other.name} began again at {later.start}"
                self._add("lost-offset", said, place, row.end, one)
        if offset is None or not progress.done:
            return
        row, one = max(progress.done, key=lambda item: item[0].end)
        if offset < row.end:
            said = f"transaction {one.name} gave group {group} offset {row.end} of {place}; in the end it has {offset}"
            self._add("lost-offset", said, place, offset, one)
        if offset > progress.end_max:
            said = f"group {group} has offset {offset} of {place} in the end; transactions that committed gave it"
            self._add("aborted-offset", f"{said} at most {progress.end_max}, in transaction {one.name}", place, offset)

    # -- effects

    def _effects(self) -> dict[Spot, list[tuple[Spot, Transaction]]]:
        """The visible effects of each input record."""
        found: dict[Spot, list[tuple[Spot, Transaction]]] = {}
        for place, records in self._reads.records.items():
            for offset, seen in records.items():
                one = self._table.transactions.get(seen.key.transaction)
                if one is None or seen.key.ordinal >= len(one.writes) or not self._isolation.is_visible(*seen.key):
                    continue
                source = one.writes[seen.key.ordinal].source
                if source is not None and seen.first_ns is not None:
                    found.setdefault(source, []).append(((place, offset), one))
                    self.effect_count += 1
        return found

    def _judge_effects(
        self, effects: Mapping[Spot, list[tuple[Spot, Transaction]]], reached: Mapping[Place, int]
    ) -> None:
        for (place, offset), found in sorted(effects.items(), key=lambda item: item[0]):
            first, one = found[0]
            for spot, other in found[1:]:
                said = f"{place} offset {offset} has an effect at {_at(first)}, in transaction {one.name}, and another"
                self._add(
                    "duplicate-effect", f"{said} at {_at(spot)}, in transaction {other.name}", place, offset, other
                )
            if not self._is_input(place, offset):
                said = f"at {_at(first)} transaction {one.name} has the effect of {place} offset {offset}"
                self._add("aborted-read", f"{said}, which holds no committed record", place, offset, one)
        for place, group_offset in sorted(reached.items()):
            for offset, seen in sorted(self._reads.records.get(place, {}).items()):
                if not seen.is_final or (place, offset) in effects:
                    continue
                kind = "lost-effect" if offset < group_offset else "unprocessed"
                said = f"{self._reads.name(place, offset)} at {place} offset {offset} has no effect"
                self._add(kind, f"{said}; the group came to offset {group_offset}", place, offset)

    def _is_input(self, place: Place, offset: int) -> bool:
        """Whether the final read has a record there, as far as it came."""
        if offset >= self._reads.final_ends.get(place, 0):
            return True
        seen = self._reads.records.get(place, {}).get(offset)
        return seen is not None and seen.is_final

    # -- copies

    def judge_copies(self, topic: str, source: str, reached: Mapping[Place, int]) -> None:
        """Judge the copies of the source's records in a topic; `reached` has the offsets of the copying group."""
        wanted = self._final_spots(source)
        found = self._final_spots(topic)
        for key, spots in sorted(found.items()):
            name = f"record {key.ordinal} of transaction {self._table.name(key.transaction)}"
            place, offset = spots[0]
            if len(spots) > 1:
                said = f"{name} was copied to {_at(spots[0])} and to {_at(spots[1])}"
                self._add("duplicate-effect", said, place, offset)
            if key not in wanted:
                self._add("aborted-read", f"{name} was copied to {_at(spots[0])}; it is not committed", place, offset)
        for key, spots in sorted(wanted.items()):
            if key not in found:
                place, offset = spots[0]
                said = f"{self._reads.name(place, offset)} at {_at(spots[0])} was not copied to {topic}"
                kind = "lost-effect" if offset < reached.get(place, 0) else "unprocessed"
                self._add(kind, f"{said}; the group came to offset {reached.get(place, 0)}", place, offset)

    def _final_spots(self, topic: str) -> dict[RecordKey, list[Spot]]:
        found: dict[RecordKey, list[Spot]] = {}
        for place in sorted(self._reads.records):
            for offset, seen in sorted(self._reads.records[place].items()) if place.topic == topic else ():
                if seen.is_final:
                    found.setdefault(seen.key, []).append((place, offset))
        return found

    def _add(self, kind: str, text: str, place: Place, offset: int, transaction: Transaction | None = None) -> None:
        more: dict[str, Any] = {} if transaction is None else {"transaction": transaction.name}
        self._findings.add(kind, text, place=str(place), offset=offset, **more)


def _at(spot: Spot) -> str:
    return f"{spot[0]} offset {spot[1]}"
