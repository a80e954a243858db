"""CreateTopics: which topics are created, with which partitions, replicas and configurations.

Each topic of a request succeeds or fails by itself. The records of one topic are in one batch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from ...log.topic_configs import TOPIC_CONFIGS, validate_topic_configs
from ...runtime.incremental_work import count_in_steps
from ...security.authorizer.acl_binding import AclOperation, ResourceType
from ...security.authorizer.authorizer import DENIED
from ...wire.errors import ErrorCode, ProtocolError
from ..configs.effective_configs import resolve
from ..metadata.metadata_image import TOPIC_RESOURCE, MetadataImage, metric_name
from ..metadata.metadata_records import ConfigRecord, PartitionRecord, Record, TopicRecord
from ..policies import NewTopicRequest
from ..result import ControllerResult, Decision, Response
from ..security.rights import IsAllowed, TopicRights, allows_all
from ..settings import ControllerSettings
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
from .topic_names import validate_topic_name

if TYPE_CHECKING:
    from ...wire.message_types.topics import CreateTopicsRequest

CLUSTER_METADATA_TOPIC = "__cluster_metadata"
PARTITIONS_PER_BATCH = 30
"""Partitions that are created in one iteration of the loop and in one batch of records, unless one topic has more."""
_PARTITIONS_A_TOPIC_COSTS = 2
_REFUSED_TOPIC_COSTS = 1


def create_topics(
    context: TopicContext,
    request: CreateTopicsRequest,
    is_allowed: IsAllowed = allows_all,
    count: CountPartitions = counts_nothing,
) -> Decision:
    """CreateTopics 2-7, decided in parts of some topics, each part one batch of records.

    The records of a topic are never spread over two batches. -1 for partitions or replication factor means the default
    of the cluster.
    """
    times = yield from count_in_steps(topic.name for topic in request.topics)
    creation = _TopicCreation(context, times, is_allowed, count)
    records: list[Record] = []
    work = 0
    for topic in request.topics:
        plan = creation.plan(topic)
        work += _REFUSED_TOPIC_COSTS if plan is None else len(plan.partitions) + _PARTITIONS_A_TOPIC_COSTS
        if plan is not None and not request.validate_only:
            records += plan.records()
        if work >= PARTITIONS_PER_BATCH:
            yield records
            records, work = [], 0
    return ControllerResult(records, {"topics": list(creation.results.values())})


class _TopicCreation:
    """The progress of one request; the image has the records of the former parts."""

    def __init__(
        self, context: TopicContext, times: Counter[str], is_allowed: IsAllowed, count: CountPartitions
    ) -> None:
        self._context = context
        self._is_allowed = is_allowed
        self._rights = TopicRights(is_allowed, AclOperation.CREATE)
        self._times = times
        self._count = count
        self._partition_count = 0
        self._planned: dict[str, str] = {}
        """The topics of this request, by their names in metrics."""
        self._config_rows: dict[tuple[tuple[str, str], ...], list[Response]] = {}
        """The rows of a response for topics with these configurations; most have none of their own."""
        self.results: dict[str, Response] = {}
        """The rows of the response."""

    def plan(self, topic: CreateTopicsRequest.CreatableTopic) -> _TopicPlan | None:
        """What the topic will be, or None if it is refused. The result is noted."""
        if topic.name in self.results:
            return None
        try:
            plan = self._plan(topic)
        except ProtocolError as error:
            self.results[topic.name] = topic_error(topic.name, error)
            return None
        self._planned[metric_name(topic.name)] = topic.name
        if self._is_allowed(AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC, topic.name, logs_denial=False):
            self.results[topic.name] = _created(plan, self._rows_of_configs(plan))
        else:
            self.results[topic.name] = _created_by_who_may_not_describe(plan)
        return plan

    def _plan(self, topic: CreateTopicsRequest.CreatableTopic) -> _TopicPlan:
        if self._times[topic.name] > 1:
            raise ProtocolError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
        self._check_name(topic.name)
        plan = _plan_topic(self._context, topic)
        self._partition_count += len(plan.partitions)
        if self._partition_count > PARTITIONS_PER_REQUEST_MAX:
            complaint = "Excessively large number of partitions per request."
            raise ProtocolError(ErrorCode.POLICY_VIOLATION, complaint)
        self._count(len(plan.partitions))
        return plan

    def _check_name(self, name: str) -> None:
        """Raise `ProtocolError` when a topic cannot get this name. No two topics may have the same one in metrics."""
        image = self._context.image
        if name == CLUSTER_METADATA_TOPIC:
            raise ProtocolError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "")
        self._rights.check(name)
        validate_topic_name(name)
        if name in image.topics_by_name:
            raise ProtocolError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        other = image.topic_with_metric_name_of(name) or self._planned.get(metric_name(name))
        if other is not None:
            complaint = f"Topic '{name}' collides with existing topic: {other}"
            raise ProtocolError(ErrorCode.INVALID_TOPIC_EXCEPTION, complaint)

    def _rows_of_configs(self, plan: _TopicPlan) -> list[Response]:
        key = tuple(plan.configs.items())
        rows = self._config_rows.get(key)
        if rows is None:
            rows = self._config_rows[key] = [_config_row(self._context, plan, name) for name in TOPIC_CONFIGS]
        return rows


class _TopicPlan(NamedTuple):
    name: str
    topic_id: UUID
    partitions: list[PartitionRecord]
    configs: dict[str, str]

    def records(self) -> Iterator[Record]:
        yield TopicRecord(self.name, self.topic_id)
        for key, value in self.configs.items():
            yield ConfigRecord(TOPIC_RESOURCE, self.name, key, value)
        yield from self.partitions


def _plan_topic(context: TopicContext, topic: CreateTopicsRequest.CreatableTopic) -> _TopicPlan:
    configs = _requested_configs(topic)
    topic_id = _draw_topic_id(context)
    check_policy = context.settings.policies.check_new_topic
    if topic.assignments:
        assignments = _manual_topic(context.image, topic)
        check_policy(NewTopicRequest(topic.name, None, None, dict(enumerate(assignments)), dict(configs)))
    else:
        count, factor = _counts(context.settings, topic)
        assignments = place(usable_brokers(context.image), count, factor, context.rng)
        check_policy(NewTopicRequest(topic.name, count, factor, None, dict(configs)))
    partitions = new_partitions(context.image, topic_id, 0, assignments)
    return _TopicPlan(topic.name, topic_id, partitions, configs)


def _requested_configs(topic: CreateTopicsRequest.CreatableTopic) -> dict[str, str]:
    configs: dict[str, str] = {}
    for config in topic.configs:
        if config.value is None:
            complaint = f"Null value not supported for topic configs: {config.name}"
            raise ProtocolError(ErrorCode.INVALID_CONFIG, complaint)
        configs[config.name] = config.value
    validate_topic_configs(configs)
    return configs


def _draw_topic_id(context: TopicContext) -> UUID:
    # As in Kafka, the text form of an id must not start with '-', so that it is no option on a command line.
    while True:
        topic_id = UUID(int=context.rng.getrandbits(128), version=4)
        if topic_id.bytes[0] >> 2 != 62 and topic_id not in context.image.topics_by_id:
            return topic_id


def _counts(settings: ControllerSettings, topic: CreateTopicsRequest.CreatableTopic) -> tuple[int, int]:
    count, factor = topic.num_partitions, topic.replication_factor
    if factor < -1 or factor == 0:
        complaint = "Replication factor must be larger than 0, or -1 to use the default value."
        raise ProtocolError(ErrorCode.INVALID_REPLICATION_FACTOR, complaint)
    if count < -1 or count == 0:
        complaint = "Number of partitions was set to an invalid non-positive value."
        raise ProtocolError(ErrorCode.INVALID_PARTITIONS, complaint)
    count = settings.num_partitions if count == -1 else count
    if count > PARTITIONS_PER_REQUEST_MAX:
        raise ProtocolError(ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request.")
    return count, settings.default_replication_factor if factor == -1 else factor


def _manual_topic(image: MetadataImage, topic: CreateTopicsRequest.CreatableTopic) -> list[tuple[int, ...]]:
    if topic.replication_factor != -1:
        complaint = "A manual partition assignment was specified, but replication factor was not set to -1."
        raise ProtocolError(ErrorCode.INVALID_REQUEST, complaint)
    if topic.num_partitions != -1:
        complaint = "A manual partition assignment was specified, but numPartitions was not set to -1."
        raise ProtocolError(ErrorCode.INVALID_REQUEST, complaint)
    by_index: dict[int, tuple[int, ...]] = {}
    for assignment in topic.assignments:
        index = assignment.partition_index
        if index in by_index:
            complaint = f"Found multiple manual partition assignments for partition {index}"
            raise ProtocolError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, complaint)
        by_index[index] = tuple(assignment.broker_ids)
    if sorted(by_index) != list(range(len(by_index))):
        complaint = "partitions should be a consecutive 0-based integer sequence"
        raise ProtocolError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, complaint)
    assignments = [by_index[index] for index in range(len(by_index))]
    check_manual_assignment(image, assignments, len(assignments[0]))
    return assignments


def _created(plan: _TopicPlan, config_rows: list[Response]) -> Response:
    return {
        "name": plan.name,
        "topic_id": plan.topic_id,
        "error_code": 0,
        "error_message": None,
        "num_partitions": len(plan.partitions),
        "replication_factor": len(plan.partitions[0].replicas),
        "configs": config_rows,
    }


def _created_by_who_may_not_describe(plan: _TopicPlan) -> Response:
    """The row of a topic whose configurations the client may not know (KIP-525)."""
    return {
        "name": plan.name,
        "topic_id": plan.topic_id,
        "error_code": 0,
        "error_message": None,
        "topic_config_error_code": int(DENIED[ResourceType.TOPIC]),
        "num_partitions": -1,
        "replication_factor": -1,
        "configs": [],
    }


def _config_row(context: TopicContext, plan: _TopicPlan, name: str) -> Response:
    defaults = context.settings.topic_defaults
    value, source = resolve(context.image, plan.name, name, defaults, own=plan.configs)
    return {"name": name, "value": value, "read_only": False, "config_source": int(source), "is_sensitive": False}
