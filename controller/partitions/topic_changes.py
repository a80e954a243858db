"""CreateTopics, DeleteTopics and CreatePartitions as decisions.

Each topic of a request succeeds or fails by itself; the records of all that succeed are one batch.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from ...log.topic_configs import TOPIC_CONFIGS, validate_topic_configs
from ...wire.errors import ErrorCode, ProtocolError
from ..configs.effective_configs import resolve
from ..metadata.metadata_image import TOPIC_RESOURCE, MetadataImage, TopicImage
from ..metadata.metadata_records import ConfigRecord, PartitionRecord, Record, RemoveTopicRecord, TopicRecord
from ..policies import NewTopicRequest
from ..result import ControllerResult, Response
from ..settings import ControllerSettings
from .replica_directories import directories_of_new
from .replica_placement import UsableBroker, place

CLUSTER_METADATA_TOPIC = "__cluster_metadata"
TOPIC_NAME_LENGTH_MAX = 249
PARTITIONS_PER_REQUEST_MAX = 10_000
CREATED_AT_ONCE = 250
"""Partitions that are made in one turn of the loop and in one batch of records, unless one topic has more."""
_TOPIC_COSTS_PARTITIONS = 2
_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+")


class Context(NamedTuple):
    """What a decision about topics is made with; `rng` draws topic ids and placements."""

    image: MetadataImage
    settings: ControllerSettings
    rng: random.Random


def validate_topic_name(name: str) -> None:
    """Raise `ProtocolError(INVALID_TOPIC_EXCEPTION)` unless the name is legal."""
    complaint = _name_complaint(name)
    if complaint is not None:
        raise ProtocolError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {complaint}")


def _name_complaint(name: str) -> str | None:
    if not name:
        return "the empty string is not allowed"
    if name in (".", ".."):
        return f"'{name}' is not allowed"
    if len(name) > TOPIC_NAME_LENGTH_MAX:
        return f"the length of '{name}' is longer than the max allowed length {TOPIC_NAME_LENGTH_MAX}"
    if _LEGAL_NAME.fullmatch(name) is None:
        return f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    return None


# -- CreateTopics --------------------------------------------------------------------------------------------------


class TopicCreation:
    """One CreateTopics 2-7, decided some topics a turn: each succeeds or fails by itself, and is one batch with others.

    A topic with all its partitions is never spread over two batches. -1 for partitions or replication factor means the
    cluster's default.
    """

    def __init__(self, request: Any) -> None:
        names = [topic.name for topic in request.topics]
        self._twice = {name for name, count in Counter(names).items() if count > 1}
        self._left = iter(request.topics)
        self._validate_only = request.get("validate_only", False)
        self._partition_count = 0
        self._taken: _NormalizedNames | None = None
        self._results: dict[str, Response] = {}

    def decide(self, context: Context) -> ControllerResult:
        """The next part. `context.image` is the same each time, with the records of the parts before in it."""
        taken = self._taken = self._taken or _NormalizedNames(context.image)
        records: list[Record] = []
        work = 0
        for topic in self._left:
            if topic.name in self._results:
                continue
            try:
                plan = self._plan(context, taken, topic)
            except ProtocolError as error:
                self._results[topic.name] = _topic_error(topic.name, error)
                continue
            taken.add(topic.name)
            self._results[topic.name] = _created(context, plan)
            work += len(plan.partitions) + _TOPIC_COSTS_PARTITIONS
            if not self._validate_only:
                records += plan.records()
            if work >= CREATED_AT_ONCE:
                return ControllerResult(records, has_more=True)
        return ControllerResult(records, {"topics": list(self._results.values())})

    def _plan(self, context: Context, taken: _NormalizedNames, topic: Any) -> _TopicPlan:
        if topic.name in self._twice:
            raise ProtocolError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
        taken.check(topic.name)
        plan = _plan_topic(context, topic)
        self._partition_count += len(plan.partitions)
        if self._partition_count > PARTITIONS_PER_REQUEST_MAX:
            complaint = "Excessively large number of partitions per request."
            raise ProtocolError(ErrorCode.POLICY_VIOLATION, complaint)
        return plan


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


class _NormalizedNames:
    """Names under which metrics are kept: '.' and '_' are one there, so two topics must not differ in that alone."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self._added: list[str] = []
        self._known: dict[str, str] | None = None

    def check(self, name: str) -> None:
        if name == CLUSTER_METADATA_TOPIC:
            raise ProtocolError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "")
        validate_topic_name(name)
        if name in self._image.topics_by_name:
            raise ProtocolError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        if "." not in name and "_" not in name:
            return
        if self._known is None:
            self._known = {known.replace(".", "_"): known for known in [*self._image.topics_by_name, *self._added]}
        other = self._known.get(name.replace(".", "_"))
        if other is not None:
            complaint = f"Topic '{name}' collides with existing topic: {other}"
            raise ProtocolError(ErrorCode.INVALID_TOPIC_EXCEPTION, complaint)

    def add(self, name: str) -> None:
        self._added.append(name)
        if self._known is not None:
            self._known[name.replace(".", "_")] = name


