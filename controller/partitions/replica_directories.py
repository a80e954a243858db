"""AssignReplicasToDirs and failed directories (KIP-858): a failed disk costs its replicas, not the whole broker.

A broker registers the ids of its log directories. It reports where it put each replica (AssignReplicasToDirs) and which
directories have failed (BrokerHeartbeat). A replica in a directory that its broker does not have is in no ISR and is
not elected, until the broker reports another directory. A replica without a reported directory counts as online.

The reserved id LOST says that the broker's data of a replica is gone for good, for example when a disk was exchanged
for an empty one. It tells a replica that was found in another directory, and may lead, from one that starts empty, and
must not lead. So a broker reports LOST before it creates an empty log in place of the lost one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING
from uuid import UUID

from ...runtime.incremental_work import Pace
from ...runtime.invariants import sometimes
from ...wire.errors import ErrorCode, ProtocolError
from ..brokers.broker_epoch import check_broker_epoch
from ..metadata.metadata_image import BrokerRegistration, MetadataImage, PartitionRegistration, TopicImage
from ..metadata.metadata_records import (
    LOST,
    MIGRATING,
    NO_LEADER,
    UNASSIGNED,
    BrokerChangeRecord,
    PartitionChangeRecord,
    Record,
)
from ..result import ControllerResult, Decision, Parts, Response
from ..settings import ControllerSettings
from . import broker_departures
from .partition_change import PartitionRules, decide_partition_change

if TYPE_CHECKING:
    from ...wire.message_types.brokers import AssignReplicasToDirsRequest

_RESERVED = 100


def is_reserved(directory: UUID) -> bool:
    """Whether the id cannot be that of a directory: Kafka reserves the first hundred."""
    return directory.int < _RESERVED


def directories_of_new(image: MetadataImage, replicas: Sequence[int]) -> tuple[UUID, ...]:
    """The directories of new replicas: known for brokers with one directory, else UNASSIGNED."""
    known = tuple(_default_directory(image, broker_id) for broker_id in replicas)
    return () if all(directory == MIGRATING for directory in known) else known


def _default_directory(image: MetadataImage, broker_id: int) -> UUID:
    broker = image.brokers.get(broker_id)
    if broker is None or not broker.log_dirs:
        return MIGRATING
    return broker.log_dirs[0] if len(broker.log_dirs) == 1 else UNASSIGNED


# -- registration ----------------------------------------------------------------------------------------------------


def check_registered_directories(image: MetadataImage, broker_id: int, directories: Sequence[UUID | None]) -> None:
    """Raise `ProtocolError(INVALID_REGISTRATION)` when the ids cannot be those of the broker's directories."""
    complaint = None
    times = Counter(directories)
    owners = {directory: broker.broker_id for broker in image.brokers.values() for directory in broker.log_dirs}
    for directory in directories:
        if directory is None or is_reserved(directory):
            complaint = "Reserved directory ID in request"
        elif times[directory] > 1:
            complaint = "Duplicate directory ID in request"
        elif owners.get(directory, broker_id) != broker_id:
            complaint = f"Broker {owners[directory]} is already registered with directory {directory}"
        if complaint is not None:
            raise ProtocolError(ErrorCode.INVALID_REGISTRATION, complaint)


# -- heartbeats ------------------------------------------------------------------------------------------------------


def newly_failed_directories(broker: BrokerRegistration, offline: Sequence[UUID | None]) -> list[UUID]:
    """The directories that a heartbeat reports as offline for the first time."""
    reported = dict.fromkeys(offline)
    return [directory for directory in broker.log_dirs if directory in reported]


def remove_offline_directories(
    image: MetadataImage, settings: ControllerSettings, broker: BrokerRegistration, failed: Sequence[UUID]
) -> Parts[list[Record]]:
    """Take the failed directories out of the registration, and their replicas out of ISRs and leaderships.

    The last records take the directories out. Raises `ProtocolError(STALE_BROKER_EPOCH)` if the broker registers anew
    meanwhile.
    """
    departures = broker_departures.Departures()
    while True:
        leaving = broker_departures.remove_failed_directories(image, settings, broker.broker_id, failed, departures)
        if len(leaving) < broker_departures.CHANGES_PER_BATCH:
            break
        yield leaving
        check_broker_epoch(image, broker.broker_id, broker.epoch)
    left = tuple(one for one in image.brokers[broker.broker_id].log_dirs if one not in failed)
    return [*leaving, BrokerChangeRecord(broker.broker_id, broker.epoch, log_dirs=left)]


# -- AssignReplicasToDirs --------------------------------------------------------------------------------------------


