"""Consumer groups and committed offsets, compared with the committed records of `__consumer_offsets`.

`GroupLog` replays these for the simulator. The invariants are "a coordinator of groups holds what its log says", when
nothing is on its way: whenever one has loaded or records were committed, and now and then; "a coordinator of groups
acts on what is committed": its log's end when it began to load is below its high watermark when it is active; "an
offset is removed when it has expired, was deleted or lost its topic"; "an offset of a subscribed topic stays"; "a
target assignment has the partitions of subscribed topics"; those of the records (`group_log`) and of answers
(`group_answers`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from .....broker.groups.classic.classic_group import ClassicGroup
from .....broker.groups.classic.classic_group_members import ClassicGroupState
from .....broker.groups.consumer.consumer_group import ConsumerGroup
from .....broker.groups.group_config import OFFSETS_TOPIC
from .....broker.groups.group_coordinator_shard import GroupCoordinatorShard
from .....cluster.node.node import Node
from .....controller.metadata.metadata_image import MetadataImage, TopicImage
from .....isr.partition import Partition
from .....isr.replica import Replica
from .....isr.replica_manager import ReplicaManager
from .....wire.records import iter_records
from .....wire.types import TopicPartition
from ..invariant_broken import InvariantBroken
from ..partition_invariants import PartitionChecker
from ..transactions.leader_log import batches_of
from .group_answers import GroupAnswers
from .group_log import GroupLog, Removal
from .group_memory import difference
from .silent_members import SilentMembers
from .target_assignments import why_wrong

_LOOKS_AGAIN = 20
"""After so many events of its node its replicas are looked up again, though it knows of no other metadata."""
_EVENTS = 100
"""After so many events of its node a coordinator is compared again, though no record was committed since."""
_Key = tuple[UUID, int]


@dataclass(slots=True)
class _SeenShard:
    """A coordinator's shard, and what its log was when it was seen first."""

    shard: GroupCoordinatorShard
    loads_up_to: int
    is_active: bool = False
    may_have_refused: bool = False
    compared_up_to: int = -1
    events: int = 0
    """How many events its node has had since it was compared."""


@dataclass(slots=True)
class _HostedPartitions:
    """The partitions of the topic that a broker hosts, as they were looked up some events ago."""

    image_offset: int = -1
    events: int = 0
    replicas: list[tuple[Replica, Partition, GroupLog]] = field(default_factory=list)


