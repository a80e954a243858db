"""The way of a fetch request: read what is there, or wait for it; the same for consumers and followers.

A follower's fetch tells the leader where that follower is; it counts once, when it arrives, and not again when it is
answered after a wait.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..wire.errors import ErrorCode, ProtocolError
from ..wire.fetch import FetchPartition, FetchPartitionResponse
from .consequences import Consequences
from .directory import ReplicaDirectory
from .ports import TopicIdPartition
from .purgatory import DelayedFetch, Purgatory
from .replica import Replica
from .results import FetchDone, FetchParams

Wanted = Sequence[tuple[TopicIdPartition, FetchPartition]]


class Fetches:
    """`now_ms` gives monotonic milliseconds."""

    def __init__(
        self,
        directory: ReplicaDirectory,
        purgatory: Purgatory,
        consequences: Consequences,
        now_ms: Callable[[], int],
    ) -> None:
        self._directory = directory
        self._purgatory = purgatory
        self._consequences = consequences
        self._now_ms = now_ms

    def fetch(self, params: FetchParams, wanted: Wanted, done: FetchDone) -> DelayedFetch | None:
        """See `ReplicaManager.fetch`."""
        rows, size_bytes, answer_now = self._read(params, wanted, count=True)
        if answer_now or size_bytes >= params.min_bytes or params.max_wait_ms <= 0 or not wanted:
            done(rows)
            return None
        operation = DelayedFetch(
            lambda: done(self._read(params, wanted, count=False)[0]),
            [key.topic_partition for key, _ in wanted],
            params.min_bytes - size_bytes,
            params.replica_id,
        )
        self._purgatory.park_fetch(operation, params.max_wait_ms)
        return operation

    def _read(
        self, params: FetchParams, wanted: Wanted, *, count: bool
    ) -> tuple[list[FetchPartitionResponse], int, bool]:
        """Rows in the order of `wanted`, bytes of records, and whether the answer must not wait."""
        now_ms = self._now_ms() if count else 0
        rows: list[FetchPartitionResponse] = []
        moved: list[Replica] = []
        size_bytes = 0
        answer_now = False
        for key, request in wanted:
            limit = min(request.max_bytes, params.max_bytes - size_bytes)
            try:
                replica = self._find(key)
                old_high_watermark = replica.partition.high_watermark
                if count:
                    proposal = replica.check_fetch(params, request, now_ms)
                    if replica.partition.high_watermark != old_high_watermark:
                        moved.append(replica)
                    if proposal is not None:
                        self._consequences.on_proposal(replica, proposal)
                row = replica.read(params, request, limit, min_one_batch=not size_bytes)
                if row.diverging_epoch is not None:
                    answer_now = True
            except (ProtocolError, OSError) as error:
                row = self._refusal(key, request, self._consequences.refused(key.topic_partition, error))
                answer_now = True
            rows.append(row)
            size_bytes += len(row.records or b"")
        for replica in moved:
            self._consequences.on_high_watermark(replica)
        return rows, size_bytes, answer_now

    def _find(self, key: TopicIdPartition) -> Replica:
        replica = self._directory.find(key.topic_partition)
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
            current_leader=self._directory.leader_hint(key.topic_partition, code),
            records=b"",
        )
