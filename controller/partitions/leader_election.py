"""Leaders and ISRs of all partitions that a change of a broker touches, and the elections asked for by name.

A broker that is fenced, shuts down or restarts leaves every ISR it is in; where it led, another takes over in the same
batch of records. A broker that is unfenced revives the partitions that have no leader. A directory that fails does to
its replicas what an unclean stop of the broker does: what the disk holds of their tails nobody knows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any
from uuid import UUID

from ...wire.errors import ErrorCode, ProtocolError
from ..metadata.metadata_image import MetadataImage, PartitionRegistration, TopicImage
from ..metadata.metadata_records import NO_LEADER, PartitionChangeRecord, Record
from ..result import ControllerResult
from ..settings import ControllerSettings
from .partition_change import Election, Goal, decide_partition_change

Acceptable = Callable[[int], bool]

CHANGES_AT_ONCE = 500
"""Partitions that change in one turn of the controller's loop, and in one batch of records, when a broker goes."""


class PartitionRules:
    """The rules of elections, looked up once a topic, since a broker may have thousands of partitions."""

    def __init__(self, image: MetadataImage, settings: ControllerSettings) -> None:
        self._image = image
        self._settings = settings
        self._elr_enabled = image.elr_enabled
        self._by_topic: dict[str, tuple[int, Election]] = {}

    def goal(
        self, topic: str, isr: tuple[int, ...], acceptable: Acceptable, unclean_shutdown: int | None = None
    ) -> Goal:
        """The goal to reach `isr` under the topic's `min.insync.replicas` and `unclean.leader.election.enable`."""
        min_isr, election = self._of(topic)
        return Goal(isr, acceptable, min_isr, self._elr_enabled, election, unclean_shutdown)

    def _of(self, topic: str) -> tuple[int, Election]:
        rules = self._by_topic.get(topic)
        if rules is None:
            unclean = self._settings.unclean_election_enabled(self._image, topic)
            min_isr = self._settings.min_insync_replicas(self._image, topic)
            rules = self._by_topic[topic] = (min_isr, Election.UNCLEAN if unclean else Election.ONLINE)
        return rules


def _partitions(image: MetadataImage) -> Iterator[tuple[TopicImage, int, PartitionRegistration]]:
    for topic in image.topics_by_id.values():
        for index, partition in topic.partitions.items():
            yield topic, index, partition


def _without(isr: tuple[int, ...], broker_id: int) -> tuple[int, ...]:
    return tuple(replica for replica in isr if replica != broker_id)


class _Decisions:
    """Remembers what was decided for partitions that are alike: of thousands, few differ in more than their names."""

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
        twin = self._known[key]
        if twin is None:
            return None
        return PartitionChangeRecord(
            topic.topic_id, index, twin.isr, twin.leader, twin.elr, twin.last_known_elr, twin.leader_recovery_state
        )


class Departures:
    """The partitions that leaving brokers are still to be taken out of, as they were found when there were many.

    To look through all partitions for each batch of changes would cost more than the changes. What is remembered is a
    hint: each is looked at again before it changes, and where the hints end, all are looked through once more.
    """

    def __init__(self) -> None:
        self._left: dict[int, deque[tuple[UUID, int]]] = {}

    def candidates(
        self, image: MetadataImage, broker_id: int, is_touched: Callable[[PartitionRegistration], bool]
    ) -> Iterator[tuple[TopicImage, int, PartitionRegistration]]:
        """Partitions that are touched, each once; those that the broker leads first, where there are many."""
        seen: dict[tuple[UUID, int], None] = {}
        left = self._left.setdefault(broker_id, deque())
        for by_hints in (True, False):
            if not by_hints:
                left.extend(_touched_keys(image, broker_id, is_touched, seen))
            while left:
                key = left.popleft()
                topic, partition = image.topics_by_id.get(key[0]), image.partition(*key)
                if topic is not None and partition is not None and is_touched(partition):
                    seen[key] = None
                    yield topic, key[1], partition
        del self._left[broker_id]


