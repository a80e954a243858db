"""Which partitions a fetcher fetches from one broker, and what it does with the answers. I/O only on the logs.

The order matters. An answer is used only if the partition is still at the epoch and the offset of the request. A
diverging epoch truncates the log before anything is appended (KAFKA-14704). Records are appended before the high
watermark is learnt.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Protocol

from ...log.errors import NoSpaceError
from ...runtime.invariants import sometimes
from ...wire.errors import ErrorCode, ProtocolError, error_name
from ...wire.fetch import FetchPartition, FetchPartitionResponse, FetchRequest, FetchResponse
from ...wire.types import TopicPartition
from ..ports import ReplicaManagerConfig
from ..replica import Replica
from ..throttling.throttles import Throttle
from .fetched_partition import FetchedPartition
from .follower_fetch_session import FetchSession, PartitionKey
from .throttled_partitions import ThrottledPartitions

_logger = logging.getLogger(__name__)

_TRUNCATIONS_PER_ANSWER = 8
"""How many logs are truncated for one answer: each truncation waits for the disk and blocks the event loop. The others
are fetched again."""
_SESSION_ERRORS = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)


class FetcherListener(Protocol):
    """Learns what a fetcher did to a replica (`ReplicaManager`)."""

    def on_records_fetched(self, replica: Replica, size_bytes: int) -> None:
        """Records have come and are about to be appended."""
        ...

    def on_replica_failed(self, replica: Replica, error: Exception) -> None:
        """The log could not be read or written."""
        ...

    def on_no_space(self, replica: Replica, error: NoSpaceError) -> None:
        """The disk is full."""
        ...


@dataclass(slots=True)
class Outcome:
    """What `ReplicaFetcher` has to do after an answer."""

    out_of_range: list[PartitionKey] = field(default_factory=list)
    failed: bool = False
    """The whole request was refused: pause before the next one."""


class FetcherState:
    """The partitions that are fetched from one broker, and the fetch session with it."""

    def __init__(self, config: ReplicaManagerConfig, listener: FetcherListener, throttle: Throttle) -> None:
        self._config = config
        self._listener = listener
        self.session = FetchSession()
        self.partitions: dict[PartitionKey, FetchedPartition] = {}
        self._dirty: dict[PartitionKey, None] = {}
        self._delayed: dict[PartitionKey, None] = {}
        self._throttled = ThrottledPartitions(throttle)
        self._truncations_left = 0
        self._newly_refused: dict[int, list[TopicPartition]] = {}
        """By error code, what the leader did not refuse for this reason before, until that is logged."""

    def add(self, replica: Replica) -> None:
        """Fetch this replica from now on, in its present epoch."""
        key = (replica.topic_id, replica.topic_partition.partition)
        self.partitions[key] = FetchedPartition(replica, replica.partition.leader_epoch, local_id=self._config.node_id)
        self._throttled.on_partitions_changed()
        self._dirty[key] = None
        self._delayed.pop(key, None)

    def remove(self, key: PartitionKey) -> bool:
        """Stop fetching it; false when it was not fetched."""
        self._delayed.pop(key, None)
        self._dirty[key] = None
        self._throttled.on_partitions_changed()
        return self.partitions.pop(key, None) is not None

    def retry_now(self) -> None:
        """End all pauses."""
        for key in self._delayed:
            self.partitions[key].not_before_ms = 0

    def next_ready_ms(self, now_ms: int) -> int | None:
        """When the first paused or throttled partition may be fetched again, as far as is known now; None for never."""
        ready_ms = [self.partitions[key].not_before_ms for key in self._delayed]
        if self._throttled:
            ready_ms.append(now_ms + min(self._throttled.wait_ms(now_ms), self._config.replica_fetch_wait_max_ms))
        return min(ready_ms, default=None)

    def next_request(self, broker_epoch: int, now_ms: int) -> FetchRequest | None:
        """The next request; None when there is nothing to fetch now."""
        for key in [key for key in self._delayed if self.partitions[key].not_before_ms <= now_ms]:
            del self._delayed[key]
            self._dirty[key] = None
        for key in self._throttled.update(self.partitions, now_ms):
            self._dirty[key] = None
        session = self.session
        for key in self._dirty:
            fetched = self.partitions.get(key)
            if fetched is None or key in self._delayed or key in self._throttled or fetched.replica.log.is_failed:
                session.forget(key)  # of a log that has failed, the leader must not count what it had
            else:
                max_bytes = self._throttled.max_bytes(key, fetched, self._config.replica_fetch_max_bytes, now_ms)
                session.want(key, self._parameters(fetched, key[1], max_bytes))
        self._dirty.clear()
        if not session.wanted:
            return None
        topics, forgotten = session.next_request()
        config = self._config
        wait_ms = config.replica_fetch_wait_max_ms
        if self._throttled:
            wait_ms = min(wait_ms, self._throttled.wait_ms(now_ms))
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

    def _parameters(self, fetched: FetchedPartition, index: int, max_bytes: int) -> FetchPartition:
        replica = fetched.replica
        return FetchPartition(
            partition=index,
            current_leader_epoch=fetched.leader_epoch,
            fetch_offset=replica.log_end_offset,
            last_fetched_epoch=replica.last_fetched_epoch(),
            log_start_offset=replica.log.log_start_offset,
            max_bytes=max_bytes,
        )

    # ---------------------------------------------------------------- answers

    def on_response(self, response: FetchResponse, now_ms: int) -> Outcome:
        """Process the answer to the last request."""
        outcome = Outcome()
        if response.error_code:
            self.session.on_failure()
            if response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
                sometimes(True, "a leader had forgotten the fetch session of a follower")
                self.session.reset()
            sometimes(
                response.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH,
                "a leader and a follower differed in the epoch of their fetch session",
            )
            outcome.failed = response.error_code not in _SESSION_ERRORS
            return outcome
        self.session.on_answer(response.session_id)
        self._truncations_left = _TRUNCATIONS_PER_ANSWER
        for topic in response.topics:
            if topic.topic_id is not None:
                for row in topic.partitions:
                    self._on_row((topic.topic_id, row.partition), row, outcome, now_ms)
        self._log_refused()
        return outcome

    def _log_refused(self) -> None:
        """One line for each reason: after thousands of topics were created, a leader may know none of them yet."""
        for error_code, refused in self._newly_refused.items():
            first, others = refused[0], len(refused) - 1
            more = f" and {others} other partition{'s' * (others > 1)}" if others else ""
            _logger.info("the leader refused a fetch of %s%s: %s", first, more, error_name(error_code))
        self._newly_refused.clear()

    def _on_row(self, key: PartitionKey, row: FetchPartitionResponse, outcome: Outcome, now_ms: int) -> None:
        fetched = self.partitions.get(key)
        asked = self.session.wanted.get(key)
        if fetched is None or asked is None or not _is_current(fetched, asked):
            sometimes(fetched is not None and asked is not None, "a fetch was answered after a change of the role")
            self._dirty[key] = None
            return
        if row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            sometimes(True, "a follower fetched outside of its leader's log")
            outcome.out_of_range.append(key)
            return
        if row.error_code:
            self.pause(key, row.error_code, now_ms)
            return
        if row.diverging_epoch is not None:
            if not self._truncations_left:
                sometimes(True, "more logs parted from the leader's than one answer may cut")
                self.session.forget(key)  # named again in the next request, and so told again
                self._dirty[key] = None
                return
            self._truncations_left -= 1
        try:
            self._apply(fetched, row)
        except (ProtocolError, OSError) as error:
            self._on_local_error(key, fetched, error, now_ms)
        else:
            fetched.failures = fetched.last_error = 0
            fetched.has_committed = row.high_watermark <= fetched.replica.log_end_offset
            self._throttled.record(key, len(row.records or b""), now_ms)
            self._dirty[key] = None

    def _apply(self, fetched: FetchedPartition, row: FetchPartitionResponse) -> None:
        replica = fetched.replica
        if row.diverging_epoch is not None:
            replica.truncate_to_divergence(row.diverging_epoch)
            return
        records = memoryview(row.records_in_memory())
        if len(records):
            self._listener.on_records_fetched(replica, len(records))
        replica.append_as_follower(records, row.high_watermark)
        if row.log_start_offset > replica.log.log_start_offset:
            sometimes(True, "a follower deleted records after its leader")
            replica.log.raise_start(min(row.log_start_offset, replica.high_watermark))

    def _on_local_error(self, key: PartitionKey, fetched: FetchedPartition, error: Exception, now_ms: int) -> None:
        if isinstance(error, NoSpaceError):
            sometimes(True, "a follower's disk was full")
            self._listener.on_no_space(fetched.replica, error)
            self.pause(key, error.code, now_ms, f"on this broker {error.message}; it tries again by itself")
        elif isinstance(error, ProtocolError) and error.code != ErrorCode.KAFKA_STORAGE_ERROR:
            self.pause(key, error.code, now_ms, error.message)
        else:
            sometimes(True, "a follower's log failed")
            self.remove(key)
            self._listener.on_replica_failed(fetched.replica, error)

    def pause(self, key: PartitionKey, error_code: int, now_ms: int, reason: str = "") -> None:
        """Fetch the partition again after a pause that doubles with every error in a row.

        The leader is asked for it anew even if the pause is over before the next request: it believes that what it has
        sent was taken, and reads the partition again only for something new.

        `reason` says why this replica does not take what it got; empty for an error that the leader has answered.
        """
        fetched = self.partitions.get(key)
        if fetched is None:
            return
        config = self._config
        backoff_ms = min(config.replica_fetch_backoff_max_ms, config.replica_fetch_backoff_min_ms << fetched.failures)
        fetched.failures = min(fetched.failures + 1, 16)
        fetched.not_before_ms = now_ms + backoff_ms
        self.session.forget(key)
        self._delayed[key] = None
        self._dirty[key] = None
        if fetched.last_error != error_code:
            fetched.last_error = error_code
            where = fetched.replica.topic_partition
            if reason:
                _logger.warning("%s does not take what its leader sent: %s", where, reason)
            else:
                self._newly_refused.setdefault(error_code, []).append(where)

    def restart(self, key: PartitionKey, leader_start_offset: int, leader_end_offset: int, now_ms: int) -> None:
        """The offset is not in the leader's log: start again where that starts, or truncate to where it ends."""
        fetched = self.partitions.get(key)
        if fetched is None or fetched.leader_epoch != fetched.replica.partition.leader_epoch:
            return
        replica = fetched.replica
        try:
            if leader_start_offset > replica.log_end_offset:
                sometimes(True, "a follower began anew at the start of its leader's log")
                replica.restart_at(leader_start_offset)
            elif leader_end_offset < replica.log_end_offset:
                sometimes(True, "a follower was cut to the end of its leader's log")
                replica.truncate_to(leader_end_offset)
            else:
                self.pause(key, ErrorCode.OFFSET_OUT_OF_RANGE, now_ms)
            self._dirty[key] = None
        except (ProtocolError, OSError) as error:
            self._on_local_error(key, fetched, error, now_ms)


def _is_current(fetched: FetchedPartition, asked: FetchPartition) -> bool:
    """Whether an answer to `asked` still fits: the replica follows, in the same epoch and with the same log end."""
    replica = fetched.replica
    partition = replica.partition
    return (
        partition.leader is None
        and partition.leader_epoch == asked.current_leader_epoch == fetched.leader_epoch
        and replica.log_end_offset == asked.fetch_offset
        and not replica.offline
    )
