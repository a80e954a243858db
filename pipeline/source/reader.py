"""Batch and streaming reads of the data source.

The driver resolves limits such as "earliest" to offsets and cuts them into ranges; each task reads one range. A
stream's reader exists in one Python process of the driver from start to stop. Spark 4.2 and later has admission control
for Python sources: it passes the start of a batch and its limit. Earlier versions do not, so the reader remembers where
the last planned batch ended.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import UUID

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition

from ...wire.types import TopicPartition
from ..errors import PipelineError
from .arrow_columns import OffsetRange
from .kafka_client import KafkaClient
from .offset_planning import (
    Offsets,
    OffsetsJson,
    batch_end,
    check_all_named,
    cut_into_ranges,
    data_loss_error,
    move_into_logs,
    offsets_from_json,
    offsets_to_json,
)
from .options import EARLIEST, LATEST, OffsetRangeLimit, ReadLimits, ReadOptions
from .python_worker import prepare_worker

if TYPE_CHECKING:
    import pyarrow as pa

try:
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, SupportsTriggerAvailableNow
except ImportError:  # before Spark 4.2

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """Spark before 4.2 has no such class and makes no such call."""

    ReadAllAvailable = ReadMaxRows = None

HAS_ADMISSION_CONTROL = ReadMaxRows is not None
"""Whether Spark passes limits to Python sources, and asks them for the ends of their logs."""


@dataclass(repr=False)
class OffsetRangePartition(InputPartition):
    """The offsets that one task reads."""

    range: OffsetRange

    def __repr__(self) -> str:
        return f"{self.range}[{self.range.from_offset},{self.range.until_offset})"


class _OffsetRangeReader:
    """The part of a reader that runs in tasks. Spark sends it to the executors."""

    def __init__(self, options: ReadOptions, columns: Sequence[str]) -> None:
        self.options = options
        self.columns = tuple(columns)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of the range, as Arrow batches."""
        prepare_worker()
        if not isinstance(partition, OffsetRangePartition):  # Spark starts one task even without partitions
            return
        with KafkaClient(self.options.client) as kafka:
            yield from kafka.read(partition.range, self.columns, self.options.fail_on_data_loss)

    def _split(self, begin: Offsets, end: Offsets) -> list[InputPartition]:
        ranges = cut_into_ranges(begin, end, self.options.min_partitions, self.options.max_records_per_partition)
        return [OffsetRangePartition(one) for one in ranges]


class BatchReader(_OffsetRangeReader, DataSourceReader):
    """`spark.read.format("raftwerk")`."""

    def partitions(self) -> list[InputPartition]:
        """The ranges between the starting and the ending offsets, as of now."""
        options = self.options
        with KafkaClient(options.client) as kafka:
            keys = kafka.partitions(options.strategy)
            begin = resolve_offsets(kafka, options.starting, keys)
            end = resolve_offsets(kafka, options.ending, keys)
            if options.starting.by_partition is not None and not options.starting.is_timestamp:
                earliest, latest = (_offsets_now(kafka, keys, moment) for moment in (EARLIEST, LATEST))
                begin = move_into_logs(begin, earliest, latest, options.fail_on_data_loss)
            for key in keys:
                if begin[key] > end[key]:
                    raise PipelineError(
                        f"{options.starting.option} of {key.topic}-{key.partition} is offset {begin[key]}, after "
                        f"{options.ending.option}, {end[key]}: exchange them."
                    )
        return self._split(begin, end)


def resolve_offsets(
    kafka: KafkaClient, position: OffsetRangeLimit, keys: Sequence[TopicPartition]
) -> dict[TopicPartition, int]:
    """The offset in each partition that a limit stands for."""
    check_all_named(position, keys)
    wanted = {
        key: position.by_partition[key] if position.by_partition is not None else position.for_all or 0 for key in keys
    }
    if not position.is_timestamp:
        asked = {key: offset for key, offset in wanted.items() if offset < 0}
        return wanted | {key: offset or 0 for key, offset in kafka.offsets(asked).items()}
    found = kafka.offsets(wanted)
    late = [key for key, offset in found.items() if offset is None]
    if late and not position.latest_if_none:
        key = late[0]
        raise PipelineError(
            f"{position.option} {wanted[key]} is after the last record of {key.topic}-{key.partition}: take an earlier "
            "one, or set startingOffsetsByTimestampStrategy to latest."
        )
    ends = _offsets_now(kafka, late, LATEST)
    return {key: ends[key] if offset is None else offset for key, offset in found.items()}


