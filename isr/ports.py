"""What a `ReplicaManager` needs from the rest of the node, and its settings."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeAlias
from uuid import UUID

from ..log.append_info import AppendInfo
from ..log.config import LogConfig
from ..runtime.incremental_work import Work
from ..runtime.ports import Buffer
from ..wire.fetch import FetchPartition, FetchPartitionResponse
from ..wire.types import TopicPartition
from .fetching.replica_selector import ReplicaSelector
from .leader.leader_state import AlterPartitionResult, IsrProposal
from .results import AppendDone, FetchParams

ReplicaKey: TypeAlias = tuple[UUID, int]
"""Topic id and partition index."""


class FetchKey(NamedTuple):
    """A partition as a fetch names it: by topic name up to version 12, by topic id from 13 on."""

    topic: str | UUID
    partition: int


class WantedPartition(NamedTuple):
    """One partition of a fetch; `topic_partition` None and an error code where there is no such partition."""

    key: FetchKey
    request: FetchPartition
    topic_partition: TopicPartition | None
    error_code: int = 0


@dataclass(frozen=True, slots=True)
class AlterPartitionItem:
    """One partition's ISR proposal, as it goes to the controller."""

    topic_id: UUID
    topic_partition: TopicPartition
    proposal: IsrProposal


class AlterPartitionPort(Protocol):
    """Sends ISR proposals to the active controller."""

    def __call__(self, items: Sequence[AlterPartitionItem]) -> Awaitable[Sequence[AlterPartitionResult]]:
        """One result per item, in order. Raises any exception when there is no answer; the caller tries again."""
        ...


class FetchConnection(Protocol):
    """A connection to another broker (`wire.client.Connection`)."""

    @property
    def is_closed(self) -> bool:
        """Whether the connection is lost, or was closed."""
        ...

    @property
    def received_bytes(self) -> int:
        """How much was received so far: responses, and parts of them."""
        ...

    def send_raw(self, api_key: int, version: int, body: Sequence[Buffer]) -> asyncio.Future[memoryview]:
        """The response's body; fails when the connection is lost."""
        ...

    async def request(self, api_key: int, version: int, fields: Mapping[str, Any]) -> Any:
        """Send a request; the decoded response."""
        ...

    def close(self) -> None:
        """Close the connection; requests without a response fail."""
        ...


class FetchCaller(Protocol):
    """Who waits for the answer to a fetch."""

    on_gone: Callable[[], object] | None
    """Called when nobody waits any more."""

    @property
    def is_gone(self) -> bool:
        """Whether nobody waits any more."""
        ...

    def run_in_steps(self, work: Work[None]) -> object:
        """Do the work of a fetch of many partitions in later iterations of the loop, and never hold it."""
        ...

    def charge(self, items: int) -> None:
        """So many partitions are handled at once in this iteration of the loop."""
        ...


class AppendCaller(Protocol):
    """The request that batches come from."""

    @property
    def sender(self) -> object:
        """Whose request it is, such as the connection. The batches of one sender for a partition stay in order."""
        ...

    def defer(self, size_bytes: int) -> Callable[[], None] | None:
        """Account for so many bytes of it that are copied and wait to be validated.

        Returns what gives the memory back, which is called once; None where there is no memory.
        """
        ...


class ReplicaObserver:
    """Observes the records that pass through a replica manager, to count them. This class ignores them.

    Its methods run on the path of every request, so an implementation must be fast and must not raise.
    """

    __slots__ = ()

    def on_append(self, entries: Sequence[tuple[TopicPartition, memoryview | None]], done: AppendDone) -> AppendDone:
        """A produce request has come. Returns the callback to answer it with: `done`, or one that ends in `done`."""
        return done

    def on_appended(self, topic_partition: TopicPartition, info: AppendInfo, records: memoryview) -> None:
        """The leader's log has taken `records`, as they came from the producer, or knows them already."""

    def on_fetch(self, params: FetchParams, wanted: Sequence[WantedPartition]) -> None:
        """A fetch request without a follower's incremental session has come."""

    def on_fetched(
        self,
        params: FetchParams,
        wanted: Sequence[WantedPartition],
        rows: Sequence[FetchPartitionResponse],
    ) -> None:
        """A fetch request is answered, with one row for each partition of `wanted`."""

    def on_records_fetched(self, topic_partition: TopicPartition, size_bytes: int) -> None:
        """This broker, as a follower, has fetched records."""


NO_OBSERVER = ReplicaObserver()


def _ignore_storage_error(topic_partition: TopicPartition, error: OSError) -> None:
    """The default of `ReplicaPorts.on_storage_error`."""


def _ignore_no_space(topic_partition: TopicPartition) -> None:
    """The default of `ReplicaPorts.on_no_space`."""


@dataclass(frozen=True, slots=True)
class ReplicaPorts:
    """What a `ReplicaManager` calls in the node around it."""

    alter_partition: AlterPartitionPort
    connect: Callable[[int], Awaitable[FetchConnection]]
    """Connects to a broker by id; raises `OSError` (refused, unknown broker, time-out)."""
    broker_epoch: Callable[[], int]
    """This broker's own epoch, -1 before it is registered."""
    assign_to_dirs: Callable[[Mapping[ReplicaKey, UUID]], Awaitable[Mapping[ReplicaKey, int]]]
    """Tells the controller in which log directories replicas are; returns the error code of each (KIP-858).

    Raises as `alter_partition`."""
    on_storage_error: Callable[[TopicPartition, OSError], None] = _ignore_storage_error
    """A partition's log cannot be used any more."""
    on_no_space: Callable[[TopicPartition], None] = _ignore_no_space
    """A write to the partition's log found the disk full, and was taken back."""
    observer: ReplicaObserver = NO_OBSERVER


@dataclass(frozen=True, slots=True)
class ReplicaManagerConfig:
    """Settings by Kafka's names: `replica_lag_time_max_ms` is `replica.lag.time.max.ms`, and so on."""

    node_id: int
    cluster_id: str = ""
    default_min_isr: int = 1
    default_log_config: LogConfig = field(default_factory=LogConfig)
    replica_lag_time_max_ms: int = 30_000
    replica_fetch_wait_max_ms: int = 500
    replica_fetch_min_bytes: int = 1
    replica_fetch_max_bytes: int = 1 << 20
    replica_fetch_response_max_bytes: int = 10 << 20
    replica_fetch_backoff_min_ms: int = 50
    replica_fetch_backoff_max_ms: int = 1_000
    replica_socket_timeout_ms: int = 30_000
    fetch_session_slots: int = 1_000
    """`max.incremental.fetch.session.cache.slots`"""
    alter_partition_backoff_ms: int = 50
    high_watermark_checkpoint_interval_ms: int = 5_000
    replication_quota_window_num: int = 11
    replication_quota_window_size_ms: int = 1_000
    dirs_quota_window_num: int = 11
    """`alter.log.dirs.replication.quota.window.num`"""
    dirs_quota_window_size_ms: int = 1_000
    replica_selector: ReplicaSelector | None = None
    """`replica.selector.class`"""
