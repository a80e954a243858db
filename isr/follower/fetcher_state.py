"""What a fetcher fetches from one broker, and what it makes of the answers; no I/O but on the replicas' logs.

Order matters. An answer is looked at only while the partition still is at the epoch and the offset that were asked
for; a diverging epoch cuts the log before anything is appended (KAFKA-14704); records are appended before the high
watermark is learnt.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Protocol

from ...log.errors import NoSpaceError
from ...wire.errors import ErrorCode, ProtocolError
from ...wire.fetch import FetchPartition, FetchPartitionResponse, FetchRequest, FetchResponse
from ...wire.types import TopicPartition
from ..ports import ReplicaManagerConfig
from ..replica import Replica
from ..throttling.throttles import Throttle
from .fetch_session import FetchSession, PartitionKey
from .throttled_partitions import ThrottledPartitions

_logger = logging.getLogger(__name__)

_CUTS_PER_ANSWER = 8
"""So many logs are truncated for one answer: each waits for the device, and everything else with it. The others are
asked for again."""
_SESSION_ERRORS = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)


class FetcherListener(Protocol):
    """Who wants to know what a fetcher did to a replica."""

    def on_records_fetched(self, replica: Replica, size_bytes: int) -> None: ...

    def on_replica_failed(self, replica: Replica, error: Exception) -> None: ...

    def on_no_space(self, replica: Replica, error: NoSpaceError) -> None: ...


@dataclass(slots=True)
class Source:
    """One partition that is fetched. `not_before_ms` is when it may be asked for again after an error."""

    replica: Replica
    leader_epoch: int
    failures: int = 0
    not_before_ms: int = 0
    last_error: int = 0
    has_committed: bool = False
    """By the last answer it has all that is committed."""
    local_id: int = -1

    @property
    def topic_partition(self) -> TopicPartition:
        return self.replica.topic_partition

    @property
    def is_in_sync(self) -> bool:
        return self.has_committed or self.local_id in self.replica.partition.follower.isr


@dataclass(slots=True)
class Outcome:
    """What the shell has to do about an answer."""

    out_of_range: list[PartitionKey] = field(default_factory=list)
    failed: bool = False
    """The request as a whole was refused: pause before the next."""


class FetcherState:
    """The partitions of one source broker, and the fetch session with it."""

    def __init__(self, config: ReplicaManagerConfig, listener: FetcherListener, throttle: Throttle) -> None:
        self._config = config
        self._listener = listener
        self.session = FetchSession()
        self.sources: dict[PartitionKey, Source] = {}
        self._dirty: dict[PartitionKey, None] = {}
        self._delayed: dict[PartitionKey, None] = {}
        self._held = ThrottledPartitions(throttle)
        self._cuts_left = 0

    def add(self, replica: Replica) -> None:
        """Fetch this follower from now on, in its present epoch."""
        key = (replica.topic_id, replica.topic_partition.partition)
        self.sources[key] = Source(replica, replica.partition.leader_epoch, local_id=self._config.node_id)
        self._held.on_sources_changed()
        self._dirty[key] = None
        self._delayed.pop(key, None)

    def remove(self, key: PartitionKey) -> bool:
        """Fetch it no more; false when it was not fetched."""
        self._delayed.pop(key, None)
        self._dirty[key] = None
        self._held.on_sources_changed()
        return self.sources.pop(key, None) is not None

    def retry_now(self) -> None:
        """Forget all pauses: something has changed for the better."""
        for key in self._delayed:
            self.sources[key].not_before_ms = 0

    def next_ready_ms(self, now_ms: int) -> int | None:
        """When the first paused or held partition may be asked for again, as far as is known now."""
        ready_ms = [self.sources[key].not_before_ms for key in self._delayed]
        if self._held:
            ready_ms.append(now_ms + min(self._held.wait_ms(now_ms), self._config.replica_fetch_wait_max_ms))
        return min(ready_ms, default=None)

    def next_request(self, broker_epoch: int, now_ms: int) -> FetchRequest | None:
        """The next request, or None when there is nothing to ask for now."""
        for key in [key for key in self._delayed if self.sources[key].not_before_ms <= now_ms]:
            del self._delayed[key]
            self._dirty[key] = None
        for key in self._held.review(self.sources, now_ms):
            self._dirty[key] = None
        session = self.session
        for key in self._dirty:
            source = self.sources.get(key)
            if source is None or key in self._delayed or key in self._held:
                session.forget(key)
            else:
                max_bytes = self._held.max_bytes(key, source, self._config.replica_fetch_max_bytes, now_ms)
                session.want(key, self._parameters(source, key[1], max_bytes))
        self._dirty.clear()
        if not session.wanted:
            return None
        topics, forgotten = session.next_request()
        config = self._config
        wait_ms = config.replica_fetch_wait_max_ms
        if self._held:
            wait_ms = min(wait_ms, self._held.wait_ms(now_ms))
        return FetchRequest(
            replica_id=config.node_id,
            replica_epoch=broker_epoch,
            max_wait_ms=0 if session.has_more_to_name else wait_ms,
            min_bytes=config.replica_fetch_min_bytes,
            max_bytes=config.replica_fetch_response_max_bytes,
            session_id=session.session_id,
            session_epoch=session.epoch,
            topics=topics,
            forgotten=forgotten,
            cluster_id=config.cluster_id or None,
        )

    def _parameters(self, source: Source, index: int, max_bytes: int) -> FetchPartition:
        replica = source.replica
        return FetchPartition(
            partition=index,
            current_leader_epoch=source.leader_epoch,
            fetch_offset=replica.log_end_offset,
            last_fetched_epoch=replica.last_fetched_epoch(),
            log_start_offset=replica.log.log_start_offset,
            max_bytes=max_bytes,
        )

    # ---------------------------------------------------------------- answers

    def on_response(self, response: FetchResponse, now_ms: int) -> Outcome:
        """Take in an answer to the last request."""
        outcome = Outcome()
        if response.error_code:
            self.session.on_failure()
            if response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
                self.session.reset()
            outcome.failed = response.error_code not in _SESSION_ERRORS
            return outcome
        self.session.on_answer(response.session_id)
        self._cuts_left = _CUTS_PER_ANSWER
        for topic in response.topics:
            if topic.topic_id is not None:
                for row in topic.partitions:
                    self._on_row((topic.topic_id, row.partition), row, outcome, now_ms)
        return outcome

    def _on_row(self, key: PartitionKey, row: FetchPartitionResponse, outcome: Outcome, now_ms: int) -> None:
        source = self.sources.get(key)
        asked = self.session.wanted.get(key)
        if source is None or asked is None or not _is_current(source, asked):
            self._dirty[key] = None
            return
        if row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            outcome.out_of_range.append(key)
            return
        if row.error_code:
            self.pause(key, row.error_code, now_ms)
            return
        if row.diverging_epoch is not None:
            if not self._cuts_left:
                self.session.forget(key)  # named again in the next request, and so told again
                self._dirty[key] = None
                return
            self._cuts_left -= 1
        try:
            self._apply(source, row)
        except (ProtocolError, OSError) as error:
            self._on_local_error(key, source, error, now_ms)
        else:
            source.failures = source.last_error = 0
            source.has_committed = row.high_watermark <= source.replica.log_end_offset
            self._held.took(key, len(row.records or b""), now_ms)
            self._dirty[key] = None

    def _apply(self, source: Source, row: FetchPartitionResponse) -> None:
        replica = source.replica
        if row.diverging_epoch is not None:
            replica.truncate_to_divergence(row.diverging_epoch)
            return
        records = memoryview(row.records_in_memory())
        if len(records):
            self._listener.on_records_fetched(replica, len(records))
        replica.append_as_follower(records, row.high_watermark)
        if row.log_start_offset > replica.log.log_start_offset:
            replica.log.raise_start(min(row.log_start_offset, replica.high_watermark))

    def _on_local_error(self, key: PartitionKey, source: Source, error: Exception, now_ms: int) -> None:
        if isinstance(error, NoSpaceError):
            self._listener.on_no_space(source.replica, error)
            self.pause(key, error.code, now_ms)
        elif isinstance(error, ProtocolError) and error.code != ErrorCode.KAFKA_STORAGE_ERROR:
            self.pause(key, error.code, now_ms)
        else:
            self.remove(key)
            self._listener.on_replica_failed(source.replica, error)

    def pause(self, key: PartitionKey, error_code: int, now_ms: int) -> None:
        """Ask again after a back-off that doubles with every error in a row."""
        source = self.sources.get(key)
        if source is None:
            return
        config = self._config
        backoff_ms = min(config.replica_fetch_backoff_max_ms, config.replica_fetch_backoff_min_ms << source.failures)
        source.failures = min(source.failures + 1, 16)
        source.not_before_ms = now_ms + backoff_ms
        self._delayed[key] = None
        self._dirty[key] = None
        if source.last_error != error_code:
            source.last_error = error_code
            _logger.info("fetch of %s failed: error %d", source.replica.topic_partition, error_code)

    def restart(self, key: PartitionKey, leader_start_offset: int, leader_end_offset: int, now_ms: int) -> None:
        """Our offset is not in the leader's log: start where that starts, or cut to where it ends."""
        source = self.sources.get(key)
        if source is None or source.leader_epoch != source.replica.partition.leader_epoch:
            return
        replica = source.replica
        try:
            if leader_start_offset > replica.log_end_offset:
                replica.restart_at(leader_start_offset)
            elif leader_end_offset < replica.log_end_offset:
                replica.truncate_to(leader_end_offset)
            else:
                self.pause(key, ErrorCode.OFFSET_OUT_OF_RANGE, now_ms)
            self._dirty[key] = None
        except (ProtocolError, OSError) as error:
            self._on_local_error(key, source, error, now_ms)


def _is_current(source: Source, asked: FetchPartition) -> bool:
    """Whether an answer to `asked` still fits the replica: same epoch, same end, still a follower and healthy."""
    replica = source.replica
    partition = replica.partition
    return (
        partition.leader is None
        and partition.leader_epoch == asked.current_leader_epoch == source.leader_epoch
        and replica.log_end_offset == asked.fetch_offset
        and not replica.offline
    )
