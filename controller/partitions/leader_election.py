"""Elections that no departure causes: preferred leaders, unclean leaders where they were allowed, and ElectLeaders."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

from ...runtime.incremental_work import PLAIN_STEP, Pace, Work
from ...runtime.invariants import sometimes
from ...wire.errors import ErrorCode, ProtocolError
from ..metadata.metadata_image import MetadataImage, PartitionRegistration, TopicImage
from ..metadata.metadata_records import NO_LEADER, PartitionChangeRecord, Record
from ..result import ControllerResult, Decision, Response, error_response
from ..settings import ControllerSettings
from .changes_in_parts import change_partitions, has_no_leader
from .partition_change import Election, Goal, PartitionRules, decide_partition_change

if TYPE_CHECKING:
    from ...wire.message_types.topics import ElectLeadersRequest

_PREFERRED_ELECTION = 0
_UNCLEAN_ELECTION = 1


def preferred_leaders(image: MetadataImage, settings: ControllerSettings) -> Decision:
    """Elections that give leadership back to preferred replicas in the ISR."""
    rules = PartitionRules(image, settings)

    def may_change(partition: PartitionRegistration) -> bool:
        preferred = partition.replicas[0]
        return partition.leader != preferred and preferred in partition.isr and image.is_active(preferred)

    def elect(topic: TopicImage, index: int, partition: PartitionRegistration) -> PartitionChangeRecord | None:
        goal = _preferred(rules.goal(topic.name, partition.isr, partial(image.may_lead, partition)))
        return decide_partition_change(topic.topic_id, index, partition, goal)

    return change_partitions(image, may_change, elect)


def leaderless_partitions(image: MetadataImage, settings: ControllerSettings) -> Decision:
    """Elections for partitions without a leader, unclean ones where they are allowed.

    They are made when unclean elections were allowed for a topic (Kafka makes those every five minutes), and when a
    controller becomes active: the former one may not have come to all partitions of a broker that returned.
    """
    rules = PartitionRules(image, settings)

    def elect(topic: TopicImage, index: int, partition: PartitionRegistration) -> PartitionChangeRecord | None:
        goal = rules.goal(topic.name, partition.isr, partial(image.may_lead, partition))
        return decide_partition_change(topic.topic_id, index, partition, goal)

    return change_partitions(image, has_no_leader, elect)


def _preferred(goal: Goal) -> Goal:
    return Goal(goal.isr, goal.acceptable, goal.min_insync_replicas, goal.elr_enabled, Election.PREFERRED)


def elect_leaders(image: MetadataImage, settings: ControllerSettings, request: ElectLeadersRequest) -> Decision:
    """ElectLeaders 0-2: preferred (0) or unclean (1) elections for the named partitions, or for all."""
    election_type = request.get("election_type", _PREFERRED_ELECTION)
    if election_type not in (_PREFERRED_ELECTION, _UNCLEAN_ELECTION):
        code = int(ErrorCode.INVALID_REQUEST)
        return ControllerResult([], {"error_code": code, "replica_election_results": []})
    pace = Pace()
    records: list[Record] = []
    topics: dict[str, list[Response]] = {}
    everything = request.topic_partitions is None
    for target in (yield from _named_partitions(image, request, pace)):
        topic, index = target
        code, text = ErrorCode.NONE, None
        try:
            records.append(_elect_one(image, settings, target, election_type))
        except ProtocolError as error:
            code, text = error.code, error.message
        if not everything or code is not ErrorCode.ELECTION_NOT_NEEDED:
            topics.setdefault(topic, []).append({"partition_id": index, **error_response(code, text)})
        if pace.ends_step():
            yield records
            records = []
    results = [{"topic": topic, "partition_result": rows} for topic, rows in topics.items()]
    return ControllerResult(records, {"error_code": 0, "replica_election_results": results})


def _named_partitions(
    image: MetadataImage, request: ElectLeadersRequest, pace: Pace
) -> Work[Iterable[tuple[str, int]]]:
    """Each named partition once, or all partitions that there are now."""
    named: dict[tuple[str, int], None] = {}
    asked = request.topic_partitions
    if asked is None:
        everything = list(image.topics_by_id.values())
        rows = ((topic.name, list(topic.partitions)) for topic in everything)
    else:
        rows = ((topic.topic, topic.partitions) for topic in asked)
    for name, indexes in rows:
        for index in indexes:
            named[name, index] = None
            if pace.ends_step():
                yield PLAIN_STEP
    return named


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
        sometimes(True, "an election was asked for, and no replica could be elected")
        code = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE if preferred else ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
        raise ProtocolError(code, "")
    return change
