"""The log of state changes: what became of brokers and partitions by the metadata, one event a line.

`grep 'partition-change topic=flights partition=0 '` over the nodes' logs shows the course of a failover. The active
controller logs every partition; a broker logs those of which it has a replica, with its role. Where many are new at
once, there is one line for all of them. Lines are written after the change was carried out, some in each loop
iteration, so that thousands of partitions do not keep clients waiting.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import Any
from uuid import UUID

from ...controller.metadata.metadata_image import (
    BrokerRegistration,
    MetadataDelta,
    MetadataImage,
    PartitionRegistration,
    TopicImage,
)
from ...controller.metadata.metadata_records import RECOVERING
from ...raft.types import LeaderAndEpoch
from ...runtime.incremental_work import PLAIN_STEP, IncrementalTask, Work
from ...runtime.log_lines import log_event
from ...runtime.loggers import STATE_CHANGE

NEW_ONES_LISTED_MAX = 20
"""Of more partitions that are new, or topics that are deleted, in one commit only the numbers are logged."""
_LINES_PER_STEP = 50
_logger = logging.getLogger(STATE_CHANGE)


class StateChangeLog:
    """Logs changes. It must be the last subscriber of the node's `MetadataLoader`."""

    def __init__(self, node_id: int) -> None:
        self._node_id = node_id
        self._is_active_controller = False
        self._partitions: dict[tuple[UUID, int], PartitionRegistration] = {}
        self._brokers: dict[int, BrokerRegistration] = {}
        self._pending: deque[tuple[str, dict[str, Any]]] = deque()
        self._task: IncrementalTask[None] | None = None

    def on_leader(self, leader: LeaderAndEpoch) -> None:
        """The quorum has a leader, or has lost it."""
        self._is_active_controller = leader.leader_id == self._node_id
        self._add("quorum-leader", leader=leader.leader_id, epoch=leader.epoch)

    def on_metadata(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """The node has applied a commit."""
        for broker_id in delta.changed_brokers:
            self._broker(broker_id, image.brokers.get(broker_id))
        self._on_deleted_topics(list(delta.deleted_topics.values()))
        created = []
        for key in delta.changed_partitions:
            now = image.partition(*key)
            if now is None:
                continue
            before = self._partitions.get(key)
            self._partitions[key] = now
            if before is None:
                created.append((key, now))
            else:
                self._partition(image.topics_by_id[key[0]].name, key[1], before, now)
        if len(created) > NEW_ONES_LISTED_MAX:
            self._on_many_created(created)
        else:
            for key, now in created:
                self._partition(image.topics_by_id[key[0]].name, key[1], None, now)

    def _on_deleted_topics(self, topics: list[TopicImage]) -> None:
        for topic in topics:
            for index in topic.partitions:
                self._partitions.pop((topic.topic_id, index), None)
        if len(topics) > NEW_ONES_LISTED_MAX:
            self._add("topics-deleted", topics=len(topics), partitions=sum(len(topic.partitions) for topic in topics))
            return
        for topic in topics:
            self._add("topic-deleted", topic=topic.name, partitions=len(topic.partitions))

    def _on_many_created(self, created: list[tuple[tuple[UUID, int], PartitionRegistration]]) -> None:
        node_id = self._node_id
        self._add(
            "partitions-created",
            topics=len(dict.fromkeys(topic_id for (topic_id, _), _ in created)),
            partitions=len(created),
            led_here=sum(now.leader == node_id for _, now in created),
            replicas_here=sum(node_id in now.replicas for _, now in created),
        )

    def _broker(self, broker_id: int, now: BrokerRegistration | None) -> None:
        before = self._brokers.pop(broker_id, None)
        if now is None:
            self._add("broker-unregistered", broker=broker_id)
            return
        self._brokers[broker_id] = now
        if before is None or before.epoch != now.epoch:
            self._add("broker-registered", broker=broker_id, epoch=now.epoch, fenced=now.fenced)
        elif before.fenced != now.fenced:
            self._add("broker-fenced" if now.fenced else "broker-unfenced", broker=broker_id, epoch=now.epoch)
        elif now.in_controlled_shutdown and not before.in_controlled_shutdown:
            self._add("broker-shutting-down", broker=broker_id, epoch=now.epoch)

    def _partition(
        self, topic: str, index: int, before: PartitionRegistration | None, now: PartitionRegistration
    ) -> None:
        is_here = self._node_id in now.replicas or (before is not None and self._node_id in before.replicas)
        if not is_here and not self._is_active_controller:
            return
        role = "leader" if now.leader == self._node_id else "follower" if self._node_id in now.replicas else "none"
        changed: dict[str, Any] = {}
        if before is not None:
            changed = {
                f"{name}_before": getattr(before, name)
                for name in ("leader", "isr", "replicas")
                if getattr(before, name) != getattr(now, name)
            }
        if before is not None and now.leader_recovery_state == RECOVERING != before.leader_recovery_state:
            self._add("unclean-election", topic=topic, partition=index, leader=now.leader, isr_before=before.isr)
        self._add(
            "partition-change",
            topic=topic,
            partition=index,
            role=role,
            leader=now.leader,
            leader_epoch=now.leader_epoch,
            partition_epoch=now.partition_epoch,
            isr=now.isr,
            elr=now.elr,
            replicas=now.replicas,
            **changed,
        )

    def _add(self, event: str, **fields: Any) -> None:
        if not _logger.isEnabledFor(logging.INFO):
            return
        self._pending.append((event, fields))
        if self._task is None or not self._task.is_running:
            self._task = IncrementalTask(self._lines())

    def _lines(self) -> Work[None]:
        """Write what is pending; nothing in the first step, since the change is not carried out yet."""
        while self._pending:
            yield PLAIN_STEP
            for _ in range(min(_LINES_PER_STEP, len(self._pending))):
                event, fields = self._pending.popleft()
                log_event(_logger, event, **fields)
