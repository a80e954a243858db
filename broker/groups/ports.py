"""What the group coordinator needs of its broker."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from ...controller.metadata.metadata_image import MetadataImage
from ...isr.replica import Replica
from ...isr.results import AppendDone
from ...wire.types import TopicPartition


class OffsetsReplicas(Protocol):
    """The broker's partitions (`isr.replica_manager.ReplicaManager`)."""

    @property
    def partitions(self) -> Mapping[TopicPartition, Replica]: ...

    @property
    def append(self) -> Callable[[int, int, Sequence[tuple[TopicPartition, memoryview | None]], AppendDone], None]:
        """See `ReplicaManager.append`."""
        ...


class ImageSource(Protocol):
    """The committed metadata as this node has applied it."""

    @property
    def image(self) -> MetadataImage: ...
