"""The invariant "nodes have the same metadata at the same offset", checked whenever a node has applied more of it.

Nodes come to an image by the log, by a snapshot, or as the controller that decided what is in it. Whichever way that
was, their images are the same, also in the order of what is in them, by which decisions are made.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .....controller.metadata.metadata_image import MetadataImage
from .....controller.metadata.metadata_loader import MetadataLoader
from ..invariant_broken import InvariantBroken

Part = tuple[tuple[Any, Any], ...]


class ImageChecker:
    """Remembers the image of each offset, and compares those of all nodes with it."""

    def __init__(self) -> None:
        self._at_offsets: dict[int, Mapping[str, Part]] = {}
        self._seen: dict[int, tuple[MetadataLoader, int]] = {}
        """The loader of each node's present incarnation, and its last offset."""

    def after_event(self, node_id: int, loader: MetadataLoader) -> bool:
        """Check the node whose event has just run; whether it has another image. Raises `InvariantBroken`."""
        image, seen = loader.image, self._seen.get(node_id)
        if image.offset < 0 or (seen is not None and seen[0] is loader and seen[1] == image.offset):
            return False
        self._seen[node_id] = loader, image.offset
        parts = parts_of(image)
        known = self._at_offsets.setdefault(image.offset, parts)
        if parts != known:
            detail = f"node {node_id} at {image.offset}: {difference_in(parts, known)}"
            raise InvariantBroken("nodes have the same metadata at the same offset", detail)
        return True

    def at(self, offset: int) -> Mapping[str, Part] | None:
        """What is in the images at the offset; None if no node was seen there."""
        return self._at_offsets.get(offset)


def difference_in(parts: Mapping[str, Part], known: Mapping[str, Part]) -> str:
    """In what two images differ first."""
    for name, part in parts.items():
        if part != known[name]:
            differing = sorted({*map(str, part)} ^ {*map(str, known[name])}) or ["their order"]
            return f"differs in {name}: {', '.join(differing)[:500]}"
    return "no difference"


def parts_of(image: MetadataImage) -> Mapping[str, Part]:
    """What is in an image, by what it is about. Values that change in place are copied."""
    return {
        "numbers": (("epoch", image.epoch), ("next producer id", image.next_producer_id)),
        "brokers": tuple(image.brokers.items()),
        "controllers": tuple(image.controllers.items()),
        "topics": tuple(
            ((topic.name, topic_id), tuple(topic.partitions.items())) for topic_id, topic in image.topics_by_id.items()
        ),
        "settings": tuple((key, tuple(values.items())) for key, values in image.configs.items()),
        "features": tuple(image.features.items()),
        "credentials": tuple(image.scram_credentials.items()),
        "access control lists": tuple(image.acls.items()),
        "quotas": tuple((key, tuple(values.items())) for key, values in image.client_quotas.items()),
        "tokens": tuple(image.delegation_tokens.items()),
    }