def _plan_topic(context: Context, topic: Any) -> _TopicPlan:
    configs = _requested_configs(topic)
    topic_id = _draw_topic_id(context)
    ask = context.settings.policies.check_new_topic
    if topic.assignments:
        assignments = _manual_topic(context.image, topic)
        ask(NewTopicRequest(topic.name, None, None, dict(enumerate(assignments)), dict(configs)))
    else:
        count, factor = _counts(context.settings, topic)
        assignments = place(usable_brokers(context.image), count, factor, context.rng)
        ask(NewTopicRequest(topic.name, count, factor, None, dict(configs)))
    partitions = _new_partitions(context.image, topic_id, 0, assignments)
    return _TopicPlan(topic.name, topic_id, partitions, configs)


def _requested_configs(topic: Any) -> dict[str, str]:
    configs: dict[str, str] = {}
    for config in topic.configs:
        if config.value is None:
            complaint = f"Null value not supported for topic configs: {config.name}"
            raise ProtocolError(ErrorCode.INVALID_CONFIG, complaint)
        configs[config.name] = config.value
    validate_topic_configs(configs)
    return configs


def _draw_topic_id(context: Context) -> UUID:
    # Ids that look like an option on a command line are avoided, as Kafka does: its text form must not start with '-'.
    while True:
        topic_id = UUID(int=context.rng.getrandbits(128), version=4)
        if topic_id.bytes[0] >> 2 != 62 and topic_id not in context.image.topics_by_id:
            return topic_id


def _counts(settings: ControllerSettings, topic: Any) -> tuple[int, int]:
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


def usable_brokers(image: MetadataImage) -> list[UsableBroker]:
    """Brokers that new replicas may go to; one in controlled shutdown gets none."""
    return [
        UsableBroker(broker.broker_id, broker.rack, broker.fenced)
        for broker in sorted(image.brokers.values(), key=lambda broker: broker.broker_id)
        if not broker.in_controlled_shutdown
    ]


def _manual_topic(image: MetadataImage, topic: Any) -> list[tuple[int, ...]]:
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
    _check_manual(image, assignments, len(assignments[0]))
    return assignments


def _check_manual(image: MetadataImage, assignments: Sequence[tuple[int, ...]], replication_factor: int) -> None:
    prefix = "The manual partition assignment includes"
    for replicas in assignments:
        complaint = None
        unknown = [broker_id for broker_id in replicas if broker_id not in image.brokers]
        repeated = [broker_id for broker_id in replicas if replicas.count(broker_id) > 1]
        if not replicas:
            complaint = f"{prefix} an empty replica list."
        elif unknown:
            complaint = f"{prefix} broker {unknown[0]}, but no such broker is registered."
        elif repeated:
            complaint = f"{prefix} the broker {repeated[0]} more than once."
        elif len(replicas) != replication_factor:
            complaint = (
                f"{prefix} a partition with {len(replicas)} replica(s), but this is not consistent with previous "
                f"partitions, which have {replication_factor} replica(s)."
            )
        if complaint is not None:
            raise ProtocolError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, complaint)


