"""Reads what a fetch asks for, partition by partition, and counts where a follower is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from uuid import UUID

from ...log.errors import ColdReadError
from ...wire.errors import ErrorCode, ProtocolError
from ...wire.fetch import FetchPartition, FetchPartitionResponse
from ...wire.types import TopicPartition
from ..hosted_partitions import HostedPartitions
from ..leader.expected_first_fetches import ExpectedFetches
from ..leader.isr_proposals import IsrProposals
from ..ports import WantedPartition
from ..replica import Replica
from ..results import FetchParams
from ..storage_errors import StorageErrors
from ..throttling.throttles import FetchShare
from .cold_reads import ColdReads
from .leader_fetch_sessions import Rows
from .replica_selector import ReplicaSelector, preferred_read_replica


@dataclass(slots=True)
class FetchReading:
    """What a fetch finds: one row for each wanted partition, in order."""

    rows: list[FetchPartitionResponse] = field(default_factory=list)
    clean: list[bool] = field(default_factory=list)
    """By row: whether the follower has all records of the partition, see `Replica.is_clean_for`."""
    size_bytes: int = 0
    """Of records."""
    unknown: int = 0
    """How many of the wanted partitions do not exist."""
    must_answer: bool = False
    """The answer must not wait: a partition has an error, a divergence or another replica to tell, or records end with
    a segment.

    In the last case no wait would make it larger (Kafka: case F of `DelayedFetch`)."""
    is_throttled: bool = False
    """A throttle keeps records back."""


class PartitionReader:
    """Reads replicas; `expected` learns which followers have come.

    `replica_selector` says which replica a consumer is told to read from; None: the leader.
    """

    def __init__(
        self,
        hosted: HostedPartitions,
        expected: ExpectedFetches,
        proposals: IsrProposals,
        errors: StorageErrors,
        replica_selector: ReplicaSelector | None,
    ) -> None:
        self._hosted = hosted
        self._replica_selector = replica_selector
        self._expected = expected
        self._proposals = proposals
        self._errors = errors

    def resolve(self, params: FetchParams, rows: Rows) -> list[WantedPartition]:
        """The partitions that a request names. Where there is none to read, `error_code` says why."""
        image, may_read = self._hosted.image, params.may_read
        wanted = []
        for key, request in rows:
            topic = key.topic
            found = image.topics_by_name.get(topic) if isinstance(topic, str) else image.topics_by_id.get(topic)
            if may_read is not None:
                name = found.name if found is not None else topic
                if isinstance(name, str) and not may_read(name):
                    wanted.append(WantedPartition(key, request, None, int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)))
                    continue
            if found is not None and key.partition in found.partitions:
                wanted.append(WantedPartition(key, request, TopicPartition(found.name, key.partition)))
            else:
                is_unknown_id = found is None and not isinstance(topic, str)
                code = ErrorCode.UNKNOWN_TOPIC_ID if is_unknown_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                wanted.append(WantedPartition(key, request, None, int(code)))
        return wanted

    def read(
        self,
        found: FetchReading,
        params: FetchParams,
        wanted: Sequence[WantedPartition],
        cold: ColdReads,
        share: FetchShare | None,
        counted_at_ms: int | None,
    ) -> None:
        """Read all that is `wanted`, within the limits of `params` and a follower's `share` of what is throttled.

        The rows are added to `found`, whose records count towards the limits.
        `counted_at_ms`: the fetch has just come, and counts as the follower's position at that time. None: it was
        counted before.
        """
        for one in wanted:
            if one.topic_partition is None:
                found.unknown += 1
                found.rows.append(failed_row(one.request.partition, one.error_code))
                found.clean.append(False)
                continue
            is_clean = False
            try:
                replica = self._find(one.topic_partition, one.key.topic)
                if counted_at_ms is not None:
                    self._count(replica, params, one.request, counted_at_ms)
                preferred = self._preferred_replica(replica, params, one.request)
                if preferred >= 0:
                    row = replica.read(params, one.request, 0, min_one_batch=False)
                    row.preferred_read_replica = preferred
                else:
                    row = self._read_row(replica, params, one.request, found, share, cold)
                if row.diverging_epoch is not None or row.preferred_read_replica >= 0:
                    found.must_answer = True
                else:
                    is_counted = counted_at_ms is not None
                    is_clean = replica.is_clean_for(params.replica_id, one.request.fetch_offset, is_counted=is_counted)
            except (ProtocolError, OSError) as error:
                code = int(self._errors.to_protocol_error(one.topic_partition, error).code)
                row = failed_row(one.request.partition, code)
                row.current_leader = self._hosted.leader_hint(one.topic_partition, code)
                found.must_answer = True
            found.rows.append(row)
            found.clean.append(is_clean)
            found.size_bytes += len(row.records or b"")
        found.is_throttled = share is not None and share.is_throttled

    def _find(self, topic_partition: TopicPartition, topic: str | UUID) -> Replica:
        replica = self._hosted.find(topic_partition)
        if isinstance(topic, UUID) and topic != replica.topic_id:
            raise ProtocolError(ErrorCode.INCONSISTENT_TOPIC_ID, f"{topic_partition} has another topic id")
        return replica

    def _count(self, replica: Replica, params: FetchParams, request: FetchPartition, now_ms: int) -> None:
        proposal = replica.on_fetch(params, request, now_ms)
        self._expected.on_fetched(params.replica_id, replica.topic_partition)
        if proposal is not None:
            self._proposals.submit(replica, proposal)

    def _preferred_replica(self, replica: Replica, params: FetchParams, request: FetchPartition) -> int:
        """The follower that a consumer is told to read from; -1 where this replica answers it."""
        leader = replica.partition.leader
        select = self._replica_selector
        if select is None or leader is None or params.replica_id >= 0 or not params.from_follower_allowed:
            return -1
        brokers = self._hosted.image.brokers
        return preferred_read_replica(select, leader, brokers, params.client_rack, request.fetch_offset)

    def _read_row(
        self,
        replica: Replica,
        params: FetchParams,
        request: FetchPartition,
        found: FetchReading,
        share: FetchShare | None,
        cold: ColdReads,
    ) -> FetchPartitionResponse:
        limit = min(request.max_bytes, params.max_bytes - found.size_bytes)
        allowed = limit if share is None else share.limit(replica, limit)
        min_one_batch = not found.size_bytes and (allowed > 0 or allowed == limit)
        try:
            row = replica.read(params, request, allowed, min_one_batch=min_one_batch, allow_blocking_io=cold.is_over)
        except ColdReadError as error:
            cold.add(error, replica.topic_partition)
            row = replica.read(params, request, 0, min_one_batch=False)
        size_bytes = len(row.records or b"")
        is_too_little = 0 < size_bytes < params.min_bytes - found.size_bytes and allowed == limit
        if is_too_little and replica.has_later_segment_for(params, request.fetch_offset):
            found.must_answer = True
        if share is not None:
            share.record(replica, size_bytes)
        return row


def failed_row(partition: int, error_code: int) -> FetchPartitionResponse:
    """The answer for a partition that cannot be read."""
    return FetchPartitionResponse(partition=partition, error_code=error_code, high_watermark=-1, records=b"")
