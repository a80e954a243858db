"""The log of state changes: what became of brokers and partitions by the metadata, one event a line.

`grep 'partition-change topic=flights partition=0 '` over the nodes' logs shows the course of a failover. The active
controller logs every partition; a broker logs those of which it has a replica, with its role. Lines are written after
the change was carried out, some in each loop iteration, so that thousands of partitions do not keep clients waiting.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import Any
from uuid import UUID

from ...controller.metadata.metadata_image import (
    BrokerRegistration,
    MetadataDelta,
    MetadataImage,
    PartitionRegistration,
)
from ...controller.metadata.metadata_records import RECOVERING
from ...raft.types import LeaderAndEpoch
from ...runtime.log_lines import log_event
from ...runtime.loggers import STATE_CHANGE

_LINES_AN_ITERATION = 200
_logger = logging.getLogger(STATE_CHANGE)


class StateChangeLog:
    """Logs changes. It must be the last subscriber of the node's `MetadataLoader`."""

    def __init__(self, node_id: int) -> None:
        self._node_id = node_id
        self._is_active_controller = False
        self._partitions: dict[tuple[UUID, int], PartitionRegistration] = {}
        self._brokers: dict[int, BrokerRegistration] = {}
        self._pending: deque[tuple[str, dict[str, Any]]] = deque()

    def on_leader(self, leader: LeaderAndEpoch) -> None:
        """The quorum has a leader, or has lost it."""
        self._is_active_controller = leader.leader_id == self._node_id
        self._add("quorum-leader", leader=leader.leader_id, epoch=leader.epoch)

    def on_metadata(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """The node has applied a commit."""
        for broker_id in delta.changed_brokers:
            self._broker(broker_id, image.brokers.get(broker_id))
        for topic in delta.deleted_topics.values():
            for index in topic.partitions:
                self._partitions.pop((topic.topic_id, index), None)
            self._add("topic-deleted", topic=topic.name, partitions=len(topic.partitions))
        for key in delta.changed_partitions:
            now = image.partition(*key)
            if now is not None:
                before = self._partitions.get(key)
                self._partitions[key] = now
                self._partition(image.topics_by_id[key[0]].name, key[1], before, now)

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
        if not self._pending:
            asyncio.get_running_loop().call_soon(self._write)
        self._pending.append((event, fields))

    def _write(self) -> None:
        for _ in range(min(_LINES_AN_ITERATION, len(self._pending))):
            event, fields = self._pending.popleft()
            log_event(_logger, event, **fields)
        if self._pending:
            asyncio.get_running_loop().call_soon(self._write)
