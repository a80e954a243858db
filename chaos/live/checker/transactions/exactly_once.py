"""Judges read-process-write: each committed input record has its effect exactly once, and groups' offsets fit.

Effects are counted as the final read at read_committed has them. An input record without an effect is lost if the
group's offset has passed it; otherwise the processors were only too slow. A group that processes some partitions of a
topic is to process all of them. Groups that process the same topic have their effects each for themselves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..findings import Findings
from .isolation import IsolationJudge, Spot
from .read_table import ReadTable, RecordKey
from .transaction_table import InputRange, Outcome, Place, Transaction, TransactionTable

_NO_OFFSET = -1


@dataclass
class _Progress:
    """The ranges of one input partition that a group processed in transactions that took effect."""

    done: list[tuple[InputRange, Transaction]] = field(default_factory=list)
    end_max: int = 0
    """The highest offset that the group may have, with transactions that perhaps took effect."""


@dataclass
class EndOffsets:
    """The offsets that groups have in the end, as far as they are known."""

    was_looked_at: bool = False
    """Whether anybody looked at the end: what has no offset then has lost it, if it ever had one."""
    told: dict[tuple[str, Place], int | None] = field(default_factory=dict)
    """-1 for none; None where the cluster did not answer."""

    def of(self, group: str, place: Place) -> int | None:
        """The offset of a group, -1 if it has none; None if nobody knows."""
        return self.told.get((group, place), _NO_OFFSET if self.was_looked_at else None)


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

    def judge(self, ends: EndOffsets) -> None:
        """Judge effects and offsets."""
        progress = self._progress()
        self._add_untouched(progress, ends)
        reached: dict[tuple[str, Place], int] = {}
        for (group, place), one in sorted(progress.items(), key=lambda item: item[0]):
            offset = ends.of(group, place)
            self._judge_offsets(group, place, one, offset)
            furthest = max((row.end for row, _ in one.done), default=0) if offset is None else max(0, offset)
            reached[group, place] = furthest
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

    def _add_untouched(self, progress: dict[tuple[str, Place], _Progress], ends: EndOffsets) -> None:
        """Add the partitions of the groups' inputs that no transaction touched: read in the end, or with an offset."""
        inputs = {(group, place.topic): None for group, place in progress}
        for group, topic in inputs:
            for place in self._reads.records:
                if place.topic == topic:
                    progress.setdefault((group, place), _Progress())
        for group, place in ends.told:
            if (group, place.topic) in inputs:
                progress.setdefault((group, place), _Progress())

    def _judge_offsets(self, group: str, place: Place, progress: _Progress, offset: int | None) -> None:
        for (row, one), (later, other) in zip(progress.done, progress.done[1:]):
            if later.start < row.end:
                mine = f"transaction {one.name} moved group {group} from {place} offset {row.start} to {row.end}"
                said = f"{mine}, and transaction {other.name} began again at {later.start}"
                self._add("lost-offset", said, place, row.end, one)
        if offset is None:
            return
        given = "no transaction that committed gave it one"
        if progress.done:
            row, one = max(progress.done, key=lambda item: item[0].end)
            given = f"transactions that committed gave it at most {progress.end_max}, in transaction {one.name}"
            if offset < row.end:
                gave = f"transaction {one.name} gave group {group} offset {row.end} of {place}"
                self._add("lost-offset", f"{gave}; in the end it has {_or_none(offset)}", place, offset, one)
        if offset > progress.end_max:
            said = f"group {group} has offset {offset} of {place} in the end; {given}"
            self._add("aborted-offset", said, place, offset)

    # -- effects

    def _effects(self) -> dict[tuple[str, Spot], list[tuple[Spot, Transaction]]]:
        """The visible effects that each group gave an input record."""
        found: dict[tuple[str, Spot], list[tuple[Spot, Transaction]]] = {}
        for place, records in self._reads.records.items():
            for offset, seen in records.items():
                one = self._table.transactions.get(seen.key.transaction)
                if one is None or seen.key.ordinal >= len(one.writes) or not self._isolation.is_visible(*seen.key):
                    continue
                source = one.writes[seen.key.ordinal].source
                if source is not None and seen.first_ns is not None:
                    found.setdefault((one.group or "", source), []).append(((place, offset), one))
                    self.effect_count += 1
        return found

    def _judge_effects(
        self,
        effects: Mapping[tuple[str, Spot], list[tuple[Spot, Transaction]]],
        reached: Mapping[tuple[str, Place], int],
    ) -> None:
        for (_, (place, offset)), found in sorted(effects.items(), key=lambda item: item[0]):
            first, one = found[0]
            for spot, other in found[1:]:
                said = f"{place} offset {offset} has an effect at {_at(first)}, in transaction {one.name}, and another"
                self._add(
                    "duplicate-effect", f"{said} at {_at(spot)}, in transaction {other.name}", place, offset, other
                )
            if not self._is_input(place, offset):
                said = f"at {_at(first)} transaction {one.name} has the effect of {place} offset {offset}"
                self._add("aborted-read", f"{said}, which holds no committed record", place, offset, one)
        for (group, place), group_offset in sorted(reached.items()):
            for offset, seen in sorted(self._reads.records.get(place, {}).items()):
                if not seen.is_final or (group, (place, offset)) in effects:
                    continue
                kind = "lost-effect" if offset < group_offset else "unprocessed"
                said = f"{self._reads.name(place, offset)} at {place} offset {offset} has no effect"
                self._add(kind, f"{said}; group {group} came to offset {group_offset}", place, offset)

    def _is_input(self, place: Place, offset: int) -> bool:
        """Whether the final read has a record there, as far as it came."""
        if offset >= self._reads.final_ends.get(place, 0):
            return True
        seen = self._reads.records.get(place, {}).get(offset)
        return seen is not None and seen.is_final

    # -- copies

    def judge_copies(self, topic: str, source: str, group: str, ends: EndOffsets) -> None:
        """Judge the copies of the source's records in a topic, and the offsets of the copying group."""
        wanted = self._final_spots(source)
        found = self._final_spots(topic)
        for key, spots in sorted(found.items()):
            if len(spots) > 1:
                said = f"{self._name(key)} was copied to {_at(spots[0])} and to {_at(spots[1])}"
                self._add("duplicate-effect", said, *spots[0])
            if key not in wanted:
                said = f"{self._name(key)} was copied to {_at(spots[0])}; it is not committed"
                self._add("aborted-read", said, *spots[0])
        self._judge_dirty_copies(topic, wanted)
        self._judge_order_of_copies(wanted, found)
        self._judge_offsets_of_copies(group, [wanted[key][0] for key in found if key in wanted], ends)
        for key, spots in sorted(wanted.items()):
            if key not in found:
                place, offset = spots[0]
                said = f"{self._reads.name(place, offset)} at {_at(spots[0])} was not copied to {topic}"
                reached = max(0, ends.of(group, place) or 0)
                kind = "lost-effect" if offset < reached else "unprocessed"
                self._add(kind, f"{said}; group {group} came to offset {reached}", place, offset)

    def _judge_offsets_of_copies(self, group: str, copied: Sequence[Spot], ends: EndOffsets) -> None:
        """Judge the offsets of a copying group by the source records that it has copied: it goes on behind the last."""
        for place, last in sorted(dict(sorted(copied)).items()):
            offset = ends.of(group, place)
            if offset is not None and offset <= last:
                said = f"group {group} has copied {place} offset {last}; in the end its offset is {_or_none(offset)}"
                self._add("lost-offset", said, place, offset)

    def _judge_dirty_copies(self, topic: str, wanted: Mapping[RecordKey, Sequence[Spot]]) -> None:
        """Judge copies that were read at read_committed, and that the final read does not have."""
        for place in sorted(self._reads.records):
            for offset, seen in sorted(self._reads.records[place].items()) if place.topic == topic else ():
                if seen.is_final or seen.first_ns is None:
                    continue
                said = f"the copy of {self._name(seen.key)} at {place} offset {offset} was read at read_committed"
                if seen.key not in wanted and self._is_surely_uncommitted(seen.key):
                    self._add("aborted-read", f"{said}; the record is not committed", place, offset)
                elif place in self._reads.final_ends:
                    self._add("vanished", f"{said}, and is not in the final read", place, offset)

    def _is_surely_uncommitted(self, key: RecordKey) -> bool:
        """Whether a record that no final read has was aborted, was written by nobody, or was looked for in vain."""
        one = self._table.transactions.get(key.transaction)
        if one is None or key.ordinal >= len(one.writes) or one.outcome is Outcome.ABORTED:
            return True
        return bool(self._reads.final_ends) and self._isolation.was_looked_for(one, key.ordinal)

    def _judge_order_of_copies(
        self, wanted: Mapping[RecordKey, Sequence[Spot]], found: Mapping[RecordKey, Sequence[Spot]]
    ) -> None:
        """Judge the order of copies: those of one partition, in one partition, stand in the order of their source."""
        last: dict[tuple[Place, Place], tuple[int, int]] = {}
        for spot, key in sorted((spots[0], key) for key, spots in found.items() if key in wanted):
            (place, offset), (source, source_offset) = spot, wanted[key][0]
            before = last.get((place, source))
            if before is not None and source_offset < before[0]:
                name = f"the copy of {self._name(key)}, which is {source} offset {source_offset},"
                said = f"{name} stands at {_at(spot)} behind that of offset {before[0]}, at offset {before[1]}"
                self._add("reordered", said, place, offset)
            if before is None or source_offset > before[0]:
                last[place, source] = (source_offset, offset)

    def _name(self, key: RecordKey) -> str:
        return f"record {key.ordinal} of transaction {self._table.name(key.transaction)}"

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


def _or_none(offset: int) -> str:
    return "none" if offset == _NO_OFFSET else str(offset)


def _at(spot: Spot) -> str:
    return f"{spot[0]} offset {spot[1]}"