def _touched_keys(
    image: MetadataImage,
    broker_id: int,
    is_touched: Callable[[PartitionRegistration], bool],
    seen: Container[tuple[UUID, int]],
) -> list[tuple[UUID, int]]:
    touched = [one for one in _partitions(image) if is_touched(one[2])]
    if len(touched) >= CHANGES_AT_ONCE:
        touched.sort(key=lambda one: one[2].leader != broker_id)
    keys = [(topic.topic_id, index) for topic, index, _ in touched]
    return [key for key in keys if key not in seen] if seen else keys


def broker_leaves(
    image: MetadataImage,
    settings: ControllerSettings,
    broker_id: int,
    *,
    unclean: bool = False,
    departures: Departures | None = None,
) -> list[Record]:
    """Changes that take the broker out of all ISRs and leaderships; after an `unclean` restart also out of ELRs.

    At most `CHANGES_AT_ONCE` of them: with so many, what the broker leads comes first, and it is to be asked again
    before anything that must come last, such as that the broker is fenced. `departures` remembers where it was.
    """

    def is_touched(partition: PartitionRegistration) -> bool:
        return broker_id in partition.isr or (unclean and broker_id in partition.elr)

    touched = (departures or Departures()).candidates(image, broker_id, is_touched)
    changes = _replicas_leave(image, settings, broker_id, touched, unclean=unclean)
    return list(islice(changes, CHANGES_AT_ONCE))


def directories_fail(
    image: MetadataImage, settings: ControllerSettings, broker_id: int, failed: Sequence[UUID]
) -> list[Record]:
    """Changes that take the broker's replicas in the `failed` directories out of ISRs, ELRs and leaderships."""

    def is_touched(partition: PartitionRegistration) -> bool:
        is_member = broker_id in partition.isr or broker_id in partition.elr
        return is_member and partition.directory_of(broker_id) in failed

    touched = [one for one in _partitions(image) if is_touched(one[2])]
    return list(_replicas_leave(image, settings, broker_id, touched, unclean=True))


def _replicas_leave(
    image: MetadataImage,
    settings: ControllerSettings,
    broker_id: int,
    touched: Iterable[tuple[TopicImage, int, PartitionRegistration]],
    *,
    unclean: bool,
) -> Iterator[Record]:
    rules = PartitionRules(image, settings)
    active = {other: None for other in image.brokers if other != broker_id and image.is_active(other)}
    lost = broker_id if unclean else None
    decisions = _Decisions()
    for topic, index, partition in touched:
        acceptable = _acceptable(image, active, partition)
        goal = rules.goal(topic.name, _without(partition.isr, broker_id), acceptable, lost)
        change = decisions.decide(topic, index, partition, goal)
        if change is not None:
            yield change


def _acceptable(image: MetadataImage, active: Mapping[int, None], partition: PartitionRegistration) -> Acceptable:
    return lambda broker_id: broker_id in active and image.is_replica_online(broker_id, partition)


def broker_returns(image: MetadataImage, settings: ControllerSettings, broker_id: int) -> list[Record]:
    """Elections for the partitions without a leader, now that the broker may lead."""
    rules = PartitionRules(image, settings)
    active = {other: None for other in image.brokers if other == broker_id or image.is_active(other)}
    records: list[Record] = []
    for topic, index, partition in _partitions(image):
        if partition.leader == NO_LEADER:
            goal = rules.goal(topic.name, partition.isr, _acceptable(image, active, partition))
            _append(records, decide_partition_change(topic.topic_id, index, partition, goal))
    return records


def leads_any(image: MetadataImage, broker_id: int) -> bool:
    """Whether the broker leads a partition."""
    return any(partition.leader == broker_id for _, _, partition in _partitions(image))


def preferred_leaders(image: MetadataImage, settings: ControllerSettings, limit: int = 1_000) -> list[Record]:
    """Elections that give leadership back to preferred replicas that are in their ISR; `limit` of them a batch."""
    records: list[Record] = []
    active = {broker_id: None for broker_id in image.brokers if image.is_active(broker_id)}
    rules = PartitionRules(image, settings)
    for topic, index, partition in _partitions(image):
        preferred = partition.replicas[0]
        if partition.leader == preferred or preferred not in partition.isr or preferred not in active:
            continue
        goal = _preferred(rules.goal(topic.name, partition.isr, _acceptable(image, active, partition)))
        _append(records, decide_partition_change(topic.topic_id, index, partition, goal))
        if len(records) >= limit:
            break
    return records


