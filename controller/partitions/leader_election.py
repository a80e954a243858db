"""Elections that no departure causes: preferred leaders, unclean leaders where they were allowed, and ElectLeaders."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from ...wire.errors import ErrorCode, ProtocolError
from ..metadata.metadata_image import MetadataImage
from ..metadata.metadata_records import NO_LEADER, PartitionChangeRecord, Record
from ..result import ControllerResult, Response
from ..settings import ControllerSettings
from .partition_change import Election, Goal, PartitionRules, decide_partition_change

if TYPE_CHECKING:
    from ...wire.message_types.topics import ElectLeadersRequest

_PREFERRED_ELECTION = 0
_UNCLEAN_ELECTION = 1


def preferred_leaders(image: MetadataImage, settings: ControllerSettings, limit: int = 1_000) -> list[Record]:
    """Elections that give leadership back to preferred replicas in the ISR; at most `limit`."""
    records: list[Record] = []
    rules = PartitionRules(image, settings)
    for topic, index, partition in image.all_partitions():
        preferred = partition.replicas[0]
        if partition.leader == preferred or preferred not in partition.isr or not image.is_active(preferred):
            continue
        goal = _preferred(rules.goal(topic.name, partition.isr, partial(image.may_lead, partition)))
        change = decide_partition_change(topic.topic_id, index, partition, goal)
        if change is not None:
            records.append(change)
        if len(records) >= limit:
            break
    return records


def unclean_leaders(image: MetadataImage, settings: ControllerSettings) -> list[Record]:
    """Unclean elections for partitions without a leader whose topics allow them. Kafka does this every five minutes."""
    records: list[Record] = []
    rules = PartitionRules(image, settings)
    for topic, index, partition in image.all_partitions():
        if partition.leader != NO_LEADER:
            continue
        goal = rules.goal(topic.name, partition.isr, partial(image.may_lead, partition))
        if goal.election is Election.UNCLEAN:
            change = decide_partition_change(topic.topic_id, index, partition, goal)
            if change is not None:
                records.append(change)
    return records


def _preferred(goal: Goal) -> Goal:
    return Goal(goal.isr, goal.acceptable, goal.min_insync_replicas, goal.elr_enabled, Election.PREFERRED)


def elect_leaders(image: MetadataImage, settings: ControllerSettings, request: ElectLeadersRequest) -> ControllerResult:
    """ElectLeaders 0-2: preferred (0) or unclean (1) elections for the named partitions, or for all."""
    election_type = request.get("election_type", _PREFERRED_ELECTION)
    if election_type not in (_PREFERRED_ELECTION, _UNCLEAN_ELECTION):
        code = int(ErrorCode.INVALID_REQUEST)
        return ControllerResult([], {"error_code": code, "replica_election_results": []})
    records: list[Record] = []
    topics: dict[str, list[Response]] = {}
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


def _named_partitions(image: MetadataImage, request: ElectLeadersRequest) -> Iterator[tuple[str, int]]:
    if request.topic_partitions is None:
        for topic, index, _ in image.all_partitions():
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
