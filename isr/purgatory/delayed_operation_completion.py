"""What follows when a replica's state moves: waiting requests are answered, wishes go to the controller."""

from __future__ import annotations

import logging
from collections.abc import Callable

from ...log.errors import NoSpaceError
from ...runtime.log_lines import log_event
from ...runtime.loggers import STATE_CHANGE
from ...wire.errors import ErrorCode, ProtocolError
from ...wire.types import TopicPartition
from ..fetching.incremental_fetch_context import Watches
from ..hosted_partitions import HostedPartitions
from ..leader.leader_state import IsrProposal
from ..ports import AlterPartitionItem
from ..replica import Replica
from .purgatory import Purgatory

_logger = logging.getLogger(__name__)
_state_changes = logging.getLogger(STATE_CHANGE)


class DelayedOperationCompletion:
    """Called by whoever has changed a replica, after the change, with nothing half done."""

    def __init__(
        self,
        directory: HostedPartitions,
        purgatory: Purgatory,
        watches: Watches,
        submit: Callable[[AlterPartitionItem], None],
        on_storage_error: Callable[[TopicPartition, OSError], None],
        on_no_space: Callable[[TopicPartition], None],
    ) -> None:
        self._directory = directory
        self._purgatory = purgatory
        self._watches = watches
        self._submit = submit
        self._on_storage_error = on_storage_error
        self._on_no_space = on_no_space

    def on_appended(self, replica: Replica, size_bytes: int) -> None:
        """The leader's log has grown: followers that wait for records get them."""
        self._watches.on_appended(replica, size_bytes)
        self._purgatory.on_appended(replica.topic_partition, size_bytes)

    def on_high_watermark(self, replica: Replica) -> None:
        """The high watermark has moved: producers and consumers that wait for it are answered."""
        self._watches.on_changed(replica)
        leader = replica.partition.leader
        error_code = 0
        if leader is not None and len(leader.isr_state.maximal_isr) < leader.effective_min_isr:
            error_code = int(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
        self._purgatory.on_high_watermark(
            replica.topic_partition, replica.high_watermark, replica.committed_bytes(), error_code
        )

    def on_changed(self, replica: Replica) -> None:
        """Its ISR, its epoch or its log's start is another: its followers are told when they ask next."""
        self._watches.on_changed(replica)

    def on_proposal(self, replica: Replica, proposal: IsrProposal) -> None:
        """The leader wants another ISR."""
        members = [broker_id for broker_id, _ in proposal.new_isr]
        log_event(
            _state_changes,
            "isr-proposed",
            topic=replica.topic_partition.topic,
            partition=replica.topic_partition.partition,
            isr=members,
            isr_before=proposal.state.isr,
        )
        self._submit(AlterPartitionItem(replica.topic_id, replica.topic_partition, proposal))

    def on_role_lost(self, replica: Replica, error_code: int = ErrorCode.NOT_LEADER_OR_FOLLOWER) -> None:
        """The replica leads no more, or is gone."""
        topic_partition = replica.topic_partition
        hint = self._directory.leader_hint(topic_partition, error_code)
        self._purgatory.on_role_lost(topic_partition, error_code, hint)
        self._watches.on_role_lost(replica)

    def on_failed(self, replica: Replica, error: Exception) -> None:
        """The disk refused: the replica is offline from now on, others go on."""
        if replica.offline:
            return
        replica.offline = True
        _logger.error("%s is offline: %s", replica.topic_partition, error)
        self.on_role_lost(replica, ErrorCode.KAFKA_STORAGE_ERROR)
        self.on_unusable(replica.topic_partition, error)

    def on_no_space(self, topic_partition: TopicPartition, error: NoSpaceError) -> None:
        """The disk is full: the replica serves what it has. `error` has a cause where the disk itself said so."""
        if error.__cause__ is not None:
            self._on_no_space(topic_partition)

    def on_unusable(self, topic_partition: TopicPartition, error: Exception) -> None:
        """Tell the broker that a log cannot be used, and why."""
        cause = error if isinstance(error, OSError) else error.__cause__
        self._on_storage_error(topic_partition, cause if isinstance(cause, OSError) else OSError(str(error)))

    def refused(self, topic_partition: TopicPartition, error: ProtocolError | OSError) -> ProtocolError:
        """The protocol's error for what an operation on a replica raised; a storage error takes the replica offline."""
        if isinstance(error, ProtocolError) and error.code != ErrorCode.KAFKA_STORAGE_ERROR:
            return error
        replica = self._directory.replicas.get(topic_partition)
        if isinstance(error, NoSpaceError):
            self.on_no_space(topic_partition, error)
            return error
        if replica is not None:
            self.on_failed(replica, error)
        if isinstance(error, ProtocolError):
            return error
        return ProtocolError(ErrorCode.KAFKA_STORAGE_ERROR, f"{topic_partition}: {error.strerror or error}")
