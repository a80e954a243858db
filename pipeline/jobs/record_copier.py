"""Copies records from partition to partition, so that an interrupted copy continues without repeats.

Each copy carries a header with its offset at the source, so the last record of a target partition says how far the copy
is. A task that is repeated reads that record and skips what is copied already. Records are copied in order, by an
idempotent producer with acks=all, so the copy is always a prefix of the source, without gaps and without repeats.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..errors import PipelineError

if TYPE_CHECKING:
    import pyarrow as pa

HEADER = "raftwerk-mirror-offset"
TASK_RESULT_SCHEMA = "topic string, partition int, source bigint, target bigint, length bigint, found boolean"
"""`found`: an earlier attempt had copied the range, and this task has found it there."""
_FLUSH_TIMEOUT_S = 120.0
_READ_TIMEOUT_S = 30.0
_POLL_S = 0.01
_CLIENT = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 500, "log_level": 0}


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

    `login` are the settings by which librdkafka logs in at the target.
    """

    target: str
    copy_names: Mapping[str, str]
    login: Mapping[str, str] = field(default_factory=dict, repr=False)

    def copy(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Copy rows, which are sorted by topic, partition and offset. Yields the ranges of `TASK_RESULT_SCHEMA`."""
        import pyarrow as pa
        from confluent_kafka import Producer

        producer = Producer(
            {"bootstrap.servers": self.target, "enable.idempotence": True, "acks": "all", "linger.ms": 5,
             "message.timeout.ms": 120_000, "queue.buffering.max.messages": 200_000, **_CLIENT, **self.login}
        )  # fmt: skip
        runs, earlier = CopiedRanges(), CopiedRanges()
        done: dict[tuple[str, int], tuple[int, int]] = {}
        there: dict[tuple[str, int], list[int]] = {}
        for batch in batches:
            for row in batch.to_pylist():
                place = (row["topic"], row["partition"])
                if place not in done:
                    done[place] = last_copied(self.target, self.copy_names[place[0]], place[1], self.login)
                if row["offset"] > done[place][0]:
                    self._send(producer, row, runs)
                else:
                    there.setdefault(place, []).append(row["offset"])
        left = producer.flush(_FLUSH_TIMEOUT_S)
        if runs.failure or left:
            raise PipelineError(f"the copy was not acked by {self.target}: {runs.failure or f'{left} records unsent'}")
        for place, offsets in there.items():
            _add_earlier_copies(place, offsets, done[place], earlier)
        found = [
            (r.topic, r.partition, r.source, r.target, r.length, ranges is earlier)
            for ranges in (runs, earlier)
            for r in ranges.done()
        ]
        types = (pa.string(), pa.int32(), pa.int64(), pa.int64(), pa.int64(), pa.bool_())
        names = ("topic", "partition", "source", "target", "length", "found")
        arrays = [pa.array([run[at] for run in found], kind) for at, kind in enumerate(types)]
        yield pa.RecordBatch.from_arrays(arrays, names=names)

    def _send(self, producer: Any, row: Mapping[str, Any], runs: CopiedRanges) -> None:
        headers = [(one["key"], one["value"]) for one in row["headers"] or []]
        headers.append((HEADER, str(row["offset"]).encode()))
        place, source = (row["topic"], row["partition"]), row["offset"]

        def on_delivery(error: Any, message: Any) -> None:
            runs.sent(place, source, message.offset(), error)

        while True:
            try:
                producer.produce(
                    self.copy_names[row["topic"]],
                    value=row["value"],
                    key=row["key"],
                    partition=row["partition"],
                    timestamp=int(row["timestamp"].timestamp() * 1000),
                    headers=headers,
                    on_delivery=on_delivery,
                )
                break
            except BufferError:
                producer.poll(_POLL_S)
        producer.poll(0)


class CopiedRanges:
    """Joins single copies into ranges."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, int], CopiedRange] = {}
        self._closed: list[CopiedRange] = []
        self.failure = ""

    def sent(self, place: tuple[str, int], source: int, target: int, error: Any) -> None:
        """Add one record, which was acked at offset `target`, or failed with `error`."""
        if error is not None:
            self.failure = self.failure or str(error)
            return
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


def _add_earlier_copies(place: tuple[str, int], offsets: list[int], last: tuple[int, int], runs: CopiedRanges) -> None:
    """Add the records that an earlier attempt of this task copied: they are the end of the copy, in the same order."""
    if offsets[-1] != last[0]:
        raise PipelineError(
            f"the copy of {place[0]}-{place[1]} is ahead of what --state knows of it: name the state that it was made "
            "with, or copy to another topic (--prefix)."
        )
    for at, offset in enumerate(offsets):
        runs.sent(place, offset, last[1] - len(offsets) + 1 + at, None)


def last_copied(
    bootstrap_servers: str, topic: str, partition: int, login: Mapping[str, str] | None = None
) -> tuple[int, int]:
    """The offsets of the last record of a copy, at the source and in the copy; both are -1 for an empty copy.

    `PipelineError` when that record is none of a mirror's: others write to the topic, and nobody knows what is there;
    and when the partition cannot be read.
    """
    from confluent_kafka import Consumer, KafkaException, TopicPartition

    consumer = Consumer(
        {"bootstrap.servers": bootstrap_servers, "group.id": "raftwerk-mirror", "enable.auto.commit": False,
         "isolation.level": "read_uncommitted", **_CLIENT, **(login or {})}
    )  # fmt: skip
    try:
        ends = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=_READ_TIMEOUT_S)
        if ends is None:
            raise _unread(bootstrap_servers, topic, partition, f"no answer in {_READ_TIMEOUT_S:.0f} s")
        low, at = ends
        deadline = time.monotonic() + _READ_TIMEOUT_S
        while at > low:
            at -= 1
            found = _read_one(consumer, bootstrap_servers, topic, partition, at, deadline)
            if found is not None:
                headers = dict(found.headers() or [])
                if HEADER not in headers:
                    raise PipelineError(
                        f"{topic}-{partition} at {bootstrap_servers} holds records that no mirror wrote: copy to "
                        "another topic (--prefix), or delete this one."
                    )
                return int(headers[HEADER]), at
        return -1, -1
    except KafkaException as error:
        raise _unread(bootstrap_servers, topic, partition, error.args[0].str()) from None
    finally:
        consumer.close()


def _unread(bootstrap_servers: str, topic: str, partition: int, why: str) -> PipelineError:
    return PipelineError(
        f"the end of the copy, {topic}-{partition} at {bootstrap_servers}, could not be read: {why}. Has it a leader? "
        f"raftwerk doctor -b {bootstrap_servers} tells."
    )


def _read_one(consumer: Any, bootstrap_servers: str, topic: str, partition: int, offset: int, deadline: float) -> Any:
    """The record at or after an offset, None when there is none."""
    from confluent_kafka import KafkaError, TopicPartition

    consumer.assign([TopicPartition(topic, partition, offset)])
    while time.monotonic() < deadline:
        message = consumer.poll(0.5)
        if message is None:
            position = consumer.position([TopicPartition(topic, partition)])[0].offset
            if position > offset:
                return None
            continue
        if message.error() is None:
            return message
        if message.error().code() == KafkaError._PARTITION_EOF:
            return None
    raise _unread(bootstrap_servers, topic, partition, f"no record came in {_READ_TIMEOUT_S:.0f} s")


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
