"""The settings of a node, with those of its listeners' certificates that are changed while it runs (KIP-226)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ...controller.configs.security_configs import certificate_config
from ...controller.metadata.metadata_image import BROKER_RESOURCE, MetadataDelta, MetadataImage
from .node_config import NodeConfig


class CurrentConfig:
    """The settings file of a node, and the dynamic settings of certificates that count before it."""

    def __init__(self, config: NodeConfig) -> None:
        self._of_file = config
        self._key = (BROKER_RESOURCE, str(config.node_id))
        self.config = config
        """The settings that count now."""

    def on_metadata(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """Follow the committed metadata, as a publisher of the loader."""
        if self._key in delta.changed_configs:
            self.config = self.with_dynamic(image.configs.get(self._key, {}))

    def with_dynamic(self, values: Mapping[str, str]) -> NodeConfig:
        """The settings of the file under these dynamic ones."""
        dynamic = {name: value for name, value in values.items() if certificate_config(name) is not None}
        return replace(self._of_file, properties={**self._of_file.properties, **dynamic})
