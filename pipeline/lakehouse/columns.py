"""How the columns of a table follow those of the job that writes it: columns are added, and some types widened."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import PipelineError

Columns = Sequence[tuple[str, str]]
"""Names and types, in Spark's words, such as `("n", "bigint")`."""
_WIDENING = (("tinyint", "smallint", "int", "bigint"), ("float", "double"))
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_TAKES_WIDER_TYPES = "a table takes new columns and wider types (int to bigint, float to double)"


@dataclass(frozen=True, slots=True)
class ColumnChanges:
    """What is to be done before rows with other columns can be written."""

    added: tuple[tuple[str, str], ...] = ()
    widened: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        said = [f"{name} {kind} is added" for name, kind in self.added]
        return ", ".join([*said, *(f"{name} becomes {kind}" for name, kind in self.widened)])


def column_changes(there: Columns, wanted: Columns, takes: str = _TAKES_WIDER_TYPES) -> ColumnChanges:
    """The changes after which rows with the columns `wanted` fit into a table with the columns `there`.

    A column that is not wanted any more stays, and is null in new rows. A type may become a wider one; rows of a
    narrower type than the table's fit as they are. `PipelineError` for a type that became another: it says what such a
    table `takes`.
    """
    known = {name.lower(): kind for name, kind in there}
    added, widened = [], []
    for name, kind in wanted:
        before = known.get(name.lower())
        if before is None:
            added.append((name, kind))
        elif is_wider(kind, before):
            widened.append((name, kind))
        elif kind != before and not is_wider(before, kind):
            raise PipelineError(
                f"column {name} of the table is {before}, and is {kind} now: {takes}; name the old type, another "
                "column, or another output."
            )
    return ColumnChanges(tuple(added), tuple(widened))


def is_wider(kind: str, than: str) -> bool:
    """Whether a type holds every value of another, by the rules of Iceberg."""
    for kinds in _WIDENING:
        if kind in kinds and than in kinds:
            return kinds.index(kind) > kinds.index(than)
    one, other = _DECIMAL.fullmatch(kind), _DECIMAL.fullmatch(than)
    return one is not None and other is not None and one[2] == other[2] and int(one[1]) > int(other[1])


def missing_columns(there: Columns, rows: Columns) -> list[tuple[str, str]]:
    """The columns of a table that rows do not have."""
    names = {name.lower() for name, _ in rows}
    return [(name, kind) for name, kind in there if name.lower() not in names]