def assign_replicas_to_dirs(
    image: MetadataImage, settings: ControllerSettings, request: AssignReplicasToDirsRequest
) -> Decision:
    """AssignReplicasToDirs 0, in parts of some partitions. Each partition has its own error.

    Raises `ProtocolError(STALE_BROKER_EPOCH)`.
    """
    check_broker_epoch(image, request.broker_id, request.broker_epoch)
    pace = Pace()
    rules = PartitionRules(image, settings)
    records: list[Record] = []
    assigned: dict[tuple[UUID | None, int], None] = {}
    directories: list[Response] = []
    for asked, topic, row in _assignments(request):
        if topic is None:
            directories.append({"id": asked.id, "topics": []})
        elif row is None:
            directories[-1]["topics"].append({"topic_id": topic.topic_id, "partitions": []})
        else:
            code = ErrorCode.NONE
            key = (topic.topic_id, row.partition_index)
            try:
                if key in assigned:
                    raise ProtocolError(ErrorCode.INVALID_REQUEST, "a replica is assigned once a request")
                change = _assign_one(image, rules, request.broker_id, key, asked.id)
                assigned[key] = None
                records += [] if change is None else [change]
            except ProtocolError as error:
                code = error.code
            partitions = directories[-1]["topics"][-1]["partitions"]
            partitions.append({"partition_index": row.partition_index, "error_code": int(code)})
        if pace.ends_step():
            yield records
            records = []
            check_broker_epoch(image, request.broker_id, request.broker_epoch)
    return ControllerResult(records, {"error_code": 0, "directories": directories})


def _assignments(
    request: AssignReplicasToDirsRequest,
) -> Iterator[
    tuple[
        AssignReplicasToDirsRequest.DirectoryData,
        AssignReplicasToDirsRequest.TopicData | None,
        AssignReplicasToDirsRequest.PartitionData | None,
    ]
]:
    for directory in request.directories:
        yield directory, None, None
        for topic in directory.topics:
            yield directory, topic, None
            for partition in topic.partitions:
                yield directory, topic, partition


def _assign_one(
    image: MetadataImage, rules: PartitionRules, broker_id: int, key: tuple[UUID | None, int], directory: UUID | None
) -> PartitionChangeRecord | None:
    topic, index, partition = _find(image, broker_id, key)
    if directory is None or (is_reserved(directory) and directory != LOST):
        raise ProtocolError(ErrorCode.INVALID_REQUEST, "a replica is in a directory, or lost")
    if partition.directory_of(broker_id) == directory:
        return None
    known = partition.directories or tuple(MIGRATING for _ in partition.replicas)
    assigned = tuple(directory if one == broker_id else old for one, old in zip(partition.replicas, known, strict=True))
    moved = partition._replace(directories=assigned)
    if image.is_replica_online(broker_id, moved):
        change = _revived(image, rules, topic, index, moved)
    else:
        change = _without_replica(image, rules, topic, index, moved, broker_id)
    change = change or PartitionChangeRecord(topic.topic_id, index)
    sometimes(change.replicas is not None, "an assignment to a directory completed a reassignment")
    return replace(change, directories=moved.merge(change).directories)


def _find(
    image: MetadataImage, broker_id: int, key: tuple[UUID | None, int]
) -> tuple[TopicImage, int, PartitionRegistration]:
    topic_id, index = key
    topic = None if topic_id is None else image.topics_by_id.get(topic_id)
    if topic is None:
        raise ProtocolError(ErrorCode.UNKNOWN_TOPIC_ID)
    partition = topic.partitions.get(index)
    if partition is None:
        raise ProtocolError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if broker_id not in partition.replicas:
        raise ProtocolError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    return topic, index, partition


def _revived(
    image: MetadataImage, rules: PartitionRules, topic: TopicImage, index: int, partition: PartitionRegistration
) -> PartitionChangeRecord | None:
    """The replica is in a known directory again: it may lead a partition without a leader."""
    if partition.leader != NO_LEADER:
        return None
    goal = rules.goal(topic.name, partition.isr, partial(image.may_lead, partition))
    return decide_partition_change(topic.topic_id, index, partition, goal)


def _without_replica(
    image: MetadataImage,
    rules: PartitionRules,
    topic: TopicImage,
    index: int,
    partition: PartitionRegistration,
    broker_id: int,
) -> PartitionChangeRecord | None:
    """The replica is lost, or in a directory that has failed meanwhile."""
    isr = tuple(replica for replica in partition.isr if replica != broker_id)
    is_lost = partition.directory_of(broker_id) == LOST
    goal = rules.goal(topic.name, isr, partial(image.may_lead, partition), broker_id)
    goal = replace(goal, is_lost=is_lost)
    change = decide_partition_change(topic.topic_id, index, partition, goal)
    sometimes(is_lost, "a broker told the controller that a replica was lost with its directory")
    if not is_lost:
        return change
    changed = None if change is None else change.last_known_elr
    last_known = partition.last_known_elr if changed is None else changed
    if broker_id not in last_known:
        return change
    kept = tuple(replica for replica in last_known if replica != broker_id)
    return replace(change or PartitionChangeRecord(topic.topic_id, index), last_known_elr=kept)
