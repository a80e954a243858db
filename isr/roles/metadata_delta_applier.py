"""From metadata to roles: which partitions this broker leads, follows, begins to host, or hosts no longer.

The image is applied as a whole once, when the broker has caught up with the metadata log, and by deltas from then on.
Older images must not be acted on: a topic that was deleted and created again looks, half-way through the history, as
if the present log belonged to no topic, and the log would be deleted.

Thousands of partitions may change in one delta. Then each iteration of the event loop takes up the roles of some of
them, by what the image says at that time (`PendingRoleTransitions`). Partitions that this broker shall lead come first.
Internal topics are taken up at once, since their coordinators follow. Until the last role is taken up, the broker has
not applied that metadata (`applied_offset`), whatever its image contains.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from uuid import UUID

from ...controller.metadata.metadata_image import (
    BROKER_RESOURCE,
    TOPIC_RESOURCE,
    MetadataDelta,
    MetadataImage,
    PartitionRegistration,
    TopicImage,
)
from ...log.errors import StorageError
from ...runtime.incremental_work import IncrementalTask, for_each
from ...runtime.invariants import sometimes
from ...runtime.log_lines import log_event
from ...runtime.loggers import STATE_CHANGE
from ...runtime.loop import report_error
from ...wire.types import TopicPartition
from ..follower.fetcher_manager import FetcherManager
from ..hosted_partitions import HostedPartitions
from ..leader.isr_proposals import IsrProposals
from ..partition import NO_LEADER
from ..purgatory.delayed_operations import DelayedOperations
from ..replica import Replica
from .local_replicas import LocalReplicas
from .pending_role_transitions import PartitionKey, PendingRoleTransitions

_state_changes = logging.getLogger(STATE_CHANGE)

INTERNAL_PREFIX = "__"
EXPANSIONS_PER_SLICE = 250
BUSY_MS = 100
"""So long after it has appended records a broker counts as busy with them."""


class MetadataDeltaApplier:
    """Carries out what the metadata says about this broker's replicas.

    `on_led` is called with every replica that leads its partition from now on, for the first time or in a new epoch.
    """

    def __init__(
        self,
        hosted: HostedPartitions,
        replicas: LocalReplicas,
        fetchers: FetcherManager,
        operations: DelayedOperations,
        proposals: IsrProposals,
        on_led: Callable[[Replica], None],
        stopwatch: Callable[[], float],
    ) -> None:
        self._hosted = hosted
        self._replicas = replicas
        self._fetchers = fetchers
        self._operations = operations
        self._proposals = proposals
        self._on_led = on_led
        self._pending = PendingRoleTransitions(self._take_up, self._is_new, self._is_busy, stopwatch)
        self._seen_offset = -1
        self._expansions: dict[int, IncrementalTask[None]] = {}
        """By broker: the work of proposing it to all ISRs that it may join."""

    # ---------------------------------------------------------------- images

    @property
    def applied_offset(self) -> int:
        """Up to which metadata offset every role is taken up."""
        offset = self._pending.applied_offset
        return self._hosted.image.offset if offset is None else offset

    async def settled(self) -> None:
        """Return when no role transition is pending."""
        await self._pending.settled()

    def stop(self) -> None:
        """Stop taking up roles."""
        self._pending.stop()
        for task in self._expansions.values():
            task.cancel()
        self._expansions.clear()

    def apply_all(self, image: MetadataImage) -> None:
        """Take up everything that the image says."""
        self._hosted.image = image
        for broker_id in image.brokers:
            self._on_broker_changed(broker_id)
        self._add_pending(
            image,
            [],
            [(topic_id, index) for topic_id, topic in image.topics_by_id.items() for index in topic.partitions],
        )

    def apply(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """Take up what `delta` touched, as it is in `image` now.

        Settings come first: a smaller ISR must not commit by the former `min.insync.replicas`, since by the new one the
        controller may elect replicas that the leader did not wait for (KIP-966). But a lower minimum comes with the
        role of the same metadata, since a replica that is no longer leader must not commit by it.
        """
        self._hosted.image = image
        if delta.changed_configs:
            self._apply_configs(delta)
        deleted = [
            (TopicPartition(topic.name, index), topic.topic_id)
            for topic in delta.deleted_topics.values()
            for index in topic.partitions
        ]
        self._add_pending(image, deleted, delta.changed_partitions)
        for broker_id in delta.changed_brokers:
            self._on_broker_changed(broker_id)

    def create_again(self) -> None:
        """Try again to create the logs for which there was no space."""
        topics = self._hosted.image.topics_by_name
        waiting = [(topics[one.topic], one.partition) for one in self._hosted.without_space if one.topic in topics]
        self._take_up([], [(topic.topic_id, index) for topic, index in waiting if index in topic.partitions])

    def _add_pending(
        self, image: MetadataImage, deleted: Iterable[tuple[TopicPartition, UUID]], changed: Iterable[PartitionKey]
    ) -> None:
        at_once: list[PartitionKey] = []
        local_id = self._hosted.local_id
        for topic_partition, topic_id in deleted:
            self._pending.add_deleted(topic_partition, topic_id)
        for key in changed:
            topic = image.topics_by_id.get(key[0])
            if topic is None:
                continue
            if topic.name.startswith(INTERNAL_PREFIX):
                at_once.append(key)
            else:
                self._pending.add(key, leads=topic.partitions[key[1]].leader == local_id)
        if at_once:
            self._take_up([], at_once)
        self._pending.begin(self._seen_offset)
        self._seen_offset = image.offset

    def _is_new(self, key: PartitionKey) -> bool:
        """Whether the partition is to have a replica here, and has none."""
        topic = self._hosted.image.topics_by_id.get(key[0])
        registration = None if topic is None else topic.partitions.get(key[1])
        if topic is None or registration is None or self._hosted.local_id not in registration.replicas:
            return False
        return TopicPartition(topic.name, key[1]) not in self._hosted.replicas

    def _is_busy(self) -> bool:
        """Whether this broker writes records: new replicas are then made more slowly."""
        last_ms = self._operations.last_append_ms
        return last_ms is not None and self._operations.now_ms() - last_ms < BUSY_MS

    def _take_up(self, deleted: list[tuple[TopicPartition, UUID]], keys: list[PartitionKey]) -> None:
        """Take up the roles in some partitions, as the image has them now."""
        for topic_partition, topic_id in deleted:
            with _errors_reported(topic_partition):
                self._replicas.remove(topic_partition, topic_id)
        topics = self._hosted.image.topics_by_id
        changed = []
        for topic_id, index in keys:
            topic = topics.get(topic_id)
            if topic is not None:
                changed.append((topic, index, topic.partitions[index]))
        self._apply_partitions(changed)

    def _apply_partitions(self, changed: Iterable[tuple[TopicImage, int, PartitionRegistration]]) -> None:
        """Leaders first: they stop fetching before others begin."""
        followers: list[tuple[Replica, PartitionRegistration]] = []
        for topic, index, registration in changed:
            topic_partition = TopicPartition(topic.name, index)
            with _errors_reported(topic_partition):
                replica = self._replica_with_news(topic_partition, topic.topic_id, registration)
                if replica is None:
                    continue
                if registration.leader == self._hosted.local_id:
                    self._lead(replica, registration)
                else:
                    followers.append((replica, registration))
        self._follow(followers)

    def _replica_with_news(
        self, topic_partition: TopicPartition, topic_id: UUID, registration: PartitionRegistration
    ) -> Replica | None:
        """The replica that is to take up another role; None where there is none, or it has the role already."""
        local_id = self._hosted.local_id
        if local_id not in registration.replicas:
            self._replicas.remove(topic_partition, topic_id)
            return None
        replica = self._replicas.get_or_create(topic_partition, topic_id, registration.directory_of(local_id))
        if replica is None or replica.offline or not replica.partition.is_news(registration):
            return None
        return replica

    # ---------------------------------------------------------------- roles

    def _lead(self, replica: Replica, registration: PartitionRegistration) -> None:
        self._fetchers.remove(replica)
        self._take_minimum(replica)
        is_new = registration.leader_epoch == 0 and replica.log.log_end_offset == 0
        try:
            became_leader = replica.make_leader(registration, self._operations.now_ms())
        except StorageError as error:
            sometimes(True, "a new leader's log could not be cut, and its replica went offline")
            self._replicas.take_offline(replica, error)
            return
        if became_leader and not is_new:
            log_event(
                _state_changes,
                "leads",
                topic=replica.topic_partition.topic,
                partition=replica.topic_partition.partition,
                leader_epoch=registration.leader_epoch,
                log_end_offset=replica.log.log_end_offset,
                high_watermark=replica.high_watermark,
            )
        self._on_led(replica)

    def _follow(self, followers: list[tuple[Replica, PartitionRegistration]]) -> None:
        to_fetch: dict[int, list[Replica]] = {}
        for replica, registration in followers:
            with _errors_reported(replica.topic_partition):
                if not replica.make_follower(registration):
                    continue
                self._operations.on_role_lost(replica)
                self._fetchers.remove(replica)
                if registration.leader != NO_LEADER:
                    to_fetch.setdefault(registration.leader, []).append(replica)
        for leader_id, replicas in to_fetch.items():
            self._fetchers.add(leader_id, replicas)

    def _on_broker_changed(self, broker_id: int) -> None:
        registration = self._hosted.image.brokers.get(broker_id)
        if registration is None:
            return
        self._fetchers.on_broker_changed(broker_id, registration.epoch)
        if registration.active:
            self._expand_isrs(broker_id)

    def _expand_isrs(self, broker_id: int) -> None:
        """A broker may join ISRs now. Where it has caught up already, propose it, in slices of some partitions."""
        former = self._expansions.pop(broker_id, None)
        if former is not None:
            former.cancel()
        led = [replica for replica in self._hosted.replicas.values() if replica.partition.leader is not None]
        work = for_each(led, partial(self._expand_isr, broker_id))
        self._expansions[broker_id] = IncrementalTask(work, steps_per_slice=EXPANSIONS_PER_SLICE)

    def _expand_isr(self, broker_id: int, replica: Replica) -> None:
        registration = self._hosted.image.brokers.get(broker_id)
        if registration is not None and registration.active:
            self._proposals.expand(replica, broker_id)

    # ---------------------------------------------------------------- settings

    def _apply_configs(self, delta: MetadataDelta) -> None:
        replicas = self._hosted.replicas
        if any(kind == BROKER_RESOURCE for kind, _ in delta.changed_configs):
            by_topic: dict[str, list[Replica]] = {}
            for topic_partition, replica in replicas.items():
                by_topic.setdefault(topic_partition.topic, []).append(replica)
        else:
            names = [name for kind, name in delta.changed_configs if kind == TOPIC_RESOURCE]
            by_topic = {name: self._replicas_of(name) for name in names}
        for topic, its_replicas in by_topic.items():
            with _errors_reported(topic, "settings"):
                self._apply_configs_of(topic, its_replicas)

    def _apply_configs_of(self, topic: str, replicas: Sequence[Replica]) -> None:
        log_config, leader_config = self._replicas.log_config(topic), self._replicas.leader_config(topic)
        for replica in replicas:
            replica.log.config = log_config
            leader = replica.partition.leader
            if leader is not None and leader_config.min_isr < leader.config.min_isr and self._awaits_role(replica):
                sometimes(True, "a leader took a lower min.insync.replicas only with its next role")
                continue
            replica.partition.update_config(leader_config)
            if leader is not None:
                leader.maybe_advance_high_watermark(replica.log_end_offset, self._operations.now_ms())

    def _take_minimum(self, replica: Replica) -> None:
        replica.partition.update_config(self._replicas.leader_config(replica.topic_partition.topic))

    def _awaits_role(self, replica: Replica) -> bool:
        """Whether the image says something newer of its partition than what is taken up."""
        registration = self._hosted.registration(replica.topic_partition)
        return registration is None or replica.partition.is_newer(registration)

    def _replicas_of(self, topic: str) -> list[Replica]:
        image, replicas = self._hosted.image.topics_by_name.get(topic), self._hosted.replicas
        keys = [] if image is None else [TopicPartition(topic, index) for index in image.partitions]
        return [replicas[key] for key in keys if key in replicas]


@contextmanager
def _errors_reported(name: TopicPartition | str, what: str = "role") -> Iterator[None]:
    """Report an unexpected error about one partition or topic: others take up theirs all the same."""
    try:
        yield
    except Exception as error:
        report_error(f"{name} could not take up its {what}", error)
