"""The transaction coordinator: where the coordinator of a transactional id is."""

from __future__ import annotations

from ...controller.metadata.metadata_image import MetadataDelta, MetadataImage
from ...controller.metadata.metadata_loader import MetadataLoader
from ..coordinators.coordinator_topic import CoordinatorTopic
from .transaction_config import TRANSACTION_TOPIC, TransactionConfig


class TransactionCoordinator:
    """The transactional ids of one broker."""

    def __init__(self, config: TransactionConfig, metadata: MetadataLoader) -> None:
        self.config = config
        self.topic = CoordinatorTopic(TRANSACTION_TOPIC, config.topic, metadata)

    def on_metadata(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """The metadata changed."""
        self.topic.on_metadata(image)

    def partition_of(self, transactional_id: str) -> int:
        """The id's partition of `__transaction_state`, also before the topic is created."""
        return self.topic.partition_of(transactional_id)
