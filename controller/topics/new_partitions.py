"""New partitions, for CreateTopics and CreatePartitions: the brokers that may have them, and their records."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias
from uuid import UUID

from ...wire.errors import ErrorCode, ProtocolError
from ..metadata.metadata_image import MetadataImage
from ..metadata.metadata_records import PartitionRecord
from ..partitions.replica_directories import directories_of_new
from ..result import Response, error_response
from ..settings import ControllerSettings
from .replica_placement import UsableBroker

PARTITIONS_PER_REQUEST_MAX = 10_000


CountPartitions: TypeAlias = Callable[[int], None]
"""Counts partitions that a client has created or deleted; raises `ProtocolError` beyond its quota (KIP-599)."""


class TopicContext(NamedTuple):
    """What a decision about topics needs; `rng` draws topic ids and placements."""

    image: MetadataImage
    settings: ControllerSettings
    rng: random.Random


def counts_nothing(partitions: int) -> None:
    """There is no quota of changes."""


def topic_error(name: str | None, error: ProtocolError) -> Response:
    """The row of a response for a topic that is refused."""
    return {"name": name, **error_response(error.code, error.message or None)}


def usable_brokers(image: MetadataImage) -> list[UsableBroker]:
    """The brokers that may get new replicas: all but those in controlled shutdown."""
    return [
        UsableBroker(broker.broker_id, broker.rack, broker.fenced)
        for broker in sorted(image.brokers.values(), key=lambda broker: broker.broker_id)
        if not broker.in_controlled_shutdown
    ]


def repeated_brokers(replicas: Sequence[int]) -> list[int]:
    """The brokers that are named more than once, in their order."""
    return [broker_id for broker_id, times in Counter(replicas).items() if times > 1]


def check_manual_assignment(
    image: MetadataImage, assignments: Sequence[tuple[int, ...]], replication_factor: int
) -> None:
    """Raise `ProtocolError(INVALID_REPLICA_ASSIGNMENT)` unless all brokers are registered and each list fits."""
    prefix = "The manual partition assignment includes"
    for replicas in assignments:
        complaint = None
        unknown = [broker_id for broker_id in replicas if broker_id not in image.brokers]
        repeated = repeated_brokers(replicas)
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


def new_partitions(
    image: MetadataImage, topic_id: UUID, first_index: int, assignments: Sequence[tuple[int, ...]]
) -> list[PartitionRecord]:
    """The records of new partitions with these replicas, numbered from `first_index`.

    Raises `ProtocolError(INVALID_REPLICA_ASSIGNMENT)` for a partition without an active replica.
    """
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
