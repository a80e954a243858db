"""CreatePartitions: more partitions for topics that exist. Each topic of a request succeeds or fails by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...runtime.incremental_work import Pace, count_in_steps
from ...security.authorizer.acl_binding import AclOperation, ResourceType
from ...security.authorizer.authorizer import DENIED
from ...wire.errors import ErrorCode, ProtocolError
from ..metadata.metadata_records import PartitionRecord, Record
from ..result import ControllerResult, Decision, Response
from ..security.rights import IsAllowed, allows_all
from .new_partitions import (
    PARTITIONS_PER_REQUEST_MAX,
    CountPartitions,
    TopicContext,
    check_manual_assignment,
    counts_nothing,
    new_partitions,
    topic_error,
    usable_brokers,
)
from .replica_placement import place

if TYPE_CHECKING:
    from ...wire.message_types.topics import CreatePartitionsRequest


def create_partitions(
    context: TopicContext,
    request: CreatePartitionsRequest,
    is_allowed: IsAllowed = allows_all,
    count: CountPartitions = counts_nothing,
) -> Decision:
    """CreatePartitions 0-3: more partitions, up to the `count` of each topic, in parts of some topics."""
    pace = Pace()
    times = yield from count_in_steps((topic.name for topic in request.topics), pace)
    records: list[Record] = []
    results: dict[str, Response] = {}
    partition_count = 0
    for topic in request.topics:
        new: list[PartitionRecord] = []
        try:
            if times[topic.name] > 1:
                raise ProtocolError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            if not is_allowed(AclOperation.ALTER, ResourceType.TOPIC, topic.name):
                raise ProtocolError(DENIED[ResourceType.TOPIC], "")
            grown = _grow_topic(context, topic)
            if partition_count + len(grown) > PARTITIONS_PER_REQUEST_MAX:
                complaint = "Excessively large number of partitions per request."
                raise ProtocolError(ErrorCode.POLICY_VIOLATION, complaint)
            count(len(grown))
            new = grown
        except ProtocolError as error:
            results[topic.name] = topic_error(topic.name, error)
        else:
            results[topic.name] = {"name": topic.name, "error_code": 0, "error_message": None}
        partition_count += len(new)
        if not request.validate_only:
            records += new
        if pace.ends_step(1 + len(new)):
            yield records
            records = []
    return ControllerResult(records, {"results": list(results.values())})


def _grow_topic(context: TopicContext, request: CreatePartitionsRequest.CreatePartitionsTopic) -> list[PartitionRecord]:
    topic = context.image.topics_by_name.get(request.name)
    if topic is None:
        raise ProtocolError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "")
    present = len(topic.partitions)
    if request.count == present:
        raise ProtocolError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {present} partition(s).")
    if request.count < present:
        complaint = (
            f"The topic {topic.name} currently has {present} partition(s); {request.count} would not be an increase."
        )
        raise ProtocolError(ErrorCode.INVALID_PARTITIONS, complaint)
    added = request.count - present
    if added > PARTITIONS_PER_REQUEST_MAX:
        raise ProtocolError(ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request.")
    replication_factor = len(topic.partitions[0].replicas)
    if request.assignments is None:
        assignments = place(usable_brokers(context.image), added, replication_factor, context.rng)
    else:
        assignments = [tuple(assignment.broker_ids) for assignment in request.assignments]
        if len(assignments) != added:
            complaint = (
                f"Attempted to add {added} additional partition(s), but only {len(assignments)} assignment(s) were "
                "specified."
            )
            raise ProtocolError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, complaint)
        check_manual_assignment(context.image, assignments, replication_factor)
    return new_partitions(context.image, topic.topic_id, present, assignments)
