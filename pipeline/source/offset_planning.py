"""Plans a batch: which offsets it reads, and how they are cut into ranges, one for each task. All functions are pure.

Checkpoints hold offsets in the JSON of Spark's Kafka connector, `{"topic": {"0": 23}}`, so a query can move from one
format to the other and keep its checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise

from ...wire.types import TopicPartition
from ..errors import PipelineError
from .arrow_columns import OffsetRange
from .options import OffsetRangeLimit, ReadLimits

Offsets = Mapping[TopicPartition, int]
OffsetsJson = dict[str, dict[str, int]]


def offsets_to_json(offsets: Offsets) -> OffsetsJson:
    """Offsets in the form of a checkpoint."""
    result: OffsetsJson = {}
    for key in sorted(offsets):
        result.setdefault(key.topic, {})[str(key.partition)] = offsets[key]
    return result


def offsets_from_json(offsets: OffsetsJson) -> dict[TopicPartition, int]:
    """Offsets from a checkpoint."""
    return {
        TopicPartition(topic, int(partition)): offset
        for topic, partitions in offsets.items()
        for partition, offset in partitions.items()
    }


def check_all_named(position: OffsetRangeLimit, partitions: Iterable[TopicPartition]) -> None:
    """`PipelineError` unless a limit by partition names exactly these partitions."""
    if position.by_partition is None:
        return
    wanted = list(partitions)
    missing = [key for key in wanted if key not in position.by_partition]
    strange = [key for key in position.by_partition if key not in wanted]
    if missing:
        raise PipelineError(
            f"{position.option} says nothing of {_names(missing)}: name every partition that is read, with -2 for its "
            "earliest and -1 for its latest offset."
        )
    if strange:
        raise PipelineError(f"{position.option} names {_names(strange)}, which this query does not read: leave it out.")


def move_into_logs(
    wanted: Offsets, earliest: Offsets, latest: Offsets, fail_on_data_loss: bool
) -> dict[TopicPartition, int]:
    """Each offset moved into its log's bounds. `PipelineError` for the first one outside, if data loss is to fail."""
    result = {}
    for key, offset in wanted.items():
        low, high = earliest[key], latest[key]
        if not low <= offset <= high and fail_on_data_loss:
            raise data_loss_error(key, offset, low, high)
        result[key] = min(max(offset, low), high)
    return result


def data_loss_error(key: TopicPartition, offset: int, low: int, high: int) -> PipelineError:
    """The error for an offset that is not in the log, which holds `low` to `high`."""
    what = "its records were deleted" if offset < low else "the log is shorter (was the topic made anew?)"
    return PipelineError(
        f"offset {offset} of {key.topic}-{key.partition} is not in the log, which has {low} to {high}: {what}; set "
        "failOnDataLoss to false to go on with what is there, or begin anew with other startingOffsets."
    )


def cut_into_ranges(
    begin: Offsets, end: Offsets, min_partitions: int | None, max_records: int | None = None
) -> list[OffsetRange]:
    """A range for each partition with records, cut so that none has more than `max_records` offsets.

    If that makes fewer than `min_partitions` ranges, each partition is cut into a share of that number in proportion to
    its size, as the Kafka connector does (`KafkaOffsetRangeCalculator`). The total is then approximate.
    """
    ranges = [
        OffsetRange(key.topic, key.partition, begin[key], end[key]) for key in sorted(end) if end[key] > begin[key]
    ]
    sizes = [one.until_offset - one.from_offset for one in ranges]
    parts = [1 if max_records is None else -(-size // max_records) for size in sizes]
    if min_partitions is not None and sum(parts) < min_partitions:
        total = sum(sizes)
        parts = [min(max(least, round(size * min_partitions / total)), size) for least, size in zip(parts, sizes)]
    return [cut for one, number in zip(ranges, parts) for cut in _cut(one, number)]


def _cut(whole: OffsetRange, parts: int) -> list[OffsetRange]:
    size = whole.until_offset - whole.from_offset
    edges = [whole.from_offset + size * part // parts for part in range(parts + 1)]
    return [OffsetRange(whole.topic, whole.partition, low, high) for low, high in pairwise(edges)]


def rate_limit(begin: Offsets, available: Offsets, limit: int) -> dict[TopicPartition, int]:
    """End offsets that admit at most `limit` records, shared out among the partitions by their available records.

    Each partition gets its share rounded down. The remaining records go to the partitions with the largest remainders,
    one each, so that even a limit of one record makes progress.
    """
    sizes = {key: max(available[key] - begin.get(key, 0), 0) for key in sorted(available)}
    total = sum(sizes.values())
    if total <= limit:
        return dict(available)
    shares = {key: size * limit // total for key, size in sizes.items()}
    left = limit - sum(shares.values())
    for key in sorted(sizes, key=lambda one: -(sizes[one] * limit % total)):
        if left and shares[key] < sizes[key]:
            shares[key] += 1
            left -= 1
    return {key: begin.get(key, 0) + share for key, share in shares.items()}


def batch_end(begin: Offsets, available: Offsets, read_limits: ReadLimits, waited_ms: int) -> dict[TopicPartition, int]:
    """The end offsets of the next batch: `begin` while too few records are available, and never past the limit."""
    there = sum(max(available[key] - begin.get(key, 0), 0) for key in available)
    if read_limits.min_offsets is not None and there < read_limits.min_offsets and waited_ms < read_limits.max_delay_ms:
        return dict(begin)
    if read_limits.max_offsets is None:
        return dict(available)
    return rate_limit(begin, available, read_limits.max_offsets)


def _names(keys: Iterable[TopicPartition]) -> str:
    return ", ".join(f"{key.topic}-{key.partition}" for key in keys)
