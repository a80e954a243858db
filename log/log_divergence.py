"""What a leader and its followers agree on when a log is replicated by fetches, for partitions and the quorum alike.

Divergence: a fetch names its offset and the epoch of the record before it. When the leader's log has no such record,
the leader answers with the largest of its epochs that is not above, and where that ends. The follower cuts its log and
asks again; each answer takes at least one record away, so the two come to agree. Cutting at the high watermark instead
loses committed records (KIP-101), and looking at the offset without the epoch keeps records of a deposed leader after
two quick changes of leader (KIP-279). Fetch responses carry the answer since KIP-595.

Caught up: a follower is caught up at the time of a fetch from the leader's log end offset as it is now, and at the time
of its last fetch when it fetches from the log end offset as it was then: such a follower keeps pace, though under load
it never sees an empty tail (Apache Kafka, design of replication).
"""

from __future__ import annotations

from typing import Protocol

from ..wire.types import EpochEndOffset


def is_diverging(leader_end: EpochEndOffset, fetch_offset: int, last_fetched_epoch: int) -> bool:
    """Whether a fetch comes from a log that is no prefix of the leader's.

    `leader_end` is the end of the leader's largest epoch that is not above `last_fetched_epoch`.
    """
    return leader_end.epoch < last_fetched_epoch or leader_end.end_offset < fetch_offset


def truncation_offset(leader: EpochEndOffset, local: EpochEndOffset, log_start_offset: int, log_end_offset: int) -> int:
    """The offset to which a follower cuts its log.

    `leader` is the diverging epoch of the response, `local` the end of this log's largest epoch that is not above it.
    Where the two are different epochs, the leader is to be asked again: the end that it named may lie within a batch of
    this log.
    """
    if local.end_offset < 0:
        return log_start_offset
    if local.epoch != leader.epoch:
        return min(local.end_offset, log_end_offset)
    return min(local.end_offset, leader.end_offset, log_end_offset)


class FetchProgress(Protocol):
    """What a leader remembers of a replica's last fetch. Times are monotonic milliseconds."""

    last_caught_up_ms: int | None
    last_fetch_ms: int | None
    last_fetch_leader_end_offset: int


def caught_up_ms(progress: FetchProgress, fetch_offset: int, leader_end_offset: int, now_ms: int) -> int | None:
    """When a replica was caught up last, now that it fetches from `fetch_offset`; None if never."""
    if fetch_offset >= leader_end_offset:
        return now_ms
    fetched_ms, caught_up = progress.last_fetch_ms, progress.last_caught_up_ms
    if fetched_ms is None or not 0 <= progress.last_fetch_leader_end_offset <= fetch_offset:
        return caught_up
    return fetched_ms if caught_up is None else max(caught_up, fetched_ms)
