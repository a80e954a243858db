"""Whether committed metadata have what a controller says that it has changed.

Only what an answer confirms is looked for, row by row: what was asked for, or what the answer says of it, is in the
metadata just before the request was read or after a later batch. A refusal is judged by the client.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias
from uuid import UUID

from .....controller.metadata.metadata_image import TOPIC_RESOURCE, BrokerRegistration, PartitionRegistration
from .....controller.metadata.metadata_records import NO_LEADER
from .....wire.api_keys import ApiKey
from .....wire.codec import Struct
from ....specification.metadata.metadata_state import Parts

_SET, _DELETE = 0, 1
_PREFERRED = 0


class Metadata:
    """The committed metadata after a batch, for lookups."""

    def __init__(self, parts: Parts) -> None:
        self.topics: dict[str, tuple[UUID, Mapping[int, PartitionRegistration]]] = {
            name: (topic_id, dict(partitions)) for (name, topic_id), partitions in parts["topics"]
        }
        self.brokers: dict[int, BrokerRegistration] = dict(parts["brokers"])
        self.features: dict[str, int] = dict(parts["features"])
        self._settings = dict(parts["settings"])

    def settings(self, kind: int, name: str) -> dict[str, str]:
        """The settings of a resource of this kind."""
        return dict(self._settings.get((kind, name), ()))

    def partition(self, topic: str, index: int) -> PartitionRegistration | None:
        """A partition by the name of its topic."""
        return self.topics[topic][1].get(index) if topic in self.topics else None

    def partition_of(self, topic_id: UUID, index: int) -> PartitionRegistration | None:
        """A partition by the id of its topic."""
        return next((rows.get(index) for found, rows in self.topics.values() if found == topic_id), None)


Holds: TypeAlias = Callable[[Metadata], bool]
Claim: TypeAlias = tuple[str, Holds]
"""What an answer confirms, and whether some metadata have it."""


def first_untrue(api: ApiKey, request: Struct, answer: Struct, states: Iterable[Parts]) -> str | None:
    """The first thing that the answer confirms and none of the `states` has; None if there is none."""
    claims = _CLAIMS.get(api)
    if claims is None or answer.get("error_code", 0) or request.get("validate_only", False):
        return None
    found = [Metadata(parts) for parts in states]
    return next((what for what, holds in claims(request, answer) if not any(map(holds, found))), None)


# -------------------------------------------------------------------- topics


def _created_topics(request: Struct, answer: Struct) -> Iterator[Claim]:
    wanted = {asked.name: asked for asked in request.topics}
    for row in answer.topics:
        if not row.error_code:
            yield f"topic {row.name} as it was asked for", _has_topic(wanted[row.name], row)


def _has_topic(asked: Struct, row: Struct) -> Holds:
    settings = {one.name: one.value for one in asked.configs if one.value is not None}
    assigned = {one.partition_index: tuple(one.broker_ids) for one in asked.assignments}

    def holds(metadata: Metadata) -> bool:
        topic_id, partitions = metadata.topics.get(row.name, (None, {}))
        replicas = {index: partition.replicas for index, partition in partitions.items()}
        count = len(assigned) or (asked.num_partitions if asked.num_partitions > 0 else row.get("num_partitions", -1))
        factor = asked.replication_factor if asked.replication_factor > 0 else row.get("replication_factor", -1)
        return (
            topic_id is not None
            and row.get("topic_id", topic_id) == topic_id
            and count in (-1, len(replicas))
            and (not assigned or replicas == assigned)
            and (assigned or factor == -1 or all(len({*one}) == factor for one in replicas.values()))
            and metadata.settings(TOPIC_RESOURCE, row.name) == settings
        )

    return holds


def _deleted_topics(_request: Struct, answer: Struct) -> Iterator[Claim]:
    for row in answer.responses:
        if not row.error_code:
            yield f"no topic {row.name}", _lacks_topic(row.name, row.get("topic_id", None))


def _lacks_topic(name: str, topic_id: UUID | None) -> Holds:
    """A topic that was created since under the same name has another id; version 5 and below tell of none."""

    def holds(metadata: Metadata) -> bool:
        there = metadata.topics.get(name)
        return there is None or (topic_id is not None and there[0] != topic_id)

    return holds


def _created_partitions(request: Struct, answer: Struct) -> Iterator[Claim]:
    codes = {row.name: row.error_code for row in answer.results}
    for asked in request.topics:
        if not codes[asked.name]:
            yield f"{asked.count} partitions of {asked.name}", _has_partitions(asked.name, asked.count)


def _has_partitions(topic: str, count: int) -> Holds:
    return lambda metadata: topic in metadata.topics and len(metadata.topics[topic][1]) == count


def _changed_settings(request: Struct, answer: Struct) -> Iterator[Claim]:
    codes = {(row.resource_type, row.resource_name): row.error_code for row in answer.responses}
    for asked in request.resources:
        if not codes[asked.resource_type, asked.resource_name]:
            yield f"the settings of {asked.resource_name or 'all brokers'}", _has_settings(asked)


def _has_settings(asked: Struct) -> Holds:
    def holds(metadata: Metadata) -> bool:
        found = metadata.settings(asked.resource_type, asked.resource_name)
        return all(
            one.config_operation not in (_SET, _DELETE)
            or found.get(one.name) == (one.value if one.config_operation == _SET else None)
            for one in asked.configs
        )

    return holds


# -------------------------------------------------------------------- partitions


def _reassigned(request: Struct, answer: Struct) -> Iterator[Claim]:
    codes = {
        (topic.name, row.partition_index): row.error_code for topic in answer.responses for row in topic.partitions
    }
    for topic in request.topics:
        for asked in topic.partitions:
            if not codes[topic.name, asked.partition_index]:
                target = None if asked.replicas is None else tuple(asked.replicas)
                yield (
                    f"{topic.name}-{asked.partition_index} on the way to {target}",
                    _moves_to(topic.name, asked.partition_index, target),
                )


def _moves_to(topic: str, index: int, target: tuple[int, ...] | None) -> Holds:
    """Whether a partition has these replicas once its reassignment is complete; None: it is not reassigned."""

    def holds(metadata: Metadata) -> bool:
        found = metadata.partition(topic, index)
        if found is None:
            return False
        if target is None:
            return not found.adding_replicas and not found.removing_replicas
        return tuple(one for one in found.replicas if one not in found.removing_replicas) == target

    return holds


def _elected(request: Struct, answer: Struct) -> Iterator[Claim]:
    is_preferred = request.get("election_type", _PREFERRED) == _PREFERRED
    for topic in answer.replica_election_results:
        for row in topic.partition_result:
            if not row.error_code:
                yield (
                    f"a leader of {topic.topic}-{row.partition_id}",
                    _is_led(topic.topic, row.partition_id, is_preferred),
                )


def _is_led(topic: str, index: int, is_preferred: bool) -> Holds:
    def holds(metadata: Metadata) -> bool:
        found = metadata.partition(topic, index)
        return found is not None and (found.leader == found.replicas[0] if is_preferred else found.leader != NO_LEADER)

    return holds


def _altered(_request: Struct, answer: Struct) -> Iterator[Claim]:
    for topic in answer.topics:
        for row in topic.partitions:
            if not row.error_code:
                yield f"partition {row.partition_index} as {row.to_dict()}", _has_state(topic.topic_id, row)


def _has_state(topic_id: UUID, row: Struct) -> Holds:
    told = row.leader_id, row.leader_epoch, tuple(row.isr), row.leader_recovery_state, row.partition_epoch

    def holds(metadata: Metadata) -> bool:
        one = metadata.partition_of(topic_id, row.partition_index)
        return one is not None and told == (
            *(one.leader, one.leader_epoch, one.isr, one.leader_recovery_state, one.partition_epoch),
        )

    return holds


def _assigned(request: Struct, answer: Struct) -> Iterator[Claim]:
    for directory in answer.directories:
        for topic in directory.topics:
            for row in topic.partitions:
                if not row.error_code:
                    yield (
                        f"the directory of partition {row.partition_index}",
                        _is_in(request.broker_id, directory.id, topic.topic_id, row.partition_index),
                    )


def _is_in(broker_id: int, directory: UUID, topic_id: UUID, index: int) -> Holds:
    def holds(metadata: Metadata) -> bool:
        one = metadata.partition_of(topic_id, index)
        return one is not None and broker_id in one.replicas and one.directory_of(broker_id) == directory

    return holds


# -------------------------------------------------------------------- nodes


def _unregistered(request: Struct, _answer: Struct) -> Iterator[Claim]:
    yield f"no broker {request.broker_id}", lambda metadata: request.broker_id not in metadata.brokers


def _registered(request: Struct, answer: Struct) -> Iterator[Claim]:
    def holds(metadata: Metadata) -> bool:
        one = metadata.brokers.get(request.broker_id)
        told = request.incarnation_id, answer.broker_epoch, request.rack, tuple(request.get("log_dirs", ()))
        return one is not None and told == (one.incarnation_id, one.epoch, one.rack, one.log_dirs)

    yield f"broker {request.broker_id} of epoch {answer.broker_epoch} as it registers", holds


def _heard(request: Struct, answer: Struct) -> Iterator[Claim]:
    def holds(metadata: Metadata) -> bool:
        one = metadata.brokers.get(request.broker_id)
        return one is not None and one.epoch == request.broker_epoch and one.fenced == answer.is_fenced

    yield f"broker {request.broker_id} {'' if answer.is_fenced else 'not '}fenced", holds


def _finalized(request: Struct, answer: Struct) -> Iterator[Claim]:
    refused = [row.feature for row in answer.get("results", ()) if row.error_code]
    for asked in request.feature_updates:
        if asked.feature not in refused and asked.feature != "kraft.version":
            yield f"{asked.feature} at {asked.max_version_level}", _has_level(asked.feature, asked.max_version_level)


def _has_level(feature: str, level: int) -> Holds:
    return lambda metadata: metadata.features.get(feature, 0) == level


_CLAIMS: Mapping[Any, Callable[[Struct, Struct], Iterator[Claim]]] = {
    ApiKey.CREATE_TOPICS: _created_topics,
    ApiKey.DELETE_TOPICS: _deleted_topics,
    ApiKey.CREATE_PARTITIONS: _created_partitions,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _changed_settings,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _reassigned,
    ApiKey.ELECT_LEADERS: _elected,
    ApiKey.ALTER_PARTITION: _altered,
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: _assigned,
    ApiKey.UNREGISTER_BROKER: _unregistered,
    ApiKey.BROKER_REGISTRATION: _registered,
    ApiKey.BROKER_HEARTBEAT: _heard,
    ApiKey.UPDATE_FEATURES: _finalized,
}
