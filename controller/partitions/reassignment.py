"""AlterPartitionReassignments and ListPartitionReassignments (KIP-455): moving partitions to other brokers.

During a reassignment a partition has both its old and its new replicas. `adding_replicas` are those that it did not
have before, `removing_replicas` those that it will not have in the end. The reassignment completes when all added
replicas are in the ISR, in the same record that takes the last of them into the ISR (see `partition_change.complete`).
A cancellation removes the added replicas again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from ...runtime.incremental_work import PLAIN_STEP, Pace, Work, sort_in_steps
from ...runtime.invariants import sometimes
from ...wire.errors import ErrorCode, ProtocolError
from ..metadata.metadata_image import MetadataImage, PartitionRegistration, TopicImage
from ..metadata.metadata_records import PartitionChangeRecord, Record
from ..result import ControllerResult, Decision, Response, error_response
from ..settings import ControllerSettings
from ..topics.new_partitions import repeated_brokers
from .partition_change import Election, PartitionRules, ReplicaSets, decide_partition_change

if TYPE_CHECKING:
    from ...wire.message_types.topics import AlterPartitionReassignmentsRequest, ListPartitionReassignmentsRequest

_REPLICAS_PER_ITEM = 16


def plan(partition: PartitionRegistration, target: tuple[int, ...]) -> ReplicaSets:
    """The replicas on the way to `target`, in its order; another reassignment may be under way already."""
    original = [replica for replica in partition.replicas if replica not in partition.adding_replicas]
    removing = tuple(sorted(replica for replica in partition.replicas if replica not in target))
    adding = tuple(sorted(replica for replica in target if replica not in original))
    return ReplicaSets((*target, *removing), adding, removing)


def alter_partition_reassignments(
    image: MetadataImage, settings: ControllerSettings, request: AlterPartitionReassignmentsRequest
) -> Decision:
    """AlterPartitionReassignments 0-1. Each partition is accepted or refused by itself. Null replicas cancel."""
    pace = Pace()
    records: list[Record] = []
    rules = PartitionRules(image, settings)
    may_change_factor = request.get("allow_replication_factor_change", True)
    responses: list[Response] = []
    seen: dict[tuple[str, int], None] = {}
    for topic, asked in _topics_and_partitions(request):
        change = None
        code, text = ErrorCode.NONE, None
        if asked is None:
            responses.append({"name": topic.name, "partitions": []})
        else:
            try:
                if (topic.name, asked.partition_index) in seen:
                    raise ProtocolError(ErrorCode.INVALID_REQUEST, "A partition is reassigned once a request.")
                seen[topic.name, asked.partition_index] = None
                change = _alter_one(image, rules, topic.name, asked, may_change_factor)
            except ProtocolError as error:
                code, text = error.code, error.message or None
            row = {"partition_index": asked.partition_index, **error_response(code, text)}
            responses[-1]["partitions"].append(row)
        if change is not None:
            records.append(change)
        if pace.ends_step(1 if asked is None else 1 + len(asked.replicas or ()) // _REPLICAS_PER_ITEM):
            yield records
            records = []
    top = {"error_code": 0, "error_message": None, "allow_replication_factor_change": may_change_factor}
    return ControllerResult(records, {**top, "responses": responses})


def _topics_and_partitions(
    request: AlterPartitionReassignmentsRequest,
) -> Iterator[
    tuple[
        AlterPartitionReassignmentsRequest.ReassignableTopic,
        AlterPartitionReassignmentsRequest.ReassignablePartition | None,
    ]
]:
    for topic in request.topics:
        yield topic, None
        for asked in topic.partitions:
            yield topic, asked


def _alter_one(
    image: MetadataImage,
    rules: PartitionRules,
    name: str,
    asked: AlterPartitionReassignmentsRequest.ReassignablePartition,
    may_change_factor: bool,
) -> PartitionChangeRecord | None:
    topic = image.topics_by_name.get(name)
    partition = None if topic is None else topic.partitions.get(asked.partition_index)
    if topic is None or partition is None:
        message = f"Unable to find a partition {asked.partition_index} of a topic named {name}."
        raise ProtocolError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)
    if asked.replicas is None:
        sets, isr = _cancelled(partition)
    else:
        target = tuple(asked.replicas)
        _check_target(image, partition, target, may_change_factor)
        sets, isr = plan(partition, target), partition.isr
    return _decide(image, rules, (topic, asked.partition_index), sets, isr)


def _decide(
    image: MetadataImage,
    rules: PartitionRules,
    key: tuple[TopicImage, int],
    sets: ReplicaSets,
    isr: tuple[int, ...],
) -> PartitionChangeRecord | None:
    topic, index = key
    partition = topic.partitions[index]
    goal = rules.goal(topic.name, isr, partial(image.may_lead, partition))
    is_lossy = not isr and bool(partition.isr)
    if is_lossy and goal.election is not Election.UNCLEAN:
        sometimes(True, "a reassignment could not be cancelled without an unclean election")
        raise ProtocolError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Unable to revert partition assignment for {topic.name}-{index} because it would require an unclean "
            "leader election.",
        )
    return decide_partition_change(topic.topic_id, index, partition, goal, sets)


def _cancelled(partition: PartitionRegistration) -> tuple[ReplicaSets, tuple[int, ...]]:
    """The replicas and the ISR as they were before the reassignment."""
    if not partition.adding_replicas and not partition.removing_replicas:
        raise ProtocolError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    added = partition.adding_replicas
    sometimes(True, "a reassignment was cancelled while it was under way")
    replicas = tuple(replica for replica in partition.replicas if replica not in added)
    isr = tuple(replica for replica in partition.isr if replica not in added)
    return ReplicaSets(replicas, (), ()), isr


def _check_target(
    image: MetadataImage, partition: PartitionRegistration, target: tuple[int, ...], may_change_factor: bool
) -> None:
    prefix = "The manual partition assignment includes"
    unknown = [broker_id for broker_id in target if broker_id not in image.brokers]
    complaint = None
    if not target:
        complaint = f"{prefix} an empty replica list."
    elif repeated := repeated_brokers(target):
        complaint = f"{prefix} the broker {repeated[0]} more than once."
    elif any(broker_id < 0 for broker_id in target):
        complaint = f"{prefix} an invalid broker id {min(target)}."
    elif unknown:
        complaint = f"{prefix} broker {unknown[0]}, but no such broker is registered."
    if complaint is not None:
        raise ProtocolError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, complaint)
    factor = len(partition.replicas) - len(partition.adding_replicas)
    if not may_change_factor and len(target) != factor:
        message = f"The replication factor is changed from {factor} to {len(target)}"
        raise ProtocolError(ErrorCode.INVALID_REPLICATION_FACTOR, message)


def list_partition_reassignments(image: MetadataImage, request: ListPartitionReassignmentsRequest) -> Decision:
    """ListPartitionReassignments 0: the reassignments under way, of the named partitions or of all."""
    pace = Pace()
    asked: Iterable[tuple[str, Iterable[int] | None]]
    if request.topics is None:
        names = yield from sort_in_steps(list(image.topics_by_name), pace)
        asked = ((name, None) for name in names)
    else:
        asked = ((topic.name, topic.partition_indexes) for topic in request.topics)
    topics: list[Response] = []
    for name, indexes in asked:
        rows = yield from _under_way(image, name, indexes, pace)
        if rows:
            topics.append({"name": name, "partitions": rows})
    return ControllerResult([], {"error_code": 0, "error_message": None, "topics": topics})


def _under_way(image: MetadataImage, name: str, indexes: Iterable[int] | None, pace: Pace) -> Work[list[Response]]:
    topic = image.topics_by_name.get(name)
    rows = []
    for index in (() if topic is None else list(topic.partitions)) if indexes is None else indexes:
        topic = image.topics_by_name.get(name)
        partition = None if topic is None else topic.partitions.get(index)
        if partition is not None and (partition.adding_replicas or partition.removing_replicas):
            rows.append(_listed(index, partition))
        if pace.ends_step():
            yield PLAIN_STEP
    if pace.ends_step():
        yield PLAIN_STEP
    return rows


def _listed(index: int, partition: PartitionRegistration) -> Response:
    return {
        "partition_index": index,
        "replicas": list(partition.replicas),
        "adding_replicas": list(partition.adding_replicas),
        "removing_replicas": list(partition.removing_replicas),
    }
