"""From metadata to roles: which partitions this broker leads, follows, begins to hold, or holds no more.

The image is applied as a whole once, when the broker has caught up with the metadata log, and by deltas from then on.
Acting on older images would be wrong, not just useless: a topic that was deleted and made again looks, half-way through
the history, as if the present log belonged to nobody.

Thousands of partitions may change in one delta. Then some are taken up a turn of the loop, each by what the image says
when its turn comes; what this broker shall lead comes first, and internal topics at once, as their coordinators follow.
Until the last one is taken up, the broker has not applied that metadata (`applied_offset`), whatever its image holds.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial
from uuid import UUID

from ...controller.configs.effective_configs import dynamic_overrides
from ...controller.metadata.metadata_image import (
    BROKER_RESOURCE,
    TOPIC_RESOURCE,
    MetadataDelta,
    MetadataImage,
    PartitionRegistration,
    TopicImage,
)
from ...controller.metadata.metadata_records import LOST
from ...log.config import LogConfig
from ...log.partition_log import PartitionLog
from ...runtime.incremental_work import IncrementalTask, for_each
from ...runtime.log_lines import log_event
from ...runtime.loggers import STATE_CHANGE
from ...wire.errors import ErrorCode, ProtocolError
from ...wire.types import TopicPartition
from ..directories.directory_assignments import DirectoryAssignments, Place, place_of
from ..follower.fetcher_manager import FetcherManager
from ..hosted_partitions import BrokersOfPartition, HostedPartitions
from ..leader.leader_state import LeaderConfig
from ..partition import NO_LEADER, Partition
from ..ports import ReplicaLogs, ReplicaManagerConfig
from ..purgatory.delayed_operation_completion import DelayedOperationCompletion
from ..replica import Replica
from .pending_role_transitions import PartitionKey, PendingRoleTransitions

_logger = logging.getLogger(__name__)
_state_changes = logging.getLogger(STATE_CHANGE)

MIN_ISR_KEY = "min.insync.replicas"
INTERNAL_PREFIX = "__"
LET_IN_PER_SLICE = 250


class MetadataDeltaApplier:
    """Carries out what the metadata says about this broker's replicas."""

    def __init__(
        self,
        config: ReplicaManagerConfig,
        directory: HostedPartitions,
        logs: ReplicaLogs,
        fetchers: FetcherManager,
        consequences: DelayedOperationCompletion,
        assignments: DirectoryAssignments,
        now_ms: Callable[[], int],
    ) -> None:
        self._config = config
        self._directory = directory
        self._logs = logs
        self._fetchers = fetchers
        self._consequences = consequences
        self._assignments = assignments
        self._now_ms = now_ms
        self._backlog = PendingRoleTransitions(self._turn)
        self.on_led: Callable[[Replica], None] = lambda replica: None
        """Told of every partition that this broker leads, anew or in another way."""
        self._seen_offset = -1
        self._let_in_tasks: dict[int, IncrementalTask[None]] = {}

    # ---------------------------------------------------------------- images

    @property
    def applied_offset(self) -> int:
        """Up to which metadata offset every role is taken up."""
        held = self._backlog.held_offset
        return self._directory.image.offset if held is None else held

    async def settled(self) -> None:
        """Return when nothing is put off."""
        await self._backlog.settled()

    def stop(self) -> None:
        """Take up nothing more."""
        self._backlog.stop()
        for task in self._let_in_tasks.values():
            task.cancel()
        self._let_in_tasks.clear()

    def apply_all(self, image: MetadataImage) -> None:
        """Everything the image says."""
        self._directory.image = image
        for broker_id in image.brokers:
            self._on_broker_changed(broker_id)
        self._take_in(
            image,
            [],
            [(topic_id, index) for topic_id, topic in image.topics_by_id.items() for index in topic.partitions],
        )

    def apply(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """What `delta` touched, as it is in `image` now.

        Settings come first: a smaller ISR must not commit by the `min.insync.replicas` of before, since by the new one
        the controller may have others lead who were not waited for (KIP-966). But a lower one comes with the role that
        goes with it, since who leads no more must not commit by it.
        """
        self._directory.image = image
        if delta.changed_configs:
            self._apply_configs(delta)
        gone = [
            (TopicPartition(topic.name, index), topic.topic_id)
            for topic in delta.deleted_topics.values()
            for index in topic.partitions
        ]
        self._take_in(image, gone, delta.changed_partitions)
        for broker_id in delta.changed_brokers:
            self._on_broker_changed(broker_id)

    def _take_in(
        self, image: MetadataImage, gone: Iterable[tuple[TopicPartition, UUID]], changed: Iterable[PartitionKey]
    ) -> None:
        at_once: list[PartitionKey] = []
        local_id = self._directory.local_id
        for topic_partition, topic_id in gone:
            self._backlog.add_gone(topic_partition, topic_id)
        for key in changed:
            topic = image.topics_by_id.get(key[0])
            if topic is None:
                continue
            if topic.name.startswith(INTERNAL_PREFIX):
                at_once.append(key)
            else:
                self._backlog.add(key, leads=topic.partitions[key[1]].leader == local_id)
        if at_once:
            self._turn([], at_once)
        self._backlog.begin(self._seen_offset)
        self._seen_offset = image.offset

    def _turn(self, gone: list[tuple[TopicPartition, UUID]], keys: list[PartitionKey]) -> None:
        """Take up some partitions, as the image has them now."""
        for topic_partition, topic_id in gone:
            self._drop(topic_partition, topic_id)
        topics = self._directory.image.topics_by_id
        changed = []
        for topic_id, index in keys:
            topic = topics.get(topic_id)
            if topic is not None:
                changed.append((topic, index, topic.partitions[index]))
        self._apply_partitions(changed)

    def _apply_partitions(self, changed: Iterable[tuple[TopicImage, int, PartitionRegistration]]) -> None:
        """Leaders first: they give up fetching before others begin."""
        local_id = self._directory.local_id
        followers: list[tuple[Replica, PartitionRegistration]] = []
        for topic, index, registration in changed:
            topic_partition = TopicPartition(topic.name, index)
            if local_id not in registration.replicas:
                self._drop(topic_partition, topic.topic_id)
                continue
            replica = self._replica(topic_partition, topic.topic_id, registration.directory_of(local_id))
            if replica is None or replica.offline or not replica.partition.is_news(registration):
                continue
            if registration.leader == local_id:
                self._lead(replica, registration)
            else:
                followers.append((replica, registration))
        self._follow(followers)

    # ---------------------------------------------------------------- roles

    def _lead(self, replica: Replica, registration: PartitionRegistration) -> None:
        old_high_watermark = replica.high_watermark
        self._fetchers.remove(replica)
        self._take_minimum(replica)
        if replica.make_leader(registration, self._now_ms()):
            log_event(
                _state_changes,
                "leads",
                topic=replica.topic_partition.topic,
                partition=replica.topic_partition.partition,
                leader_epoch=registration.leader_epoch,
                log_end_offset=replica.log.log_end_offset,
                high_watermark=replica.high_watermark,
            )
        if replica.high_watermark != old_high_watermark:
            self._consequences.on_high_watermark(replica)
        self.on_led(replica)

    def _follow(self, followers: list[tuple[Replica, PartitionRegistration]]) -> None:
        to_fetch: dict[int, list[Replica]] = {}
        for replica, registration in followers:
            if not replica.make_follower(registration):
                continue
            self._consequences.on_role_lost(replica)
            self._fetchers.remove(replica)
            if registration.leader != NO_LEADER:
                to_fetch.setdefault(registration.leader, []).append(replica)
        for leader_id, replicas in to_fetch.items():
            self._fetchers.add(leader_id, replicas)

    def _on_broker_changed(self, broker_id: int) -> None:
        registration = self._directory.image.brokers.get(broker_id)
        if registration is None:
            return
        self._fetchers.on_broker_changed(broker_id, registration.epoch)
        if registration.active:
            self._let_in(broker_id)

    def _let_in(self, broker_id: int) -> None:
        """A broker may be in ISRs now: where it has caught up already, ask for it at once, some partitions a turn."""
        former = self._let_in_tasks.pop(broker_id, None)
        if former is not None:
            former.cancel()
        led = [replica for replica in self._directory.replicas.values() if replica.partition.leader is not None]
        work = for_each(led, partial(self._let_in_one, broker_id))
        self._let_in_tasks[broker_id] = IncrementalTask(work, steps_per_slice=LET_IN_PER_SLICE)

    def _let_in_one(self, broker_id: int, replica: Replica) -> None:
        registration = self._directory.image.brokers.get(broker_id)
        leader = replica.partition.leader
        follower = None if leader is None else leader.followers.get(broker_id)
        if registration is None or not registration.active or leader is None or follower is None:
            return
        proposal = leader.propose_expand(follower)
        if proposal is not None:
            self._consequences.on_proposal(replica, proposal)

    # ---------------------------------------------------------------- logs

    def _replica(self, topic_partition: TopicPartition, topic_id: UUID, registered: UUID) -> Replica | None:
        """The replica of this topic id, made if need be; None when its log cannot be used, or not yet.

        `registered` is its directory by the metadata; where that is wrong, the controller is told.
        """
        replica = self._directory.replicas.get(topic_partition)
        if replica is not None and replica.topic_id != topic_id:
            self._drop(topic_partition, replica.topic_id)
            replica = None
        if replica is None:
            replica = self._make_replica(topic_partition, topic_id, registered)
        held = self._logs.directory_id_of(topic_partition)
        if replica is not None and held is not None:
            self._assignments.note((topic_id, topic_partition.partition), registered, held)
        return replica

    def on_moved(self, replica: Replica, held: UUID) -> None:
        """The replica's log is in another directory now: the controller is told."""
        registration = self._directory.registration(replica.topic_partition)
        if registration is not None:
            registered = registration.directory_of(self._directory.local_id)
            self._assignments.note((replica.topic_id, replica.topic_partition.partition), registered, held)

    def _make_replica(self, topic_partition: TopicPartition, topic_id: UUID, registered: UUID) -> Replica | None:
        try:
            log = self._log_for(topic_partition, topic_id, registered)
            if log is None:
                self._directory.unusable[topic_partition] = None
                return None
        except (ProtocolError, OSError) as error:
            _logger.error("%s cannot be used: %s", topic_partition, error)
            self._directory.unusable[topic_partition] = None
            self._consequences.on_unusable(topic_partition, error)
            return None
        self._directory.unusable.pop(topic_partition, None)
        checkpoint = self._logs.high_watermark_checkpoint.get(topic_partition, 0)
        high_watermark = max(min(checkpoint, log.log_end_offset), log.log_start_offset)
        partition = Partition(
            topic_partition,
            self._leader_config(topic_partition.topic),
            BrokersOfPartition(self._directory, topic_partition),
            high_watermark,
        )
        replica = self._directory.replicas[topic_partition] = Replica(topic_id, partition, log)
        return replica

    def _log_for(self, topic_partition: TopicPartition, topic_id: UUID, registered: UUID) -> PartitionLog | None:
        """The log, found or made; None when it is lost and the controller has to know first. `ProtocolError`."""
        log = self._logs.get(topic_partition)
        if log is not None and log.topic_id is not None and log.topic_id != topic_id:
            self._logs.set_aside(topic_partition, f"has topic id {log.topic_id}, not {topic_id}")
            log = None
        config = self._log_config(topic_partition.topic)
        if log is None:
            is_displaced = self._logs.is_displaced(topic_partition, topic_id)
            online = () if is_displaced else self._logs.online_ids
            place = place_of(registered, online, some_failed=self._logs.has_failed_dirs and not is_displaced)
            if place is Place.OFFLINE:
                raise ProtocolError(ErrorCode.KAFKA_STORAGE_ERROR, "its log directory has failed")
            if place is Place.NOWHERE_YET:
                gone = "is not what it was" if is_displaced else "was in a log directory that is here no more"
                _logger.warning("%s %s; it begins anew when the controller knows", topic_partition, gone)
                self._assignments.note((topic_id, topic_partition.partition), registered, LOST)
                return None
            return self._logs.create(topic_partition, topic_id, config, registered)
        log.config = config
        if log.topic_id is None:
            log.set_topic_id(topic_id, durably=False)
        return log

    def _drop(self, topic_partition: TopicPartition, topic_id: UUID) -> None:
        """Hold the partition no more: its topic is deleted, or it has moved to other brokers."""
        self._directory.unusable.pop(topic_partition, None)
        self._assignments.forget((topic_id, topic_partition.partition))
        replica = self._directory.replicas.get(topic_partition)
        if replica is None or replica.topic_id != topic_id:
            return
        self._fetchers.remove(replica)
        del self._directory.replicas[topic_partition]
        gone = self._directory.registration(topic_partition) is None
        self._consequences.on_role_lost(
            replica, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if gone else ErrorCode.NOT_LEADER_OR_FOLLOWER
        )
        try:
            self._logs.delete(topic_partition)
        except (ProtocolError, OSError) as error:
            _logger.error("%s cannot be removed: %s", topic_partition, error)

    # ---------------------------------------------------------------- settings

    def _apply_configs(self, delta: MetadataDelta) -> None:
        replicas = self._directory.replicas
        if any(kind == BROKER_RESOURCE for kind, _ in delta.changed_configs):
            by_topic: dict[str, list[Replica]] = {}
            for topic_partition, replica in replicas.items():
                by_topic.setdefault(topic_partition.topic, []).append(replica)
        else:
            names = [name for kind, name in delta.changed_configs if kind == TOPIC_RESOURCE]
            by_topic = {name: self._replicas_of(name) for name in names}
        for topic, its_replicas in by_topic.items():
            log_config, leader_config = self._log_config(topic), self._leader_config(topic)
            for replica in its_replicas:
                replica.log.config = log_config
                leader = replica.partition.leader
                if leader is not None and leader_config.min_isr < leader.config.min_isr and self._awaits_role(replica):
                    continue
                replica.partition.update_config(leader_config)
                if leader is not None and leader.maybe_advance_high_watermark(replica.log_end_offset, self._now_ms()):
                    self._consequences.on_high_watermark(replica)

    def _take_minimum(self, replica: Replica) -> None:
        replica.partition.update_config(self._leader_config(replica.topic_partition.topic))

    def _awaits_role(self, replica: Replica) -> bool:
        """Whether the image tells of its partition what is not taken up yet."""
        registration = self._directory.registration(replica.topic_partition)
        return registration is None or replica.partition.is_newer(registration)

    def _replicas_of(self, topic: str) -> list[Replica]:
        image, replicas = self._directory.image.topics_by_name.get(topic), self._directory.replicas
        keys = [] if image is None else [TopicPartition(topic, index) for index in image.partitions]
        return [replicas[key] for key in keys if key in replicas]

    def _leader_config(self, topic: str) -> LeaderConfig:
        value = self._directory.image.topic_config(topic, MIN_ISR_KEY)
        return LeaderConfig(
            local_id=self._directory.local_id,
            min_isr=self._config.default_min_isr if value is None else int(value),
            lag_time_max_ms=self._config.replica_lag_time_max_ms,
        )

    def _log_config(self, topic: str) -> LogConfig:
        overrides = dynamic_overrides(self._directory.image, topic, self._directory.local_id)
        default = self._config.default_log_config
        return default.with_overrides(overrides) if overrides else default
