"""What happens when a partition's log cannot be read or written.

An `OSError` of a log leaves unknown what is on the disk: its replica goes offline, and the broker is told. Other
replicas go on. A full disk is different: the write was taken back, and the replica serves what it has.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from ..log.errors import NoSpaceError
from ..wire.errors import ErrorCode, ProtocolError
from ..wire.types import TopicPartition
from .hosted_partitions import HostedPartitions
from .purgatory.delayed_operations import DelayedOperations
from .replica import Replica

_logger = logging.getLogger(__name__)


class StorageErrors:
    """Takes replicas offline and reports to the broker, by the `ReplicaPorts` of the same names."""

    def __init__(
        self,
        hosted: HostedPartitions,
        operations: DelayedOperations,
        on_storage_error: Callable[[TopicPartition, OSError], None],
        on_no_space: Callable[[TopicPartition], None],
    ) -> None:
        self._hosted = hosted
        self._operations = operations
        self._on_storage_error = on_storage_error
        self._on_no_space = on_no_space

    def take_offline(self, replica: Replica, error: Exception) -> None:
        """The log of this replica failed: it takes part in nothing until the broker restarts."""
        if replica.offline:
            return
        replica.offline = True
        _logger.error("%s is offline: %s", replica.topic_partition, error)
        self._operations.on_role_lost(replica, ErrorCode.KAFKA_STORAGE_ERROR)
        self.report(replica.topic_partition, error)

    def report(self, topic_partition: TopicPartition, error: Exception) -> None:
        """Tell the broker that a log cannot be used, and why."""
        cause = error if isinstance(error, OSError) else error.__cause__
        self._on_storage_error(topic_partition, cause if isinstance(cause, OSError) else OSError(str(error)))

    def on_no_space(self, topic_partition: TopicPartition, error: NoSpaceError) -> None:
        """The disk is full. `error` has a cause where a write found that; only then the broker does not know yet."""
        if error.__cause__ is not None:
            self._on_no_space(topic_partition)

    def to_protocol_error(self, topic_partition: TopicPartition, error: ProtocolError | OSError) -> ProtocolError:
        """The error to answer a request with when its operation raised `error`; a storage error is acted on, too."""
        if isinstance(error, ProtocolError) and error.code != ErrorCode.KAFKA_STORAGE_ERROR:
            return error
        if isinstance(error, NoSpaceError):
            self.on_no_space(topic_partition, error)
            return error
        replica = self._hosted.replicas.get(topic_partition)
        if replica is not None:
            self.take_offline(replica, error)
        if isinstance(error, ProtocolError):
            return error
        return ProtocolError(ErrorCode.KAFKA_STORAGE_ERROR, f"{topic_partition}: {error.strerror or error}")
