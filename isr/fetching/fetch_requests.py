"""The way of a fetch request: read what is there, or wait for it; the same for consumers and followers.

A follower's fetch tells the leader where that follower is. It counts once, when it arrives, and not again when it is
answered after a wait.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from ...runtime.invariants import InvariantViolation
from ...wire.errors import ErrorCode
from ...wire.fetch import FetchRequest, FetchResponse, FetchTopicResponse
from ..leader.expected_first_fetches import ExpectedFetches
from ..ports import ReplicaObserver, WantedPartition
from ..purgatory.delayed_operations import DelayedOperations
from ..purgatory.purgatory import DelayedFetch
from ..results import READ_COMMITTED, FetchDone, FetchParams
from ..throttling.throttles import FetchShare, Throttle
from .cold_reads import ColdReads
from .dirty_partitions import DirtyPartitions
from .leader_fetch_sessions import Answers, FetchContext, FetchSessionCache, IncrementalFetchContext
from .partition_reader import FetchReading, PartitionReader, failed_row

_logger = logging.getLogger(__name__)

_THROTTLED_WAIT_MS_MIN = 10
"""A fetch that waits because of a throttle is read again after this time at the earliest."""


class FetchRequests:
    """Answers fetches, at once or when they have waited long enough."""

    def __init__(
        self,
        sessions: FetchSessionCache,
        reader: PartitionReader,
        expected: ExpectedFetches,
        operations: DelayedOperations,
        throttle: Throttle,
        observer: ReplicaObserver,
        now_ms: Callable[[], int],
    ) -> None:
        self._sessions = sessions
        self._reader = reader
        self._expected = expected
        self._operations = operations
        self._throttle = throttle
        self._observer = observer
        self._now_ms = now_ms

    def fetch(self, params: FetchParams, request: FetchRequest, done: FetchDone) -> DelayedFetch | None:
        """See `ReplicaManager.fetch`."""
        now_ms = self._now_ms()
        context = self._sessions.context(request, params.uses_topic_ids, now_ms)
        if context.error_code:
            done(FetchResponse(context.error_code))
            return None
        dirty = context.dirty
        if dirty is not None:
            dirty.on_fetch(now_ms)
        wanted = self._take(context)
        if dirty is None:
            self._observer.on_fetch(params, wanted)
        has_more_dirty = dirty is not None and bool(dirty.dirty)
        cold = ColdReads()
        found = self._first_read(params, wanted, cold, now_ms)
        is_complete = found.unknown == len(wanted)
        if dirty is not None:
            is_complete = found.unknown > 0 or has_more_dirty
        may_wait = context.may_wait and params.max_wait_ms > 0 and not found.must_answer
        if is_complete or not may_wait or found.size_bytes >= params.min_bytes:
            self._answer(params, context, wanted, found, done)
            return None
        if isinstance(context, IncrementalFetchContext) and dirty is not None:
            operation = self._delay_session(params, context, dirty, cold, done)
            for one, row, is_clean in zip(wanted, found.rows, found.clean, strict=True):
                if not is_clean or context.is_news(one.key, row):
                    dirty.mark(one.key)
        else:
            operation = self._delay(params, context, wanted, cold, done)
        operation.missing_bytes -= found.size_bytes
        self._park(operation, params, is_throttled=found.is_throttled)
        cold.then(operation.finish)
        return operation

    # ---------------------------------------------------------------- reading

    def _take(self, context: FetchContext) -> list[WantedPartition]:
        """The partitions to read now."""
        wanted = self._reader.resolve(context.take())
        if context.dirty is not None:
            for one in wanted:
                if one.topic_partition is not None:
                    context.dirty.set_name(one.key, one.topic_partition)
        return wanted

    def _first_read(
        self, params: FetchParams, wanted: Sequence[WantedPartition], cold: ColdReads, now_ms: int
    ) -> FetchReading:
        self._operations.defer()
        try:
            return self._reader.read(params, wanted, cold, self._share(params), now_ms)
        except InvariantViolation:
            raise
        except Exception:
            _logger.exception("fetch failed")
            rows = [
                failed_row(one.request.partition, one.error_code or int(ErrorCode.UNKNOWN_SERVER_ERROR))
                for one in wanted
            ]
            return FetchReading(rows, [False] * len(rows), must_answer=True)
        finally:
            self._operations.complete()

    def _read_again(self, params: FetchParams, wanted: Sequence[WantedPartition], cold: ColdReads) -> FetchReading:
        return self._reader.read(params, wanted, cold, self._share(params), None)

    def _share(self, params: FetchParams) -> FetchShare | None:
        if params.replica_id < 0 or self._throttle.is_idle:
            return None
        return FetchShare(self._throttle, params.replica_id, self._now_ms())

    # ---------------------------------------------------------------- waiting

    def _delay(
        self,
        params: FetchParams,
        context: FetchContext,
        wanted: Sequence[WantedPartition],
        cold: ColdReads,
        done: FetchDone,
    ) -> DelayedFetch:
        """A fetch that waits for any of its partitions, except those that are being read from the disk."""

        def respond() -> None:
            self._answer(params, context, wanted, self._read_again(params, wanted, cold), done)

        keys = [
            one.topic_partition
            for one in wanted
            if one.topic_partition is not None and one.topic_partition not in cold.partitions
        ]
        is_read_committed = params.isolation_level == READ_COMMITTED
        return DelayedFetch(respond, keys, params.min_bytes, params.replica_id, is_read_committed=is_read_committed)

    def _delay_session(
        self,
        params: FetchParams,
        context: IncrementalFetchContext,
        dirty: DirtyPartitions,
        cold: ColdReads,
        done: FetchDone,
    ) -> DelayedFetch:
        """A follower's fetch that waits for a change in any partition of its session."""

        def respond() -> None:
            if dirty.parked is operation:
                dirty.parked = None
            wanted = self._take(context)
            self._answer(params, context, wanted, self._read_again(params, wanted, cold), done)

        operation = DelayedFetch(respond, (), params.min_bytes, params.replica_id)
        dirty.parked = operation
        return operation

    def _park(self, operation: DelayedFetch, params: FetchParams, *, is_throttled: bool) -> None:
        wait_ms = params.max_wait_ms
        now_ms = self._now_ms()
        if params.replica_id >= 0:
            wait_ms = self._expected.wait_ms(params.replica_id, wait_ms, now_ms)
        if is_throttled:
            wait_ms = min(wait_ms, max(self._throttle.quota.wait_ms(now_ms), _THROTTLED_WAIT_MS_MIN))
        self._operations.purgatory.park_fetch(operation, wait_ms)

    # ---------------------------------------------------------------- answering

    def _answer(
        self,
        params: FetchParams,
        context: FetchContext,
        wanted: Sequence[WantedPartition],
        found: FetchReading,
        done: FetchDone,
    ) -> None:
        """Send what was found. Partitions that gave records are looked at after those that did not."""
        if context.dirty is not None:
            for with_records in (False, True):
                for one, row, is_clean in zip(wanted, found.rows, found.clean, strict=True):
                    if not is_clean and bool(row.records) is with_records:
                        context.dirty.mark(one.key)
        throttle = self._throttle
        if params.replica_id >= 0 and not throttle.is_idle:
            sizes = (
                len(row.records or b"")
                for one, row in zip(wanted, found.rows, strict=True)
                if one.topic_partition is not None and throttle.is_throttled(one.topic_partition)
            )
            throttle.quota.record(sum(sizes), self._now_ms())
        self._observer.on_fetched(params, wanted, found.rows)
        answers = [(one.key, row) for one, row in zip(wanted, found.rows, strict=True)]
        error_code, session_id, to_send = context.finish(answers)
        done(FetchResponse(error_code, session_id, _by_topic(to_send)))


def _by_topic(answers: Answers) -> list[FetchTopicResponse]:
    """Runs of answers for the same topic, in order."""
    topics: list[FetchTopicResponse] = []
    last = None
    for key, answer in answers:
        if key.topic != last:
            last = key.topic
            name, topic_id = (last, None) if isinstance(last, str) else (None, last)
            topics.append(FetchTopicResponse(name, topic_id, []))
        topics[-1].partitions.append(answer)
    return topics
