"""The way of a fetch request: read what is there, or wait for it; the same for consumers and followers.

A follower's fetch tells the leader where that follower is. It counts once, when it arrives, and not again when it is
answered after a wait.

A fetch of many partitions is handled in steps, and so is its answer after a wait: a consumer may name all partitions of
a cluster, or have them in its session. A follower's incremental fetch looks at few of them (`dirty_partitions.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from ...runtime.incremental_work import ITEMS_PER_STEP, PLAIN_STEP, Work
from ...runtime.invariants import InvariantViolation
from ...wire.errors import ErrorCode
from ...wire.fetch import FetchPartitionResponse, FetchRequest, FetchResponse, FetchTopicResponse
from ..leader.expected_first_fetches import ExpectedFetches
from ..ports import FetchCaller, ReplicaObserver, WantedPartition
from ..purgatory.delayed_operations import DelayedOperations
from ..purgatory.purgatory import DelayedFetch
from ..results import READ_COMMITTED, FetchDone, FetchParams
from ..throttling.throttles import FetchShare, Throttle
from .cold_reads import ColdReads
from .dirty_partitions import DirtyPartitions
from .leader_fetch_sessions import Answers, FetchContext, FetchSessionCache, IncrementalFetchContext, Rows
from .partition_reader import FetchReading, PartitionReader, failed_row

_logger = logging.getLogger(__name__)

_FREE_OF_CHARGE = 16
"""Partitions that every fetch may name; the caller is charged for more."""
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
        self._reads = operations.reads
        self._operations = operations
        self._throttle = throttle
        self._observer = observer
        self._now_ms = now_ms

    def fetch(
        self,
        params: FetchParams,
        request: FetchRequest,
        done: FetchDone,
        caller: FetchCaller,
        context: FetchContext | None = None,
    ) -> Work[None] | None:
        """See `ReplicaManager.fetch`. `context` is what the request means, if that is known."""
        now_ms = self._now_ms()
        if context is None:
            context = self._sessions.context(request, params.uses_topic_ids, now_ms)
        if context.error_code:
            done(FetchResponse(context.error_code))
            return None
        reads = self._reads
        is_asked = reads.is_waiting and params.replica_id >= 0
        if is_asked and reads.on_fetch(params.replica_id, params.connection, context):
            params.max_wait_ms = 0
        dirty = context.dirty
        if dirty is not None:
            dirty.on_fetch(now_ms)
        rows = context.take()
        if len(rows) > _FREE_OF_CHARGE:
            if dirty is None and len(rows) > ITEMS_PER_STEP:
                return self._fetch_many(params, context, rows, done, caller, now_ms)
            caller.charge(len(rows))
        # What this fetch commits is answered when the fetch itself is answered or waits: if the answer makes somebody
        # append more, the fetch is told of it.
        self._operations.defer()
        try:
            self._read_or_wait(params, context, rows, done, caller, now_ms)
        finally:
            self._operations.complete()
        return None

    def _read_or_wait(
        self,
        params: FetchParams,
        context: FetchContext,
        rows: Rows,
        done: FetchDone,
        caller: FetchCaller,
        now_ms: int,
    ) -> None:
        dirty = context.dirty
        wanted = self._resolve(params, context, rows)
        if dirty is None:
            self._observer.on_fetch(params, wanted)
        has_more_dirty = dirty is not None and bool(dirty.dirty)
        found, cold = FetchReading(), ColdReads()
        self._read(found, params, wanted, cold, self._share(params), now_ms)
        is_complete = found.unknown == len(wanted)
        if dirty is not None:
            is_complete = found.unknown > 0 or has_more_dirty
        may_wait = context.may_wait and params.max_wait_ms > 0 and not found.must_answer
        if is_complete or not may_wait or found.size_bytes >= params.min_bytes:
            self._answer(params, context, wanted, found, done)
            return
        if isinstance(context, IncrementalFetchContext) and dirty is not None:
            operation = self._delay_session(params, context, dirty, cold, done)
            for one, row, is_clean in zip(wanted, found.rows, found.clean, strict=True):
                if not is_clean or context.is_news(one.key, row):
                    dirty.mark(one.key)
        else:
            operation = self._delay(
                params,
                wanted,
                cold,
                lambda: self._answer(params, context, wanted, self._read_again(params, wanted, cold), done),
            )
        operation.missing_bytes -= found.size_bytes
        self._operations.purgatory.park_fetch(operation, self._wait_ms(params, is_throttled=found.is_throttled))
        _cancel_when_gone(operation, caller)
        cold.then(operation.finish)

    def fetch_in_steps(
        self, params: FetchParams, request: FetchRequest, done: FetchDone, caller: FetchCaller
    ) -> Work[None]:
        """See `ReplicaManager.fetch_in_steps`."""
        now_ms = self._now_ms()
        context = yield from self._sessions.context_in_steps(request, params.uses_topic_ids, now_ms)
        work = self.fetch(params, request, done, caller, context)
        if work is not None:
            yield from work

    def _fetch_many(
        self,
        params: FetchParams,
        context: FetchContext,
        rows: Rows,
        done: FetchDone,
        caller: FetchCaller,
        now_ms: int,
    ) -> Work[None]:
        """A fetch that may wait is listed with its partitions before they are read: what comes meanwhile counts."""
        wanted: list[WantedPartition] = []
        for start in range(0, len(rows), ITEMS_PER_STEP):
            part = self._reader.resolve(params, rows[start : start + ITEMS_PER_STEP])
            self._observer.on_fetch(params, part)
            wanted += part
            yield PLAIN_STEP
        found, cold = FetchReading(), ColdReads()
        is_read = is_due = False

        def respond() -> None:
            nonlocal is_due
            is_due = True
            if is_read:
                caller.run_in_steps(self._answer_many_again(params, context, wanted, cold, done))

        may_wait = context.may_wait and params.max_wait_ms > 0
        operation = self._delay(params, wanted, cold, respond, caller)
        _cancel_when_gone(operation, caller)
        if operation.is_done:
            return
        purgatory = self._operations.purgatory
        if may_wait:
            yield from purgatory.listing(operation)
        share = self._share(params)
        for start in range(0, len(wanted), ITEMS_PER_STEP):
            if operation.is_done and not is_due:
                return
            self._operations.defer()
            try:
                self._read(found, params, wanted[start : start + ITEMS_PER_STEP], cold, share, now_ms)
            finally:
                self._operations.complete()
            yield PLAIN_STEP
        is_complete = is_due or found.unknown == len(wanted) or found.size_bytes >= params.min_bytes
        if is_complete or not may_wait or found.must_answer:
            operation.cancel()
            yield from self._answer_many(params, context, wanted, found, done)
        else:
            is_read = True
            purgatory.end_after(operation, self._wait_ms(params, is_throttled=found.is_throttled))
            cold.then(operation.finish)
            operation.add_bytes(found.size_bytes)

    # ---------------------------------------------------------------- reading

    def _resolve(self, params: FetchParams, context: FetchContext, rows: Rows) -> list[WantedPartition]:
        wanted = self._reader.resolve(params, rows)
        if context.dirty is not None:
            for one in wanted:
                if one.topic_partition is not None:
                    context.dirty.set_name(one.key, one.topic_partition)
        return wanted

    def _read(
        self,
        found: FetchReading,
        params: FetchParams,
        wanted: Sequence[WantedPartition],
        cold: ColdReads,
        share: FetchShare | None,
        counted_at_ms: int | None,
    ) -> None:
        """See `PartitionReader.read`. An unexpected error is the answer to this fetch alone.

        A produce may have woken it, whose batch is in the log by now.
        """
        before = len(found.rows)
        try:
            self._reader.read(found, params, wanted, cold, share, counted_at_ms)
        except InvariantViolation:
            raise
        except Exception:
            _logger.exception("fetch failed")
            code = int(ErrorCode.UNKNOWN_SERVER_ERROR)
            found.rows[before:] = [failed_row(one.request.partition, one.error_code or code) for one in wanted]
            found.clean[before:] = [False] * len(wanted)
            found.must_answer = True

    def _read_again(self, params: FetchParams, wanted: Sequence[WantedPartition], cold: ColdReads) -> FetchReading:
        found = FetchReading()
        self._read(found, params, wanted, cold, self._share(params), None)
        return found

    def _share(self, params: FetchParams) -> FetchShare | None:
        if params.replica_id < 0 or self._throttle.is_idle:
            return None
        return FetchShare(self._throttle, params.replica_id, self._now_ms())

    # ---------------------------------------------------------------- waiting

    def _delay(
        self,
        params: FetchParams,
        wanted: Sequence[WantedPartition],
        cold: ColdReads,
        respond: Callable[[], None],
        caller: FetchCaller | None = None,
    ) -> DelayedFetch:
        """A fetch that waits for any of its partitions, except those that are being read from the disk."""
        keys = [
            one.topic_partition
            for one in wanted
            if one.topic_partition is not None and one.topic_partition not in cold.partitions
        ]
        is_read_committed = params.isolation_level == READ_COMMITTED
        return DelayedFetch(
            respond, keys, params.min_bytes, params.replica_id, is_read_committed=is_read_committed, caller=caller
        )

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
            wanted = self._resolve(params, context, context.take())
            self._answer(params, context, wanted, self._read_again(params, wanted, cold), done)

        operation = DelayedFetch(respond, (), params.min_bytes, params.replica_id)
        dirty.parked = operation
        return operation

    def _wait_ms(self, params: FetchParams, *, is_throttled: bool) -> int:
        wait_ms = params.max_wait_ms
        now_ms = self._now_ms()
        if params.replica_id >= 0:
            wait_ms = self._expected.wait_ms(params.replica_id, wait_ms, now_ms)
        if is_throttled:
            wait_ms = min(wait_ms, max(self._throttle.quota.wait_ms(now_ms), _THROTTLED_WAIT_MS_MIN))
        return wait_ms

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
        self._note_answer(params)
        if context.dirty is not None:
            for with_records in (False, True):
                for one, row, is_clean in zip(wanted, found.rows, found.clean, strict=True):
                    if not is_clean and bool(row.records) is with_records:
                        context.dirty.mark(one.key)
        error_code, session_id = context.close()
        topics: list[FetchTopicResponse] = []
        self._put(topics, params, context, wanted, found.rows)
        done(FetchResponse(error_code, session_id, topics))

    def _answer_many(
        self,
        params: FetchParams,
        context: FetchContext,
        wanted: Sequence[WantedPartition],
        found: FetchReading,
        done: FetchDone,
    ) -> Work[None]:
        self._note_answer(params)
        error_code, session_id = context.close()
        topics: list[FetchTopicResponse] = []
        for start in range(0, len(wanted), ITEMS_PER_STEP):
            part = slice(start, start + ITEMS_PER_STEP)
            self._put(topics, params, context, wanted[part], found.rows[part])
            yield PLAIN_STEP
        done(FetchResponse(error_code, session_id, topics, is_long=True))

    def _answer_many_again(
        self,
        params: FetchParams,
        context: FetchContext,
        wanted: Sequence[WantedPartition],
        cold: ColdReads,
        done: FetchDone,
    ) -> Work[None]:
        found, share = FetchReading(), self._share(params)
        for start in range(0, len(wanted), ITEMS_PER_STEP):
            self._read(found, params, wanted[start : start + ITEMS_PER_STEP], cold, share, None)
            yield PLAIN_STEP
        yield from self._answer_many(params, context, wanted, found, done)

    def _note_answer(self, params: FetchParams) -> None:
        if self._reads.is_waiting and params.replica_id >= 0:
            self._reads.on_answer(params.replica_id, params.connection)

    def _put(
        self,
        topics: list[FetchTopicResponse],
        params: FetchParams,
        context: FetchContext,
        wanted: Sequence[WantedPartition],
        rows: Sequence[FetchPartitionResponse],
    ) -> None:
        """Add to the topics of the response what is to be sent of these rows, and count it."""
        throttle = self._throttle
        if params.replica_id >= 0 and not throttle.is_idle:
            sizes = (
                len(row.records or b"")
                for one, row in zip(wanted, rows, strict=True)
                if one.topic_partition is not None and throttle.is_throttled(one.topic_partition)
            )
            throttle.quota.record(sum(sizes), self._now_ms())
        self._observer.on_fetched(params, wanted, rows)
        answers = [(one.key, row) for one, row in zip(wanted, rows, strict=True)]
        _add_by_topic(topics, context.select(answers))


def _cancel_when_gone(operation: DelayedFetch, caller: FetchCaller) -> None:
    """Forget the fetch when its caller has gone, which may have been while the request was prepared in steps."""
    caller.on_gone = operation.cancel
    if caller.is_gone:
        operation.cancel()


def _add_by_topic(topics: list[FetchTopicResponse], answers: Answers) -> None:
    """Add runs of answers for the same topic, in order."""
    last = topics[-1].name or topics[-1].topic_id if topics else None
    for key, answer in answers:
        if key.topic != last:
            last = key.topic
            name, topic_id = (last, None) if isinstance(last, str) else (None, last)
            topics.append(FetchTopicResponse(name, topic_id, []))
        topics[-1].partitions.append(answer)