def _offsets_now(kafka: KafkaClient, keys: Sequence[TopicPartition], moment: int) -> dict[TopicPartition, int]:
    return {key: offset or 0 for key, offset in kafka.offsets(dict.fromkeys(keys, moment)).items()}


class StreamReader(_OffsetRangeReader, DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """`spark.readStream.format("raftwerk")`."""

    def __init__(self, options: ReadOptions, columns: Sequence[str]) -> None:
        super().__init__(options, columns)
        self._kafka: KafkaClient | None = None
        self._initial: dict[TopicPartition, int] | None = None
        self._position: dict[TopicPartition, int] | None = None
        self._empty_batch_planned = False
        self._available_now_end: dict[TopicPartition, int] | None = None
        self._topic_ids: dict[str, UUID] = {}
        self._batch_planned_at = time.monotonic()
        self._commit_failed = False

    @property
    def kafka(self) -> KafkaClient:
        """The driver's client, which is connected at first use."""
        if self._kafka is None:
            self._kafka = KafkaClient(self.options.client)
        return self._kafka

    def initialOffset(self) -> OffsetsJson:  # noqa: N802
        """The start of the first batch."""
        return offsets_to_json(self._initial_offsets())

    def latestOffset(self, start: OffsetsJson | None = None, limit: Any = None) -> OffsetsJson:  # noqa: N802
        """The end of the next batch. Spark before 4.2 passes no arguments."""
        begin = offsets_from_json(start) if start is not None else self._position or self._initial_offsets()
        if self._position is None and self._starts_at_latest() and not self._empty_batch_planned:
            # No checkpoint holds the start of the first batch, and after a restart "latest" is later. So it is empty.
            self._empty_batch_planned = True
            return offsets_to_json(begin)
        available = self._available(begin)
        read_limits = self.options.read_limits
        if limit is not None and isinstance(limit, ReadAllAvailable):
            read_limits = ReadLimits()
        elif limit is not None and isinstance(limit, ReadMaxRows):
            read_limits = ReadLimits(limit.max_rows, read_limits.min_offsets, read_limits.max_delay_ms)
        begin = self._with_new_partitions(begin, available)
        waited_ms = int((time.monotonic() - self._batch_planned_at) * 1000)
        if self._available_now_end is not None:
            read_limits = ReadLimits(read_limits.max_offsets)
        return offsets_to_json(batch_end(begin, available, read_limits, waited_ms))

    def getDefaultReadLimit(self) -> Any:  # noqa: N802
        """The option maxOffsetsPerTrigger as Spark's ReadLimit."""
        most = self.options.read_limits.max_offsets
        if most is None and self.options.read_limits.min_offsets is None:
            return ReadAllAvailable()
        return ReadMaxRows(most if most is not None else (1 << 62))

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """The query will end at the present end of the logs, after as many batches as the limit requires."""
        self._available_now_end = self._latest()

    def reportLatestOffset(self) -> OffsetsJson:  # noqa: N802
        """The ends of the logs, for the query's progress."""
        return offsets_to_json(self._latest())

    def partitions(self, start: OffsetsJson, end: OffsetsJson) -> list[InputPartition]:
        """The ranges of a batch. After a restart Spark first passes the last end as both start and end."""
        begin, until = offsets_from_json(start), offsets_from_json(end)
        self._check_checkpoint_topics(begin)
        self._position = until
        self._batch_planned_at = time.monotonic()
        if start == end:
            return []
        begin = self._with_new_partitions(begin, until)
        for key in [key for key in begin if key not in until]:
            if self.options.fail_on_data_loss:
                raise _missing_partition_error(key)
            del begin[key]
        self._check_not_deleted(begin, until)
        return self._split(begin, until)

    def commit(self, end: OffsetsJson) -> None:
        """Commit for the consumer group, so that tools show its lag. A failure is printed once; the query continues."""
        try:
            self.kafka.commit(self.options.group_id, offsets_from_json(end))
            self._commit_failed = False
        except PipelineError as error:
            if not self._commit_failed:
                print(f"offsets of group {self.options.group_id} are not committed: {error}", file=sys.stderr)
            self._commit_failed = True

    def stop(self) -> None:
        """Close the connections."""
        if self._kafka is not None:
            self._kafka.close()
            self._kafka = None

    # -- offsets now

    def _initial_offsets(self) -> dict[TopicPartition, int]:
        """The start of the first batch. Spark before 4.2 asks for the end of that batch first."""
        if self._initial is None:
            keys = self.kafka.partitions(self.options.strategy)
            self._check_same_topics()
            self._initial = resolve_offsets(self.kafka, self.options.starting, keys)
        return self._initial

    def _starts_at_latest(self) -> bool:
        starting = self.options.starting
        return not starting.is_timestamp and LATEST in (starting.for_all, *(starting.by_partition or {}).values())

    def _latest(self) -> dict[TopicPartition, int]:
        keys = self.kafka.partitions(self.options.strategy)
        self._check_same_topics()
        return _offsets_now(self.kafka, keys, LATEST)

    def _check_same_topics(self) -> None:
        """`PipelineError` when a topic was deleted and created again, which offsets alone may not show."""
        found = self.kafka.topic_ids(self.options.strategy)
        anew = [name for name, topic_id in found.items() if self._topic_ids.get(name, topic_id) != topic_id]
        if anew and self.options.fail_on_data_loss:
            raise PipelineError(
                f"topic {anew[0]} was deleted and made anew while it was read: set failOnDataLoss to false to go on at "
                "the offset that was reached, or begin anew with another checkpointLocation."
            )
        self._topic_ids |= found

    def _available(self, begin: Offsets) -> dict[TopicPartition, int]:
        """The ends that the next batch may reach, never before the offsets that were already read."""
        found = self._latest()
        if self._available_now_end is not None:
            found = {
                key: min(offset, self._available_now_end[key])
                for key, offset in found.items()
                if key in self._available_now_end
            }
        for key in sorted(begin):
            if key not in found:
                if self.options.fail_on_data_loss and self._available_now_end is None:
                    raise _missing_partition_error(key)
            elif found[key] < begin[key]:
                if self.options.fail_on_data_loss and self._available_now_end is None:
                    raise data_loss_error(key, begin[key], 0, found[key])
                found[key] = begin[key]
        return found

    def _with_new_partitions(self, begin: Offsets, until: Offsets) -> dict[TopicPartition, int]:
        """The start of a batch. Partitions that were added since are read from their first record."""
        new = [key for key in until if key not in begin]
        return {**begin, **_offsets_now(self.kafka, new, EARLIEST)} if new else dict(begin)

    def _check_checkpoint_topics(self, begin: Offsets) -> None:
        strategy = self.options.strategy
        there = {key.topic: None for key in begin}
        if there and not any(strategy.includes(topic) for topic in there):
            raise PipelineError(
                f"the checkpoint is of topic {', '.join(there)}, and this query reads {strategy}: take another "
                f"checkpointLocation, or {strategy.kind.value} what the checkpoint is of."
            )

    def _check_not_deleted(self, begin: Offsets, until: Offsets) -> None:
        """`PipelineError` when records were deleted before they were read. The check is made before any task starts."""
        if not self.options.fail_on_data_loss:
            return
        earliest = _offsets_now(self.kafka, [key for key in begin if until[key] > begin[key]], EARLIEST)
        for key, low in earliest.items():
            if begin[key] < low:
                raise data_loss_error(key, begin[key], low, until[key])


def _missing_partition_error(key: TopicPartition) -> PipelineError:
    return PipelineError(
        f"{key.topic}-{key.partition} was read before and is not there any more: set failOnDataLoss to false to go on "
        "without it, or begin anew with another checkpointLocation."
    )
