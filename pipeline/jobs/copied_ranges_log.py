"""Which offsets became which in a mirror: a file for each micro-batch, whose name is the number of the batch.

A file appears as a whole, after the batch's records are acked. A batch that Spark repeats finds its file, and so do the
copies themselves: `record_copier` sends no record twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple
from typing import TYPE_CHECKING

from ..hadoop_files import HadoopFiles
from .record_copier import CopiedRange

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_DIRECTORY = "copied"


class CopiedRangesLog:
    """The files in one directory, read when it is opened."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        self._files = HadoopFiles(spark, root)
        self._ranges: dict[int, list[tuple[CopiedRange, bool]]] = {}
        for name in self._files.names(_DIRECTORY):
            if name[:1] != ".":
                whole = self._files.read_json(f"{_DIRECTORY}/{name}")
                self._ranges[int(name)] = [(CopiedRange(*one), found) for *one, found in whole["ranges"]]

    def has_batches(self) -> bool:
        """Whether a batch was copied."""
        return bool(self._ranges)

    def has(self, batch: int) -> bool:
        """Whether a batch was copied."""
        return batch in self._ranges

    def add(self, batch: int, ranges: Sequence[tuple[CopiedRange, bool]]) -> None:
        """Note the ranges of a batch, and of each whether an interrupted run had copied it before."""
        self._files.write_json(f"{_DIRECTORY}/{batch}", {"ranges": [[*astuple(one), found] for one, found in ranges]})
        self._ranges[batch] = list(ranges)

    def by_place(self) -> dict[tuple[str, int], list[CopiedRange]]:
        """The ranges of offsets by topic and partition of the source."""
        found: dict[tuple[str, int], list[CopiedRange]] = {}
        for ranges in self._ranges.values():
            for one, _ in ranges:
                found.setdefault((one.topic, one.partition), []).append(one)
        return found

    def counts(self) -> dict[str, int]:
        """The number of records in all (`rows`), and of those that an interrupted run had copied (`rows_found`)."""
        ranges = [one for batch in self._ranges.values() for one in batch]
        return {
            "rows": sum(one.length for one, _ in ranges),
            "rows_found": sum(one.length for one, found in ranges if found),
        }
