"""Completes delayed produces and fetches when a replica changes (Kafka: `Partition.DelayedOperations`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from ...runtime.invariants import sometimes
from ...wire.errors import ErrorCode
from ...wire.produce import ProducePartitionResponse
from ...wire.types import TopicPartition
from ..fetching.dirty_partitions import DirtyPartitionTracker
from ..hosted_partitions import HostedPartitions
from ..leader.read_confirmations import ReadConfirmations
from ..replica import Replica
from ..results import AppendDone
from .purgatory import DelayedProduce, Purgatory, Timers, UncommittedAppend

Appended: TypeAlias = tuple[Replica, int, UncommittedAppend]
"""A replica, by how many bytes its log has grown, and when that is committed."""


class DelayedOperations:
    """Passes changes of replicas on to the purgatory and to followers' fetch sessions.

    A replica calls `on_high_watermark` whenever its high watermark advances. What then becomes complete is answered at
    once, except between `defer` and `complete`: a request over many partitions completes nothing half-way through.
    """

    def __init__(
        self, hosted: HostedPartitions, timers: Timers, tracker: DirtyPartitionTracker, now_ms: Callable[[], int]
    ) -> None:
        self._hosted = hosted
        self.purgatory = Purgatory(timers)
        self.reads = ReadConfirmations(timers, now_ms, hosted.elr_of, self.purgatory.finish_fetches_of)
        self._tracker = tracker
        self._is_deferring = False
        self._advanced: list[Replica] = []
        self.now_ms = now_ms
        """The loop's monotonic clock."""
        self.last_append_ms: int | None = None
        """When a log of this broker has grown last."""

    def defer(self) -> None:
        """Remember the replicas whose high watermark advances, until `complete` is called."""
        self._is_deferring = True

    def complete(self) -> None:
        """End `defer`: complete what has waited for the high watermarks that advanced since."""
        self._is_deferring = False
        while self._advanced:
            advanced, self._advanced = self._advanced, []
            for replica in advanced:
                self._on_high_watermark(replica)

    def on_high_watermark(self, replica: Replica) -> None:
        """The high watermark has advanced; called by the replica itself."""
        if self._is_deferring:
            self._advanced.append(replica)
        else:
            self._on_high_watermark(replica)

    def _on_high_watermark(self, replica: Replica) -> None:
        self._tracker.on_changed(replica)
        leader = replica.partition.leader
        error_code = 0
        if leader is not None and len(leader.isr_state.maximal_isr) < leader.effective_min_isr:
            sometimes(True, "records were committed by fewer replicas than min.insync.replicas")
            error_code = int(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
        self.purgatory.on_high_watermark(
            replica.topic_partition, replica.high_watermark, *replica.committed_bytes(), error_code
        )

    def on_appended(self, replica: Replica, size_bytes: int) -> None:
        """The leader's log has grown: the fetches of followers that wait for records are answered."""
        self.note_append()
        self._tracker.on_appended(replica, size_bytes)
        self.purgatory.on_appended(replica.topic_partition, size_bytes)

    def note_append(self) -> None:
        """A log of this broker has grown."""
        self.last_append_ms = self.now_ms()

    def answer_when_committed(
        self,
        timeout_ms: int,
        responses: list[ProducePartitionResponse],
        appended: Sequence[Appended],
        done: AppendDone,
    ) -> None:
        """Call `done` with the responses when all that was appended is committed, or `timeout_ms` are over."""
        uncommitted = [append for replica, _, append in appended if replica.high_watermark < append.required_offset]
        if uncommitted:
            self.purgatory.park_produce(DelayedProduce(responses, done), uncommitted, timeout_ms)
        else:
            done(responses)

    def when_committed(
        self, topic_partition: TopicPartition, offset: int, timeout_ms: int, done: Callable[[bool], None]
    ) -> None:
        """See `ReplicaManager.when_committed`."""
        replica = self._hosted.replicas.get(topic_partition)
        if replica is None or not replica.is_leader or replica.high_watermark >= offset:
            done(replica is not None and replica.is_leader)
            return
        response = ProducePartitionResponse(topic_partition.partition)

        def settled(_: list[ProducePartitionResponse]) -> None:
            current = self._hosted.replicas.get(topic_partition)
            done(current is replica and replica.is_leader and replica.high_watermark >= offset)

        waiting = UncommittedAppend(topic_partition, offset, response)
        self.purgatory.park_produce(DelayedProduce([response], settled), [waiting], timeout_ms)

    def on_changed(self, replica: Replica) -> None:
        """The ISR, the leader epoch or the start of the log changed: followers learn it with their next fetch."""
        self._tracker.on_changed(replica)
        self.reads.on_changed(replica)

    def on_role_lost(self, replica: Replica, error_code: int = ErrorCode.NOT_LEADER_OR_FOLLOWER) -> None:
        """The replica does not lead any more, or is gone: answer all that wait for it, produces with `error_code`."""
        topic_partition = replica.topic_partition
        hint = self._hosted.leader_hint(topic_partition, error_code)
        self.purgatory.on_role_lost(topic_partition, error_code, hint)
        self._tracker.on_role_lost(replica)
        self.reads.on_role_lost(replica)
