"""DeleteRecords (KIP-107): the leader raises the start of its log, and the followers do the same when they learn it.

Only committed records are deleted. The low watermark is the smallest log start offset of all replicas whose brokers are
not fenced; the request waits for it.
"""

from __future__ import annotations

from ...wire.errors import ErrorCode, ProtocolError
from ...wire.types import TopicPartition
from ..hosted_partitions import HostedPartitions
from ..purgatory.delayed_operations import DelayedOperations
from ..replica import Replica
from ..results import DeletedRecords
from ..storage_errors import StorageErrors
from .leader_state import LeaderState

HIGH_WATERMARK_OFFSET = -1


class RecordDeletion:
    """Deletes records of the partitions that this broker leads."""

    def __init__(self, hosted: HostedPartitions, operations: DelayedOperations, errors: StorageErrors) -> None:
        self._hosted = hosted
        self._operations = operations
        self._errors = errors

    def delete_before(self, topic_partition: TopicPartition, offset: int) -> DeletedRecords:
        """Raise the start of the log to `offset` (-1: the high watermark). Errors are in the result's code."""
        try:
            replica, leader = self._leader_of(topic_partition)
            if not replica.log.config.is_deleted:
                raise ProtocolError(
                    ErrorCode.POLICY_VIOLATION,
                    f"Records of {topic_partition} can not be deleted due to the configured policy",
                )
            required = replica.high_watermark if offset == HIGH_WATERMARK_OFFSET else offset
            if not 0 <= required <= replica.high_watermark:
                raise ProtocolError(
                    ErrorCode.OFFSET_OUT_OF_RANGE, f"{required} is above the high watermark {replica.high_watermark}"
                )
            if replica.log.raise_start(required):
                self._operations.on_changed(replica)
            return DeletedRecords(0, self._low_watermark(replica, leader), required)
        except (ProtocolError, OSError) as error:
            return DeletedRecords(int(self._errors.to_protocol_error(topic_partition, error).code))

    def low_watermark(self, topic_partition: TopicPartition) -> DeletedRecords:
        """The partition's low watermark. Errors are in the result's code."""
        try:
            return DeletedRecords(0, self._low_watermark(*self._leader_of(topic_partition)))
        except ProtocolError as error:
            return DeletedRecords(int(error.code))

    def _leader_of(self, topic_partition: TopicPartition) -> tuple[Replica, LeaderState]:
        replica = self._hosted.find(topic_partition)
        replica.check_online()
        return replica, replica.partition.require_leader()

    def _low_watermark(self, replica: Replica, leader: LeaderState) -> int:
        brokers = self._hosted.image.brokers
        lowest = replica.log.log_start_offset
        for broker_id, follower in leader.followers.items():
            registration = brokers.get(broker_id)
            if registration is not None and not registration.fenced:
                lowest = min(lowest, follower.log_start_offset)
        return lowest
