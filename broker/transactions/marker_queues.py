"""Which markers are to be sent to which broker. Pure: no connection and no clock.

Markers wait by the leader of their partition. When a request is made up, all that wait for a broker go with it, and
when it fails they are handed out again by the leaders of that time. A transaction's markers are written until every
partition has its marker, the transaction's coordinator is another one, or the partition is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import IntEnum
from typing import Any, NamedTuple, TypeAlias

from ...isr.leader.transaction_markers import TransactionMarker
from ...runtime.invariants import sometimes
from ...wire.codec import Struct
from ...wire.errors import ErrorCode, known_error
from ...wire.types import TopicPartition, by_topic


class Ending(NamedTuple):
    """A transaction that is ending: its id, the partition of `__transaction_state` that holds it, and its marker."""

    coordinator_partition: int
    transactional_id: str
    marker: TransactionMarker


class Nobody(IntEnum):
    """Why a marker goes to no broker."""

    NO_LEADER = -1
    GONE = -2
    """The topic or the partition does not exist any more: there is nothing to end in it."""


Batch: TypeAlias = dict[Ending, dict[TopicPartition, None]]
"""Markers with the partitions that they go to."""

_WRITTEN = frozenset(
    {
        ErrorCode.NONE,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    }
)
"""INVALID_PRODUCER_EPOCH: the partition knows a later producer, so nothing of this transaction is open there."""


class MarkerQueues:
    """The markers that wait. `leader_of` gives the leader of a partition, or why there is none."""

    def __init__(self, leader_of: Callable[[TopicPartition], int]) -> None:
        self._leader_of = leader_of
        self._waiting: dict[int, Batch] = {}

    @property
    def brokers(self) -> list[int]:
        """The brokers for which markers wait."""
        return [broker_id for broker_id, batch in self._waiting.items() if batch and broker_id >= 0]

    def __len__(self) -> int:
        return sum(len(partitions) for batch in self._waiting.values() for partitions in batch.values())

    def add(self, ending: Ending, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Queue the marker for each partition; returns the partitions that are gone."""
        gone = []
        for one in partitions:
            leader = self._leader_of(one)
            sometimes(leader == Nobody.NO_LEADER, "a marker waited for a partition that had no leader")
            if leader == Nobody.GONE:
                sometimes(True, "a transaction ended in a partition that had been deleted")
                gone.append(one)
            else:
                self._waiting.setdefault(leader, {}).setdefault(ending, {})[one] = None
        return gone

    def take(self, broker_id: int) -> Batch:
        """All that waits for the broker, or for a leader (`Nobody.NO_LEADER`)."""
        return self._waiting.pop(broker_id, {})

    def drop(self, coordinator_partition: int) -> None:
        """Forget the markers of a partition that this broker does not coordinate any more."""
        for broker_id, batch in list(self._waiting.items()):
            self._waiting[broker_id] = {
                ending: partitions
                for ending, partitions in batch.items()
                if ending.coordinator_partition != coordinator_partition
            }


def request_fields(batch: Batch) -> dict[str, Any]:
    """The WriteTxnMarkers request."""
    return {"markers": [_marker_fields(ending.marker, partitions) for ending, partitions in batch.items()]}


def _marker_fields(marker: TransactionMarker, partitions: Iterable[TopicPartition]) -> dict[str, Any]:
    return {
        "producer_id": marker.producer_id,
        "producer_epoch": marker.producer_epoch,
        "transaction_result": marker.is_commit,
        "topics": [{"name": name, "partition_indexes": indexes} for name, indexes in by_topic(partitions).items()],
        "coordinator_epoch": marker.coordinator_epoch,
        "transaction_version": marker.transaction_version,
    }


def response_codes(response: Struct) -> dict[tuple[int, TopicPartition], ErrorCode]:
    """The error code of each producer id and partition in a WriteTxnMarkers response."""
    return {
        (marker.producer_id, TopicPartition(topic.name, row.partition_index)): known_error(row.error_code)
        for marker in response.markers
        for topic in marker.topics
        for row in topic.partitions
    }


def split(
    ending: Ending,
    partitions: Iterable[TopicPartition],
    codes: dict[tuple[int, TopicPartition], ErrorCode],
) -> tuple[list[TopicPartition], dict[TopicPartition, ErrorCode]]:
    """The partitions that have their markers; and those that need them again, with the reason."""
    done: list[TopicPartition] = []
    again: dict[TopicPartition, ErrorCode] = {}
    for one in partitions:
        code = codes.get((ending.marker.producer_id, one), ErrorCode.UNKNOWN_SERVER_ERROR)
        if code in _WRITTEN:
            sometimes(
                code is ErrorCode.INVALID_PRODUCER_EPOCH,
                "a marker was not needed because the partition knew a later epoch of its producer",
            )
            done.append(one)
        else:
            again[one] = code
    return done, again
