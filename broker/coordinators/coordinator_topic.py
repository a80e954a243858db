"""The internal topic of a coordinator: its partitions, and requests that wait until it is created."""

from __future__ import annotations

import asyncio
from typing import Protocol

from ...controller.metadata.metadata_image import MetadataImage, PartitionRegistration, TopicImage
from ...controller.metadata.metadata_loader import MetadataLoader
from .partition_for import partition_for


class InternalTopicConfig(Protocol):
    """With what an internal topic is created."""

    @property
    def partitions(self) -> int:
        """How many partitions it has."""
        ...

    @property
    def replication_factor(self) -> int:
        """How many replicas each partition has."""
        ...

    def topic_configs(self) -> dict[str, str]:
        """The topic's own settings."""
        ...


class CoordinatorTopic:
    """The topic `name`, as this node knows it."""

    def __init__(self, name: str, config: InternalTopicConfig, metadata: MetadataLoader) -> None:
        self.name = name
        self._config = config
        self.metadata = metadata
        self._waiters: list[asyncio.Future[None]] = []

    @property
    def image(self) -> TopicImage | None:
        """The topic; None before it is created."""
        return self.metadata.image.topics_by_name.get(self.name)

    def partition_of(self, key: str) -> int:
        """The partition of the key, also before the topic is created."""
        topic = self.image
        return partition_for(key, self._config.partitions if topic is None else len(topic.partitions))

    def registration_of(self, key: str) -> PartitionRegistration | None:
        """The registration of the key's partition; None before the topic is created."""
        topic = self.image
        return None if topic is None else topic.partitions.get(self.partition_of(key))

    def coordinator_of(self, key: str) -> int | None:
        """The broker that coordinates the key, None while there is none."""
        registration = self.registration_of(key)
        broker = None if registration is None else self.metadata.image.brokers.get(registration.leader)
        return None if broker is None or broker.fenced else broker.broker_id

    async def wait(self, timeout_s: float) -> None:
        """Return when this node knows the topic, or after the time-out."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        await asyncio.wait([waiter], timeout=timeout_s)
        if waiter in self._waiters:
            self._waiters.remove(waiter)

    def on_metadata(self, image: MetadataImage) -> None:
        """End the waiting when the topic is there."""
        if self._waiters and self.name in image.topics_by_name:
            for waiter in self._waiters:
                if not waiter.done():
                    waiter.set_result(None)
            self._waiters.clear()

    def close(self) -> None:
        """Cancel those that wait."""
        for waiter in self._waiters:
            waiter.cancel()