def _new_partitions(
    image: MetadataImage, topic_id: UUID, first_index: int, assignments: Sequence[tuple[int, ...]]
) -> list[PartitionRecord]:
    records = []
    for index, replicas in enumerate(assignments, start=first_index):
        isr = tuple(broker_id for broker_id in replicas if image.is_active(broker_id))
        if not isr:
            raise ProtocolError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"All brokers specified in the manual partition assignment for partition {index} are fenced or in "
                "controlled shutdown.",
            )
        isr = replicas if isr == replicas else isr
        directories = directories_of_new(image, replicas)
        records.append(PartitionRecord(topic_id, index, replicas, isr, leader=isr[0], directories=directories))
    return records


def _created(context: Context, plan: _TopicPlan) -> Response:
    return {
        "name": plan.name,
        "topic_id": plan.topic_id,
        "error_code": 0,
        "error_message": None,
        "num_partitions": len(plan.partitions),
        "replication_factor": len(plan.partitions[0].replicas),
        "configs": [_config_row(context, plan, name) for name in TOPIC_CONFIGS],
    }


def _config_row(context: Context, plan: _TopicPlan, name: str) -> Response:
    defaults = context.settings.topic_defaults
    value, source = resolve(context.image, plan.name, name, defaults, own=plan.configs)
    return {"name": name, "value": value, "read_only": False, "config_source": int(source), "is_sensitive": False}


def _topic_error(name: str | None, error: ProtocolError) -> Response:
    return {"name": name, "error_code": int(error.code), "error_message": error.message or None}


# -- DeleteTopics --------------------------------------------------------------------------------------------------


def delete_topics(context: Context, request: Any) -> ControllerResult:
    """DeleteTopics 1-6: by name, and from version 6 by id."""
    named = request.get("topics")
    if named is None:
        asked = [(name, None) for name in request.topic_names]
    else:
        asked = [(topic.name, topic.topic_id) for topic in named]
    records: list[Record] = []
    results: list[Response] = []
    seen: dict[UUID, None] = {}
    for name, topic_id in asked:
        try:
            topic = _topic_to_delete(context, name, topic_id)
            if topic.topic_id in seen:
                raise ProtocolError(ErrorCode.INVALID_REQUEST, "Duplicate topic name or id.")
        except ProtocolError as error:
            results.append({**_topic_error(name, error), "topic_id": topic_id})
            continue
        seen[topic.topic_id] = None
        records.append(RemoveTopicRecord(topic.topic_id))
        results.append({"name": topic.name, "topic_id": topic.topic_id, "error_code": 0, "error_message": None})
    return ControllerResult(records, {"responses": results})


def _topic_to_delete(context: Context, name: str | None, topic_id: UUID | None) -> TopicImage:
    if not context.settings.delete_topic_enable:
        raise ProtocolError(ErrorCode.TOPIC_DELETION_DISABLED, "")
    if name is not None and topic_id is not None:
        raise ProtocolError(ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id.")
    if topic_id is not None:
        topic = context.image.topics_by_id.get(topic_id)
        if topic is None:
            raise ProtocolError(ErrorCode.UNKNOWN_TOPIC_ID, "")
        return topic
    if name is None:
        raise ProtocolError(ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified.")
    topic = context.image.topics_by_name.get(name)
    if topic is None:
        raise ProtocolError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "")
    return topic


# -- CreatePartitions ----------------------------------------------------------------------------------------------


def create_partitions(context: Context, request: Any) -> ControllerResult:
    """CreatePartitions 0-3: grow topics to `count` partitions."""
    records: list[Record] = []
    results: dict[str, Response] = {}
    names = [topic.name for topic in request.topics]
    for topic in request.topics:
        try:
            if names.count(topic.name) > 1:
                raise ProtocolError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            new = _grow_topic(context, topic)
            if len(records) + len(new) > PARTITIONS_PER_REQUEST_MAX:
                complaint = "Excessively large number of partitions per request."
                raise ProtocolError(ErrorCode.POLICY_VIOLATION, complaint)
        except ProtocolError as error:
            results[topic.name] = _topic_error(topic.name, error)
            continue
        records += new
        results[topic.name] = {"name": topic.name, "error_code": 0, "error_message": None}
    validate_only = request.get("validate_only", False)
    return ControllerResult([] if validate_only else records, {"results": list(results.values())})


def _grow_topic(context: Context, request: Any) -> list[PartitionRecord]:
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
        _check_manual(context.image, assignments, replication_factor)
    return _new_partitions(context.image, topic.topic_id, present, assignments)
