"""Moves replicas from one log directory of this broker to another while they serve (AlterReplicaLogDirs, KIP-113).

A copy of the log grows in the other directory, some batches at a time, so that other work runs in between. When little
is missing, the copy is made durable. Then the rest is copied and the copy takes the log's place, within one iteration
of the event loop, so that no append can come in between. If the log is truncated meanwhile, the copy is truncated, too,
as a follower's log would be. Kafka does this in ReplicaAlterLogDirsThread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from uuid import UUID

from ...log.errors import ColdReadError
from ...log.log_divergence import truncation_offset
from ...log.manager.log_manager import LogManager
from ...log.partition_log import PartitionLog
from ...runtime.invariants import sometimes
from ...runtime.loop import TaskSet
from ...wire.errors import ErrorCode, ProtocolError
from ...wire.types import EpochEndOffset, TopicPartition
from ..hosted_partitions import HostedPartitions
from ..replica import Replica
from ..throttling.replication_quota import ReplicationQuota

_logger = logging.getLogger(__name__)
_COPY_BYTES = 256 * 1024
_LAST_COPIES_MAX = 4
_PAUSE_S = 0.001
_THROTTLED_WAIT_S_MAX = 0.5
"""How long a throttled move waits at most: the quota may be raised meanwhile."""


class LogDirMoves:
    """`on_moved` gets a replica and the directory of its log after a move; `on_failed` one whose log cannot be read."""

    def __init__(
        self,
        directory: HostedPartitions,
        logs: LogManager,
        quota: ReplicationQuota,
        on_moved: Callable[[Replica, UUID], None],
        on_failed: Callable[[Replica, Exception], None],
    ) -> None:
        self._directory = directory
        self._logs = logs
        self._quota = quota
        self._on_moved = on_moved
        self._on_failed = on_failed
        self._tasks = TaskSet()
        self._moving: dict[TopicPartition, None] = {}

    def begin(self, topic_partition: TopicPartition, path: str) -> None:
        """Move the replica to the log directory at `path`; a move to another one is cancelled.

        Raises `ProtocolError`: LOG_DIR_NOT_FOUND, KAFKA_STORAGE_ERROR, INVALID_TOPIC_EXCEPTION; and
        REPLICA_NOT_AVAILABLE when this broker has no such replica: if it gets one, it is created in that directory.
        """
        if topic_partition in self._directory.unusable:
            raise ProtocolError(ErrorCode.KAFKA_STORAGE_ERROR, f"{topic_partition} is offline")
        replica = self._directory.replicas.get(topic_partition)
        if replica is not None:
            replica.check_online()
        is_begun = self._logs.future_logs.begin(topic_partition, path)
        if replica is None:
            raise ProtocolError(ErrorCode.REPLICA_NOT_AVAILABLE, f"no replica of {topic_partition} is here")
        if is_begun:
            self._start(topic_partition)

    def resume(self) -> None:
        """Continue the moves that were under way when the broker stopped, of replicas that could be made."""
        for topic_partition in self._logs.future_logs.partitions:
            self._start(topic_partition)

    async def stop(self) -> None:
        """Stop copying; the copies stay."""
        await self._tasks.cancel_all()

    def _start(self, topic_partition: TopicPartition) -> None:
        if topic_partition not in self._moving:
            self._moving[topic_partition] = None
            self._tasks.spawn(self._run(topic_partition), name=f"move of {topic_partition}")

    async def _run(self, topic_partition: TopicPartition) -> None:
        try:
            while (pair := self._pair(topic_partition)) is not None:
                if await self._step(*pair):
                    return
        except (ProtocolError, OSError) as error:
            sometimes(True, "a move of a log to another directory failed")
            _logger.error("%s stays where it is: %s", topic_partition, error)
            self._logs.future_logs.discard(topic_partition)
        finally:
            self._moving.pop(topic_partition, None)

    def _pair(self, topic_partition: TopicPartition) -> tuple[Replica, PartitionLog] | None:
        """The replica and the copy of its log; None when one is gone or failed, or the copy is of another topic."""
        replica, copy = self._directory.replicas.get(topic_partition), self._logs.future_logs.get(topic_partition)
        if replica is None or replica.offline or copy is None or copy.is_failed or replica.log.is_failed:
            return None
        return (replica, copy) if copy.topic_id == replica.topic_id else None

    async def _step(self, replica: Replica, copy: PartitionLog) -> bool:
        """Copy some batches, or finish; true when the move is finished."""
        wait_ms = self._quota.wait_ms(self._now_ms())
        if wait_ms:
            await asyncio.sleep(min(wait_ms / 1000, _THROTTLED_WAIT_S_MAX))
            return False
        truncate_copy(replica.log, copy)
        try:
            copied_bytes = copy_batches(replica.log, copy)
        except ColdReadError as cold:
            await asyncio.wait([cold.warming])
            if self._pair(replica.topic_partition) != (replica, copy):
                return False
            truncate_copy(replica.log, copy)
            copied_bytes = copy_batches(replica.log, copy, allow_blocking_io=True)
        self._quota.record(copied_bytes, self._now_ms())
        if copy.log_end_offset < replica.log.log_end_offset:
            await asyncio.sleep(_PAUSE_S)
            return False
        await copy.flush_soon()
        if self._pair(replica.topic_partition) != (replica, copy):
            return False
        truncate_copy(replica.log, copy)
        for _ in range(_LAST_COPIES_MAX):
            copy_batches(replica.log, copy, allow_blocking_io=True)
        if copy.log_end_offset < replica.log.log_end_offset:
            return False
        self._finish(replica)
        return True

    def _now_ms(self) -> int:
        return int(asyncio.get_running_loop().time() * 1000)

    def _finish(self, replica: Replica) -> None:
        logs, topic_partition = self._logs, replica.topic_partition
        target = logs.future_logs.target_id(topic_partition)
        try:
            moved = logs.future_logs.finish(topic_partition)
            moved.producers.take_over(replica.log.producers)
            replica.log = moved
        except (ProtocolError, OSError) as error:
            if logs.get(topic_partition) is replica.log:
                raise  # The log is still in use.
            self._on_failed(replica, error)
        else:
            _logger.info("%s has moved to %s", topic_partition, replica.log.directory)
        self._on_moved(replica, target)


def truncate_copy(log: PartitionLog, copy: PartitionLog) -> None:
    """Truncate the copy where it differs from the log."""
    while (latest := copy.epoch_cache.latest_epoch()) is not None:
        known = log.epoch_cache.end_offset_for(latest)
        if known.epoch == latest and known.end_offset >= copy.log_end_offset:
            break
        local = copy.epoch_cache.end_offset_for(max(known.epoch, 0))
        if known.epoch >= latest:
            local = EpochEndOffset(latest, copy.log_end_offset)
        offset = truncation_offset(known, local, copy.log_start_offset, copy.log_end_offset)
        if offset >= copy.log_end_offset:
            break
        sometimes(True, "a log was cut while it moved to another directory, and its copy too")
        copy.truncate_to(offset)
    if not log.log_start_offset <= copy.log_end_offset <= log.log_end_offset:
        copy.truncate_fully_and_start_at(log.log_start_offset)


def copy_batches(log: PartitionLog, copy: PartitionLog, *, allow_blocking_io: bool = False) -> int:
    """Copy some batches; returns how many bytes. Raises `ColdReadError` as `PartitionLog.read` does."""
    end_offset = log.log_end_offset
    if copy.log_end_offset >= end_offset:
        return 0
    start_offset = max(copy.log_end_offset, log.log_start_offset)
    data = log.read(start_offset, _COPY_BYTES, end_offset=end_offset, allow_blocking_io=allow_blocking_io)
    copy.append_as_follower(memoryview(data), may_skip=True)
    return len(data)
