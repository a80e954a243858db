"""What retention may delete of a partition, by the topic's settings: "a log gives up only what retention allows".

By size: a log keeps at least `retention.bytes`. By time: what a node deletes is older than `retention.ms` by its own
clock. Nothing is deleted that is not committed. A replica may also begin where another one has begun by these rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from ....log.partition_log import PartitionLog
from ....wire.records import read_header
from .invariant_broken import InvariantBroken


@dataclass(frozen=True, slots=True)
class Retention:
    """The settings `retention.bytes` and `retention.ms`, of which one is set."""

    size_bytes: int = -1
    time_ms: int = -1


class RetentionRules:
    """`topics`: the settings by topic; None: they change, and `settings/log_losses.py` judges them.

    `starts`: the highest start of each partition's log that the rules allowed.
    """

    def __init__(self) -> None:
        self.topics: dict[str, Retention | None] = {}
        self.starts: dict[tuple[UUID, int], int] = {}

    def check(
        self,
        key: tuple[UUID, int],
        topic: str,
        log: PartitionLog,
        committed: tuple[int, Mapping[int, bytes]],
        wall_ms: int,
    ) -> None:
        """The start of a log has moved. `committed` is the end of what is committed, and its batches by offset."""
        retention, before, now = self.topics[topic], self.starts.get(key, 0), log.log_start_offset
        if now <= before or retention is None:
            return
        end_offset, batches = committed
        where = f"{topic}-{key[1]}: from {before} to {now}"
        if now > end_offset:
            raise InvariantBroken("a log gives up only what retention allows", f"{where}, committed up to {end_offset}")
        if retention.size_bytes >= 0 and log.size_bytes < retention.size_bytes:
            detail = f"{where}, {log.size_bytes} of {retention.size_bytes} bytes are left"
            raise InvariantBroken("a log gives up only what retention allows", detail)
        deleted = [read_header(batch, 0) for offset, batch in batches.items() if before <= offset < now]
        newest_ms = max((header.max_timestamp for header in deleted), default=-1)
        if retention.time_ms >= 0 and wall_ms - newest_ms <= retention.time_ms:
            detail = f"{where}, the newest is {wall_ms - newest_ms} ms old, to be kept {retention.time_ms} ms"
            raise InvariantBroken("a log gives up only what retention allows", detail)
        self.starts[key] = now
