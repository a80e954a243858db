"""Where the leaders of this broker propose to shrink and to expand their ISRs.

`LeaderState` decides which replicas to remove (those that have not been caught up for `replica.lag.time.max.ms`) and
which one to add. The proposals made here go to the controller through `AlterPartitionManager`; its answers come back
to the partition here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from ...runtime.incremental_work import IncrementalTask, for_each
from ...runtime.log_lines import log_event
from ...runtime.loggers import STATE_CHANGE
from ..hosted_partitions import HostedPartitions
from ..ports import AlterPartitionItem
from ..purgatory.delayed_operations import DelayedOperations
from ..replica import Replica
from .alter_partition_manager import OnResult
from .leader_state import AlterPartitionResult, IsrProposal

_state_changes = logging.getLogger(STATE_CHANGE)

SHRINKS_PER_SLICE = 500
"""Partitions that are looked at in one iteration of the loop: about a millisecond of processor time."""


class IsrProposals:
    """`send` hands an item to the AlterPartition requests to the controller (`AlterPartitionManager.submit`)."""

    def __init__(
        self,
        hosted: HostedPartitions,
        operations: DelayedOperations,
        send: Callable[[AlterPartitionItem, OnResult], None],
        now_ms: Callable[[], int],
    ) -> None:
        self._hosted = hosted
        self._operations = operations
        self._send = send
        self._now_ms = now_ms
        self._shrinks: IncrementalTask[None] | None = None

    def shrink_all(self) -> None:
        """Propose the removal of replicas that have fallen behind, in slices (Kafka: the task `isr-expiration`)."""
        if self._shrinks is None or not self._shrinks.is_running:
            work = for_each(list(self._hosted.replicas.values()), self._shrink)
            self._shrinks = IncrementalTask(work, steps_per_slice=SHRINKS_PER_SLICE)

    def stop(self) -> None:
        """Propose nothing more in slices."""
        if self._shrinks is not None:
            self._shrinks.cancel()

    def _shrink(self, replica: Replica) -> None:
        leader = replica.partition.leader
        is_hosted = self._hosted.replicas.get(replica.topic_partition) is replica
        if leader is not None and is_hosted and not replica.offline:
            # It may have waited for a replica that was about to join, and died.
            leader.maybe_advance_high_watermark(replica.log_end_offset, self._now_ms())
            proposal = leader.propose_shrink(replica.log_end_offset, self._now_ms())
            if proposal is not None:
                self.submit(replica, proposal)

    def expand(self, replica: Replica, broker_id: int) -> None:
        """Propose to add the follower on that broker to the ISR, if it has caught up and is not in it."""
        leader = replica.partition.leader
        follower = None if leader is None else leader.followers.get(broker_id)
        if leader is not None and follower is not None:
            proposal = leader.propose_expand(follower)
            if proposal is not None:
                self.submit(replica, proposal)

    def submit(self, replica: Replica, proposal: IsrProposal) -> None:
        """Send a proposal of the replica, which leads its partition, to the controller."""
        members = [broker_id for broker_id, _ in proposal.new_isr]
        log_event(
            _state_changes,
            "isr-proposed",
            topic=replica.topic_partition.topic,
            partition=replica.topic_partition.partition,
            isr=members,
            isr_before=proposal.state.isr,
        )
        self._send(AlterPartitionItem(replica.topic_id, replica.topic_partition, proposal), self._on_result)

    def _on_result(self, item: AlterPartitionItem, result: AlterPartitionResult) -> bool:
        replica = self._hosted.replicas.get(item.topic_partition)
        if replica is None or replica.topic_id != item.topic_id:
            return False
        leader = replica.partition.leader
        if leader is None:
            return False
        again = leader.on_alter_partition_result(item.proposal, result, replica.log_end_offset, self._now_ms())
        self._operations.on_changed(replica)
        return again