class GroupChecker:
    """Checks the coordinators of all brokers. `nodes` are those that run; `retention_ms` is how long offsets stay."""

    def __init__(
        self,
        partitions: PartitionChecker,
        nodes: Callable[[], Iterable[Node]],
        retention_ms: int,
        now_s: Callable[[], float],
    ) -> None:
        self._partitions = partitions
        self._nodes = nodes
        self._retention_ms = retention_ms
        self._logs: dict[object, GroupLog] = {}
        self._shards: dict[tuple[int, int], _SeenShard] = {}
        self._hosted: dict[int, _HostedPartitions] = {}
        self._names: dict[UUID, str] = {}
        """The names of all topics that a broker ever knew."""
        self._topic_ids: dict[str, UUID | None] = {}
        """Of topics with offsets, the ids that were known when they were committed first; None if none was."""
        self._silent = SilentMembers(now_s)
        self.answers = GroupAnswers(self._logs, self._may_be_another, self._leader_epoch, self._silent.on_heard)

    def forget(self, node_id: int) -> None:
        """The broker's process has ended."""
        self.answers.forget()
        self._silent.forget(node_id)
        self._hosted.pop(node_id, None)
        for key in [key for key in self._shards if key[0] == node_id]:
            del self._shards[key]

    def after_event(self, node_id: int, node: Node) -> None:
        """Check the node whose event has just run, after its partitions. Raises `InvariantBroken`."""
        if node.loader is None or node.replica_manager is None:
            return
        hosted = self._hosted.get(node_id)
        if hosted is None:
            hosted = self._hosted[node_id] = _HostedPartitions()
        hosted.events += 1
        image = node.loader.image
        if image.offset != hosted.image_offset or hosted.events >= _LOOKS_AGAIN or self.answers.answered:
            self._look_again(node.replica_manager, image, hosted)
        for replica, partition, log in hosted.replicas:
            if partition.watermark.offset > log.end_offset and self._is_sound(node_id, replica):
                self._read_on(replica, log)
            if partition.leader is not None and node.broker is not None and node.broker.groups is not None:
                shard = node.broker.groups.partitions.shards.get(replica.topic_partition.partition)
                if shard is not None and not replica.offline:
                    self._check_shard(node_id, replica, shard, log)
            else:
                self._shards.pop((node_id, replica.topic_partition.partition), None)
        if self.answers.answered:
            if self._knows_all():
                self.answers.check(self._led_by(node_id))
            else:
                self.answers.forget()

    def _look_again(self, manager: ReplicaManager, image: MetadataImage, hosted: _HostedPartitions) -> None:
        """Find the partitions of the topic that the broker hosts now, and begin their logs."""
        if image.offset != hosted.image_offset:
            self._names |= {topic_id: one.name for topic_id, one in image.topics_by_id.items()}
        hosted.image_offset, hosted.events, hosted.replicas = image.offset, 0, []
        topic = image.topics_by_name.get(OFFSETS_TOPIC)
        for index in () if topic is None else topic.partitions:
            replica = manager.partitions.get(TopicPartition(OFFSETS_TOPIC, index))
            if topic is not None and replica is not None and replica.topic_id == topic.topic_id:
                log = self._logs.setdefault((topic.topic_id, index), GroupLog(f"{OFFSETS_TOPIC}-{index}"))
                hosted.replicas.append((replica, replica.partition, log))

    def _is_sound(self, node_id: int, replica: Replica) -> bool:
        return not (replica.offline or self._partitions.has_bit_rot(node_id))

    def check_all(self) -> None:
        """Compare all coordinators, in the end. Raises `InvariantBroken`."""
        for seen in self._shards.values():
            seen.compared_up_to = -1
        for node in self._nodes():
            self.after_event(node.config.node_id, node)

    def _leader_epoch(self, partition: Any) -> int:
        return self._partitions.leader_epoch(partition)

    def _led_by(self, node_id: int) -> dict[object, int]:
        """The partitions that a node has loaded, with their leader epochs."""
        shards = {index: seen.shard for (node, index), seen in self._shards.items() if node == node_id}
        return {
            key: shards[key[1]].leader_epoch
            for key in self._logs
            if isinstance(key, tuple) and key[1] in shards and not shards[key[1]].is_loading
        }

    def _knows_all(self) -> bool:
        """Whether all that is committed was read; not so after a disk has failed, until another replica has it."""
        committed = self._partitions.committed
        return all(
            key not in committed or log.end_offset >= committed[key].promised_end_offset
            for key, log in self._logs.items()
        )

    def _read_on(self, replica: Replica, log: GroupLog) -> None:
        for header, batch in batches_of(replica.log, log.end_offset, replica.high_watermark):
            if header.next_offset > log.end_offset:
                for removal in log.feed(header, iter_records(batch)):
                    self._check_removal(removal)
                for group_id in log.targeted:
                    self._check_target(log, group_id)
        for topic in log.topics:
            if topic not in self._topic_ids:
                ids = [one.topic_id for one in self._known(topic) if one is not None]
                self._topic_ids[topic] = ids[0] if ids else None

    def _check_target(self, log: GroupLog, group_id: str) -> None:
        """Check a target assignment. Those of a group that was a classic one may be what its leader has assigned."""
        group = log.consumer[group_id]
        if group.group is None or group.group.epoch != group.target_epoch or group_id in log.generations:
            return
        why = why_wrong(group, self._names)
        if why is not None:
            detail = f"{group_id} in epoch {group.target_epoch}: {why}"
            raise InvariantBroken("a target assignment has the partitions of subscribed topics", detail)

    # ---------------------------------------------------------------- shards

    def _check_shard(self, node_id: int, replica: Replica, shard: GroupCoordinatorShard, log: GroupLog) -> None:
        key = node_id, shard.partition
        seen = self._shards.get(key)
        if seen is None or seen.shard is not shard:
            seen = self._shards[key] = _SeenShard(shard, replica.log_end_offset)
        if shard.is_loading or shard.leader_epoch != replica.partition.leader_epoch:
            return
        leader = replica.partition.leader
        if not seen.may_have_refused:
            seen.may_have_refused = leader is None or leader.is_under_min_isr
        if seen.may_have_refused:
            log.emptied |= {one.group_id: None for one in shard.groups.values() if _is_empty(one)}
        self._silent.after_event(node_id, shard, can_write=leader is not None and not leader.is_under_min_isr)
        high_watermark = replica.partition.watermark.offset
        if not seen.is_active:
            seen.is_active = True
            if high_watermark < seen.loads_up_to:
                where = _where(node_id, shard)
                detail = f"{where} has loaded up to {seen.loads_up_to}, the high watermark is {high_watermark}"
                raise InvariantBroken("a coordinator of groups acts on what is committed", detail)
        seen.events += 1
        is_due = seen.compared_up_to < high_watermark or seen.events >= _EVENTS
        if is_due and high_watermark == log.end_offset == replica.log_end_offset:
            seen.compared_up_to, seen.events = high_watermark, 0
            if self._partitions.has_bit_rot(node_id):
                return
            found = difference(shard, log, may_have_refused=seen.may_have_refused)
            if found is not None:
                raise InvariantBroken(
                    "a coordinator of groups holds what its log says", f"{_where(node_id, shard)}: {found}"
                )

    # ---------------------------------------------------------------- removed offsets

    def _check_removal(self, removal: Removal) -> None:
        (group_id, (topic, partition)), removed = removal.key, removal.removed
        since_ms = max(removed.commit_timestamp_ms, removal.empty_since_ms)
        is_old = removal.timestamp_ms - since_ms >= self._retention_ms
        has_expired = is_old or 0 <= removed.expire_timestamp_ms <= removal.timestamp_ms
        if self._may_be_another(topic):
            return
        if removal.is_subscribed:
            detail = f"{group_id} {topic}-{partition}: {removed.offset} was removed"
            raise InvariantBroken("an offset of a subscribed topic stays", detail)
        asked = self.answers.removals_asked
        if has_expired or group_id in asked or removal.key in asked:
            return
        age_ms = removal.timestamp_ms - since_ms
        detail = f"{group_id} {topic}-{partition}: {removed.offset}, {age_ms} ms after its commit or its group's end"
        raise InvariantBroken("an offset is removed when it has expired, was deleted or lost its topic", detail)

    def _may_be_another(self, topic: str) -> bool:
        """Whether a topic does not exist on some node, or is not the one that was known by this name before."""
        known = self._topic_ids.get(topic)
        return any(one is None or one.topic_id != known for one in self._known(topic))

    def _known(self, topic: str) -> list[TopicImage | None]:
        """The topic as each running node knows it."""
        return [node.loader.image.topics_by_name.get(topic) for node in self._nodes() if node.loader is not None]


def _is_empty(group: ClassicGroup | ConsumerGroup) -> bool:
    return isinstance(group, ClassicGroup) and group.state is ClassicGroupState.EMPTY


def _where(node_id: int, shard: GroupCoordinatorShard) -> str:
    return f"{OFFSETS_TOPIC}-{shard.partition} on {node_id} in epoch {shard.leader_epoch}"
