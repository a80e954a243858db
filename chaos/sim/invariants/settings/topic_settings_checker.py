"""What nodes do with the logs of topics that have settings of their own, compared with the settings in their metadata.

A leader's appends: "a batch has the time of its append, or its records' own" (message.timestamp.type, by the clock of
the leader's host) and "a batch is stored with the codec in force" (compression.type). What was committed is remembered
record by record. `log_losses` judges what logs give up later, by compaction or by retention, and `time_lookups` what
their time indexes find. Only topics in `topics` are judged, as every record of theirs is read.

A leader looks into large batches in a thread; those may go by settings that were in force shortly before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import is_

from .....controller.metadata.metadata_image import TOPIC_RESOURCE, MetadataImage
from .....isr.replica import Replica
from .....isr.replica_manager import ReplicaManager
from .....log.partition_log import PartitionLog
from .....log.segment.segment import Segment
from .....wire.records import BatchHeader, TimestampType, iter_records
from .....wire.types import TopicPartition
from ..invariant_broken import InvariantBroken
from ..transactions.leader_log import batches_of
from .known_records import KnownRecords
from .log_losses import LogView, Loss, check_start, resume_view, view_appended, view_replaced
from .settings_seen import SettingsSeen, TopicSettings

_THREAD_S = 0.15
"""So long the settings count by which a leader looks into a batch, or the cleaner into a log."""


@dataclass(slots=True)
class _Node:
    """One run of a node's process."""

    manager: ReplicaManager
    wall_ms: Callable[[], int]
    image_offset: int = -1
    settings: dict[str, SettingsSeen] = field(default_factory=dict)
    views: dict[TopicPartition, tuple[Replica, LogView]] = field(default_factory=dict)


class TopicSettingsChecker:
    """Watches the replicas of some topics. `topics` has the number of partitions of each; there are none in most runs.

    `known` is what was committed to each partition.
    """

    def __init__(self, now_s: Callable[[], float]) -> None:
        self.topics: dict[str, int] = {}
        self.known: dict[TopicPartition, KnownRecords] = {}
        self._now_s = now_s
        self._nodes: dict[int, _Node] = {}

    def after_event(
        self, node_id: int, manager: ReplicaManager, image: MetadataImage, wall_ms: Callable[[], int]
    ) -> None:
        """Check a broker whose event has just run. Raises `InvariantBroken`."""
        node = self._nodes.get(node_id)
        if node is None or node.manager is not manager:
            node = self._nodes[node_id] = _Node(manager, wall_ms)
        if image.offset != node.image_offset:
            node.image_offset = image.offset
            for topic in self.topics:
                settings = TopicSettings.of(image.configs.get((TOPIC_RESOURCE, topic), {}))
                node.settings.setdefault(topic, SettingsSeen()).take(self._now_s(), settings)
        for topic, partitions in self.topics.items():
            for index in range(partitions):
                key = TopicPartition(topic, index)
                replica = manager.partitions.get(key)
                if replica is not None and not (replica.offline or replica.log.is_closed or replica.log.is_failed):
                    self._check_replica(node_id, node, key, replica)

    def logs(self, key: TopicPartition) -> list[tuple[int, PartitionLog]]:
        """The logs of a partition, by the nodes that have one."""
        found = [(node_id, node.manager.partitions.get(key)) for node_id, node in sorted(self._nodes.items())]
        return [(node_id, one.log) for node_id, one in found if one is not None and not one.offline]

    def superseded(self, key: TopicPartition) -> str | None:
        """A replica that still has a record with a later committed one of its key; None if there is none."""
        known = self.known.get(key, KnownRecords())
        for node_id, node in sorted(self._nodes.items()):
            _, view = node.views.get(key, (None, None))
            if view is None or view.log.is_closed:
                continue
            for offset in range(view.log.log_start_offset, known.end_offset):
                if offset in known.records and offset not in view.missing and known.superseded_by(offset):
                    return f"{key.topic}-{key.partition} on {node_id} still has {known.records[offset]}"
        return None

    def _check_replica(self, node_id: int, node: _Node, key: TopicPartition, replica: Replica) -> None:
        log, known = replica.log, self.known.setdefault(key, KnownRecords())
        former, view = node.views.get(key, (None, None))
        where = f"{key.topic}-{key.partition} on {node_id}"
        if view is None or former is not replica or view.log is not log or view.history != log.history:
            view = resume_view(log, known, where)
            node.views[key] = replica, view
        now_s, seen = self._now_s(), node.settings[key.topic]
        if log.log_end_offset > view.end_offset:
            leads, epoch = replica.is_leader, replica.partition.leader_epoch
            batches = list(batches_of(log, view.end_offset, log.log_end_offset))
            for header, batch in batches:
                if leads and header.partition_leader_epoch == epoch:
                    settings = seen.since(now_s - _THREAD_S)
                    _check_append(where, header, batch, node.wall_ms(), settings)
                    is_kept = all(one.codec is None for one in settings)
                    known.appends[epoch, header.base_offset] = now_s, is_kept
            view_appended(view, known, batches, where)
        if replica.is_leader and replica.high_watermark > known.end_offset:
            for header, batch in batches_of(log, known.end_offset, replica.high_watermark):
                if header.base_offset >= known.end_offset:
                    known.add(header, batch)
        has_moved, is_replaced = log.log_start_offset > view.start_offset, not _is_same(log.segments, view.segments)
        if has_moved or is_replaced:
            loss = Loss(where, known, node.wall_ms(), seen.since(now_s - _THREAD_S), seen.least_lag_ms)
            if has_moved:
                check_start(view, loss)
            if is_replaced:
                view_replaced(view, loss)


def _is_same(segments: Sequence[Segment], known: Sequence[Segment]) -> bool:
    return len(segments) == len(known) and all(map(is_, segments, known))


def _check_append(
    where: str, header: BatchHeader, batch: bytes, wall_ms: int, settings: Sequence[TopicSettings]
) -> None:
    is_stamped = header.timestamp_type is TimestampType.LOG_APPEND_TIME
    told = f"{where} at {header.base_offset}"
    if not any(one.is_stamped == is_stamped for one in settings):
        what = "LogAppendTime" if is_stamped else "CreateTime"
        raise InvariantBroken("a batch has the time of its append, or its records' own", f"{told} has {what}")
    expected = wall_ms if is_stamped else max(record.timestamp for record in iter_records(batch))
    if header.max_timestamp != expected:
        detail = f"{told}: {header.max_timestamp}, not {expected}"
        raise InvariantBroken("a batch has the time of its append, or its records' own", detail)
    if not any(one.codec in (None, header.compression) for one in settings):
        detail = f"{told}: codec {header.compression}, not {[one.codec for one in settings]}"
        raise InvariantBroken("a batch is stored with the codec in force", detail)
