"""What a table is partitioned by: columns, or transforms of columns that Iceberg computes, such as `day(timestamp)`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import WrongOptionError

TRANSFORMS = ("year", "month", "day", "hour")
_SIZED = ("bucket", "truncate")
_CALL = re.compile(r"(\w+)\s*\(\s*(?:(\d+)\s*,\s*)?(.+?)\s*\)")
_ICEBERG = re.compile(r"(\w+)(?:\[(\d+)\])?")


@dataclass(frozen=True, slots=True)
class PartitionField:
    """A column and how its values become partitions: as they are (`identity`), or by a transform.

    `size` is the number of buckets of `bucket`, and the width of `truncate`.
    """

    column: str
    transform: str = "identity"
    size: int | None = None

    @property
    def sql(self) -> str:
        """The field in Spark's SQL, in CREATE TABLE and in ALTER TABLE."""
        column = quoted(self.column)
        if self.transform == "identity":
            return column
        return f"{self.transform}({self.size}, {column})" if self.size is not None else f"{self.transform}s({column})"

    def __str__(self) -> str:
        if self.transform == "identity":
            return self.column
        return f"{self.transform}({'' if self.size is None else f'{self.size}, '}{self.column})"


def quoted(name: str) -> str:
    """A name for Spark's SQL, in backticks."""
    return "`" + name.replace("`", "``") + "`"


def parse_fields(text: str) -> tuple[PartitionField, ...]:
    """The fields in a list such as `topic, day(timestamp), bucket(16, key)`. Raises `WrongOptionError`."""
    return tuple(_parse(part.strip()) for part in re.split(r",(?![^(]*\))", text) if part.strip())


def of_iceberg(column: str, transform: str) -> PartitionField:
    """A field from Iceberg's own words for its transform, such as `bucket[16]`."""
    found = _ICEBERG.fullmatch(transform)
    if found is None:
        return PartitionField(column, transform)
    return PartitionField(column, found[1], None if found[2] is None else int(found[2]))


def check_fields(fields: Sequence[PartitionField], columns: Sequence[str]) -> None:
    """Raise `WrongOptionError` for a field of a column that is not there, and for one that is named twice."""
    for field in fields:
        if field.column not in columns:
            raise WrongOptionError(
                f"there is no column {field.column} to partition by: there are {', '.join(columns)}."
            )
        if fields.count(field) > 1:
            raise WrongOptionError(f"{field} is named twice to partition by: name it once.")


def plain_columns(fields: Sequence[PartitionField], table_format: str) -> list[str]:
    """The columns, for a format that knows no transforms. Raises `WrongOptionError` for a transform."""
    for field in fields:
        if field.transform != "identity":
            raise WrongOptionError(
                f"{table_format} partitions by columns only, and {field} is a transform: name a column, such as date, "
                "or choose --format iceberg."
            )
    return [field.column for field in fields]


def _parse(text: str) -> PartitionField:
    call = _CALL.fullmatch(text)
    if call is None:
        return PartitionField(text)
    name, size, column = call[1].lower(), call[2], call[3]
    name = name if name in (*TRANSFORMS, *_SIZED) else name.removesuffix("s")
    if name in TRANSFORMS and size is None:
        return PartitionField(column, name)
    if name in _SIZED and size is not None and int(size) > 0:
        return PartitionField(column, name, int(size))
    raise WrongOptionError(
        f"{text} is no transform to partition by: there are {', '.join(f'{one}(column)' for one in TRANSFORMS)} and "
        f"{', '.join(f'{one}(number, column)' for one in _SIZED)}."
    )
