"""Reads one partition of a copy at read_committed: how far the copy is, and which record became which.

Each copy carries a header with its offset at the source, and these offsets ascend, so a copy is found by halving. The
last offset of the partition holds no record as a rule: the marker of the last transaction is there.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

from ..errors import PipelineError

HEADER = "raftwerk-mirror-offset"
CLIENT = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 500, "log_level": 0}
"""Settings that all of a mirror's clients have."""
_READ_TIMEOUT_S = 30.0
_POLL_S = 0.5
_UNKNOWN = ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION")
_UNKNOWN_S = 10.0
"""How long a broker is asked again that does not know the partition, as it may not have heard of a new one yet."""
_FIRST_STEP = 2
_STEP_FACTOR = 8
"""What is searched for the last record: two offsets at the end, then eight times as many, and so on."""


class CopyReader:
    """A consumer of one partition of a copy. `PipelineError` when it cannot be read, or holds others' records."""

    def __init__(
        self, bootstrap_servers: str, topic: str, partition: int, login: Mapping[str, str] | None = None
    ) -> None:
        from confluent_kafka import Consumer

        self._place = (topic, partition)
        self._bootstrap = bootstrap_servers
        self._consumer: Any = Consumer(
            {"bootstrap.servers": bootstrap_servers, "group.id": "raftwerk-mirror", "enable.auto.commit": False,
             "isolation.level": "read_committed", "enable.partition.eof": True, "fetch.wait.max.ms": 1,
             **CLIENT, **(login or {})}
        )  # fmt: skip

    def __enter__(self) -> CopyReader:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def last(self) -> tuple[int, int]:
        """The offsets of the last committed record, at the source and in the copy; both are -1 for an empty copy."""
        low, high = self._ends()
        step, begin = _FIRST_STEP, high
        while begin > low:
            begin = max(low, high - step)
            step *= _STEP_FACTOR
            found = deque(self._records(begin, high), maxlen=1)
            if found:
                return found[0]
        return -1, -1

    def copies_from(self, source: int) -> Iterator[tuple[int, int]]:
        """The offsets, at the source and in the copy, of all committed copies of records from offset `source` on."""
        low, high = self._ends()
        end = high
        while low < end:
            middle = (low + end) // 2
            at = next(self._records(middle, end), None)
            if at is None or at[0] >= source:
                end = middle
            else:
                low = at[1] + 1
        return self._records(low, high)

    def _ends(self) -> tuple[int, int]:
        """The first offset, and the one behind the last."""
        from confluent_kafka import KafkaException, TopicPartition

        deadline = time.monotonic() + _UNKNOWN_S
        while True:
            try:
                ends = self._consumer.get_watermark_offsets(TopicPartition(*self._place), timeout=_READ_TIMEOUT_S)
                break
            except KafkaException as error:
                if error.args[0].name() not in _UNKNOWN or time.monotonic() >= deadline:
                    raise self._unread(error.args[0].str()) from None
            time.sleep(_POLL_S)
        if ends is None:
            raise self._unread(f"no answer in {_READ_TIMEOUT_S:.0f} s")
        low, high = ends
        return low, high

    def _records(self, begin: int, end: int) -> Iterator[tuple[int, int]]:
        """The offsets at the source and in the copy of committed records from `begin` to before `end`."""
        from confluent_kafka import KafkaError, TopicPartition

        self._consumer.assign([TopicPartition(*self._place, begin)])
        deadline = time.monotonic() + _READ_TIMEOUT_S
        while time.monotonic() < deadline:
            message = self._consumer.poll(_POLL_S)
            if message is None:
                continue
            if message.error() is not None:
                if message.error().code() == KafkaError._PARTITION_EOF:
                    return
                continue
            if message.offset() >= end:
                return
            yield self._source_of(message), message.offset()
            if message.offset() == end - 1:
                return
            deadline = time.monotonic() + _READ_TIMEOUT_S
        raise self._unread(f"no record came in {_READ_TIMEOUT_S:.0f} s")

    def _source_of(self, message: Any) -> int:
        headers = dict(message.headers() or [])
        if HEADER not in headers:
            topic, partition = self._place
            raise PipelineError(
                f"{topic}-{partition} at {self._bootstrap} holds records that no mirror wrote: copy to another topic "
                "(--prefix), or delete this one."
            )
        return int(headers[HEADER])

    def _unread(self, why: str) -> PipelineError:
        topic, partition = self._place
        return PipelineError(
            f"the end of the copy, {topic}-{partition} at {self._bootstrap}, could not be read: {why}. Has it a "
            f"leader? raftwerk doctor -b {self._bootstrap} tells."
        )


def last_copied(
    bootstrap_servers: str, topic: str, partition: int, login: Mapping[str, str] | None = None
) -> tuple[int, int]:
    """The offsets of the last record of a copy, at the source and in the copy; both are -1 for an empty copy.

    `PipelineError` when that record is none of a mirror's: others write to the topic, and nobody knows what is there;
    and when the partition cannot be read.
    """
    with CopyReader(bootstrap_servers, topic, partition, login) as reader:
        return reader.last()
