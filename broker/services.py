"""What the handlers of a broker listener may use."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from ..controller.metadata.metadata_image import MetadataImage
from ..isr.fetching.fetch_requests import WatchedFetch
from ..isr.fetching.incremental_fetch_context import IncrementalFetchContext
from ..isr.ports import TopicIdPartition
from ..isr.replica import Replica
from ..isr.results import AppendDone, DeletedRecords, EpochEndResult, FetchDone, FetchParams, ListOffsetResult
from ..log.results import LogDirView
from ..runtime.ports import Runtime
from ..wire.codec import Struct
from ..wire.fetch import FetchPartition
from ..wire.types import TopicPartition
from .config import BrokerConfig
from .fetch_sessions import FetchSessionCache
from .groups.coordinator import GroupCoordinator
from .network.request import Request
from .to_controller.suspected_brokers import SuspectedBrokers


class ImageSource(Protocol):
    """The committed metadata as this node has applied it."""

    @property
    def image(self) -> MetadataImage: ...

    @property
    def finalized_features(self) -> Mapping[str, int]: ...


class ParkedFetch(Protocol):
    """A fetch that waits for records."""

    def cancel(self) -> object:
        """Forget it: nobody is there to take the answer."""
        ...


class Replicas(Protocol):
    """The partitions of this broker (`isr.replica_manager.ReplicaManager`)."""

    @property
    def partitions(self) -> Mapping[TopicPartition, Replica]:
        """All replicas that are here."""
        ...

    @property
    def applied_offset(self) -> int:
        """Up to which offset of the metadata every role is taken up."""
        ...

    def append(
        self,
        acks: int,
        timeout_ms: int,
        entries: Sequence[tuple[TopicPartition, memoryview | None]],
        done: AppendDone,
    ) -> None:
        """Append to the logs; `done` is called with a result an entry, at once or when enough replicas have it."""
        ...

    def fetch(
        self, params: FetchParams, partitions: Sequence[tuple[TopicIdPartition, FetchPartition]], done: FetchDone
    ) -> ParkedFetch | None:
        """Read; `done` is called with a response an entry: at once (None is returned), or when there is enough."""
        ...

    def open_watch(self, replica_id: int) -> IncrementalFetchContext:
        """What a new fetch session of that follower has to look at, kept up to date."""
        ...

    def fetch_watched(self, params: FetchParams, fetch: WatchedFetch) -> ParkedFetch | None:
        """`fetch`, for an incremental fetch of a follower with a watch."""
        ...

    def list_offset(
        self,
        topic_partition: TopicPartition,
        timestamp: int,
        current_leader_epoch: int,
        isolation_level: int,
        replica_id: int,
    ) -> ListOffsetResult: ...

    def delete_records(self, topic_partition: TopicPartition, offset: int) -> DeletedRecords: ...

    def low_watermark(self, topic_partition: TopicPartition) -> DeletedRecords: ...

    def log_dirs(self) -> Sequence[LogDirView]:
        """This broker's directories."""
        ...

    def move_to_dir(self, topic_partition: TopicPartition, path: str) -> None:
        """Begin to move a replica to another directory. `ProtocolError`."""
        ...

    def offset_for_leader_epoch(
        self, topic_partition: TopicPartition, current_leader_epoch: int, leader_epoch: int
    ) -> EpochEndResult: ...


class Forwarder(Protocol):
    """Hands a request to the active controller as it is."""

    def forward(self, request: Request, message: Struct) -> Awaitable[Struct]:
        """The controller's response. Raises ProtocolError when no controller answers in time."""
        ...


class ProducerIds(Protocol):
    """Cluster-wide unique producer ids."""

    def next_id(self) -> int | None:
        """An id at once, or None while none is at hand."""
        ...

    def wait_for_id(self) -> Awaitable[int]:
        """An id as soon as the controller gives some; ProtocolError when it does not."""
        ...


class TopicCreator(Protocol):
    """Creates topics that a client asked the metadata of."""

    def request_topics(self, names: Sequence[str]) -> None:
        """Start creating them; returns at once."""
        ...


@dataclass(frozen=True, slots=True)
class BrokerServices:
    """The context of every handler on a broker listener.

    `active_controller()` is its node id, None if unknown; for `lingering_brokers()` see `lingering.py`.
    """

    config: BrokerConfig
    runtime: Runtime
    metadata: ImageSource
    replicas: Replicas
    sessions: FetchSessionCache
    forwarder: Forwarder
    producer_ids: ProducerIds
    topic_creator: TopicCreator
    active_controller: Callable[[], int | None]
    lingering_brokers: Callable[[], list[int]]
    suspects: SuspectedBrokers
    version_rows: Callable[[], list[dict[str, int]]]
    groups: GroupCoordinator