def unclean_leaders(image: MetadataImage, settings: ControllerSettings) -> list[Record]:
    """Leaders for partitions that have none and whose topics may have any; Kafka looks for them every five minutes."""
    records: list[Record] = []
    active = {broker_id: None for broker_id in image.brokers if image.is_active(broker_id)}
    rules = PartitionRules(image, settings)
    for topic, index, partition in _partitions(image):
        if partition.leader != NO_LEADER:
            continue
        goal = rules.goal(topic.name, partition.isr, _acceptable(image, active, partition))
        if goal.election is Election.UNCLEAN:
            _append(records, decide_partition_change(topic.topic_id, index, partition, goal))
    return records


def clear_elr(topics: Iterable[TopicImage]) -> list[Record]:
    """Empty the ELRs of `topics`: under another `min.insync.replicas`, their members may miss committed records.

    Not those that wait for a leader: while nobody leads, nothing is committed, and their ELR is all that tells who may.
    """
    return [
        PartitionChangeRecord(topic.topic_id, index, elr=(), last_known_elr=())
        for topic in topics
        for index, partition in topic.partitions.items()
        if partition.leader != NO_LEADER and (partition.elr or partition.last_known_elr)
    ]


def _preferred(goal: Goal) -> Goal:
    return Goal(goal.isr, goal.acceptable, goal.min_insync_replicas, goal.elr_enabled, Election.PREFERRED)


def _append(records: list[Record], record: PartitionChangeRecord | None) -> None:
    if record is not None:
        records.append(record)


# -- ElectLeaders --------------------------------------------------------------------------------------------------

_PREFERRED_ELECTION = 0
_UNCLEAN_ELECTION = 1


def elect_leaders(image: MetadataImage, settings: ControllerSettings, request: Any) -> ControllerResult:
    """ElectLeaders 0-2: preferred (0) or unclean (1) elections for the named partitions, or for all."""
    election_type = request.get("election_type", _PREFERRED_ELECTION)
    if election_type not in (_PREFERRED_ELECTION, _UNCLEAN_ELECTION):
        code = int(ErrorCode.INVALID_REQUEST)
        return ControllerResult([], {"error_code": code, "replica_election_results": []})
    records: list[Record] = []
    topics: dict[str, list[dict[str, Any]]] = {}
    everything = request.topic_partitions is None
    for topic, index in _named_partitions(image, request):
        try:
            records.append(_elect_one(image, settings, (topic, index), election_type))
        except ProtocolError as error:
            if everything and error.code is ErrorCode.ELECTION_NOT_NEEDED:
                continue
            result = {"partition_id": index, "error_code": int(error.code), "error_message": error.message}
        else:
            result = {"partition_id": index, "error_code": 0, "error_message": None}
        topics.setdefault(topic, []).append(result)
    results = [{"topic": topic, "partition_result": rows} for topic, rows in topics.items()]
    return ControllerResult(records, {"error_code": 0, "replica_election_results": results})


def _named_partitions(image: MetadataImage, request: Any) -> Iterator[tuple[str, int]]:
    if request.topic_partitions is None:
        for topic, index, _ in _partitions(image):
            yield topic.name, index
        return
    named = {(topic.topic, index): None for topic in request.topic_partitions for index in topic.partitions}
    yield from named


def _elect_one(
    image: MetadataImage, settings: ControllerSettings, target: tuple[str, int], election_type: int
) -> PartitionChangeRecord:
    name, index = target
    topic = image.topics_by_name.get(name)
    if topic is None:
        raise ProtocolError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {name}")
    partition = topic.partitions.get(index)
    if partition is None:
        raise ProtocolError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-{index}")
    preferred = election_type == _PREFERRED_ELECTION
    if partition.leader != NO_LEADER and (not preferred or partition.leader == partition.replicas[0]):
        raise ProtocolError(ErrorCode.ELECTION_NOT_NEEDED, "")
    goal = Goal(
        partition.isr,
        partial(image.may_lead, partition),
        settings.min_insync_replicas(image, name),
        image.elr_enabled,
        Election.PREFERRED if preferred else Election.UNCLEAN,
    )
    change = decide_partition_change(topic.topic_id, index, partition, goal)
    if change is None or change.leader is None:
        code = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE if preferred else ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
        raise ProtocolError(code, "")
    return change
