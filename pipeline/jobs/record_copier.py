"""Copies records from partition to partition, so that an interrupted copy continues without repeats.

Each copy carries a header with its offset at the source, so the last record of a target partition says how far the copy
is. A task that is repeated fences the earlier attempts, reads that record and skips what is copied already. Records are
copied in order and in transactions, so at read_committed the copy is always a prefix of the source, without gaps and
without repeats. The end that consumers see is not enough for that without a fence: records of an attempt that died, or
that still runs, may come to stand there later.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, groupby
from typing import TYPE_CHECKING, Any

from ..errors import PipelineError
from .copy_reader import CopyReader
from .copy_writer import CopyWriter

if TYPE_CHECKING:
    import pyarrow as pa

TASK_RESULT_SCHEMA = "topic string, partition int, source bigint, target bigint, length bigint, found boolean"
"""`found`: an earlier attempt had copied the range, and this task has found it there."""


@dataclass(frozen=True, slots=True)
class CopiedRange:
    """`length` consecutive records from offset `source` on are in the copy from offset `target` on."""

    topic: str
    partition: int
    source: int
    target: int
    length: int


@dataclass(frozen=True, slots=True)
class RecordCopier:
    """The work of one task, sent to Spark's workers. `copy_names` maps a topic to its copy.

    `login` are the settings by which librdkafka logs in at the target. `ends` are the offsets at the source at which
    the micro-batch ends: a copy that has come farther is not the copy that the job's directory knows.
    """

    target: str
    copy_names: Mapping[str, str]
    login: Mapping[str, str] = field(default_factory=dict, repr=False)
    ends: Mapping[tuple[str, int], int] = field(default_factory=dict)

    def copy(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Copy rows, which are sorted by topic, partition and offset. Yields the ranges of `TASK_RESULT_SCHEMA`.

        Timestamps come as numbers, in milliseconds: Python has no dates after the year 9999.
        """
        import pyarrow as pa

        runs, earlier = CopiedRanges(), CopiedRanges()
        rows = (row for batch in batches for row in batch.to_pylist())
        for place, its_rows in groupby(rows, key=lambda row: (row["topic"], row["partition"])):
            self._copy_partition(place, its_rows, runs, earlier)
        found = [
            (r.topic, r.partition, r.source, r.target, r.length, ranges is earlier)
            for ranges in (runs, earlier)
            for r in ranges.done()
        ]
        types = (pa.string(), pa.int32(), pa.int64(), pa.int64(), pa.int64(), pa.bool_())
        names = ("topic", "partition", "source", "target", "length", "found")
        arrays = [pa.array([run[at] for run in found], kind) for at, kind in enumerate(types)]
        yield pa.RecordBatch.from_arrays(arrays, names=names)

    def _copy_partition(
        self, place: tuple[str, int], rows: Iterator[Mapping[str, Any]], runs: CopiedRanges, earlier: CopiedRanges
    ) -> None:
        """Copy the rows of one partition behind what earlier attempts copied of them, and add both to the ranges."""
        copy = (self.copy_names[place[0]], place[1])
        first = next(rows)
        # The writer fences the earlier attempts before the end of what they wrote is read.
        with CopyWriter(self.target, *copy, self.login) as writer:
            with CopyReader(self.target, *copy, self.login) as reader:
                last, _ = reader.last()
                if last >= self.ends.get(place, last + 1):
                    raise PipelineError(
                        f"the copy of {place[0]}-{place[1]} is ahead of what --state knows of it: name the state that "
                        "it was made with, or copy to another topic (--prefix)."
                    )
                if first["offset"] <= last:
                    for source, target in reader.copies_from(first["offset"]):
                        earlier.sent(place, source, target)
            for row in chain([first], rows):
                if row["offset"] > last:
                    writer.send(row, partial(_note_ack, runs, place, row["offset"]))
            writer.commit()


def _note_ack(runs: CopiedRanges, place: tuple[str, int], source: int, error: Any, message: Any) -> None:
    """Note an acked record; the commit tells of one that is not."""
    if error is None:
        runs.sent(place, source, message.offset())


class CopiedRanges:
    """Joins single copies into ranges."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, int], CopiedRange] = {}
        self._closed: list[CopiedRange] = []

    def sent(self, place: tuple[str, int], source: int, target: int) -> None:
        """Add one record, which is at offset `target`."""
        run = self._open.get(place)
        if run is not None and source == run.source + run.length and target == run.target + run.length:
            self._open[place] = CopiedRange(run.topic, run.partition, run.source, run.target, run.length + 1)
            return
        if run is not None:
            self._closed.append(run)
        self._open[place] = CopiedRange(place[0], place[1], source, target, 1)

    def done(self) -> list[CopiedRange]:
        """All ranges so far."""
        return [*self._closed, *self._open.values()]


def translate(runs: list[CopiedRange], offset: int) -> int | None:
    """The offset in the copy at which a consumer of the source continues; None when nothing is copied yet.

    `runs` are those of one partition. An offset between two runs (a record that the source had dropped) goes to the
    beginning of the next; one after the last run to its end, which repeats nothing and skips nothing that is copied.
    """
    ordered = sorted(runs, key=lambda run: run.source)
    for run in ordered:
        if offset < run.source + run.length:
            return run.target + max(0, offset - run.source)
    return ordered[-1].target + ordered[-1].length if ordered else None
