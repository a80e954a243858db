"""The way of a fetch request: read what is there, or wait for it; the same for consumers and followers.

A follower's fetch tells the leader where that follower is; it counts once, when it arrives, and not again when it is
answered after a wait.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ...log.errors import ColdReadError
from ...runtime.invariants import InvariantViolation
from ...wire.errors import ErrorCode, ProtocolError
from ...wire.fetch import FetchPartition, FetchPartitionResponse
from ..hosted_partitions import HostedPartitions
from ..leader.expected_fetches import ExpectedFetches
from ..leader.isr_proposals import IsrProposals
from ..ports import ReplicaObserver, TopicIdPartition
from ..purgatory.delayed_operations import DelayedOperations
from ..purgatory.purgatory import DelayedFetch
from ..replica import Replica
from ..results import FetchDone, FetchParams
from ..storage_errors import StorageErrors
from ..throttling.throttles import FetchShare, Throttle
from .cold_reads import ColdReads
from .incremental_fetch_context import IncrementalFetchContext, WatchKey

Wanted = Sequence[tuple[TopicIdPartition, FetchPartition]]
_HELD_MS_MIN = 10
"""A fetch that a throttle keeps waiting looks again not sooner."""


class WatchedFetch(Protocol):
    """An incremental fetch of a follower on its way through the replicas."""

    @property
    def watch(self) -> IncrementalFetchContext: ...

    def wanted(self) -> Wanted:
        """Takes what is awake, to be looked at now."""
        ...

    @property
    def has_refusals(self) -> bool:
        """Whether something was refused before it came to any replica."""
        ...

    def is_news(self, row: int, answer: FetchPartitionResponse) -> bool:
        """Whether the follower has not been told what `answer`, for that row of `wanted`, says."""
        ...

    def done(self, rows: list[FetchPartitionResponse]) -> None:
        """Answer, with one row for each row of the last `wanted`."""
        ...


@dataclass(slots=True)
class _Reading:
    """What a fetch finds: rows in the order of what was wanted."""

    rows: list[FetchPartitionResponse] = field(default_factory=list)
    quiet: list[bool] = field(default_factory=list)
    size_bytes: int = 0
    """Of records."""
    answer_now: bool = False
    """The answer must not wait."""
    is_held: bool = False
    """A throttle keeps something back."""


class FetchRequests:
    """`now_ms` gives monotonic milliseconds."""

    def __init__(
        self,
        hosted: HostedPartitions,
        operations: DelayedOperations,
        proposals: IsrProposals,
        errors: StorageErrors,
        throttle: Throttle,
        observer: ReplicaObserver,
        now_ms: Callable[[], int],
    ) -> None:
        self._hosted = hosted
        self._operations = operations
        self._proposals = proposals
        self._errors = errors
        self._expected = ExpectedFetches(operations.purgatory)
        self._throttle = throttle
        self._observer = observer
        self._now_ms = now_ms

    def expect(self, replica: Replica) -> None:
        """This broker leads the partition in a new epoch: its followers will fetch it as soon as they know."""
        leader = replica.partition.leader
        if leader is not None:
            self._expected.expect(replica.topic_partition, leader.followers, self._now_ms())

    def fetch(self, params: FetchParams, wanted: Wanted, done: FetchDone) -> DelayedFetch | None:
        """See `ReplicaManager.fetch`."""
        self._observer.on_fetch(params, wanted)
        cold = ColdReads()
        found = self._first_read(params, wanted, cold)
        if found.answer_now or found.size_bytes >= params.min_bytes or params.max_wait_ms <= 0 or not wanted:
            done(self._sent(params, wanted, found.rows))
            return None
        operation = DelayedFetch(
            lambda: done(self._sent(params, wanted, self._read(params, wanted, cold, count=False).rows)),
            [key.topic_partition for key, _ in wanted if key.topic_partition not in cold.partitions],
            params.min_bytes - found.size_bytes,
            params.replica_id,
        )
        self._park(operation, params, is_held=found.is_held)
        cold.then(operation.finish)
        return operation

    def fetch_watched(self, params: FetchParams, fetch: WatchedFetch) -> DelayedFetch | None:
        """See `ReplicaManager.fetch_watched`."""
        watch = fetch.watch
        watch.begin(self._now_ms())
        wanted = fetch.wanted()
        are_more_awake = bool(watch.awake)
        cold = ColdReads()
        found = self._first_read(params, wanted, cold)
        is_decided = found.answer_now or fetch.has_refusals or are_more_awake
        if is_decided or found.size_bytes >= params.min_bytes or params.max_wait_ms <= 0:
            self._answer(params, fetch, wanted, found)
            return None
        for at, (key, _) in enumerate(wanted):
            if not found.quiet[at] or fetch.is_news(at, found.rows[at]):
                watch.stays_awake(_watch_key(key))

        def finish() -> None:
            if watch.parked is operation:
                watch.parked = None
            wanted = fetch.wanted()
            self._answer(params, fetch, wanted, self._read(params, wanted, cold, count=False))

        operation = DelayedFetch(finish, (), params.min_bytes - found.size_bytes, params.replica_id)
        watch.parked = operation
        self._park(operation, params, is_held=found.is_held)
        cold.then(operation.finish)
        return operation

    def _answer(self, params: FetchParams, fetch: WatchedFetch, wanted: Wanted, found: _Reading) -> None:
        """What gave records gets its next turn behind what did not."""
        for with_records in (False, True):
            for (key, _), row, is_quiet in zip(wanted, found.rows, found.quiet, strict=True):
                if not is_quiet and bool(row.records) is with_records:
                    fetch.watch.stays_awake(_watch_key(key))
        fetch.done(self._sent(params, wanted, found.rows))

    def _sent(
        self, params: FetchParams, wanted: Wanted, rows: list[FetchPartitionResponse]
    ) -> list[FetchPartitionResponse]:
        """They leave now: the throttle counts its part of them."""
        throttle = self._throttle
        if params.replica_id >= 0 and not throttle.is_idle:
            throttled = (
                len(row.records or b"")
                for (key, _), row in zip(wanted, rows, strict=True)
                if throttle.is_throttled(key.topic_partition)
            )
            throttle.quota.record(sum(throttled), self._now_ms())
        self._observer.on_fetched(params, wanted, rows)
        return rows

    def _park(self, operation: DelayedFetch, params: FetchParams, *, is_held: bool) -> None:
        wait_ms = params.max_wait_ms
        now_ms = self._now_ms()
        if params.replica_id >= 0:
            wait_ms = self._expected.wait_ms(params.replica_id, wait_ms, now_ms)
        if is_held:
            wait_ms = min(wait_ms, max(self._throttle.quota.wait_ms(now_ms), _HELD_MS_MIN))
        self._operations.purgatory.park_fetch(operation, wait_ms)

    def _share(self, params: FetchParams) -> FetchShare | None:
        if params.replica_id < 0 or self._throttle.is_idle:
            return None
        return FetchShare(self._throttle, params.replica_id, self._now_ms())

    def _first_read(self, params: FetchParams, wanted: Wanted, cold: ColdReads) -> _Reading:
        self._operations.defer()
        try:
            return self._read(params, wanted, cold, count=True)
        finally:
            self._operations.complete()

    def _read(self, params: FetchParams, wanted: Wanted, cold: ColdReads, *, count: bool) -> _Reading:
        now_ms = self._now_ms() if count else 0
        found = _Reading()
        share = self._share(params)
        for key, request in wanted:
            limit = min(request.max_bytes, params.max_bytes - found.size_bytes)
            is_quiet = False
            try:
                replica = self._find(key)
                if count:
                    proposal = replica.check_fetch(params, request, now_ms)
                    self._expected.came(params.replica_id, key.topic_partition)
                    if proposal is not None:
                        self._proposals.submit(replica, proposal)
                allowed = limit if share is None else share.limit(replica, limit)
                min_one_batch = not found.size_bytes and (allowed > 0 or allowed == limit)
                row = self._read_row(replica, params, request, (allowed, min_one_batch), cold)
                if share is not None:
                    share.took(replica, len(row.records or b""))
                if row.diverging_epoch is not None:
                    found.answer_now = True
                else:
                    is_quiet = replica.is_quiet_for(params.replica_id, request.fetch_offset, is_counted=count)
            except (ProtocolError, OSError) as error:
                row = self._refusal(key, request, self._errors.to_protocol_error(key.topic_partition, error))
                found.answer_now = True
            found.rows.append(row)
            found.quiet.append(is_quiet)
            found.size_bytes += len(row.records or b"")
        found.is_held = share is not None and share.is_held
        return found

    def _read_row(
        self,
        replica: Replica,
        params: FetchParams,
        request: FetchPartition,
        limits: tuple[int, bool],
        cold: ColdReads,
    ) -> FetchPartitionResponse:
        max_bytes, min_one_batch = limits
        try:
            return replica.read(params, request, max_bytes, min_one_batch=min_one_batch, allow_blocking_io=cold.is_over)
        except ColdReadError as found:
            cold.add(found, replica.topic_partition)
            return replica.read(params, request, 0, min_one_batch=False)

    def _find(self, key: TopicIdPartition) -> Replica:
        replica = self._hosted.find(key.topic_partition)
        if key.topic_id is not None and key.topic_id != replica.topic_id:
            raise ProtocolError(ErrorCode.INCONSISTENT_TOPIC_ID, f"{key.topic_partition} has another topic id")
        return replica

    def _refusal(self, key: TopicIdPartition, request: FetchPartition, error: ProtocolError) -> FetchPartitionResponse:
        code = int(error.code)
        return FetchPartitionResponse(
            partition=request.partition,
            error_code=code,
            high_watermark=-1,
            last_stable_offset=-1,
            log_start_offset=-1,
            current_leader=self._hosted.leader_hint(key.topic_partition, code),
            records=b"",
        )


def _watch_key(key: TopicIdPartition) -> WatchKey:
    if key.topic_id is None:
        raise InvariantViolation("what is watched is named by topic ids")
    return key.topic_id, key.topic_partition.partition
