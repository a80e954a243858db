"""ListOffsets and OffsetForLeaderEpoch: answers about a log without its records.

A consumer is told nothing about records above the high watermark, or above the last stable offset if it reads
committed transactions only; a replica is told about the whole log. Right after an election, a leader's high watermark
may be below the one that its predecessor has shown. Then the answer is OFFSET_NOT_AVAILABLE, so that no consumer sees
the end of a log go back (KIP-207).
"""

from __future__ import annotations

from ...runtime.invariants import sometimes
from ...wire.errors import ErrorCode, ProtocolError
from ..replica import Replica
from ..results import (
    CONSUMER_REPLICA_ID,
    DEBUGGING_REPLICA_ID,
    READ_COMMITTED,
    EpochEndResult,
    ListOffsetResult,
)

LATEST_TIMESTAMP = -1
EARLIEST_TIMESTAMP = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL_TIMESTAMP = -4
LATEST_TIERED_TIMESTAMP = -5
EARLIEST_PENDING_UPLOAD_TIMESTAMP = -6

NOT_FOUND = ListOffsetResult(0)


def list_offset(
    replica: Replica, timestamp: int, current_leader_epoch: int, isolation_level: int, replica_id: int
) -> ListOffsetResult:
    """The offset that belongs to `timestamp` (ms, or one of the constants above).

    Raises `ProtocolError`: FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, NOT_LEADER_OR_FOLLOWER, OFFSET_NOT_AVAILABLE,
    KAFKA_STORAGE_ERROR, INVALID_REQUEST for another negative timestamp.
    """
    replica.check_online()
    partition = replica.partition
    partition.check_leader_epoch(current_leader_epoch)
    if replica_id != DEBUGGING_REPLICA_ID:
        partition.require_leader()
    log = replica.log
    for_consumer = replica_id == CONSUMER_REPLICA_ID
    end_offset = log.log_end_offset
    if for_consumer:
        end_offset = replica.last_stable_offset if isolation_level == READ_COMMITTED else replica.high_watermark
    if timestamp in (EARLIEST_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP):
        start_offset = log.log_start_offset
        epoch = log.epoch_cache.epoch_for_offset(start_offset)
        return ListOffsetResult(0, offset=start_offset, leader_epoch=-1 if epoch is None else epoch)
    if timestamp in (LATEST_TIERED_TIMESTAMP, EARLIEST_PENDING_UPLOAD_TIMESTAMP):
        return NOT_FOUND
    if timestamp == LATEST_TIMESTAMP:
        _check_settled(replica, for_consumer)
        return ListOffsetResult(0, offset=end_offset, leader_epoch=partition.leader_epoch)
    if timestamp < MAX_TIMESTAMP:
        raise ProtocolError(ErrorCode.INVALID_REQUEST, f"timestamp {timestamp}")
    found = log.max_timestamp() if timestamp == MAX_TIMESTAMP else log.offset_for_timestamp(timestamp)
    if found is None or found.offset >= end_offset:
        _check_settled(replica, for_consumer)
        return NOT_FOUND
    return ListOffsetResult(0, found.timestamp, found.offset, -1 if found.leader_epoch is None else found.leader_epoch)


def _check_settled(replica: Replica, for_consumer: bool) -> None:
    leader = replica.partition.leader
    if for_consumer and leader is not None and leader.high_watermark < leader.leader_epoch_start_offset:
        sometimes(True, "a new leader did not know the high watermark of its epoch yet when a consumer asked")
        raise ProtocolError(ErrorCode.OFFSET_NOT_AVAILABLE, "the high watermark has not reached the leader's epoch yet")


def offset_for_leader_epoch(replica: Replica, current_leader_epoch: int, leader_epoch: int) -> EpochEndResult:
    """Where the largest epoch not above `leader_epoch` ends in the leader's log; -1 and -1 when it is not known.

    Raises `ProtocolError` as `list_offset` does.
    """
    replica.check_online()
    replica.partition.check_leader_epoch(current_leader_epoch)
    replica.partition.require_leader()
    end = replica.end_offset_for_epoch(leader_epoch)
    return EpochEndResult(0, end.epoch, end.end_offset)
