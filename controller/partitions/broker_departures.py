"""What happens to partitions when a broker leaves or returns, or one of its directories fails.

A broker that is fenced, shuts down or restarts leaves every ISR that it is in. Where it led, another replica takes over
in the same batch of records. When a broker is unfenced, partitions without a leader elect one. A directory that fails
has the same effect on its replicas as an unclean stop of the broker: the tails of their logs may be lost.

A broker may have very many partitions. Then `CHANGES_PER_BATCH` of them change in one iteration of the controller's
loop, those that the broker leads first, and the broker is fenced with the last of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from uuid import UUID

from ...runtime.invariants import sometimes
from ..metadata.metadata_image import MetadataImage, PartitionRegistration, TopicImage
from ..metadata.metadata_records import BrokerChangeRecord, PartitionChangeRecord, Record
from ..result import Decision
from ..settings import ControllerSettings
from .changes_in_parts import change_partitions, has_no_leader
from .partition_change import Acceptable, Goal, PartitionRules, decide_partition_change

CHANGES_PER_BATCH = 250
"""Partitions that change in one batch of records when a broker leaves."""


def _without(isr: tuple[int, ...], broker_id: int) -> tuple[int, ...]:
    return tuple(replica for replica in isr if replica != broker_id)


class _DecisionCache:
    """Remembers decisions for partitions in the same state: among thousands of partitions there are few states."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], PartitionChangeRecord | None] = {}

    def decide(
        self, topic: TopicImage, index: int, partition: PartitionRegistration, goal: Goal
    ) -> PartitionChangeRecord | None:
        if partition.adding_replicas or partition.removing_replicas:
            return decide_partition_change(topic.topic_id, index, partition, goal)
        state = (partition.replicas, partition.isr, partition.elr, partition.last_known_elr, partition.leader)
        rules = (goal.isr, goal.min_insync_replicas, goal.election, goal.unclean_shutdown)
        key = (*state, partition.directories, partition.leader_recovery_state, *rules)
        if key not in self._known:
            self._known[key] = decide_partition_change(topic.topic_id, index, partition, goal)
        known = self._known[key]
        if known is None:
            return None
        return PartitionChangeRecord(
            topic.topic_id, index, known.isr, known.leader, known.elr, known.last_known_elr, known.leader_recovery_state
        )


class Departures:
    """The partitions that leaving brokers are still in, for brokers with very many of them.

    A search through all partitions for each batch of changes would cost more than the changes. So the partitions of the
    first search are remembered. Each of them is checked again before it changes, and after the last one a second search
    finds those that were added meanwhile.
    """

    def __init__(self) -> None:
        self._remaining: dict[int, deque[tuple[UUID, int]]] = {}

    def candidates(
        self, image: MetadataImage, broker_id: int, is_affected: Callable[[PartitionRegistration], bool]
    ) -> Iterator[tuple[TopicImage, int, PartitionRegistration]]:
        """The affected partitions, each once; when there are very many, those that the broker leads come first."""
        seen: dict[tuple[UUID, int], None] = {}
        remaining = self._remaining.setdefault(broker_id, deque())
        for is_second_search in (False, True):
            if is_second_search:
                remaining.extend(_affected_keys(image, broker_id, is_affected, seen))
            while remaining:
                key = remaining.popleft()
                topic, partition = image.topics_by_id.get(key[0]), image.partition(*key)
                if topic is not None and partition is not None and is_affected(partition):
                    seen[key] = None
                    yield topic, key[1], partition
        del self._remaining[broker_id]


def _affected_keys(
    image: MetadataImage,
    broker_id: int,
    is_affected: Callable[[PartitionRegistration], bool],
    seen: Container[tuple[UUID, int]],
) -> list[tuple[UUID, int]]:
    affected = [one for one in image.all_partitions() if is_affected(one[2])]
    if len(affected) >= CHANGES_PER_BATCH:
        affected.sort(key=lambda one: one[2].leader != broker_id)
    keys = [(topic.topic_id, index) for topic, index, _ in affected]
    return [key for key in keys if key not in seen] if seen else keys


def remove_broker(
    image: MetadataImage,
    settings: ControllerSettings,
    broker_id: int,
    *,
    unclean: bool = False,
    departures: Departures | None = None,
) -> list[Record]:
    """Changes that take the broker out of all ISRs and leaderships; after an `unclean` restart also out of ELRs.

    There are at most `CHANGES_PER_BATCH`. With that many, the caller appends them and calls again, before it writes
    what must come last, such as the record that fences the broker. `departures` keeps the progress between the calls.
    """

    def is_affected(partition: PartitionRegistration) -> bool:
        return broker_id in partition.isr or (unclean and broker_id in partition.elr)

    affected = (departures or Departures()).candidates(image, broker_id, is_affected)
    changes = _replicas_leave(image, settings, broker_id, affected, unclean=unclean)
    return list(islice(changes, CHANGES_PER_BATCH))


def remove_failed_directories(
    image: MetadataImage, settings: ControllerSettings, broker_id: int, failed: Sequence[UUID], departures: Departures
) -> list[Record]:
    """Changes that take the broker's replicas in the `failed` directories out of ISRs, ELRs and leaderships.

    There are at most `CHANGES_PER_BATCH`, as with `remove_broker`.
    """

    def is_affected(partition: PartitionRegistration) -> bool:
        is_member = broker_id in partition.isr or broker_id in partition.elr
        return is_member and partition.directory_of(broker_id) in failed

    affected = departures.candidates(image, broker_id, is_affected)
    return list(islice(_replicas_leave(image, settings, broker_id, affected, unclean=True), CHANGES_PER_BATCH))


def _replicas_leave(
    image: MetadataImage,
    settings: ControllerSettings,
    broker_id: int,
    affected: Iterable[tuple[TopicImage, int, PartitionRegistration]],
    *,
    unclean: bool,
) -> Iterator[Record]:
    rules = PartitionRules(image, settings)
    active = {other: None for other in image.brokers if other != broker_id and image.is_active(other)}
    lost = broker_id if unclean else None
    decisions = _DecisionCache()
    for topic, index, partition in affected:
        acceptable = _acceptable(image, active, partition)
        goal = rules.goal(topic.name, _without(partition.isr, broker_id), acceptable, lost)
        change = decisions.decide(topic, index, partition, goal)
        if change is not None:
            yield change


def _acceptable(image: MetadataImage, active: Mapping[int, None], partition: PartitionRegistration) -> Acceptable:
    return lambda broker_id: broker_id in active and image.is_replica_online(broker_id, partition)


def elect_for_returned_broker(
    image: MetadataImage, settings: ControllerSettings, unfenced: BrokerChangeRecord
) -> Decision:
    """Unfence the broker, which may lead again, and elect leaders for the partitions that have none."""
    rules = PartitionRules(image, settings)
    begun_at = image.offset

    def elect(topic: TopicImage, index: int, partition: PartitionRegistration) -> PartitionChangeRecord | None:
        def is_acceptable(broker_id: int) -> bool:
            returns = broker_id == unfenced.broker_id and image.offset == begun_at
            sometimes(image.offset != begun_at, "metadata changed while a returned broker was given leaders")
            return (returns or image.is_active(broker_id)) and image.is_replica_online(broker_id, partition)

        goal = rules.goal(topic.name, partition.isr, is_acceptable)
        return decide_partition_change(topic.topic_id, index, partition, goal)

    return change_partitions(image, has_no_leader, elect, [unfenced])


def leads_any(image: MetadataImage, broker_id: int) -> bool:
    """Whether the broker leads a partition."""
    return any(partition.leader == broker_id for _, _, partition in image.all_partitions())
