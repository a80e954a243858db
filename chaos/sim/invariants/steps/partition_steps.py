"""Checks that each committed change of a partition is a step of the specification of Kafka replication.

The invariant's name is "each change of a partition is a step of its specification". The committed records are replayed
one by one, so no change is passed over. The specification is in `chaos/specification/partitions`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from uuid import UUID

from .....controller.metadata.metadata_image import MetadataDelta, MetadataImage, PartitionRegistration, TopicImage
from .....controller.metadata.metadata_records import (
    RECOVERING,
    BrokerChangeRecord,
    PartitionChangeRecord,
    PartitionRecord,
    Record,
    RegisterBrokerRecord,
    decode_record,
)
from .....raft.types import CommittedBatch
from ....specification.partitions.controller_actions import ControllerActions, creation_violated
from ....specification.partitions.partition_state import PartitionState
from ....specification.step_search import Deviation
from ..derived.settings_in_force import minimum
from ..invariant_broken import InvariantBroken

_Change = tuple[UUID, int, PartitionRegistration | None, PartitionRegistration]
"""The partition, and its registration before and after a record; None before it is created."""


class PartitionStepChecker:
    """Replays the records of the metadata log."""

    def __init__(self, on_change: Callable[[UUID, int, int, PartitionState], None], min_isr: int) -> None:
        """`on_change` is told of each partition's state after a change, with its partition epoch.

        `min_isr` is min.insync.replicas in the files of the nodes.
        """
        self._on_change = on_change
        self._min_isr = min_isr
        self._registered: dict[int, None] = {}
        """The brokers that have begun anew in the present batch."""
        self._fenced: dict[int, None] = {}
        """The brokers that are fenced in the present batch."""
        self._unexcused: dict[int, str] = {}
        """By broker: a change by which it left an ISR and did not become eligible, as only an unclean stop explains."""
        self._epoch = -1
        self._image = MetadataImage("simulated")

    def on_committed(self, batches: Sequence[CommittedBatch]) -> None:
        """These batches are committed, after all others. Raises `InvariantBroken`."""
        for batch in batches:
            changes: list[_Change] = []
            self._registered.clear()
            self._fenced.clear()
            if batch.epoch != self._epoch:
                self._epoch = batch.epoch
                self._unexcused.clear()  # the former controller may have died before it registered the broker
            for offset, data in enumerate(batch.records, batch.base_offset):
                changes += self._replay(decode_record(data), offset)
            for change in changes:
                self._judge(*change)
            self._settle()

    def _replay(self, record: Record, offset: int) -> list[_Change]:
        """Replay a record; the change, if it is one of a partition."""
        if isinstance(record, RegisterBrokerRecord):
            self._registered[record.broker_id] = None
        elif isinstance(record, BrokerChangeRecord) and record.fenced:
            self._fenced[record.broker_id] = None
        if not isinstance(record, PartitionRecord | PartitionChangeRecord):
            self._image.replay(record, offset, MetadataDelta())
            return []
        topic_id, index = record.topic_id, record.partition
        before = self._registration(topic_id, index)
        self._image.replay(record, offset, MetadataDelta())
        after = self._registration(topic_id, index)
        return [] if after is None else [(topic_id, index, before, after)]

    def _registration(self, topic_id: UUID, index: int) -> PartitionRegistration | None:
        topic = self._image.topics_by_id.get(topic_id)
        return None if topic is None else topic.partitions.get(index)

    def _judge(
        self, topic_id: UUID, index: int, before: PartitionRegistration | None, after: PartitionRegistration
    ) -> None:
        """Who is active is what the metadata says after the whole batch, as its records take effect together.

        A broker that begins anew after an unclean stop leaves its ISRs first, in several batches if they are many; that
        is why it is not eligible, and the last batch registers it. If that fences it instead, there was no reason.
        """
        image, state = self._image, _state(after)
        topic = image.topics_by_id.get(topic_id)
        where = f"{topic_id if topic is None else topic.name}-{index} at {image.offset}"
        if before is None:
            wrong = ", ".join(creation_violated(state))
        else:
            active = [each for each in after.replicas if image.is_active(each) and image.is_replica_online(each, after)]
            online = [each for each in after.replicas if image.is_replica_online(each, after)]
            lossy = [each for each in before.replicas if each not in online or each in self._registered]
            minimum_of_topic = self._minimum(topic)
            path = ControllerActions(_state(before), active, minimum_of_topic, lossy).explain(state)
            if isinstance(path, Deviation):
                leaving = [each for each in before.isr if each not in after.isr and each not in after.elr]
                excused = ControllerActions(_state(before), active, minimum_of_topic, [*lossy, *leaving])
                if not isinstance(excused.explain(state), Deviation):
                    self._unexcused |= {each: f"{where}: from {_state(before)} to {state}: {path}" for each in leaving}
                    path = []
            wrong = f"from {_state(before)} to {state}: {path}" if isinstance(path, Deviation) else ""
        if wrong:
            raise InvariantBroken("each change of a partition is a step of its specification", f"{where}: {wrong}")
        self._on_change(topic_id, index, after.partition_epoch, state)

    def _settle(self) -> None:
        for broker_id in self._registered:
            self._unexcused.pop(broker_id, None)
        for broker_id in self._fenced:
            if broker_id in self._unexcused:
                detail = self._unexcused[broker_id]
                raise InvariantBroken("each change of a partition is a step of its specification", detail)

    def _minimum(self, topic: TopicImage | None) -> int | None:
        if topic is None or not self._image.elr_enabled:
            return None
        return minimum(self._image, topic.name, self._min_isr)


def _state(one: PartitionRegistration) -> PartitionState:
    return PartitionState(
        frozenset(one.replicas),
        frozenset(one.isr),
        frozenset(one.elr),
        one.leader,
        one.leader_epoch,
        one.leader_recovery_state == RECOVERING,
    )
